/* A bash started ahead of its command (see warm.c): by the time the command comes, loading it is done. Exact or not at all:
 * what it could not run just as a fresh one would is left to a fresh one, and so is everything once anything is odd. */
#define _GNU_SOURCE
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LIBRARY = 3, SOCKET = 4, ABOVE = 16, SHOWN = 1024, READY_MS = 500 };

static pid_t prepared; /* 0: none */
static int channel = -1;

void forget_prepared(void)
{
    if (!prepared)
        return;
    close(channel);
    kill(prepared, SIGKILL);
    waitpid(prepared, NULL, 0);
    prepared = 0;
}

__attribute__((noreturn)) static void become_shell(int theirs)
{
    static char blank[SHOWN + 1]; /* the command will be written over it */
    char *argv[] = {"bash", "-c", blank, NULL};
    char *env[] = {"LD_PRELOAD=/proc/self/fd/3", NULL};
    sigset_t none;
    memset(blank, ' ', SHOWN);
    setsid();
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int i = 0; i < 3; i++)
        dup2(null, i);
    /* Out of the way first, so that neither of the two overwrites the other. */
    int library = fcntl(places.warm, F_DUPFD_CLOEXEC, ABOVE), socket = fcntl(theirs, F_DUPFD_CLOEXEC, ABOVE);
    int shell = fcntl(places.shell, F_DUPFD_CLOEXEC, ABOVE);
    dup2(library, LIBRARY);
    dup2(socket, SOCKET);
    syscall(SYS_close_range, SOCKET + 1u, ~0u, CLOSE_RANGE_CLOEXEC);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    syscall(SYS_execveat, shell, "", argv, env, AT_EMPTY_PATH);
    _exit(127);
}

/* Without an answer: the next SPAWN is served either way. */
void op_prepare(int connection, struct request *request)
{
    int pair[2];
    (void)connection;
    (void)request;
    if (prepared || places.warm < 0 || places.shell < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
        return;
    pid_t pid = _Fork();
    if (pid == 0)
        become_shell(pair[1]);
    close(pair[1]);
    channel = pair[0];
    prepared = pid > 0 ? pid : 0;
    if (!prepared)
        close(channel);
}

static bool starts_with(const char *text, const char *start)
{
    return !strncmp(text, start, strlen(start));
}

/* What the dynamic loader and the C library read before the command is known. */
static bool read_by_the_loader(const char *variable)
{
    return starts_with(variable, "LD_") || starts_with(variable, "GLIBC_") || starts_with(variable, "MALLOC_");
}

/* bash is ready once its loading is done; one that cannot be loaded so hangs up instead. */
static bool is_ready(void)
{
    struct pollfd poller = {.fd = channel, .events = POLLIN};
    char byte;
    return poll(&poller, 1, READY_MS) > 0 && recv(channel, &byte, 1, MSG_DONTWAIT) == 1;
}

static bool hand_over(char *command, char **env, const int stdio[3], int folder)
{
    enum { MAX_PARTS = 1024 }; /* IOV_MAX */
    struct iovec parts[MAX_PARTS];
    uint32_t count = 0;
    parts[0] = (struct iovec){&count, sizeof count};
    parts[1] = (struct iovec){command, strlen(command) + 1};
    for (; env[count]; count++) {
        if (count + 2 >= MAX_PARTS || read_by_the_loader(env[count]))
            return false;
        parts[count + 2] = (struct iovec){env[count], strlen(env[count]) + 1};
    }
    int fds[4] = {stdio[0], stdio[1], stdio[2], folder};
    union { char bytes[CMSG_SPACE(sizeof fds)]; struct cmsghdr align; } control;
    memset(&control, 0, sizeof control);
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = count + 2, .msg_control = &control,
                             .msg_controllen = sizeof control};
    struct cmsghdr *c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof fds);
    memcpy(CMSG_DATA(c), fds, sizeof fds);
    return sendmsg(channel, &message, MSG_NOSIGNAL | MSG_DONTWAIT) > 0;
}

pid_t start_prepared(char *command, char **env, const char *cwd, const int stdio[3], const struct limit *limits, unsigned count)
{
    if (!prepared)
        return 0;
    /* A folder that cannot be entered is for a fresh child to find out, which can say so. */
    int folder = *cwd ? open(cwd, O_PATH | O_DIRECTORY | O_CLOEXEC) : fcntl(places.workspace, F_DUPFD_CLOEXEC, 3);
    bool good = folder >= 0 && faccessat(folder, ".", X_OK, 0) == 0 && is_ready();
    for (unsigned i = 0; good && i < count; i++) {
        uint64_t both[2] = {limits[i].soft, limits[i].hard};
        good = syscall(SYS_prlimit64, prepared, limits[i].resource, both, NULL) == 0;
    }
    good = good && hand_over(command, env, stdio, folder);
    if (folder >= 0)
        close(folder);
    if (!good) {
        forget_prepared();
        return 0;
    }
    close(channel);
    pid_t pid = prepared;
    prepared = 0;
    return pid;
}
