//! Mtimes of directories: which of a program's looks at a directory are for its mtime.
//!
//! Each new name in a directory changes its mtime, and programs that compare mtimes also look at
//! directories for other reasons. So only the looks that [`DirectoryTimes`] describes count.
//!
//! Unaware of: what the mtime is compared with.

use larder_model::path::{names, parent};
use larder_model::{DirectoryChecks, DirectoryTimes, Habit, Times, contains};
use larder_sys::FileType;

use super::process_state::{LastLook, Searched};
use super::{Event, Fold, Policy};
use crate::event::{self, EventKind, HAS_OLDPWD, HAS_PWD, OpenFlags};

impl<'t> Fold<'t> {
    /// Handles the event after a look: it may show that the look was for the mtime.
    pub(super) fn after_looking(&mut self, e: &Event<'t>, policy: &Policy) {
        if matches!(e.kind, EventKind::Stat | EventKind::Lstat)
            && e.error == 0
            && let Some(DirectoryTimes::InPairs(_)) = self.habit(e.pid, policy).directories
        {
            self.run.compares_directories = true;
            let look = LastLook { path: e.path, modified_ns: None, is_input: false };
            return self.processes.state(e.pid).looks.push(look);
        }
        let state = self.processes.state(e.pid);
        if matches!(e.kind, EventKind::Stat | EventKind::Lstat) && state.looks.is_empty() {
            // A look that fails may be the first one of a shell.
            state.start_bits = 0;
        }
        if !self.run.compares_directories {
            return;
        }
        let is_change_of_directory = matches!(e.kind, EventKind::Open(flags) if flags.has(OpenFlags::PATH_ONLY) && flags.has(OpenFlags::DIRECTORY));
        self.looks_end(e.pid, (is_change_of_directory && e.error == 0).then_some(e.path), policy);
        if let Some(last) = self.processes.state(e.pid).last_look.take() {
            let is_listed = matches!(e.kind, EventKind::List | EventKind::Open(_)) && e.path == last.path;
            if !is_listed {
                self.compare_directory(last);
            }
        }
    }

    /// Notes a `stat` of something that the command did not make, by a program that compares mtimes.
    pub(super) fn note_look(&mut self, e: &Event<'t>, habit: Habit) {
        let is_directory = e.file_type() == FileType::Directory;
        let modified_ns = e.identity.filter(|_| is_directory).map(|identity| identity.modified_ns);
        let look = LastLook { path: e.path, modified_ns, is_input: true };
        if habit.reports && e.extra == event::REPORTED_COMPARED {
            self.compare_directory(look);
        }
        let state = self.processes.state(e.pid);
        match habit.directories {
            Some(DirectoryTimes::UnlessListed) => {
                state.last_look = Some(look);
                self.run.compares_directories = true;
            }
            Some(DirectoryTimes::InPairs(_)) => {
                state.looks.pop();
                state.looks.push(look);
            }
            None => {}
        }
    }

    /// Handles the end of consecutive looks by a program that looks at two files to compare their
    /// mtimes. `changes_to` is the directory to which the process changes next, if it does.
    fn looks_end(&mut self, pid: u32, changes_to: Option<&[u8]>, policy: &Policy) {
        let state = self.processes.state(pid);
        let looks = std::mem::take(&mut state.looks);
        if looks.is_empty() {
            return;
        }
        let start_bits = std::mem::take(&mut state.start_bits);
        let Some(DirectoryTimes::InPairs(checks)) = self.habit(pid, policy).directories else { return };
        let mut rest = after_start(&looks, start_bits, checks);
        if let Some(directory) = changes_to {
            rest = before_change(rest, directory, checks);
        }
        for (at, look) in rest.iter().enumerate() {
            if at + 1 < rest.len() || at > 0 && rest[at - 1].is_input {
                self.compare_directory(*look);
            }
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
    pub(super) fn finish_looks(&mut self, policy: &Policy) {
        for path in self.processes.take_searched() {
            self.paths.touch(path).times = Times::Status;
        }
        for pid in self.processes.have_looked_last() {
            self.looks_end(pid, None, policy);
            if let Some(last) = self.processes.state(pid).last_look.take() {
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

/// Returns the looks after those with which a shell begins. `start_bits` are the variables with
/// which it started, or 0 if these looks are not its first ones.
fn after_start<'l, 't>(looks: &'l [LastLook<'t>], start_bits: u32, checks: DirectoryChecks) -> &'l [LastLook<'t>] {
    let [directory, current, rest @ ..] = looks else { return looks };
    if start_bits & HAS_PWD == 0 || checks == DirectoryChecks::Unknown || !current.path.ends_with(b"/") {
        return looks;
    }
    if checks == DirectoryChecks::Once {
        return rest;
    }
    let is_checked = current.path.strip_suffix(b"/") == Some(directory.path);
    let walked = if is_checked { names(directory.path).count() } else { 0 };
    if rest.len() < walked || is_checked && walk(&rest[..walked]) != Some(directory.path) {
        return looks;
    }
    let old = usize::from(start_bits & HAS_OLDPWD != 0);
    &rest[(walked + old).min(rest.len())..]
}

/// Returns the looks before those with which a shell changes to a directory.
fn before_change<'l, 't>(looks: &'l [LastLook<'t>], directory: &[u8], checks: DirectoryChecks) -> &'l [LastLook<'t>] {
    let is_top = |look: &LastLook| names(look.path).count() == 1;
    let top = looks.iter().rposition(is_top).filter(|top| walk(&looks[*top..]) == Some(directory));
    match top {
        Some(top) if checks == DirectoryChecks::EachAbove => &looks[..top],
        _ => looks,
    }
}

/// Returns the directory to which a shell finds its way by these looks. They are at each directory on
/// the way, from the top down, and once more at a directory before `..` leads out of it.
fn walk<'t>(looks: &[LastLook<'t>]) -> Option<&'t [u8]> {
    let mut at: &[u8] = b"";
    for look in looks {
        let below = look.path.strip_prefix(at).and_then(|rest| rest.strip_prefix(b"/"));
        at = match below {
            Some(name) if !name.is_empty() && !name.contains(&b'/') => look.path,
            _ if look.path == at => parent(at)?,
            _ => return None,
        };
    }
    Some(at)
}
