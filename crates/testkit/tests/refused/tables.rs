//! Which system calls are refused, and which outcomes larder has then.

/// A command of the tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Command {
    /// `gcc -c`.
    Gcc,
    /// `clang -c`.
    Clang,
    /// `larder run -- sh` with a script.
    Script,
}

/// The errors with which a call is refused: number and name.
pub(crate) const ERRORS: [(u32, &str); 2] = [(38, "ENOSYS"), (1, "EPERM")];
/// The first number that a system call has on all machines: Linux 5.1 and later.
pub(crate) const NEWEST_FIRST: u32 = 424;
/// The last call of Linux 6.17.
pub(crate) const NEWEST_LAST: u32 = 470;
/// A number that no system call has.
pub(crate) const NO_CALL: u32 = 0xffff;

/// Without these calls no program can start, end or read anything, or larder cannot put several
/// outputs in place at once. Then nothing can be compared. No sandbox refuses them.
pub(crate) const NEEDED_BY_ALL: &[&str] =
    &["arch_prctl", "brk", "close", "execve", "exit", "exit_group", "rename", "wait4"];

/// The calls that are refused one at a time. These are all calls of a hit and a miss of `larder gcc
/// -c`, including gcc's own. Others make larder faster or safer if they work.
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

/// The calls that are refused even if not everything is tested: calls that larder uses and that
/// kernels after 3.10 introduced, and calls that container profiles refuse.
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

/// The first run is recorded and the second one hits. A record from before the refusals also hits.
pub(crate) const RECORDED: &str = "miss hit / hit";

/// Any outcome is allowed if the result is right.
pub(crate) const ANY: &str = "any";
/// Calls that every kernel has and no sandbox refuses. Most programs fail without them, so the
/// outcome says little.
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

/// A call, the error (empty for both), the commands (empty for all), and the outcomes.
type Exception = (&'static str, &'static str, &'static [Command], &'static str);

/// Outcomes other than `RECORDED`. With `flock`, the error decides whether larder believes that the
/// store cannot be written.
const EXCEPTIONS: &[Exception] = &[
    ("prctl", "", &[], "fallback:observer-failed / hit"),
    ("flock", "", &[], "fallback:store-unwritable / hit"),
    // LLVM aborts, or kills a process that it waits for.
    ("futex", "", &[Command::Clang], ANY),
    ("getrandom", "EPERM", &[Command::Clang], ANY),
    // Without `ptrace` there are no samples, so the kernel observer watches a second run as a
    // whole.
    ("ptrace", "", &[Command::Script], "miss:unjudged miss hit / hit"),
    // `ls` prints that it cannot stat the directory.
    ("statx", "EPERM", &[Command::Script], "miss:refused / hit"),
];

/// Returns the outcomes of a command while a call is refused with an error.
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
