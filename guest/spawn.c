/* Starting a command. The child shares our memory until it has executed (as after vfork): nothing is copied, and it
 * reports a failure by writing it down. */
#define _GNU_SOURCE
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#ifndef TIOCGPTPEER
#define TIOCGPTPEER _IO('T', 0x41)
#endif

enum { MAX_RLIMITS = 16, MAX_TEXTS = 0xffff, CHILD_STACK = 32768, MAX_PROGRAM = 4096 };

struct plan {
    char *cwd, *program;
    char **argv, **env;
    unsigned argc;
    unsigned limit_count;
    struct limit limits[MAX_RLIMITS];
    int stdio[3];
    int terminal; /* the slave, or -1 */
    volatile int error;
    const char *volatile step;
};

static char *texts[2 * (MAX_TEXTS + 1)];
static char child_stack[CHILD_STACK] __attribute__((aligned(16)));

/* Runs on borrowed memory: no instrumentation, no memory of its own, only system calls. */
#define BORROWED __attribute__((no_sanitize("address", "undefined"), noinline))

BORROWED static int give_up(struct plan *plan, const char *step)
{
    plan->error = errno;
    plan->step = step;
    _exit(127);
}

BORROWED static const char *search_path(char **env)
{
    for (; *env; env++)
        if (!strncmp(*env, "PATH=", 5))
            return *env + 5;
    return "/usr/local/bin:/usr/bin:/bin";
}

/* As execvpe searches, but in the PATH the command is given. */
BORROWED static void execute_in_path(struct plan *plan)
{
    char path[MAX_PROGRAM];
    size_t name = strlen(plan->program);
    int worst = ENOENT;
    for (const char *at = search_path(plan->env);; at++) {
        size_t folder = strcspn(at, ":");
        if (folder + 1 + name + 1 <= sizeof path) {
            memcpy(path, at, folder);
            path[folder] = '/';
            /* An empty part is the folder we are in. */
            memcpy(path + (folder ? folder + 1 : 0), plan->program, name + 1);
            execve(path, plan->argv, plan->env);
            if (errno == EACCES)
                worst = EACCES;
            else if (errno != ENOENT && errno != ENOTDIR)
                return;
        }
        at += folder;
        if (!*at)
            break;
    }
    errno = worst;
}

BORROWED static void execute(struct plan *plan)
{
    if (!*plan->program) {
        syscall(SYS_execveat, places.shell, "", plan->argv, plan->env, AT_EMPTY_PATH);
    } else if (strchr(plan->program, '/')) {
        execve(plan->program, plan->argv, plan->env);
    } else {
        execute_in_path(plan);
    }
}

BORROWED static int child(void *argument)
{
    struct plan *plan = argument;
    sigset_t none;
    setsid();
    if (plan->terminal >= 0 && ioctl(plan->terminal, TIOCSCTTY, 0) < 0)
        return give_up(plan, "pty");
    for (int i = 0; i < 3; i++) /* ours are above 2, so none of the three overwrites another */
        if (dup2(plan->terminal >= 0 ? plan->terminal : plan->stdio[i], i) < 0)
            return give_up(plan, "request");
    syscall(SYS_close_range, 3u, ~0u, CLOSE_RANGE_CLOEXEC);
    if (*plan->cwd ? chdir(plan->cwd) : fchdir(places.workspace))
        return give_up(plan, "cwd");
    for (unsigned i = 0; i < plan->limit_count; i++) {
        uint64_t both[2] = {plan->limits[i].soft, plan->limits[i].hard};
        if (syscall(SYS_prlimit64, 0, plan->limits[i].resource, both, NULL) < 0)
            return give_up(plan, "limits");
    }
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execute(plan);
    return give_up(plan, "exec");
}

