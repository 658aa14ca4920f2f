/* Single files: open, stat, mkdir, rename. */
#define _GNU_SOURCE
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1
#endif
#ifndef RENAME_EXCHANGE
#define RENAME_EXCHANGE 2
#endif

enum { OPEN_FLAGS = O_ACCMODE | O_CREAT | O_EXCL | O_TRUNC | O_APPEND | O_NOFOLLOW };

static void done(int connection, int result, const char *step)
{
    if (result < 0)
        answer_error(connection, errno, step);
    else
        answer(connection, KIND_OK, NULL, 0, -1);
}

/* The path of a request that has just one, or NULL after it has been refused. */
static char *path_of(int connection, struct request *request)
{
    char *path = only_text(request);
    if (!path)
        answer_error(connection, EINVAL, "request");
    return path;
}

/* Opening a FIFO or a device does something to it, so its kind is known first; the second look is for what was swapped
 * in between. */
static int open_regular(const char *path, const struct header *head, const char **step)
{
    struct stat found;
    uint64_t flags = head->a;
    int peek = resolve(path, head->flags, O_PATH | (flags & O_NOFOLLOW), 0);
    if (peek >= 0) {
        bool regular = fstat(peek, &found) == 0 && (S_ISREG(found.st_mode) || S_ISLNK(found.st_mode));
        close(peek);
        if (!regular) {
            *step = "kind";
            errno = S_ISDIR(found.st_mode) ? EISDIR : EINVAL;
            return -1;
        }
    }
    int fd = resolve(path, head->flags, flags | O_NONBLOCK | O_NOCTTY, flags & O_CREAT ? head->b & 07777 : 0);
    if (fd < 0)
        return -1;
    if (fstat(fd, &found) == 0 && S_ISREG(found.st_mode))
        return fd;
    close(fd);
    *step = "kind";
    errno = S_ISDIR(found.st_mode) ? EISDIR : EINVAL;
    return -1;
}

void op_open(int connection, struct request *request)
{
    const char *step = "open";
    char *path = path_of(connection, request);
    if (!path)
        return;
    if (request->head.a & ~(uint32_t)OPEN_FLAGS || (request->head.a & O_ACCMODE) == O_ACCMODE) {
        answer_error(connection, EINVAL, "flags");
        return;
    }
    int fd = open_regular(path, &request->head, &step);
    if (fd < 0) {
        answer_error(connection, errno, step);
        return;
    }
    answer(connection, KIND_OK, NULL, 0, fd);
    close(fd);
}

size_t put_entry(char *to, const struct stat *found, int folder, const char *name, const char *path, size_t path_length)
{
    struct entry_head head = {
        .mode = found->st_mode,
        .size = (uint64_t)found->st_size,
        .mtime_ns = (int64_t)((uint64_t)found->st_mtim.tv_sec * 1000000000u + (uint64_t)found->st_mtim.tv_nsec),
        .path_length = (uint16_t)path_length,
    };
    char *at = to + sizeof head;
    memcpy(at, path, path_length);
    if (S_ISLNK(found->st_mode)) {
        ssize_t target = readlinkat(folder, name, at + path_length, MAX_TARGET);
        head.target_length = (uint16_t)(target > 0 ? target : 0);
    }
    memcpy(to, &head, sizeof head);
    return sizeof head + path_length + head.target_length;
}

void op_stat(int connection, struct request *request)
{
    struct stat found;
    char entry[sizeof(struct entry_head) + MAX_TARGET + sizeof(uint64_t)];
    char *path = path_of(connection, request);
    if (!path)
        return;
    bool follow = request->head.flags & FLAG_1;
    int fd = resolve(path, request->head.flags, O_PATH | (follow ? 0 : O_NOFOLLOW), 0);
    if (fd < 0 || fstat(fd, &found) < 0)
        answer_error(connection, errno, "stat");
    else {
        size_t size = put_entry(entry, &found, fd, "", "", 0);
        uint64_t inode = found.st_ino;
        memcpy(entry + size, &inode, sizeof inode);
        answer(connection, KIND_OK, entry, size + sizeof inode, -1);
    }
    if (fd >= 0)
        close(fd);
}

static int make_folder(char *path, const struct header *head)
{
    char *last;
    int parent = resolve_parent(path, head->flags, &last);
    if (parent < 0)
        return -1;
    int made = mkdirat(parent, last, head->b & 07777);
    int error = errno;
    close(parent);
    errno = error;
    return made;
}

static bool is_folder(const char *path, uint16_t flags)
{
    int fd = resolve(path, flags, O_PATH | O_DIRECTORY, 0);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

/* Each part of the path from the left, those that exist included. */
static int make_folders(char *path, const struct header *head)
{
    char part[4096];
    size_t length = strlen(path);
    if (length >= sizeof part) {
        errno = ENAMETOOLONG;
        return -1;
    }
    for (size_t end = 1; end <= length; end++) {
        if (path[end] && path[end] != '/')
            continue;
        memcpy(part, path, end);
        part[end] = 0;
        if (is_folder(part, head->flags))
            continue;
        if (make_folder(part, head) < 0 && errno != EEXIST)
            return -1;
    }
    if (is_folder(path, head->flags))
        return 0;
    return -1; /* errno says what stands there instead */
}

void op_mkdir(int connection, struct request *request)
{
    char *path = path_of(connection, request);
    if (!path)
        return;
    bool parents = request->head.flags & FLAG_1;
    done(connection, parents ? make_folders(path, &request->head) : make_folder(path, &request->head), "mkdir");
}

static bool is_file(int folder, const char *name, struct stat *found)
{
    return fstatat(folder, name, found, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(found->st_mode);
}

static int rename_as(int from, const char *old_name, int to, const char *new_name, unsigned how)
{
    return (int)syscall(SYS_renameat2, from, old_name, to, new_name, how);
}

/* Two files are swapped and the old one is removed: when a file is renamed over another one, ext4 first writes it out to
 * disk, which takes longer than all the rest. Whoever ends us in between leaves both. */
static int replace(int from, const char *old_name, int to, const char *new_name)
{
    struct stat source, target;
    if (!is_file(from, old_name, &source) || !is_file(to, new_name, &target) ||
        (source.st_dev == target.st_dev && source.st_ino == target.st_ino) ||
        rename_as(from, old_name, to, new_name, RENAME_EXCHANGE) < 0)
        return rename_as(from, old_name, to, new_name, 0);
    if (unlinkat(from, old_name, 0) == 0 || errno == ENOENT)
        return 0;
    int error = errno; /* the target was a folder by then, or its folder may not be written: as if nothing had been */
    (void)rename_as(from, old_name, to, new_name, RENAME_EXCHANGE);
    errno = error;
    return -1;
}

void op_rename(int connection, struct request *request)
{
    size_t at = 0;
    char *old_path = next_text(request, &at), *new_path = next_text(request, &at), *old_name, *new_name;
    if (!old_path || !new_path || at != request->length) {
        answer_error(connection, EINVAL, "request");
        return;
    }
    int from = resolve_parent(old_path, request->head.flags, &old_name);
    int to = from < 0 ? -1 : resolve_parent(new_path, request->head.flags, &new_name);
    int renamed = -1;
    if (to >= 0)
        renamed = request->head.flags & FLAG_1 ? rename_as(from, old_name, to, new_name, RENAME_NOREPLACE)
                                               : replace(from, old_name, to, new_name);
    done(connection, renamed, "rename");
    if (from >= 0)
        close(from);
    if (to >= 0)
        close(to);
}
