//! The kernel observer: the kernel asks us before each system call that names or changes a path (seccomp user
//! notification), whatever the program is made of. For static programs, and the judge of the preloaded observer.
//!
//! Every call is let go on and runs as if nobody had asked. What it *will* find is looked up just before, by the same
//! path, and written down. That races with whoever changes the file system in between, and with another thread of the
//! tool that changes the path in memory. What covers it:
//!
//! | race | what covers it |
//! |---|---|
//! | a file is replaced or changed between our look and the call | its identity is in the event; the witness compares it with what is there at the end, and reading it twice with two identities refuses |
//! | a name appears or goes between our look and the call | the witness looks for every recorded absence and kind again at the end |
//! | the same, and undone again before the end | nothing; the preloaded observer's `stat` after its call has the same gap |
//! | one of the tool's processes makes a file while another looks for it | nothing, but then the tool's own result depends on which of them is first |
//! | a change that was foreseen does not happen | the thread's next call finds it so, and the trace is refused (`settle.rs`) |
//! | a program that was foreseen does not begin | the same, by `/proc/PID/exe` |
//! | a path is changed in memory while the call waits | nothing: a program that does so is hostile or broken, and gets what it asked for; it is only recorded wrongly |
//! | a process dies while its memory is read | answering fails then, and what was read is forgotten |
//!
//! A signal that arrives while a call is asked about ends the call with EINTR, if the program handles the signal without
//! SA_RESTART. The call would not have failed without us: `open` and `stat` of a local file never do. Since Linux 5.19 this
//! can only happen before we have heard of the call. Either way we notice: an answer finds nobody waiting, or the kernel's
//! numbers of questions have a gap. If a program of the run has such a handler, the run is not recorded then.
//!
//! An error that has nothing to do with names (too many open files, no memory, a failing disk) is not seen: the tool
//! makes of it what it makes, usually a message and a failure that the caller knows.
//!
//! Not seen either: the environment, so whoever records must take it whole. The clock is made visible (`clock.rs`);
//! the processor's own counters are not. Programs of another architecture, with special
//! rights, in namespaces or roots of their own, io_uring and calls by file handle are a `Drop`.
//!
//! Without privileges the kernel demands the promise to gain none (`no_new_privs`): set-user-id programs that the tool
//! starts then run without theirs.
//!
//! | file | is |
//! |---|---|
//! | `calls` | the watched calls as a table |
//! | `filter` | the table as a program for the kernel |
//! | `process` | memory, directory and descriptors of a process |
//! | `watch` | a call → events; looking |
//! | `open`, `change`, `start` | events of opening, of changing, of programs |
//! | `clock` | making programs ask for the time |
//! | `settle` | whether what was foreseen happened |
//! | `sample` | the same of single processes, by `ptrace`: how programs of a whole command are judged |

mod calls;
mod change;
mod clock;
mod filter;
mod open;
mod process;
mod sample;
mod settle;
mod start;
mod watch;

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

pub(crate) use self::sample::{How, Life, lives, take_samples};

use larder_spawn::{Command, Destinations};
use larder_sys::{Answered, Attendant, FilterStep, Listener, Rivalry};
use std::collections::HashMap;

use self::process::Caller;
pub use self::watch::INTERRUPTED;
use self::watch::{Watch, bare};
use crate::{Event, Kind, Observed, Observer, Trace};

/// More events are not kept of one command.
const EVENTS_MAX: usize = 4 << 20;
/// More processes are not followed at a time.
const PROCESSES_MAX: usize = 512;

/// Runs a tool with the kernel asking us.
pub struct KernelObserver {
    closing: Closing,
}

/// Whether the kernel asks as well when a descriptor is closed.
///
/// A signal that comes before we have taken a question ends the call with EINTR, where the program has set a handler
/// that does not restart calls. A file is not opened then, which programs expect; that a descriptor stays open they do
/// not, and `dash`, which has such a handler for SIGCHLD, closes pipes just when its children end: somebody would wait
/// for the pipe's end for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    /// Of what has no such handler, as compilers and binutils.
    Asked,
    /// How files were when they were closed is not known.
    Unasked,
}

impl KernelObserver {
    /// An observer for a system on which [`KernelObserver::try_out`] succeeds. Whether the kernel lets us listen to this
    /// tool (only one may) shows when that is started.
    pub fn new(closing: Closing) -> KernelObserver {
        KernelObserver { closing }
    }

    /// Tries all that this observer needs, on a child of its own. The error says what is refused here.
    pub fn try_out() -> io::Result<()> {
        let own_number = larder_sys::link_target(b"/proc/self")?;
        if own_number != larder_sys::process_id().to_string().as_bytes() {
            return Err(io::Error::other("/proc is that of another process namespace"));
        }
        larder_sys::try_attending()
    }

    /// What sees while something else runs the tool; once that has ended, its trace is where the second part says.
    /// `wrapper_reports`: the preloaded library watches as well. Then we may be started again inside the run and report
    /// ourselves, and the library repeats a call that a signal interrupted.
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
            deserted: false,
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

/// Answers, and has the watch write down what was asked.
pub(crate) struct Supervisor {
    watch: Watch,
    closing: Closing,
    /// A call was interrupted after we had heard of it.
    interrupted: bool,
    /// The preloaded library makes an interrupted call again (`DONE`, `preload/real.h`).
    calls_are_repeated: bool,
    listener: Option<Listener>,
    /// A handle on each process that called, to learn how it ended.
    processes: HashMap<u32, Option<OwnedFd>>,
    /// The run cannot be recorded: nothing more is looked at.
    given_up: bool,
    /// No process is left that could ask.
    deserted: bool,
    first: u32,
    trace: Rc<Cell<Option<Trace>>>,
}

impl Supervisor {
    /// Keep a handle on a process that calls for the first time.
    fn follow(&mut self, process: u32) {
        if self.processes.contains_key(&process) {
            return;
        }
        if self.processes.len() >= PROCESSES_MAX {
            self.note_deaths();
        }
        let room = self.processes.values().flatten().count() < PROCESSES_MAX;
        let handle = if room { larder_sys::process_handle(process).ok() } else { None };
        self.processes.insert(process, handle);
    }

    /// What a parent makes of a child's death by a signal may come out otherwise the next time. How the tool itself
    /// ended its caller knows.
    fn note_deaths(&mut self) {
        let (first, watch) = (self.first, &mut self.watch);
        self.processes.retain(|process, handle| {
            if larder_sys::is_thread_of(*process, *process) {
                return true;
            }
            let signal = handle.as_ref().and_then(larder_sys::signal_that_ended).filter(|_| *process != first);
            if let Some(signal) = signal {
                let caller = Caller { thread: *process, process: *process };
                watch.events.push(Event { extra: signal as u32, ..bare(caller, Kind::ChildDied) });
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
        self.listener.as_ref().filter(|_| !self.deserted).map(AsFd::as_fd)
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
        self.deserted = true;
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
            let what = b"a signal came while a system call was asked about".to_vec();
            self.watch.events.push(Event { extra: INTERRUPTED, path: what, ..bare(caller, Kind::Drop) });
        }
        let events = std::mem::take(&mut self.watch.events);
        let incomplete = others_live || events.len() >= EVENTS_MAX;
        self.trace.set(Some(Trace { events, incomplete, ..Trace::default() }));
    }
}
