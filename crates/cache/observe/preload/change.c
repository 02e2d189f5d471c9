/* Changing paths and their attributes: rename, unlink, mkdir, chmod and the like. */
#include "real.h"

/* Writes an event with two paths. Their directories were looked up before the call, which may move
 * them. */
static int two(unsigned kind, int result, unsigned flags, struct text *from, const char *old,
               struct text *to, const char *new)
{
    struct larder_event event = event_new(kind, result != 0);
    event.flags = (uint16_t)flags;
    text_tail(from, event.error == EFAULT ? NULL : old);
    text_tail(to, event.error == EFAULT ? NULL : new);
    log_write(&event, from, to);
    return result;
}

#define TWO(kind, flags, old_fd, old, new_fd, new, call)                                    \
    do {                                                                                    \
        struct text from, to;                                                               \
        if (!log_on())                                                                      \
            return call;                                                                    \
        text_dir(&from, old_fd);                                                            \
        text_dir(&to, new_fd);                                                              \
        struct stat there;                                                                  \
        bool fresh = raw_stat(new_fd, new, &there, AT_SYMLINK_NOFOLLOW) == -ENOENT;         \
        int result = call;                                                                  \
        return two(kind, result, (flags) | (fresh ? LARDER_OPEN_NEW : 0), &from, old, &to, new); \
    } while (0)

EXPORT int rename(const char *old, const char *new)
{
    TWO(LARDER_RENAME, 0, AT_FDCWD, old, AT_FDCWD, new, DONE(REAL(rename)(old, new)));
}

EXPORT int renameat(int old_fd, const char *old, int new_fd, const char *new)
{
    TWO(LARDER_RENAME, 0, old_fd, old, new_fd, new, DONE(REAL(renameat)(old_fd, old, new_fd, new)));
}

EXPORT int renameat2(int old_fd, const char *old, int new_fd, const char *new, unsigned flags)
{
    TWO(LARDER_RENAME, flags, old_fd, old, new_fd, new,
        DONE(REAL(renameat2)(old_fd, old, new_fd, new, flags)));
}

EXPORT int link(const char *old, const char *new)
{
    TWO(LARDER_LINK, 0, AT_FDCWD, old, AT_FDCWD, new, DONE(REAL(link)(old, new)));
}

EXPORT int linkat(int old_fd, const char *old, int new_fd, const char *new, int flags)
{
    TWO(LARDER_LINK, flags & AT_SYMLINK_FOLLOW ? 1 : 0, old_fd, old, new_fd, new,
        DONE(REAL(linkat)(old_fd, old, new_fd, new, flags)));
}

static int linked(int result, const char *target, int dirfd, const char *path)
{
    if (!log_on())
        return result;
    struct larder_event event = event_new(LARDER_SYMLINK, result != 0);
    struct text text, text2;
    text_string(&text, event.error == EFAULT ? NULL : target);
    text_path(&text2, dirfd, event.error == EFAULT ? NULL : path);
    log_write(&event, &text, &text2);
    return result;
}

EXPORT int symlink(const char *target, const char *path)
{
    return linked(DONE(REAL(symlink)(target, path)), target, AT_FDCWD, path);
}

EXPORT int symlinkat(const char *target, int dirfd, const char *path)
{
    return linked(DONE(REAL(symlinkat)(target, dirfd, path)), target, dirfd, path);
}

/* Writes an event for one path whose directory may go away with it. */
static int gone(unsigned kind, int result, struct text *text, const char *path)
{
    struct larder_event event = event_new(kind, result != 0);
    text_tail(text, event.error == EFAULT ? NULL : path);
    log_write(&event, text, NULL);
    return result;
}

#define GONE(kind, dirfd, path, call)                                                       \
    do {                                                                                    \
        struct text text;                                                                   \
        if (!log_on())                                                                      \
            return call;                                                                    \
        text_dir(&text, dirfd);                                                             \
        int result = call;                                                                  \
        return gone(kind, result, &text, path);                                             \
    } while (0)

EXPORT int rmdir(const char *path) { GONE(LARDER_RMDIR, AT_FDCWD, path, DONE(REAL(rmdir)(path))); }

