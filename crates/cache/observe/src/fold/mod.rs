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
//! | `policy` | the rules that the caller gives |
//! | `processes` | which program each process runs, and what it may do |
//! | `looks` | paths that are read, looked at, listed, or missing |
//! | `directories` | which looks at directories are for their mtimes |
//! | `opening` | files that are opened, for reading or writing |
//! | `changes` | paths that come and go, modes, times |
//! | `dates` | from which files the command may have copied mtimes |
//! | `finish` | what counts at the end |
//! | `path_state`, `process_state`, `date_state`, `run_state` | what is known of each path, process, set mtime, and run |
//!
//! Unaware of: which observer made the trace, the content of files, the store.

mod changes;
mod date_state;
mod dates;
mod directories;
mod finish;
mod looks;
mod opening;
mod path_state;
mod policy;
mod process_state;
mod processes;
mod run_state;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use larder_model::path::{file_name, without_slashes};
use larder_model::{Seen, Unrecorded};

use self::date_state::Dates;
use self::path_state::{Files, Paths};
pub use self::policy::{HabitOf, Origin, Policy};
use self::process_state::{Life, Processes};
use self::run_state::RunState;
use crate::event::{self, EventKind, INTERFACES, INTERNET, RANDOM_BY_VDSO, SOCKET};
use crate::process_tree::Running;
use crate::trace::Trace;
use larder_model::path::has_parents;

type Event<'a> = event::Event<&'a [u8]>;

/// If a call of a run failed with one of these, the next run may end differently.
const SHORTAGES: [i32; 8] =
    [libc::EIO, libc::EAGAIN, libc::ENOMEM, libc::ENFILE, libc::EMFILE, libc::EFBIG, libc::ENOSPC, libc::EDQUOT];

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
    /// Variables that code of the build asked for in the process of a compiler
    /// ([`larder_model::Habit::runs_code_of_builds`]). They count even if the compiler's own
    /// question does not.
    pub late_variables: Vec<Vec<u8>>,
    /// Such code asked for the path of the working directory, or may know the path of a source.
    pub asks_directory_late: bool,
    /// Such code may read the command line. No event shows that, so the caller sets it from
    /// the names in the code.
    pub reads_arguments_late: bool,
}

/// The state of a fold. `'t` is the lifetime of the trace: paths are slices of it.
#[derive(Default)]
struct Fold<'t> {
    paths: Paths<'t>,
    files: Files<'t>,
    processes: Processes<'t>,
    run: RunState<'t>,
    dates: Dates,
    /// Which process looked at which path.
    seen_by: Vec<(Life, &'t [u8])>,
}

/// Reduces `trace` to what the run relied on and what it changed, by the rules of `policy`.
pub fn fold(trace: &Trace, policy: &Policy) -> Folded {
    let names = crate::paths::names(trace, policy.real);
    let mut fold = Fold::default();
    if let Some(pid) = policy.first_pid {
        fold.processes.state(pid).began = -1;
    }
    if trace.incomplete {
        fold.refuse(Unrecorded::Incomplete, b"");
    }
    for (mut event, (path, path2)) in trace.iter().zip(&names) {
        event.path = path.as_deref().unwrap_or(event.path);
        event.path2 = path2.as_deref().unwrap_or(event.path2);
        if matches!(event.kind, EventKind::MakeDirectory | EventKind::RemoveDirectory | EventKind::ChangeMode) {
            event.path = without_slash(event.path);
        }
        if event.kind != EventKind::Symlink {
            event.path = fold.paths.as_made(event.path);
        }
        if matches!(event.kind, EventKind::Rename(_) | EventKind::Link | EventKind::Symlink) {
            event.path2 = fold.paths.as_made(event.path2);
        }
        if has_parents(event.path) {
            fold.paths.state(event.path).real.get_or_insert_with(|| (policy.real)(event.path));
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
        self.run.refuse(why, path);
    }

    /// Notes what a process may show of the answer of `uname`. A nested wrapper says which field.
    fn host(&mut self, e: &Event<'t>, policy: &Policy) {
        let letters = match u8::try_from(e.extra) {
            Ok(letter) if letter != 0 => vec![letter],
            _ => {
                let Running { program, arguments } = self.processes.runs(e.pid);
                (policy.host_fields)(program, arguments)
            }
        };
        let host = &mut self.run.host;
        host.extend(letters);
        host.sort_unstable();
        host.dedup();
    }

    fn event(&mut self, e: &Event<'t>, policy: &Policy) {
        self.after_drawing(e, policy);
        self.after_looking(e, policy);
        self.after_searching(e, policy);
        if self.uses_moved_aside(e) {
            self.refuse(Unrecorded::UpdatesFile, e.path);
        }
        if e.kind != EventKind::Late && (self.is_job_server(e, policy) || self.is_private(e, policy)) {
            return;
        }
        match e.kind {
            EventKind::Start
            | EventKind::Exec
            | EventKind::ExecFailed
            | EventKind::Spawned
            | EventKind::Anonymous
            | EventKind::Drop => {
                if e.kind == EventKind::Start && !(policy.is_compiler_part)(file_name(e.path)) {
                    self.run.foreign_program = Some(e.path);
                }
                self.process(e, policy);
            }
            EventKind::Object => self.read(e, false, policy),
            EventKind::Open(flags) => self.open(e, flags, policy),
            EventKind::Stat
            | EventKind::Lstat
            | EventKind::Access
            | EventKind::ReadLink
            | EventKind::RealPath
            | EventKind::List => {
                if !self.processes.runs_a_compiler_part(e.pid, policy) && !self.is_made(e) {
                    self.paths.state(e.path).looked_at_by_others = true;
                }
                self.look(e, policy);
            }
            EventKind::Random if ![0, RANDOM_BY_VDSO].contains(&e.extra) => {
                self.processes.state(e.pid).drawn = Some(e.extra);
            }
            EventKind::Clock | EventKind::Random => self.clock_or_random(e, policy),
            EventKind::Forked => self.processes.forked(e),
            EventKind::Network if only_tries(e) && self.tries_sockets(e.pid, policy) => self.run.sockets = true,
            EventKind::Network | EventKind::UnixSocket => self.refuse(Unrecorded::Network, e.path),
            EventKind::Identity => self.host(e, policy),
            EventKind::Umask => {
                self.run.umask = true;
                let is_answer = e.extra == event::REPORTED_UMASK && self.habit(e.pid, policy).reports;
                self.run.umask_is_set |= !is_answer && !self.processes.runs_a_compiler_part(e.pid, policy);
            }
            // `SHORTAGES` has refused it by its error.
            EventKind::Shortage => {}
            // For programs that are no parts of compilers, 4 is an exit code like any other.
            EventKind::ChildDied if e.extra == 0 && !self.processes.runs_a_compiler_part(e.pid, policy) => {}
            EventKind::ChildDied if e.extra == 0 => self.refuse(Unrecorded::InternalError, e.path),
            EventKind::ChildDied => self.refuse(Unrecorded::Signal, e.path),
            EventKind::GetEnvironment => self.variable(e, policy),
            EventKind::Late => self.late(e, policy),
            EventKind::Closed => {
                if let Some(id) = e.identity {
                    self.files.closed.insert(id.file_id(), id);
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
    &path[..without_slashes(path).len().max(path.len().min(1))]
}
