//! The end of a fold: decides which of the collected facts count as inputs and as outputs.
//!
//! Unaware of: single events.

use larder_model::quick::Set;
use larder_model::{Change, Digest, Identity, Looked, Placement, Prior, Seen, Times, Unrecorded};

use super::{Fold, Folded, Made, Policy};
use crate::paths::file_name;

impl<'t> Fold<'t> {
    pub(super) fn finish(mut self, policy: &Policy) -> Folded {
        for (pid, what_for) in std::mem::take(&mut self.drawn) {
            self.drew(pid, what_for, policy);
        }
        if !self.named_at_random.is_empty() {
            self.refuse(Unrecorded::Random, b"random numbers for a name that was never used");
        }
        for name in self.random_names.clone() {
            if self.made.contains_key(name) {
                self.refuse(Unrecorded::Random, name);
            }
        }
        let unaccounted: i64 = self.starts.values().filter(|n| **n != 0).sum();
        if self.starts.values().any(|n| *n < 0) || unaccounted > self.anonymous {
            self.refuse(Unrecorded::NotObserved, b"a program that was executed but not observed");
        }
        for (program, output) in std::mem::take(&mut self.times_told) {
            let log = self.logs.get(&output).and_then(|log| self.made.get(log));
            if !matches!(log, Some(Made::File { .. })) || self.read_again.contains(&output) {
                self.refuse(Unrecorded::Clock, program);
            }
        }
        if self.dates_count && self.date_is_lost {
            self.refuse(Unrecorded::ComparesTimes, b"a removed file whose time the command had set");
        }
        if self.no_temporary_directory {
            // On another machine, the variable may name a directory that exists.
            self.environment.extend(std::mem::take(&mut self.temporary_directories));
        }
        // A mode that was copied from something that the command made depends on the umask, as the
        // original does.
        let gives = |life: &(u32, u32)| self.gives_modes.contains(life) || self.gives_directory_modes.contains(life);
        self.umask |= self.saw_masked.iter().any(gives);
        let variable = |(name, value): (&&[u8], &Option<&[u8]>)| (name.to_vec(), value.map(<[u8]>::to_vec));
        let closed = self.closed.values().copied().collect();
        let mut seen = Seen {
            closed,
            umask: self.umask,
            umask_is_set: self.umask_is_set,
            host: self.host,
            sockets: self.sockets,
            dates_count: self.dates_count,
            owners_set: self.owners_set,
            names: self.names.iter().map(|(path, existed)| (path.to_vec(), *existed)).collect(),
            environment: self.environment.iter().map(variable).collect(),
            ..Seen::default()
        };
        let made_order = std::mem::take(&mut self.made_order);
        let mut listed = Set::default();
        for path in made_order {
            if !listed.insert(path) {
                continue;
            }
            if let Some(made) = self.made.get(path).cloned() {
                self.output(path, made, policy, &mut seen);
            }
        }
        // The mode of what the process made may be copied from what it read.
        for (life, path) in std::mem::take(&mut self.seen_by) {
            let directory = self.modes.get(path).is_some_and(|mode| mode >> 12 == 0o04);
            let gives = if directory { &self.gives_directory_modes } else { &self.gives_modes };
            if gives.contains(&life)
                && let Some(looked) = self.looked.get_mut(path)
            {
                looked.times = looked.times.max(Times::Mode);
            }
        }
        for path in std::mem::take(&mut self.order) {
            if self.is_of_this_run(path) {
                continue;
            }
            if let Some(looked) = self.looked.remove(path) {
                self.input(path, looked, policy, &mut seen);
            }
        }
        Folded {
            seen,
            refusals: self.refusals,
            foreign_program: self.foreign_program.map(<[u8]>::to_vec),
            inodes_shown: self.inodes_shown,
            chance_program: self.chance_program.map(<[u8]>::to_vec),
            random_names: self.random_names.iter().map(|path| file_name(path).to_vec()).collect(),
        }
    }

    /// Returns true for an absence of a path with a random name, which no later run will look for.
    /// Paths that contain a pid are kept as absences. The number may equal the pid by accident, and
    /// checking such an absence is harmless.
    fn is_of_this_run(&self, path: &[u8]) -> bool {
        let nothing = Looked { absent: true, ..Looked::default() };
        if self.looked.get(path) != Some(&nothing) || self.made.contains_key(path) {
            return false;
        }
        let within = |name: &&[u8]| path.strip_prefix(*name).is_some_and(|rest| rest.is_empty() || rest[0] == b'/');
        self.random_names.iter().any(within)
    }

