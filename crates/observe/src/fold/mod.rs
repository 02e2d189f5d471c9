//! From a trace to what was relied on and what was changed. Pure: no file is looked at here.
//!
//! Files that the command made before it read them are no inputs, temporaries included; what it made and left are its
//! outputs. A path that it looked at and changed later counts as it was before. What cannot be recorded soundly is a
//! refusal, with the path that shows why.
//!
//! | file | is about |
//! |---|---|
//! | `processes` | which program each process runs, and what it may do |
//! | `looks` | what is read, looked at, listed, not found |
//! | `opening` | files that are opened, for reading or writing |
//! | `changes` | names that come and go, modes, times |
//! | `finish` | what counts in the end |

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

use crate::paths::{file_name, has_parents};
use crate::trace::{self, INTERFACES, INTERNET, Kind, RANDOM_BY_VDSO, SOCKET, Trace};
use crate::who::{Running, Who};

type Event<'a> = trace::Event<&'a [u8]>;

const ENOENT: i32 = 2;
const EEXIST: i32 = 17;
const EINVAL: i32 = 22;
/// EIO, EAGAIN, ENOMEM, ENFILE, EMFILE, EFBIG, ENOSPC, EDQUOT: a run that met one might end otherwise the next time.
const SHORTAGES: [i32; 8] = [5, 11, 12, 23, 24, 27, 28, 122];

/// From a program's file name, its arguments as a `Kind::Start` has them, and where it comes from, to what it does.
pub type HabitOf<'a> = dyn Fn(&[u8], &[u8], Origin) -> Habit + 'a;

/// What depends on the kind of command.
pub struct Policy<'a> {
    /// Program file names whose way with an existing output is known, so that looking at it first is no observation.
    pub replaces_output: &'a dyn Fn(&[u8]) -> bool,
    /// Program file names that unlink an existing output before they open it.
    pub unlinks_output: &'a dyn Fn(&[u8]) -> bool,
    /// Program file names that close an output before it is complete, and that may move an existing one aside to write
    /// into it.
    pub rewrites_output: &'a dyn Fn(&[u8]) -> bool,
    /// Program file names that open an existing output, without reading it, before they unlink it.
    pub opens_output: &'a dyn Fn(&[u8]) -> bool,
    /// Program file names that add the right to execute to what they made.
    pub adds_execute: &'a dyn Fn(&[u8]) -> bool,
    /// Variables that need no observation.
    pub variable_is_covered: &'a dyn Fn(&[u8]) -> bool,
    /// The environment that the command was started with.
    pub variable: &'a dyn Fn(&[u8]) -> Option<Vec<u8>>,
    /// Program file names that are known parts of compilers: they ask libc for the variables they use.
    pub is_compiler_part: &'a dyn Fn(&[u8]) -> bool,
    /// What a program of this file name and with these arguments, as a `Kind::Start` has them, does in every run,
    /// whatever its result.
    pub habit: &'a HabitOf<'a>,
    /// Whether a program of this file name and with these arguments finds out about the machine for a build, by making
    /// programs and running them.
    pub configures: &'a dyn Fn(&[u8], &[u8]) -> bool,
    /// The wrapper's own file: inside the run it reports what the results that it hands out rely on. Another program of
    /// its name does not.
    pub wrapper: &'a [u8],
    /// What was in a file before the command ran, where that was noted.
    pub before: &'a dyn Fn(&Identity) -> Option<Prior>,
    /// Whether a file is one that people read when something went wrong: times in it are of no matter.
    pub is_log: &'a dyn Fn(&[u8]) -> bool,
    /// Whether the command may write there.
    pub may_write: &'a dyn Fn(&[u8]) -> bool,
    /// The path without links and `..` in its directory, as that is at the end.
    pub real: &'a dyn Fn(&[u8]) -> Option<Vec<u8>>,
    /// The first process of the command, which its caller started.
    pub first_pid: Option<u32>,
    /// Random numbers and addresses that a program is not known to ask for are no refusal, because the caller compares the
    /// result with that of another run before it serves.
    pub chance_is_compared: bool,
}

