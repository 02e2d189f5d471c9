//! What an observer reports of a run: which paths the tool accessed and what it changed, before
//! this is turned into facts and outputs.
//!
//! Unaware of: which observer it was, how facts are made (`store::InputVerifier`).

use crate::result::Placement;
use crate::{Digest, FileMode};

/// The result of `stat` on a file at the moment when the tool opened it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The device, as `major << 32 | minor`.
    pub device: u64,
    /// The inode number.
    pub inode: u64,
    /// The size, in bytes.
    pub size_bytes: u64,
    /// mtime, in nanoseconds since 1970.
    pub modified_ns: i64,
    /// ctime, in nanoseconds since 1970.
    pub changed_ns: i64,
}

impl Identity {
    /// Returns the device and the inode, which identify a file whatever its path is.
    pub fn file_id(&self) -> (u64, u64) {
        (self.device, self.inode)
    }
}

/// The state of a path before the tool changed it, if the tool accessed it before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prior {
    /// The path was absent.
    Absent,
    /// Something was there, and the tool did not read it.
    Other {
        /// `st_mode`: file type and permissions. The permissions are 0 if they are not known.
        mode: u32,
    },
    /// A file with this content was there, and the tool read it before changing it.
    File {
        /// The digest of the content.
        digest: Digest,
        /// The permission bits, if they are known.
        mode: Option<u32>,
    },
}

/// In which ways the tool relied on one path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Looked {
    /// It was read or executed, so its content counts.
    pub content: bool,
    /// A program other than git read it. See [`Git`].
    pub read_by_others: bool,
    /// It is git's index, and git replaced it by one of the same entries, which `identity` is of.
    pub refreshed: bool,
    /// It was executed, or the tool asked whether it can be (`access`).
    pub executed: bool,
    /// `stat` or another call that follows symbolic links was called on it.
    pub kind: bool,
    /// `lstat`, `readlink` or `realpath` was called on it.
    pub link: bool,
    /// It led to a file that the tool had made under another path, so the way in which it leads
    /// there counts.
    pub leads: bool,
    /// The directory was listed.
    pub listed: bool,
    /// The order of the listed names may matter.
    pub order: bool,
    /// The file types in the listing (`d_type`) may matter.
    pub kinds: bool,
    /// It was looked up and was absent.
    pub absent: bool,
    /// The program may refuse it if it belongs to another user. Links are not followed.
    pub owner: bool,
    /// How far its owner, and its number of hard links, count for another reason.
    pub belongs: Belongs,
    /// Another error: the operation and the errno, as in [`crate::Fact::Error`].
    pub failed: Option<(u8, u32)>,
    /// The file that was opened.
    pub identity: Option<Identity>,
    /// How far the rest of what `stat` says of it can affect the result.
    pub times: Times,
    /// Its mtime was compared with the mtimes of other files.
    pub compared: bool,
    /// It is a directory, and this mtime of it was compared with those of other files.
    pub directory_ns: Option<i64>,
    /// The tool changed it afterwards, so only its state before that counts.
    pub prior: Option<Prior>,
    /// It was a link with this target, and the tool followed or read the link before it replaced or
    /// removed it.
    pub target_before: Option<Vec<u8>>,
}

impl Looked {
    /// The path was looked up and absent, and nothing else counts of it.
    pub fn absent() -> Looked {
        Looked { absent: true, ..Looked::default() }
    }
}

/// How far a program lets the times, modes and owners of files affect its result. Each value
/// includes the ones before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Times {
    /// Not at all.
    #[default]
    Blind,
    /// It gives the files that it makes the modes of files that it reads, as `cp` does.
    Mode,
    /// It may compare or write down the mtimes of files that it reads, but not of files that it
    /// makes.
    Inputs,
    /// It may compare or write down the mtimes of all files, also of files that it makes.
    Files,
    /// It writes down all that `stat` says of files and directories.
    Status,
    /// It also uses atime or ctime. These differ in every run, so such a run is not recorded.
    Uses,
}

