/* PID 1: accepts connections, forks a handler for each, reaps. It never reads a request, so none can hurt it. */
#define _GNU_SOURCE
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_HANDLERS = 4096, STRAY_PAUSE_NS = 2000000, REFUSE_WAIT_MS = 10 };

struct places places = {-1, -1, -1, -1, -1};
static pid_t handlers[MAX_HANDLERS];
static int handler_count;
static int oom_score = -1; /* our oom_score_adj, opened while we were dumpable: later it is not ours to open */
static char own_oom_score[16] = "0";

static void say(const char *what, const char *why)
{
    char line[256];
    size_t length = 0;
    const char *parts[] = {"hutch-guest: ", what, ": ", why, "\n"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        size_t more = strnlen(parts[i], sizeof line - length);
        memcpy(line + length, parts[i], more);
        length += more;
    }
    if (write(2, line, length) < 0)
        return; /* nobody listens */
}

__attribute__((noreturn)) static void stop(const char *what, const char *why)
{
    say(what, why);
    _exit(1);
}

static bool is_handler(pid_t pid)
{
    for (int i = 0; i < handler_count; i++)
        if (handlers[i] == pid)
            return true;
    return false;
}

static bool forget_handler(pid_t pid)
{
    for (int i = 0; i < handler_count; i++)
        if (handlers[i] == pid) {
            handlers[i] = handlers[--handler_count];
            return true;
        }
    return false;
}

/* Buries the dead. Returns whether a stray may be among the living: a handler that was killed leaves its command to us.
 * One that exits has ended its command first. */
static bool reap(void)
{
    bool strays = false;
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED | __WALL)) > 0) {
        if (WIFSTOPPED(status)) {
            if (is_handler(pid))
                kill(pid, SIGCONT); /* a command may stop its handler, but gains nothing by it */
            else
                strays = true;
        } else if (!forget_handler(pid) || WIFSIGNALED(status)) {
            strays = true;
        }
    }
    return strays;
}

static void refuse(int connection, int error)
{
    char request[sizeof(struct header)];
    /* Unread data would turn our answer into a connection reset; whoever connects sends at once. */
    if (recv(connection, request, sizeof request, MSG_DONTWAIT) < 0) {
        struct pollfd poller = {.fd = connection, .events = POLLIN};
        if (poll(&poller, 1, REFUSE_WAIT_MS) > 0)
            (void)!recv(connection, request, sizeof request, MSG_DONTWAIT);
    }
    answer_error(connection, error, "handler");
}

static void set_oom_score(const char *score)
{
    if (oom_score >= 0)
        (void)!pwrite(oom_score, score, strlen(score), 0); /* best effort: it decides only who dies first */
}

static void accept_one(void)
{
    int connection = accept4(places.listener, NULL, NULL, SOCK_CLOEXEC);
    if (connection < 0)
        return; /* the caller has gone, or descriptors are used up for the moment */
    set_oom_score("500"); /* inherited: when memory runs out commands die, not PID 1 */
    pid_t pid = _Fork();
    int error = errno;
    if (pid == 0) {
        close(places.listener);
        handle(connection);
    }
    set_oom_score(own_oom_score);
    if (pid > 0)
        handlers[handler_count++] = pid;
    else
        refuse(connection, error);
    close(connection);
}

__attribute__((noreturn)) static void serve(void)
{
    sigset_t none;
    bool strays = false;
    sigemptyset(&none);
    for (;;) {
        strays = reap() || strays;
        if (strays) {
            struct listed left = {.count = 0};
            kill_tree_once(is_handler, &left, 0);
            strays = left.count > 0; /* look again until none is left */
        }
        struct timespec pause = {0, STRAY_PAUSE_NS};
        struct pollfd poller = {.fd = handler_count < MAX_HANDLERS ? places.listener : -1, .events = POLLIN};
        if (ppoll(&poller, 1, strays ? &pause : NULL, &none) > 0)
            accept_one();
    }
}

