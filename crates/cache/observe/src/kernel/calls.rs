//! The table of observed system calls: their numbers, what they do, and the meaning of their
//! arguments.
//!
//! Unaware of: processes, what events follow from a call.

use libc::*;

use crate::EventKind;

/// Which arguments of a call give a path: the descriptor of its directory, if there is one, and the
/// address of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct At {
    pub(super) dir: Option<u8>,
    pub(super) path: u8,
}

/// What a call does. Each number in a variant is the index of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "only older machines have such calls"))]
pub(super) enum Call {
    /// Path, flags, mode.
    Open(At, u8, u8),
    /// Path, mode.
    Create(At, u8),
    /// Path, address of a `struct open_how`.
    OpenHow(At, u8),
    /// Path, and flags if the call has them.
    Stat(At, Option<u8>),
    Lstat(At),
    /// Path, mode, flags. Without a mode, the call only asks whether the path exists.
    Access(At, Option<u8>, Option<u8>),
    ReadLink(At),
    ChangeDirectory(At),
    /// Descriptor of a directory.
    List(u8),
    /// Descriptor.
    Close(u8),
    /// Path, and flags if the call has them.
    Unlink(At, Option<u8>),
    RemoveDirectory(At),
    /// Old path, new path, and flags if the call has them.
    Rename(At, At, Option<u8>),
    Link(At, At),
    /// Text of the link, and the link's own path.
    Symlink(u8, At),
    /// Path, mode.
    MakeDirectory(At, u8),
    /// Path, mode.
    MakeNode(At, u8),
    /// Kind of change, path, the argument that goes into `extra`, flags.
    Change(EventKind, At, Option<u8>, Option<u8>),
    /// Kind of change, descriptor, the argument that goes into `extra`.
    ChangeOpen(EventKind, u8, Option<u8>),
    /// Path, and flags if the call has them.
    Execute(At, Option<u8>),
    /// A call that libc makes before the program's own code runs. It gives us a chance to make the
    /// clock visible.
    Begin,
    /// A signal gets a handler: address of a `struct sigaction`.
    Handle(u8),
    /// The process ends. We ask about it so that a gap in the numbers of questions shows up even if
    /// the last other question of the run was withdrawn.
    End,
    /// A socket is created. The filter asks only if its family is not `AF_UNIX`.
    Socket,
    /// `connect` or `bind`. Argument 1 is the address, argument 2 its length.
    Address,
    Identity,
    Umask,
    /// `getrandom`. Argument 1 is the size, argument 2 the flags.
    Random,
    /// The clock is read. The number is the `extra` of the [`EventKind::Clock`] event, not an argument.
    Clock(u32),
    /// `clone3`. Argument 0 is the address of a `struct clone_args`.
    CloneArguments,
    /// The process changes its user ids. The number is how many ids the call has, from argument 0
    /// on.
    SetUser(u8),
    /// The process changes its group ids. The number is how many ids the call has, from argument 0
    /// on.
    SetGroup(u8),
    /// A call that cannot be followed, or after which the process cannot be followed. The text is
    /// its name.
    Unobservable(&'static str),
}

/// The condition on an argument under which the filter asks about a call. The kernel decides it by
/// itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    Always,
    /// The descriptor may be one that was opened for writing. It is neither a standard one nor one
    /// of the thousands that some programs close to be sure.
    Ordinary(u8),
    IsNot(u8, u32),
    IsOneOf(u8, &'static [u32]),
    HasBits(u8, u32),
}

/// One system call of the table.
pub(super) struct Row {
    pub(super) number: i32,
    pub(super) call: Call,
    pub(super) when: When,
}

/// The flags by which `clone` creates namespaces. Paths have another meaning in a new namespace.
pub(super) const CLONE_NEW: u32 = 0x7e02_0000;
/// `CLOCK_REALTIME`, `CLOCK_REALTIME_COARSE`, `CLOCK_TAI`. The other clocks do not tell the date.
const DATES: &[u32] = &[0, 5, 11];

/// Signals that normally arrive during a run: USR1, USR2, ALRM, CHLD, URG, VTALRM, PROF, IO.
/// Handlers for other signals run only if the run is stopped or the program is faulty.
const EXPECTED_SIGNALS: &[u32] = &[10, 12, 14, 17, 23, 26, 27, 29];

const fn path(path: u8) -> At {
    At { dir: None, path }
}

const fn below(dir: u8, path: u8) -> At {
    At { dir: Some(dir), path }
}

const fn row(number: c_long, call: Call) -> Row {
    Row { number: number as i32, call, when: When::Always }
}

const fn some(number: c_long, call: Call, when: When) -> Row {
    Row { number: number as i32, call, when }
}

const fn not(number: c_long, name: &'static str) -> Row {
    row(number, Call::Unobservable(name))
}

/// Returns every row for this machine.
pub(super) fn rows() -> impl Iterator<Item = &'static Row> {
    LEGACY.iter().chain(COMMON)
}

