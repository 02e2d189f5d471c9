/* Calls that fail because a resource is short (space, quota, memory, descriptors, processes), or
 * because a device fails. If one does, the next run may end differently, so this run is not
 * recorded. The tool's own messages do not matter, because they are in the user's language.
 *
 * Each function here calls libc's, and writes one event if that failed in this way. Otherwise it
 * makes no system call of its own.
 *
 * libc's streams read and write by themselves, without any of these functions. Their failures are
 * known by the errno of fflush and by the error mark of the stream. The mark is checked by ferror,
 * clearerr, rewind and fclose, and with glibc for all streams at the end of the process. */
#include "real.h"

/* The maximum number of events of one process. More tell nothing new. */
#define EVENTS_MAX 8

static bool says_shortage(int error)
{
    return error == EIO || error == ENOMEM || error == ENFILE || error == EMFILE || error == EFBIG ||
           error == ENOSPC || error == EDQUOT;
}

static void shortage_event(int error, int fd, const char *function)
{
    static unsigned events;
    if (__atomic_load_n(&events, __ATOMIC_RELAXED) >= EVENTS_MAX || !log_on())
        return;
    __atomic_fetch_add(&events, 1, __ATOMIC_RELAXED);
    struct larder_event event = event_new(LARDER_SHORTAGE, false);
    struct text text;
    event.error = error;
    if (fd >= 0)
        text_fd(&text, fd);
    else
        text_string(&text, function);
    log_write(&event, &text, NULL);
}

void shortage_of(int error, const char *function)
{
    if (says_shortage(error) || error == EAGAIN)
        shortage_event(error, -1, function);
}

/* Defines a function that transfers bytes by descriptor `fd`, or sets a file's size, after `before`.
 * EAGAIN only means "not yet" here. */
