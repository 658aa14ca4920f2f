/* Packets in and out. Never trusts a length, and never lets a descriptor that came with a packet go lost. */
#define _GNU_SOURCE
#include "guest.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

static char buffer[MAX_REQUEST + 1];
static union {
    char bytes[CMSG_SPACE(sizeof(int) * 8)];
    struct cmsghdr align;
} ancillary;

void close_request_fds(struct request *request)
{
    for (int i = 0; i < request->fd_count; i++)
        if (request->fds[i] >= 0)
            close(request->fds[i]);
    request->fd_count = 0;
}

/* Keeps the first three descriptors and closes the rest. Returns false if there were more. */
static bool take_fds(struct msghdr *message, struct request *request)
{
    bool fits = true;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            if (request->fd_count < MAX_REQUEST_FDS) {
                request->fds[request->fd_count++] = fd;
            } else {
                close(fd);
                fits = false;
            }
        }
    }
    return fits && !(message->msg_flags & MSG_CTRUNC);
}

enum received receive(int connection, struct request *request)
{
    struct iovec part = {buffer, MAX_REQUEST};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &ancillary,
                             .msg_controllen = sizeof ancillary};
    ssize_t got;
    request->fd_count = 0;
    do
        got = recvmsg(connection, &message, MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return RECEIVED_END;
    bool fits = take_fds(&message, request);
    if (got == 0) {
        close_request_fds(request);
        return RECEIVED_END; /* an empty packet looks the same, and nobody sends one in earnest */
    }
    if (!fits || message.msg_flags & MSG_TRUNC || (size_t)got < sizeof request->head) {
        close_request_fds(request);
        return RECEIVED_BAD;
    }
    memcpy(&request->head, buffer, sizeof request->head);
    request->payload = buffer + sizeof request->head;
    request->length = (size_t)got - sizeof request->head;
    buffer[got] = 0;
    if (request->head.version != PROTOCOL_VERSION) {
        close_request_fds(request);
        return RECEIVED_BAD;
    }
    return RECEIVED;
}

void answer(int connection, enum kind kind, const void *payload, size_t length, int fd)
{
    struct { uint8_t version, kind; uint16_t zero; int32_t error; } head = {PROTOCOL_VERSION, (uint8_t)kind, 0, 0};
    struct iovec parts[2] = {{&head, sizeof head}, {(void *)(uintptr_t)payload, length}};
    union { char bytes[CMSG_SPACE(sizeof(int))]; struct cmsghdr align; } control;
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    if (kind == KIND_ERROR) { /* its payload is an int32 error and the step behind it */
        memcpy(&head.error, payload, sizeof head.error);
        parts[1].iov_base = (char *)parts[1].iov_base + sizeof head.error;
        parts[1].iov_len -= sizeof head.error;
    }
    if (fd >= 0) {
        memset(&control, 0, sizeof control);
        message.msg_control = &control;
        message.msg_controllen = sizeof control;
        struct cmsghdr *c = CMSG_FIRSTHDR(&message);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(c), &fd, sizeof fd);
    }
    /* A host that has gone shows at the next receive. */
    while (sendmsg(connection, &message, MSG_NOSIGNAL) < 0 && errno == EINTR)
        ;
}

void answer_error(int connection, int error, const char *step)
{
    char payload[sizeof(int32_t) + 32];
    size_t length = strnlen(step, 32);
    int32_t number = error;
    memcpy(payload, &number, sizeof number);
    memcpy(payload + sizeof number, step, length);
    answer(connection, KIND_ERROR, payload, sizeof number + length, -1);
}

char *next_text(struct request *request, size_t *at)
{
    if (*at >= request->length)
        return NULL;
    char *text = request->payload + *at;
    char *end = memchr(text, 0, request->length - *at);
    if (!end)
        return NULL;
    *at += (size_t)(end - text) + 1;
    return text;
}

char *only_text(struct request *request)
{
    size_t at = 0;
    char *text = next_text(request, &at);
    return text && at == request->length ? text : NULL;
}
