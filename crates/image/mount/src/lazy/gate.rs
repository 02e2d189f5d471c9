//! The gate: a separate process that keeps the FUSE device open, so that reads wait if the filler
//! dies. It does nothing else, so that little can end it.
//!
//! 1. The filler answers the kernel. The gate waits until the filler's end of their connection is
//!    closed.
//! 2. The filler dies. The gate makes the kernel resend the requests that the filler had not
//!    answered.
//! 3. If a read waits, the gate starts a filler by the command that it was given. That filler, or
//!    another one that connects, gets the device from the gate and answers.
//! 4. If no filler connects within a minute, the gate fails all waiting reads with EIO, and all
//!    later ones until a filler connects.
//!
//! If the gate dies, the filler starts another one. If both die, the kernel fails the requests:
//! reads of bytes that are not in the data file get EIO, and other reads work as before.
//!
//! The gate ends once the file is complete, or when there is neither a filler nor a mount that uses
//! the file.
//!
//! Unaware of: what the file holds, and where its bytes come from.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use larder_sys::{Channel, Door, SignalForwarding, peer_may_mount};
use rustix::event::PollFlags;
use rustix::fs::inotify;

use super::channel::{GateChannel, Message};
use super::device::{Buffer, Device, wait};

/// The time limit for a message to a filler. A message that is not received in time is dropped.
const SAY_PATIENCE: Duration = Duration::from_secs(1);
/// The longest time that a read waits for a process that answers, or for a remote that cannot be
/// reached.
pub const READ_WAITS_MAX: Duration = Duration::from_secs(60);
/// How often the gate checks whether a read has waited too long.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// A filler that replaces another one connects within this time without being started.
const RESCUE_AFTER: Duration = Duration::from_millis(500);
/// The least time between two attempts to start a filler.
const RESCUE_EVERY: Duration = Duration::from_secs(5);

struct Gate {
    device: Device,
    /// The root of the FUSE file system. New mounts find the file below it.
    root: OwnedFd,
    door: Door,
    line: Option<GateChannel>,
    size_bytes: u64,
    unit_bytes: u64,
    /// Descriptors that become readable when a mount that uses the file is gone.
    readers: Vec<OwnedFd>,
    /// When the last filler went away.
    alone_since: Instant,
    /// When the first read began to wait for a filler, if one waits.
    asked_since: Option<Instant>,
    /// The command that starts a filler: the working directory, the program and its arguments. It
    /// may be empty.
    rescue: Vec<OsString>,
    rescued: Option<(Instant, Option<Child>)>,
    is_over: bool,
}

/// The result of a step: the gate goes on or ends.
#[derive(PartialEq, Eq)]
enum Going {
    On,
    End,
}

/// Runs a gate until nothing needs it any more. `socket` is a connection to the process that
/// started it, which sends the rest. `rescue` is the command that starts a filler: its working
/// directory, program and arguments. Fails if the first message is not valid, or if the kernel's
/// requests cannot be read.
pub fn gate(socket: OwnedFd, rescue: Vec<OsString>) -> io::Result<()> {
    larder_sys::close_others(3, &[socket.as_raw_fd()]);
    larder_sys::lead_session();
    // SIGTERM, SIGINT and SIGHUP are blocked, because reads depend on this process. Programs that
    // it starts do not inherit the block.
    let _blocked = SignalForwarding::prepare()?;
    let _ = std::env::set_current_dir("/");
    // If this process and the filler are killed, reads fail. So the kernel should kill other
    // processes first if memory runs out.
    let _ = std::fs::write("/proc/self/oom_score_adj", "-1000");
    let mut gate = Gate::begin(GateChannel::new(Channel::given(socket)), rescue)?;
    while gate.step()? == Going::On {}
    Ok(())
}

impl Gate {
    fn begin(mut line: GateChannel, rescue: Vec<OsString>) -> io::Result<Gate> {
        let messages = line.receive()?;
        let (size_bytes, unit_bytes) = match messages.first() {
            Some(Message::Begin(size, unit)) if *unit > 0 => (*size, *unit),
            _ => return Err(io::ErrorKind::InvalidData.into()),
        };
        let [device, root, door] = line.take()?;
        let door = Door::given(door)?;
        // A filler checks the process that it is connected to.
        door.listen_ourselves()?;
        line.set_patience(SAY_PATIENCE)?;
        let mut gate = Gate {
            device: Device::passed(device),
            root,
            door,
            line: Some(line),
            size_bytes,
            unit_bytes,
            readers: Vec::new(),
            alone_since: Instant::now(),
            asked_since: None,
            rescue,
            rescued: None,
            is_over: false,
        };
        // Further messages may have arrived together with the first one.
        messages[1..].iter().for_each(|message| gate.hear(*message));
        Ok(gate)
    }

    /// Waits for one event and handles it.
    fn step(&mut self) -> io::Result<Going> {
        if self.is_over {
            return Ok(Going::End);
        }
        let is_ready = self.wait()?;
        if self.line.is_some() && is_ready.spoken {
            self.listen();
        }
        if is_ready.knocked {
            self.let_in();
        }
        if self.line.is_some() {
            return Ok(Going::On);
        }
        // There is no filler and no mount. The next filler starts a gate of its own.
        if self.readers.is_empty() {
            return Ok(Going::End);
        }
        self.stand_in(is_ready.asked)
    }

