/* Looking at paths: stat, access, readlink, realpath and their relatives. */
#include "real.h"

#include <linux/stat.h>

/* Writes the event of a stat. On these machines, libc's struct stat is the kernel's. */
static int looked(unsigned kind, int result, int dirfd, const char *path, const struct stat *st, const void *caller)
{
    if (!log_on())
        return result;
    struct larder_event event = event_new(kind, result != 0);
    struct text text;
    event.extra = late_mark(caller);
    if (result == 0)
        event_stat(&event, st);
    text_path(&text, dirfd, event.error == EFAULT ? NULL : path);
    log_write(&event, &text, NULL);
    return result;
}

#define STAT(name, kind)                                                                    \
    EXPORT int name(const char *path, struct stat *st)                                      \
    {                                                                                       \
        void *caller = __builtin_return_address(0);                                         \
        late_path(caller, path);                                                            \
        return looked(kind, DONE(REAL(name)(path, st)), AT_FDCWD, path, st, caller);        \
    }
STAT(stat, LARDER_STAT)
STAT(stat64, LARDER_STAT)
STAT(lstat, LARDER_LSTAT)
STAT(lstat64, LARDER_LSTAT)

static int looked_at(int result, int dirfd, const char *path, const struct stat *st, int flags, const void *caller)
{
    if ((flags & AT_EMPTY_PATH) && (!path || !*path))
        return result;
    return looked(flags & AT_SYMLINK_NOFOLLOW ? LARDER_LSTAT : LARDER_STAT, result, dirfd, path, st, caller);
}

#define FSTATAT(name)                                                                       \
    EXPORT int name(int dirfd, const char *path, struct stat *st, int flags)                \
    {                                                                                       \
        void *caller = __builtin_return_address(0);                                         \
        late_path(caller, path);                                                            \
        return looked_at(DONE(REAL(name)(dirfd, path, st, flags)), dirfd, path, st, flags, caller); \
    }
FSTATAT(fstatat)
FSTATAT(fstatat64)

/* Programs that were linked with an older glibc call these. A newer glibc hides them from dlsym,
 * but has the plain functions. */
