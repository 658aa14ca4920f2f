/* The sandbox's own loopback, for the host: connections to its ports, and ports of the host's in it. */
#define _GNU_SOURCE
#include "guest.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { DIAL_MS = 5000, BACKLOG = 128 };

static int finish_connect(int fd)
{
    struct pollfd poller = {.fd = fd, .events = POLLOUT};
    int error = ETIMEDOUT;
    socklen_t length = sizeof error;
    if (errno != EINPROGRESS && errno != EAGAIN)
        return -1;
    if (poll(&poller, 1, DIAL_MS) > 0 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) < 0)
        return -1;
    errno = error;
    return error ? -1 : 0;
}

static int dial(const struct sockaddr *address, socklen_t length)
{
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    if (connect(fd, address, length) == 0 || finish_connect(fd) == 0)
        return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

void op_dial(int connection, struct request *request)
{
    if (request->head.a < 1 || request->head.a > 65535 || request->length) {
        answer_error(connection, EINVAL, "request");
        return;
    }
    uint16_t port = htons((uint16_t)request->head.a);
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = port, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = port, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = dial((struct sockaddr *)&four, sizeof four);
    int error = errno; /* of the address nearly everything listens on; there may be no IPv6 at all */
    if (fd < 0)
        fd = dial((struct sockaddr *)&six, sizeof six);
    if (fd < 0) {
        answer_error(connection, error, "connect");
        return;
    }
    answer(connection, KIND_OK, NULL, 0, fd);
    close(fd);
}

static int listen_on(uint16_t port, uint32_t *actual)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&address, length) < 0 || listen(fd, BACKLOG) < 0 ||
        getsockname(fd, (struct sockaddr *)&address, &length) < 0) {
        int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    *actual = ntohs(address.sin_port);
    return fd;
}

void op_listen(int connection, struct request *request)
{
    uint32_t port = 0;
    if (request->head.a > 65535 || request->length) {
        answer_error(connection, EINVAL, "request");
        return;
    }
    int fd = listen_on((uint16_t)request->head.a, &port);
    if (fd < 0) {
        answer_error(connection, errno, "listen");
        return;
    }
    answer(connection, KIND_OK, &port, sizeof port, fd);
    close(fd);
}
