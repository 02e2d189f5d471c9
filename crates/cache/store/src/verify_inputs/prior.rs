//! The state of a path before the run changed it, and to whom a file belongs.
//!
//! Unaware of: how the run changed it.

use larder_model::{Belongs, Fact, Looked, Prior, Times, Unrecorded};
use larder_sys::Stat;

use super::{Done, SplitPath, Walk, refuse};
use crate::current::{belonging, stat_in};
use crate::scan::Held;

impl Walk<'_> {
    /// Records what was at a path before the run changed it.
    pub(super) fn prior(&mut self, at: SplitPath<'_>, looked: &Looked, prior: Prior) -> Done {
        let SplitPath { path, directory, name } = at;
        match prior {
            Prior::Absent => self.absent(directory, name),
            Prior::Other { mode } => {
                self.fact(directory, name, Fact::Other((mode >> 12) as u8));
                let asks = looked.executed || looked.failed.is_some() || looked.times >= Times::Mode;
                let counts = mode >> 12 == 0o10 && asks;
                match mode & 0o7777 {
                    _ if !counts => {}
                    0 => return refuse(Unrecorded::UpdatesFile, path),
                    mode => self.fact(directory, name, Fact::Mode(mode)),
                }
            }
            Prior::File { digest, mode } => {
                let executable = mode.is_some_and(|mode| mode & 0o111 != 0);
                // Its earlier content cannot be searched any more.
                self.note_carried(path, &Held::ANYTHING);
                self.fact(directory, name, Fact::Content { digest, executable, plain: false, rooted: None });
                match mode {
                    _ if looked.failed.is_none() && looked.times < Times::Mode => {}
                    Some(mode) => self.fact(directory, name, Fact::Mode(mode)),
                    None => return refuse(Unrecorded::UpdatesFile, path),
                }
            }
        }
        if prior != Prior::Absent && looked.belongs != Belongs::Blind {
            // What is there now was given the owner of what was there before. If it was not, the fact
            // never holds.
            match stat_in(self.opened(directory), name, true) {
                Ok(found) => self.belongs(at, &Looked { belongs: Belongs::Owner, ..Looked::default() }, &found),
                Err(_) => return refuse(Unrecorded::UpdatesFile, path),
            }
        }
        if let (true, Some(identity)) = (looked.compared && prior != Prior::Absent, looked.identity) {
            self.note_age(path, identity.modified_ns)?;
        }
        if let Some(modified_ns) = looked.directory_ns {
            self.note_directory_age(path, modified_ns)?;
        }
        if let (Times::Files, Some(identity)) = (looked.times, looked.identity)
            && prior != Prior::Absent
        {
            self.fact(directory, name, Fact::Modified(identity.modified_ns));
        }
        Ok(())
    }

    /// Records the owner of what was found, as far as it counts.
    pub(super) fn belongs(&mut self, at: SplitPath<'_>, looked: &Looked, found: &Stat) {
        if looked.belongs != Belongs::Blind {
            self.fact(at.directory, at.name, belonging(found, looked.belongs));
        }
    }
}
