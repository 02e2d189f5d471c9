//! Changes: paths that come and go, modes, owners and times.
//!
//! Unaware of: the content of files.

use larder_model::path::{file_name, parent, without_slashes};
use larder_model::{FileMode, ModeRule, Placement, Times, Unrecorded};
use larder_sys::FileType;

use super::path_state::Made;
use super::{Event, Fold, Policy};
use crate::event::{EventKind, OF_LINK, OpenFlags, file_type};
use larder_model::path::has_parents;

impl<'t> Fold<'t> {
    pub(super) fn change(&mut self, e: &Event<'t>, policy: &Policy) {
        // The first path of a new link is its target, which may be anything: `ln -s /dev/null x`.
        if e.kind != EventKind::Symlink && self.ignored(e.path) {
            return;
        }
        if e.error != 0 {
            return self.change_failed(e);
        }
        match e.kind {
            EventKind::RemoveDirectory if !self.is_made(e) => self.refuse(Unrecorded::UpdatesFile, e.path),
            EventKind::Unlink | EventKind::RemoveDirectory => {
                self.unlink(e, policy);
                self.paths.comes_or_goes(e.path, true);
            }
            EventKind::Rename(_) if self.refreshes_index(e, policy) => {}
            EventKind::Rename(flags) => {
                self.rename(e, flags, policy);
                self.paths.comes_or_goes(e.path, true);
                self.paths.comes_or_goes(e.path2, !flags.has(OpenFlags::NEW));
            }
            EventKind::Symlink => {
                self.made_by_its_name(&Event { path: e.path2, path2: b"", ..e.clone() }, policy);
                self.paths.comes_or_goes(e.path2, false);
                self.paths.make(e.path2, Made::Link);
                self.paths.state(e.path2).leads_to = e.path;
            }
            EventKind::MakeDirectory => {
                self.made_by_its_name(e, policy);
                self.paths.comes_or_goes(e.path, false);
                let mode = FileMode { bits: e.extra & 0o7777, rule: ModeRule::Masked };
                let habit = self.habit(e.pid, policy);
                if !habit.reports && (habit.times == Times::Mode || !matches!(mode.bits, 0o700 | 0o777)) {
                    self.processes.modes(e.pid).sets_directories = true;
                }
                self.paths.make(e.path, Made::Directory(mode));
                if habit.runs_code_of_builds {
                    self.run.made_directories.push(e.path);
                }
            }
            EventKind::ChangeMode => self.change_mode(e, policy),
            EventKind::MakeNode => self.refuse(Unrecorded::OutputSpecial, e.path),
            // The mtimes of directories and links are never compared. A file that is made later in
            // a directory would change its mtime again.
            EventKind::SetTimes if matches!(self.paths.made(e.path), Some(Made::Directory(_))) => {}
            EventKind::SetTimes if e.mode & OF_LINK != 0 && matches!(self.paths.made(e.path), Some(Made::Link)) => {}
            EventKind::SetTimes if matches!(self.paths.made(e.path), Some(Made::Link | Made::File { .. })) => {
                // The present time is the one that the file already has, nearly.
                let setter = if e.extra == 1 { None } else { Some(self.sets_times(e, policy)) };
                if let Some(state) = self.paths.file_behind(e.path) {
                    state.is_added_to = true;
                    state.dated_by.extend(setter.filter(|setter| !state.dated_by.contains(setter)));
                }
            }
            EventKind::Truncate if self.paths.is_temporary(e.path) => {}
            // The new owner and attributes are read at the end of the run.
            EventKind::ChangeOwner | EventKind::SetAttribute if self.may_be_given(e) => {
                self.run.owners_set = true;
                if e.kind == EventKind::SetAttribute && self.paths.is_made_file(e.path) {
                    self.paths.state(e.path).is_attributed = true;
                }
                if !self.habit(e.pid, policy).reports {
                    let modes = self.processes.modes(e.pid);
                    modes.sets_files = true;
                    modes.gives_owners |= e.kind == EventKind::ChangeOwner;
                }
            }
            _ => self.refuse(Unrecorded::UpdatesFile, e.path),
        }
    }