#define XSTAT(name, plain, kind)                                                            \
    EXPORT int name(int version, const char *path, struct stat *st)                         \
    {                                                                                       \
        void *caller = __builtin_return_address(0);                                         \
        late_path(caller, path);                                                            \
        int result = real_has(R_##name) ? DONE(REAL(name)(version, path, st)) : DONE(REAL(plain)(path, st)); \
        return looked(kind, result, AT_FDCWD, path, st, caller);                            \
    }
XSTAT(__xstat, stat, LARDER_STAT)
XSTAT(__xstat64, stat64, LARDER_STAT)
XSTAT(__lxstat, lstat, LARDER_LSTAT)
XSTAT(__lxstat64, lstat64, LARDER_LSTAT)

#define FXSTATAT(name, plain)                                                               \
    EXPORT int name(int version, int dirfd, const char *path, struct stat *st, int flags)   \
    {                                                                                       \
        void *caller = __builtin_return_address(0);                                         \
        late_path(caller, path);                                                            \
        int result = real_has(R_##name) ? DONE(REAL(name)(version, dirfd, path, st, flags))       \
                                        : DONE(REAL(plain)(dirfd, path, st, flags));              \
        return looked_at(result, dirfd, path, st, flags, caller);                           \
    }
FXSTATAT(__fxstatat, fstatat)
FXSTATAT(__fxstatat64, fstatat64)

EXPORT int statx(int dirfd, const char *path, int flags, unsigned mask, struct statx *stx)
{
    void *caller = __builtin_return_address(0);
    late_path(caller, path);
    int result = DONE(REAL(statx)(dirfd, path, flags, mask, stx));
    if (((flags & AT_EMPTY_PATH) && (!path || !*path)) || !log_on())
        return result;
    struct larder_event event =
        event_new(flags & AT_SYMLINK_NOFOLLOW ? LARDER_LSTAT : LARDER_STAT, result != 0);
    struct text text;
    struct stat st;
    event.extra = late_mark(caller);
    if (result == 0 && (stx->stx_mask & STATX_BASIC_STATS) == STATX_BASIC_STATS) {
        event.dev = (uint64_t)stx->stx_dev_major << 32 | stx->stx_dev_minor;
        event.ino = stx->stx_ino;
        event.bytes = stx->stx_size;
        event.mtime_ns = stx->stx_mtime.tv_sec * 1000000000 + stx->stx_mtime.tv_nsec;
        event.ctime_ns = stx->stx_ctime.tv_sec * 1000000000 + stx->stx_ctime.tv_nsec;
        event.mode = stx->stx_mode;
    } else if (result == 0 && raw_stat(dirfd, path, &st, flags & AT_SYMLINK_NOFOLLOW) == 0) {
        event_stat(&event, &st);
    }
    text_path(&text, dirfd, event.error == EFAULT ? NULL : path);
    log_write(&event, &text, NULL);
    return result;
}

#define ACCESS(name, flags)                                                                 \
    EXPORT int name(const char *path, int mode)                                             \
    {                                                                                       \
        late_path(__builtin_return_address(0), path);                                       \
        int result = DONE(REAL(name)(path, mode));                                                \
        path_event(LARDER_ACCESS, result != 0, AT_FDCWD, path, flags, (uint32_t)mode);      \
        return result;                                                                      \
    }
ACCESS(access, 0)
ACCESS(eaccess, 2)
ACCESS(euidaccess, 2)

/* statfs and statvfs are about a file system. Of the path itself they only tell whether it
 * exists. */
#define STATFS(name)                                                                        \
    EXPORT int name(const char *path, void *st)                                             \
    {                                                                                       \
        int result = DONE(REAL(name)(path, st));                                                  \
        path_event(LARDER_ACCESS, result != 0, AT_FDCWD, path, 0, 0);                       \
        return result;                                                                      \
    }
STATFS(statfs)
STATFS(statfs64)
STATFS(statvfs)
STATFS(statvfs64)

EXPORT int faccessat(int dirfd, const char *path, int mode, int flags)
{
    int result = DONE(REAL(faccessat)(dirfd, path, mode, flags));
    path_event(LARDER_ACCESS, result != 0, dirfd, path,
               (flags & AT_SYMLINK_NOFOLLOW ? 1 : 0) | (flags & AT_EACCESS ? 2 : 0), (uint32_t)mode);
    return result;
}

static long read_link(long result, int dirfd, const char *path, const char *buffer, size_t size)
{
    if (!log_on())
        return result;
    struct larder_event event = event_new(LARDER_READLINK, result < 0);
    struct text text, target;
    event.flags = result >= 0 && (size_t)result == size;
    text_path(&text, dirfd, event.error == EFAULT ? NULL : path);
    text_raw(&target, buffer, result > 0 ? (size_t)result : 0);
    log_write(&event, &text, &target);
    return result;
}

EXPORT long readlink(const char *path, char *buffer, size_t size)
{
    late_path(__builtin_return_address(0), path);
    return read_link(DONE(REAL(readlink)(path, buffer, size)), AT_FDCWD, path, buffer, size);
}

EXPORT long __readlink_chk(const char *path, char *buffer, size_t size, size_t room)
{
    return read_link(DONE(REAL(__readlink_chk)(path, buffer, size, room)), AT_FDCWD, path, buffer, size);
}

EXPORT long readlinkat(int dirfd, const char *path, char *buffer, size_t size)
{
    late_path(__builtin_return_address(0), path);
    return read_link(DONE(REAL(readlinkat)(dirfd, path, buffer, size)), dirfd, path, buffer, size);
}

EXPORT long __readlinkat_chk(int dirfd, const char *path, char *buffer, size_t size, size_t room)
{
    return read_link(DONE(REAL(__readlinkat_chk)(dirfd, path, buffer, size, room)), dirfd, path, buffer, size);
}

static char *resolved(char *result, const char *path, void *caller)
{
    late_path(caller, path);
    late_event(LARDER_LATE_DIRECTORY, (unsigned long)caller, "realpath", false);
    if (!log_on())
        return result;
    struct larder_event event = event_new(LARDER_REALPATH, !result);
    struct text text, text2;
    text_path(&text, AT_FDCWD, event.error == EFAULT ? NULL : path);
    text_string(&text2, result);
    log_write(&event, &text, &text2);
    return result;
}

EXPORT char *realpath(const char *path, char *to)
{
    return resolved(REAL(realpath)(path, to), path, __builtin_return_address(0));
}

EXPORT char *__realpath_chk(const char *path, char *to, size_t room)
{
    return resolved(REAL(__realpath_chk)(path, to, room), path, __builtin_return_address(0));
}

EXPORT char *canonicalize_file_name(const char *path)
{
    return resolved(REAL(canonicalize_file_name)(path), path, __builtin_return_address(0));
}
