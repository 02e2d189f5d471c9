//! Mtimes of directories: which of a program's looks at a directory are for its mtime.
//!
//! Each new name in a directory changes its mtime, and programs that compare mtimes also look at
//! directories for other reasons. So only the looks that [`DirectoryTimes`] describes count.
//!
//! Unaware of: what the mtime is compared with.

use larder_model::{DirectoryTimes, Habit};
use larder_sys::FileType;

use super::process_state::LastLook;
use super::{Event, Fold};
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
        self.processes.state(e.pid).last_look = Some(LastLook { path: e.path, modified_ns, how, is_second });
    }

    /// Handles the looks that were the last events of their processes.
    pub(super) fn finish_looks(&mut self) {
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