    fn output(&mut self, path: &'t [u8], made: Made<'t>, policy: &Policy, seen: &mut Seen) {
        if !(policy.may_write)(path) {
            self.refuse(Unrecorded::OutputElsewhere, path);
        }
        let change = match made {
            Made::File { placement, mode, writer, temporary } => {
                let known = (policy.replaces_output)(writer);
                if temporary && !known && self.names.get(path) != Some(&true) {
                    // The program made the file only because the path did not exist.
                    self.touch(path).absent = true;
                }
                let unlinks = (policy.unlinks_output)(writer) && !self.in_place.contains(path);
                let removes = known && self.lstat_missing.contains(path) && placement == Placement::Truncate;
                let rewrites = (policy.rewrites_output)(writer);
                let placement = match placement {
                    _ if self.reused.contains(path) => Placement::Truncate,
                    Placement::Rename => Placement::Rename,
                    _ if unlinks => Placement::Replace,
                    _ if removes => Placement::Unlink,
                    other => other,
                };
                let closed_when_complete = (policy.is_compiler_part)(writer) && !rewrites;
                let anew = matches!(placement, Placement::Rename | Placement::Unlink);
                let new = anew || self.names.get(path) == Some(&false);
                let (dated, attributed) = (self.dated.contains(path), self.attributed.contains(path));
                Change::File { placement, mode, new, closed_when_complete, dated, attributed }
            }
            Made::Link => Change::Link,
            Made::Directory(mode) => Change::Directory(mode),
            Made::Removed => Change::Removed,
        };
        seen.changed.push((path.to_vec(), change));
    }

    fn input(&mut self, path: &'t [u8], mut looked: Looked, policy: &Policy, seen: &mut Seen) {
        if self.temporary_places.contains(path) && !looked.content && !looked.listed && !looked.absent {
            return;
        }
        // The command made the directory, so whatever is in it was made by the command and did not
        // exist before.
        if looked.absent && self.below_made(path) {
            return;
        }
        if self.made_by_other_names.contains(path) && looked.absent && !looked.content && !looked.listed && !looked.kind
        {
            looked.prior = Some(Prior::Absent);
        }
        if self.dates_count && looked.compared {
            // Its mtime is compared with an mtime that is the same in every run.
            looked.times = looked.times.max(Times::Files);
        }
        if let Some(made) = self.made.get(path) {
            if looked.listed {
                return self.refuse(Unrecorded::UpdatesFile, path);
            }
            if looked.content {
                let mode = self.modes.get(path).map(|mode| mode & 0o7777).filter(|mode| *mode != 0);
                let known = |opened: &Identity| (policy.before)(opened).or_else(|| empty(opened, mode));
                let Some(prior) = looked.identity.as_ref().and_then(known) else {
                    return self.refuse(Unrecorded::UpdatesFile, path);
                };
                looked.prior = Some(prior);
            } else {
                // Compilers stat an output to check that it is not one of their inputs, and then
                // write it.
                if let Made::File { writer, .. } = made
                    && !self.must_be_absent.contains(path)
                    && !self.looked_at_by_others.contains(path)
                    && (policy.is_compiler_part)(writer)
                {
                    return;
                }
                looked.prior = Some(match self.modes.get(path) {
                    Some(&mode) if !looked.absent => Prior::Other { mode },
                    _ => Prior::Absent,
                });
            }
            let there = looked.prior != Some(Prior::Absent);
            if there && (looked.times == Times::Status || looked.times == Times::Files && looked.identity.is_none()) {
                return self.refuse(Unrecorded::ComparesTimes, path);
            }
        }
        seen.looked.push((path.to_vec(), looked));
    }
}

/// Returns the earlier state of a file that was empty. No program executes an empty file, so its
/// unknown mode does not matter.
fn empty(opened: &Identity, mode: Option<u32>) -> Option<Prior> {
    (opened.size_bytes == 0).then(|| Prior::File { digest: Digest::of(b""), mode })
}
