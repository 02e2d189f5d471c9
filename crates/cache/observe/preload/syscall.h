/* Raw system calls for x86_64 and aarch64. They use neither errno nor libc, so that neither the
 * tool nor the log sees what the library does by itself. Each returns what the kernel returned:
 * -errno on failure. */
#ifndef LARDER_SYSCALL_H
#define LARDER_SYSCALL_H

#include <asm/stat.h>
#include <asm/unistd.h>
#include <linux/errno.h>
#include <linux/fcntl.h>

#if defined(__x86_64__)
static inline long raw6(long n, long a, long b, long c, long d, long e, long f)
{
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}
#elif defined(__aarch64__)
static inline long raw6(long n, long a, long b, long c, long d, long e, long f)
{
    register long x8 __asm__("x8") = n;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc 0"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                     : "memory");
    return x0;
}
#else
#error "no system calls for this machine"
#endif

static inline long raw_getpid(void) { return raw6(__NR_getpid, 0, 0, 0, 0, 0, 0); }
static inline long raw_getppid(void) { return raw6(__NR_getppid, 0, 0, 0, 0, 0, 0); }

static inline long raw_kill(int pid, int signal) { return raw6(__NR_kill, pid, signal, 0, 0, 0, 0); }

static inline long raw_prctl(int option, unsigned long value)
{
    return raw6(__NR_prctl, option, (long)value, 0, 0, 0, 0);
}

/* Waits while `*word` is `value`, for `ms` milliseconds, which must be below 1000. It may also
 * return for no reason. */
static inline long raw_wait_on(uint32_t *word, uint32_t value, long ms)
{
    long time[2] = {0, ms * 1000000};
    return raw6(__NR_futex, (long)word, 0 /* FUTEX_WAIT */, value, (long)time, 0, 0);
}

static inline long raw_execve(const char *path, char *const argv[], char *const envp[])
{
    return raw6(__NR_execve, (long)path, (long)argv, (long)envp, 0, 0, 0);
}

static inline long raw_getcwd(char *buffer, unsigned long size)
{
    return raw6(__NR_getcwd, (long)buffer, (long)size, 0, 0, 0, 0);
}

static inline long raw_open(const char *path, int flags)
{
    return raw6(__NR_openat, AT_FDCWD, (long)path, flags, 0, 0, 0);
}

static inline long raw_close(int fd) { return raw6(__NR_close, fd, 0, 0, 0, 0, 0); }

static inline long raw_pread(int fd, void *buffer, unsigned long size, long offset)
{
    return raw6(__NR_pread64, fd, (long)buffer, (long)size, offset, 0, 0);
}

static inline long raw_fstat(int fd, struct stat *st)
{
    return raw6(__NR_fstat, fd, (long)st, 0, 0, 0, 0);
}

static inline long raw_stat(int dirfd, const char *path, struct stat *st, int flags)
{
    return raw6(__NR_newfstatat, dirfd, (long)path, (long)st, flags, 0, 0);
}

static inline long raw_readlink(const char *path, char *buffer, unsigned long size)
{
    return raw6(__NR_readlinkat, AT_FDCWD, (long)path, (long)buffer, (long)size, 0, 0);
}

static inline long raw_access(const char *path, int mode)
{
    return raw6(__NR_faccessat, AT_FDCWD, (long)path, mode, 0, 0, 0);
}

static inline long raw_fgetxattr(int fd, const char *name, void *value, unsigned long size)
{
    return raw6(__NR_fgetxattr, fd, (long)name, (long)value, (long)size, 0, 0);
}

static inline void *raw_mmap(unsigned long size, int prot, int flags, int fd)
{
    return (void *)raw6(__NR_mmap, 0, (long)size, prot, flags, fd, 0);
}

static inline long raw_mprotect(void *at, unsigned long size, int prot)
{
    return raw6(__NR_mprotect, (long)at, (long)size, prot, 0, 0, 0);
}

static inline long raw_munmap(void *at, unsigned long size)
{
    return raw6(__NR_munmap, (long)at, (long)size, 0, 0, 0, 0);
}

#endif
