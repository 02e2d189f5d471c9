/* Opening: open and its relatives, fopen, temporary files, directories for listing, and chdir. */
#include "real.h"

EXPORT int open(const char *path, int flags, ...);
EXPORT int open64(const char *path, int flags, ...);
EXPORT int openat(int dirfd, const char *path, int flags, ...);
EXPORT int openat64(int dirfd, const char *path, int flags, ...);

#ifndef __O_TMPFILE
#define __O_TMPFILE 020000000
#endif

/* A flag of our own that the kernel does not know: the path did not exist before. */
#define O_NEW (1 << 30)

/* Returns the flags, with O_NEW if the call is about to create a file. */
static int making(int dirfd, const char *path, int flags)
{
    struct stat st;
    if (flags & O_CREAT && !(flags & O_EXCL) && log_on() && raw_stat(dirfd, path, &st, 0) == -ENOENT)
        return flags | O_NEW;
    return flags & O_CREAT && flags & O_EXCL ? flags | O_NEW : flags & ~O_NEW;
}

static unsigned open_flags(int flags)
{
    unsigned result = 0;
    if (flags & O_NEW)
        result |= LARDER_OPEN_NEW;
    if (flags & O_PATH)
        result |= LARDER_OPEN_PATHONLY;
    else if ((flags & O_ACCMODE) == O_RDONLY)
        result |= LARDER_OPEN_READ;
    else if ((flags & O_ACCMODE) == O_WRONLY)
        result |= LARDER_OPEN_WRITE;
    else
        result |= LARDER_OPEN_READ | LARDER_OPEN_WRITE;
    if (flags & O_CREAT)
        result |= LARDER_OPEN_CREATE;
    if (flags & O_EXCL)
        result |= LARDER_OPEN_EXCL;
    if (flags & O_TRUNC)
        result |= LARDER_OPEN_TRUNC;
    if (flags & O_APPEND)
        result |= LARDER_OPEN_APPEND;
    if (flags & __O_TMPFILE)
        result |= LARDER_OPEN_TEMP;
    if (flags & O_DIRECTORY)
        result |= LARDER_OPEN_DIRECTORY;
    if (flags & O_NOFOLLOW)
        result |= LARDER_OPEN_NOFOLLOW;
    return result;
}

/* Writes an OPEN or a LIST with the stat of the new descriptor. If `fd` is negative, the call
 * failed. */
static void opened_event(unsigned kind, int fd, int dirfd, const char *path, unsigned flags, uint32_t mode)
{
    struct larder_event event = event_new(kind, fd < 0);
    struct text text;
    struct stat st;
    event.flags = (uint16_t)flags;
    event.extra = mode;
    if (fd >= 0)
        close_watch(fd, (flags & LARDER_OPEN_WRITE) != 0);
    if (fd >= 0 && raw_fstat(fd, &st) == 0)
        event_stat(&event, &st);
    text_path(&text, dirfd, event.error == EFAULT ? NULL : path);
    log_write(&event, &text, NULL);
}

static int opened(int fd, int dirfd, const char *path, int flags, unsigned mode)
{
    if (log_on())
        opened_event(LARDER_OPEN, fd, dirfd, path, open_flags(flags), mode);
    return fd;
}

#define MODE(flags)                                                                         \
    ({                                                                                      \
        unsigned mode_ = 0;                                                                 \
        if ((flags) & (O_CREAT | __O_TMPFILE)) {                                            \
            va_list list_;                                                                  \
            va_start(list_, flags);                                                         \
            mode_ = va_arg(list_, unsigned);                                                \
            va_end(list_);                                                                  \
        }                                                                                   \
        mode_;                                                                              \
    })