static int descriptor_argument(const char *text)
{
    unsigned number = 0;
    for (const char *at = text; *at; at++) {
        if (*at < '0' || *at > '9' || number > 100000)
            stop(text, "not a descriptor");
        number = number * 10 + (unsigned)(*at - '0');
    }
    if (!*text || fcntl((int)number, F_GETFD) < 0)
        stop(text, "not an open descriptor");
    return (int)number;
}

/* Moves a descriptor we keep above all others' numbers, so that one close_range ends the rest. */
static int lifted(int fd, int lowest)
{
    int moved = fcntl(fd, F_DUPFD_CLOEXEC, lowest);
    if (moved < 0)
        stop("descriptors", strerror(errno));
    return moved;
}

static void keep_descriptors(void)
{
    enum { ABOVE = 32 };
    while (true) { /* 0, 1 and 2 must exist: nothing of ours may land there */
        int fd = open("/dev/null", O_RDWR);
        if (fd < 0 || fd > 2) {
            if (fd > 2)
                close(fd);
            break;
        }
    }
    int *kept[] = {&places.listener, &places.shell, &places.warm};
    enum { KEPT = sizeof kept / sizeof *kept };
    int last = ABOVE;
    for (int i = 0; i < KEPT; i++)
        if (*kept[i] >= 0 && (*kept[i] = lifted(*kept[i], ABOVE)) > last)
            last = *kept[i];
    syscall(SYS_close_range, 3u, (unsigned)ABOVE - 1, 0u);
    syscall(SYS_close_range, (unsigned)last + 1, ~0u, 0u);
    for (int i = 0; i < KEPT; i++)
        if (*kept[i] >= 0)
            *kept[i] = lifted(*kept[i], 3);
    syscall(SYS_close_range, (unsigned)ABOVE, ~0u, 0u);
    if (fcntl(places.listener, F_SETFL, O_NONBLOCK) < 0)
        stop("listener", strerror(errno));
}

static void open_places(const char *workspace)
{
    places.workspace = open(workspace, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (places.workspace < 0)
        stop(workspace, strerror(errno));
    places.root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (places.root < 0)
        stop("/", strerror(errno));
    oom_score = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
    if (oom_score >= 0) {
        ssize_t got = pread(oom_score, own_oom_score, sizeof own_oom_score - 1, 0);
        own_oom_score[got > 0 ? got : 0] = 0;
    }
}

static void reset_signals(void)
{
    struct sigaction action = {.sa_handler = SIG_DFL};
    for (int number = 1; number <= 64; number++) /* a launcher's ignored signals must not reach commands */
        sigaction(number, &action, NULL);
    install_child_signal();
}

int main(int argc, char **argv)
{
    const char *executable = NULL, *workspace = "/workspace";
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 >= argc)
            stop(argv[i], "needs a value");
        if (!strcmp(argv[i], "--listen"))
            places.listener = descriptor_argument(argv[i + 1]);
        else if (!strcmp(argv[i], "--shell"))
            places.shell = descriptor_argument(argv[i + 1]);
        else if (!strcmp(argv[i], "--warm"))
            places.warm = descriptor_argument(argv[i + 1]);
        else if (!strcmp(argv[i], "--landlock-exec"))
            executable = argv[i + 1];
        else if (!strcmp(argv[i], "--workspace"))
            workspace = argv[i + 1];
        else
            stop(argv[i], "unknown; use --listen FD [--shell FD] [--warm FD] [--landlock-exec PATH:PATH] [--workspace DIR]");
    }
    if (places.listener < 0)
        stop("--listen", "missing");
    keep_descriptors();
    open_places(workspace);
    reset_signals();
    umask(022);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        stop("no_new_privs", strerror(errno));
    if (executable && !landlock_exec_only(executable))
        say("landlock", "this kernel has none; execution is not limited a second time");
    /* In a pid namespace of its own PID 1 is where orphans go anyway. */
    if (getpid() != 1 && prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0)
        stop("subreaper", strerror(errno));
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        stop("dumpable", strerror(errno));
    serve();
}