    fn change_failed(&mut self, e: &Event<'t>) {
        match (e.kind, e.error) {
            _ if self.is_made(e) && e.error == libc::ENOENT => {}
            // What the command made there decides, and the type of what is at the new path.
            (kind, libc::ENOTDIR | libc::EISDIR) if kind != EventKind::Symlink && self.is_made(e) => {
                let is_for_a_slash = e.path.ends_with(b"/") || e.path2.ends_with(b"/");
                if !e.path2.is_empty() && !is_for_a_slash && self.paths.made(e.path2).is_none() {
                    let looked = self.paths.touch(e.path2);
                    (looked.kind, looked.link) = (true, true);
                }
            }
            (EventKind::RemoveDirectory, libc::ENOTEMPTY) | (EventKind::MakeDirectory, libc::EEXIST)
                if self.is_made(e) => {}
            (EventKind::Rename(_), libc::ENOTEMPTY) if self.is_made(e) && self.paths.made(e.path2).is_some() => {}
            (EventKind::Link, libc::EPERM) if matches!(self.paths.made(e.path), Some(Made::Directory(_))) => {}
            // No file can be made with a slash at the end of its path.
            (EventKind::MakeNode, libc::ENOENT) if e.path.ends_with(b"/") => {
                self.paths.touch(without_slashes(e.path)).absent = true;
            }
            (EventKind::Link | EventKind::Symlink, libc::ENOENT) if e.path2.ends_with(b"/") => {
                self.paths.touch(without_slashes(e.path2)).absent = true;
            }
            // The command itself has renamed or removed what it had made there.
            (EventKind::Rename(_), libc::ENOENT) if self.paths.existed(e.path).is_some() => {}
            // The new path exists, so its directory does. So the old path does not exist.
            (EventKind::Rename(_), libc::ENOENT) if self.paths.is_temporary(e.path2) => {
                self.paths.touch(e.path).absent = true;
                self.paths.state(e.path).would_be_reused = true;
            }
            (
                EventKind::Unlink
                | EventKind::RemoveDirectory
                | EventKind::ChangeMode
                | EventKind::ChangeOwner
                | EventKind::SetTimes
                | EventKind::Truncate,
                libc::ENOENT,
            ) => {
                if e.kind == EventKind::Unlink {
                    self.paths.state(e.path).unlink_failed = true;
                }
                self.paths.touch(e.path).absent = true;
            }
            (EventKind::MakeDirectory, libc::EEXIST) => self.paths.touch(e.path).kind = true,
            // The directory above is missing. Rust's `create_dir_all` and Python's
            // `Path.mkdir(parents=True)` make it then, and try again.
            (EventKind::MakeDirectory, libc::ENOENT) => {
                if let Some(above) = parent(e.path).filter(|above| self.paths.made(above).is_none()) {
                    self.paths.touch(above).absent = true;
                }
            }
            // The call was asked not to replace an existing path.
            (EventKind::Rename(_) | EventKind::Symlink | EventKind::Link, libc::EEXIST) => {
                if self.paths.made(e.path2).is_none() {
                    let looked = self.paths.touch(e.path2);
                    (looked.kind, looked.link) = (true, true);
                }
                // The kernel looked up the old path first, so it exists.
                if e.kind != EventKind::Symlink && self.paths.made(e.path).is_none() {
                    let looked = self.paths.touch(e.path);
                    (looked.kind, looked.link) = (true, true);
                }
            }
            _ => self.refuse(Unrecorded::WriteFailed, e.path),
        }
    }

    /// Returns true if the command may set owners or attributes of this path.
    fn may_be_given(&mut self, e: &Event<'t>) -> bool {
        match self.paths.made(e.path) {
            Some(Made::File { temporary: true, .. } | Made::Directory(_) | Made::Link) => true,
            // `ar` of binutils before 2.37 gives a new archive the owner that it has already.
            Some(Made::File { .. }) if e.kind == EventKind::ChangeOwner => self.paths.existed(e.path) == Some(false),
            Some(Made::File { .. }) => e.kind == EventKind::SetAttribute && self.paths.mode_before_is_known(e.path),
            _ => false,
        }
    }

