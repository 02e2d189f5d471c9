//! Starts a tool: either this process becomes the tool, or the tool runs as a child whose output is
//! passed on and kept.
//!
//! The tool inherits everything from the caller that a child can inherit: working directory, umask,
//! limits, priority, cgroup, file descriptors, signal mask. There are two exceptions. If its output
//! is kept, its standard output and error lead through this process. If a class is requested, its
//! scheduling differs.
//!
//! | file | is |
//! |---|---|
//! | `tokens/` | job slots: how many tools run at once |
//! | `starvation.rs` | whether tools in a lowered class get enough processor time |
//!
//! Unaware of: what the tool is, what is observed, the store.
#![forbid(unsafe_code)]
// Only for Linux so far. On other systems tools run untouched, and this crate is empty.
#![cfg(target_os = "linux")]

mod starvation;
mod tokens;

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant, SystemTime};

use larder_sys::{
    Attendant, Child, ChildEnd, PseudoTerminal, Rivalry, SignalForwarding, Stream, Survivors, TerminalSize, Use,
};
pub use larder_sys::{Class, SchedPolicy};

pub use tokens::{Asker, JOBS_MAX, Needs, Status, Taken, Token, Tokens};

/// How long the caller waits for processes that its tool left running, unless they end earlier. A
/// process that stays on purpose (`sleep 60 &`) costs each caller this time, so it is short.
const SURVIVORS_PATIENCE: Duration = Duration::from_millis(100);
/// The pause between two checks of those processes.
const SURVIVORS_LOOK_EVERY: Duration = Duration::from_millis(1);

/// A program, its arguments and its environment.
#[derive(Clone, Debug)]
pub struct Command {
    /// The path of the program.
    pub program: Vec<u8>,
    /// All arguments, `argv[0]` first.
    pub argv: Vec<Vec<u8>>,
    /// The environment as `NAME=value`.
    pub environment: Vec<Vec<u8>>,
    /// How the program is scheduled.
    pub sched_policy: SchedPolicy,
}

/// Where standard output and standard error lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destinations {
    /// The size of the terminal, if standard output is one.
    pub stdout: Option<TerminalSize>,
    /// The size of the terminal, if standard error is one.
    pub stderr: Option<TerminalSize>,
    /// True if both are the same open file.
    pub same: bool,
}

/// The outcome of a tool that ran as a child, except for its files.
pub struct Finished {
    /// How it ended.
    pub end: ChildEnd,
    /// Its process id.
    pub pid: u32,
    /// The resources that the tool and all processes that it waited for have used.
    pub used: Use,
    /// How long it ran.
    pub took: Duration,
    /// The output that was passed on.
    pub written: Written,
    /// True if a process that it started may still be working, or another process holds its
    /// standard output or error open.
    pub outlived: bool,
    /// A time shortly after the tool ended, if a process that it started still existed then.
    pub left_at: Option<SystemTime>,
    /// True if a signal for the tool arrived while it ran, or the reader of its output went away.
    pub disturbed: bool,
    /// An error while writing to the caller's standard output or error, other than a closed reader.
    /// For example, the disk is full. The tool may not have noticed it.
    pub failure: Option<io::Error>,
    /// True if the tool and all that it started were stopped because its rival won. Output from
    /// then on was not passed on.
    pub stopped: bool,
    /// The streams that other processes still hold open.
    held: Vec<Stream>,
}

/// The bytes of standard output and error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// Two separate streams.
    Apart {
        /// Standard output.
        stdout: Vec<u8>,
        /// Standard error.
        stderr: Vec<u8>,
    },
    /// One stream, in the order of writing.
    Together(Vec<u8>),
}

impl Command {
    /// Returns a command that is scheduled like this process.
    pub fn new(program: Vec<u8>, argv: Vec<Vec<u8>>, environment: Vec<Vec<u8>>) -> Command {
        Command { program, argv, environment, sched_policy: SchedPolicy::default() }
    }
}

impl Destinations {
    /// Returns the destinations of this process.
    pub fn now() -> Destinations {
        let ([stdout, stderr], same) = larder_sys::standard_outputs();
        Destinations { stdout, stderr, same }
    }
}

