/* Watches over one command: hears the host, reaps, ends the tree, tells how it ended. */
#define _GNU_SOURCE
#include "guest.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    ROUND_NS = 2000000,
    /* What a command leaves is killed, but `tee >(sort)` and `exec > >(cat)` leave somebody who is about to finish. */
    LINGER_NS = 100000000,
};

struct command {
    int connection; /* -1 once the host has hung up */
    pid_t pid;
    bool keep, ended, told, killing, empty;
    int status;
    struct rusage usage;
    struct listed left; /* what was still there when the command ended, or was killed */
    int64_t ended_ns, last_round_ns;
};

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void reap(struct command *command)
{
    struct rusage usage;
    int status;
    pid_t pid;
    while ((pid = wait4(-1, &status, WNOHANG | __WALL, &usage)) > 0)
        if (pid == command->pid && !command->ended) {
            command->ended = true;
            command->status = status;
            command->usage = usage;
            command->ended_ns = now_ns();
        }
    /* We are the subreaper: no child means no descendant. */
    command->empty = pid < 0 && errno == ECHILD;
}

static uint64_t microseconds(struct timeval time)
{
    return (uint64_t)time.tv_sec * 1000000u + (uint64_t)time.tv_usec;
}

static void tell_exit(struct command *command)
{
    struct {
        int32_t status;
        uint64_t user, system, max_rss_kib;
        uint32_t tasks;
        uint16_t count;
        char processes[MAX_LISTED * (4 + 1 + 16)];
    } __attribute__((packed)) exited;
    exited.status = command->status;
    exited.user = microseconds(command->usage.ru_utime);
    exited.system = microseconds(command->usage.ru_stime);
    exited.max_rss_kib = (uint64_t)command->usage.ru_maxrss;
    exited.tasks = command->left.tasks;
    exited.count = command->left.count;
    char *at = exited.processes;
    for (unsigned i = 0; i < command->left.count; i++) {
        memcpy(at, &command->left.entry[i].pid, 4);
        at[4] = (char)command->left.entry[i].length;
        memcpy(at + 5, command->left.entry[i].name, command->left.entry[i].length);
        at += 5 + command->left.entry[i].length;
    }
    command->told = true;
    if (command->connection >= 0)
        answer(command->connection, KIND_EXITED, &exited, (size_t)(at - (char *)&exited), -1);
}

static void send_signal(struct command *command, uint32_t number, uint32_t scope)
{
    if (number < 1 || number > 64)
        answer_error(command->connection, EINVAL, "signal");
    else if (scope == 2)
        signal_tree((int)number, NULL, NULL, 0);
    else if (scope == 1) /* the group may outlive the command; while it is not reaped nobody else has its number */
        (void)kill(-command->pid, (int)number);
    else if (!command->ended)
        (void)kill(command->pid, (int)number);
}

static void hear(struct command *command)
{
    struct request request;
    uint32_t version = PROTOCOL_VERSION;
    switch (receive(command->connection, &request)) {
    case RECEIVED_END:
        command->connection = -1;
        return;
    case RECEIVED_BAD:
        answer_error(command->connection, EINVAL, "request");
        return;
    case RECEIVED:
        break;
    }
    if (request.head.op == OP_SIGNAL)
        send_signal(command, request.head.a, request.head.b);
    else if (request.head.op == OP_KILL)
        command->killing = true;
    else if (request.head.op == OP_PING)
        answer(command->connection, KIND_OK, &version, sizeof version, -1);
    else
        answer_error(command->connection, EBUSY, "request");
    close_request_fds(&request);
}

/* Walking again for each child that dies would cost the square of their number. */
static void kill_round(struct command *command)
{
    if (now_ns() - command->last_round_ns < ROUND_NS)
        return;
    kill_tree_once(NULL, &command->left, command->pid);
    command->last_round_ns = now_ns();
}

/* Until a child ends, the host speaks, or the next round of killing is due. Returns whether the host spoke. */
static bool wait_for_news(const struct command *command)
{
    struct timespec pause = {0, command->killing ? ROUND_NS : LINGER_NS / 10};
    struct pollfd poller = {.fd = command->connection, .events = POLLIN};
    sigset_t none;
    sigemptyset(&none);
    return ppoll(&poller, 1, command->killing || (command->ended && !command->keep) ? &pause : NULL, &none) > 0;
}

static bool must_end(const struct command *command)
{
    if (command->killing || command->connection < 0)
        return true;
    return command->ended && !command->keep && now_ns() - command->ended_ns >= LINGER_NS;
}

void supervise(int connection, pid_t pid, bool keep)
{
    struct command command = {.connection = connection, .pid = pid, .keep = keep};
    for (;;) {
        reap(&command);
        command.killing = must_end(&command);
        if (command.empty)
            break;
        if (command.killing) {
            kill_round(&command);
        } else if (command.ended && keep && !command.told) { /* left to live: tell who they are */
            signal_tree(0, NULL, &command.left, 0);
            tell_exit(&command);
        }
        if (wait_for_news(&command))
            hear(&command);
    }
    if (!command.told)
        tell_exit(&command);
    if (keep && command.connection >= 0)
        answer(command.connection, KIND_GONE, NULL, 0, -1);
}
