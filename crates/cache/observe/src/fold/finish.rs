//! The end of a fold: decides which of the collected facts count as inputs and as outputs.
//!
//! Unaware of: single events.

use larder_model::path::file_name;
use larder_model::quick::Set;
use larder_model::{Belongs, Change, Digest, Identity, Looked, Placement, Prior, Seen, Times, Unrecorded};
use larder_sys::FileType;

use super::path_state::{Made, PathState};
use super::{Fold, Folded, Policy};
use crate::event::file_type;

impl<'t> Fold<'t> {
    pub(super) fn finish(mut self, policy: &Policy) -> Folded {
        self.finish_looks(policy);
        self.refuse_random_numbers(policy);
        if self.processes.missed_a_start() {
            self.refuse(Unrecorded::NotObserved, b"a program that was executed but not observed");
        }
        self.refuse_times_outside_of_logs();
        if let Some(path) = self.run.moved_aside.first().copied() {
            self.refuse(Unrecorded::UpdatesFile, path);
        }
        if self.run.dates_count && self.run.date_is_lost {
            self.refuse(Unrecorded::ComparesTimes, b"a removed file whose time the command had set");
        }
        let mut seen = self.seen_of_the_run();
        self.add_outputs(policy, &mut seen);
        seen.date_sources = self.date_sources();
        self.compare_copied_modes();
        self.add_inputs(policy, &mut seen);
        let random_names = self.random_names();
        Folded {
            seen,
            refusals: self.run.refusals,
            foreign_program: self.run.foreign_program.map(<[u8]>::to_vec),
            inodes_shown: self.run.inodes_shown,
            asks_directory_late: self.run.asks_directory_late,
            reads_arguments_late: false,
            late_variables: self.run.late_variables.iter().map(|name| name.to_vec()).collect(),
            chance_program: self.run.chance_program.map(<[u8]>::to_vec),
            random_names,
        }
    }

    /// Returns the file names that were made up at random. rustc makes a directory with such a name
    /// for a link and removes it. If the link fails, the message contains the name.
    fn random_names(&self) -> Vec<Vec<u8>> {
        let is_gone = |path: &&&[u8]| !matches!(self.paths.made(path), Some(Made::Directory(_)));
        let gone = self.run.made_directories.iter().filter(is_gone);
        self.paths.random_names.iter().chain(gone).map(|path| file_name(path).to_vec()).collect()
    }

    /// Refuses random numbers that may be in the result: those that were the last act of a process,
    /// those for a name that was not used, and those in the name of an output.
    fn refuse_random_numbers(&mut self, policy: &Policy) {
        for (pid, what_for) in self.processes.take_drawn() {
            self.drew(pid, what_for, policy);
        }
        if self.processes.draw_an_unused_name() {
            self.refuse(Unrecorded::Random, b"random numbers for a name that was never used");
        }
        for name in &self.paths.random_names {
            if self.paths.made(name).is_some() {
                self.run.refuse(Unrecorded::Random, name);
            }
        }
    }

    /// Refuses reads of the clock unless standard output led to a log that is still there and that
    /// the command did not read.
    fn refuse_times_outside_of_logs(&mut self) {
        for (program, output) in std::mem::take(&mut self.run.times_told) {
            let is_log = self.files.logs.get(&output).is_some_and(|log| self.paths.is_made_file(log));
            if !is_log || self.files.read_again.contains(&output) {
                self.refuse(Unrecorded::Clock, program);
            }
        }
    }

    /// Returns what holds for the run as a whole, without inputs and outputs.
    fn seen_of_the_run(&mut self) -> Seen {
        Seen {
            closed: self.files.closed.values().copied().collect(),
            // A mode that was copied from something that the command made depends on the umask, as
            // the original does.
            umask: self.run.umask || self.processes.copy_masked_modes(),
            umask_is_set: self.run.umask_is_set,
            host: self.run.host.clone(),
            sockets: self.run.sockets,
            dates_count: self.run.dates_count,
            owners_set: self.run.owners_set,
            names: self.paths.names(),
            environment: self.run.take_environment(),
            ..Seen::default()
        }
    }

