//! Opening files: reading them, and making or writing them, including temporary files.
//!
//! Unaware of: what happens to a file after it was opened.

use larder_model::path::{file_name, parent, without_slashes};
use larder_model::{FileMode, Habit, Looked, ModeRule, Placement, Times, Unrecorded, is_name_of_tempfile};
use larder_sys::FileType;

use super::path_state::Made;
use super::{Event, Fold, Policy};
use crate::event::{self, EventKind, OpenFlags};

impl<'t> Fold<'t> {
    /// Returns true if an event is about a path for which [`Policy::is_private`] holds. A link from
    /// such a path to an output, or the reverse, leaves the output as it is.
    pub(super) fn is_private(&mut self, e: &Event<'t>, policy: &Policy) -> bool {
        let is_at = |path: &[u8]| path.starts_with(b"/") && (policy.is_private)(path);
        if e.kind == EventKind::Symlink {
            return is_at(e.path2);
        }
        let is_new = matches!(e.kind, EventKind::Link | EventKind::Rename(_)) && is_at(e.path2);
        if !is_new && !is_at(e.path) || is_at(e.path) && matches!(e.kind, EventKind::Link) && !is_at(e.path2) {
            return false;
        }
        if let EventKind::Open(flags) = e.kind {
            if flags.has(OpenFlags::CREATE | OpenFlags::NEW | OpenFlags::WRITE) {
                self.run.private_files.insert(e.path);
            } else if e.error == 0 && e.file_type() == FileType::File && !self.run.private_files.contains(e.path) {
                self.refuse(Unrecorded::UpdatesFile, e.path);
            }
        }
        true
    }

    pub(super) fn open(&mut self, e: &Event<'t>, flags: OpenFlags, policy: &Policy) {
        let writes = flags.has(OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::TRUNCATE | OpenFlags::APPEND);
        if matches!(e.path, b"/dev/urandom" | b"/dev/random") {
            return self.clock_or_random(&Event { kind: EventKind::Random, ..e.clone() }, policy);
        }
        if self.ignored(e.path) || e.path == b"/dev/tty" && self.habit(e.pid, policy).tries_terminal {
            return;
        }
        if !writes && self.is_object_of_git(e, policy) {
            return;
        }
        if e.error != 0 {
            return self.open_failed(e, flags, writes, policy);
        }
        if flags.has(OpenFlags::PATH_ONLY) || flags.has(OpenFlags::DIRECTORY) || e.file_type() == FileType::Directory {
            // From now on, the program may find paths below it by its resolved path.
            return self.look(&Event { kind: EventKind::RealPath, ..e.clone() }, policy);
        }
        if !writes {
            let process = self.processes.state(e.pid);
            process.opened.push(e.path);
            process.opened_for_child.push(e.path);
            return self.read(e, false, policy);
        }
        self.open_for_writing(e, flags, policy);
    }

    fn open_failed(&mut self, e: &Event<'t>, flags: OpenFlags, writes: bool, policy: &Policy) {
        if self.is_made(e) {
            return;
        }
        match e.error {
            // A file could not be created, so its directory does not exist.
            libc::ENOENT if flags.has(OpenFlags::CREATE) => {
                self.run.no_temporary_directory |= flags.has(OpenFlags::EXCLUSIVE | OpenFlags::TEMPORARY);
                if let Some(directory) = parent(e.path) {
                    self.paths.touch(directory).absent = true;
                }
            }
            // The program would have read the file. What is made there later is another file.
            libc::ENOENT => {
                self.paths.state(e.path).is_followed = true;
                self.paths.touch(e.path).absent = true;
                // The path may be that of an old output, which the program would have unlinked.
                if !(policy.opens_output)(self.processes.program(e.pid)) {
                    self.paths.state(e.path).must_be_absent = true;
                }
            }
            libc::EEXIST if writes => self.paths.touch(e.path).kind = true,
            // With a slash at its end no path can be created, and it does not matter what is there.
            libc::EISDIR if flags.has(OpenFlags::CREATE) && e.path.ends_with(b"/") => {
                if let Some(directory) = parent(without_slashes(e.path)) {
                    self.paths.touch(directory).kind = true;
                }
            }
            libc::EISDIR if writes => self.paths.touch(e.path).kind = true,
            _ if writes => self.refuse(Unrecorded::WriteFailed, e.path),
            libc::ENOTDIR => {
                self.paths.state(e.path).is_followed = true;
                self.paths.note_no_directory(e.path);
            }
            errno => {
                self.paths.state(e.path).is_followed = true;
                self.paths.touch(e.path).failed = Some((1, errno as u32));
            }
        }
    }

