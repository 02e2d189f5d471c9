//! What a fold knows of each path, and of each file by its device and inode.
//!
//! Unaware of: processes, and the rules of the policy.

use larder_model::path::{join, parent};
use larder_model::quick::{Map, Set};
use larder_model::{Fact, FileMode, Identity, Looked, Placement, Times};
use larder_sys::FileType;

use super::process_state::Life;
use crate::event::file_type;
use crate::process_tree::Running;
use larder_model::path::has_parents;

/// The file type of a symbolic link in `st_mode`.
const LINK: u32 = 0o12;

/// What the command made at a path.
#[derive(Clone, Debug)]
pub(super) enum Made<'t> {
    /// `writer` is the file name of the program. It is kept because by the end another process may
    /// have the same pid.
    File {
        placement: Placement,
        mode: FileMode,
        writer: &'t [u8],
        temporary: bool,
    },
    Link,
    Directory(FileMode),
    Removed,
}

/// What is known of one path. `'t` is the lifetime of the trace.
#[derive(Default)]
pub(super) struct PathState<'t> {
    /// How the command accessed the path, if it did so before it made something there.
    pub(super) looked: Option<Looked>,
    /// What the command made here, if it is still here.
    pub(super) made: Option<Made<'t>>,
    /// The path came or went, and this tells whether it existed before.
    pub(super) existed: Option<bool>,
    /// File type and permissions before the command changed them. The permissions are 0 if they are
    /// unknown.
    pub(super) mode_before: Option<u32>,
    /// The resolved form of a path with `..` in it, at the end of the run. The outer `None` means
    /// that it was not looked up, the inner one that it does not exist.
    pub(super) real: Option<Option<Vec<u8>>>,
    /// The program that made a temporary file here, with its arguments.
    pub(super) author: Option<Running<'t>>,
    /// The path has `..` in it and led to something that the command had made.
    pub(super) leads_to_made: bool,
    /// The command gave the file that it made here extended attributes. For example, `cp` sets
    /// modes in this way.
    pub(super) is_attributed: bool,
    /// The processes that gave the file that the command made here an mtime.
    pub(super) dated_by: Vec<Life>,
    /// The path must not exist before a run. If something had been there, the command would have
    /// made nothing here, or something else.
    pub(super) must_be_absent: bool,
    /// A program other than a compiler ran `stat` on the path before the command made it. That may
    /// decide what is done, as it does in `make`.
    pub(super) looked_at_by_others: bool,
    /// The name was made up at random.
    pub(super) is_named_at_random: bool,
    /// The path is a directory in which a temporary file was made.
    pub(super) holds_temporary_files: bool,
    /// `lstat` said that the path does not exist. LLVM calls it before it removes a file.
    pub(super) lstat_failed: bool,
    /// `unlink` said that the path does not exist.
    pub(super) unlink_failed: bool,
    /// The output is written in place: it was opened without O_CREAT, or it is an input as well.
    pub(super) is_written_in_place: bool,
    /// The writer of the output would have renamed an old output to a temporary name, to write into
    /// that file.
    pub(super) would_be_reused: bool,
    /// What `stat` reported of the file when the command made it.
    pub(super) written: Option<Identity>,
    /// A program that is no part of a compiler opened the file for writing after it was made, or
    /// set its times.
    pub(super) is_added_to: bool,
    /// Before the command changed the path, it followed or read the link that may have been here.
    pub(super) is_followed: bool,
    /// A program that may ask for sizes called `stat` on the file that was here.
    pub(super) is_measured: bool,
    /// A link was here before the command changed the path.
    pub(super) was_link: bool,
    /// The target of the link that the command made here.
    pub(super) leads_to: &'t [u8],
    /// The path is in the order of what was made.
    is_in_made_order: bool,
}

impl PathState<'_> {
    /// Returns true if `unlink` left nothing here.
    pub(super) fn is_removed(&self) -> bool {
        matches!(self.made, Some(Made::Removed)) || self.unlink_failed
    }

    /// Forgets the mtime and attributes that the command gave the file. Returns true if there was
    /// such an mtime.
    pub(super) fn forget_attributes(&mut self) -> bool {
        self.is_attributed = false;
        !std::mem::take(&mut self.dated_by).is_empty()
    }
}

