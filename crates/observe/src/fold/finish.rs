//! The end: what of all that was seen counts, as inputs and as outputs.

use larder_model::quick::Set;
use larder_model::{Change, Digest, Identity, Looked, Placement, Prior, Seen, Times, Unrecorded};

use super::{Fold, Folded, Made, Policy};
use crate::paths::file_name;

impl<'t> Fold<'t> {
    pub(super) fn finish(mut self, policy: &Policy) -> Folded {
        if !self.named_at_random.is_empty() {
            self.refuse(Unrecorded::Random, b"a name that was not used");
        }
        for name in self.random_names.clone() {
            if self.made.contains_key(name) {
                self.refuse(Unrecorded::Random, name);
            }
        }
        let unaccounted: i64 = self.starts.values().filter(|n| **n != 0).sum();
        if self.starts.values().any(|n| *n < 0) || unaccounted > self.anonymous {
            self.refuse(Unrecorded::NotObserved, b"a program that left no sign");
        }
        for (program, output) in std::mem::take(&mut self.times_told) {
            let log = self.logs.get(&output).and_then(|log| self.made.get(log));
            if !matches!(log, Some(Made::File { .. })) || self.read_again.contains(&output) {
                self.refuse(Unrecorded::Clock, program);
            }
        }
        if self.dates_count && self.date_is_lost {
            self.refuse(Unrecorded::ComparesTimes, b"a file whose time was set, and that is gone");
        }
        if self.no_temporary_directory {
            // Elsewhere there may be one.
            self.environment.extend(std::mem::take(&mut self.temporary_directories));
        }
        // What has the mode of something that was made hangs on the umask as that does.
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
        // The mode of what is made may be that of what was read.
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

    /// Nothing was there, and the name was made up at random: nobody will look for it again. One that holds the number
    /// of a process is kept: it may hold another number that is the same by accident, and looking for it is harmless.
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
                    // It was made only because nothing was there.
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
        // What is in a directory that the command made was made there by it, and nothing was there before.
        if looked.absent && self.below_made(path) {
            return;
        }
        if self.made_by_other_names.contains(path) && looked.absent && !looked.content && !looked.listed && !looked.kind
        {
            looked.prior = Some(Prior::Absent);
        }
        if self.dates_count && looked.compared {
            // How old it is counts beside a time that is always the same.
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
                // Compilers look whether it is one of their inputs, and then write it.
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

/// What a file without content was. Nobody executes such.
fn empty(opened: &Identity, mode: Option<u32>) -> Option<Prior> {
    (opened.size_bytes == 0).then(|| Prior::File { digest: Digest::of(b""), mode })
}