const COMMON: &[Row] = &[
    row(SYS_openat, Call::Open(below(0, 1), 2, 3)),
    row(SYS_openat2, Call::OpenHow(below(0, 1), 2)),
    row(SYS_newfstatat, Call::Stat(below(0, 1), Some(3))),
    row(SYS_statx, Call::Stat(below(0, 1), Some(2))),
    row(SYS_statfs, Call::Access(path(0), None, None)),
    row(SYS_faccessat, Call::Access(below(0, 1), Some(2), None)),
    row(SYS_faccessat2, Call::Access(below(0, 1), Some(2), Some(3))),
    row(SYS_readlinkat, Call::ReadLink(below(0, 1))),
    row(SYS_getxattr, Call::Stat(path(0), None)),
    row(SYS_lgetxattr, Call::Lstat(path(0))),
    row(SYS_listxattr, Call::Stat(path(0), None)),
    row(SYS_llistxattr, Call::Lstat(path(0))),
    row(SYS_chdir, Call::ChangeDirectory(path(0))),
    row(SYS_getdents64, Call::List(0)),
    some(SYS_close, Call::Close(0), When::Ordinary(0)),
    row(SYS_unlinkat, Call::Unlink(below(0, 1), Some(2))),
    row(SYS_renameat, Call::Rename(below(0, 1), below(2, 3), None)),
    row(SYS_renameat2, Call::Rename(below(0, 1), below(2, 3), Some(4))),
    row(SYS_linkat, Call::Link(below(0, 1), below(2, 3))),
    row(SYS_symlinkat, Call::Symlink(0, below(1, 2))),
    row(SYS_mkdirat, Call::MakeDirectory(below(0, 1), 2)),
    row(SYS_mknodat, Call::MakeNode(below(0, 1), 2)),
    row(SYS_fchmod, Call::ChangeOpen(EventKind::ChangeMode, 0, Some(1))),
    row(SYS_fchmodat, Call::Change(EventKind::ChangeMode, below(0, 1), Some(2), None)),
    row(FCHMODAT2, Call::Change(EventKind::ChangeMode, below(0, 1), Some(2), Some(3))),
    row(SYS_fchown, Call::ChangeOpen(EventKind::ChangeOwner, 0, None)),
    row(SYS_fchownat, Call::Change(EventKind::ChangeOwner, below(0, 1), None, Some(4))),
    row(SYS_utimensat, Call::Change(EventKind::SetTimes, below(0, 1), None, Some(3))),
    row(SYS_truncate, Call::Change(EventKind::Truncate, path(0), None, None)),
    row(SYS_setxattr, Call::Change(EventKind::SetAttribute, path(0), None, None)),
    row(SYS_lsetxattr, Call::Change(EventKind::SetAttribute, path(0), None, None)),
    row(SYS_fsetxattr, Call::ChangeOpen(EventKind::SetAttribute, 0, None)),
    row(SYS_removexattr, Call::Change(EventKind::SetAttribute, path(0), None, None)),
    row(SYS_lremovexattr, Call::Change(EventKind::SetAttribute, path(0), None, None)),
    row(SYS_fremovexattr, Call::ChangeOpen(EventKind::SetAttribute, 0, None)),
    row(SYS_execve, Call::Execute(path(0), None)),
    row(SYS_set_tid_address, Call::Begin),
    some(SYS_rt_sigaction, Call::Handle(1), When::IsOneOf(0, EXPECTED_SIGNALS)),
    row(SYS_exit_group, Call::End),
    row(SYS_execveat, Call::Execute(below(0, 1), Some(4))),
    some(SYS_socket, Call::Socket, When::IsNot(0, AF_UNIX as u32)),
    row(SYS_connect, Call::Address),
    row(SYS_bind, Call::Address),
    row(SYS_uname, Call::Identity),
    row(SYS_umask, Call::Umask),
    row(SYS_gettimeofday, Call::Clock(2)),
    some(SYS_clock_gettime, Call::Clock(3), When::IsOneOf(0, DATES)),
    row(SYS_getrandom, Call::Random),
    row(SYS_clone3, Call::CloneArguments),
    some(SYS_clone, Call::Unobservable("clone"), When::HasBits(0, CLONE_NEW)),
    not(SYS_mount, "mount"),
    not(SYS_umount2, "umount"),
    not(SYS_pivot_root, "pivot_root"),
    not(SYS_chroot, "chroot"),
    not(SYS_unshare, "unshare"),
    not(SYS_setns, "setns"),
    not(SYS_move_mount, "move_mount"),
    not(SYS_open_tree, "open_tree"),
    not(SYS_fsopen, "fsopen"),
    not(SYS_fspick, "fspick"),
    not(SYS_mount_setattr, "mount_setattr"),
    not(SYS_io_uring_setup, "io_uring_setup"),
    not(SYS_name_to_handle_at, "name_to_handle_at"),
    not(SYS_open_by_handle_at, "open_by_handle_at"),
    not(SYS_inotify_add_watch, "inotify_add_watch"),
    not(SYS_fanotify_mark, "fanotify_mark"),
    not(SYS_acct, "acct"),
    not(SYS_swapon, "swapon"),
    not(SYS_swapoff, "swapoff"),
    not(SYS_quotactl, "quotactl"),
    not(SYS_init_module, "init_module"),
    not(SYS_finit_module, "finit_module"),
    row(SYS_setuid, Call::SetUser(1)),
    row(SYS_setgid, Call::SetGroup(1)),
    row(SYS_setreuid, Call::SetUser(2)),
    row(SYS_setregid, Call::SetGroup(2)),
    row(SYS_setresuid, Call::SetUser(3)),
    row(SYS_setresgid, Call::SetGroup(3)),
    row(SYS_setfsuid, Call::SetUser(1)),
    row(SYS_setfsgid, Call::SetGroup(1)),
    not(SYS_setgroups, "setgroups"),
    not(SYS_capset, "capset"),
    // Linux 6.8 and later, with the same numbers on all machines. They query mounts, or read and
    // write the attributes of files.
    not(457, "statmount"),
    not(458, "listmount"),
    not(463, "setxattrat"),
    not(464, "getxattrat"),
    not(465, "listxattrat"),
    not(466, "removexattrat"),
    not(467, "open_tree_attr"),
    not(468, "file_getattr"),
    not(469, "file_setattr"),
];

