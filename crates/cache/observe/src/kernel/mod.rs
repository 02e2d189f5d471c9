//! The kernel observer: the kernel asks us before each system call that names or changes a path
//! (seccomp user notification), whatever kind of program makes the call. It is used for static
//! programs, and to check the preloaded observer.
//!
//! Each call is let go on and runs as it would without us. Just before that, we look up by the same
//! path what the call *will* find, and write an event. This races with other processes that change
//! the file system in between, and with another thread of the tool that changes the path in memory:
//!
//! * A file is replaced or changed between our stat and the call. Its identity is in the event:
//!   `store::InputVerifier` compares it with the file at the end, and a file that was read with two
//!   identities refuses the run.
//! * A path appears or goes between our stat and the call. `InputVerifier` checks every recorded
//!   absence and kind again at the end.
//! * A path appears or goes, and that is undone before the end. Nothing covers this. The preloaded
//!   observer's `stat` after its call has the same gap.
//! * One process of the tool creates a file while another looks for it. Nothing covers this, but
//!   then the tool's own result depends on which of them is first.
//! * A change that was foreseen does not happen. The thread's next call shows it, and the run is
//!   refused (`settle.rs`).
//! * A program that was foreseen does not begin. `/proc/PID/exe` shows it at the next call, and the
//!   run is refused (`settle.rs`).
//! * A path is changed in memory while the call waits. Nothing covers this. Only a hostile or
//!   broken program does that. It gets what it asked for, and only the record is wrong.
//! * A process dies while its memory is read. Answering fails then, and what was read is dropped.
//!
//! A signal that arrives while we are asked about a call ends that call with EINTR, if the program
//! handles the signal without SA_RESTART. Unobserved, the call would not have failed: `open` and
//! `stat` of a local file never return EINTR. Since Linux 5.19 this can only happen before we have
//! received the question. We notice it in either case: no call waits for our answer, or the
//! kernel's numbers of questions have a gap. If a program of the run has such a handler, the run is
//! then not recorded.
//!
//! Not seen are:
//! * errors that have nothing to do with paths, such as too many open files, no memory, or a
//!   failing disk. Usually the tool reports such an error and fails.
//! * the environment. The caller must record all of it.
//! * the processor's own time counters. The clock is made visible (`clock.rs`).
//!
//! These end in a `Drop` event: programs of another architecture, with special rights, or in
//! namespaces or roots of their own; io_uring; and calls by file handle.
//!
//! Without privileges the kernel demands that the process gives up gaining any (`no_new_privs`).
//! The set-user-id programs that the tool starts then run without their rights.
//!
//! | file | is about |
//! |---|---|
//! | `calls` | the observed calls, as a table |
//! | `filter` | the table, as a BPF program for the kernel |
//! | `process` | memory, directory and descriptors of a process |
//! | `watch` | turning a call into events; calls that only look |
//! | `open`, `change`, `start` | events of opening, of changing, and of executing programs |
//! | `clock`, `vdso` | making reads of the clock visible |
//! | `pending`, `settle` | whether what was foreseen happened |
//! | `sample` | observing single processes by `ptrace`, to check the programs of a whole command |
//!
//! Unaware of: what follows from an event, where verdicts are stored.

mod calls;
mod change;
mod clock;
mod filter;
mod open;
mod pending;
mod process;
mod sample;
mod settle;
mod start;
mod vdso;
mod watch;

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

pub use self::filter::Closing;
pub use self::sample::Interest;
pub(crate) use self::sample::{How, Life, lives, take_samples};

use larder_spawn::{Command, Destinations};
use larder_sys::{Answered, Attendant, FilterStep, Listener, Rivalry};
use std::collections::HashMap;

use self::process::Caller;
pub use self::watch::INTERRUPTED;
use self::watch::{Watch, bare};
use crate::{Event, EventKind, Observed, Observer, Trace};

/// The maximum number of events of one command. A run with more is not recorded.
const EVENTS_MAX: usize = 4 << 20;
/// The maximum number of processes whose end is awaited at a time. Deaths of others go unnoticed.
const PROCESSES_MAX: usize = 512;

/// Runs a tool while the kernel asks us about its system calls.
pub struct KernelObserver {
    closing: Closing,
}

impl KernelObserver {
    /// Creates an observer for a system on which [`KernelObserver::try_out`] succeeds. Starting the
    /// tool may still fail, because only one process may listen to it.
    pub fn new(closing: Closing) -> KernelObserver {
        KernelObserver { closing }
    }

    /// Tries everything that this observer needs, on a child process. The error says what is
    /// refused on this system.
    pub fn try_out() -> io::Result<()> {
        let own_number = larder_sys::link_target(b"/proc/self")?;
        if own_number != larder_sys::process_id().to_string().as_bytes() {
            return Err(io::Error::other("/proc belongs to another PID namespace"));
        }
        larder_sys::try_attending()
    }

    /// Returns a supervisor that observes while another observer runs the tool, and the place in
    /// which it leaves its trace when the tool has ended. `wrapper_reports` says that the preloaded
    /// library observes as well. Then a nested wrapper reports by the library's log, and the
    /// library repeats calls that a signal interrupted.
    pub(crate) fn supervisor(&self, wrapper_reports: bool) -> (Supervisor, Rc<Cell<Option<Trace>>>) {
        let trace = Rc::default();
        let supervisor = Supervisor {
            watch: Watch::new(wrapper_reports),
            closing: self.closing,
            interrupted: false,
            calls_are_repeated: wrapper_reports,
            listener: None,
            processes: HashMap::default(),
            given_up: false,
            no_process_left: false,
            first: 0,
            trace: Rc::clone(&trace),
        };
        (supervisor, trace)
    }
}

