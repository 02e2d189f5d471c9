//! Which calls are refused, and what larder makes of that.

/// What is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Command {
    /// `gcc -c`.
    Gcc,
    /// `clang -c`.
    Clang,
    /// `larder run -- sh`, of a script.
    Script,
}

/// The numbers of the errors that a call is refused by.
pub(crate) const ERRORS: [(u32, &str); 2] = [(38, "ENOSYS"), (1, "EPERM")];
/// System calls have these numbers on all machines: from Linux 5.1 on.
pub(crate) const NEWEST_FIRST: u32 = 424;
/// Linux 6.17.
pub(crate) const NEWEST_LAST: u32 = 470;
/// No system call has this number.
pub(crate) const NO_CALL: u32 = 0xffff;

/// Without these no program begins, ends or reads anything, so that nothing can be compared; no sandbox refuses them.
pub(crate) const NEEDED_BY_ALL: &[&str] =
    &["arch_prctl", "brk", "close", "execve", "exit", "exit_group", "ioctl", "wait4"];

/// Calls that are refused, each by itself: all that a hit and a miss of `larder gcc -c` make, with what gcc makes, and
/// others by which larder does something faster or safer if it can.
pub(crate) const CALLS: &[&str] = &[
    "access",
    "bpf",
    "chdir",
    "chmod",
    "clock_gettime",
    "clock_nanosleep",
    "clone",
    "copy_file_range",
    "dup",
    "dup2",
    "dup3",
    "epoll_create1",
    "eventfd2",
    "execveat",
    "faccessat",
    "fadvise64",
    "fallocate",
    "fanotify_init",
    "fchdir",
    "fchmod",
    "fchmodat",
    "fcntl",
    "fgetxattr",
    "flock",
    "fork",
    "fstat",
    "fstatfs",
    "fsync",
    "ftruncate",
    "futex",
    "getcwd",
    "getdents64",
    "getegid",
    "geteuid",
    "getgid",
    "getgroups",
    "getpid",
    "getpgrp",
    "getppid",
    "getpriority",
    "getrandom",
    "getrusage",
    "gettid",
    "gettimeofday",
    "getuid",
    "inotify_init1",
    "ioprio_get",
    "ioprio_set",
    "kcmp",
    "keyctl",
    "kill",
    "link",
    "linkat",
    "llistxattr",
    "lseek",
    "lstat",
    "madvise",
    "membarrier",
    "memfd_create",
    "mkdir",
    "mkdirat",
    "mlock",
    "mmap",
    "mprotect",
    "mremap",
    "munmap",
    "name_to_handle_at",
    "nanosleep",
    "newfstatat",
    "open",
    "open_by_handle_at",
    "openat",
    "perf_event_open",
    "personality",
    "pipe",
    "pipe2",
    "poll",
    "ppoll",
    "prctl",
    "pread64",
    "preadv2",
    "prlimit64",
    "process_vm_readv",
    "process_vm_writev",
    "ptrace",
    "pwrite64",
    "pwritev2",
    "read",
    "readlink",
    "readlinkat",
    "readv",
    "recvmsg",
    "rename",
    "renameat",
    "renameat2",
    "rseq",
    "rt_sigaction",
    "rt_sigprocmask",
    "sched_getaffinity",
    "sched_getscheduler",
    "sched_setaffinity",
    "sched_setattr",
    "sched_setscheduler",
    "sched_yield",
    "seccomp",
    "select",
    "sendfile",
    "sendmsg",
    "sendto",
    "set_robust_list",
    "set_tid_address",
    "setns",
    "setpgid",
    "setpriority",
    "setsid",
    "sigaltstack",
    "signalfd4",
    "socket",
    "socketpair",
    "splice",
    "stat",
    "statfs",
    "statx",
    "symlink",
    "symlinkat",
    "sysinfo",
    "tee",
    "tgkill",
    "times",
    "umask",
    "umount2",
    "uname",
    "unlink",
    "unlinkat",
    "unshare",
    "userfaultfd",
    "utimensat",
    "vfork",
    "waitid",
    "write",
    "writev",
    // From 424 on, by name, so that messages say more than a number.
    "pidfd_send_signal",
    "io_uring_setup",
    "open_tree",
    "move_mount",
    "fsopen",
    "pidfd_open",
    "clone3",
    "close_range",
    "openat2",
    "pidfd_getfd",
    "faccessat2",
    "process_madvise",
    "mount_setattr",
];

/// Of these each is refused also where not everything is tried: those that kernels from 3.10 on came to have and that
/// larder uses, and those that profiles of containers refuse.
pub(crate) const ALWAYS: &[&str] = &[
    "clone3",
    "close_range",
    "copy_file_range",
    "faccessat2",
    "getrandom",
    "memfd_create",
    "openat2",
    "pidfd_open",
    "process_vm_readv",
    "ptrace",
    "renameat2",
    "seccomp",
    "statx",
];

/// Recorded, and a hit from then on; a hit also by a record from before.
pub(crate) const RECORDED: &str = "miss hit / hit";

/// (call, errors or empty for both, commands or empty for all, outcomes).
type Exception = (&'static str, &'static str, &'static [Command], &'static str);

/// What is other than `RECORDED`.
const EXCEPTIONS: &[Exception] = &[];

/// The outcomes of a command while a call is refused by an error.
pub(crate) fn expected(command: Command, call: &str, error: &str) -> &'static str {
    let is_it = |row: &&Exception| {
        row.0 == call && (row.1.is_empty() || row.1 == error) && (row.2.is_empty() || row.2.contains(&command))
    };
    EXCEPTIONS.iter().find(is_it).map_or(RECORDED, |row| row.3)
}