/* Returns false when the payload is not exactly what its counts say. */
static bool read_plan(struct request *request, struct plan *plan)
{
    struct { uint16_t argc, envc, limits, zero; } counts;
    size_t at = sizeof counts;
    if (request->length < at)
        return false;
    memcpy(&counts, request->payload, sizeof counts);
    size_t limits = counts.limits * sizeof(struct limit);
    if (counts.zero || !counts.argc || counts.limits > MAX_RLIMITS || request->length - at < limits)
        return false;
    memcpy(plan->limits, request->payload + at, limits);
    plan->limit_count = counts.limits;
    at += limits;
    plan->cwd = next_text(request, &at);
    plan->program = next_text(request, &at);
    size_t text = 0;
    plan->argv = texts;
    plan->argc = counts.argc;
    for (unsigned i = 0; i < counts.argc; i++)
        if (!(texts[text++] = next_text(request, &at)))
            return false;
    texts[text++] = NULL;
    plan->env = texts + text;
    for (unsigned i = 0; i < counts.envc; i++)
        if (!(texts[text++] = next_text(request, &at)))
            return false;
    texts[text] = NULL;
    return plan->cwd && plan->program && at == request->length && (*plan->program || places.shell >= 0);
}

/* Returns the master, or -1. */
static int open_terminal(const struct header *head, int *slave)
{
    struct winsize size = {.ws_row = (uint16_t)head->a, .ws_col = (uint16_t)head->b};
    struct termios modes;
    int unlock = 0;
    int master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    if (master < 0)
        return -1;
    *slave = ioctl(master, TIOCSPTLCK, &unlock) < 0 ? -1 : ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (*slave < 0) {
        int error = errno;
        close(master);
        errno = error;
        return -1;
    }
    ioctl(master, TIOCSWINSZ, &size);
    if (tcgetattr(*slave, &modes) == 0) {
        modes.c_iflag |= IUTF8; /* so that erasing takes a whole character */
        tcsetattr(*slave, TCSANOW, &modes);
    }
    return master;
}

/* `bash -c COMMAND` on pipes, and nothing else. */
static bool fits_prepared(const struct plan *plan)
{
    return !*plan->program && plan->terminal < 0 && plan->argc == 3 && !strcmp(plan->argv[0], "bash") &&
           !strcmp(plan->argv[1], "-c");
}

static pid_t start(struct plan *plan)
{
    /* A killed handler's orphans go to PID 1; a living one's come back to it. */
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    plan->error = 0;
    plan->step = "fork";
    pid_t pid = 0;
    if (fits_prepared(plan))
        pid = start_prepared(plan->argv[2], plan->env, plan->cwd, plan->stdio, plan->limits, plan->limit_count);
    if (pid)
        return pid;
    forget_prepared(); /* the command would find it among its relatives */
    pid = clone(child, child_stack + CHILD_STACK, CLONE_VM | CLONE_VFORK | SIGCHLD, plan);
    if (pid < 0)
        plan->error = errno;
    return pid;
}

void op_spawn(int connection, struct request *request)
{
    struct plan plan = {.terminal = -1};
    bool terminal = request->head.flags & FLAG_PTY;
    if (request->head.flags & ~(FLAG_PTY | FLAG_KEEP) || request->fd_count != (terminal ? 0 : 3) ||
        !read_plan(request, &plan)) {
        answer_error(connection, EINVAL, "request");
        return;
    }
    memcpy(plan.stdio, request->fds, sizeof plan.stdio);
    int master = -1;
    if (terminal && (master = open_terminal(&request->head, &plan.terminal)) < 0) {
        answer_error(connection, errno, "pty");
        return;
    }
    pid_t pid = start(&plan);
    close_request_fds(request); /* only the command holds its pipes: their end must show */
    if (terminal)
        close(plan.terminal);
    if (pid > 0 && !plan.error) {
        uint32_t number = (uint32_t)pid;
        answer(connection, KIND_STARTED, &number, sizeof number, master);
    } else {
        answer_error(connection, plan.error, plan.step);
    }
    if (master >= 0)
        close(master);
    if (pid > 0 && !plan.error)
        supervise(connection, pid, request->head.flags & FLAG_KEEP);
    else if (pid > 0)
        waitpid(pid, NULL, 0);
}
