//! The gate: a process of its own that keeps the FUSE device open, so that the filler may die and reads only wait. It does
//! nothing else, so that little can end it.
//!
//! 1. The filler answers the kernel. The gate waits for the filler's end of their connection to be closed.
//! 2. The filler dies. The gate has the kernel ask again what the filler had not answered.
//! 3. If something is asked, the gate starts a filler by the command that it was given. A filler that comes, that one
//!    or another, gets the device, and answers.
//! 4. If none comes within a minute, the gate fails what is asked, and what comes after that, until a filler comes.
//!
//! If the gate dies, the filler starts another. If both die, the kernel fails what is asked: reads of what is not in the
//! data file get EIO, and all else is read as before.
//!
//! It ends once all is filled, or when there is neither a filler nor a file system left that reads the file.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use larder_sys::{Channel, Door, SignalForwarding, effective_user};
use rustix::event::PollFlags;
use rustix::fs::inotify;

use super::READ_WAITS_MAX;
use super::device::{Buffer, Device, wait};
use super::line::{Line, Message};

/// What is to be said to a filler that does not listen now is not said.
const SAY_PATIENCE: Duration = Duration::from_secs(1);
/// How often it is looked whether a read waited too long.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// A filler that was replaced comes by itself within this time.
const RESCUE_AFTER: Duration = Duration::from_millis(500);
/// How often a filler is started, if none comes of it.
const RESCUE_EVERY: Duration = Duration::from_secs(5);

struct Gate {
    device: Device,
    /// The root of the device's file system: new mounts find the file below it.
    root: OwnedFd,
    door: Door,
    line: Option<Line>,
    size_bytes: u64,
    unit_bytes: u64,
    /// Each says when a file system is gone that reads the file.
    readers: Vec<OwnedFd>,
    /// Since when there is no filler.
    alone_since: Instant,
    /// Since when a read waits for a filler.
    asked_since: Option<Instant>,
    /// The directory that a filler is started in, the program and its arguments; may be empty.
    rescue: Vec<OsString>,
    rescued: Option<(Instant, Option<Child>)>,
    is_over: bool,
}

/// What a gate is at the end of.
#[derive(PartialEq, Eq)]
enum Going {
    On,
    End,
}

/// Be a gate: `socket` leads to whoever started us, and says the rest. `rescue` is how a filler is started if there is
/// none: its working directory, program and arguments. Returns when nothing needs a gate any more.
///
/// # Errors
///
/// If it was not started as a gate is, or the kernel cannot be listened to.
pub fn gate(socket: OwnedFd, rescue: Vec<OsString>) -> io::Result<()> {
    larder_sys::close_others(3, &[socket.as_raw_fd()]);
    larder_sys::lead_session();
    // SIGTERM, SIGINT and SIGHUP are for programs that others can do without. They stay blocked; what is started has them.
    let _blocked = SignalForwarding::prepare()?;
    let _ = std::env::set_current_dir("/");
    // Without us and the filler, reads fail: may everything else be ended before.
    let _ = std::fs::write("/proc/self/oom_score_adj", "-1000");
    let mut gate = Gate::begin(Line::new(Channel::given(socket)), rescue)?;
    while gate.step()? == Going::On {}
    Ok(())
}

impl Gate {
    fn begin(mut line: Line, rescue: Vec<OsString>) -> io::Result<Gate> {
        let messages = line.receive()?;
        let (size_bytes, unit_bytes) = match messages.first() {
            Some(Message::Begin(size, unit)) if *unit > 0 => (*size, *unit),
            _ => return Err(io::ErrorKind::InvalidData.into()),
        };
        let [device, root, door] = line.take()?;
        line.set_patience(SAY_PATIENCE)?;
        let mut gate = Gate {
            device: Device::passed(device),
            root,
            door: Door::given(door)?,
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
        // What came with the first message is not lost.
        messages[1..].iter().for_each(|message| gate.hear(*message));
        Ok(gate)
    }

    /// Wait for something, and do it.
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
        // Nobody fills and nobody can read any more. Whoever fills it next is not to meet us.
        if self.readers.is_empty() {
            return Ok(Going::End);
        }
        self.stand_in(is_ready.asked)
    }

    fn wait(&mut self) -> io::Result<Ready> {
        let door = self.door.descriptor();
        // With a filler, what is asked is for the filler; without one, there is no line.
        let first = self.line.as_ref().map_or(self.device.as_fd(), Line::descriptor);
        let of: Vec<BorrowedFd> = [first, door].into_iter().chain(self.readers.iter().map(AsFd::as_fd)).collect();
        // What is asked stays so: it is waited for a filler's knock alone.
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

    /// What the filler says.
    fn listen(&mut self) {
        match self.line.as_mut().map(Line::receive) {
            None => {}
            Some(Ok(messages)) => messages.into_iter().for_each(|message| self.hear(message)),
            Some(Err(error)) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
            Some(Err(_)) => self.leave(),
        }
    }

    fn hear(&mut self, message: Message) {
        match message {
            Message::Mounted => {
                let passed = self.line.as_mut().map(Line::take::<1>);
                self.readers.extend(passed.into_iter().flatten().flatten());
            }
            Message::Complete => self.is_over = true,
            // Nothing else is said to a gate.
            Message::Begin(..) | Message::Hello(..) => self.leave(),
        }
    }

    /// The filler is gone; another one may come.
    fn leave(&mut self) {
        self.line = None;
        self.alone_since = Instant::now();
        self.asked_since = None;
        // If the file system is gone, nothing is asked.
        let _ = self.device.ask_again();
    }

    /// A filler knocks: one of our user takes the place of the one before.
    fn let_in(&mut self) {
        let Ok(Some(channel)) = self.door.accept() else { return };
        if !channel.peer().is_ok_and(|peer| peer.user == effective_user()) {
            return;
        }
        self.leave();
        let line = Line::new(channel);
        let passed = [self.device.as_fd(), self.root.as_fd()];
        let said = line.set_patience(SAY_PATIENCE);
        if said.and_then(|()| line.send(Message::Hello(self.size_bytes, self.unit_bytes), &passed)).is_ok() {
            self.line = Some(line);
            self.rescued = self.rescued.take().and_then(|(at, child)| child.map(|child| (at, Some(child))));
        }
    }

    /// While there is no filler: have one started if something is asked, and fail what waited too long.
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
            // One that is just beginning, or a filler of another image.
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

/// What can be done.
struct Ready {
    spoken: bool,
    asked: bool,
    knocked: bool,
}

/// What becomes readable when the file system is gone that this directory is the root of. Nobody reads it, so that it
/// says so to every gate.
pub(super) fn watch_reader(root: BorrowedFd) -> io::Result<OwnedFd> {
    let watch = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
    let path = format!("/proc/self/fd/{}", root.as_raw_fd());
    inotify::add_watch(&watch, path, inotify::WatchFlags::DELETE_SELF)?;
    Ok(watch)
}
