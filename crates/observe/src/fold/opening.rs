//! Opening files: reading them, and making or writing them, including temporary files.
//!
//! Unaware of: what happens to a file after it was opened.

use larder_model::{FileMode, Habit, Looked, ModeRule, Placement, Times, Unrecorded, is_name_of_tempfile};

use super::{Event, Fold, Made, Policy};
use crate::event::{self, Kind, OpenFlags};
use crate::paths::{file_name, parent};

impl<'t> Fold<'t> {
    pub(super) fn open(&mut self, e: &Event<'t>, flags: OpenFlags, policy: &Policy) {
        let writes = flags.has(OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::TRUNCATE | OpenFlags::APPEND);
        if matches!(e.path, b"/dev/urandom" | b"/dev/random") {
            return self.clock_or_random(&Event { kind: Kind::Random, ..e.clone() }, policy);
        }
        if self.ignored(e.path) || e.path == b"/dev/tty" && self.habit(e.pid, policy).tries_terminal {
            return;
        }
        if e.error != 0 {
            return self.open_failed(e, flags, writes, policy);
        }
        if flags.has(OpenFlags::PATH_ONLY) || flags.has(OpenFlags::DIRECTORY) || e.mode >> 12 == 0o04 {
            // From now on, the program may find paths below it by its resolved path.
            return self.look(&Event { kind: Kind::RealPath, ..e.clone() }, policy);
        }
        if !writes {
            self.opened.entry(e.pid).or_default().push(e.path);
            self.opened_for_child.entry(e.pid).or_default().push(e.path);
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
                self.no_temporary_directory |= flags.has(OpenFlags::EXCLUSIVE | OpenFlags::TEMPORARY);
                if let Some(directory) = parent(e.path) {
                    self.touch(directory).absent = true;
                }
            }
            // The program would have read the file. What is made there later is another file.
            libc::ENOENT => {
                self.touch(e.path).absent = true;
                // The path may be that of an old output, which the program would have unlinked.
                if !(policy.opens_output)(self.program(e.pid)) {
                    self.must_be_absent.insert(e.path);
                }
            }
            libc::EEXIST if writes => self.touch(e.path).kind = true,
            _ if writes => self.refuse(Unrecorded::WriteFailed, e.path),
            errno => self.touch(e.path).failed = Some((1, errno as u32)),
        }
    }

    fn open_for_writing(&mut self, e: &Event<'t>, flags: OpenFlags, policy: &Policy) {
        match e.mode >> 12 {
            0o10 | 0 => {}
            _ => return self.refuse(Unrecorded::OutputSpecial, e.path),
        }
        if flags.has(OpenFlags::READ) {
            self.read_again.extend(e.identity.map(|id| (id.device, id.inode)));
        }
        if self.is_made(e) && !matches!(self.made.get(e.path), None | Some(Made::Removed)) {
            return;
        }
        // The path leads to the file through a link, which may lead elsewhere in the next run.
        if self.leading.contains(e.path) {
            return self.refuse(Unrecorded::UpdatesFile, e.path);
        }
        let fresh = flags.has(OpenFlags::EXCLUSIVE) || flags.has(OpenFlags::TRUNCATE);
        let empty = e.identity.is_some_and(|id| id.size_bytes == 0) && !flags.has(OpenFlags::APPEND);
        if !fresh && flags.has(OpenFlags::NEW) {
            self.was_absent(e.path);
        } else if !fresh && empty {
            let looked = self.touch(e.path);
            looked.content = true;
            looked.identity = looked.identity.or(e.identity);
        } else if !fresh {
            // The whole new content is recorded, so the old content must be known as well.
            if e.identity.as_ref().and_then(|opened| (policy.before)(opened)).is_none() {
                return self.refuse(Unrecorded::UpdatesFile, e.path);
            }
            let looked = self.touch(e.path);
            looked.content = true;
            looked.identity = looked.identity.or(e.identity);
        }
        let new = flags.has(OpenFlags::NEW | OpenFlags::EXCLUSIVE);
        if flags.has(OpenFlags::EXCLUSIVE) {
            self.made_by_its_name(e, policy);
        }
        self.name(e.path, !new);
        let Habit { reports, times, .. } = self.habit(e.pid, policy);
        // In a report of a nested wrapper, the mode is that of the new file and not of the file
        // before.
        if !new && !reports {
            self.note_mode(e.path, e.mode);
        }
        // The file is an input that is not empty and was not unlinked. For example, `objcopy` of
        // binutils 2.35 writes in this way to a file that has several names.
        let is_input = |l: &Looked| l.content && l.identity.is_some_and(|id| id.size_bytes > 0);
        if !flags.has(OpenFlags::CREATE) || !new && self.looked.get(e.path).is_some_and(is_input) {
            self.in_place.insert(e.path);
        }
        let removed = matches!(self.made.get(e.path), Some(Made::Removed)) || self.unlinked.contains(e.path);
        let placement =
            if removed || flags.has(OpenFlags::EXCLUSIVE) { Placement::Unlink } else { Placement::Truncate };
        let mode = FileMode { bits: e.extra & 0o7777, rule: ModeRule::Masked };
        let reported = if reports { event::output_reported(e.extra) } else { None };
        let (placement, mode) = reported.unwrap_or((placement, mode));
        if !reports && (times == Times::Mode || !matches!(mode.bits, 0o600 | 0o666 | 0o777)) {
            self.gives_modes.insert(self.life(e.pid));
        }
        let temporary = flags.has(OpenFlags::TEMPORARY) || flags.has(OpenFlags::EXCLUSIVE);
        if temporary && let Some(directory) = parent(e.path) {
            self.temporary_places.insert(directory);
        }
        if temporary {
            self.authors.insert(e.path, self.who.runs(e.pid));
        }
        let writer = self.program(e.pid);
        self.make(e.path, Made::File { placement, mode, writer, temporary });
        if let Some(id) = e.identity {
            self.made_inodes.insert((id.device, id.inode));
            if (policy.is_log)(e.path) {
                self.logs.insert((id.device, id.inode), e.path);
            }
        }
    }

    /// Handles something that was made by a call that requires that the path does not exist.
    pub(super) fn made_by_its_name(&mut self, e: &Event<'t>, policy: &Policy) {
        let at_random = self.named_at_random.remove(&e.pid) || self.habit(e.pid, policy).names_at_random;
        let temporary = self.is_temporary_name(e, policy);
        if at_random || temporary && !self.runs_a_compiler_part(e.pid, policy) {
            self.temporary_names.insert(e.path);
            self.random_names.push(e.path);
        } else if temporary || self.is_of_tempfile(e, policy) {
            self.temporary_names.insert(e.path);
        } else {
            self.was_absent(e.path);
        }
    }

    /// Returns true if libc made up the name at random, so that it tells nothing about the next
    /// run. All temporary names of compiler parts are like that.
    fn is_temporary_name(&self, e: &Event, policy: &Policy) -> bool {
        const NAMED_BY_LIBC: u16 = OpenFlags::TEMPORARY;
        let flags = if let Kind::Open(flags) = e.kind { flags } else { OpenFlags(0) };
        flags.has(NAMED_BY_LIBC) || self.runs_a_compiler_part(e.pid, policy)
    }

    /// Returns true if the name looks like one of Python's `tempfile` and is outside of the places
    /// for outputs, so that no other program will look for it.
    fn is_of_tempfile(&mut self, e: &Event, policy: &Policy) -> bool {
        is_name_of_tempfile(file_name(e.path))
            && !(policy.may_write)(e.path)
            && self.habit(e.pid, policy).names_as_tempfile
    }
}
