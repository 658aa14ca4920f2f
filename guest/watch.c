/* An inotify descriptor for the host; this connection can add to it as long as it lives. */
#define _GNU_SOURCE
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

enum { EVENTS = IN_CREATE | IN_MODIFY | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF };

static int instance = -1;

void op_watch(int connection, struct request *request)
{
    char self[40] = "/proc/self/fd/";
    char *path = only_text(request);
    if (!path) {
        answer_error(connection, EINVAL, "request");
        return;
    }
    int place = resolve(path, request->head.flags, O_PATH, 0);
    if (place < 0) {
        answer_error(connection, errno, "watch");
        return;
    }
    int created = instance < 0 ? inotify_init1(IN_CLOEXEC | IN_NONBLOCK) : -1;
    int target = instance < 0 ? created : instance;
    put_number(self + strlen(self), (unsigned long)place);
    int32_t watch = target < 0 ? -1 : inotify_add_watch(target, self, EVENTS);
    int error = errno;
    close(place);
    if (watch < 0) {
        if (created >= 0)
            close(created);
        answer_error(connection, error, "watch");
        return;
    }
    instance = target;
    answer(connection, KIND_OK, &watch, sizeof watch, created);
}
