//! What a fold knows of each process: the program that it runs, and what it did so far.
//!
//! Unaware of: what programs are trusted with.

use std::cell::Cell;

use larder_model::Habit;
use larder_model::path::file_name;
use larder_model::quick::Map;

use super::policy::Policy;
use crate::event::{Event, START_BITS};
use crate::process_tree::{Fork, ProcessTree, Running};

/// A `stat` of something that exists.
#[derive(Clone, Copy)]
pub(super) struct LastLook<'t> {
    pub(super) path: &'t [u8],
    /// The mtime, if it is a directory.
    pub(super) modified_ns: Option<i64>,
    /// The command did not make what is there.
    pub(super) is_input: bool,
}

/// A directory at which Python looked, perhaps to import a module.
#[derive(Clone, Copy)]
pub(super) struct Searched<'t> {
    pub(super) path: &'t [u8],
    /// How often it looked there, without anything else in between.
    pub(super) looks: u32,
    /// It then listed the directory.
    pub(super) is_listed: bool,
}

/// How often a process has asked for what differs in each run. A process that is forked goes on with
/// the counts of its source.
#[derive(Clone, Copy, Default)]
pub(super) struct Reads {
    /// The clock.
    pub(super) clock: u32,
    /// The local time of a given moment.
    pub(super) zone: u32,
    /// Random numbers.
    pub(super) random: u32,
    /// `/proc/self/maps`.
    pub(super) maps: u32,
}

/// What is known of one process, by its pid.
#[derive(Default)]
pub(super) struct ProcessState<'t> {
    /// How many processes had this pid before.
    earlier: u32,
    /// The habit of the program that the process runs, once it was asked for.
    pub(super) habit: Option<Habit>,
    /// The process runs a program which the command made.
    runs_made: bool,
    /// How many programs began in the process, less those that were executed. If each program was
    /// observed, it is 0.
    pub(super) began: i64,
    /// How often the process has asked for what differs in each run.
    pub(super) reads: Reads,
    /// The last event of the process was a draw of random numbers that libc may have made for
    /// itself, with this `extra`.
    pub(super) drawn: Option<u32>,
    /// libc has drawn the random numbers that guard the memory of the process.
    pub(super) is_guarded: bool,
    /// The process drew random numbers for a name and has not made anything with that name yet.
    pub(super) draws_a_name: bool,
    /// The last event of the process, if it was a look by a program for which
    /// [`DirectoryTimes::UnlessListed`](larder_model::DirectoryTimes::UnlessListed) holds.
    pub(super) last_look: Option<LastLook<'t>>,
    /// The last events of the process, if they were looks by a program for which
    /// [`DirectoryTimes::InPairs`](larder_model::DirectoryTimes::InPairs) holds.
    pub(super) looks: Vec<LastLook<'t>>,
    /// The variables with which the program started (`START_BITS`), until it has ended its first
    /// looks. 0 afterwards.
    pub(super) start_bits: u32,
    /// The file that the process read last.
    pub(super) last_read: Option<&'t [u8]>,
    /// The file that the process read last, if nothing in the command had opened it before.
    pub(super) first_read: Option<&'t [u8]>,
    /// The files that the process opened for reading. The program that it executes next may inherit
    /// them.
    pub(super) opened: Vec<&'t [u8]>,
    /// So many of `opened` are no modules, or the read of the clock by which they are imported was
    /// seen.
    imported: usize,
    /// A directory that the process looked at, perhaps to import a module.
    pub(super) searched: Option<Searched<'t>>,
    /// Directories that the process has listed to import modules.
    pub(super) searched_before: Vec<&'t [u8]>,
    /// Those of `opened` that were opened since the process last started another one. A shell that
    /// uses `vfork` opens files for its child.
    pub(super) opened_for_child: Vec<&'t [u8]>,
    /// The looks of git at its store of objects. They count only if it finds out which objects there
    /// are.
    pub(super) objects: Vec<Event<&'t [u8]>>,
    /// git found out which objects there are, so all that it looked at in their store counts.
    pub(super) searches_objects: bool,
}

impl ProcessState<'_> {
    /// Returns true if a read of the clock is that by which a module is imported: the process has
    /// opened one for which `reads_clock` holds, and such a read was not seen since.
    pub(super) fn imports_a_clock(&mut self, reads_clock: &dyn Fn(&[u8]) -> bool) -> bool {
        let found = self.opened.iter().skip(self.imported).position(|path| reads_clock(path));
        self.imported = found.map_or(self.opened.len(), |at| self.imported + at + 1);
        found.is_some()
    }
}

/// A process, by its pid and by how many processes had that pid before.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Life {
    pid: u32,
    earlier: u32,
}

/// What a process did with modes. It matters at the end of the run, when another process may have
/// its pid.
#[derive(Clone, Copy, Default)]
pub(super) struct Modes {
    /// The process set the modes of files.
    pub(super) sets_files: bool,
    /// The process set the modes of directories.
    pub(super) sets_directories: bool,
    /// The process gave owners to files that it made.
    pub(super) gives_owners: bool,
    /// The process looked at something that the command had made and whose mode depends on the
    /// umask.
    pub(super) saw_masked: bool,
}

/// The state of all processes.
#[derive(Default)]
pub(super) struct Processes<'t> {
    tree: ProcessTree<'t>,
    states: Map<u32, ProcessState<'t>>,
    modes: Map<Life, Modes>,
    /// How many programs were started without telling the pid.
    pub(super) anonymous: i64,
    /// The program of the previous event, by its address in the trace, and whether it is a part of
    /// a compiler. This is a cache: most events have the same program as the one before.
    last_part: Cell<(&'t [u8], bool)>,
}