/// Linux 6.6, with the same number on all machines.
const FCHMODAT2: c_long = 452;

/// `arch_prctl` with this argument sets the address of the first thread's thread-local storage.
#[cfg(target_arch = "x86_64")]
const ARCH_SET_FS: u32 = 0x1002;

/// Calls that newer machines do not have.
#[cfg(target_arch = "x86_64")]
const LEGACY: &[Row] = &[
    row(SYS_open, Call::Open(path(0), 1, 2)),
    row(SYS_creat, Call::Create(path(0), 1)),
    row(SYS_stat, Call::Stat(path(0), None)),
    row(SYS_lstat, Call::Lstat(path(0))),
    row(SYS_access, Call::Access(path(0), Some(1), None)),
    row(SYS_readlink, Call::ReadLink(path(0))),
    row(SYS_getdents, Call::List(0)),
    row(SYS_unlink, Call::Unlink(path(0), None)),
    row(SYS_rmdir, Call::RemoveDirectory(path(0))),
    row(SYS_rename, Call::Rename(path(0), path(1), None)),
    row(SYS_link, Call::Link(path(0), path(1))),
    row(SYS_symlink, Call::Symlink(0, path(1))),
    row(SYS_mkdir, Call::MakeDirectory(path(0), 1)),
    row(SYS_mknod, Call::MakeNode(path(0), 1)),
    row(SYS_chmod, Call::Change(EventKind::ChangeMode, path(0), Some(1), None)),
    row(SYS_chown, Call::Change(EventKind::ChangeOwner, path(0), None, None)),
    row(SYS_lchown, Call::Change(EventKind::ChangeOwner, path(0), None, None)),
    row(SYS_utime, Call::Change(EventKind::SetTimes, path(0), None, None)),
    row(SYS_utimes, Call::Change(EventKind::SetTimes, path(0), None, None)),
    row(SYS_futimesat, Call::Change(EventKind::SetTimes, below(0, 1), None, None)),
    row(SYS_time, Call::Clock(1)),
    some(SYS_arch_prctl, Call::Begin, When::IsOneOf(0, &[ARCH_SET_FS])),
    not(SYS_uselib, "uselib"),
];
#[cfg(not(target_arch = "x86_64"))]
const LEGACY: &[Row] = &[];
