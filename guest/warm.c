/* hutch-warm.so: preloaded into a bash that is started ahead of its command. It stops that bash before its `main`, waits for
 * the command, and then lets bash begin as if it had been started as `bash -c COMMAND` just now: same arguments, environment,
 * working folder and descriptors. From there on bash runs its own code only.
 *
 * Descriptors on entry: 3 this library, 4 a socket to the handler. */
#define _GNU_SOURCE
#include <linux/close_range.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { SOCKET = 4, MAX_PACKET = 200000, FDS = 4 };

extern char **environ;

/* Packet: u32 count of variables, the command, the variables, each ended by NUL. With it: stdin, stdout, stderr, folder. */
static ssize_t receive_command(char *packet, int fds[FDS])
{
    union { char bytes[CMSG_SPACE(sizeof(int) * FDS)]; struct cmsghdr align; } control;
    struct iovec part = {packet, MAX_PACKET};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t got = recvmsg(SOCKET, &message, 0);
    struct cmsghdr *c = CMSG_FIRSTHDR(&message);
    if (got <= 0 || !c || c->cmsg_len != CMSG_LEN(sizeof(int) * FDS))
        return -1;
    memcpy(fds, CMSG_DATA(c), sizeof(int) * FDS);
    return got;
}

/* The command takes the place of the blank argument, so that it shows in the process list, where it fits. */
static void set_command(char **argv, char *command)
{
    size_t room = strlen(argv[2]), length = strlen(command);
    if (length <= room) {
        memset(argv[2], 0, room);
        memcpy(argv[2], command, length);
    } else {
        argv[2] = command;
    }
}

__attribute__((constructor)) static void wait_for_command(int argc, char **argv, char **envp)
{
    int fds[FDS];
    uint32_t count;
    (void)envp;
    if (argc != 3)
        _exit(127);
    char *packet = mmap(NULL, MAX_PACKET + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (packet == MAP_FAILED || write(SOCKET, "", 1) != 1)
        _exit(127);
    ssize_t got = receive_command(packet, fds);
    if (got < (ssize_t)sizeof count)
        _exit(0); /* nobody wants us any more */
    memcpy(&count, packet, sizeof count);
    char *at = packet + sizeof count;
    char **variables = mmap(NULL, (count + 1) * sizeof *variables, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (variables == MAP_FAILED || fchdir(fds[3]))
        _exit(127);
    set_command(argv, at);
    for (uint32_t i = 0; i < count; i++)
        variables[i] = at += strlen(at) + 1;
    environ = variables;
    for (int i = 0; i < 3; i++)
        dup2(fds[i], i);
    syscall(SYS_close_range, 3u, ~0u, 0u);
}
