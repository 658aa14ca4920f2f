/*
 * hutch-launch: starts sandboxes for one owner (the process that uses Hutch).
 *
 * The owner sends plans over a SOCK_SEQPACKET socket, one packet each, with descriptors. For every plan this process
 * forks a child that carries out the plan's steps and ends by becoming bubblewrap. It knows no policy: which walls
 * are built is decided by the plan alone. The first step that fails ends the child with one line on descriptor 2, so
 * nothing ever runs behind half of its walls.
 *
 * Why a process of its own: the sandboxes must die with their owner. A parent-death signal follows the thread that
 * forked, and a pipe stays open in every fork of the owner; this process has one thread, watches the owner by pidfd,
 * and ends its children before it ends itself. As a subreaper it also inherits what bubblewrap leaves when it is killed
 * in the middle of a start: its child then waits for ever to be told its ids.
 *
 * A packet is a list of NUL-terminated words: a step's name, then its arguments (a fixed number for each name, except
 * `exec`, which takes the rest). Descriptor i of the packet is number FIRST_FD + i in the child; the first one becomes
 * its standard error. The answer is one packet: the child's pid as u32, or a negative errno, and its pidfd.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/keyctl.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FIRST_FD = 10, MAX_FDS = 16, SPARE_FD = 64, MAX_ARGS = 64, PACKET_BYTES = 128 * 1024 };

static char packet[PACKET_BYTES + 1];

static void say(const char *text) {
    ssize_t ignored = write(2, text, strlen(text));
    (void)ignored;
}

static _Noreturn void fail(const char *step, const char *what, int error) {
    char line[512] = "hutch-launch: ";
    const char *parts[] = {step, " ", what, ": ", strerror(error), "\n"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) strncat(line, parts[i], sizeof line - strlen(line) - 1);
    say(line);
    _exit(126);
}

static unsigned long long number(const char *text) {
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 0);
    if (errno || end == text || *end) fail("number", text, EINVAL);
    return value;
}

/* The steps: each answers 0, or -1 with errno. */

/* into PATH: done when the child was made, see `make_child`. */
static int step_into(char **a) {
    (void)a;
    return 0;
}

static int step_keyring(char **a) {
    (void)a;
    return syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) < 0 ? -1 : 0;
}

static int step_write(char **a) {
    int fd = open(a[0], O_WRONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    size_t length = strlen(a[1]);
    ssize_t written = write(fd, a[1], length);
    int error = errno;
    close(fd);
    errno = written < 0 ? error : EIO;
    return written == (ssize_t)length ? 0 : -1;
}

static int step_unshare(char **a) { return unshare((int)number(a[0])); }

/* Nothing mounted from here on reaches the host, and nothing the host mounts later reaches the sandbox. */
static int step_private(char **a) {
    (void)a;
    return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
}

static int step_chdir(char **a) { return chdir(a[0]); }

static int step_mkdir(char **a) {
    if (mkdir(a[0], (mode_t)number(a[1])) < 0) return -1;
    return chmod(a[0], (mode_t)number(a[1]));
}

static int step_symlink(char **a) { return symlink(a[0], a[1]); }

static int step_touch(char **a) {
    int fd = open(a[0], O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    return fd < 0 ? -1 : close(fd);
}

static int step_mount(char **a) {
    return mount(a[0], a[1], *a[2] ? a[2] : NULL, (unsigned long)number(a[3]), *a[4] ? a[4] : NULL);
}

static int open_as(const char *path, int wanted, int flags) {
    int fd = open(path, flags);
    if (fd < 0 || fd == wanted) return fd < 0 ? -1 : 0;
    int result = dup3(fd, wanted, flags & O_CLOEXEC);
    close(fd);
    return result < 0 ? -1 : 0;
}

/* open NUMBER PATH: for descriptors that the sandbox's first process is given by number. */
static int step_open(char **a) { return open_as(a[1], (int)number(a[0]), O_RDONLY | O_NOFOLLOW); }

/* hold NUMBER PATH: keeps a file or folder of the host within reach, whatever is mounted over it, until `exec`. */
static int step_hold(char **a) { return open_as(a[1], (int)number(a[0]), O_PATH | O_CLOEXEC); }

static int step_rlimit(char **a) {
    struct rlimit limit = {(rlim_t)number(a[1]), (rlim_t)number(a[2])};
    return setrlimit((int)number(a[0]), &limit);
}

static int step_setids(char **a) {
    uid_t uid = (uid_t)number(a[0]);
    gid_t gid = (gid_t)number(a[1]);
    if (setgroups(0, NULL) < 0 || setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0) return -1;
    /* A change of uid makes /proc/self belong to root, and the id maps below could not be written. */
    if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0) return -1;
    return prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0); /* the change of uid cleared it */
}