impl<'t> Processes<'t> {
    /// Returns the state of a process, to change it.
    pub(super) fn state(&mut self, pid: u32) -> &mut ProcessState<'t> {
        self.states.entry(pid).or_default()
    }

    /// Returns the state of a process, or `None` if nothing is known of it.
    pub(super) fn get(&self, pid: u32) -> Option<&ProcessState<'t>> {
        self.states.get(&pid)
    }

    /// Returns the program that a process runs, with its arguments.
    pub(super) fn runs(&self, pid: u32) -> Running<'t> {
        self.tree.runs(pid)
    }

    /// Returns the file name of the program that a process runs.
    pub(super) fn program(&self, pid: u32) -> &'t [u8] {
        file_name(self.tree.runs(pid).program)
    }

    /// Returns true if a process runs a known part of a compiler.
    pub(super) fn runs_a_compiler_part(&self, pid: u32, policy: &Policy) -> bool {
        let program = self.program(pid);
        let (last, is_part) = self.last_part.get();
        if std::ptr::eq(last, program) {
            return is_part;
        }
        let is_part = (policy.is_compiler_part)(program);
        self.last_part.set((program, is_part));
        is_part
    }

    /// Returns true if the command made the program that a process runs, and a program that
    /// examines the machine is among the ancestors of the process.
    pub(super) fn is_made_to_ask(&self, pid: u32, policy: &Policy) -> bool {
        let configures = |pid: u32| {
            let Running { program, arguments } = self.tree.runs(pid);
            (policy.configures)(file_name(program), arguments)
        };
        self.get(pid).is_some_and(|state| state.runs_made) && self.tree.line(pid).skip(1).any(configures)
    }

    /// Updates the process in which a program began. Files that it has open stay open.
    pub(super) fn starts(&mut self, e: &Event<&'t [u8]>, is_made: bool) {
        self.tree.learn(e);
        let state = self.state(e.pid);
        state.began += 1;
        state.habit = None;
        state.runs_made = is_made;
        state.start_bits = e.mode & START_BITS;
        state.reads = Reads::default();
        (state.objects, state.searches_objects) = (Vec::new(), false);
        (state.is_guarded, state.imported) = (false, state.opened.len());
    }

    /// Updates the processes that were forked. They go on with what their sources' programs have
    /// done.
    pub(super) fn forked(&mut self, e: &Event<&'t [u8]>) {
        for Fork { pid, source } in self.tree.learn(e).into_iter().flatten() {
            let source = self.state(source);
            let (is_guarded, reads) = (source.is_guarded, source.reads);
            let searched_before = source.searched_before.clone();
            let state = self.state(pid);
            state.earlier += 1;
            (state.habit, state.start_bits) = (None, 0);
            (state.opened, state.imported) = (Vec::new(), 0);
            state.searched_before = searched_before;
            (state.is_guarded, state.reads) = (is_guarded, reads);
        }
    }

    /// Identifies a process for the rest of the run.
    pub(super) fn life(&self, pid: u32) -> Life {
        Life { pid, earlier: self.get(pid).map_or(0, |state| state.earlier) }
    }

    /// Returns what a process did with modes, to change it.
    pub(super) fn modes(&mut self, pid: u32) -> &mut Modes {
        let life = self.life(pid);
        self.modes.entry(life).or_default()
    }

    /// Returns what a process did with modes.
    pub(super) fn modes_of(&self, life: Life) -> Modes {
        self.modes.get(&life).copied().unwrap_or_default()
    }

    /// Returns true if a process saw a mode that depends on the umask and set a mode itself.
    pub(super) fn copy_masked_modes(&self) -> bool {
        self.modes.values().any(|modes| modes.saw_masked && (modes.sets_files || modes.sets_directories))
    }

    /// Returns true if a program was executed and its start was not observed.
    pub(super) fn missed_a_start(&self) -> bool {
        let unaccounted: i64 = self.states.values().map(|state| state.began).sum();
        self.states.values().any(|state| state.began < 0) || unaccounted > self.anonymous
    }

    /// Returns the processes whose last event was a draw of random numbers that libc may have made
    /// for itself, each with the `extra` of that event, in the order of their pids.
    pub(super) fn take_drawn(&mut self) -> Vec<(u32, u32)> {
        let drawn = self.states.iter_mut().filter_map(|(pid, state)| Some((*pid, state.drawn.take()?)));
        let mut drawn: Vec<_> = drawn.collect();
        drawn.sort_unstable();
        drawn
    }

    /// Returns the directories at which processes looked last.
    pub(super) fn take_searched(&mut self) -> Vec<&'t [u8]> {
        self.states.values_mut().filter_map(|state| Some(state.searched.take()?.path)).collect()
    }

    /// Returns the processes whose last events were looks by a program that compares mtimes of
    /// directories.
    pub(super) fn have_looked_last(&self) -> Vec<u32> {
        let looked = |state: &ProcessState| state.last_look.is_some() || !state.looks.is_empty();
        self.states.iter().filter(|(_, state)| looked(state)).map(|(pid, _)| *pid).collect()
    }

    /// Returns true if a process drew random numbers for a name that it did not use.
    pub(super) fn draw_an_unused_name(&self) -> bool {
        self.states.values().any(|state| state.draws_a_name)
    }
}