/// Replaces this process by the tool. Returns only if the tool cannot be started.
///
/// The token is held as long as the tool runs.
pub fn become_tool(command: &Command, token: &Token) -> io::Error {
    let Command { program, argv, environment, sched_policy } = command;
    sched_policy.take_on();
    match token.file() {
        Some(file) => larder_sys::exec_with(program, argv, environment, file),
        None => larder_sys::exec(program, argv, environment),
    }
}

/// Runs the tool as a child, and passes its output on as it comes. If there is a rival and it wins,
/// the tool is stopped.
///
/// Returns an error if the tool was not started.
pub fn run_beside(command: &Command, to: &Destinations, rival: Rivalry) -> io::Result<Finished> {
    let mut attendant = ATTENDANT.take().map(ManuallyDrop::into_inner);
    run(command, to, attendant.as_deref_mut().map(|attendant| &mut **attendant), rival)
}

/// A thread-local value of one word without a destructor. For larger thread-local data, musl maps
/// memory at each start.
type OneWord = ManuallyDrop<Box<Box<dyn Attendant>>>;

thread_local! {
    static ATTENDANT: Cell<Option<OneWord>> = const { Cell::new(None) };
}

/// Runs `work`. A tool that it starts by [`run_beside`] gets this attendant. Used when one observer
/// is checked by another one and does not know it.
pub fn attended<T>(attendant: Box<dyn Attendant>, work: impl FnOnce() -> T) -> T {
    ATTENDANT.set(Some(ManuallyDrop::new(Box::new(attendant))));
    let done = work();
    drop(ATTENDANT.take().map(ManuallyDrop::into_inner));
    done
}

/// Like [`run_beside`], but the tool and what it starts run under the attendant's seccomp filter.
///
/// Returns an error if the tool was not started, for example because the filter is not
/// possible.
pub fn run_attended(
    command: &Command,
    to: &Destinations,
    attendant: &mut dyn Attendant,
    rival: Rivalry,
) -> io::Result<Finished> {
    run(command, to, Some(attendant), rival)
}

