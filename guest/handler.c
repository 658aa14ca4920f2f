/* One connection, one process: reads requests and answers them until the host hangs up. */
#define _GNU_SOURCE
#include "guest.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

static void wake(int signal) { (void)signal; }

/* SIGCHLD only has to end a ppoll; it is blocked at every other time. */
void install_child_signal(void)
{
    struct sigaction action = {.sa_handler = wake};
    sigset_t all;
    sigaction(SIGCHLD, &action, NULL);
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
}

bool host_hung_up(int connection)
{
    struct pollfd poller = {.fd = connection, .events = 0};
    return poll(&poller, 1, 0) > 0 && (poller.revents & (POLLHUP | POLLERR));
}

static void op_ping(int connection, struct request *request)
{
    uint32_t version = PROTOCOL_VERSION;
    (void)request;
    answer(connection, KIND_OK, &version, sizeof version, -1);
}

/* SIGNAL and KILL are for a command that runs; its supervisor reads them. One that comes too late has no answer. */
static void op_too_late(int connection, struct request *request)
{
    (void)connection;
    (void)request;
}

typedef void operation(int connection, struct request *request);
static operation *const operations[] = {
    [OP_PING] = op_ping,     [OP_SPAWN] = op_spawn,   [OP_SIGNAL] = op_too_late, [OP_KILL] = op_too_late,
    [OP_OPEN] = op_open,     [OP_STAT] = op_stat,     [OP_LIST] = op_list,       [OP_MKDIR] = op_mkdir,
    [OP_RENAME] = op_rename, [OP_REMOVE] = op_remove, [OP_WATCH] = op_watch,     [OP_DIAL] = op_dial,
    [OP_LISTEN] = op_listen, [OP_PREPARE] = op_prepare,
};

void handle(int connection)
{
    struct request request = {.fd_count = 0};
    for (;;) {
        switch (receive(connection, &request)) {
        case RECEIVED_END:
            forget_prepared();
            _exit(0);
        case RECEIVED_BAD:
            answer_error(connection, EINVAL, "request");
            continue;
        case RECEIVED:
            break;
        }
        unsigned op = request.head.op;
        if (op < sizeof operations / sizeof *operations && operations[op])
            operations[op](connection, &request);
        else
            answer_error(connection, ENOSYS, "request");
        close_request_fds(&request);
    }
}
