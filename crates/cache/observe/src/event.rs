//! One event of a trace: an operation on a path by one process, and the numbers that its fields
//! hold.
//!
//! Unaware of: what follows from an event.

use larder_model::{FileMode, Identity, ModeRule, Placement};
use larder_sys::{FileType, Stat};

/// One operation of one process. Its paths are `Vec<u8>` or `&[u8]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event<P = Vec<u8>> {
    /// The process.
    pub pid: u32,
    /// 0, or the errno with which the operation failed.
    pub error: i32,
    /// The operation.
    pub kind: EventKind,
    /// The path, absolute but otherwise as the process used it.
    pub path: P,
    /// The second path, or a text by kind: for example, the target of a link or the value of a
    /// variable.
    pub path2: P,
    /// What `stat` reported of the file, if that is known.
    pub identity: Option<Identity>,
    /// File type and permission bits as in `st_mode`, or 0 if they are unknown.
    pub mode: u32,
    /// A number by kind: for example, the requested mode, the pid of a child, or a reason.
    pub extra: u32,
}

impl<P> Event<P> {
    /// Returns an event of which nothing is known but the process, the operation and the path.
    pub fn new(pid: u32, kind: EventKind, path: P) -> Event<P>
    where
        P: Default,
    {
        Event { pid, error: 0, kind, path, path2: P::default(), identity: None, mode: 0, extra: 0 }
    }

    /// Adds what `stat` found at the path.
    pub fn with(self, stat: &Stat) -> Event<P> {
        Event { identity: Some(identity_of(stat)), mode: mode_of(stat), ..self }
    }

    /// Returns the type of the file, which is `FileType::Other(0)` if that is unknown.
    pub(crate) fn file_type(&self) -> FileType {
        file_type(self.mode)
    }

    fn map<'e, Q>(&'e self, path: impl Fn(&'e P) -> Q) -> Event<Q> {
        let Event { pid, error, kind, identity, mode, extra, .. } = *self;
        Event { pid, error, kind, path: path(&self.path), path2: path(&self.path2), identity, mode, extra }
    }
}

impl Event<&[u8]> {
    /// Returns a copy with owned paths.
    pub fn owned(&self) -> Event {
        self.map(|path| path.to_vec())
    }
}

impl Event<Vec<u8>> {
    /// Returns the event with its paths as slices.
    pub(crate) fn borrowed(&self) -> Event<&[u8]> {
        self.map(Vec::as_slice)
    }
}

/// The `extra` of an [`EventKind::Stat`] that a nested wrapper reported: its result relied on the file's
/// mode. A nested wrapper runs inside the observed command and answered from its store.
pub const REPORTED_MODE: u32 = 1 << 8;
/// Like [`REPORTED_MODE`], but the result relied on the file's mtime.
pub const REPORTED_MODIFIED: u32 = 2 << 8;
/// Like [`REPORTED_MODE`], but the result relied on all fields of `stat`.
pub const REPORTED_STATUS: u32 = 3 << 8;
/// Like [`REPORTED_MODE`], but the file's mtime was compared with those of other files.
pub const REPORTED_COMPARED: u32 = 4 << 8;
/// Like [`REPORTED_MODE`], but the result relied on the owner. The value between the two is that of
/// `BY_LATE`.
pub const REPORTED_OWNER: u32 = 6 << 8;
/// Like [`REPORTED_MODE`], but the result relied on the owner, the group and perhaps on the number of
/// hard links, with links followed.
pub const REPORTED_BELONGS: u32 = 7 << 8;
/// The `extra` of an [`EventKind::Stat`], `Lstat` or `List` by code that the program loaded later with
/// `dlopen`. Such code may use all that the call tells.
pub(crate) const BY_LATE: u32 = 5 << 8;
/// A bit in the `mode` of a change of times, owner or mode that was asked not to follow a link at the
/// end of the path.
pub(crate) const OF_LINK: u32 = 1 << 31;
/// The `extra` of an [`EventKind::Umask`] that a nested wrapper reported: its result depends on the
/// umask, but the nested command did not change the umask.
pub const REPORTED_UMASK: u32 = 1 << 16;

/// The `extra` of an [`EventKind::Random`] that libc may have caused for the name of a temporary file.
/// The process's next operation shows whether it did: it then creates or checks a name.
pub(crate) const RANDOM_FOR_NAME: u32 = 1;
/// The `extra` of an [`EventKind::Random`] that libc may have caused either to guard its memory, once in
/// the life of a program, or for the name of a temporary file.
pub(crate) const RANDOM_FOR_MEMORY: u32 = 2;
/// The `extra` of an [`EventKind::Random`] by the kernel's own code in the process (the vDSO), which
/// draws a key once and later makes random numbers from it without a system call (glibc 2.41, Linux
/// 6.11). libc causes it for the name of a temporary file, and a program by libc's functions. The
/// preloaded library sees the program's calls of these functions itself.
pub(crate) const RANDOM_BY_VDSO: u32 = 3;

