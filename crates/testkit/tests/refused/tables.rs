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

/// Without these no program begins, ends or reads anything, or larder cannot put several outputs in place at once, so that
/// nothing can be compared; no sandbox refuses them.
pub(crate) const NEEDED_BY_ALL: &[&str] =
    &["arch_prctl", "brk", "close", "execve", "exit", "exit_group", "rename", "wait4"];

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
    "clone3",
    "close_range",
    "copy_file_range",
    "dup",
    "dup2",
    "dup3",
    "epoll_create1",
    "eventfd2",
    "execveat",
    "faccessat",
    "faccessat2",
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
    "fsopen",
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
    "getpgrp",
    "getpid",
    "getppid",
    "getpriority",
    "getrandom",
    "getrusage",
    "gettid",
    "gettimeofday",
    "getuid",
    "inotify_init1",
    "io_uring_setup",
    "ioctl",
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
    "mount_setattr",
    "move_mount",
    "mprotect",
    "mremap",
    "munmap",
    "name_to_handle_at",
    "nanosleep",
    "newfstatat",
    "open",
    "open_by_handle_at",
    "open_tree",
    "openat",
    "openat2",
    "perf_event_open",
    "personality",
    "pidfd_getfd",
    "pidfd_open",
    "pidfd_send_signal",
    "pipe",
    "pipe2",
    "poll",
    "ppoll",
    "prctl",
    "pread64",
    "preadv2",
    "prlimit64",
    "process_madvise",
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
    "renameat",
    "renameat2",
    "restart_syscall",
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

/// Any outcome will do, as long as the result is right.
pub(crate) const ANY: &str = "any";
/// Calls that every kernel has and no sandbox refuses. Most programs fail without them, so that it says little what is
/// recorded then.
const OLD: &[&str] = &[
    "access",
    "clock_gettime",
    "clock_nanosleep",
    "clone",
    "dup2",
    "faccessat",
    "fcntl",
    "fork",
    "fstat",
    "ftruncate",
    "getcwd",
    "getdents64",
    "getegid",
    "geteuid",
    "getgid",
    "getpid",
    "getppid",
    "getrusage",
    "getuid",
    "ioctl",
    "kill",
    "lseek",
    "mkdir",
    "mkdirat",
    "mmap",
    "mprotect",
    "munmap",
    "nanosleep",
    "newfstatat",
    "open",
    "openat",
    "pipe",
    "pipe2",
    "poll",
    "ppoll",
    "pread64",
    "prlimit64",
    "pwrite64",
    "read",
    "readlink",
    "readlinkat",
    "recvmsg",
    "rt_sigaction",
    "rt_sigprocmask",
    "sendmsg",
    "set_tid_address",
    "setsid",
    "socketpair",
    "stat",
    "tgkill",
    "umask",
    "unlink",
    "unlinkat",
    "utimensat",
    "vfork",
    "waitid",
    "write",
    "writev",
];

/// Call, errors (none for both), commands (none for all), outcomes.
type Exception = (&'static str, &'static str, &'static [Command], &'static str);

/// What is other than `RECORDED`. Of `flock`, the error decides whether larder takes the store for one that cannot be
/// written at all.
const EXCEPTIONS: &[Exception] = &[
    ("prctl", "", &[], "fallback:observer-failed / hit"),
    ("flock", "", &[], "fallback:store-unwritable / hit"),
    // LLVM aborts, or kills what it waits for.
    ("futex", "", &[Command::Clang], ANY),
    ("getrandom", "EPERM", &[Command::Clang], ANY),
    // There are no samples then, so that a second run is watched by the kernel as a whole.
    ("ptrace", "", &[Command::Script], "miss:unjudged miss hit / hit"),
    // `ls` says that it cannot look at the directory.
    ("statx", "EPERM", &[Command::Script], "miss:refused / hit"),
];

/// The outcomes of a command while a call is refused by an error.
pub(crate) fn expected(command: Command, call: &str, error: &str) -> &'static str {
    let is_it = |row: &&Exception| {
        row.0 == call && (row.1.is_empty() || row.1 == error) && (row.2.is_empty() || row.2.contains(&command))
    };
    match EXCEPTIONS.iter().find(is_it) {
        Some(row) => row.3,
        None if OLD.contains(&call) => ANY,
        None => RECORDED,
    }
}
