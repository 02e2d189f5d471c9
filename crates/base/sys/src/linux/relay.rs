//! Passing on what a tool writes, as it comes, while keeping a copy.
//!
//! Unaware of: what the tool writes, and what the copy is for.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::time::Timespec;

use super::notify::{Attendant, attend};
use super::poll::timespec;
use super::stop::signal_descendants;
use crate::{Child, SignalForwarding};

/// An output stream of the tool. What is read from `from` is written to `to` and kept.
pub struct Stream {
    /// Our end of the tool's pipe or terminal. It is closed if the reader of `to` is gone, so that
    /// the tool notices that.
    from: Option<OwnedFd>,
    /// The caller's descriptor.
    pub to: RawFd,
    /// Everything so far, at most `KEPT_BYTES_MAX`.
    pub kept: Vec<u8>,
    /// True if more came than is kept.
    pub overflowed: bool,
    is_terminal: bool,
    broken: bool,
    /// The error of writing to `to`, if it was another one than EPIPE.
    failed: Option<Errno>,
    /// True if nothing more is passed on or kept.
    silent: bool,
}

/// The most bytes that are kept. More output is passed on but not kept.
const KEPT_BYTES_MAX: usize = 64 << 20;
const BUFFER_BYTES: usize = 64 << 10;
/// How many bytes a pipe that is ready for writing takes without waiting (`PIPE_BUF`).
const PIPE_BYTES_MIN: usize = 4096;
/// The most descriptors that are polled: two streams, the tool's end, and a rival.
const POLLED_MAX: usize = 4;
/// How long a tool that got SIGTERM may take to remove its temporary files. Then it is killed.
const STOP_PATIENCE: Duration = Duration::from_millis(200);
/// The pause before it is killed again, as long as some process of it is left.
const STOP_AGAIN: Duration = Duration::from_millis(20);

/// The pause between two checks of a tool whose end cannot be polled for.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// How a relay ended.
pub struct RelayEnd {
    /// True if a stream was still open for writing after the tool had ended. Then another process
    /// holds it.
    pub held_open: bool,
    /// True if the tool was stopped in favour of its rival.
    pub stopped: bool,
}

/// Something that may make the tool's run needless while it runs. For example, a fetch is a rival.
pub trait Rival {
    /// Returns a descriptor to wait on for reading. Returns `None` once nothing can come of it any
    /// more.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;
    /// Called when the descriptor can be read. Returns true if the tool is to be stopped. Its
    /// output is not passed on any more then.
    fn hear(&mut self) -> bool;
    /// Called when the tool must run to its end, because some of its output was passed on or
    /// because it cannot be stopped.
    fn lose(&mut self);
}

/// The rival of a tool, if there is one.
pub type Rivalry<'a, 'b> = Option<&'a mut (dyn Rival + 'b)>;

impl Stream {
    /// Creates a stream from which nothing was read yet.
    pub fn new(from: OwnedFd, to: RawFd) -> Stream {
        let is_terminal = rustix::termios::isatty(&from);
        let kept = Vec::new();
        Stream {
            from: Some(from),
            to,
            kept,
            overflowed: false,
            is_terminal,
            broken: false,
            failed: None,
            silent: false,
        }
    }

    /// Reads once and passes the bytes on. Returns false at the end of the stream.
    fn advance(&mut self, buffer: &mut [u8], attendant: &mut Attending, rival: &mut Rivalry) -> io::Result<bool> {
        let Some(from) = &self.from else { return Ok(false) };
        match rustix::io::read(from, &mut *buffer) {
            // A pseudo-terminal whose other side is closed fails with EIO.
            Ok(0) => {
                self.from = None;
                Ok(false)
            }
            Err(Errno::IO) if self.is_terminal => {
                self.from = None;
                Ok(false)
            }
            Err(Errno::INTR | Errno::AGAIN) => Ok(true),
            Err(error) => Err(error.into()),
            Ok(count) => {
                rival.take().into_iter().for_each(|rival| rival.lose());
                self.pass_on(&buffer[..count], attendant);
                Ok(true)
            }
        }
    }

    fn pass_on(&mut self, bytes: &[u8], attendant: &mut Attending) {
        if self.silent {
            return;
        }
        if self.kept.len() + bytes.len() <= KEPT_BYTES_MAX {
            self.kept.extend_from_slice(bytes);
        } else {
            self.overflowed = true;
        }
        // SAFETY: a standard descriptor of this process.
        let to = unsafe { BorrowedFd::borrow_raw(self.to) };
        let mut rest = bytes;
        while !rest.is_empty() && !self.broken {
            // A part that a writable pipe takes without waiting, because the attendant is not
            // served during the write.
            let part = if attendant.is_some() { &rest[..rest.len().min(PIPE_BYTES_MIN)] } else { rest };
            if attendant.is_some() {
                wait_for_room(to, attendant);
            }
            match rustix::io::write(to, part) {
                Ok(count) => rest = &rest[count..],
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => wait_for_room(to, attendant),
                Err(error) => {
                    self.broken = true;
                    self.failed = (error != Errno::PIPE).then_some(error);
                }
            }
        }
        // If the reader is gone, the tool is to notice it, so the pipe is closed. A full disk, for
        // example, does not close the pipe: the caller reports it.
        if self.broken && self.failed.is_none() {
            self.from = None;
        }
    }

