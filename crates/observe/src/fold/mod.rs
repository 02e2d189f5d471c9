//! Folds a trace: reduces its events to what the run relied on and what it changed. Pure: no file
//! is read here.
//!
//! * A file that the command made before it read it is no input. This includes temporary files.
//! * What the command made and left is an output. What it made and removed is neither.
//! * A path that the command looked at and changed later counts as it was before the change.
//! * If a run cannot be recorded soundly, it is refused, with the path that shows why.
//!
//! For example, a compiler that reads `x.c`, writes `/tmp/x.s`, reads that and removes it, and
//! writes `x.o`, relied on the content of `x.c` and made `x.o`.
//!
//! | file | is about |
//! |---|---|
//! | `processes` | which program each process runs, and what it may do |
//! | `looks` | paths that are read, looked at, listed, or missing |
//! | `opening` | files that are opened, for reading or writing |
//! | `changes` | paths that come and go, modes, times |
//! | `finish` | what counts at the end |
//!
//! Unaware of: which observer made the trace, the content of files, the store.

mod changes;
mod finish;
mod looks;
mod opening;
mod processes;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::collections::BTreeSet;

use larder_model::quick::{Map, Set};
use larder_model::{FileMode, Habit, Identity, Looked, Placement, Prior, Seen, Unrecorded};

use crate::event::{self, INTERFACES, INTERNET, Kind, RANDOM_BY_VDSO, SOCKET};
use crate::paths::{file_name, has_parents};
use crate::trace::Trace;
use crate::who::{Running, Who};

type Event<'a> = event::Event<&'a [u8]>;

/// If a call of a run failed with one of these, the next run may end differently.
const SHORTAGES: [i32; 8] =
    [libc::EIO, libc::EAGAIN, libc::ENOMEM, libc::ENFILE, libc::EMFILE, libc::EFBIG, libc::ENOSPC, libc::EDQUOT];

/// Returns what a program does in every run, from its file name, its arguments as in the `path2` of
/// a `Kind::Start`, and its origin.
pub type HabitOf<'a> = dyn Fn(&[u8], &[u8], Origin) -> Habit + 'a;

/// The rules that depend on the kind of command. A program is given by its file name, without the
/// directory.
pub struct Policy<'a> {
    /// Returns true for programs that handle an existing output in a known way. That they look at
    /// it first is then no observation.
    pub replaces_output: &'a dyn Fn(&[u8]) -> bool,
    /// Returns true for programs that unlink an existing output before they open it.
    pub unlinks_output: &'a dyn Fn(&[u8]) -> bool,
    /// Returns true for programs that close an output before it is complete, and that may rename an
    /// existing output to a temporary name and write into it. For example, mold.
    pub rewrites_output: &'a dyn Fn(&[u8]) -> bool,
    /// Returns true for programs that open an existing output, without reading it, before they
    /// unlink it.
    pub opens_output: &'a dyn Fn(&[u8]) -> bool,
    /// Returns true for programs that add execute permission to what they made, such as linkers.
    pub adds_execute: &'a dyn Fn(&[u8]) -> bool,
    /// Returns true for variables that need no observation, because they are in the cache key or do
    /// not matter.
    pub variable_is_covered: &'a dyn Fn(&[u8]) -> bool,
    /// Returns the value of a variable in the environment that the command was started with.
    pub variable: &'a dyn Fn(&[u8]) -> Option<Vec<u8>>,
    /// Returns true for known parts of compilers. They read variables only through libc's `getenv`.
    pub is_compiler_part: &'a dyn Fn(&[u8]) -> bool,
    /// Returns what a program does in every run, whatever its result.
    pub habit: &'a HabitOf<'a>,
    /// Returns true for a program, with its arguments, that examines the machine for a build by
    /// making programs and running them. For example, `configure`.
    pub configures: &'a dyn Fn(&[u8], &[u8]) -> bool,
    /// The path of the wrapper's own program. A nested wrapper reports what the results that it
    /// delivers rely on. Another program with the same file name does not.
    pub wrapper: &'a [u8],
    /// Returns what was in a file before the command ran, if that was noted.
    pub before: &'a dyn Fn(&Identity) -> Option<Prior>,
    /// Returns true for files that people read when something went wrong. Times in them do not
    /// matter.
    pub is_log: &'a dyn Fn(&[u8]) -> bool,
    /// Returns true for paths that the command may write.
    pub may_write: &'a dyn Fn(&[u8]) -> bool,
    /// Returns a path with links and `..` in its directory resolved, as the directory is at the end
    /// of the run.
    pub real: &'a dyn Fn(&[u8]) -> Option<Vec<u8>>,
    /// The first process of the command, which the observer's caller started.
    pub first_pid: Option<u32>,
    /// If true, random numbers and addresses are no refusal for a program that is not known to ask
    /// for them. The caller then compares the result with that of another run before it is served.
    pub chance_is_compared: bool,
}