/// A bit in the `mode` of an [`EventKind::Start`] that a nested wrapper reported: the trace also contains
/// what the preloaded library does not see of this program.
pub(crate) const REPORTED_WHOLE: u32 = 1 << 31;

/// A bit in the `mode` of an [`EventKind::Start`]: the variable `PWD` is an absolute path.
pub(crate) const HAS_PWD: u32 = 1 << 29;
/// A bit in the `mode` of an [`EventKind::Start`]: the variable `OLDPWD` is set.
pub(crate) const HAS_OLDPWD: u32 = 1 << 30;
/// The bits in the `mode` of an [`EventKind::Start`] that are not those of the file.
pub(crate) const START_BITS: u32 = REPORTED_WHOLE | HAS_PWD | HAS_OLDPWD;

/// The `extra` of an [`EventKind::List`]: the order of the names did not matter to the program that
/// listed them.
pub const IN_ANY_ORDER: u32 = 1;
/// The `extra` of an [`EventKind::List`]: the order of the names did not matter, but the kind of each
/// name did.
pub const IN_ANY_ORDER_OF_KINDS: u32 = 2;

/// The `extra` of an [`EventKind::Clock`] event for `clock_gettime`.
pub(crate) const CLOCK_GETTIME: u32 = 3;
/// The `extra` of an [`EventKind::Clock`] event for local time.
pub(crate) const LOCAL_TIME: u32 = 4;

/// The `extra` of an [`EventKind::Late`] event of reading any clock.
pub(crate) const LATE_CLOCK: u32 = 1;
/// The `extra` of an [`EventKind::Late`] event of drawing random numbers.
pub(crate) const LATE_RANDOM: u32 = 2;
/// The `extra` of an [`EventKind::Late`] event of using a path below `/dev`, `/proc` or `/sys`, which is
/// the `path`.
pub(crate) const LATE_DEVICE: u32 = 4;
/// The `extra` of an [`EventKind::Late`] event of asking for the path of the working directory, or for the
/// path that another one leads to.
pub(crate) const LATE_DIRECTORY: u32 = 5;

/// The path of an [`EventKind::Network`] event for the creation of a socket and nothing more.
pub const SOCKET: &[u8] = b"socket";
/// The path of an [`EventKind::Network`] event for a list of the network interfaces and nothing more.
pub(crate) const INTERFACES: &[u8] = b"getifaddrs";
/// The socket families of the internet, `AF_INET` and `AF_INET6`, in the `extra` of a
/// [`EventKind::Network`] with the path [`SOCKET`].
pub const INTERNET: [u32; 2] = [2, 10];

/// Encodes the `extra` of an [`EventKind::Open`] that a nested wrapper reports: how it placed the file
/// (bits 16 to 19), by which rule the file got its mode (from bit 20), and the mode (bits 0 to 11).
pub fn reported_output(placement: Placement, mode: FileMode) -> u32 {
    let placement = PLACEMENTS.iter().position(|one| *one == placement).unwrap_or_default() as u32 + 1;
    let rule = RULES.iter().position(|one| *one == mode.rule).unwrap_or_default() as u32;
    placement << 16 | rule << 20 | mode.bits & 0o7777
}

/// Decodes what [`reported_output`] encoded. Returns `None` if `extra` is a mode alone.
pub(crate) fn output_reported(extra: u32) -> Option<(Placement, FileMode)> {
    let placement = PLACEMENTS.get((extra >> 16 & 15).checked_sub(1)? as usize)?;
    let rule = RULES.get((extra >> 20) as usize)?;
    Some((*placement, FileMode { bits: extra & 0o7777, rule: *rule }))
}

const PLACEMENTS: [Placement; 4] = [Placement::Truncate, Placement::Unlink, Placement::Replace, Placement::Rename];
const RULES: [ModeRule; 4] = [ModeRule::Masked, ModeRule::Set, ModeRule::Executable, ModeRule::Exact];

/// Returns the file type and permission bits as in `st_mode`.
pub fn mode_of(stat: &Stat) -> u32 {
    u32::from(stat.kind.code()) << 12 | stat.mode
}

/// Returns the file type in a mode as in `st_mode`. That of an unknown mode is `FileType::Other(0)`.
pub(crate) fn file_type(mode: u32) -> FileType {
    FileType::of_code(u8::try_from(mode >> 12).unwrap_or(u8::MAX))
}

/// Returns the identity of the file that a stat found.
pub fn identity_of(stat: &Stat) -> Identity {
    Identity {
        device: stat.device,
        inode: stat.inode,
        size_bytes: stat.size_bytes,
        modified_ns: stat.modified_ns,
        changed_ns: stat.changed_ns,
    }
}