/// Where a program of a run comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The command made it, and a program that [`Policy::configures`] started it.
    MadeToAsk,
    /// Anywhere else.
    Other,
}

/// What came of a trace.
#[derive(Debug, Default)]
pub struct Folded {
    /// Relied on and changed.
    pub seen: Seen,
    /// Why it must not be recorded; the first counts.
    pub refusals: Vec<(Unrecorded, Vec<u8>)>,
    /// A program ran that is no known part of a compiler. It may be a shell, which reads its environment without
    /// asking anybody.
    pub foreign_program: Option<Vec<u8>>,
    /// Names that were made up at random and are gone again: a result that holds one is another each time.
    pub random_names: Vec<Vec<u8>>,
    /// Numbers of inodes that a program was asked for.
    pub inodes_shown: BTreeSet<u64>,
    /// A program that asked for random numbers, or for its addresses, if it is not known that they do not matter to it
    /// and `Policy::chance_is_compared` holds.
    pub chance_program: Option<Vec<u8>>,
}

#[derive(Clone, Debug)]
enum Made<'t> {
    /// `writer` is the file name of the program: the number of its process may be another's by the end.
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

/// `'t` is the trace's: paths stay where they stand in it.
#[derive(Default)]
struct Fold<'t> {
    order: Vec<&'t [u8]>,
    looked: Map<&'t [u8], Looked>,
    /// Type and permissions of what was there before the command changed it; permissions are 0 where nobody saw them.
    modes: Map<&'t [u8], u32>,
    made: Map<&'t [u8], Made<'t>>,
    made_order: Vec<&'t [u8]>,
    /// There was a directory among it.
    made_directories: bool,
    /// Names that came or went, and whether they were there before.
    names: Map<&'t [u8], bool>,
    made_inodes: Set<(u64, u64)>,
    /// Names with a `..` in them that led to what the command had made.
    made_by_other_names: Set<&'t [u8]>,
    /// Names by which the command found what it had made by others: links that were there before.
    leading: Set<&'t [u8]>,
    /// Names with a `..` in them, and where they lead at the end.
    real: Map<&'t [u8], Option<Vec<u8>>>,
    /// How each file was when it was last closed after writing.
    closed: Map<(u64, u64), Identity>,
    /// Owners or attributes of what the command made were set.
    owners_set: bool,
    /// Files that the command made and then gave attributes: `cp` sets modes so.
    attributed: Set<&'t [u8]>,
    /// Files that the command made and then gave a time.
    dated: Set<&'t [u8]>,
    /// Such a file is gone, so that nobody can say any more which time it had.
    date_is_lost: bool,
    /// A program that goes by times looked at one of those.
    dates_count: bool,
    /// What was made there would not have been, or otherwise, over something else.
    must_be_absent: Set<&'t [u8]>,
    /// Looked at by programs that are no compilers before the command made it: make decides by what is there.
    looked_at_by_others: Set<&'t [u8]>,
    /// Names that were made up at random.
    temporary_names: Set<&'t [u8]>,
    /// Those among them that a program was started to make up, for others to use.
    random_names: Vec<&'t [u8]>,
    /// Who made each temporary file.
    authors: Map<&'t [u8], Running<'t>>,
    temporary_places: Set<&'t [u8]>,
    /// Looked at as a link and not there: LLVM does so before it removes a file.
    lstat_missing: Set<&'t [u8]>,
    /// Opened for writing by programs that would not have made them: they write to what is there.
    in_place: Set<&'t [u8]>,
    /// Where something was to be removed and nothing was.
    unlinked: Set<&'t [u8]>,
    who: Who<'t>,
    /// Inodes whose numbers a program wrote down.
    inodes_shown: BTreeSet<u64>,
    /// Processes that run a program which the command made.
    run_made: Set<u32>,
    /// Of the program that each process runs.
    habits: Map<u32, Habit>,
    /// How often each process read the clock and asked for random numbers.
    clock_reads: Map<u32, u32>,
    zone_reads: Map<u32, u32>,
    random_reads: Map<u32, u32>,
    /// Processes whose last event was random numbers that libc may have asked for itself, and what for.
    drawn: Map<u32, u32>,
    /// Processes in which libc has asked for those that guard its memory.
    guarded: Set<u32>,
    /// Which process looked at what, and those that give modes to what they make, each by its number and how many had
    /// that before.
    seen_by: Vec<((u32, u32), &'t [u8])>,
    gives_modes: Set<(u32, u32)>,
    /// The same of directories.
    gives_directory_modes: Set<(u32, u32)>,
    /// Those that looked at what the command had made with the mode that the umask left of another.
    saw_masked: Set<(u32, u32)>,
    lives: Map<u32, u32>,
    /// Who told the time, and the file that standard output led to.
    times_told: Vec<(&'t [u8], (u64, u64))>,
    /// Logs that the command made, by device and inode.
    logs: Map<(u64, u64), &'t [u8]>,
    /// Files that the command made and read again.
    read_again: Set<(u64, u64)>,
    /// Processes that took random numbers for a name, until they make something of it.
    named_at_random: Set<u32>,
    umask: bool,
    umask_is_set: bool,
    host: bool,
    sockets: bool,
    last_read: Map<u32, &'t [u8]>,
    /// What each process opened for reading last, if nothing in the command had opened it before.
    first_read: Map<u32, &'t [u8]>,
    /// Outputs over which their writer would have moved the old ones, to write into those.
    reused: Set<&'t [u8]>,
    /// What each process opened for reading, itself: a program that it becomes may find that open.
    opened: Map<u32, Vec<&'t [u8]>>,
    /// Of these, what it opened since it last started another process: a shell that uses `vfork` opens for that one.
    opened_for_child: Map<u32, Vec<&'t [u8]>>,
    /// A program's name as it stands in the trace, and whether it is a part of a compiler: the next event is mostly of
    /// the same.
    last_part: Cell<(&'t [u8], bool)>,
    starts: Map<u32, i64>,
    anonymous: i64,
    environment: Map<&'t [u8], Option<&'t [u8]>>,
    /// Of those that need no observation, the ones that say where temporary files go.
    temporary_directories: Map<&'t [u8], Option<&'t [u8]>>,
    /// There was no directory for a temporary file.
    no_temporary_directory: bool,
    refusals: Vec<(Unrecorded, Vec<u8>)>,
    foreign_program: Option<&'t [u8]>,
    chance_program: Option<&'t [u8]>,
}

/// Fold `trace` by `policy`.
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
                let is_answer = e.extra == trace::REPORTED_UMASK && self.habit(e.pid, policy).reports;
                self.umask_is_set |= !is_answer && !self.runs_a_compiler_part(e.pid, policy);
            }
            // `SHORTAGES` refuses it by its error.
            Kind::Shortage => {}
            // Of another program 4 is an exit code like any other.
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

/// Whether it asked for a socket of the internet's families, or for interfaces, and no more.
fn only_tries(e: &Event) -> bool {
    e.path == SOCKET && INTERNET.contains(&e.extra) || e.path == INTERFACES
}

/// A directory's name, which may have a slash at its end, or a dot after that.
fn without_slash(path: &[u8]) -> &[u8] {
    let path = path.strip_suffix(b"/.").unwrap_or(path);
    let end = path.iter().rposition(|&b| b != b'/').map_or(0, |last| last + 1);
    &path[..end.max(path.len().min(1))]
}

fn parent(path: &[u8]) -> Option<&[u8]> {
    let slash = path.iter().rposition(|&b| b == b'/')?;
    Some(&path[..slash.max(1)])
}
