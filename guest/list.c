/* What a folder holds. Recursion is a queue of folders found and not yet read, breadth first: no depth can overflow a
 * stack, and no more than two descriptors are open. A folder in the queue is its name and its parent's place. */
#define _GNU_SOURCE
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { QUEUE_BYTES = 64 << 20, READ_BYTES = 32768, MAX_OPEN_PATH = 4000, HANGUP_EVERY = 1024 };

struct folder {
    uint32_t parent; /* its place in the queue; the listed folder is at 0 and has no name */
    uint16_t length;
    char name[];
};

struct raw_entry {
    uint64_t inode;
    int64_t offset;
    uint16_t length;
    uint8_t type;
    char name[];
};

struct listing {
    int connection, root;
    dev_t device;
    uint32_t left; /* entries still allowed */
    bool recursive, cut;
    char *queue;
    uint32_t used, next;
    size_t path_length; /* of the folder being read, with its last slash */
    size_t filled;
};

static char path[MAX_PATH_OUT + 1];
static char out[MAX_PACKET_OUT];
static char entries[READ_BYTES] __attribute__((aligned(8)));

static void flush(struct listing *listing)
{
    if (listing->filled)
        answer(listing->connection, KIND_ENTRIES, out, listing->filled, -1);
    listing->filled = 0;
}

/* Places are rounded up to 4 bytes so that each folder's head is aligned. */
static bool enqueue(struct listing *listing, uint32_t parent, const char *name, size_t length)
{
    size_t needed = (sizeof(struct folder) + length + 3) & ~(size_t)3;
    if (QUEUE_BYTES - listing->used < needed)
        return false;
    struct folder *folder = (struct folder *)(void *)(listing->queue + listing->used);
    folder->parent = parent;
    folder->length = (uint16_t)length;
    memcpy(folder->name, name, length);
    listing->used += (uint32_t)needed;
    return true;
}

/* Writes the path of the folder at `place`, from its end to its start. False when it is too long to be told. */
static bool rebuild_path(struct listing *listing, uint32_t place)
{
    size_t at = MAX_PATH_OUT;
    while (place) {
        const struct folder *folder = (const struct folder *)(void *)(listing->queue + place);
        if (at < folder->length + 1u)
            return false;
        path[--at] = '/';
        at -= folder->length;
        memcpy(path + at, folder->name, folder->length);
        place = folder->parent;
    }
    listing->path_length = MAX_PATH_OUT - at;
    memmove(path, path + at, listing->path_length);
    path[listing->path_length] = 0;
    return true;
}

static int open_below(int folder, const char *name)
{
    struct open_how how = {
        .flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV,
    };
    return (int)syscall(SYS_openat2, folder, name, &how, sizeof how);
}

/* Opens the folder whose path has been rebuilt, in pieces where it is longer than the kernel takes at once. */
static int open_folder(struct listing *listing)
{
    size_t at = 0;
    int folder = listing->path_length ? -1 : open_below(listing->root, ".");
    while (at < listing->path_length) {
        size_t end = listing->path_length;
        if (end - at > MAX_OPEN_PATH)
            for (end = at + MAX_OPEN_PATH; path[end - 1] != '/'; end--)
                ;
        path[end - 1] = 0;
        int next = open_below(folder < 0 ? listing->root : folder, path + at);
        path[end - 1] = '/';
        if (folder >= 0)
            close(folder);
        if (next < 0)
            return -1;
        folder = next;
        at = end;
    }
    return folder;
}

/* False when the list is full. */
static bool tell(struct listing *listing, int folder, const char *name, uint32_t place)
{
    struct stat found;
    size_t length = strlen(name), whole = listing->path_length + length;
    if (fstatat(folder, name, &found, AT_SYMLINK_NOFOLLOW) < 0)
        return true; /* gone since it was read */
    if (!listing->left || whole > MAX_PATH_OUT) {
        listing->cut = true;
        return listing->left > 0;
    }
    if (listing->filled + MAX_ENTRY > sizeof out)
        flush(listing);
    memcpy(path + listing->path_length, name, length + 1);
    listing->filled += put_entry(out + listing->filled, &found, folder, name, path, whole);
    listing->left--;
    if (listing->recursive && S_ISDIR(found.st_mode) && found.st_dev == listing->device)
        listing->cut |= !enqueue(listing, place, name, length);
    return true;
}

static bool read_folder(struct listing *listing, int folder, uint32_t place)
{
    long got;
    while ((got = syscall(SYS_getdents64, folder, entries, sizeof entries)) > 0) {
        for (long at = 0; at < got;) {
            struct raw_entry *entry = (struct raw_entry *)(void *)(entries + at);
            at += entry->length;
            if (!strcmp(entry->name, ".") || !strcmp(entry->name, ".."))
                continue;
            if (!tell(listing, folder, entry->name, place))
                return false;
        }
        if (host_hung_up(listing->connection))
            return false;
    }
    return true;
}

static void list_all(struct listing *listing)
{
    bool more = true;
    enqueue(listing, 0, "", 0);
    while (more && listing->next < listing->used) {
        uint32_t place = listing->next;
        const struct folder *queued = (const struct folder *)(void *)(listing->queue + place);
        listing->next += (uint32_t)((sizeof(struct folder) + queued->length + 3) & ~(size_t)3);
        int folder = rebuild_path(listing, place) ? open_folder(listing) : -1;
        if (folder < 0)
            continue; /* gone, moved, or closed to us: it was told, what it holds cannot be */
        more = read_folder(listing, folder, place);
        close(folder);
    }
    flush(listing);
}

void op_list(int connection, struct request *request)
{
    struct stat found;
    char *name = only_text(request);
    struct listing listing = {.connection = connection, .left = request->head.a,
                              .recursive = request->head.flags & FLAG_1};
    if (!name) {
        answer_error(connection, EINVAL, "request");
        return;
    }
    listing.root = resolve(name, request->head.flags, O_RDONLY | O_DIRECTORY, 0);
    if (listing.root < 0 || fstat(listing.root, &found) < 0) {
        answer_error(connection, errno, "list");
        return;
    }
    listing.device = found.st_dev;
    listing.queue = mmap(NULL, QUEUE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (listing.queue == MAP_FAILED) {
        answer_error(connection, errno, "list");
    } else {
        list_all(&listing);
        uint8_t cut = listing.cut;
        answer(connection, KIND_END, &cut, 1, -1);
        munmap(listing.queue, QUEUE_BYTES);
    }
    close(listing.root);
}
