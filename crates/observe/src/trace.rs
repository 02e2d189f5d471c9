//! A trace: what the processes of one command did with paths, in order.

use larder_model::{FileMode, Identity, ModeRule, Placement};
use larder_sys::Look;

/// All events of a command. A compile of some size has thousands, so those that came as a log stay in it, and are
/// read where they stand.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// What the preloaded library wrote (`preload/log.h`), in order, each event whole.
    pub log: Vec<u8>,
    /// What an observer made itself, in order.
    pub events: Vec<Event<Vec<u8>>>,
    /// Some could not be kept.
    pub incomplete: bool,
}

impl Trace {
    /// Every event, in the order in which they happened.
    pub fn iter(&self) -> impl Iterator<Item = Event<&[u8]>> {
        crate::preload::decode(&self.log).chain(self.events.iter().map(Event::borrowed))
    }
}

/// One thing that a process did; its paths are `Vec<u8>` or `&[u8]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event<P = Vec<u8>> {
    /// Which process.
    pub pid: u32,
    /// Zero, or the number of the error in which it failed.
    pub error: i32,
    /// What.
    pub kind: Kind,
    /// On what: absolute, as the process used it.
    pub path: P,
    /// The second path or the text that came of it.
    pub path2: P,
    /// What `stat` said, where it is known.
    pub identity: Option<Identity>,
    /// File type and permission bits, where known; else zero.
    pub mode: u32,
    /// By kind: the mode asked for, a child's id, a reason.
    pub extra: u32,
}

impl Event<&[u8]> {
    /// The same with paths of its own.
    pub fn owned(&self) -> Event {
        Event {
            pid: self.pid,
            error: self.error,
            kind: self.kind,
            path: self.path.to_vec(),
            path2: self.path2.to_vec(),
            identity: self.identity,
            mode: self.mode,
            extra: self.extra,
        }
    }
}

impl Event<Vec<u8>> {
    fn borrowed(&self) -> Event<&[u8]> {
        Event {
            pid: self.pid,
            error: self.error,
            kind: self.kind,
            path: &self.path,
            path2: &self.path2,
            identity: self.identity,
            mode: self.mode,
            extra: self.extra,
        }
    }
}

/// In a `Kind::Stat` of a wrapper that answered inside a run: how much of what `stat` says the result relied on.
pub const REPORTED_MODE: u32 = 1 << 8;
/// The same, with when it was modified.
pub const REPORTED_MODIFIED: u32 = 2 << 8;
/// The same, with all of it.
pub const REPORTED_STATUS: u32 = 3 << 8;
/// The same: when it was modified was compared.
pub const REPORTED_COMPARED: u32 = 4 << 8;
/// The `extra` of a `Kind::Umask` of such a wrapper: what it answered from its store hangs on the umask, which it did not
/// set.
pub const REPORTED_UMASK: u32 = 1 << 16;

/// The `extra` of a `Kind::Random` by which libc may have asked for itself: to make up the name of a temporary file, if it
/// makes one next.
pub(crate) const RANDOM_FOR_NAME: u32 = 1;
/// The same, to guard its memory, once in the life of a program, or for a name.
pub(crate) const RANDOM_FOR_MEMORY: u32 = 2;
/// The same, by code of the kernel's own in the process (vDSO), which draws a key once and makes random numbers of it
/// afterwards (glibc 2.41, Linux 6.11). libc draws one for the name of a temporary file, as a program does by libc's
/// functions. The preloaded library sees the latter itself.
pub(crate) const RANDOM_BY_VDSO: u32 = 3;

/// In the `mode` of a `Kind::Start` that such a wrapper hands on: what the library does not see of the program is
/// reported as well.
pub const REPORTED_WHOLE: u32 = 1 << 31;

/// The path of a `Kind::Network` that says that a socket was asked for, and no more.
pub const SOCKET: &[u8] = b"socket";
/// The path of one that says that the kernel was asked which interfaces there are, and no more.
pub(crate) const INTERFACES: &[u8] = b"getifaddrs";
/// Its number for the internet's families: `AF_INET`, `AF_INET6`.
pub const INTERNET: [u32; 2] = [2, 10];

/// In a `Kind::Open` of such a wrapper, above the mode: how it put the file in place, and what rule gave it its mode.
pub fn reported_output(placement: Placement, mode: FileMode) -> u32 {
    let placement = PLACEMENTS.iter().position(|one| *one == placement).unwrap_or_default() as u32 + 1;
    let rule = RULES.iter().position(|one| *one == mode.rule).unwrap_or_default() as u32;
    placement << 16 | rule << 20 | mode.bits & 0o7777
}