    fn add_outputs(&mut self, policy: &Policy, seen: &mut Seen) {
        for path in self.paths.take_made_order() {
            if let Some(made) = self.paths.made(path).cloned() {
                self.output(path, made, policy, seen);
            }
        }
    }

    /// Makes mode and owner of a path observations if a process that looked at the path also set modes.
    /// It may have copied them.
    fn compare_copied_modes(&mut self) {
        for (life, path) in std::mem::take(&mut self.seen_by) {
            let directory = self.paths.mode_before(path).is_some_and(|mode| file_type(mode) == FileType::Directory);
            let modes = self.processes.modes_of(life);
            let sets = if directory { modes.sets_directories } else { modes.sets_files };
            let Some(looked) = self.paths.looked_mut(path) else { continue };
            if sets {
                looked.times = looked.times.max(Times::Mode);
                // `cp -p` gives an owner only if that is another one.
                looked.belongs = looked.belongs.max(Belongs::Owner);
            }
            if modes.gives_owners {
                looked.belongs = looked.belongs.max(Belongs::Links);
            }
        }
    }

    fn add_inputs(&mut self, policy: &Policy, seen: &mut Seen) {
        let looked = self.paths.take_looked_order();
        let outputs = self.outputs_by_other_paths(&looked, &seen.changed, policy);
        for path in looked {
            if self.is_of_this_run(path) || outputs.contains(path) {
                continue;
            }
            if let Some(looked) = self.paths.state(path).looked.take() {
                self.input(path, looked, policy, seen);
            }
        }
    }

