//! Changes: paths that come and go, modes, owners and times.
//!
//! Unaware of: the content of files.

use larder_model::{FileMode, ModeRule, Placement, Times, Unrecorded};

use super::{Event, Fold, Made, Policy};
use crate::event::{Kind, OpenFlags};

impl<'t> Fold<'t> {
    /// Notes that a path comes or goes. Only whether it existed before the first change counts.
    pub(super) fn name(&mut self, path: &'t [u8], existed: bool) {
        self.names.entry(path).or_insert(existed);
    }

    pub(super) fn make(&mut self, path: &'t [u8], made: Made<'t>) {
        if !self.made.contains_key(path) {
            self.made_order.push(path);
        }
        self.made_directories |= matches!(made, Made::Directory(_));
        self.made.insert(path, made);
    }

    pub(super) fn change(&mut self, e: &Event<'t>, policy: &Policy) {
        if self.ignored(e.path) {
            return;
        }
        if e.error != 0 {
            return self.change_failed(e);
        }
        match e.kind {
            Kind::RemoveDirectory if !self.is_made(e) => self.refuse(Unrecorded::UpdatesFile, e.path),
            Kind::Unlink | Kind::RemoveDirectory => {
                self.unlink(e, policy);
                self.name(e.path, true);
            }
            Kind::Rename(flags) => {
                self.rename(e, flags, policy);
                self.name(e.path, true);
                self.name(e.path2, !flags.has(OpenFlags::NEW));
            }
            Kind::Symlink => {
                self.made_by_its_name(&Event { path: e.path2, path2: b"", ..e.clone() }, policy);
                self.name(e.path2, false);
                self.make(e.path2, Made::Link);
            }
            Kind::MakeDirectory => {
                self.made_by_its_name(e, policy);
                self.name(e.path, false);
                let mode = FileMode { bits: e.extra & 0o7777, rule: ModeRule::Masked };
                let habit = self.habit(e.pid, policy);
                if !habit.reports && (habit.times == Times::Mode || !matches!(mode.bits, 0o700 | 0o777)) {
                    self.gives_directory_modes.insert(self.life(e.pid));
                }
                self.make(e.path, Made::Directory(mode));
            }
            Kind::ChangeMode => self.change_mode(e, policy),
            Kind::MakeNode => self.refuse(Unrecorded::OutputSpecial, e.path),
            // The file's mtime is set to the present time, which it already is.
            Kind::SetTimes if e.extra == 1 && matches!(self.made.get(e.path), Some(Made::File { .. })) => {}
            Kind::SetTimes if matches!(self.made.get(e.path), Some(Made::File { .. })) => {
                self.dated.insert(e.path);
            }
            // The mtimes of directories and links are never compared. A file that is made later in
            // a directory would change its mtime again.
            Kind::SetTimes if matches!(self.made.get(e.path), Some(Made::Directory(_) | Made::Link)) => {}
            Kind::Truncate if self.is_temporary(e.path) => {}
            // The new owner and attributes are read at the end of the run.
            Kind::ChangeOwner | Kind::SetAttribute if self.may_be_given(e) => {
                self.owners_set = true;
                if e.kind == Kind::SetAttribute && matches!(self.made.get(e.path), Some(Made::File { .. })) {
                    self.attributed.insert(e.path);
                }
                if !self.habit(e.pid, policy).reports {
                    self.gives_modes.insert(self.life(e.pid));
                }
            }
            _ => self.refuse(Unrecorded::UpdatesFile, e.path),
        }
    }

