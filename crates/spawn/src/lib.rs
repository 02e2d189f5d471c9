//! How a tool is started: untouched, in our place, or beside us with its messages passed on and kept.
//!
//! The tool inherits everything of the caller's that a child can: working directory, umask, limits, priority, cgroup,
//! descriptors, signal mask. Only where its standard output and error are kept do they lead through us, and only where
//! a class is asked for is it scheduled otherwise.
//!
//! | file | is |
//! |---|---|
//! | `tokens/` | how many tools run at once |
//! | `fare.rs` | whether tools in a class still get anywhere |
//!
//! Unaware of: what the tool is, what is observed, the store.
#![forbid(unsafe_code)]
// Linux by nature so far: elsewhere tools run untouched, and nothing of this is there.
#![cfg(target_os = "linux")]

mod fare;
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
pub use larder_sys::{Class, Manner};

pub use tokens::{Asker, JOBS_MAX, Needs, Status, Taken, Token, Tokens};

/// So long a caller waits for what its tool left running, if that does not end by itself before. A process that stays on
/// purpose (`sleep 60 &`) costs each caller that time, so it is short.
const SURVIVORS_PATIENCE: Duration = Duration::from_millis(100);
/// Between two looks at what is left.
const SURVIVORS_LOOK_EVERY: Duration = Duration::from_millis(1);

/// A program and what it is started with.
#[derive(Clone, Debug)]
pub struct Command {
    /// Path of the program.
    pub program: Vec<u8>,
    /// All arguments, `argv[0]` first.
    pub argv: Vec<Vec<u8>>,
    /// `NAME=value`.
    pub environment: Vec<Vec<u8>>,
    /// How it is scheduled.
    pub manner: Manner,
}

/// Where standard output and error lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destinations {
    /// Standard output is a terminal of this size.
    pub stdout: Option<TerminalSize>,
    /// Standard error is a terminal of this size.
    pub stderr: Option<TerminalSize>,
    /// Both are one file.
    pub same: bool,
}

/// What a tool that ran beside us left, but for files.
pub struct Finished {
    /// How it ended.
    pub end: ChildEnd,
    /// Its process id.
    pub pid: u32,
    /// What it used, with all whom it waited for.
    pub used: Use,
    /// How long it ran.
    pub took: Duration,
    /// What it wrote, as passed on.
    pub written: Written,
    /// A process that it started may still be at work, or another process holds its standard output or error.
    pub outlived: bool,
    /// A moment after its end, if a process that it started was still there then.
    pub left_at: Option<SystemTime>,
    /// A signal came for it meanwhile, or its reader went away.
    pub disturbed: bool,
    /// The caller's end of a stream failed, otherwise than by being closed: a full disk. The tool may not have noticed.
    pub failure: Option<io::Error>,
    /// It was stopped in favour of its rival, with all that it had started; what it said since was not passed on.
    pub stopped: bool,
    /// The streams that other processes still hold.
    held: Vec<Stream>,
}

/// The bytes of standard output and error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// Each by itself.
    Apart {
        /// Standard output.
        stdout: Vec<u8>,
        /// Standard error.
        stderr: Vec<u8>,
    },
    /// In one, in order.
    Together(Vec<u8>),
}

impl Command {
    /// Scheduled as we are.
    pub fn new(program: Vec<u8>, argv: Vec<Vec<u8>>, environment: Vec<Vec<u8>>) -> Command {
        Command { program, argv, environment, manner: Manner::default() }
    }
}

impl Destinations {
    /// Of this process.
    pub fn now() -> Destinations {
        let ([stdout, stderr], same) = larder_sys::standard_outputs();
        Destinations { stdout, stderr, same }
    }
}

/// Become the tool. Returns only when it cannot be started.
///
/// The token is kept as long as the tool runs.
pub fn become_tool(command: &Command, token: &Token) -> io::Error {
    let Command { program, argv, environment, manner } = command;
    manner.take_on();
    match token.file() {
        Some(file) => larder_sys::exec_with(program, argv, environment, file),
        None => larder_sys::exec(program, argv, environment),
    }
}

/// Run the tool beside us, passing on what it writes as it comes, until its rival wins, where it has one. An error
/// means that it was not started.
pub fn run_beside(command: &Command, to: &Destinations, rival: Rivalry) -> io::Result<Finished> {
    let mut attendant = ATTENDANT.take().map(ManuallyDrop::into_inner);
    run(command, to, attendant.as_deref_mut().map(|attendant| &mut **attendant), rival)
}

/// One word that needs no dropping: with more, musl maps memory for what is a thread's own at each start.
type OneWord = ManuallyDrop<Box<Box<dyn Attendant>>>;

thread_local! {
    static ATTENDANT: Cell<Option<OneWord>> = const { Cell::new(None) };
}