/// The byte that follows each argument in the `path2` of an [`EventKind::Start`] (`LARDER_ARGUMENT_END`
/// in `preload/log.h`).
pub(crate) const ARGUMENT_END: u8 = 0o37;
/// At most this many bytes of the arguments are kept (`LARDER_ARGUMENTS_MAX` in `preload/log.h`).
pub(crate) const ARGUMENTS_BYTES_MAX: usize = 4096;

/// Returns the arguments of a program, without the first, from the `path2` of an [`EventKind::Start`].
/// Returns `None` if they were too long to be kept whole.
pub fn arguments(kept: &[u8]) -> Option<impl Iterator<Item = &[u8]>> {
    let whole = kept.len() < ARGUMENTS_BYTES_MAX && kept.last().is_none_or(|last| *last == ARGUMENT_END);
    let words = kept.strip_suffix(&[ARGUMENT_END]).unwrap_or(kept).split(|byte| *byte == ARGUMENT_END);
    whole.then(|| words.take(if kept.is_empty() { 0 } else { usize::MAX }))
}

/// How a file was opened, as bits. The values are those of `enum larder_open` in `preload/log.h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenFlags(pub u16);

impl OpenFlags {
    /// Opened for reading.
    pub const READ: u16 = 1;
    /// Opened for writing.
    pub const WRITE: u16 = 2;
    /// Created if it is missing (`O_CREAT`).
    pub const CREATE: u16 = 4;
    /// Fails if the file exists (`O_EXCL`).
    pub const EXCLUSIVE: u16 = 8;
    /// Truncated (`O_TRUNC`).
    pub const TRUNCATE: u16 = 16;
    /// Opened for appending (`O_APPEND`).
    pub const APPEND: u16 = 32;
    /// Opened by a name that libc made up, for example by `mkstemp`.
    pub const TEMPORARY: u16 = 64;
    /// Fails unless it is a directory (`O_DIRECTORY`).
    pub const DIRECTORY: u16 = 128;
    /// Opened neither for reading nor for writing (`O_PATH`).
    pub const PATH_ONLY: u16 = 256;
    /// The name did not exist before.
    pub const NEW: u16 = 1024;

    /// Returns true if any of the given bits is set.
    pub fn has(self, bit: u16) -> bool {
        self.0 & bit != 0
    }
}

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the system call, or the function, of its name")]
pub enum EventKind {
    /// A program began. `path` is its file, `path2` its [`arguments`], and `extra` its parent, or 0
    /// if that is unknown.
    Start,
    /// A shared object was loaded.
    Object,
    /// A program is about to be executed.
    Exec,
    /// The preceding `Exec` or `Drop` failed, so no program was executed.
    ExecFailed,
    /// `posix_spawn` started a program as child `extra`.
    Spawned,
    /// A program was started by `system` or `popen`. Its `Start` event will tell its pid.
    Anonymous,
    /// Something happens that cannot be observed. `extra` is the reason.
    Drop,
    Open(OpenFlags),
    Stat,
    Lstat,
    Access,
    ReadLink,
    RealPath,
    List,
    Unlink,
    /// The flags include `OpenFlags::NEW` if the new name did not exist before.
    Rename(OpenFlags),
    Link,
    Symlink,
    MakeDirectory,
    RemoveDirectory,
    ChangeMode,
    Truncate,
    SetTimes,
    MakeNode,
    ChangeOwner,
    SetAttribute,
    GetEnvironment,
    Umask,
    /// The clock was read. `extra` is 1 for `time`, 2 for `gettimeofday`, 3 for `clock_gettime`, 4
    /// for local time.
    Clock,
    /// Random numbers were drawn. `extra` tells whether libc may have done so for itself.
    Random,
    /// A process appears that process `extra` forked, or a process resumes that shared its memory
    /// with a `vfork` child. `mode` is the process that last wrote an event from this memory, or 0.
    Forked,
    Network,
    UnixSocket,
    Identity,
    /// A child died by signal `extra`. If `extra` is 0, it exited with the code of gcc's programs
    /// for an internal error.
    ChildDied,
    /// A file that was open for writing was closed. `identity` tells its state at that moment.
    Closed,
    /// A call that is otherwise not observed failed because a resource is short or a device fails.
    /// `path` is the path of the descriptor, or the name of the function.
    Shortage,
    /// A shared object that the program loaded later, by `dlopen`, read the clock, drew random
    /// numbers, asked for a variable or for the working directory, or used a path of a device, as
    /// `extra` says. The event of that kind comes as well. `path` is the function, the variable or
    /// the path, `path2` the object's file.
    Late,
}