/// How far the owner of a file and its number of hard links affect a result. Each value includes the
/// ones before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Belongs {
    /// Not at all.
    #[default]
    Blind,
    /// A program may give what it makes the owner of what it reads, as `cp -p` does. So it counts
    /// whether that is the user who runs the command.
    Owner,
    /// A program may write down the owner, as `ar` does, and ask whether there are more hard links, as
    /// `gzip` does.
    Links,
    /// A program may write down the owner and the number of hard links.
    Told,
}

/// What is known about a program by its file name: how far its result can depend on the metadata of
/// files, and which calls it makes in every run without effect on its result. For example, awk
/// reads the clock in each run to seed `rand()`. The values are in `compiler/src/programs.rs`.
/// The default has the fewest allowances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Habit {
    /// How far the times of files can affect its result.
    pub times: Times,
    /// It compares the mtimes of the files that it accesses, as `make` does, and uses nothing else
    /// of `stat`.
    pub compares: bool,
    /// It may ask for the size of a file that it does not read.
    pub asks_sizes: bool,
    /// Which of its looks at a directory are for the mtime, if it compares those of directories.
    pub directories: Option<DirectoryTimes>,
    /// How often each of its processes reads the clock without effect on its result. If one reads
    /// it more often, the run is not recorded.
    pub clock_reads: u32,
    /// How often each of its processes asks for the local time of a given moment without effect on
    /// its result. This reveals the time zone.
    pub zone_reads: u32,
    /// It writes the current time to its standard output and nowhere else, as `date` does.
    pub tells_time: bool,
    /// How often each of its processes asks for random numbers without effect on its result.
    pub random_reads: u32,
    /// The random numbers are seeds of hash tables, whose order may be in the result. Two runs tell
    /// whether it is.
    pub seeds_are_compared: bool,
    /// If it asks for more random numbers than that, two runs tell whether they are in the result.
    pub draws_are_compared: bool,
    /// The order in which a directory lists its names does not affect its result, as for `ls`,
    /// which sorts.
    pub sorts_names: bool,
    /// It tells directories from files by `d_type` of a listing, without calling `stat`.
    pub lists_kinds: bool,
    /// It reads `/proc/self/statm` and the like to manage its memory, and its result does not depend
    /// on that.
    pub tunes_memory: bool,
    /// How often each of its processes reads `/proc/self/maps` for the same purpose.
    pub maps_reads: u32,
    /// It reads `/proc/meminfo` although nothing asks it for the size of the memory.
    pub reads_memory_size: bool,
    /// It tries to open its terminal and does nothing with it, as shells do.
    pub tries_terminal: bool,
    /// It is git and only shows what the repository and the checkout hold.
    pub git: Option<Git>,
    /// It may ask for any number of random numbers, if it makes a new file: they are in the name of
    /// that file. `mktemp` does so.
    pub names_at_random: bool,
    /// It makes up names of temporary files as Python's `tempfile` does: [`is_name_of_tempfile`].
    pub names_as_tempfile: bool,
    /// It is Python, which looks for modules in directories and runs their code.
    pub imports: bool,
    /// It writes down numbers that differ in each place, such as inode numbers, only so that they
    /// can be compared.
    pub shows_numbers: bool,
    /// An mtime that it sets is that of a file that it accessed, as for `cp -p` and `touch -r`, unless
    /// it accessed no file with this mtime.
    pub copies_times: bool,
    /// It may ask for internet sockets, only to find out whether there are any.
    pub tries_sockets: bool,
    /// It puts recorded results in place, and reports itself how far they depend on modes and
    /// times. That is larder.
    pub reports: bool,
    /// It loads plugins that a build made and runs them in its process, as rustc does with
    /// procedural macros. What is said above of clocks and random numbers holds for the program
    /// itself and not for its plugins.
    pub runs_code_of_builds: bool,
}

/// Which looks of a program at a directory are for the mtime of the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectoryTimes {
    /// All, except those right before it lists the directory. `make` looks at targets and
    /// prerequisites for their mtimes, and at directories that it searches.
    UnlessListed,
    /// Those right before or after another look. Shells and `test` compare two paths for `-nt`.
    InPairs(DirectoryChecks),
}