    /// Handles a file or link that the command made and that loses this path. If a file existed
    /// there before the run, the run is refused, unless the program is known to replace outputs.
    /// That file would be lost as well, and its other hard links would have been written to. For
    /// example, a failing `clang -M -o x.d` writes to an existing `x.d`, and then removes it.
    fn made_file_goes(&mut self, e: &Event<'t>, policy: &Policy) {
        let replaces = match self.paths.made(e.path) {
            Some(Made::File { writer, placement: Placement::Truncate, .. }) => (policy.unlinks_output)(writer),
            Some(Made::File { writer, .. }) => (policy.replaces_output)(writer),
            Some(Made::Link) => false,
            _ => return,
        };
        match self.paths.existed(e.path) {
            Some(false) if !self.paths.get(e.path).is_some_and(|state| state.is_named_at_random) => {
                self.paths.touch(e.path).absent = true
            }
            Some(true) if !replaces => self.refuse(Unrecorded::UpdatesFile, e.path),
            _ => {}
        }
    }

    fn unlink(&mut self, e: &Event<'t>, policy: &Policy) {
        self.made_file_goes(e, policy);
        let first_read = self.processes.get(e.pid).and_then(|state| state.first_read);
        if first_read == Some(e.path) && (policy.opens_output)(self.processes.program(e.pid)) {
            // It was opened only to be unlinked.
            self.paths.touch(e.path).content = false;
        }
        self.run.date_is_lost |= self.paths.state(e.path).forget_attributes();
        // A file that the command made and removed does not count, unless something existed there
        // before.
        let before = self.paths.looked(e.path).is_some_and(|l| l.absent) || self.paths.is_temporary(e.path);
        match self.paths.made(e.path) {
            Some(Made::File { placement: Placement::Truncate, .. }) if !before => {
                self.paths.make(e.path, Made::Removed)
            }
            Some(Made::Removed) => {}
            Some(_) => {
                self.paths.take_made(e.path);
            }
            // The path is a dangling link: a stat said that it does not exist. The next run would
            // find it gone.
            None if before => self.refuse(Unrecorded::OutputSpecial, e.path),
            None => {
                self.paths.note_mode(e.path, if e.mode == 0 { 0o10 << 12 } else { e.mode });
                if !self.processes.runs_a_compiler_part(e.pid, policy) {
                    self.paths.touch(e.path).kind = true;
                }
                self.paths.make(e.path, Made::Removed);
            }
        }
    }

    /// Handles git's replacing its index to note the present mtimes of tracked files. The entries
    /// stay, and git does so only if it may write there. So it is no change.
    fn refreshes_index(&mut self, e: &Event<'t>, policy: &Policy) -> bool {
        let is_lock = e.path2.ends_with(b"/index") && e.path.strip_prefix(e.path2) == Some(b".lock");
        if !is_lock || e.error != 0 || self.habit(e.pid, policy).git.is_none() || self.paths.made(e.path2).is_some() {
            return false;
        }
        let written = self.paths.state(e.path).written;
        let Some(looked) = self.paths.looked_mut(e.path2).filter(|looked| looked.content && !looked.read_by_others)
        else {
            return false;
        };
        looked.identity = written;
        looked.refreshed = true;
        // Whatever reads it later reads the same entries.
        if let Some(id) = written {
            self.files.made.remove(&id.file_id());
        }
        self.paths.take_made(e.path).is_some()
    }

