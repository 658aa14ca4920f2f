/* A second wall behind noexec: only what is listed may be executed, in PID 1 and all that comes from it. */
#define _GNU_SOURCE
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Our own words for the kernel's: older headers of a C library do not know them. */
#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#define SYS_landlock_add_rule 445
#define SYS_landlock_restrict_self 446
#endif
enum { EXECUTE = 1, REFER = 1 << 13, RULE_PATH_BENEATH = 1, ASK_VERSION = 1, VERSION_WITH_REFER = 2 };
struct ruleset { uint64_t handled_access_fs; };
struct path_rule { uint64_t allowed; int32_t fd; } __attribute__((packed));

static bool allow(int ruleset, int fd, uint64_t what)
{
    struct path_rule rule = {what, fd};
    return syscall(SYS_landlock_add_rule, ruleset, RULE_PATH_BENEATH, &rule, 0) == 0;
}

/* A listed path that does not exist allows nothing, so it is no error. */
static bool allow_paths(int ruleset, const char *paths, uint64_t what)
{
    char path[4096];
    while (*paths) {
        size_t length = strcspn(paths, ":");
        if (length >= sizeof path)
            return false;
        memcpy(path, paths, length);
        path[length] = 0;
        paths += length + (paths[length] == ':');
        int fd = open(path, O_PATH | O_CLOEXEC);
        if (fd < 0)
            continue;
        bool allowed = allow(ruleset, fd, what);
        close(fd);
        if (!allowed)
            return false;
    }
    return true;
}

/* Every ruleset forbids moving files from folder to folder, unless it says otherwise; the kernel still forbids what would
 * let a file be executed that could not be before. Before version 2 it cannot be said, and such a move is refused. */
static uint64_t moves(void)
{
    return syscall(SYS_landlock_create_ruleset, NULL, 0, ASK_VERSION) >= VERSION_WITH_REFER ? REFER : 0;
}

bool landlock_exec_only(const char *paths)
{
    uint64_t refer = moves();
    struct ruleset handled = {EXECUTE | refer};
    int ruleset = (int)syscall(SYS_landlock_create_ruleset, &handled, sizeof handled, 0);
    if (ruleset < 0)
        return false;
    bool done = allow_paths(ruleset, paths, EXECUTE) && (!refer || allow_paths(ruleset, "/", refer)) &&
                (places.shell < 0 || allow(ruleset, places.shell, EXECUTE)) &&
                syscall(SYS_landlock_restrict_self, ruleset, 0) == 0;
    close(ruleset);
    return done;
}