/// The looks of a shell at directories that are not for a test of its script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectoryChecks {
    /// Not known.
    Unknown,
    /// Those of dash. When it starts, it looks at `PWD` and `.`.
    Once,
    /// Those of bash. It looks at `PWD` and `.` when it starts, and if they are the same, at each
    /// directory on the way there from the top down. It then looks at `OLDPWD`. For `cd`, it looks at
    /// each directory on the way.
    EachAbove,
}

/// The facts that decide the output of a git command, besides HEAD, refs and configuration.
///
/// git looks at the mtimes of tracked files and at the clock to find out which files it must read.
/// So what it looked at counts as read, and of its index only the entries count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Git {
    /// The names of objects, which are digests.
    ByName,
    /// The set of objects as well: git shortens a name as far as it stays the only one.
    Shortened,
}

/// Returns true if Python's `tempfile` may have made up this file name: `tmp` and eight lower-case
/// letters, digits or `_`, with any extension. Eight such characters without `tmp` are the name
/// with which `tempfile` tests whether a directory is writable. Source: `_RandomNameSequence` in
/// `tempfile.py`.
pub fn is_name_of_tempfile(file_name: &[u8]) -> bool {
    const COUNT: usize = 8;
    let rest = file_name.strip_prefix(b"tmp").filter(|rest| rest.len() >= COUNT).unwrap_or(file_name);
    let is_one = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'_';
    rest.len() >= COUNT && rest[..COUNT].iter().all(is_one) && rest.get(COUNT).is_none_or(|byte| *byte == b'.')
}

/// Something that the tool made or removed, as it was at the end of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A file was written.
    File {
        /// How the file came to be there.
        placement: Placement,
        /// The mode that the file was made with.
        mode: FileMode,
        /// The path was absent before.
        new: bool,
        /// A part of a compiler wrote the file and closed it only when it was complete. A shell, in
        /// contrast, closes the target of a redirection before anything is written.
        closed_when_complete: bool,
        /// The command set the mtime of the file: an index of [`Seen::date_sources`].
        dated: Option<usize>,
        /// The command set extended attributes of the file. `cp` sets modes in this way
        /// (`system.posix_acl_access`).
        attributed: bool,
    },
    /// A symbolic link was made.
    Link,
    /// A directory was made.
    Directory(FileMode),
    /// The path was removed.
    Removed,
}

/// The files from which processes may have copied an mtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DateSource {
    /// The programs are known to set only mtimes that they copy, as `cp -p` does.
    pub only_copies: bool,
    /// The files that these processes accessed, absolute, as the tool used them.
    pub accessed: Vec<Vec<u8>>,
    /// The files that one of these processes accessed as well as gave an mtime. It may be the mtime
    /// that the file had before, as after `strip -p`.
    pub rewritten: Vec<Vec<u8>>,
}

/// The letter in [`Seen::host`] that stands for the name of the host if the run could show it only by a
/// computed name of a variable.
pub const HOST_IF_COMPUTED: u8 = b'h';

/// The paths that a run relied on and the paths that it changed, each in the order of the first
/// access.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Accessed paths, absolute, as the tool used them.
    pub looked: Vec<(Vec<u8>, Looked)>,
    /// Changed paths, absolute, as the tool used them.
    pub changed: Vec<(Vec<u8>, Change)>,
    /// The written files as they were when they were last closed, if the observer sees that.
    pub closed: Vec<Identity>,
    /// Names that the run added or removed, and whether each was there before. A listing counts as
    /// it was before the run.
    pub names: Vec<(Vec<u8>, bool)>,
    /// The umask was asked for.
    pub umask: bool,
    /// The umask was asked for by a program that may have set it.
    pub umask_is_set: bool,
    /// The letters of [`crate::HOST_FIELDS`] that may have been shown of the answer of `uname`, and
    /// [`HOST_IF_COMPUTED`].
    pub host: Vec<u8>,
    /// It was asked which kinds of sockets exist.
    pub sockets: bool,
    /// The command set the owner or attributes of something it made, possibly to what they already
    /// were.
    pub owners_set: bool,
    /// A program that uses mtimes accessed a file whose mtime the command had set.
    pub dates_count: bool,
    /// The files from which the command may have copied the mtimes that it set.
    pub date_sources: Vec<DateSource>,
    /// Variables that were asked for, with their values; `None` if not set.
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