    fn rename(&mut self, e: &Event<'t>, flags: OpenFlags, policy: &Policy) {
        const NO_REPLACE: u16 = 1;
        const EXCHANGE: u16 = 2;
        if flags.has(EXCHANGE) {
            return self.refuse(Unrecorded::UpdatesFile, e.path);
        }
        if flags.has(NO_REPLACE) {
            self.paths.was_absent(e.path2);
        }
        self.made_file_goes(e, policy);
        match self.paths.take_made(e.path) {
            Some(Made::File { mode, writer, .. }) => {
                self.run.date_is_lost |= self.paths.move_attributes(e.path, e.path2);
                self.paths.make(e.path2, Made::File { placement: Placement::Rename, mode, writer, temporary: false });
            }
            Some(Made::Link) => self.paths.make(e.path2, Made::Link),
            // The old output gets the name of a new file, and is written anew under that name.
            None if (policy.rewrites_output)(self.processes.program(e.pid)) && self.paths.is_temporary(e.path2) => {
                self.paths.note_mode(e.path, e.mode);
                self.paths.make(e.path, Made::Removed);
                self.paths.state(e.path).would_be_reused = true;
            }
            None if self.may_be_moved_aside(e) => {
                self.paths.touch(e.path).kind = true;
                self.paths.make(e.path, Made::Removed);
                let mode = FileMode { bits: 0, rule: ModeRule::Set };
                let writer = self.processes.program(e.pid);
                let made = Made::File { placement: Placement::Rename, mode, writer, temporary: false };
                self.paths.make(e.path2, made);
                // The command made the directory, so the path was free.
                self.paths.comes_or_goes(e.path2, false);
                self.run.moved_aside.push(e.path2);
            }
            _ => self.refuse(Unrecorded::UpdatesFile, e.path),
        }
    }

    /// Returns true if a file that existed before the run goes into a directory that the command made.
    /// For example, automake's rules move an old `x.info` aside, make a new one, and remove the
    /// directory. That is as if the file had been removed at once, unless anything else is done with
    /// it: see [`Fold::uses_moved_aside`].
    fn may_be_moved_aside(&self, e: &Event<'t>) -> bool {
        let is_file = self.paths.mode_before(e.path).is_some_and(|mode| file_type(mode) == FileType::File);
        is_file && self.paths.is_below_made(e.path2) && self.paths.made(e.path2).is_none()
    }

    /// Returns true if an event does something with a file that was moved aside, besides removing it.
    pub(super) fn uses_moved_aside(&mut self, e: &Event<'t>) -> bool {
        if self.run.moved_aside.is_empty() {
            return false;
        }
        if e.kind == EventKind::Unlink && e.error == 0 {
            self.run.moved_aside.retain(|path| *path != e.path);
            return false;
        }
        let is_look = matches!(e.kind, EventKind::Stat | EventKind::Lstat | EventKind::Access);
        if is_look && self.processes.program(e.pid) == b"rm" {
            return false;
        }
        let may_be = |path: &[u8], moved: &[u8]| {
            let is_above = moved.strip_prefix(path).is_some_and(|rest| rest.starts_with(b"/"));
            path == moved
                || is_above && matches!(e.kind, EventKind::Rename(_))
                || has_parents(path) && file_name(path) == file_name(moved)
        };
        self.run.moved_aside.iter().any(|moved| may_be(e.path, moved) || may_be(e.path2, moved))
    }

    /// Handles a change of mode. Linkers read the umask and add execute permission to the mode that
    /// the file has.
    fn change_mode(&mut self, e: &Event<'t>, policy: &Policy) {
        let linker = (policy.adds_execute)(self.processes.program(e.pid));
        if !linker && !self.habit(e.pid, policy).reports {
            let is_directory = matches!(self.paths.made(e.path), Some(Made::Directory(_)));
            let modes = self.processes.modes(e.pid);
            modes.sets_files = true;
            modes.sets_directories |= is_directory;
        }
        let rule = if linker { ModeRule::Executable } else { ModeRule::Set };
        let replaces = (policy.unlinks_output)(self.processes.program(e.pid));
        let was_there = self.paths.existed(e.path) == Some(true);
        if !linker && !replaces && was_there && !self.paths.mode_before_is_known(e.path) {
            // The new mode may be derived from the old one.
            return self.refuse(Unrecorded::UpdatesFile, e.path);
        }
        match self.paths.made_mut(e.path) {
            Some(Made::File { mode, .. }) if linker => mode.rule = rule,
            Some(Made::File { mode, .. } | Made::Directory(mode)) => {
                *mode = FileMode { bits: e.extra & 0o7777, rule };
            }
            _ => self.refuse(Unrecorded::UpdatesFile, e.path),
        }
    }
}