/// Have what `work` runs beside us attended: for an observer that is watched by another one and does not know of it.
pub fn attended<T>(attendant: Box<dyn Attendant>, work: impl FnOnce() -> T) -> T {
    ATTENDANT.set(Some(ManuallyDrop::new(Box::new(attendant))));
    let done = work();
    drop(ATTENDANT.take().map(ManuallyDrop::into_inner));
    done
}

/// Like `run_beside`, with the tool and what it starts under the attendant's filter. An error means that the tool was
/// not started, also where there can be no filter.
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
    // Its messages could not be passed on, and it would have run.
    larder_sys::can_wait_for_streams()?;
    let mut plumbing = Plumbing::new(to)?;
    let forwarding = SignalForwarding::prepare()?;
    let Command { program, argv, environment, manner } = command;
    let began = Instant::now();
    let started = match attendant.as_deref_mut() {
        None => larder_sys::spawn(program, argv, environment, &plumbing.descriptors(), &forwarding, manner),
        Some(served) => {
            let tools_ends = std::mem::take(&mut plumbing.tools_ends);
            larder_sys::spawn_attended(program, argv, environment, tools_ends, &forwarding, manner, served)
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
    // The tool has run: whatever is wrong with us, that is not undone.
    let pid = child.pid as u32;
    let (end, used) = child.wait_and_measure().unwrap_or((ChildEnd::Exited(1), Use::default()));
    let took = began.elapsed();
    let lost = relayed.is_err();
    let stopped = relayed.as_ref().is_ok_and(|end| end.stopped);
    // One that cannot be ended outlives it, and that is seen below.
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

/// What a tool that has ended left running.
#[derive(Default)]
struct Left {
    /// Something that may still do anything.
    outlived: bool,
    /// One of the processes died by a signal.
    killed: bool,
    /// A stream is still open for writing.
    streams_open: bool,
}

/// Give the processes that a tool left running a moment to end, and pass on what they write meanwhile.
///
/// For example, mold links in a child and ends itself as soon as that has written its output. The child then only
/// exits, which takes long because the kernel unmaps all that it had mapped. So it is enough that it exits, and the
/// caller does not wait for its end.
///
/// 1. The tool has ended. The caller waits for us, so this takes `SURVIVORS_PATIENCE` at most.
/// 2. As soon as no process is left, or the kernel says of each that it is exiting, none of them can change a file any
///    more. The outputs, the trace and the messages are complete, and are taken only after that.
/// 3. If a process is still at work after that time, the run is not recorded, and it goes on undisturbed.
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
        // One that is alive may write for ever.
        let streams_open = pass_on(if alive { SURVIVORS_LOOK_EVERY } else { Duration::ZERO });
        // If no process is left below us, what holds a stream was given it by other means.
        let outlived = alive || streams_open && survivors == Survivors::None;
        let killed = survivors == Survivors::Killed;
        return Left { outlived: outlived || killed && larder_sys::children_left(), killed, streams_open };
    }
}

/// Run a tool that reads nothing and whose complaints nobody reads: its standard output, unless that is longer than
/// `bytes_max`, and how it ended.
pub fn output_of(command: &Command, bytes_max: u64) -> io::Result<(Option<Vec<u8>>, ChildEnd)> {
    let Command { program, argv, environment, manner } = command;
    let (ours, tools) = larder_sys::pipe()?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    let descriptors = [(null.as_raw_fd(), 0), (tools.as_raw_fd(), 1), (null.as_raw_fd(), 2)];
    let forwarding = SignalForwarding::prepare()?;
    let started = larder_sys::spawn(program, argv, environment, &descriptors, &forwarding, manner);
    forwarding.unblock();
    let child = started?;
    drop(tools);
    let mut text = Vec::new();
    let read = File::from(ours).take(bytes_max.saturating_add(1)).read_to_end(&mut text);
    // What nobody reads any more ends it.
    let end = child.wait()?;
    read?;
    Ok(((text.len() as u64 <= bytes_max).then_some(text), end))
}

/// Start a program that goes on by itself: in a session of its own, with nothing of the caller's but its directory.
pub fn start_apart(command: &Command) -> io::Result<()> {
    larder_sys::spawn_apart(&command.program, &command.argv, &command.environment).map(drop)
}

/// Start a program in the same way that starts another and ends: what goes on then is no child of ours. An error also
/// where it does not end well.
pub fn start_by(command: &Command) -> io::Result<()> {
    let child = larder_sys::spawn_apart(&command.program, &command.argv, &command.environment)?;
    match child.wait()? {
        ChildEnd::Exited(0) => Ok(()),
        end => Err(io::Error::other(format!("{end:?}"))),
    }
}

impl Finished {
    /// Let the caller go while what other processes still write is passed on by a process of its own.
    pub fn leave_relay_behind(self) {
        if !self.held.is_empty() {
            larder_sys::relay_apart(self.held);
        }
    }
}

/// Pipes or a terminal between the tool and its caller.
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

    /// Standard error goes where standard output goes.
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
