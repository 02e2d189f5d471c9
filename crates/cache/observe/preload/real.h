/* The functions of libc that the library's own functions stand in front of. Each is the next
 * definition of its name in the loader's order, as dlsym finds it with RTLD_NEXT. It is looked up
 * once. */
#ifndef LARDER_REAL_H
#define LARDER_REAL_H

#include "common.h"

/* All interposed functions: I for those that return a number, P for those that return a pointer. A
 * function that libc lacks fails with ENOSYS and -1 (I) or NULL (P). */
#define REAL_LIST(I, P)                                                                       \
    I(open) I(open64) I(__open_2) I(__open64_2) I(openat) I(openat64) I(__openat_2)           \
    I(__openat64_2) I(creat) I(creat64) P(fopen) P(fopen64) P(freopen) P(freopen64)           \
    I(mkstemp) I(mkstemp64) I(mkstemps) I(mkstemps64) I(mkostemp) I(mkostemp64)               \
    I(mkostemps) I(mkostemps64) P(mkdtemp) I(fileno) I(dirfd) I(chdir)                        \
    I(stat) I(stat64) I(lstat) I(lstat64) I(fstatat) I(fstatat64) I(statx) I(__xstat)         \
    I(__xstat64) I(__lxstat) I(__lxstat64) I(__fxstatat) I(__fxstatat64)                      \
    I(access) I(faccessat) I(eaccess) I(euidaccess) I(readlink) I(readlinkat)                 \
    I(__readlink_chk) I(__readlinkat_chk) P(realpath) P(__realpath_chk)                       \
    P(canonicalize_file_name) P(opendir) P(fdopendir) I(scandir) I(scandir64) I(scandirat)    \
    I(scandirat64) I(getdents64) I(statfs) I(statfs64) I(statvfs) I(statvfs64)                \
    P(getcwd) P(get_current_dir_name)                                                         \
    I(rename) I(renameat) I(renameat2) I(unlink) I(unlinkat) I(remove) I(link) I(linkat)      \
    I(symlink) I(symlinkat) I(mkdir) I(mkdirat) I(rmdir) I(chmod) I(fchmod) I(fchmodat)       \
    I(lchmod) I(chown) I(lchown) I(fchown) I(fchownat) I(truncate) I(truncate64)              \
    I(utime) I(utimes) I(lutimes) I(futimes) I(futimens) I(utimensat) I(futimesat)            \
    I(mknod) I(mknodat) I(__xmknod) I(__xmknodat) I(mkfifo) I(mkfifoat)                       \
    I(setxattr) I(lsetxattr) I(fsetxattr) I(removexattr) I(lremovexattr) I(fremovexattr)      \
    I(execve) I(execvp) I(execvpe) I(fexecve) I(execveat) I(posix_spawn) I(posix_spawnp)      \
    I(pidfd_spawn) I(pidfd_spawnp) I(posix_spawn_file_actions_addopen)                        \
    I(posix_spawn_file_actions_addchdir_np) I(posix_spawn_file_actions_addfchdir_np)          \
    I(posix_spawn_file_actions_addchdir) I(posix_spawn_file_actions_addfchdir)                \
    I(system) P(popen) P(getenv) P(secure_getenv) P(ttyname) I(ttyname_r) I(__ttyname_r_chk)  \
    P(getpwnam) I(getpwnam_r) P(getpwuid) I(getpwuid_r) P(getpwent) I(getpwent_r)             \
    P(getgrnam) I(getgrnam_r) P(getgrgid) I(getgrgid_r) P(getgrent) I(getgrent_r)             \
    I(getgrouplist) I(initgroups)                                                             \
    I(timespec_get) I(ftime)                                                                  \
    I(time) I(gettimeofday) I(clock_gettime) P(localtime) P(localtime_r) P(ctime)             \
    P(ctime_r) I(mktime) I(umask) I(getrandom) I(getentropy) I(uname) I(gethostname)               \
    I(arc4random) I(arc4random_buf) I(arc4random_uniform)                                     \
    I(close) I(fclose)                                                                        \
    I(waitpid) I(wait) I(wait3) I(wait4) I(waitid)                                            \
    I(getdomainname) I(socket) I(connect) I(bind) I(getaddrinfo) P(gethostbyname) I(getifaddrs) \
    P(dlopen) P(dlmopen) I(chroot) I(unshare) I(setns) I(syscall) I(glob) I(glob64)           \
    I(ftw) I(ftw64) I(nftw) I(nftw64) P(fts_open) P(fts64_open) I(wordexp)                    \
    I(read) I(__read_chk) I(pread) I(pread64) I(__pread_chk) I(__pread64_chk) I(readv)        \
    I(preadv) I(preadv64) I(write) I(pwrite) I(pwrite64) I(writev) I(pwritev) I(pwritev64)    \
    I(sendfile) I(sendfile64) I(copy_file_range) I(ftruncate) I(ftruncate64) I(fallocate)     \
    I(fallocate64) I(posix_fallocate) I(posix_fallocate64) I(fsync) I(fdatasync) I(msync)     \
    I(pipe) I(pipe2) I(socketpair) I(dup) I(dup2) I(dup3) I(memfd_create) I(eventfd)          \
    I(epoll_create1) I(fcntl) I(fcntl64) I(mmap) I(mmap64) I(mremap) I(brk) I(sbrk)           \
    I(setrlimit) I(setrlimit64) I(prlimit) I(prlimit64) I(fork) I(_Fork) I(vfork) I(clone)    \
    I(pthread_create) I(ferror) I(clearerr) I(rewind) I(fflush)

#define REAL_NUMBER(name) R_##name,
enum real { REAL_LIST(REAL_NUMBER, REAL_NUMBER) R_COUNT };
#undef REAL_NUMBER

extern void *real_table[R_COUNT];
void *real_find(enum real which);
bool real_has(enum real which);
const char *real_name(enum real which);
/* Looks up at once the functions that are called between fork and exec, or in signal handlers. */
void real_find_core(void);
bool real_ready(void);
/* Makes the program see which of these functions its libc lacks (absent.c). The constructor calls
 * it once. */
void hide_absent(void);

static inline void *real_get(enum real which)
{
    void *found = __atomic_load_n(&real_table[which], __ATOMIC_RELAXED);
    return __builtin_expect(found != NULL, 1) ? found : real_find(which);
}

/* The next definition of `name`, with its declared type. */
#define REAL(name) ((__typeof__(&name))real_get(R_##name))

/* Repeats a call that a signal has interrupted before it began. That can happen if the kernel asks
 * the supervisor as well: a signal that comes before the supervisor has received the question makes
 * the call fail with EINTR. */
#define DONE(call)                                                                         \
    ({                                                                                     \
        __typeof__(call) result_;                                                          \
        do                                                                                 \
            result_ = (call);                                                              \
        while (result_ == -1 && log_interrupted());                                        \
        result_;                                                                           \
    })

#endif