#define TRANSFER_AFTER(before, type, name, fd, parameters, arguments)                       \
    EXPORT type name parameters                                                             \
    {                                                                                       \
        before;                                                                             \
        type result = REAL(name) arguments;                                                 \
        if (__builtin_expect(result < 0, 0) && says_shortage(errno))                        \
            shortage_event(errno, fd, #name);                                               \
        return result;                                                                      \
    }

#define TRANSFER(type, name, fd, parameters, arguments) \
    TRANSFER_AFTER((void)0, type, name, fd, parameters, arguments)

/* Notes that the code at an address reads standard input. Code that a program loads may do so although
 * the program itself does not, such as a procedural macro of rustc. */
static inline void input_event(int fd, const void *caller)
{
    if (__builtin_expect(fd == 0, 0) && log_on())
        late_event(LARDER_LATE_DEVICE, (unsigned long)caller, "standard input", false);
}

/* Defines a function of the same kind by which a program may read standard input. */
#define INPUT(name, parameters, arguments) \
    TRANSFER_AFTER(input_event(fd, __builtin_return_address(0)), long, name, fd, parameters, arguments)

INPUT(read, (int fd, void *to, size_t size), (fd, to, size))
INPUT(__read_chk, (int fd, void *to, size_t size, size_t room), (fd, to, size, room))
INPUT(readv, (int fd, const void *parts, int count), (fd, parts, count))
TRANSFER(long, pread, fd, (int fd, void *to, size_t size, long at), (fd, to, size, at))
TRANSFER(long, pread64, fd, (int fd, void *to, size_t size, long at), (fd, to, size, at))
TRANSFER(long, __pread_chk, fd, (int fd, void *to, size_t size, long at, size_t room), (fd, to, size, at, room))
TRANSFER(long, __pread64_chk, fd, (int fd, void *to, size_t size, long at, size_t room), (fd, to, size, at, room))
TRANSFER(long, preadv, fd, (int fd, const void *parts, int count, long at), (fd, parts, count, at))
TRANSFER(long, preadv64, fd, (int fd, const void *parts, int count, long at), (fd, parts, count, at))
TRANSFER(long, write, fd, (int fd, const void *from, size_t size), (fd, from, size))
TRANSFER(long, pwrite, fd, (int fd, const void *from, size_t size, long at), (fd, from, size, at))
TRANSFER(long, pwrite64, fd, (int fd, const void *from, size_t size, long at), (fd, from, size, at))
TRANSFER(long, writev, fd, (int fd, const void *parts, int count), (fd, parts, count))
TRANSFER(long, pwritev, fd, (int fd, const void *parts, int count, long at), (fd, parts, count, at))
TRANSFER(long, pwritev64, fd, (int fd, const void *parts, int count, long at), (fd, parts, count, at))
TRANSFER(long, sendfile, fd, (int fd, int from, long *at, size_t size), (fd, from, at, size))
TRANSFER(long, sendfile64, fd, (int fd, int from, long *at, size_t size), (fd, from, at, size))
TRANSFER(long, copy_file_range, fd, (int from, long *at, int fd, long *to, size_t size, unsigned flags),
         (from, at, fd, to, size, flags))
TRANSFER(int, ftruncate, fd, (int fd, long size), (fd, size))
TRANSFER(int, ftruncate64, fd, (int fd, long size), (fd, size))
TRANSFER(int, fallocate, fd, (int fd, int mode, long at, long size), (fd, mode, at, size))
TRANSFER(int, fallocate64, fd, (int fd, int mode, long at, long size), (fd, mode, at, size))
TRANSFER(int, fsync, fd, (int fd), (fd))
TRANSFER(int, fdatasync, fd, (int fd), (fd))
TRANSFER(int, msync, -1, (void *at, size_t size, int flags), (at, size, flags))

/* Functions that make descriptors. */
TRANSFER(int, pipe, -1, (int *ends), (ends))
TRANSFER(int, pipe2, -1, (int *ends, int flags), (ends, flags))
TRANSFER(int, socketpair, -1, (int family, int type, int protocol, int *ends), (family, type, protocol, ends))
TRANSFER(int, dup, -1, (int fd), (fd))
TRANSFER(int, dup2, -1, (int fd, int to), (fd, to))
TRANSFER(int, dup3, -1, (int fd, int to, int flags), (fd, to, flags))
TRANSFER(int, memfd_create, -1, (const char *name, unsigned flags), (name, flags))
TRANSFER(int, eventfd, -1, (unsigned value, int flags), (value, flags))
TRANSFER(int, epoll_create1, -1, (int flags), (flags))

/* The third argument is a number or a pointer, or is missing. */
#define CONTROL(name)                                                                       \
    EXPORT int name(int fd, int command, ...)                                               \
    {                                                                                       \
        va_list list;                                                                       \
        va_start(list, command);                                                            \
        unsigned long argument = va_arg(list, unsigned long);                               \
        va_end(list);                                                                       \
        int result = REAL(name)(fd, command, argument);                                     \
        if (__builtin_expect(result < 0, 0) && says_shortage(errno))                        \
            shortage_event(errno, -1, #name);                                               \
        return result;                                                                      \
    }
CONTROL(fcntl)
CONTROL(fcntl64)

/* These functions return the errno. */
#define RESERVE(name)                                                                       \
    EXPORT int name(int fd, long at, long size)                                             \
    {                                                                                       \
        int error = REAL(name)(fd, at, size);                                               \
        if (says_shortage(error))                                                           \
            shortage_event(error, fd, #name);                                               \
        return error;                                                                       \
    }
RESERVE(posix_fallocate)
RESERVE(posix_fallocate64)

/* Memory. No process can have more addresses than this, so a refusal of more is no shortage. */
#define ADDRESSES_END (1ul << 47)
#define FAILED ((void *)-1l)

#define MAP(name)                                                                           \
    EXPORT void *name(void *at, size_t size, int rights, int flags, int fd, long from)      \
    {                                                                                       \
        void *result = REAL(name)(at, size, rights, flags, fd, from);                       \
        if (result == FAILED && size < ADDRESSES_END)                                       \
            shortage_of(errno, #name);                                                      \
        return result;                                                                      \
    }
MAP(mmap)
MAP(mmap64)

#define MAY_MOVE 1

/* A mapping that must stay in its place often cannot grow. Its owner then moves it itself. */
EXPORT void *mremap(void *at, size_t size, size_t new_size, int flags, ...)
{
    va_list list;
    va_start(list, flags);
    void *to = va_arg(list, void *);
    va_end(list);
    void *result = REAL(mremap)(at, size, new_size, flags, to);
    if (result == FAILED && flags & MAY_MOVE && new_size < ADDRESSES_END)
        shortage_of(errno, "mremap");
    return result;
}

EXPORT int brk(void *end)
{
    int result = REAL(brk)(end);
    if (result != 0)
        shortage_of(errno, "brk");
    return result;
}

EXPORT void *sbrk(long more)
{
    void *result = REAL(sbrk)(more);
    if (result == FAILED && more > 0)
        shortage_of(errno, "sbrk");
    return result;
}

/* libc's malloc asks the kernel by itself, so its failures are not seen. If memory was limited
 * before the run (`ulimit -v`), nothing is recorded at all. What is left is a program of the run
 * that sets a limit. */
#define LIMIT_DATA 2
#define LIMIT_ADDRESSES 9

static void limited(int resource, const unsigned long *limit)
{
    if ((resource == LIMIT_DATA || resource == LIMIT_ADDRESSES) && limit && *limit != ~0ul)
        shortage_event(ENOMEM, -1, "setrlimit");
}

#define LIMIT(name)                                                                         \
    EXPORT int name(int resource, const unsigned long *limit)                               \
    {                                                                                       \
        int result = REAL(name)(resource, limit);                                           \
        if (result == 0)                                                                    \
            limited(resource, limit);                                                       \
        return result;                                                                      \
    }
LIMIT(setrlimit)
LIMIT(setrlimit64)

#define LIMIT_OF(name)                                                                      \
    EXPORT int name(int pid, int resource, const unsigned long *limit, unsigned long *old)  \
    {                                                                                       \
        int result = REAL(name)(pid, resource, limit, old);                                 \
        if (result == 0)                                                                    \
            limited(resource, limit);                                                       \
        return result;                                                                      \
    }
LIMIT_OF(prlimit)
LIMIT_OF(prlimit64)

/* Processes and threads. */
static bool has_threads;

#define FORK(name)                                                                          \
    EXPORT int name(void)                                                                   \
    {                                                                                       \
        int result = REAL(name)();                                                          \
        if (result < 0)                                                                     \
            shortage_of(errno, #name);                                                      \
        return result;                                                                      \
    }
FORK(fork)
FORK(_Fork)

EXPORT int clone(void *start, void *stack, int flags, void *argument, ...)
{
    va_list list;
    va_start(list, argument);
    void *parent = va_arg(list, void *), *local = va_arg(list, void *), *child = va_arg(list, void *);
    va_end(list);
    has_threads = true;
    int result = REAL(clone)(start, stack, flags, argument, parent, local, child);
    if (result < 0)
        shortage_of(errno, "clone");
    return result;
}

EXPORT int pthread_create(void *thread, const void *attributes, void *start, void *argument)
{
    has_threads = true;
    int error = REAL(pthread_create)(thread, attributes, start, argument);
    if (error)
        shortage_of(error, "pthread_create");
    return error;
}

/* vfork returns twice on one stack, so no C function can stand in front of it. This one makes the
 * system call itself, as libc's does. It keeps the return address in a register meanwhile, because
 * the child overwrites the stack. With a shadow stack libc's vfork is called, because only that one
 * keeps the shadow stack in order. */
__attribute__((used)) static void *vfork_of_libc(void) { return real_get(R_vfork); }

__attribute__((used)) static int vfork_failed(int error)
{
    errno = error;
    shortage_of(error, "vfork");
    return -1;
}

#if defined(__x86_64__)
__asm__(".pushsection .text\n.balign 16\n.globl vfork\n.type vfork,@function\nvfork:\n.cfi_startproc\nendbr64\n"
        /* The bytes are rdsspq %rax, which does nothing without a shadow stack. */
        "xor %eax, %eax\n.byte 0xf3,0x48,0x0f,0x1e,0xc8\n"
        "test %rax, %rax\njnz 2f\n"
        "pop %rdi\n.cfi_adjust_cfa_offset -8\n.cfi_register %rip, %rdi\n"
        "mov $58, %eax\nsyscall\n"
        "push %rdi\n.cfi_adjust_cfa_offset 8\n"
        "cmp $-4095, %eax\njae 1f\nret\n"
        "1: neg %eax\nmov %eax, %edi\njmp vfork_failed\n"
        "2: sub $8, %rsp\ncall vfork_of_libc\nadd $8, %rsp\njmp *%rax\n"
        ".cfi_endproc\n.size vfork,.-vfork\n.popsection\n");
#else
__asm__(".pushsection .text\n.balign 16\n.globl vfork\n.type vfork,%function\nvfork:\n.cfi_startproc\nhint #34\n"
        /* The hint is chkfeat, which leaves the bit set without a guarded control stack. */
        "mov x16, #1\nhint #40\ncbz x16, 2f\n"
        "mov x0, #0x4111\nmov x1, #0\nmov x8, #220\nsvc #0\n" /* clone: VFORK, VM, SIGCHLD */
        "cmn x0, #4095\nb.cs 1f\nret\n"
        "1: neg w0, w0\nb vfork_failed\n"
        "2: stp x29, x30, [sp, #-16]!\nbl vfork_of_libc\nmov x16, x0\nldp x29, x30, [sp], #16\nbr x16\n"
        ".cfi_endproc\n.size vfork,.-vfork\n.popsection\n");
#endif

/* Streams. */
extern WEAK int fileno(void *stream);
extern WEAK void _IO_list_lock(void);
extern WEAK void _IO_list_unlock(void);
extern WEAK void *_IO_iter_begin(void);
extern WEAK void *_IO_iter_end(void);
extern WEAK void *_IO_iter_next(void *at);
extern WEAK void *_IO_iter_file(void *at);

#define TYPE_CHARACTER 0020000u
#define TYPE_BLOCK 0060000u

/* Handles a stream with an error mark. The errno is not known any more. On a file or a device, the
 * mark is taken for a failed transfer. On anything else it says nothing: for example, a directory
 * can never be read, and a pipe may have no reader in every run. */
static void stream_is_marked(void *stream)
{
    struct stat st;
    int before = errno, fd = fileno ? fileno(stream) : -1;
    errno = before;
    if (fd < 0 || raw_fstat(fd, &st) != 0)
        return;
    unsigned type = st.st_mode & TYPE_MASK;
    if (type == TYPE_REGULAR || type == TYPE_CHARACTER || type == TYPE_BLOCK)
        shortage_event(EIO, fd, "ferror");
}

EXPORT int ferror(void *stream)
{
    int marked = REAL(ferror)(stream);
    if (marked)
        stream_is_marked(stream);
    return marked;
}

void stream_ends(void *stream)
{
    if (REAL(ferror)(stream) > 0)
        stream_is_marked(stream);
}

EXPORT void clearerr(void *stream)
{
    stream_ends(stream);
    REAL(clearerr)(stream);
}

EXPORT void rewind(void *stream)
{
    stream_ends(stream);
    REAL(rewind)(stream);
}

EXPORT int fflush(void *stream)
{
    int result = REAL(fflush)(stream);
    if (result != 0 && says_shortage(errno))
        shortage_event(errno, -1, "fflush");
    return result;
}

/* glibc's error mark in the first word of each stream. It is part of glibc's ABI. */
#define ERROR_MARK 0x20

/* Writes the buffers that libc would write right after this, at the end of `exit`, so that errors
 * are seen. This is not done if there are threads: one may hold the lock of a stream for ever, and
 * `exit` does not wait for such a lock. */
__attribute__((destructor)) static void end(void)
{
    if (has_threads || !log_on() || !real_has(R_fflush))
        return;
    int before = errno;
    fflush(NULL);
    if (_IO_list_lock && _IO_list_unlock && _IO_iter_begin && _IO_iter_end && _IO_iter_next && _IO_iter_file) {
        _IO_list_lock();
        for (void *at = _IO_iter_begin(); at != _IO_iter_end(); at = _IO_iter_next(at)) {
            void *stream = _IO_iter_file(at);
            if (*(int *)stream & ERROR_MARK)
                stream_is_marked(stream);
        }
        _IO_list_unlock();
    }
    errno = before;
}
