//! Mtimes of directories: which of a program's looks at a directory are for its mtime.
//!
//! Each new name in a directory changes its mtime, and programs that compare mtimes also look at
//! directories for other reasons. So only the looks that [`DirectoryTimes`] describes count.
//!
//! Unaware of: what the mtime is compared with.

use larder_model::{DirectoryTimes, Habit, Times, contains};
use larder_sys::FileType;

use super::process_state::{LastLook, Searched};
use super::{Event, Fold, Policy};
use crate::event::{self, EventKind};

impl<'t> Fold<'t> {
    /// Handles the event after a look: it may show that the look was for the mtime.
    pub(super) fn after_looking(&mut self, e: &Event<'t>) {
        if !self.run.compares_directories {
            return;
        }
        let state = self.processes.state(e.pid);
        let last = state.last_look.take();
        let is_look = matches!(e.kind, EventKind::Stat | EventKind::Lstat) && e.error == 0;
        state.looked_before = last.is_some() && is_look;
        if !is_look && let Some(looks) = state.start_looks.take_if(|looks| !looks.is_empty()) {
            self.compare_in_pairs(&looks);
        }
        let Some(last) = last else { return };
        let counts = match last.how {
            DirectoryTimes::UnlessListed => {
                !(matches!(e.kind, EventKind::List | EventKind::Open(_)) && e.path == last.path)
            }
            DirectoryTimes::InPairs => last.is_second || is_look,
        };
        if counts {
            self.compare_directory(last);
        }
    }

    /// Notes a `stat` of something that the command did not make, by a program that compares mtimes.
    pub(super) fn note_look(&mut self, e: &Event<'t>, habit: Habit) {
        let is_directory = e.file_type() == FileType::Directory;
        let modified_ns = e.identity.filter(|_| is_directory).map(|identity| identity.modified_ns);
        let is_second = self.processes.state(e.pid).looked_before;
        if habit.reports && e.extra == event::REPORTED_COMPARED {
            let how = DirectoryTimes::UnlessListed;
            self.compare_directory(LastLook { path: e.path, modified_ns, how, is_second });
        }
        let Some(how) = habit.directories else { return };
        self.run.compares_directories = true;
        let mut look = LastLook { path: e.path, modified_ns, how, is_second };
        let state = self.processes.state(e.pid);
        if how == DirectoryTimes::InPairs
            && let Some(mut looks) = state.start_looks.take()
        {
            match checks_working_directory(&looks, e.path) {
                Some(true) => return,
                Some(false) => {
                    looks.push(look);
                    state.start_looks = Some(looks);
                    return;
                }
                None => {
                    look.is_second = true;
                    looks.push(look);
                    self.compare_in_pairs(&looks);
                }
            }
        }
        self.processes.state(e.pid).last_look = Some(look);
    }

    /// Handles consecutive looks by a program that looks at two files to compare their mtimes.
    fn compare_in_pairs(&mut self, looks: &[LastLook<'t>]) {
        if looks.len() > 1 {
            looks.iter().for_each(|look| self.compare_directory(*look));
        }
    }

    /// Notes a `stat` of a directory by a Python to which all times matter. It may be part of an
    /// import, for which the times of directories do not count.
    pub(super) fn note_search(&mut self, e: &Event<'t>) {
        self.run.searches_modules = true;
        let searched = &mut self.processes.state(e.pid).searched;
        match searched {
            Some(searched) => searched.looks += 1,
            None => *searched = Some(Searched { path: e.path, looks: 1, is_listed: false }),
        }
    }

    /// Handles the event after a Python looked at a directory. For each import, Python looks once at
    /// each directory of its search path, the first time twice more, and lists the directory if it
    /// has changed. If the module is not there, Python looks at the directory of its standard library
    /// next. If the module is there, Python looks at its source and opens the compiled code. A script
    /// that looks at the directory for its times does none of that right afterwards.
    pub(super) fn after_searching(&mut self, e: &Event<'t>, policy: &Policy) {
        if !self.run.searches_modules {
            return;
        }
        let program = self.processes.runs(e.pid).program;
        let state = self.processes.state(e.pid);
        let Some(Searched { path, looks, is_listed }) = &mut state.searched else { return };
        let is_below = || e.path.strip_prefix(*path).is_some_and(|rest| rest.starts_with(b"/"));
        let imports = match e.kind {
            EventKind::Stat if e.path == *path && e.error == 0 && !*is_listed => return,
            EventKind::Stat if is_below() && e.path.ends_with(b".py") => return,
            EventKind::List | EventKind::Open(_) if e.path == *path && e.error == 0 => {
                *is_listed = true;
                return;
            }
            EventKind::Stat => e.file_type() == FileType::Directory && (policy.is_standard_library)(program, e.path),
            EventKind::Open(_) => is_below() && contains(e.path, "/__pycache__/"),
            _ => false,
        };
        let is_first = *is_listed && !state.searched_before.contains(path);
        let (path, is_search) = (*path, imports && (*looks == 1 || *looks == 3 && is_first));
        if is_first {
            state.searched_before.push(path);
        }
        state.searched = None;
        if !is_search {
            self.paths.touch(path).times = Times::Status;
        }
    }

    /// Handles the looks that were the last events of their processes.
    pub(super) fn finish_looks(&mut self) {
        for path in self.processes.take_searched() {
            self.paths.touch(path).times = Times::Status;
        }
        for looks in self.processes.take_start_looks() {
            self.compare_in_pairs(&looks);
        }
        for last in self.processes.take_last_looks() {
            if last.how == DirectoryTimes::UnlessListed || last.is_second {
                self.compare_directory(last);
            }
        }
    }

    fn compare_directory(&mut self, last: LastLook<'t>) {
        let Some(modified_ns) = last.modified_ns else { return };
        // The first look counts. The command may have changed the directory since.
        self.paths.touch(last.path).directory_ns.get_or_insert(modified_ns);
    }
}

/// Returns true if a look at `path` completes the looks with which bash checks `PWD` when it starts,
/// false if it continues them, and `None` if it does neither. bash looks at that directory and at
/// `.`, and then at each directory on the way to it, from the top down (`sh_canonpath`).
fn checks_working_directory(looks: &[LastLook], path: &[u8]) -> Option<bool> {
    let directory = match looks {
        [] => return Some(false),
        [first] => return (path.strip_suffix(b"/") == Some(first.path)).then_some(false),
        [first, ..] => first.path,
    };
    let before = looks[2..].last().map_or(&b""[..], |look| look.path);
    let name = directory.strip_prefix(before)?.strip_prefix(b"/")?;
    let end = name.iter().position(|byte| *byte == b'/').unwrap_or(name.len());
    let next = &directory[..before.len() + 1 + end];
    (path == next).then_some(next == directory)
}