    /// Handles a successful open for writing.
    fn open_for_writing(&mut self, e: &Event<'t>, flags: OpenFlags, policy: &Policy) {
        if !matches!(e.file_type(), FileType::File | FileType::Other(0)) {
            return self.refuse(Unrecorded::OutputSpecial, e.path);
        }
        if flags.has(OpenFlags::READ) {
            self.files.read_again.extend(e.identity.map(|id| id.file_id()));
        }
        if self.is_made(e) && !matches!(self.paths.made(e.path), None | Some(Made::Removed)) {
            // For example, a script adds a line to a depfile that the compiler wrote.
            let adds = !self.processes.runs_a_compiler_part(e.pid, policy) && !self.habit(e.pid, policy).reports;
            self.paths.state(e.path).is_added_to |= adds;
            return;
        }
        // The path leads to the file through a link, which may lead elsewhere in the next run.
        if self.paths.looked(e.path).is_some_and(|looked| looked.leads) {
            return self.refuse(Unrecorded::UpdatesFile, e.path);
        }
        let is_fresh = flags.has(OpenFlags::EXCLUSIVE) || flags.has(OpenFlags::TRUNCATE);
        if !is_fresh && !self.note_old_content(e, flags, policy) {
            return self.refuse(Unrecorded::UpdatesFile, e.path);
        }
        let new = flags.has(OpenFlags::NEW | OpenFlags::EXCLUSIVE);
        if flags.has(OpenFlags::EXCLUSIVE) {
            self.made_by_its_name(e, policy);
        }
        self.paths.comes_or_goes(e.path, !new);
        let Habit { reports, times, .. } = self.habit(e.pid, policy);
        // In a report of a nested wrapper, the mode is that of the new file and not of the file
        // before.
        if !new && !reports {
            self.paths.note_mode(e.path, e.mode);
        }
        // The file is an input that is not empty and was not unlinked. For example, `objcopy` of
        // binutils 2.35 writes in this way to a file that has several names.
        let is_input = |l: &Looked| l.content && l.identity.is_some_and(|id| id.size_bytes > 0);
        if !flags.has(OpenFlags::CREATE) || !new && self.paths.looked(e.path).is_some_and(is_input) {
            self.paths.state(e.path).is_written_in_place = true;
        }
        // Assemblers and linkers read in the output that they unlink. They only write to others,
        // which they do not unlink: maps, listings and depfiles.
        if !reports && !flags.has(OpenFlags::READ) && (policy.unlinks_output)(self.processes.program(e.pid)) {
            self.paths.state(e.path).is_written_in_place = true;
        }
        let removed = self.paths.state(e.path).is_removed();
        let placement =
            if removed || flags.has(OpenFlags::EXCLUSIVE) { Placement::Unlink } else { Placement::Truncate };
        let mode = FileMode { bits: e.extra & 0o7777, rule: ModeRule::Masked };
        let reported = if reports { event::output_reported(e.extra) } else { None };
        let (placement, mode) = reported.unwrap_or((placement, mode));
        if !reports && (times == Times::Mode || !matches!(mode.bits, 0o600 | 0o666 | 0o777)) {
            self.processes.modes(e.pid).sets_files = true;
        }
        let temporary = flags.has(OpenFlags::TEMPORARY) || flags.has(OpenFlags::EXCLUSIVE);
        if temporary && let Some(directory) = parent(e.path) {
            self.paths.state(directory).holds_temporary_files = true;
        }
        if temporary {
            self.paths.state(e.path).author = Some(self.processes.runs(e.pid));
        }
        let writer = self.processes.program(e.pid);
        self.paths.make(e.path, Made::File { placement, mode, writer, temporary });
        self.paths.state(e.path).written = e.identity;
        if let Some(id) = e.identity {
            self.files.made.insert(id.file_id());
            if (policy.is_log)(e.path) {
                self.files.logs.insert(id.file_id(), e.path);
            }
        }
    }

    /// Notes the content that a file had when it was opened to be changed. The whole new content is
    /// recorded, so the old content is an input. Returns false if the old content is not known.
    fn note_old_content(&mut self, e: &Event<'t>, flags: OpenFlags, policy: &Policy) -> bool {
        if flags.has(OpenFlags::NEW) {
            self.paths.was_absent(e.path);
            return true;
        }
        let is_empty = e.identity.is_some_and(|id| id.size_bytes == 0) && !flags.has(OpenFlags::APPEND);
        if !is_empty && e.identity.as_ref().and_then(|opened| (policy.before)(opened)).is_none() {
            return false;
        }
        let looked = self.paths.touch(e.path);
        looked.content = true;
        looked.identity = looked.identity.or(e.identity);
        true
    }

    /// Handles something that was made by a call that requires that the path does not exist.
    pub(super) fn made_by_its_name(&mut self, e: &Event<'t>, policy: &Policy) {
        let draws_a_name = std::mem::take(&mut self.processes.state(e.pid).draws_a_name);
        let at_random = draws_a_name || self.habit(e.pid, policy).names_at_random;
        let temporary = self.is_temporary_name(e, policy);
        if at_random || temporary && !self.processes.runs_a_compiler_part(e.pid, policy) {
            self.paths.state(e.path).is_named_at_random = true;
            self.paths.random_names.push(e.path);
        } else if temporary || self.is_of_tempfile(e, policy) {
            self.paths.state(e.path).is_named_at_random = true;
        } else {
            self.paths.was_absent(e.path);
        }
    }

    /// Returns true if libc made up the name at random, so that it tells nothing about the next
    /// run. All temporary names of compiler parts are like that.
    fn is_temporary_name(&self, e: &Event, policy: &Policy) -> bool {
        const NAMED_BY_LIBC: u16 = OpenFlags::TEMPORARY;
        let flags = if let EventKind::Open(flags) = e.kind { flags } else { OpenFlags(0) };
        flags.has(NAMED_BY_LIBC) || self.processes.runs_a_compiler_part(e.pid, policy)
    }

    /// Returns true if the name looks like one of Python's `tempfile` and is outside of the places
    /// for outputs, so that no other program will look for it.
    fn is_of_tempfile(&mut self, e: &Event, policy: &Policy) -> bool {
        is_name_of_tempfile(file_name(e.path))
            && !(policy.may_write)(e.path)
            && self.habit(e.pid, policy).names_as_tempfile
    }
}
