/* Reading variables of the environment, and local sockets. */
#include "real.h"

static char *got(char *value, const char *name, void *caller)
{
    if (!name || !log_on())
        return value;
    late_event(LARDER_LATE_VARIABLE, (unsigned long)caller, name, !value);
    struct larder_event event = event_new(LARDER_GETENV, false);
    struct text text, text2;
    event.error = value ? 0 : ENOENT;
    text_string(&text, name);
    text_string(&text2, value);
    log_write(&event, &text, &text2);
    return value;
}

/* These open the log first, so that the library's own variables are removed before the lookup. */
EXPORT char *getenv(const char *name)
{
    log_on();
    return got(REAL(getenv)(name), name, __builtin_return_address(0));
}

EXPORT char *secure_getenv(const char *name)
{
    log_on();
    return got(REAL(secure_getenv)(name), name, __builtin_return_address(0));
}

/* libc finds the path of a terminal by a stat that the library does not see. */
static void named(bool failed, const char *path)
{
    if (!failed && path)
        path_event(LARDER_STAT, false, AT_FDCWD, path, 0, 0);
}

EXPORT char *ttyname(int fd)
{
    char *path = REAL(ttyname)(fd);
    named(!path, path);
    return path;
}

EXPORT int ttyname_r(int fd, char *path, size_t size)
{
    int error = REAL(ttyname_r)(fd, path, size);
    named(error != 0, path);
    return error;
}

EXPORT int __ttyname_r_chk(int fd, char *path, size_t size, size_t room)
{
    int error = REAL(__ttyname_r_chk)(fd, path, size, room);
    named(error != 0, path);
    return error;
}

#define FAMILY_UNIX 1

struct address {
    unsigned short family;
    char path[108];
};

static int addressed(int result, const struct address *address, unsigned length, unsigned flags)
{
    if (!address || length < sizeof address->family || !log_on())
        return result;
    struct larder_event event = event_new(LARDER_UNIX, result != 0);
    struct text text;
    if (event.error == EFAULT)
        return result;
    event.flags = (uint16_t)flags;
    if (address->family != FAMILY_UNIX) {
        event.kind = LARDER_NET;
        event.extra = address->family;
        log_write(&event, NULL, NULL);
        return result;
    }
    size_t room = length - sizeof address->family, size = 0;
    if (room > sizeof address->path)
        room = sizeof address->path;
    if (room && address->path[0]) {
        char copy[sizeof address->path + 1]; /* the path need not end with a NUL */
        memcpy(copy, address->path, room);
        copy[room] = 0;
        text_path(&text, AT_FDCWD, copy);
        log_write(&event, &text, NULL);
        return result;
    }
    char name[sizeof address->path];
    if (room) { /* abstract, or unnamed */
        memcpy(name, address->path, room);
        name[0] = '@';
        size = room;
    }
    text_raw(&text, name, size);
    log_write(&event, &text, NULL);
    return result;
}

EXPORT int connect(int fd, const struct address *address, unsigned length)
{
    return addressed(REAL(connect)(fd, address, length), address, length, 0);
}

EXPORT int bind(int fd, const struct address *address, unsigned length)
{
    return addressed(REAL(bind)(fd, address, length), address, length, 1);
}