EXPORT int unlinkat(int dirfd, const char *path, int flags)
{
    GONE(flags & AT_REMOVEDIR ? LARDER_RMDIR : LARDER_UNLINK, dirfd, path,
         DONE(REAL(unlinkat)(dirfd, path, flags)));
}

EXPORT int remove(const char *path)
{
    struct stat st;
    bool directory = log_on() && raw_stat(AT_FDCWD, path, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
                     (st.st_mode & TYPE_MASK) == TYPE_DIRECTORY;
    GONE(directory ? LARDER_RMDIR : LARDER_UNLINK, AT_FDCWD, path, DONE(REAL(remove)(path)));
}

/* Defines a function on one path that stays, relative to `fd`. */
#define ONE(kind, name, parameters, arguments, fd, flags, extra)                            \
    EXPORT int name parameters                                                              \
    {                                                                                       \
        int result = DONE(REAL(name) arguments);                                                  \
        path_event(kind, result != 0, fd, path, flags, (uint32_t)(extra));                  \
        return result;                                                                      \
    }
#define NOFOLLOW (flags & AT_SYMLINK_NOFOLLOW ? 1 : 0)

ONE(LARDER_UNLINK, unlink, (const char *path), (path), AT_FDCWD, 0, 0)
ONE(LARDER_MKDIR, mkdir, (const char *path, unsigned mode), (path, mode), AT_FDCWD, 0, mode)
ONE(LARDER_MKDIR, mkdirat, (int fd, const char *path, unsigned mode), (fd, path, mode), fd, 0, mode)
ONE(LARDER_CHMOD, chmod, (const char *path, unsigned mode), (path, mode), AT_FDCWD, 0, mode)
ONE(LARDER_CHMOD, lchmod, (const char *path, unsigned mode), (path, mode), AT_FDCWD, 1, mode)
ONE(LARDER_CHMOD, fchmodat, (int fd, const char *path, unsigned mode, int flags),
    (fd, path, mode, flags), fd, NOFOLLOW, mode)
ONE(LARDER_CHOWN, chown, (const char *path, unsigned user, unsigned group), (path, user, group),
    AT_FDCWD, 0, 0)
ONE(LARDER_CHOWN, lchown, (const char *path, unsigned user, unsigned group), (path, user, group),
    AT_FDCWD, 1, 0)
ONE(LARDER_CHOWN, fchownat, (int fd, const char *path, unsigned user, unsigned group, int flags),
    (fd, path, user, group, flags), fd, NOFOLLOW, 0)
ONE(LARDER_UTIME, utime, (const char *path, const void *times), (path, times), AT_FDCWD, 0, !times)
ONE(LARDER_UTIME, utimes, (const char *path, const void *times), (path, times), AT_FDCWD, 0, !times)
ONE(LARDER_UTIME, lutimes, (const char *path, const void *times), (path, times), AT_FDCWD, 1, !times)
ONE(LARDER_MKNOD, mknod, (const char *path, unsigned mode, unsigned long dev), (path, mode, dev),
    AT_FDCWD, 0, mode)
ONE(LARDER_MKNOD, mknodat, (int fd, const char *path, unsigned mode, unsigned long dev),
    (fd, path, mode, dev), fd, 0, mode)
ONE(LARDER_MKNOD, mkfifo, (const char *path, unsigned mode), (path, mode), AT_FDCWD, 0, mode | 0010000)
ONE(LARDER_MKNOD, mkfifoat, (int fd, const char *path, unsigned mode), (fd, path, mode), fd, 0,
    mode | 0010000)

/* For programs that were linked with an older glibc, as in look.c. */
EXPORT int __xmknod(int version, const char *path, unsigned mode, unsigned long *dev)
{
    int result = real_has(R___xmknod) ? DONE(REAL(__xmknod)(version, path, mode, dev))
                                      : DONE(REAL(mknod)(path, mode, *dev));
    path_event(LARDER_MKNOD, result != 0, AT_FDCWD, path, 0, mode);
    return result;
}

EXPORT int __xmknodat(int version, int fd, const char *path, unsigned mode, unsigned long *dev)
{
    int result = real_has(R___xmknodat) ? DONE(REAL(__xmknodat)(version, fd, path, mode, dev))
                                        : DONE(REAL(mknodat)(fd, path, mode, *dev));
    path_event(LARDER_MKNOD, result != 0, fd, path, 0, mode);
    return result;
}

/* If `path` is NULL, the function is about the descriptor itself. */
#define ONE_OR_FD(kind, name, parameters, arguments, flags, extra)                          \
    EXPORT int name parameters                                                              \
    {                                                                                       \
        int result = DONE(REAL(name) arguments);                                                  \
        if (path)                                                                           \
            path_event(kind, result != 0, fd, path, flags, (uint32_t)(extra));              \
        else                                                                                \
            fd_event(kind, result != 0, fd, (uint32_t)(extra));                             \
        return result;                                                                      \
    }
ONE_OR_FD(LARDER_UTIME, utimensat, (int fd, const char *path, const void *times, int flags),
          (fd, path, times, flags), NOFOLLOW, !times)
ONE_OR_FD(LARDER_UTIME, futimesat, (int fd, const char *path, const void *times), (fd, path, times), 0, !times)

#define OF_FD(kind, name, parameters, arguments, extra)                                     \
    EXPORT int name parameters                                                              \
    {                                                                                       \
        int result = DONE(REAL(name) arguments);                                                  \
        fd_event(kind, result != 0, fd, (uint32_t)(extra));                                 \
        return result;                                                                      \
    }
OF_FD(LARDER_CHMOD, fchmod, (int fd, unsigned mode), (fd, mode), mode)
OF_FD(LARDER_CHOWN, fchown, (int fd, unsigned user, unsigned group), (fd, user, group), 0)
OF_FD(LARDER_UTIME, futimes, (int fd, const void *times), (fd, times), !times)
OF_FD(LARDER_UTIME, futimens, (int fd, const void *times), (fd, times), !times)

static int truncated(int result, const char *path, long length)
{
    if (!log_on())
        return result;
    struct larder_event event = event_new(LARDER_TRUNCATE, result != 0);
    struct text text;
    event.bytes = (uint64_t)length;
    text_path(&text, AT_FDCWD, event.error == EFAULT ? NULL : path);
    log_write(&event, &text, NULL);
    return result;
}

EXPORT int truncate(const char *path, long length)
{
    return truncated(DONE(REAL(truncate)(path, length)), path, length);
}

EXPORT int truncate64(const char *path, long length)
{
    return truncated(DONE(REAL(truncate64)(path, length)), path, length);
}

static int attributed(int result, const char *path, int fd, const char *name, unsigned flags)
{
    if (!log_on())
        return result;
    struct larder_event event = event_new(LARDER_XATTR, result != 0);
    struct text text, text2;
    event.flags = (uint16_t)flags;
    if (path)
        text_path(&text, AT_FDCWD, event.error == EFAULT ? NULL : path);
    else
        text_fd(&text, fd);
    text_string(&text2, event.error == EFAULT ? NULL : name);
    log_write(&event, &text, &text2);
    return result;
}

#define SET(call, parameters, arguments, path, fd, flags)                                   \
    EXPORT int call parameters                                                              \
    {                                                                                       \
        return attributed(DONE(REAL(call) arguments), path, fd, name, flags);                     \
    }
SET(setxattr, (const char *path, const char *name, const void *value, size_t size, int how),
    (path, name, value, size, how), path, -1, 0)
SET(lsetxattr, (const char *path, const char *name, const void *value, size_t size, int how),
    (path, name, value, size, how), path, -1, 1)
SET(fsetxattr, (int fd, const char *name, const void *value, size_t size, int how),
    (fd, name, value, size, how), NULL, fd, 0)
SET(removexattr, (const char *path, const char *name), (path, name), path, -1, 0)
SET(lremovexattr, (const char *path, const char *name), (path, name), path, -1, 1)
SET(fremovexattr, (int fd, const char *name), (fd, name), NULL, fd, 0)
