/* hutch-guest: PID 1 of a sandbox. What its parts say to each other; PROTOCOL.md says what it says to the host. */
#ifndef HUTCH_GUEST_H
#define HUTCH_GUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

enum {
    PROTOCOL_VERSION = 1,
    MAX_REQUEST = 200000,
    MAX_REQUEST_FDS = 3,
    MAX_PACKET_OUT = 131072,
    MAX_LISTED = 64,
};

enum op { OP_PING = 1, OP_SPAWN, OP_SIGNAL, OP_KILL, OP_OPEN, OP_STAT, OP_LIST, OP_MKDIR, OP_RENAME, OP_REMOVE,
          OP_WATCH, OP_DIAL, OP_LISTEN, OP_PREPARE };
enum kind { KIND_OK, KIND_ERROR, KIND_STARTED, KIND_EXITED, KIND_ENTRIES, KIND_END, KIND_GONE };
enum { FLAG_1 = 1, FLAG_PTY = 1, FLAG_KEEP = 2, FLAG_WHOLE_VIEW = 0x8000 };

struct header {
    uint8_t version, op;
    uint16_t flags;
    uint32_t a, b;
    uint64_t c;
} __attribute__((packed));

/* One request. The payload lies in the handler's only buffer and ends when the next one is received. */
struct request {
    struct header head;
    char *payload;
    size_t length;
    int fds[MAX_REQUEST_FDS]; /* what nobody takes (sets to -1) is closed before the next request */
    int fd_count;
};

/* What the whole guest works with; set once by main, inherited by every handler. */
struct places {
    int listener;
    int workspace; /* O_PATH: /workspace */
    int root;      /* O_PATH: / */
    int shell;     /* the bash to run, or -1 */
    int warm;      /* hutch-warm.so, or -1 */
};
extern struct places places;

/* wire.c */
enum received { RECEIVED, RECEIVED_END, RECEIVED_BAD };
enum received receive(int connection, struct request *request);
void close_request_fds(struct request *request);
void answer(int connection, enum kind kind, const void *payload, size_t length, int fd);
void answer_error(int connection, int error, const char *step);
/* The next NUL-terminated text of a payload, or NULL when there is none. Moves *at. */
char *next_text(struct request *request, size_t *at);
/* The only text of a payload, or NULL when it holds anything else. */
char *only_text(struct request *request);

/* handler.c: serves one connection until the host closes it. */
void handle(int connection) __attribute__((noreturn));
void install_child_signal(void);

/* prepare.c: a shell started ahead of its command */
struct limit {
    uint32_t resource;
    uint64_t soft, hard;
} __attribute__((packed));
void op_prepare(int connection, struct request *request);
void forget_prepared(void);
/* Lets the prepared shell run `command`. Returns its pid, or 0 when a fresh one must be started. */
pid_t start_prepared(char *command, char **env, const char *cwd, const int stdio[3], const struct limit *limits, unsigned count);

/* spawn.c, supervise.c */
void op_spawn(int connection, struct request *request);
void supervise(int connection, pid_t command, bool keep);

/* tree.c: the processes below this one. */
struct listed {
    uint32_t tasks; /* threads, all processes together, at most that were met in one walk */
    uint16_t count;
    struct { uint32_t pid; uint8_t length; char name[16]; } entry[MAX_LISTED];
};
typedef bool skip_child(pid_t child); /* a child of ours that is left alone, with all below it */
/* Sends `signal` to each process below this one. Fills `listed`, if given, with those that were still alive. */
void signal_tree(int signal, skip_child *skip, struct listed *listed, pid_t unlisted);
void kill_tree_once(skip_child *skip, struct listed *listed, pid_t unlisted);
char *put_number(char *at, unsigned long number);

/* paths.c: names in the workspace, or in the whole view of the sandbox. */
int resolve(const char *path, uint16_t flags, uint64_t open_flags, uint32_t mode);
int resolve_parent(char *path, uint16_t flags, char **last);

/* files.c, list.c, remove.c, watch.c, sockets.c */
struct entry_head {
    uint32_t mode;
    uint64_t size;
    int64_t mtime_ns;
    uint16_t path_length, target_length;
} __attribute__((packed));
struct stat;
/* Writes an entry at `to`; `folder` and `name` say where a link's target is read. Returns its length. */
size_t put_entry(char *to, const struct stat *found, int folder, const char *name, const char *path, size_t path_length);
enum { MAX_PATH_OUT = 65535, MAX_TARGET = 4096, MAX_ENTRY = sizeof(struct entry_head) + MAX_PATH_OUT + MAX_TARGET };

void op_open(int connection, struct request *request);
void op_stat(int connection, struct request *request);
void op_mkdir(int connection, struct request *request);
void op_rename(int connection, struct request *request);
void op_list(int connection, struct request *request);
void op_remove(int connection, struct request *request);
void op_watch(int connection, struct request *request);
void op_dial(int connection, struct request *request);
void op_listen(int connection, struct request *request);
bool host_hung_up(int connection);

/* landlock.c: from now on only these (':' between them) and the shell may be executed. False: the kernel has none. */
bool landlock_exec_only(const char *paths);

#endif