    /// Returns the error for which standard output could not take everything, unless its reader was
    /// gone. It ignores standard error, because tools do not fail if their messages are lost.
    pub fn failure(&self) -> Option<io::Error> {
        const STDOUT: RawFd = 1;
        self.failed.filter(|_| self.to == STDOUT).map(io::Error::from)
    }

    /// Returns true if the caller's end could not take everything.
    pub fn is_broken(&self) -> bool {
        self.broken
    }
}

/// The attendant that is served meanwhile, if there is one.
type Attending<'a, 'b> = Option<&'a mut (dyn Attendant + 'b)>;

fn wait_for_room(fd: BorrowedFd, attendant: &mut Attending) {
    let _ = poll_attending(&mut [PollFd::new(&fd, PollFlags::OUT)], attendant, None);
}

/// Waits until one of `set` is ready or the time is over, and serves the attendant meanwhile.
fn poll_attending(set: &mut [PollFd], attendant: &mut Attending, at_most: Option<&Timespec>) -> rustix::io::Result<()> {
    while let Some(served) = attendant.as_deref_mut() {
        let (ready, asked) = {
            let Some(listener) = served.listener() else { break };
            let mut all: [PollFd; POLLED_MAX + 1] = std::array::from_fn(|at| match set.get(at) {
                Some(fd) => fd.clone(),
                None => PollFd::from_borrowed_fd(listener, PollFlags::IN),
            });
            if poll(&mut all[..set.len() + 1], at_most)? == 0 {
                break;
            }
            (all[..set.len()].iter().any(|fd| !fd.revents().is_empty()), all[set.len()].revents())
        };
        // If the kernel does not accept the attendant's answers, that was found at the start, so
        // errors are ignored here.
        let _ = attend(served, asked);
        if ready {
            break;
        }
    }
    poll(set, at_most).map(drop)
}

/// Returns an error if a sandbox refuses `poll`, by which `relay` waits. Then no tool may be
/// started whose output `relay` would have to pass on.
pub fn can_wait_for_streams() -> io::Result<()> {
    match poll(&mut [], Some(&timespec(Duration::ZERO))) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Passes on all streams until the tool has ended and nothing is left to read, or until only other
/// processes hold the streams. Does not collect the child.
///
/// The attendant is served until the tool has ended. The tool is stopped if its rival wins.
pub fn relay(
    child: &Child,
    streams: &mut [Stream],
    mut attendant: Attending,
    mut rival: Rivalry,
) -> io::Result<RelayEnd> {
    // Linux before 5.3 and some sandboxes have no pidfd. Then the relay checks from time to time
    // whether the tool has ended. The tool's processes could not be stopped then, so the rival has
    // lost.
    let ended = super::open_process(child.pid as u32).ok();
    if ended.is_none() {
        rival.take().into_iter().for_each(|rival| rival.lose());
    }
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut tool_ended = false;
    let mut stopping = None;
    while streams.iter().any(|s| s.from.is_some()) || !tool_ended && ended.is_some() {
        let look_again = ended.is_none().then(|| Instant::now() + LOOK_AGAIN);
        let until = stopping.or(look_again);
        let Ready { streams: ready, end, rival: heard } =
            wait(ended.as_ref(), tool_ended, streams, &mut attendant, &rival, until)?;
        if ready.is_empty() && tool_ended {
            return Ok(RelayEnd { held_open: true, stopped: stopping.is_some() });
        }
        for index in ready {
            streams[index].advance(&mut buffer, &mut attendant, &mut rival)?;
        }
        tool_ended |= end || ended.is_none() && child.has_ended();
        if heard && !tool_ended && rival.as_mut().is_some_and(|rival| rival.hear()) && !SignalForwarding::seen() {
            rival = None;
            streams.iter_mut().for_each(|stream| stream.silent = true);
            signal_descendants(libc::SIGTERM);
            stopping = Some(Instant::now() + STOP_PATIENCE);
        }
        if !tool_ended && stopping.is_some_and(|until| until <= Instant::now()) {
            signal_descendants(libc::SIGKILL);
            stopping = Some(Instant::now() + STOP_AGAIN);
        }
    }
    if let (None, Some(served)) = (&ended, attendant) {
        serve_until_ended(served, child)?;
    }
    Ok(RelayEnd { held_open: false, stopped: stopping.is_some() })
}

/// Serves the attendant until the tool has ended, or until no process is left that could ask. A
/// tool that has closed its streams may still run.
///
/// It checks from time to time whether the tool has ended, because the listener does not report
/// that before Linux 5.9.
fn serve_until_ended(attendant: &mut dyn Attendant, child: &Child) -> io::Result<()> {
    while !child.has_ended() {
        let found = match attendant.listener() {
            None => return Ok(()),
            Some(listener) => {
                let mut set = [PollFd::from_borrowed_fd(listener, PollFlags::IN)];
                match poll(&mut set, Some(&timespec(LOOK_AGAIN))) {
                    Err(Errno::INTR) | Ok(0) => continue,
                    polled => drop(polled?),
                }
                set[0].revents()
            }
        };
        let _ = attend(attendant, found);
    }
    Ok(())
}

/// What `wait` found.
struct Ready {
    /// The streams that can be read.
    streams: Vec<usize>,
    /// True if the tool has ended.
    end: bool,
    /// True if the rival can be read.
    rival: bool,
}

/// Waits until something can be done. Does not wait once the tool has ended, and otherwise not
/// beyond `until`.
fn wait(
    ended: Option<&OwnedFd>,
    tool_ended: bool,
    streams: &[Stream],
    attendant: &mut Attending,
    rival: &Rivalry,
    until: Option<Instant>,
) -> io::Result<Ready> {
    let (open, mut set) = poll_set(streams);
    let ended = ended.filter(|_| !tool_ended);
    let ended_at = ended.map(|ended| {
        set.push(PollFd::new(ended, PollFlags::IN));
        set.len() - 1
    });
    let rival_at = rival.as_ref().and_then(|rival| rival.descriptor()).filter(|_| !tool_ended).map(|fd| {
        set.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
        set.len() - 1
    });
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let left = if tool_ended { Some(Duration::ZERO) } else { left };
        let left = left.map(timespec);
        let waited = match tool_ended {
            true => poll(&mut set, left.as_ref()).map(drop),
            false => poll_attending(&mut set, attendant, left.as_ref()),
        };
        match waited {
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
            Ok(()) => break,
        }
    }
    let is_ready = |at: usize| set.get(at).is_some_and(|fd| !fd.revents().is_empty());
    Ok(Ready {
        end: ended_at.is_some_and(is_ready),
        rival: rival_at.is_some_and(is_ready),
        streams: open.into_iter().enumerate().filter(|(at, _)| is_ready(*at)).map(|(_, stream)| stream).collect(),
    })
}

