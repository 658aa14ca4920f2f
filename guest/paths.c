/* From a name to a descriptor, by the kernel's own rules for staying below a folder. */
#define _GNU_SOURCE
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { TRIES = 64 };

int resolve(const char *path, uint16_t flags, uint64_t open_flags, uint32_t mode)
{
    bool whole = flags & FLAG_WHOLE_VIEW;
    struct open_how how = {
        .flags = open_flags | O_CLOEXEC,
        .mode = mode,
        .resolve = RESOLVE_NO_MAGICLINKS | (whole ? RESOLVE_IN_ROOT : RESOLVE_BENEATH),
    };
    long fd = -1;
    for (int i = 0; i < TRIES; i++) { /* EAGAIN: a folder on the way was moved meanwhile, so the kernel cannot vouch */
        fd = syscall(SYS_openat2, whole ? places.root : places.workspace, path, &how, sizeof how);
        if (fd >= 0 || (errno != EAGAIN && errno != EINTR))
            break;
    }
    return (int)fd;
}

/* Cuts `path` in two: returns the folder's descriptor, *last is the name in it. */
int resolve_parent(char *path, uint16_t flags, char **last)
{
    char *slash = strrchr(path, '/');
    const char *folder = ".";
    *last = slash ? slash + 1 : path;
    if (slash && slash != path) {
        *slash = 0;
        folder = path;
    } else if (slash) {
        folder = "/";
    }
    if (!**last || !strcmp(*last, ".") || !strcmp(*last, "..")) {
        errno = EINVAL;
        return -1;
    }
    return resolve(folder, flags, O_PATH | O_DIRECTORY, 0);
}
