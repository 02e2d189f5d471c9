//! Passing on what a tool writes, as it comes, while keeping a copy.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::notify::Attendant;
use crate::Child;

/// What comes out of `from` is written to `to` and kept.
pub struct Stream {
    /// Our end of the tool's pipe or terminal; closed once nobody reads what we pass on, so that the tool learns of it.
    from: Option<OwnedFd>,
    /// The caller's descriptor.
    pub to: RawFd,
    /// Everything so far, at most `KEPT_BYTES_MAX`.
    pub kept: Vec<u8>,
    /// More came than is kept.
    pub overflowed: bool,
    is_terminal: bool,
    broken: bool,
    /// The error of the caller's end, where it was another than that nobody reads.
    failed: Option<Errno>,
}

/// More output than this is passed on but not kept.
const KEPT_BYTES_MAX: usize = 64 << 20;
const BUFFER_BYTES: usize = 64 << 10;
/// A pipe with room has room for so many (`PIPE_BUF`).
const PIPE_BYTES_MIN: usize = 4096;
/// Two streams and the tool's end.
const POLLED_MAX: usize = 3;

/// How a relay ended.
pub struct RelayEnd {
    /// A stream was still open for writing when the tool had ended: some other process holds it.
    pub held_open: bool,
}

impl Stream {
    /// A stream at its start.
    pub fn new(from: OwnedFd, to: RawFd) -> Stream {
        let is_terminal = rustix::termios::isatty(&from);
        Stream { from: Some(from), to, kept: Vec::new(), overflowed: false, is_terminal, broken: false, failed: None }
    }

    /// Read once; false at the end.
    fn advance(&mut self, buffer: &mut [u8], attendant: &mut Attending) -> io::Result<bool> {
        let Some(from) = &self.from else { return Ok(false) };
        match rustix::io::read(from, &mut *buffer) {
            // A pseudo-terminal whose other side is closed says EIO.
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
                self.pass_on(&buffer[..count], attendant);
                Ok(true)
            }
        }
    }

    fn pass_on(&mut self, bytes: &[u8], attendant: &mut Attending) {
        if self.kept.len() + bytes.len() <= KEPT_BYTES_MAX {
            self.kept.extend_from_slice(bytes);
        } else {
            self.overflowed = true;
        }
        // SAFETY: a standard descriptor of this process.
        let to = unsafe { BorrowedFd::borrow_raw(self.to) };
        let mut rest = bytes;
        while !rest.is_empty() && !self.broken {
            // What a writable pipe takes without waiting; nobody would serve meanwhile.
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
        // Who reads no more is told to the tool; a full disk it would have met itself, with whatever it makes of that.
        if self.broken && self.failed.is_none() {
            self.from = None;
        }
    }

    /// Why standard output could not take everything, where somebody would read it. Tools do not mind messages that
    /// are lost.
    pub fn failure(&self) -> Option<io::Error> {
        const STDOUT: RawFd = 1;
        self.failed.filter(|_| self.to == STDOUT).map(io::Error::from)
    }

    /// Whether the caller's end could not take everything.
    pub fn is_broken(&self) -> bool {
        self.broken
    }
}

/// Who is served meanwhile, if anybody.
type Attending<'a, 'b> = Option<&'a mut (dyn Attendant + 'b)>;

fn wait_for_room(fd: BorrowedFd, attendant: &mut Attending) {
    let _ = poll_attending(&mut [PollFd::new(&fd, PollFlags::OUT)], attendant);
}