/// The other way, where it was reported.
pub(crate) fn output_reported(extra: u32) -> Option<(Placement, FileMode)> {
    let placement = PLACEMENTS.get((extra >> 16 & 15).checked_sub(1)? as usize)?;
    let rule = RULES.get((extra >> 20) as usize)?;
    Some((*placement, FileMode { bits: extra & 0o7777, rule: *rule }))
}

const PLACEMENTS: [Placement; 4] = [Placement::Truncate, Placement::Unlink, Placement::Replace, Placement::Rename];
const RULES: [ModeRule; 4] = [ModeRule::Masked, ModeRule::Set, ModeRule::Executable, ModeRule::Exact];

/// The mode of what was found, as `stat` gives it: type and permissions.
pub fn mode_of(look: &Look) -> u32 {
    let kind = match look.kind {
        larder_sys::Kind::File => 0o10,
        larder_sys::Kind::Directory => 0o04,
        larder_sys::Kind::Link => 0o12,
        larder_sys::Kind::Other(kind) => u32::from(kind),
    };
    kind << 12 | look.mode
}

/// Which file was found.
pub fn identity_of(look: &Look) -> Identity {
    Identity {
        device: look.device,
        inode: look.inode,
        size_bytes: look.size_bytes,
        modified_ns: look.modified_ns,
        changed_ns: look.changed_ns,
    }
}

/// What follows each argument in the second text of a `Kind::Start` (`LARDER_ARGUMENT_END`, `preload/log.h`).
pub(crate) const ARGUMENT_END: u8 = 0o37;
/// No more of them is kept (`LARDER_ARGUMENTS_MAX`).
pub(crate) const ARGUMENTS_BYTES_MAX: usize = 4096;

/// The arguments of a program but the first, from a `Kind::Start`. `None` where not all of them were kept.
pub fn arguments(kept: &[u8]) -> Option<impl Iterator<Item = &[u8]>> {
    let whole = kept.len() < ARGUMENTS_BYTES_MAX && kept.last().is_none_or(|last| *last == ARGUMENT_END);
    let words = kept.strip_suffix(&[ARGUMENT_END]).unwrap_or(kept).split(|byte| *byte == ARGUMENT_END);
    whole.then(|| words.take(if kept.is_empty() { 0 } else { usize::MAX }))
}

/// How a file was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenFlags(pub u16);

impl OpenFlags {
    /// For reading.
    pub const READ: u16 = 1;
    /// For writing.
    pub const WRITE: u16 = 2;
    /// Made where it is not there.
    pub const CREATE: u16 = 4;
    /// Must not be there.
    pub const EXCLUSIVE: u16 = 8;
    /// Emptied.
    pub const TRUNCATE: u16 = 16;
    /// Written at its end.
    pub const APPEND: u16 = 32;
    /// By a name that libc made up.
    pub const TEMPORARY: u16 = 64;
    /// Must be a directory.
    pub const DIRECTORY: u16 = 128;
    /// Neither read nor written (`O_PATH`).
    pub const PATH_ONLY: u16 = 256;
    /// The name was not there before.
    pub const NEW: u16 = 1024;

    /// Whether a bit is set.
    pub fn has(self, bit: u16) -> bool {
        self.0 & bit != 0
    }
}

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the system call, or the function, of its name")]
pub enum Kind {
    /// A program began; `path` is its file, `path2` its [`arguments`], `extra` its parent where that is known.
    Start,
    /// A shared object was loaded.
    Object,
    /// A program is about to be executed.
    Exec,
    /// It was not.
    ExecFailed,
    /// A program was started as child `extra`.
    Spawned,
    /// A program that will say who it is.
    Anonymous,
    /// Something happens that cannot be observed; `extra` is the reason.
    Drop,
    Open(OpenFlags),
    Stat,
    Lstat,
    Access,
    ReadLink,
    RealPath,
    List,
    Unlink,
    /// With `OpenFlags::NEW` where the new name was not there before.
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
    /// The clock: 1 `time`, 2 `gettimeofday`, 3 `clock_gettime`, 4 local time.
    Clock,
    /// Random numbers were asked for; `extra` says whether libc may have done so for itself.
    Random,
    /// A process appears that was forked by process `extra`; or one goes on that shared its memory with such. `mode`:
    /// the process that wrote from this memory before, or 0.
    Forked,
    Network,
    UnixSocket,
    Identity,
    /// A child died by signal `extra`; if that is 0, it exited as a part of gcc does after an internal error.
    ChildDied,
    /// A file that was open for writing was closed; its identity says which, and how it was then.
    Closed,
    /// A call that is of no interest otherwise failed because something runs short, or because a device fails. `path` is
    /// that of the descriptor, or the name of the function.
    Shortage,
}