impl Observer for KernelObserver {
    fn name(&self) -> larder_model::Observer {
        larder_model::Observer::Kernel
    }

    fn run(&self, command: &Command, to: &Destinations, rival: Rivalry) -> io::Result<Observed> {
        let (mut supervisor, trace) = self.supervisor(false);
        let finished = larder_spawn::run_attended(command, to, &mut supervisor, rival)?;
        Ok(Observed { finished, trace: trace.take().unwrap_or(Trace { incomplete: true, ..Trace::default() }) })
    }
}

/// Answers the kernel's questions, and has [`Watch`] write the events.
pub(crate) struct Supervisor {
    watch: Watch,
    closing: Closing,
    /// A call was interrupted after we had received its question.
    interrupted: bool,
    /// The preloaded library repeats an interrupted call (`DONE` in `preload/real.h`).
    calls_are_repeated: bool,
    listener: Option<Listener>,
    /// A handle of each process that has made a call, which tells how the process ended.
    processes: HashMap<u32, Option<OwnedFd>>,
    /// The run cannot be recorded, so no further events are written.
    given_up: bool,
    /// No process is left that could ask.
    no_process_left: bool,
    first: u32,
    trace: Rc<Cell<Option<Trace>>>,
}

impl Supervisor {
    /// Opens a handle of a process that makes its first call.
    fn follow(&mut self, process: u32) {
        if self.processes.contains_key(&process) {
            return;
        }
        if self.processes.len() >= PROCESSES_MAX {
            self.note_deaths();
        }
        let room = self.processes.values().flatten().count() < PROCESSES_MAX;
        let handle = if room { larder_sys::open_process(process).ok() } else { None };
        self.processes.insert(process, handle);
    }

    /// Writes an event for each process that has died by a signal, and forgets ended processes. The
    /// death may not happen in the next run, and the parent may then do something else. The tool
    /// itself is left out because our caller knows how it ended.
    fn note_deaths(&mut self) {
        let (first, watch) = (self.first, &mut self.watch);
        self.processes.retain(|process, handle| {
            if larder_sys::is_thread_of(*process, *process) {
                return true;
            }
            let signal = handle.as_ref().and_then(larder_sys::signal_that_ended).filter(|_| *process != first);
            if let Some(signal) = signal {
                let caller = Caller { thread: *process, process: *process };
                watch.events.push(Event { extra: signal as u32, ..bare(caller, EventKind::ChildDied) });
            }
            false
        });
    }
}

impl Attendant for Supervisor {
    fn filter(&self) -> Vec<FilterStep> {
        filter::program(self.closing)
    }

    fn attach(&mut self, listener: Listener, pid: u32) {
        self.listener = Some(listener);
        self.first = pid;
        self.watch.not_begun = Some(pid);
    }

    fn listener(&self) -> Option<BorrowedFd<'_>> {
        self.listener.as_ref().filter(|_| !self.no_process_left).map(AsFd::as_fd)
    }

    fn serve(&mut self) -> io::Result<()> {
        let Some(listener) = &self.listener else { return Ok(()) };
        let Some(call) = listener.receive() else { return Ok(()) };
        if self.given_up || self.watch.events.len() >= EVENTS_MAX {
            return match listener.let_go_on(&call) {
                Answered::Refused => Err(io::ErrorKind::Unsupported.into()),
                Answered::GoesOn | Answered::Gone => Ok(()),
            };
        }
        let caller = self.watch.caller(call.thread);
        self.watch.settle(Some(call.thread));
        self.watch.show_clock(caller, &|| listener.still_waits(&call));
        let mark = self.watch.mark();
        if caller.process != self.first && !self.processes.contains_key(&caller.process) {
            self.watch.appears(caller);
        }
        self.watch.see(caller, &call);
        match listener.let_go_on(&call) {
            Answered::GoesOn => {}
            Answered::Refused => return Err(io::ErrorKind::Unsupported.into()),
            Answered::Gone => {
                self.interrupted |= larder_sys::is_thread_of(caller.thread, caller.process);
                self.watch.take_back(&mark);
                return Ok(());
            }
        }
        self.given_up = self.watch.dropped_since(&mark);
        self.follow(caller.process);
        Ok(())
    }

    fn desert(&mut self) {
        self.no_process_left = true;
    }

    fn release(&mut self, others_live: bool) {
        if !others_live {
            self.watch.settle(None);
            self.watch.hidden_clocks_are_gone();
            self.note_deaths();
        }
        if let Some(listener) = self.listener.take() {
            self.interrupted |= listener.missed_some();
            listener.release(others_live);
        }
        if self.interrupted && self.watch.may_be_interrupted && !self.calls_are_repeated {
            let caller = Caller { thread: self.first, process: self.first };
            let what = b"a signal arrived while the kernel asked about a system call".to_vec();
            self.watch.events.push(Event { extra: INTERRUPTED, path: what, ..bare(caller, EventKind::Drop) });
        }
        let events = std::mem::take(&mut self.watch.events);
        let incomplete = others_live || events.len() >= EVENTS_MAX;
        self.trace.set(Some(Trace { events, incomplete, ..Trace::default() }));
    }
}