#define OPEN(name)                                                                          \
    EXPORT int name(const char *path, int flags, ...)                                       \
    {                                                                                       \
        unsigned mode = MODE(flags);                                                        \
        late_path(__builtin_return_address(0), path);                                       \
        int seen = making(AT_FDCWD, path, flags);                                           \
        return opened(DONE(REAL(name)(path, flags, mode)), AT_FDCWD, path, seen, mode);           \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                                        \
    EXPORT int name(int dirfd, const char *path, int flags, ...)                            \
    {                                                                                       \
        unsigned mode = MODE(flags);                                                        \
        late_path(__builtin_return_address(0), path);                                       \
        int seen = making(dirfd, path, flags);                                              \
        return opened(DONE(REAL(name)(dirfd, path, flags, mode)), dirfd, path, seen, mode);       \
    }
OPENAT(openat)
OPENAT(openat64)

#define OPEN_2(name)                                                                        \
    EXPORT int name(const char *path, int flags)                                            \
    {                                                                                       \
        late_path(__builtin_return_address(0), path);                                       \
        return opened(DONE(REAL(name)(path, flags)), AT_FDCWD, path, flags, 0);                   \
    }
OPEN_2(__open_2)
OPEN_2(__open64_2)

#define OPENAT_2(name)                                                                      \
    EXPORT int name(int dirfd, const char *path, int flags)                                 \
    {                                                                                       \
        late_path(__builtin_return_address(0), path);                                       \
        return opened(DONE(REAL(name)(dirfd, path, flags)), dirfd, path, flags, 0);               \
    }
OPENAT_2(__openat_2)
OPENAT_2(__openat64_2)

#define CREAT(name)                                                                         \
    EXPORT int name(const char *path, unsigned mode)                                        \
    {                                                                                       \
        int seen = making(AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC);                    \
        return opened(DONE(REAL(name)(path, mode)), AT_FDCWD, path, seen, mode);                  \
    }
CREAT(creat)
CREAT(creat64)

extern WEAK int fileno(void *stream);
extern WEAK int dirfd(void *stream);

/* Returns the flags of a mode string of fopen. */
static int mode_flags(const char *mode)
{
    int flags = 0, access = O_RDONLY;
    if (!mode)
        return 0;
    if (*mode == 'w')
        access = O_WRONLY, flags = O_CREAT | O_TRUNC;
    else if (*mode == 'a')
        access = O_WRONLY, flags = O_CREAT | O_APPEND;
    for (; *mode && *mode != ','; mode++)
        if (*mode == '+')
            access = O_RDWR;
        else if (*mode == 'x')
            flags |= O_EXCL;
    return flags | access;
}

static void *stream_opened(void *stream, const char *path, int flags)
{
    if (!log_on())
        return stream;
    int before = errno;
    int fd = stream ? REAL(fileno)(stream) : -1;
    errno = before;
    if (stream && !path) { /* freopen of the file that the stream has open */
        struct larder_event event = event_new(LARDER_OPEN, false);
        struct text text;
        struct stat st;
        event.flags = (uint16_t)open_flags(flags);
        if (raw_fstat(fd, &st) == 0)
            event_stat(&event, &st);
        text_fd(&text, fd);
        log_write(&event, &text, NULL);
    } else if (stream && fd < 0) {
        path_event(LARDER_OPEN, false, AT_FDCWD, path, open_flags(flags), 0666);
    } else {
        opened_event(LARDER_OPEN, fd, AT_FDCWD, path, open_flags(flags), flags & O_CREAT ? 0666 : 0);
    }
    return stream;
}

#define FOPEN(name)                                                                         \
    EXPORT void *name(const char *path, const char *mode)                                   \
    {                                                                                       \
        late_path(__builtin_return_address(0), path);                                       \
        int seen = making(AT_FDCWD, path, mode_flags(mode));                                \
        return stream_opened(REAL(name)(path, mode), path, seen);                           \
    }
FOPEN(fopen)
FOPEN(fopen64)

#define FREOPEN(name)                                                                       \
    EXPORT void *name(const char *path, const char *mode, void *stream)                     \
    {                                                                                       \
        int seen = path ? making(AT_FDCWD, path, mode_flags(mode)) : mode_flags(mode);      \
        return stream_opened(REAL(name)(path, mode, stream), path, seen);                   \
    }
FREOPEN(freopen)
FREOPEN(freopen64)

static int temp_opened(int fd, const char *name)
{
    if (log_on())
        opened_event(LARDER_OPEN, fd, AT_FDCWD, name,
                     LARDER_OPEN_READ | LARDER_OPEN_WRITE | LARDER_OPEN_CREATE | LARDER_OPEN_EXCL |
                         LARDER_OPEN_TEMP | LARDER_OPEN_NEW,
                     0600);
    return fd;
}

#define TEMP(name)                                                                          \
    EXPORT int name(char *path) { return temp_opened(REAL(name)(path), path); }
#define TEMP_1(name)                                                                        \
    EXPORT int name(char *path, int a) { return temp_opened(REAL(name)(path, a), path); }
#define TEMP_2(name)                                                                        \
    EXPORT int name(char *path, int a, int b) { return temp_opened(REAL(name)(path, a, b), path); }
TEMP(mkstemp)
TEMP(mkstemp64)
TEMP_1(mkstemps)
TEMP_1(mkstemps64)
TEMP_1(mkostemp)
TEMP_1(mkostemp64)
TEMP_2(mkostemps)
TEMP_2(mkostemps64)

EXPORT char *mkdtemp(char *path)
{
    char *result = REAL(mkdtemp)(path);
    path_event(LARDER_MKDIR, !result, AT_FDCWD, path, LARDER_OPEN_TEMP, 0700);
    return result;
}

EXPORT void *opendir(const char *path)
{
    void *caller = __builtin_return_address(0);
    late_path(caller, path);
    void *result = REAL(opendir)(path);
    if (log_on()) {
        int before = errno;
        int fd = result ? REAL(dirfd)(result) : -1;
        errno = before;
        opened_event(LARDER_LIST, fd, AT_FDCWD, path, 0, late_mark(caller));
    }
    return result;
}

/* Writes the event of listing a descriptor, with its path and stat. */
static void listed(int fd, const void *caller)
{
    struct larder_event event = event_new(LARDER_LIST, false);
    struct text text;
    struct stat st;
    event.extra = late_mark(caller);
    if (raw_fstat(fd, &st) == 0)
        event_stat(&event, &st);
    text_fd(&text, fd);
    log_write(&event, &text, NULL);
}

EXPORT void *fdopendir(int fd)
{
    void *result = REAL(fdopendir)(fd);
    if (result && log_on())
        listed(fd, __builtin_return_address(0));
    return result;
}

EXPORT long getdents64(int fd, void *buffer, size_t size)
{
    long result = REAL(getdents64)(fd, buffer, size);
    if (result >= 0 && log_on())
        listed(fd, __builtin_return_address(0));
    return result;
}

static int scanned(int result, int dirfd, const char *path, const void *caller)
{
    if (!log_on())
        return result;
    struct larder_event event = event_new(LARDER_LIST, result < 0);
    struct text text;
    struct stat st;
    event.extra = late_mark(caller);
    if (!event.error && raw_stat(dirfd, path, &st, 0) == 0)
        event_stat(&event, &st);
    text_path(&text, dirfd, event.error == EFAULT ? NULL : path);
    log_write(&event, &text, NULL);
    return result;
}

#define SCANDIR(name)                                                                       \
    EXPORT int name(const char *path, void *list, void *filter, void *compare)              \
    {                                                                                       \
        void *caller = __builtin_return_address(0);                                         \
        late_path(caller, path);                                                            \
        return scanned(REAL(name)(path, list, filter, compare), AT_FDCWD, path, caller);    \
    }
SCANDIR(scandir)
SCANDIR(scandir64)

#define SCANDIRAT(name)                                                                     \
    EXPORT int name(int dirfd, const char *path, void *list, void *filter, void *compare)   \
    {                                                                                       \
        void *caller = __builtin_return_address(0);                                         \
        late_path(caller, path);                                                            \
        return scanned(REAL(name)(dirfd, path, list, filter, compare), dirfd, path, caller); \
    }
SCANDIRAT(scandirat)
SCANDIRAT(scandirat64)

EXPORT int chdir(const char *path)
{
    struct text text;
    struct stat st;
    if (!log_on())
        return DONE(REAL(chdir)(path));
    text_dir(&text, AT_FDCWD);
    int result = DONE(REAL(chdir)(path));
    struct larder_event event = event_new(LARDER_OPEN, result < 0);
    event.flags = LARDER_OPEN_PATHONLY | LARDER_OPEN_DIRECTORY;
    if (!event.error && raw_stat(AT_FDCWD, ".", &st, 0) == 0)
        event_stat(&event, &st);
    text_tail(&text, event.error == EFAULT ? NULL : path);
    log_write(&event, &text, NULL);
    return result;
}