/// The state of all paths.
#[derive(Default)]
pub(super) struct Paths<'t> {
    states: Map<&'t [u8], PathState<'t>>,
    /// Accessed paths, in the order of their first access.
    looked_order: Vec<&'t [u8]>,
    /// Paths at which something was made, in the order in which that happened first.
    made_order: Vec<&'t [u8]>,
    /// A directory was made.
    made_directories: bool,
    /// Files that the command made by a path that has `..`. The key is the path without `..`.
    by_parents: Map<Vec<u8>, MadeByParents<'t>>,
    /// Names that programs made up at random for others to use. For example, `mktemp` does so.
    pub(super) random_names: Vec<&'t [u8]>,
}

/// Something that the command made by a path that has `..`.
struct MadeByParents<'t> {
    path: &'t [u8],
    /// The directory before the first `..`.
    start: &'t [u8],
    /// [`Paths::made_on_the_way`] to `start` when it was made.
    directories: usize,
}

impl<'t> Paths<'t> {
    /// Returns the state of a path, or `None` if nothing is known of it.
    pub(super) fn get(&self, path: &[u8]) -> Option<&PathState<'t>> {
        self.states.get(path)
    }

    /// Returns the state of a path, to change it.
    pub(super) fn state(&mut self, path: &'t [u8]) -> &mut PathState<'t> {
        self.states.entry(path).or_default()
    }

    /// Returns how a path was accessed, to add an access to it.
    pub(super) fn touch(&mut self, path: &'t [u8]) -> &mut Looked {
        let state = self.states.entry(path).or_default();
        if state.looked.is_none() {
            self.looked_order.push(path);
        }
        state.looked.get_or_insert_default()
    }

    /// Notes that a path could not be used as a directory. If no directory above it is missing, it is
    /// something else.
    pub(super) fn note_no_directory(&mut self, path: &'t [u8]) {
        self.touch(path).failed = Some((Fact::IS_DIRECTORY, libc::ENOTDIR as u32));
    }

    /// Returns how a path was accessed, if it was.
    pub(super) fn looked(&self, path: &[u8]) -> Option<&Looked> {
        self.get(path)?.looked.as_ref()
    }

    /// Returns how a path was accessed, to change that.
    pub(super) fn looked_mut(&mut self, path: &[u8]) -> Option<&mut Looked> {
        self.states.get_mut(path)?.looked.as_mut()
    }

    /// Returns what the command made at a path.
    pub(super) fn made(&self, path: &[u8]) -> Option<&Made<'t>> {
        self.get(path)?.made.as_ref()
    }

    /// Returns what the command made at a path, to change that.
    pub(super) fn made_mut(&mut self, path: &[u8]) -> Option<&mut Made<'t>> {
        self.states.get_mut(path)?.made.as_mut()
    }

    /// Returns true if the command made a file at this path, and the file is still there.
    pub(super) fn is_made_file(&self, path: &[u8]) -> bool {
        matches!(self.made(path), Some(Made::File { .. }))
    }

    /// Returns the state of the file that the command made at this path, or behind the links that it
    /// made here. Returns `None` if a link leads to anything else.
    pub(super) fn file_behind(&mut self, path: &[u8]) -> Option<&mut PathState<'t>> {
        const LINKS_MAX: usize = 40;
        let mut path = path.to_vec();
        for _ in 0..LINKS_MAX {
            match self.get(&path)?.made.as_ref()? {
                Made::File { .. } => return self.states.get_mut(&path[..]),
                Made::Link => {}
                _ => return None,
            }
            let target = self.get(&path)?.leads_to;
            let end = path.iter().rposition(|&byte| byte == b'/')?;
            path = if target.starts_with(b"/") { target.to_vec() } else { join(&path[..end], target) };
        }
        None
    }

    /// Returns true if the command made a temporary file at this path.
    pub(super) fn is_temporary(&self, path: &[u8]) -> bool {
        matches!(self.made(path), Some(Made::File { temporary: true, .. }))
    }

    /// Returns true if the path is below a directory that the command made.
    pub(super) fn is_below_made(&self, path: &[u8]) -> bool {
        if !self.made_directories {
            return false;
        }
        let mut slashes = path.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| at);
        slashes.any(|at| at > 0 && matches!(self.made(&path[..at]), Some(Made::Directory(_))))
    }

    /// Returns true if the command made something at this path, or a directory above it.
    pub(super) fn is_made(&self, path: &[u8]) -> bool {
        self.made(path).is_some() || self.is_below_made(path)
    }

    /// Notes what the command made at a path.
    pub(super) fn make(&mut self, path: &'t [u8], made: Made<'t>) {
        self.made_directories |= matches!(made, Made::Directory(_));
        let state = self.states.entry(path).or_default();
        if !std::mem::replace(&mut state.is_in_made_order, true) {
            self.made_order.push(path);
        }
        state.made = Some(made);
        if let Some(real) = state.real.clone().flatten()
            && let Some((start, plain)) = split_at_parents(path)
            && real == plain
            && let Some(directories) = self.made_on_the_way(start)
        {
            self.by_parents.insert(plain, MadeByParents { path, start, directories });
        }
    }

    /// Returns the path by which the command made what is at `path`, if that has `..` and leads there,
    /// as in `cd obj && gcc x.c -o ../x`. Otherwise returns `path`.
    pub(super) fn as_made(&self, path: &'t [u8]) -> &'t [u8] {
        let Some(by_parents) = self.by_parents.get(path) else { return path };
        // No link was on the way at the end of the run, and nothing on the way has changed since the
        // file was made.
        let leads_there = self.made_on_the_way(by_parents.start) == Some(by_parents.directories);
        let is_made = self.made(by_parents.path).is_some() && self.made(path).is_none();
        if leads_there && is_made { by_parents.path } else { path }
    }

    /// Returns how many of a directory and those above it the command made. Returns `None` if it made
    /// or removed something else there.
    fn made_on_the_way(&self, directory: &[u8]) -> Option<usize> {
        let made = std::iter::successors(Some(directory), |path| parent(path).filter(|above| above.len() < path.len()))
            .filter_map(|path| self.made(path));
        let mut count = 0;
        for made in made {
            count += if matches!(made, Made::Directory(_)) { 1 } else { return None };
        }
        Some(count)
    }

    /// Returns true if the command made something at `path`, by another path that has `..`.
    pub(super) fn is_made_by_parents(&self, path: &[u8]) -> bool {
        self.by_parents.contains_key(path)
    }

    /// Removes what the command made at a path.
    pub(super) fn take_made(&mut self, path: &[u8]) -> Option<Made<'t>> {
        self.states.get_mut(path)?.made.take()
    }

    /// Notes that a path comes or goes. Only whether it existed before the first change counts.
    pub(super) fn comes_or_goes(&mut self, path: &'t [u8], existed: bool) {
        self.state(path).existed.get_or_insert(existed);
    }

    /// Returns whether a path that came or went existed before.
    pub(super) fn existed(&self, path: &[u8]) -> Option<bool> {
        self.get(path)?.existed
    }

    /// Notes that the path did not exist before the run.
    pub(super) fn was_absent(&mut self, path: &'t [u8]) {
        if self.existed(path).is_none() {
            self.touch(path).absent = true;
            self.state(path).must_be_absent = true;
        }
    }

    /// Notes the mode that a path had before the command changed it.
    pub(super) fn note_mode(&mut self, path: &'t [u8], mode: u32) {
        if mode == 0 {
            return;
        }
        let state = self.state(path);
        state.was_link |= mode >> 12 == LINK;
        let noted = state.mode_before.get_or_insert(mode);
        if *noted & 0o7777 == 0 && *noted >> 12 == mode >> 12 {
            *noted = mode;
        }
    }

    /// Returns the mode that a path had before the command changed it.
    pub(super) fn mode_before(&self, path: &[u8]) -> Option<u32> {
        self.get(path)?.mode_before
    }

    /// Returns true if the earlier mode of a file that the command wrote cannot matter because the
    /// file is new, or if that mode is known. In the second case the mode becomes an observation.
    pub(super) fn mode_before_is_known(&mut self, path: &'t [u8]) -> bool {
        let Some(Made::File { placement, .. }) = self.made(path) else { return false };
        let anew = matches!(placement, Placement::Unlink | Placement::Rename);
        if anew || self.existed(path) == Some(false) {
            return true;
        }
        let known = self.mode_before(path).is_some_and(|mode| file_type(mode) == FileType::File && mode & 0o7777 != 0);
        if known {
            let looked = self.touch(path);
            looked.kind = true;
            looked.times = looked.times.max(Times::Mode);
        }
        known
    }

    /// Moves the mtime and attributes that the command gave a file to its new path. Returns true if
    /// a file with such an mtime was there and is lost.
    pub(super) fn move_attributes(&mut self, from: &[u8], to: &'t [u8]) -> bool {
        let is_lost = self.states.get_mut(to).is_some_and(PathState::forget_attributes);
        let Some(old) = self.states.get_mut(from) else { return is_lost };
        let (is_attributed, is_added_to) = (old.is_attributed, old.is_added_to);
        let dated_by = std::mem::take(&mut old.dated_by);
        old.forget_attributes();
        let new = self.state(to);
        (new.is_attributed, new.dated_by) = (is_attributed, dated_by);
        new.is_added_to |= is_added_to;
        is_lost
    }

    /// Returns whether a resolved form of the path was noted, and if so, that form.
    pub(super) fn real(&self, path: &[u8]) -> Option<&Option<Vec<u8>>> {
        self.get(path)?.real.as_ref()
    }

    /// Returns all paths at which something was made, in the order in which that happened first.
    pub(super) fn take_made_order(&mut self) -> Vec<&'t [u8]> {
        std::mem::take(&mut self.made_order)
    }

    /// Returns all accessed paths, in the order of their first access.
    pub(super) fn take_looked_order(&mut self) -> Vec<&'t [u8]> {
        std::mem::take(&mut self.looked_order)
    }

    /// Returns the paths that came or went, and whether each existed before.
    pub(super) fn names(&self) -> Vec<(Vec<u8>, bool)> {
        let names = self.states.iter().filter_map(|(path, state)| Some((path.to_vec(), state.existed?)));
        names.collect()
    }
}