/// The origin of a program of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The command made the program, and a program for which [`Policy::configures`] holds started
    /// it. For example, `configure` runs the `conftest` that it has built.
    MadeToAsk,
    /// Any other origin.
    Other,
}

/// The result of [`fold()`].
#[derive(Debug, Default)]
pub struct Folded {
    /// What the run relied on and what it changed.
    pub seen: Seen,
    /// The reasons not to record the run, each with the path that shows it. The first one is
    /// reported.
    pub refusals: Vec<(Unrecorded, Vec<u8>)>,
    /// A program ran that is no known part of a compiler. It may read its environment without a
    /// call of libc's `getenv`, as shells do.
    pub foreign_program: Option<Vec<u8>>,
    /// File names that were made up at random. If the result contains one, the result differs in
    /// each run.
    pub random_names: Vec<Vec<u8>>,
    /// Inode numbers that a program asked for and may have written down.
    pub inodes_shown: BTreeSet<u64>,
    /// The first program that asked for random numbers or for its own addresses although its
    /// `Habit` does not cover that. It is set only if [`Policy::chance_is_compared`] is true.
    pub chance_program: Option<Vec<u8>>,
}

#[derive(Clone, Debug)]
enum Made<'t> {
    /// `writer` is the file name of the program. It is kept because by the end another process may
    /// have the same pid.
    File {
        placement: Placement,
        mode: FileMode,
        writer: &'t [u8],
        temporary: bool,
    },
    Link,
    Directory(FileMode),
    Removed,
}

