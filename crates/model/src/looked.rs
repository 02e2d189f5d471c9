//! What a tool was seen to look at and to change: the observer's report, before it is turned into facts and outputs.

use crate::FileMode;
use crate::result::Placement;

/// What `stat` said of a file at the moment the tool opened it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// `major << 32 | minor`.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Size.
    pub size_bytes: u64,
    /// Time of the last change of content, nanoseconds.
    pub modified_ns: i64,
    /// Time of the last change of content or inode, nanoseconds.
    pub changed_ns: i64,
}

/// State of a path before the tool changed it, where the tool looked first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prior {
    /// Nothing was there.
    Absent,
    /// Something of this kind was there: the file type bits of its mode, shifted right by 12.
    Kind(u8),
}

/// One path, and in which ways the tool relied on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Looked {
    /// It was read or executed: its content counts.
    pub content: bool,
    /// It was executed, or asked whether it can be.
    pub executed: bool,
    /// It was looked at, links followed.
    pub kind: bool,
    /// It was looked at as a link: `lstat`, `readlink`, `realpath`.
    pub link: bool,
    /// Its names were listed.
    pub listed: bool,
    /// It was looked for and not there.
    pub absent: bool,
    /// Another error came: 0 from `stat`, 1 from opening; and its number.
    pub failed: Option<(u8, u32)>,
    /// Which file was opened.
    pub identity: Option<Identity>,
    /// The tool changed it afterwards: only its state before counts.
    pub prior: Option<Prior>,
}

/// Something that the tool made or removed and left so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A file was written.
    File {
        /// How it came to be there.
        placement: Placement,
        /// The mode it was made with.
        mode: FileMode,
        /// A compiler's part wrote it, and closed it when it was complete. A shell closes what it redirects to before
        /// anything is written.
        closed_when_complete: bool,
    },
    /// A symbolic link was made.
    Link,
    /// A directory was made.
    Directory(FileMode),
    /// What was there is gone.
    Removed,
}

/// Paths relied on and paths changed, each in the order of first touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Absolute paths as the tool used them.
    pub looked: Vec<(Vec<u8>, Looked)>,
    /// Absolute paths as the tool used them.
    pub changed: Vec<(Vec<u8>, Change)>,
    /// Files that were written, as they were when they were last closed, where the observer sees that.
    pub closed: Vec<Identity>,
    /// Variables asked for, with their values; `None` where not set.
    pub environment: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}