    /// Returns the accessed paths that are resolved paths of outputs which the command made by way of
    /// a link or of `..`, as in `-o out/../x.o`. To tell an output from the inputs, gcc resolves its
    /// path before it is made: an observer of system calls sees `readlink` of the resolved path.
    /// That does not count, as it would not if the output had been made by that path.
    fn outputs_by_other_paths(
        &self,
        looked: &[&'t [u8]],
        changed: &[(Vec<u8>, Change)],
        policy: &Policy,
    ) -> Set<Vec<u8>> {
        let is_resolved = |path: &&&[u8]| {
            let is_by_compiler = self
                .paths
                .get(path)
                .is_some_and(|state| state.made.is_none() && !state.looked_at_by_others && !state.must_be_absent);
            let only = |looked: &Looked| Looked { link: false, absent: false, ..looked.clone() } == Looked::default();
            is_by_compiler && self.paths.looked(path).is_some_and(only)
        };
        let resolved: Set<&[u8]> = looked.iter().filter(is_resolved).copied().collect();
        let names: Set<&[u8]> = resolved.iter().map(|path| file_name(path)).collect();
        let is_compilers = |path: &[u8]| {
            let Some(state) = self.paths.get(path) else { return false };
            let Some(Made::File { writer, .. }) = &state.made else { return false };
            (policy.is_compiler_part)(writer) && !state.must_be_absent && !state.looked_at_by_others
        };
        let named = changed.iter().filter(|(path, _)| names.contains(file_name(path)) && is_compilers(path));
        let real = named.filter_map(|(path, _)| (policy.real)(path));
        real.filter(|path| resolved.contains(&path[..])).collect()
    }

    /// Returns true for an absence of a path with a random name, which no later run will look for.
    /// Paths that contain a pid are kept as absences. The number may equal the pid by accident, and
    /// checking such an absence is harmless.
    fn is_of_this_run(&self, path: &[u8]) -> bool {
        let nothing = Looked::absent();
        if self.paths.looked(path) != Some(&nothing) || self.paths.made(path).is_some() {
            return false;
        }
        let within = |name: &&[u8]| path.strip_prefix(*name).is_some_and(|rest| rest.is_empty() || rest[0] == b'/');
        self.paths.random_names.iter().any(within)
    }

    fn output(&mut self, path: &'t [u8], made: Made<'t>, policy: &Policy, seen: &mut Seen) {
        if !(policy.may_write)(path) {
            self.refuse(Unrecorded::OutputElsewhere, path);
        }
        let change = match made {
            Made::File { placement, mode, writer, temporary } => {
                let known = (policy.replaces_output)(writer);
                if temporary && !known && self.paths.existed(path) != Some(true) {
                    // The program made the file only because the path did not exist.
                    self.paths.touch(path).absent = true;
                }
                let state = self.paths.state(path);
                let unlinks = (policy.unlinks_output)(writer) && !state.is_written_in_place;
                let removes = known && state.lstat_failed && placement == Placement::Truncate;
                let rewrites = (policy.rewrites_output)(writer);
                let placement = match placement {
                    _ if state.would_be_reused => Placement::Truncate,
                    Placement::Rename => Placement::Rename,
                    _ if unlinks => Placement::Replace,
                    _ if removes => Placement::Unlink,
                    other => other,
                };
                let closed_when_complete = (policy.is_compiler_part)(writer) && !rewrites && !state.is_added_to;
                let anew = matches!(placement, Placement::Rename | Placement::Unlink);
                let new = anew || state.existed == Some(false);
                let (dated, attributed) = (self.dates.source(&state.dated_by), state.is_attributed);
                Change::File { placement, mode, new, closed_when_complete, dated, attributed }
            }
            Made::Link => Change::Link,
            Made::Directory(mode) => Change::Directory(mode),
            Made::Removed => Change::Removed,
        };
        seen.changed.push((path.to_vec(), change));
    }

    fn input(&mut self, path: &'t [u8], mut looked: Looked, policy: &Policy, seen: &mut Seen) {
        let Some(state) = self.paths.get(path) else { return };
        if state.holds_temporary_files && !(looked.content || looked.listed || looked.absent || looked.owner) {
            return;
        }
        // The command made the directory, so whatever is in it was made by the command and did not
        // exist before.
        if looked.absent && self.paths.is_below_made(path) {
            return;
        }
        let leads_to_made = state.leads_to_made || self.paths.is_made_by_parents(path);
        if leads_to_made && looked.absent && !looked.content && !looked.listed && !looked.kind {
            looked.prior = Some(Prior::Absent);
        }
        if self.run.dates_count && (looked.compared || looked.directory_ns.is_some()) {
            // Its mtime is compared with an mtime that is the same in every run.
            looked.times = looked.times.max(Times::Files);
        }
        if let Some(made) = &state.made {
            if looked.listed {
                return self.refuse(Unrecorded::UpdatesFile, path);
            }
            if state.is_followed && is_other_file(made) && !self.is_output_of_compiler(made, state, policy) {
                match (policy.target_before)(path) {
                    None if state.was_link => return self.refuse(Unrecorded::UpdatesFile, path),
                    Some(_) if looked.leads => return self.refuse(Unrecorded::UpdatesFile, path),
                    None => {}
                    target => {
                        looked.target_before = target;
                        seen.looked.push((path.to_vec(), looked));
                        return;
                    }
                }
            }
            // The content tells the size.
            if looked.content || state.is_measured {
                let mode = state.mode_before.map(|mode| mode & 0o7777).filter(|mode| *mode != 0);
                let known = |opened: &Identity| (policy.before)(opened).or_else(|| empty(opened, mode));
                let Some(prior) = looked.identity.as_ref().and_then(known) else {
                    return self.refuse(Unrecorded::UpdatesFile, path);
                };
                looked.prior = Some(prior);
            } else {
                // Compilers stat an output to check that it is not one of their inputs, and then
                // write it.
                if self.is_output_of_compiler(made, state, policy) {
                    return;
                }
                looked.prior = Some(match state.mode_before {
                    Some(mode) if !looked.absent => Prior::Other { mode },
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

    /// Returns true for a file that a part of a compiler wrote, and that no other program looked at
    /// before.
    fn is_output_of_compiler(&self, made: &Made, state: &PathState, policy: &Policy) -> bool {
        matches!(made, Made::File { writer, .. } if (policy.is_compiler_part)(writer))
            && !state.must_be_absent
            && !state.looked_at_by_others
    }
}

/// Returns true if what the command made or removed is not the file that was there before, so a link
/// that was there is gone.
fn is_other_file(made: &Made) -> bool {
    !matches!(made, Made::File { placement: Placement::Truncate, .. })
}

/// Returns the earlier state of a file that was empty. No program executes an empty file, so its
/// unknown mode does not matter.
fn empty(opened: &Identity, mode: Option<u32>) -> Option<Prior> {
    (opened.size_bytes == 0).then(|| Prior::File { digest: Digest::of(b""), mode })
}