    fn change_failed(&mut self, e: &Event<'t>) {
        match (e.kind, e.error) {
            _ if self.is_made(e) && e.error == libc::ENOENT => {}
            // The command itself has renamed or removed what it had made there.
            (Kind::Rename(_), libc::ENOENT) if self.names.contains_key(e.path) => {}
            // The new path exists, so its directory does. So the old path does not exist.
            (Kind::Rename(_), libc::ENOENT) if self.is_temporary(e.path2) => {
                self.touch(e.path).absent = true;
                self.reused.insert(e.path);
            }
            (Kind::Unlink | Kind::RemoveDirectory | Kind::ChangeMode, libc::ENOENT) => {
                if e.kind == Kind::Unlink {
                    self.unlinked.insert(e.path);
                }
                self.touch(e.path).absent = true;
            }
            (Kind::MakeDirectory, libc::EEXIST) => self.touch(e.path).kind = true,
            // The call was asked not to replace an existing path.
            (Kind::Rename(_) | Kind::Symlink | Kind::Link, libc::EEXIST) => {
                if !self.made.contains_key(e.path2) {
                    let looked = self.touch(e.path2);
                    (looked.kind, looked.link) = (true, true);
                }
                // The kernel looked up the old path first, so it exists.
                if e.kind != Kind::Symlink && !self.made.contains_key(e.path) {
                    let looked = self.touch(e.path);
                    (looked.kind, looked.link) = (true, true);
                }
            }
            _ => self.refuse(Unrecorded::WriteFailed, e.path),
        }
    }

    /// Returns true if the command may set owners or attributes of this path.
    fn may_be_given(&mut self, e: &Event<'t>) -> bool {
        match self.made.get(e.path) {
            Some(Made::File { temporary: true, .. } | Made::Directory(_) | Made::Link) => true,
            // `ar` of binutils before 2.37 gives a new archive the owner that it has already.
            Some(Made::File { .. }) if e.kind == Kind::ChangeOwner => self.names.get(e.path) == Some(&false),
            Some(Made::File { .. }) => e.kind == Kind::SetAttribute && self.mode_before_is_known(e.path),
            _ => false,
        }
    }

    /// Returns true if the earlier mode of a file that the command wrote cannot matter because the
    /// file is new, or if that mode is known. In the second case the mode becomes an observation.
    fn mode_before_is_known(&mut self, path: &'t [u8]) -> bool {
        let Some(Made::File { placement, .. }) = self.made.get(path) else { return false };
        let anew = matches!(placement, Placement::Unlink | Placement::Rename);
        if anew || self.names.get(path) == Some(&false) {
            return true;
        }
        let known = self.modes.get(path).is_some_and(|mode| mode >> 12 == 0o10 && mode & 0o7777 != 0);
        if known {
            let looked = self.touch(path);
            looked.kind = true;
            looked.times = looked.times.max(Times::Mode);
        }
        known
    }

    /// Notes the mode that a path had before the command changed it.
    pub(super) fn note_mode(&mut self, path: &'t [u8], mode: u32) {
        if mode == 0 {
            return;
        }
        let noted = self.modes.entry(path).or_insert(mode);
        if *noted & 0o7777 == 0 && *noted >> 12 == mode >> 12 {
            *noted = mode;
        }
    }

    fn is_temporary(&self, path: &[u8]) -> bool {
        matches!(self.made.get(path), Some(Made::File { temporary: true, .. }))
    }

    /// Notes that the path did not exist before the run.
    pub(super) fn was_absent(&mut self, path: &'t [u8]) {
        if !self.names.contains_key(path) {
            self.touch(path).absent = true;
            self.must_be_absent.insert(path);
        }
    }

    /// Handles a file or link that the command made and that loses this path. If a file existed
    /// there before the run, the run is refused, unless the program is known to replace outputs.
    /// That file would be lost as well, and its other hard links would have been written to.
    fn made_file_goes(&mut self, e: &Event<'t>, policy: &Policy) {
        let replaces = match self.made.get(e.path) {
            Some(Made::File { writer, .. }) => (policy.replaces_output)(writer),
            Some(Made::Link) => false,
            _ => return,
        };
        match self.names.get(e.path) {
            Some(false) if !self.temporary_names.contains(e.path) => self.touch(e.path).absent = true,
            Some(true) if !replaces => self.refuse(Unrecorded::UpdatesFile, e.path),
            _ => {}
        }
    }