/* exec PATH ARGV…: with the launcher's own environment, which its owner leaves empty. */
static int step_exec(char **a) { return execve(a[0], a + 1, environ); }

static const struct step {
    const char *name;
    int arguments;
    int (*run)(char **);
} steps[] = {
    {"into", 1, step_into},       {"keyring", 0, step_keyring}, {"write", 2, step_write},     {"unshare", 1, step_unshare},
    {"private", 0, step_private}, {"chdir", 1, step_chdir},     {"mkdir", 2, step_mkdir},
    {"symlink", 2, step_symlink}, {"touch", 1, step_touch},     {"mount", 5, step_mount},
    {"open", 2, step_open},       {"hold", 2, step_hold},       {"rlimit", 3, step_rlimit},
    {"setids", 2, step_setids},   {"exec", -1, step_exec},
};

static const struct step *find_step(const char *name) {
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        if (!strcmp(steps[i].name, name)) return &steps[i];
    fail("step", name, ENOSYS);
}

static char *next_word(char **at, char *end) {
    char *word = *at;
    *at = word + strlen(word) + 1; /* the packet ends with a NUL, so this cannot run past `end` */
    return word < end ? word : NULL;
}

static _Noreturn void carry_out(char *at, char *end) {
    char *name;
    while ((name = next_word(&at, end))) {
        const struct step *step = find_step(name);
        char *arguments[MAX_ARGS + 1] = {NULL};
        int count = 0;
        while (count != step->arguments && (step->arguments >= 0 || at < end)) {
            if (count == MAX_ARGS) fail(name, "arguments", E2BIG);
            if (!(arguments[count++] = next_word(&at, end))) fail(name, "arguments", EINVAL);
        }
        if (step->run(arguments) < 0) fail(name, arguments[0] ? arguments[count > 1 && step->run == step_mount] : "", errno);
    }
    fail("plan", "ends without exec", EINVAL);
}

/* Descriptor i becomes FIRST_FD + i, the first also standard error; standard input and output are /dev/null. */
static void place_descriptors(int *fds, int count) {
    for (int i = 0; i < count; i++)
        if ((fds[i] = fcntl(fds[i], F_DUPFD, SPARE_FD)) < 0) fail("descriptors", "dup", errno);
    for (int i = 0; i < count; i++)
        if (dup2(fds[i], FIRST_FD + i) < 0) fail("descriptors", "dup2", errno);
    int null = open("/dev/null", O_RDWR);
    if (null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(count ? FIRST_FD : null, 2) < 0)
        fail("descriptors", "/dev/null", errno);
    for (int fd = 3; fd < FIRST_FD; fd++) close(fd);
    if (syscall(SYS_close_range, (unsigned)(FIRST_FD + count), ~0U, 0U) < 0) fail("descriptors", "close", errno);
}

/* A plan may begin with `into PATH`, a cgroup of version 2: the child is born there. To move it there later would wait
 * for every processor of the machine to take notice, which takes 20 ms. */
static pid_t make_child(void) {
    if (strcmp(packet, "into")) return fork();
    int folder = open(packet + sizeof "into", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return -1;
    struct clone_args arguments = {
        .flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD, .cgroup = (uint64_t)folder};
    pid_t pid = (pid_t)syscall(SYS_clone3, &arguments, sizeof arguments);
    int error = errno;
    close(folder);
    errno = error;
    return pid;
}

static pid_t start(int *fds, int count, ssize_t length) {
    pid_t parent = getpid();
    pid_t pid = make_child();
    if (pid) return pid < 0 ? -errno : pid;
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGCHLD, SIG_DFL);
    place_descriptors(fds, count);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0) fail("start", "pdeathsig", errno);
    if (getppid() != parent) _exit(126); /* the launcher died before the line above */
    carry_out(packet, packet + length);
}

/* The children that were launched; any other child was inherited, and its machine is no more. */
static pid_t *launched;
static size_t launched_count, launched_room;

static int is_launched(pid_t pid) {
    for (size_t i = 0; i < launched_count; i++)
        if (launched[i] == pid) return 1;
    return 0;
}

static void remember(pid_t pid) {
    if (launched_count == launched_room) {
        size_t room = launched_room ? launched_room * 2 : 64;
        pid_t *more = realloc(launched, room * sizeof *more);
        if (!more) _exit(1); /* a child that is not known would be taken for a stray */
        launched = more;
        launched_room = room;
    }
    launched[launched_count++] = pid;
}