/// Wait until one of `set` is ready, serving the attendant meanwhile.
fn poll_attending(set: &mut [PollFd], attendant: &mut Attending) -> rustix::io::Result<()> {
    while let Some(served) = attendant.as_deref_mut() {
        let (ready, asked) = {
            let Some(listener) = served.listener() else { break };
            let mut all: [PollFd; POLLED_MAX + 1] = std::array::from_fn(|at| match set.get(at) {
                Some(fd) => fd.clone(),
                None => PollFd::from_borrowed_fd(listener, PollFlags::IN),
            });
            poll(&mut all[..set.len() + 1], None)?;
            let ready = |fds: &[PollFd]| fds.iter().any(|fd| !fd.revents().is_empty());
            (ready(&all[..set.len()]), ready(&all[set.len()..set.len() + 1]))
        };
        if asked {
            served.serve();
        }
        if ready {
            break;
        }
    }
    poll(set, None).map(drop)
}

/// Pass on all streams until the tool has ended and nothing is left to read, or until only other processes still hold
/// them, serving the attendant until the tool has ended. Does not collect the child.
pub fn relay(child: &Child, streams: &mut [Stream], mut attendant: Attending) -> io::Result<RelayEnd> {
    let pid = Pid::from_raw(child.pid).ok_or_else(|| io::Error::other("no process id"))?;
    // Without such a descriptor the tool has ended when its streams have.
    let ended = pidfd_open(pid, PidfdFlags::empty()).ok();
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut tool_ended = false;
    while streams.iter().any(|s| s.from.is_some()) || !tool_ended && ended.is_some() {
        let (ready, end_seen) = wait(ended.as_ref(), tool_ended, streams, &mut attendant)?;
        if ready.is_empty() && tool_ended {
            return Ok(RelayEnd { held_open: true });
        }
        for index in ready {
            streams[index].advance(&mut buffer, &mut attendant)?;
        }
        tool_ended |= end_seen;
    }
    if let (None, Some(served)) = (&ended, attendant) {
        serve_while_any_lives(served)?;
    }
    Ok(RelayEnd { held_open: false })
}

/// Answer until nobody is left who could ask: a tool that has closed its streams may go on.
fn serve_while_any_lives(attendant: &mut dyn Attendant) -> io::Result<()> {
    loop {
        match attendant.listener() {
            None => return Ok(()),
            Some(listener) => match poll(&mut [PollFd::from_borrowed_fd(listener, PollFlags::IN)], None) {
                Err(Errno::INTR) => continue,
                polled => drop(polled?),
            },
        }
        attendant.serve();
    }
}

/// Which streams can be read, and whether the tool has ended. Once it has, does not wait.
fn wait(
    ended: Option<&OwnedFd>,
    tool_ended: bool,
    streams: &[Stream],
    attendant: &mut Attending,
) -> io::Result<(Vec<usize>, bool)> {
    let (open, mut set) = poll_set(streams);
    let ended = ended.filter(|_| !tool_ended);
    set.extend(ended.map(|ended| PollFd::new(ended, PollFlags::IN)));
    let at_once = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
    loop {
        let waited = match tool_ended {
            true => poll(&mut set, Some(&at_once)).map(drop),
            false => poll_attending(&mut set, attendant),
        };
        match waited {
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
            Ok(()) => break,
        }
    }
    let end_seen = ended.is_some() && set.last().is_some_and(|p| !p.revents().is_empty());
    let ready = open.into_iter().zip(&set).filter(|(_, p)| !p.revents().is_empty()).map(|(i, _)| i).collect();
    Ok((ready, end_seen))
}

/// Go on passing on what other processes still write to `streams`, in a process of its own, so that the caller can be
/// let go now that the tool has ended. That process lives as long as they do.
pub fn relay_apart(mut streams: Vec<Stream>) {
    // SAFETY: this process has one thread; the child goes on with the streams and ends here.
    match unsafe { libc::fork() } {
        0 => {
            let mut buffer = vec![0; BUFFER_BYTES];
            while streams.iter().any(|s| s.from.is_some()) {
                let Ok(ready) = wait_for_any(&streams) else { break };
                for index in ready {
                    if streams[index].advance(&mut buffer, &mut None).is_err() {
                        streams[index].from = None;
                    }
                }
            }
            crate::end_process(0)
        }
        _ => drop(streams),
    }
}

/// The streams that are open, and what to wait for on each.
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