    fn unlink(&mut self, e: &Event<'t>, policy: &Policy) {
        self.made_file_goes(e, policy);
        if self.first_read.get(&e.pid) == Some(&e.path) && (policy.opens_output)(self.program(e.pid)) {
            // It was opened only to be unlinked.
            self.touch(e.path).content = false;
        }
        self.date_is_lost |= self.dated.remove(e.path);
        self.attributed.remove(e.path);
        // A file that the command made and removed does not count, unless something existed there
        // before.
        let before = self.looked.get(e.path).is_some_and(|l| l.absent) || self.is_temporary(e.path);
        match self.made.get(e.path) {
            Some(Made::File { placement: Placement::Truncate, .. }) if !before => self.make(e.path, Made::Removed),
            Some(Made::Removed) => {}
            Some(_) => {
                self.made.remove(e.path);
            }
            // The path is a dangling link: a stat said that it does not exist. The next run would
            // find it gone.
            None if before => self.refuse(Unrecorded::OutputSpecial, e.path),
            None => {
                self.note_mode(e.path, if e.mode == 0 { 0o10 << 12 } else { e.mode });
                if !self.runs_a_compiler_part(e.pid, policy) {
                    self.touch(e.path).kind = true;
                }
                self.make(e.path, Made::Removed);
            }
        }
    }

    fn rename(&mut self, e: &Event<'t>, flags: OpenFlags, policy: &Policy) {
        const NO_REPLACE: u16 = 1;
        const EXCHANGE: u16 = 2;
        if flags.has(EXCHANGE) {
            return self.refuse(Unrecorded::UpdatesFile, e.path);
        }
        if flags.has(NO_REPLACE) {
            self.was_absent(e.path2);
        }
        self.made_file_goes(e, policy);
        match self.made.remove(e.path) {
            Some(Made::File { mode, writer, .. }) => {
                self.date_is_lost |= self.dated.remove(e.path2);
                if self.dated.remove(e.path) {
                    self.dated.insert(e.path2);
                }
                self.attributed.remove(e.path2);
                if self.attributed.remove(e.path) {
                    self.attributed.insert(e.path2);
                }
                self.make(e.path2, Made::File { placement: Placement::Rename, mode, writer, temporary: false });
            }
            Some(Made::Link) => self.make(e.path2, Made::Link),
            // The old output gets the name of a new file, and is written anew under that name.
            None if (policy.rewrites_output)(self.program(e.pid)) && self.is_temporary(e.path2) => {
                self.note_mode(e.path, e.mode);
                self.make(e.path, Made::Removed);
                self.reused.insert(e.path);
            }
            _ => self.refuse(Unrecorded::UpdatesFile, e.path),
        }
    }

    /// Handles a change of mode. Linkers read the umask and add execute permission to the mode that
    /// the file has.
    fn change_mode(&mut self, e: &Event<'t>, policy: &Policy) {
        let linker = (policy.adds_execute)(self.program(e.pid));
        if !linker && !self.habit(e.pid, policy).reports {
            let life = self.life(e.pid);
            self.gives_modes.insert(life);
            if matches!(self.made.get(e.path), Some(Made::Directory(_))) {
                self.gives_directory_modes.insert(life);
            }
        }
        let rule = if linker { ModeRule::Executable } else { ModeRule::Set };
        let replaces = (policy.unlinks_output)(self.program(e.pid));
        let was_there = self.names.get(e.path) == Some(&true);
        if !linker && !replaces && was_there && !self.mode_before_is_known(e.path) {
            // The new mode may be derived from the old one.
            return self.refuse(Unrecorded::UpdatesFile, e.path);
        }
        match self.made.get_mut(e.path) {
            Some(Made::File { mode, .. }) if linker => mode.rule = rule,
            Some(Made::File { mode, .. } | Made::Directory(mode)) => {
                *mode = FileMode { bits: e.extra & 0o7777, rule };
            }
            _ => self.refuse(Unrecorded::UpdatesFile, e.path),
        }
    }
}