/// The state of a fold. `'t` is the lifetime of the trace: paths are slices of it.
#[derive(Default)]
struct Fold<'t> {
    order: Vec<&'t [u8]>,
    looked: Map<&'t [u8], Looked>,
    /// File type and permissions of a path before the command changed it. The permissions are 0 if
    /// they are unknown.
    modes: Map<&'t [u8], u32>,
    made: Map<&'t [u8], Made<'t>>,
    made_order: Vec<&'t [u8]>,
    /// `made` contains a directory, or has contained one.
    made_directories: bool,
    /// Paths that came or went, and whether each existed before.
    names: Map<&'t [u8], bool>,
    made_inodes: Set<(u64, u64)>,
    /// Paths with `..` in them that led to something that the command had made.
    made_by_other_names: Set<&'t [u8]>,
    /// Paths of links that existed before the run and through which the command found something
    /// that it had made.
    leading: Set<&'t [u8]>,
    /// Paths with `..` in them, and their resolved forms at the end of the run.
    real: Map<&'t [u8], Option<Vec<u8>>>,
    /// The state of each written file when it was closed last, by device and inode.
    closed: Map<(u64, u64), Identity>,
    /// The command set owners or extended attributes of something that it had made.
    owners_set: bool,
    /// Files that the command made and then gave extended attributes. For example, `cp` sets modes
    /// in this way.
    attributed: Set<&'t [u8]>,
    /// Files that the command made and then gave an mtime.
    dated: Set<&'t [u8]>,
    /// A file of `dated` was removed or overwritten, so its mtime is unknown at the end.
    date_is_lost: bool,
    /// A program to which times matter looked at a file of `dated`.
    dates_count: bool,
    /// Paths that must not exist before a run. If something had been there, the command would have
    /// made nothing at that path, or something else.
    must_be_absent: Set<&'t [u8]>,
    /// Paths that programs other than compilers looked at before the command made them. Such a look
    /// may decide what is done, as it does in `make`.
    looked_at_by_others: Set<&'t [u8]>,
    /// Paths with names that were made up at random.
    temporary_names: Set<&'t [u8]>,
    /// Those of `temporary_names` that a program made up for others to use. For example, `mktemp`
    /// does so.
    random_names: Vec<&'t [u8]>,
    /// The program that made each temporary file, with its arguments.
    authors: Map<&'t [u8], Running<'t>>,
    temporary_places: Set<&'t [u8]>,
    /// Paths for which `lstat` said that they do not exist. LLVM calls it before it removes a file.
    lstat_missing: Set<&'t [u8]>,
    /// Outputs that are written in place: they were opened without O_CREAT, or they are inputs as
    /// well.
    in_place: Set<&'t [u8]>,
    /// Paths that were to be unlinked and did not exist.
    unlinked: Set<&'t [u8]>,
    who: Who<'t>,
    /// Inode numbers that a program may have written down.
    inodes_shown: BTreeSet<u64>,
    /// Processes that run a program which the command made.
    run_made: Set<u32>,
    /// The habit of the program that each process runs, as a cache.
    habits: Map<u32, Habit>,
    /// How often each process has read the clock. The next two count local times and random
    /// numbers.
    clock_reads: Map<u32, u32>,
    zone_reads: Map<u32, u32>,
    random_reads: Map<u32, u32>,
    /// Processes whose last event was a draw of random numbers that libc may have made for itself,
    /// each with the `extra` of that event.
    drawn: Map<u32, u32>,
    /// Processes in which libc has drawn the random numbers that guard its memory.
    guarded: Set<u32>,
    /// Which process looked at which path. This and the next three sets hold lives: a pid, and how
    /// many processes had that pid before. `gives_modes` holds those that set the modes of files.
    seen_by: Vec<((u32, u32), &'t [u8])>,
    gives_modes: Set<(u32, u32)>,
    /// Lives that set the modes of directories.
    gives_directory_modes: Set<(u32, u32)>,
    /// Lives that looked at something that the command had made and whose mode depends on the
    /// umask.
    saw_masked: Set<(u32, u32)>,
    lives: Map<u32, u32>,
    /// Programs that read the clock, each with the file that standard output led to.
    times_told: Vec<(&'t [u8], (u64, u64))>,
    /// Logs that the command made, by device and inode.
    logs: Map<(u64, u64), &'t [u8]>,
    /// Files that the command made and read again, by device and inode.
    read_again: Set<(u64, u64)>,
    /// Processes that drew random numbers for a name and have not made anything with that name yet.
    named_at_random: Set<u32>,
    umask: bool,
    umask_is_set: bool,
    host: bool,
    sockets: bool,
    last_read: Map<u32, &'t [u8]>,
    /// The file that each process opened for reading last, if nothing in the command had opened it
    /// before.
    first_read: Map<u32, &'t [u8]>,
    /// Outputs whose writer would have renamed an old output to a temporary name, to write into
    /// that file.
    reused: Set<&'t [u8]>,
    /// The files that each process opened for reading. The program that the process executes next
    /// may inherit them.
    opened: Map<u32, Vec<&'t [u8]>>,
    /// Those of `opened` that were opened since the process last started another one. A shell that
    /// uses `vfork` opens files for its child.
    opened_for_child: Map<u32, Vec<&'t [u8]>>,
    /// The program of the previous event, by its address in the trace, and whether it is a part of
    /// a compiler. This is a cache: most events have the same program as the one before.
    last_part: Cell<(&'t [u8], bool)>,
    starts: Map<u32, i64>,
    anonymous: i64,
    environment: Map<&'t [u8], Option<&'t [u8]>>,
    /// Variables that need no observation by themselves but name the directory for temporary files.
    temporary_directories: Map<&'t [u8], Option<&'t [u8]>>,
    /// A temporary file could not be created because its directory does not exist.
    no_temporary_directory: bool,
    refusals: Vec<(Unrecorded, Vec<u8>)>,
    foreign_program: Option<&'t [u8]>,
    chance_program: Option<&'t [u8]>,
}

/// Reduces `trace` to what the run relied on and what it changed, by the rules of `policy`.
pub fn fold(trace: &Trace, policy: &Policy) -> Folded {
    let names = crate::paths::names(trace);
    let mut fold = Fold::default();
    if let Some(pid) = policy.first_pid {
        fold.starts.insert(pid, -1);
    }
    if trace.incomplete {
        fold.refuse(Unrecorded::Incomplete, b"");
    }
    for (mut event, (path, path2)) in trace.iter().zip(&names) {
        event.path = path.as_deref().unwrap_or(event.path);
        event.path2 = path2.as_deref().unwrap_or(event.path2);
        if matches!(event.kind, Kind::MakeDirectory | Kind::RemoveDirectory | Kind::ChangeMode) {
            event.path = without_slash(event.path);
        }
        if has_parents(event.path) && !fold.real.contains_key(event.path) {
            fold.real.insert(event.path, (policy.real)(event.path));
        }
        if SHORTAGES.contains(&event.error) {
            fold.refuse(Unrecorded::Shortage, event.path);
        }
        fold.event(&event, policy);
    }
    fold.finish(policy)
}

impl<'t> Fold<'t> {
    fn refuse(&mut self, why: Unrecorded, path: &[u8]) {
        self.refusals.push((why, path.to_vec()));
    }

    fn event(&mut self, e: &Event<'t>, policy: &Policy) {
        if !self.drawn.is_empty() {
            self.after_drawing(e, policy);
        }
        match e.kind {
            Kind::Start | Kind::Exec | Kind::ExecFailed | Kind::Spawned | Kind::Anonymous | Kind::Drop => {
                if e.kind == Kind::Start && !(policy.is_compiler_part)(file_name(e.path)) {
                    self.foreign_program = Some(e.path);
                }
                self.process(e, policy);
            }
            Kind::Object => self.read(e, false, policy),
            Kind::Open(flags) => self.open(e, flags, policy),
            Kind::Stat | Kind::Lstat | Kind::Access | Kind::ReadLink | Kind::RealPath | Kind::List => {
                if !self.runs_a_compiler_part(e.pid, policy) && !self.is_made(e) {
                    self.looked_at_by_others.insert(e.path);
                }
                self.look(e, policy);
            }
            Kind::Random if ![0, RANDOM_BY_VDSO].contains(&e.extra) => drop(self.drawn.insert(e.pid, e.extra)),
            Kind::Clock | Kind::Random => self.clock_or_random(e, policy),
            Kind::Forked => {
                if let Some(source) = self.who.learn(e) {
                    *self.lives.entry(e.pid).or_default() += 1;
                    self.habits.remove(&e.pid);
                    self.opened.remove(&e.pid);
                    if self.guarded.contains(&source) {
                        self.guarded.insert(e.pid);
                    } else {
                        self.guarded.remove(&e.pid);
                    }
                    for reads in [&mut self.clock_reads, &mut self.zone_reads, &mut self.random_reads] {
                        let before = reads.get(&source).copied().unwrap_or_default();
                        reads.insert(e.pid, before);
                    }
                }
            }
            Kind::Network if only_tries(e) && self.tries_sockets(e.pid, policy) => self.sockets = true,
            Kind::Network | Kind::UnixSocket => self.refuse(Unrecorded::Network, e.path),
            Kind::Identity => self.host = true,
            Kind::Umask => {
                self.umask = true;
                let is_answer = e.extra == event::REPORTED_UMASK && self.habit(e.pid, policy).reports;
                self.umask_is_set |= !is_answer && !self.runs_a_compiler_part(e.pid, policy);
            }
            // `SHORTAGES` has refused it by its error.
            Kind::Shortage => {}
            // For programs that are no parts of compilers, 4 is an exit code like any other.
            Kind::ChildDied if e.extra == 0 && !self.runs_a_compiler_part(e.pid, policy) => {}
            Kind::ChildDied if e.extra == 0 => self.refuse(Unrecorded::InternalError, e.path),
            Kind::ChildDied => self.refuse(Unrecorded::Signal, e.path),
            Kind::GetEnvironment => self.variable(e, policy),
            Kind::Closed => {
                if let Some(id) = e.identity {
                    self.closed.insert((id.device, id.inode), id);
                }
            }
            _ => self.change(e, policy),
        }
    }
}

/// Returns true if the event only creates a socket of the internet's families or lists the network
/// interfaces.
fn only_tries(e: &Event) -> bool {
    e.path == SOCKET && INTERNET.contains(&e.extra) || e.path == INTERFACES
}

/// Returns the path of a directory without a slash, or a slash and a dot, at its end.
fn without_slash(path: &[u8]) -> &[u8] {
    let path = path.strip_suffix(b"/.").unwrap_or(path);
    let end = path.iter().rposition(|&b| b != b'/').map_or(0, |last| last + 1);
    &path[..end.max(path.len().min(1))]
}