/// Passes on what comes out of `streams` within `time` after the tool's end, and serves the
/// attendant meanwhile. If `time` is zero, it passes on what is available. Returns true if a stream
/// is still open for writing.
pub fn relay_for(streams: &mut [Stream], mut attendant: Attending, time: Duration) -> io::Result<bool> {
    let until = Instant::now() + time;
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let (ready, asked) = {
            let (open, mut set) = poll_set(streams);
            if let Some(listener) = attendant.as_deref().and_then(|served| served.listener()) {
                set.push(PollFd::from_borrowed_fd(listener, PollFlags::IN));
            }
            match poll(&mut set, Some(&timespec(left))) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let is_ready = |fd: &PollFd| !fd.revents().is_empty();
            let asked = set.get(open.len()).map_or(PollFlags::empty(), PollFd::revents);
            let ready = open.into_iter().zip(&set).filter(|(_, fd)| is_ready(fd)).map(|(stream, _)| stream);
            (ready.collect::<Vec<_>>(), asked)
        };
        if let Some(served) = attendant.as_deref_mut() {
            let _ = attend(served, asked);
        }
        for index in &ready {
            streams[*index].advance(&mut buffer, &mut attendant, &mut None)?;
        }
        let nothing = ready.is_empty() && asked.is_empty();
        if if time.is_zero() { nothing } else { left.is_zero() } {
            return Ok(streams.iter().any(|stream| stream.from.is_some()));
        }
    }
}

/// Passes on what other processes still write to `streams`, in a process of its own, so that the
/// caller can go on after the tool has ended. That process lives as long as the streams are open.
pub fn relay_apart(mut streams: Vec<Stream>) {
    // SAFETY: this process has one thread; the child only handles the streams, and ends here.
    match unsafe { libc::fork() } {
        0 => {
            let mut buffer = vec![0; BUFFER_BYTES];
            while streams.iter().any(|s| s.from.is_some()) {
                let Ok(ready) = wait_for_any(&streams) else { break };
                for index in ready {
                    if streams[index].advance(&mut buffer, &mut None, &mut None).is_err() {
                        streams[index].from = None;
                    }
                }
            }
            crate::end_process(0)
        }
        _ => drop(streams),
    }
}

/// Returns the indexes of the open streams, and what to poll for on each.
fn poll_set(streams: &[Stream]) -> (Vec<usize>, Vec<PollFd<'_>>) {
    let open = |(index, stream): (usize, &'_ Stream)| stream.from.is_some().then_some(index);
    let indexes = streams.iter().enumerate().filter_map(open).collect();
    let descriptors = streams.iter().filter_map(|stream| stream.from.as_ref());
    (indexes, descriptors.map(|from| PollFd::from_borrowed_fd(from.as_fd(), PollFlags::IN)).collect())
}

fn wait_for_any(streams: &[Stream]) -> io::Result<Vec<usize>> {
    let (open, mut set) = poll_set(streams);
    poll(&mut set, None)?;
    Ok(open.into_iter().zip(&set).filter(|(_, p)| !p.revents().is_empty()).map(|(i, _)| i).collect())
}
