//! Mtimes that the command sets: from which files they may have been copied.
//!
//! A process that copies an mtime has accessed the file that has it. If the command had set that
//! mtime itself, the mtime may come from any file that the process which set it had accessed.
//!
//! Unaware of: the mtimes themselves, which the recorder compares.

use larder_model::DateSource;
use larder_model::quick::Map;

use super::process_state::Life;
use super::{Event, Fold, Policy};

impl<'t> Fold<'t> {
    /// Notes that a process set an mtime, and returns the process.
    pub(super) fn sets_times(&mut self, e: &Event<'t>, policy: &Policy) -> Life {
        let (life, habit) = (self.processes.life(e.pid), self.habit(e.pid, policy));
        *self.dates.setters.entry(life).or_insert(true) &= habit.copies_times;
        life
    }

    /// Notes that a process accessed a file that the command made, and whose mtime it may have set.
    pub(super) fn sees_date_of_made(&mut self, e: &Event<'t>) {
        let life = self.processes.life(e.pid);
        let Some(state) = self.paths.file_behind(e.path) else { return };
        let setters: Vec<Life> = state.dated_by.iter().copied().filter(|setter| *setter != life).collect();
        if !setters.is_empty() {
            let saw = self.dates.saw.entry(life).or_default();
            saw.extend(setters);
            saw.sort_unstable();
            saw.dedup();
        }
    }

    /// Returns the files from which the mtimes of outputs may have been copied.
    pub(super) fn date_sources(&self) -> Vec<DateSource> {
        if self.dates.groups.is_empty() {
            return Vec::new();
        }
        let mut sources = Vec::new();
        // The groups to which each process belongs.
        let mut groups_of: Map<Life, Vec<usize>> = Map::default();
        for (at, group) in self.dates.groups.iter().enumerate() {
            let lives = self.dates.with_seen(group);
            let copies = |life: &Life| self.dates.setters.get(life).is_none_or(|copies| *copies);
            sources.push(DateSource { only_copies: lives.iter().all(copies), ..DateSource::default() });
            lives.into_iter().for_each(|life| groups_of.entry(life).or_default().push(at));
        }
        // A process does not copy an mtime to another file from one to which it gives one: `cp`
        // looks at an old output.
        let gives = |life: &Life, path: &[u8]| self.paths.get(path).is_some_and(|state| state.dated_by.contains(life));
        for (life, path) in &self.seen_by {
            for at in groups_of.get(life).into_iter().flatten() {
                let source = &mut sources[*at];
                let paths = if gives(life, path) { &mut source.rewritten } else { &mut source.accessed };
                paths.push(path.to_vec());
            }
        }
        for paths in sources.iter_mut().flat_map(|source| [&mut source.accessed, &mut source.rewritten]) {
            paths.sort_unstable();
            paths.dedup();
        }
        sources
    }
}