static void forget(pid_t pid) {
    for (size_t i = 0; i < launched_count; i++)
        if (launched[i] == pid) launched[i--] = launched[--launched_count];
}

static void kill_children(int strays_only) {
    char list[4096];
    int fd = open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    ssize_t length;
    pid_t pid = 0;
    while ((length = read(fd, list, sizeof list)) > 0)
        for (ssize_t i = 0; i < length; i++) {
            if (list[i] != ' ') {
                pid = pid * 10 + (list[i] - '0');
                continue;
            }
            if (!strays_only || !is_launched(pid)) kill(pid, SIGKILL);
            pid = 0;
        }
    close(fd);
}

static void reap(void) {
    int reaped = 0;
    for (pid_t pid; (pid = waitpid(-1, NULL, WNOHANG)) > 0; reaped = 1) forget(pid);
    if (reaped) kill_children(1);
}

/* Nothing that was launched outlives this process. */
static _Noreturn void end(int code) {
    for (;;) {
        for (size_t i = 0; i < launched_count; i++) kill(launched[i], SIGKILL);
        kill_children(0);
        pid_t pid = waitpid(-1, NULL, 0);
        if (pid < 0 && errno == ECHILD) _exit(code);
        if (pid > 0) forget(pid);
    }
}

static int receive(int control, int *fds, int *count, ssize_t *length) {
    char space[CMSG_SPACE(sizeof(int) * MAX_FDS)];
    struct iovec part = {packet, PACKET_BYTES};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    *length = recvmsg(control, &message, MSG_CMSG_CLOEXEC);
    if (*length < 0) return errno == EINTR || errno == EAGAIN ? 1 : -1;
    *count = 0;
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    if (head && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS) {
        *count = (int)((head->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(fds, CMSG_DATA(head), sizeof(int) * (size_t)*count);
    }
    if (*length == 0) return -1; /* the owner closed its end */
    packet[*length] = 0;
    if (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC) || packet[*length - 1] != 0) *length = 0;
    return 0;
}

static void answer(int control, pid_t pid) {
    int32_t number_back = pid;
    struct iovec part = {&number_back, sizeof number_back};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    union {
        char space[CMSG_SPACE(sizeof(int))];
        struct cmsghdr aligned;
    } room;
    int pidfd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
    if (pid > 0 && pidfd < 0) {
        number_back = -errno;
        kill(pid, SIGKILL);
    }
    if (pidfd >= 0) {
        message.msg_control = room.space;
        message.msg_controllen = sizeof room.space;
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(head), &pidfd, sizeof(int));
    }
    if (sendmsg(control, &message, MSG_NOSIGNAL) < 0) end(1); /* nobody could ever end this child */
    if (pidfd >= 0) close(pidfd);
}

static void serve_one(int control) {
    int fds[MAX_FDS];
    int count = 0;
    ssize_t length;
    int state = receive(control, fds, &count, &length);
    if (state < 0) end(0);
    if (state > 0) return;
    /* Reaping waits until the answer is out: a pidfd is only sure of its process before that is reaped. */
    pid_t pid = length ? start(fds, count, length) : -EMSGSIZE;
    if (pid > 0) remember(pid);
    answer(control, pid);
    for (int i = 0; i < count; i++) close(fds[i]);
}

static void on_child(int signum) { (void)signum; }

int main(int argc, char **argv) {
    if (argc != 3) {
        say("usage: hutch-launch CONTROL-FD OWNER-PIDFD\n");
        return 2;
    }
    int control = (int)number(argv[1]), owner = (int)number(argv[2]);
    fcntl(control, F_SETFD, FD_CLOEXEC);
    fcntl(owner, F_SETFD, FD_CLOEXEC);
    if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0) return 1;
    setsid(); /* Ctrl-C in the owner's terminal is the owner's business */
    struct sigaction action = {.sa_handler = on_child};
    sigset_t blocked, waiting;
    sigaction(SIGCHLD, &action, NULL);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGCHLD);
    sigprocmask(SIG_BLOCK, &blocked, &waiting);
    for (;;) {
        struct pollfd polled[] = {{control, POLLIN, 0}, {owner, POLLIN, 0}};
        int ready = ppoll(polled, 2, NULL, &waiting);
        if (ready < 0 && errno != EINTR) end(1);
        if (ready > 0 && polled[1].revents) end(0);
        if (ready > 0 && polled[0].revents) serve_one(control);
        reap();
    }
}