    fn wait(&mut self) -> io::Result<Ready> {
        let door = self.door.descriptor();
        // With a filler, the kernel's requests are for the filler, so only its connection is
        // watched. Without one, the device is watched.
        let first = self.line.as_ref().map_or(self.device.as_fd(), GateChannel::descriptor);
        let of: Vec<BorrowedFd> = [first, door].into_iter().chain(self.readers.iter().map(AsFd::as_fd)).collect();
        // A waiting request keeps the device readable, so then only the other descriptors are
        // waited for.
        let pause = if self.asked_since.is_some() { RESCUE_AFTER / 10 } else { LOOK_EVERY };
        let found = match self.asked_since {
            None => wait(&of, LOOK_EVERY)?,
            Some(_) => {
                let mut found = wait(&of[1..], pause)?;
                found.insert(0, wait(&of[..1], Duration::ZERO)?[0]);
                found
            }
        };
        let mut gone = found[2..].iter().map(|found| !found.is_empty());
        self.readers.retain(|_| !gone.next().unwrap_or(false));
        let is_first = !found[0].is_empty();
        let has_line = self.line.is_some();
        Ok(Ready {
            spoken: has_line && is_first,
            asked: !has_line && found[0].contains(PollFlags::IN),
            knocked: !found[1].is_empty(),
        })
    }

    /// Handles messages of the filler.
    fn listen(&mut self) {
        match self.line.as_mut().map(GateChannel::receive) {
            None => {}
            Some(Ok(messages)) => messages.into_iter().for_each(|message| self.hear(message)),
            Some(Err(error)) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
            Some(Err(_)) => self.leave(),
        }
    }

    fn hear(&mut self, message: Message) {
        match message {
            Message::Mounted => {
                let passed = self.line.as_mut().map(GateChannel::take::<1>);
                self.readers.extend(passed.into_iter().flatten().flatten());
            }
            Message::Complete => self.is_over = true,
            // No other message is sent to a gate.
            Message::Begin(..) | Message::Hello(..) => self.leave(),
        }
    }

    /// The filler is gone; another one may connect.
    fn leave(&mut self) {
        self.line = None;
        self.alone_since = Instant::now();
        self.asked_since = None;
        // If the file system is gone, no request waits, so an error is ignored.
        let _ = self.device.ask_again();
    }

    /// Accepts a connection. A filler takes the place of the one before. A process that may not
    /// mount is none, although it may have our user: it would decide what other processes read.
    fn let_in(&mut self) {
        let Ok(Some(channel)) = self.door.accept() else { return };
        if !peer_may_mount(&channel).unwrap_or(false) {
            return;
        }
        self.leave();
        let line = GateChannel::new(channel);
        let passed = [self.device.as_fd(), self.root.as_fd()];
        let said = line.set_patience(SAY_PATIENCE);
        if said.and_then(|()| line.send(Message::Hello(self.size_bytes, self.unit_bytes), &passed)).is_ok() {
            self.line = Some(line);
            self.rescued = self.rescued.take().and_then(|(at, child)| child.map(|child| (at, Some(child))));
        }
    }

    /// Without a filler: starts one if a read waits, and fails reads that have waited too long.
    fn stand_in(&mut self, is_asked: bool) -> io::Result<Going> {
        if let Some((_, child)) = &mut self.rescued
            && child.as_mut().is_some_and(|child| !matches!(child.try_wait(), Ok(None)))
        {
            *child = None;
        }
        if !is_asked && self.asked_since.is_none() {
            return Ok(Going::On);
        }
        let since = *self.asked_since.get_or_insert_with(Instant::now);
        let is_due = match &self.rescued {
            // The process that was started is still running. It may connect soon, or it may be a
            // filler of another image.
            Some((_, Some(_))) => false,
            Some((at, None)) => at.elapsed() >= RESCUE_EVERY,
            None => true,
        };
        if is_due && self.alone_since.elapsed() >= RESCUE_AFTER && !self.rescue.is_empty() {
            self.rescued = Some((Instant::now(), self.start_filler().ok()));
        }
        if since.elapsed() >= READ_WAITS_MAX {
            let mut buffer = Buffer::new();
            while let Some(read) = self.device.next(&mut buffer, self.size_bytes)? {
                self.device.fail(read)?;
            }
        }
        Ok(Going::On)
    }

    fn start_filler(&self) -> io::Result<Child> {
        let [from, program, arguments @ ..] = &*self.rescue else { return Err(io::ErrorKind::InvalidInput.into()) };
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let from = std::path::Path::new(from);
        command.current_dir(if from.is_dir() { from } else { std::path::Path::new("/") });
        std::os::unix::process::CommandExt::process_group(&mut command, 0).spawn()
    }
}

/// The events that a wait has found.
struct Ready {
    spoken: bool,
    asked: bool,
    knocked: bool,
}

/// Returns a descriptor that becomes readable when the file system with this root is gone. The
/// event is never read, so that each later gate sees it, too.
pub(super) fn watch_reader(root: BorrowedFd) -> io::Result<OwnedFd> {
    let watch = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
    let path = format!("/proc/self/fd/{}", root.as_raw_fd());
    inotify::add_watch(&watch, path, inotify::WatchFlags::DELETE_SELF)?;
    Ok(watch)
}
