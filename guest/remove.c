/* Removing a file or a whole tree. A tree is made flat while it is removed: a folder that still holds something gives
 * its folders to the top one, under new names. So no depth needs a stack, long paths or more than three descriptors. */
#define _GNU_SOURCE
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1
#endif

enum { READ_BYTES = 16384 };

struct raw_entry {
    uint64_t inode;
    int64_t offset;
    uint16_t length;
    uint8_t type;
    char name[];
};

static char top_entries[READ_BYTES] __attribute__((aligned(8)));
static char inner_entries[READ_BYTES] __attribute__((aligned(8)));

/* Opens a folder for reading and writing names, whatever its mode is. */
static int open_folder(int parent, const char *name)
{
    char self[40] = "/proc/self/fd/";
    struct stat found;
    int fd = openat(parent, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -1;
    if (fstat(fd, &found) == 0 && (found.st_mode & 0700) != 0700) {
        put_number(self + strlen(self), (unsigned long)fd);
        chmod(self, found.st_mode | 0700); /* of the descriptor itself: no name is followed. A failure shows below */
    }
    int folder = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int error = errno;
    close(fd);
    errno = error;
    return folder;
}

static bool gone(int result) { return result == 0 || errno == ENOENT; }

/* Moves a folder that is not empty up to `top`, under a name nobody has. */
static int move_up(int from, const char *name, int top, unsigned long *counter)
{
    char self[40] = "/proc/self/fd/", fresh[32] = ".hutch-";
    struct stat found;
    int fd = openat(from, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -1;
    if (fstat(fd, &found) == 0 && !(found.st_mode & 0200)) { /* its ".." is about to change */
        put_number(self + strlen(self), (unsigned long)fd);
        chmod(self, found.st_mode | 0700);
    }
    close(fd);
    for (;;) {
        put_number(fresh + 7, (*counter)++);
        if (syscall(SYS_renameat2, from, name, top, fresh, RENAME_NOREPLACE) == 0)
            return 0;
        if (errno != EEXIST)
            return -1;
    }
}

/* One entry of `folder`; a folder that is not empty is moved up when `top` is another one, else left for later. */
static int remove_entry(int folder, const char *name, int top, unsigned long *counter, bool *left)
{
    if (gone(unlinkat(folder, name, 0)))
        return 0;
    if (errno != EISDIR && errno != EPERM)
        return -1;
    if (gone(unlinkat(folder, name, AT_REMOVEDIR)))
        return 0;
    if (errno != ENOTEMPTY && errno != EEXIST)
        return -1;
    if (folder == top) {
        *left = true;
        return 0;
    }
    return gone(move_up(folder, name, top, counter)) ? 0 : -1;
}

/* Removes what `folder` holds, or moves it to `top`. */
static int empty_inner(int connection, int folder, int top, unsigned long *counter)
{
    long got;
    bool left = false;
    while ((got = syscall(SYS_getdents64, folder, inner_entries, sizeof inner_entries)) > 0) {
        for (long at = 0; at < got;) {
            struct raw_entry *entry = (struct raw_entry *)(void *)(inner_entries + at);
            at += entry->length;
            if (strcmp(entry->name, ".") && strcmp(entry->name, "..") &&
                remove_entry(folder, entry->name, top, counter, &left) < 0)
                return -1;
        }
        if (host_hung_up(connection))
            return errno = ECANCELED, -1;
    }
    return got < 0 ? -1 : 0;
}

static int empty_folder_of_top(int connection, int top, const char *name, unsigned long *counter)
{
    int folder = open_folder(top, name);
    if (folder < 0)
        return gone(-1) ? 0 : -1;
    int result = empty_inner(connection, folder, top, counter);
    int error = errno;
    close(folder);
    errno = error;
    return result < 0 ? -1 : gone(unlinkat(top, name, AT_REMOVEDIR)) || errno == ENOTEMPTY ? 0 : -1;
}

/* One pass over the top folder. *found: it held something, so another pass is due. */
static int empty_top_once(int connection, int top, unsigned long *counter, bool *found)
{
    long got;
    if (lseek(top, 0, SEEK_SET) < 0)
        return -1;
    while ((got = syscall(SYS_getdents64, top, top_entries, sizeof top_entries)) > 0) {
        for (long at = 0; at < got;) {
            struct raw_entry *entry = (struct raw_entry *)(void *)(top_entries + at);
            bool left = false;
            at += entry->length;
            if (!strcmp(entry->name, ".") || !strcmp(entry->name, ".."))
                continue;
            *found = true;
            if (remove_entry(top, entry->name, top, counter, &left) < 0)
                return -1;
            if (left && empty_folder_of_top(connection, top, entry->name, counter) < 0)
                return -1;
        }
        if (host_hung_up(connection))
            return errno = ECANCELED, -1;
    }
    return got < 0 ? -1 : 0;
}

static int remove_tree(int connection, int parent, const char *name)
{
    unsigned long counter = 0;
    bool found = true;
    int result = 0, error;
    int top = open_folder(parent, name);
    if (top < 0)
        return -1;
    while (result == 0 && found) {
        found = false;
        result = empty_top_once(connection, top, &counter, &found);
    }
    error = errno;
    close(top);
    errno = error;
    return result < 0 ? -1 : unlinkat(parent, name, AT_REMOVEDIR);
}

static int remove_name(int connection, int parent, const char *name, bool recursive)
{
    if (unlinkat(parent, name, 0) == 0)
        return 0;
    if (errno != EISDIR && errno != EPERM)
        return -1;
    int error = errno;
    if (unlinkat(parent, name, AT_REMOVEDIR) == 0)
        return 0;
    if (errno == ENOTDIR)
        return errno = error, -1;
    return recursive && (errno == ENOTEMPTY || errno == EEXIST) ? remove_tree(connection, parent, name) : -1;
}

void op_remove(int connection, struct request *request)
{
    char *path = only_text(request), *name;
    if (!path) {
        answer_error(connection, EINVAL, "request");
        return;
    }
    int parent = resolve_parent(path, request->head.flags, &name);
    if (parent < 0 || remove_name(connection, parent, name, request->head.flags & FLAG_1) < 0)
        answer_error(connection, errno, "remove");
    else
        answer(connection, KIND_OK, NULL, 0, -1);
    if (parent >= 0)
        close(parent);
}