fn run(
    command: &Command,
    to: &Destinations,
    mut attendant: Option<&mut (dyn Attendant + '_)>,
    rival: Rivalry,
) -> io::Result<Finished> {
    larder_sys::become_subreaper()?;
    // Checked before the tool starts, because otherwise it would run and its output could not be
    // passed on.
    larder_sys::can_wait_for_streams()?;
    let mut plumbing = Plumbing::new(to)?;
    let forwarding = SignalForwarding::prepare()?;
    let Command { program, argv, environment, sched_policy } = command;
    let began = Instant::now();
    let started = match attendant.as_deref_mut() {
        None => larder_sys::spawn(program, argv, environment, &plumbing.descriptors(), &forwarding, sched_policy),
        Some(served) => {
            let tools_ends = std::mem::take(&mut plumbing.tools_ends);
            larder_sys::spawn_attended(program, argv, environment, tools_ends, &forwarding, sched_policy, served)
        }
    };
    let child = started.inspect_err(|_| forwarding.unblock())?;
    forwarding.begin(child.pid);
    plumbing.tools_ends.clear();
    finish(child, plumbing, attendant, rival, began)
}

fn finish(
    child: Child,
    mut plumbing: Plumbing,
    mut attendant: Option<&mut (dyn Attendant + '_)>,
    rival: Rivalry,
    began: Instant,
) -> io::Result<Finished> {
    let relayed = larder_sys::relay(&child, &mut plumbing.streams, attendant.as_deref_mut(), rival);
    if let (Err(_), Some(served)) = (&relayed, attendant.as_deref_mut()) {
        served.release(true);
    }
    // The tool has run. Our own errors cannot undo that.
    let pid = child.pid as u32;
    let (end, used) = child.wait_and_measure().unwrap_or((ChildEnd::Exited(1), Use::default()));
    let took = began.elapsed();
    let lost = relayed.is_err();
    let stopped = relayed.as_ref().is_ok_and(|end| end.stopped);
    // If a process cannot be stopped, it outlives the tool, and that is detected below.
    let _ = if stopped { larder_sys::end_descendants() } else { Ok(()) };
    let held_open = relayed.is_ok_and(|end| end.held_open) && !stopped;
    let left = larder_sys::children_left();
    let left_at = left.then(SystemTime::now);
    let survivors = match !lost && !stopped && (left || held_open) {
        true => wait_for_survivors(&mut plumbing.streams, &mut attendant),
        false => Left { outlived: left, ..Left::default() },
    };
    let streams = &mut plumbing.streams;
    let disturbed = lost
        || survivors.killed
        || SignalForwarding::seen()
        || streams.iter().any(|stream| stream.is_broken() || stream.overflowed);
    let failure = streams.iter().find_map(Stream::failure);
    let mut kept = streams.iter_mut().map(|stream| std::mem::take(&mut stream.kept));
    let mut next = || kept.next().unwrap_or_default();
    let written =
        if plumbing.together { Written::Together(next()) } else { Written::Apart { stdout: next(), stderr: next() } };
    let outlived = survivors.outlived;
    if let (Some(served), false) = (attendant, lost) {
        served.release(outlived);
    }
    let held = if survivors.streams_open { plumbing.streams } else { Vec::new() };
    Ok(Finished { end, pid, used, took, written, outlived, left_at, disturbed, failure, stopped, held })
}

/// The processes that a tool left running.
#[derive(Default)]
struct Left {
    /// At least one that may still do anything.
    outlived: bool,
    /// One of them was killed by a signal.
    killed: bool,
    /// A stream is still open for writing.
    streams_open: bool,
}

/// Waits a moment for processes that the tool left running, and passes on what they write.
///
/// For example, mold links in a child, and the parent exits as soon as the child has written its
/// output. The child then only exits, which takes long because the kernel unmaps all its memory. So
/// it is enough that the child is exiting, and the caller does not wait for its end.
///
/// 1. The tool has ended. The caller waits for us, so this takes at most `SURVIVORS_PATIENCE`.
/// 2. When no process is left, or the kernel says of each that it is exiting, none of them can
///    change a file any more. The outputs, the trace and the messages are complete, and are read
///    only after that.
/// 3. If a process is still working after that time, the run is not recorded, and the process
///    continues undisturbed.
fn wait_for_survivors(streams: &mut [Stream], attendant: &mut Option<&mut (dyn Attendant + '_)>) -> Left {
    let until = Instant::now() + SURVIVORS_PATIENCE;
    let mut pass_on = |time: Duration| {
        let served = attendant.as_deref_mut().map(|served| served as &mut dyn Attendant);
        larder_sys::relay_for(streams, served, time).unwrap_or(true)
    };
    loop {
        let survivors = larder_sys::survivors();
        let alive = survivors == Survivors::Alive;
        if alive && Instant::now() < until {
            pass_on(SURVIVORS_LOOK_EVERY);
            continue;
        }
        // A process that is alive may write forever, so this is only one more check.
        let streams_open = pass_on(if alive { SURVIVORS_LOOK_EVERY } else { Duration::ZERO });
        // If no process is left below us, the stream was passed to an unrelated process.
        let outlived = alive || streams_open && survivors == Survivors::None;
        let killed = survivors == Survivors::Killed;
        return Left { outlived: outlived || killed && larder_sys::children_left(), killed, streams_open };
    }
}

/// What a program printed, and how it ended.
pub struct Printed {
    /// Its standard output, or `None` if that is longer than allowed.
    pub text: Option<Vec<u8>>,
    /// True if it wrote to standard error.
    pub has_messages: bool,
    /// How it ended.
    pub end: ChildEnd,
}

/// Runs a program with empty standard input. Returns its standard output if that is not longer than
/// `bytes_max`. Its messages are discarded.
pub fn output_of(command: &Command, bytes_max: u64) -> io::Result<Printed> {
    let Command { program, argv, environment, sched_policy } = command;
    let (ours, tools) = larder_sys::pipe()?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    let messages = larder_sys::memory_file("larder-messages", false)?;
    let descriptors = [(null.as_raw_fd(), 0), (tools.as_raw_fd(), 1), (messages.as_raw_fd(), 2)];
    let forwarding = SignalForwarding::prepare()?;
    let started = larder_sys::spawn(program, argv, environment, &descriptors, &forwarding, sched_policy);
    forwarding.unblock();
    let child = started?;
    drop(tools);
    let mut text = Vec::new();
    let read = File::from(ours).take(bytes_max.saturating_add(1)).read_to_end(&mut text);
    // If the program writes more than we read, it is killed by SIGPIPE.
    let end = child.wait()?;
    read?;
    let has_messages = messages.metadata()?.len() > 0;
    Ok(Printed { text: (text.len() as u64 <= bytes_max).then_some(text), has_messages, end })
}

/// Starts a program that continues independently: in its own session, with `/dev/null` as its
/// standard streams, in the caller's working directory.
pub fn start_apart(command: &Command) -> io::Result<()> {
    larder_sys::spawn_apart(&command.program, &command.argv, &command.environment).map(drop)
}

/// Starts a program in the same way and waits for it. This program is expected to start another one
/// and exit, so the other one is not our child.
///
/// Returns an error if the program cannot be started or does not exit with 0.
pub fn start_by(command: &Command) -> io::Result<()> {
    let child = larder_sys::spawn_apart(&command.program, &command.argv, &command.environment)?;
    match child.wait()? {
        ChildEnd::Exited(0) => Ok(()),
        end => Err(io::Error::other(format!("{end:?}"))),
    }
}

impl Finished {
    /// Forks a process that passes on what other processes still write, so that the caller can
    /// continue.
    pub fn leave_relay_behind(self) {
        if !self.held.is_empty() {
            larder_sys::relay_apart(self.held);
        }
    }
}

/// Pipes or a pseudo-terminal between the tool and its caller.
struct Plumbing {
    streams: Vec<Stream>,
    tools_ends: Vec<(OwnedFd, i32)>,
    together: bool,
}

impl Plumbing {
    fn new(to: &Destinations) -> io::Result<Plumbing> {
        let mut plumbing = Plumbing { streams: Vec::new(), tools_ends: Vec::new(), together: false };
        match (to.stdout, to.stderr) {
            _ if to.same && to.stderr.is_none() => {
                plumbing.add_pipe(1)?;
                plumbing.share_last(2)?;
            }
            (Some(_), Some(_)) => {
                plumbing.add_terminal(1)?;
                plumbing.share_last(2)?;
            }
            (None, None) => {
                plumbing.add_pipe(1)?;
                plumbing.add_pipe(2)?;
            }
            (stdout, _) => {
                if stdout.is_some() {
                    plumbing.add_terminal(1)?
                } else {
                    plumbing.add_pipe(1)?
                }
                if stdout.is_some() { plumbing.add_pipe(2)? } else { plumbing.add_terminal(2)? }
            }
        }
        Ok(plumbing)
    }

    fn add_pipe(&mut self, to: i32) -> io::Result<()> {
        let (ours, tools) = larder_sys::pipe()?;
        self.streams.push(Stream::new(ours, to));
        self.tools_ends.push((tools, to));
        Ok(())
    }

    fn add_terminal(&mut self, to: i32) -> io::Result<()> {
        let PseudoTerminal { ours, tools } = PseudoTerminal::like(to)?;
        self.streams.push(Stream::new(ours, to));
        self.tools_ends.push((tools, to));
        Ok(())
    }

    /// Connects the descriptor `also` to the same stream as the last one.
    fn share_last(&mut self, also: i32) -> io::Result<()> {
        if let Some((last, _)) = self.tools_ends.last() {
            let copy = last.try_clone()?;
            self.tools_ends.push((copy, also));
        }
        self.together = true;
        Ok(())
    }

    fn descriptors(&self) -> Vec<(i32, i32)> {
        self.tools_ends.iter().map(|(fd, its)| (fd.as_raw_fd(), *its)).collect()
    }
}
