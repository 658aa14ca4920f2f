/* The processes below this one, found through /proc while they fork, die and hide. No memory but one fixed table:
 * what does not fit is found in the next round, because whoever loses its parent becomes our child. */
#define _GNU_SOURCE
#include "guest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MAX_FOUND = 4096 };
static pid_t found[MAX_FOUND];
static int found_count;

struct dirent64_raw {
    uint64_t inode;
    int64_t offset;
    uint16_t length;
    uint8_t type;
    char name[];
};

char *put_number(char *at, unsigned long number)
{
    char digits[24];
    int count = 0;
    do
        digits[count++] = (char)('0' + number % 10);
    while (number /= 10);
    while (count)
        *at++ = digits[--count];
    *at = 0;
    return at;
}

static char *put_text(char *at, const char *text)
{
    size_t length = strlen(text);
    memcpy(at, text, length + 1);
    return at + length;
}

static unsigned long get_number(const char *at)
{
    unsigned long number = 0;
    while (*at >= '0' && *at <= '9')
        number = number * 10 + (unsigned long)(*at++ - '0');
    return number;
}

/* Reads "pid (name) state parent". Returns false when the process is gone or dead already. */
static bool read_stat(pid_t pid, char name[16], unsigned *name_length, pid_t *parent)
{
    char path[40], text[512];
    put_text(put_number(put_text(path, "/proc/"), (unsigned long)pid), "/stat");
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    if (got <= 0)
        return false;
    text[got] = 0;
    char *open_bracket = strchr(text, '('), *close_bracket = strrchr(text, ')');
    if (!open_bracket || !close_bracket || close_bracket < open_bracket || text + got - close_bracket < 5)
        return false;
    size_t length = (size_t)(close_bracket - open_bracket - 1);
    *name_length = (unsigned)(length > 15 ? 15 : length);
    memcpy(name, open_bracket + 1, *name_length);
    *parent = (pid_t)get_number(close_bracket + 4);
    return close_bracket[2] != 'Z' && close_bracket[2] != 'X';
}

struct walk {
    int signal;
    skip_child *skip;
    struct listed *listed;
    pid_t unlisted;
    uint32_t *tasks;
};

static void list_process(struct listed *listed, pid_t pid)
{
    char name[16];
    unsigned length;
    pid_t parent;
    for (unsigned i = 0; i < listed->count; i++)
        if (listed->entry[i].pid == (uint32_t)pid)
            return;
    if (listed->count == MAX_LISTED || !read_stat(pid, name, &length, &parent))
        return;
    listed->entry[listed->count].pid = (uint32_t)pid;
    listed->entry[listed->count].length = (uint8_t)length;
    memcpy(listed->entry[listed->count].name, name, length);
    listed->count++;
}

static void meet(const struct walk *walk, pid_t pid)
{
    if (pid <= 1 || found_count == MAX_FOUND)
        return;
    found[found_count++] = pid;
    if (walk->listed && pid != walk->unlisted)
        list_process(walk->listed, pid);
    if (walk->signal)
        kill(pid, walk->signal);
}

/* The children one thread has made: "12 34 56 ". A number may be cut by the end of a read. */
static void meet_children_of_thread(const struct walk *walk, const char *path, bool ours)
{
    char text[1024];
    unsigned long number = 0;
    bool in_number = false;
    ssize_t got;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    while ((got = read(fd, text, sizeof text)) > 0)
        for (ssize_t i = 0; i < got; i++) {
            if (text[i] >= '0' && text[i] <= '9') {
                number = number * 10 + (unsigned long)(text[i] - '0');
                in_number = true;
            } else if (in_number) {
                if (!(ours && walk->skip && walk->skip((pid_t)number)))
                    meet(walk, (pid_t)number);
                number = 0;
                in_number = false;
            }
        }
    close(fd);
}

static void meet_children(const struct walk *walk, pid_t pid, bool ours)
{
    char path[64], entries[2048];
    char *end = put_text(put_number(put_text(path, "/proc/"), (unsigned long)pid), "/task");
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return;
    long got;
    while ((got = syscall(SYS_getdents64, folder, entries, sizeof entries)) > 0)
        for (long at = 0; at < got;) {
            struct dirent64_raw *entry = (struct dirent64_raw *)(void *)(entries + at);
            at += entry->length;
            if (entry->name[0] < '0' || entry->name[0] > '9')
                continue;
            if (!ours)
                ++*walk->tasks;
            put_text(put_number(put_text(end, "/"), get_number(entry->name)), "/children");
            meet_children_of_thread(walk, path, ours);
            *end = 0;
        }
    close(folder);
}

static bool was_met(pid_t pid)
{
    for (int i = 0; i < found_count; i++)
        if (found[i] == pid)
            return true;
    return false;
}

/* Kernels without the children files: whoever has a met process for a parent is met, until nobody new turns up. */
static void meet_by_parent(const struct walk *walk)
{
    char entries[4096], name[16];
    int before;
    do {
        before = found_count;
        int folder = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (folder < 0)
            return;
        long got;
        while ((got = syscall(SYS_getdents64, folder, entries, sizeof entries)) > 0)
            for (long at = 0; at < got;) {
                struct dirent64_raw *entry = (struct dirent64_raw *)(void *)(entries + at);
                at += entry->length;
                pid_t pid = (pid_t)get_number(entry->name), parent = 0;
                unsigned length;
                if (pid <= 1 || was_met(pid) || !read_stat(pid, name, &length, &parent))
                    continue;
                if ((parent == getpid() && !(walk->skip && walk->skip(pid))) || was_met(parent))
                    meet(walk, pid);
            }
        close(folder);
    } while (found_count > before && found_count < MAX_FOUND);
}

static bool kernel_lists_children(void)
{
    char path[64];
    char *end = put_number(put_text(path, "/proc/self/task/"), (unsigned long)getpid());
    put_text(end, "/children");
    return access(path, R_OK) == 0;
}

static void walk_tree(const struct walk *walk)
{
    found_count = 0;
    if (!kernel_lists_children()) {
        meet_by_parent(walk);
        *walk->tasks = (uint32_t)found_count; /* at least: their threads are not looked at */
        return;
    }
    meet_children(walk, getpid(), true);
    for (int i = 0; i < found_count; i++) /* the table is the queue: it grows while we go through it */
        meet_children(walk, found[i], false);
}

void signal_tree(int signal, skip_child *skip, struct listed *listed, pid_t unlisted)
{
    uint32_t tasks = 0;
    struct walk walk = {signal, skip, listed, unlisted, &tasks};
    walk_tree(&walk);
    if (listed && listed->tasks < tasks)
        listed->tasks = tasks;
}

/* Stopped first, parents before children, so that hardly anything forks while the killing goes on. */
void kill_tree_once(skip_child *skip, struct listed *listed, pid_t unlisted)
{
    signal_tree(SIGSTOP, skip, listed, unlisted);
    signal_tree(SIGKILL, skip, NULL, 0);
}
