//! What a tool was seen to look at and to change: the observer's report, before it is turned into facts and outputs.

use crate::result::Placement;
use crate::{Digest, FileMode};

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
    /// Something was there, and the tool did not read it.
    Other {
        /// As `stat` gives it, type and permissions; those are 0 where nobody saw them.
        mode: u32,
    },
    /// A file with this content was there, and the tool read it before it changed it.
    File {
        /// Of its bytes.
        digest: Digest,
        /// Its permission bits, where they are known.
        mode: Option<u32>,
    },
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
    /// It led to what the tool had made itself under another name: how it leads there counts.
    pub leads: bool,
    /// Its names were listed.
    pub listed: bool,
    /// The order in which they came may matter.
    pub order: bool,
    /// Of what kind each of them is may matter, as the directory says it.
    pub kinds: bool,
    /// It was looked for and not there.
    pub absent: bool,
    /// Another error came: 0 from `stat`, 1 from opening; and its number.
    pub failed: Option<(u8, u32)>,
    /// Which file was opened.
    pub identity: Option<Identity>,
    /// How far what else `stat` says of it can reach the result.
    pub times: Times,
    /// When it was modified was compared with when others were.
    pub compared: bool,
    /// The tool changed it afterwards: only its state before counts.
    pub prior: Option<Prior>,
}

/// How far a program lets the times and owners of files reach its result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Times {
    /// Not at all.
    #[default]
    Blind,
    /// Not at all, but it gives what it makes the modes of what it reads.
    Mode,
    /// It may compare or write down when files that it reads were modified, but not files that it makes; and as above.
    Inputs,
    /// The same of all files that it looks at.
    Files,
    /// It writes down all that `stat` says, of directories too.
    Status,
    /// When files were used as well: read, or changed in whatever way. No two runs find the same there.
    Uses,
}

/// What a program does in every run, whatever its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Habit {
    /// How far the times of files can reach its result.
    pub times: Times,
    /// It compares when the files that it looks at were modified, and lets nothing else of that reach its result.
    pub compares: bool,
    /// How often one process of it reads the clock.
    pub clock_reads: u32,
    /// How often one process of it asks for the local time of a given moment, and so for the time zone.
    pub zone_reads: u32,
    /// It writes the time that the clock says, to its standard output alone.
    pub tells_time: bool,
    /// How often one process of it asks for random numbers.
    pub random_reads: u32,
    /// The order in which a directory lists its names does not reach its result.
    pub sorts_names: bool,
    /// It tells directories from other names by what the directory says of their kinds, without looking at them.
    pub lists_kinds: bool,
    /// It looks at its own memory to handle it, and at nothing of it for its result.
    pub tunes_memory: bool,
    /// It tries to open the terminal that it runs on, and leaves it alone.
    pub tries_terminal: bool,
    /// It may ask for any number of random numbers, if it makes something new: they are in that one's name.
    pub names_at_random: bool,
    /// It makes up names of temporary files as Python's `tempfile` does: [`is_name_of_tempfile`].
    pub names_as_tempfile: bool,
    /// It writes down numbers that are others in each place, for somebody to compare.
    pub shows_numbers: bool,
    /// It may ask for sockets of the internet's families, to see whether there are such.
    pub tries_sockets: bool,
    /// It hands out results, and says itself how far they rely on modes and times.
    pub reports: bool,
}

impl Habit {
    /// The wrapper's own inside a run.
    pub const OF_WRAPPER: Habit = Habit {
        times: Times::Blind,
        compares: false,
        clock_reads: 0,
        zone_reads: 0,
        tells_time: false,
        random_reads: 0,
        sorts_names: false,
        lists_kinds: false,
        tunes_memory: false,
        tries_terminal: false,
        names_at_random: false,
        names_as_tempfile: false,
        shows_numbers: false,
        tries_sockets: false,
        reports: true,
    };
}

/// Whether Python's `tempfile` may have made up this file name: eight letters, digits or `_`, behind `tmp` or by
/// themselves, and any ending (`tempfile.py`, `_RandomNameSequence`; the eight by themselves are its question whether a
/// directory can be written).
pub fn is_name_of_tempfile(file_name: &[u8]) -> bool {
    const COUNT: usize = 8;
    let rest = file_name.strip_prefix(b"tmp").filter(|rest| rest.len() >= COUNT).unwrap_or(file_name);
    let is_one = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'_';
    rest.len() >= COUNT && rest[..COUNT].iter().all(is_one) && rest.get(COUNT).is_none_or(|byte| *byte == b'.')
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
        /// Nothing was there before.
        new: bool,
        /// A compiler's part wrote it, and closed it when it was complete. A shell closes what it redirects to before
        /// anything is written.
        closed_when_complete: bool,
        /// The command set when it was modified.
        dated: bool,
        /// The command gave it attributes, by which `cp` sets modes.
        attributed: bool,
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
    /// Names that came or went, and whether they were there before: what a listing showed.
    pub names: Vec<(Vec<u8>, bool)>,
    /// The umask was asked for.
    pub umask: bool,
    /// By a program that may leave it set.
    pub umask_is_set: bool,
    /// What `uname` says was asked for.
    pub host: bool,
    /// Which sockets can be had was asked for.
    pub sockets: bool,
    /// Owners or attributes of what the command made were set: to what they were, or others.
    pub owners_set: bool,
    /// A program that goes by times looked at a file whose time the command had set.
    pub dates_count: bool,
    /// Variables asked for, with their values; `None` where not set.
    pub environment: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_tempfile() {
        for name in ["tmpab12_x9z", "tmpab12_x9z.py", "ab12_x9z", "tmptmptm", "tmptmptmptm"] {
            assert!(is_name_of_tempfile(name.as_bytes()), "{name}");
        }
        for name in ["tmp", "tmpABCDEFGH", "tmp1234567", "config.log", "ab12_x9zz", "tmpab12_x9zz", ""] {
            assert!(!is_name_of_tempfile(name.as_bytes()), "{name}");
        }
    }
}