/// The device and inode of a file.
pub(super) type FileId = (u64, u64);

/// What is known of files by their device and inode, whatever their paths are.
#[derive(Default)]
pub(super) struct Files<'t> {
    /// Files that the command made.
    pub(super) made: Set<FileId>,
    /// Files that the command made and read again.
    pub(super) read_again: Set<FileId>,
    /// The state of each written file when it was closed last.
    pub(super) closed: Map<FileId, Identity>,
    /// Logs that the command made, with their paths.
    pub(super) logs: Map<FileId, &'t [u8]>,
}

/// Splits an absolute path in which all `..` are side by side: returns the directory before them, and
/// the path to which they lead if nothing on the way is a link.
fn split_at_parents(path: &[u8]) -> Option<(&[u8], Vec<u8>)> {
    const PARENT: &[u8] = b"/..";
    let at = path.windows(4).position(|part| part == b"/../")?;
    let (start, mut rest) = path.split_at(at);
    let mut above = start;
    while let Some(after) = rest.strip_prefix(PARENT).filter(|after| after.starts_with(b"/")) {
        (above, rest) = (parent(above)?, after);
    }
    let is_plain = |path: &[u8]| !has_parents(path) && !path.windows(2).any(|part| part == b"//");
    (is_plain(start) && is_plain(rest)).then(|| (start, [above, rest].concat()))
}

impl Files<'_> {
    /// Returns true if the command made the file.
    pub(super) fn is_made(&self, identity: Option<Identity>) -> bool {
        identity.is_some_and(|id| self.made.contains(&id.file_id()))
    }
}
