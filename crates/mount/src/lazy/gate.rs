//! The gate: a process of its own that holds reads back until their bytes are there. It does nothing else, so that
//! nothing ends it: whoever fills may be killed and come back, and no read was let through meanwhile.
//!
//! It lets a read go on when all units that it touches are filled, as somebody who fills said; else it asks for them. A
//! read is failed when its bytes do not come, and when nobody who fills came back for a while. It ends when all is
//! filled, or when nobody fills and nothing is left that reads the file.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use larder_sys::{Answer, Channel, Door, Touch, Touches, effective_user};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify;

use super::journal::Journal;
use super::line::{Line, Message};
use super::units::Units;

/// A read waits so long for somebody to come back who fills.
const PATIENCE: Duration = Duration::from_secs(60);
/// What is to be said to somebody who does not listen now is said later.
const SAY_PATIENCE: Duration = Duration::from_millis(1);
/// How often is looked whether somebody waited too long.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A read that waits.
struct Waiting {
    /// By whose number it is answered: open until then, so that no other read gets that number.
    file: OwnedFd,
    bytes: Range<u64>,
    is_asked: bool,
    since: Instant,
}

struct Gate {
    touches: Touches,
    /// Opened by the kernel for an event: nobody is asked about what goes through it.
    quiet: OwnedFd,
    door: Door,
    line: Option<Line>,
    size_bytes: u64,
    unit_bytes: u64,
    filled: Units,
    filled_journal: Journal,
    touched: Units,
    touched_journal: Journal,
    waiting: Vec<Waiting>,
    /// Each says when a file system is gone that reads the file.
    readers: Vec<OwnedFd>,
    alone_since: Instant,
    /// Whoever fills has said that all is there.
    is_complete: bool,
    is_over: bool,
}

/// What a gate is at the end of.
#[derive(PartialEq, Eq)]
enum Going {
    On,
    End,
}

/// Be a gate: `socket` leads to whoever started us, and says the rest. Returns when nobody needs it any more.
///
/// # Errors
///
/// Where it was not started as a gate is, or the kernel does not say any more who reads.
pub fn gate(socket: OwnedFd) -> io::Result<()> {
    larder_sys::close_others(3, &[socket.as_raw_fd()]);
    larder_sys::lead_session();
    larder_sys::raise_descriptor_limit();
    // Each read of what is not all there yet waits for us once.
    larder_sys::answer_promptly();
    let _ = std::env::set_current_dir("/");
    // Without us what was never filled could be read: may everybody else be ended before.
    let _ = std::fs::write("/proc/self/oom_score_adj", "-1000");
    let mut gate = Gate::begin(Line::new(Channel::given(socket)))?;
    while gate.step()? == Going::On {}
    gate.end()
}

impl Gate {
    fn begin(mut line: Line) -> io::Result<Gate> {
        let odd = || io::Error::from(io::ErrorKind::InvalidData);
        let messages = line.receive()?;
        let (size_bytes, unit_bytes) = match messages.first() {
            Some(Message::Begin(size, unit)) if *unit > 0 => (*size, *unit),
            _ => return Err(odd()),
        };
        let [group, quiet, door, filled_journal, touched_journal] = line.take()?;
        let journal = |file: OwnedFd| -> io::Result<(Units, Journal)> {
            let journal = Journal::passed(File::from(file));
            let mut units = Units::none(size_bytes, unit_bytes);
            for unit in journal.units()? {
                units.put(unit);
            }
            Ok((units, journal))
        };
        let ((filled, filled_journal), (touched, touched_journal)) =
            (journal(filled_journal)?, journal(touched_journal)?);
        line.set_patience(SAY_PATIENCE)?;
        let (touches, door) = (Touches::passed(group), Door::given(door)?);
        let (waiting, readers, alone_since) = (Vec::new(), Vec::new(), Instant::now());
        let line = Some(line);
        let mut gate = Gate {
            touches,
            quiet,
            door,
            line,
            size_bytes,
            unit_bytes,
            filled,
            filled_journal,
            touched,
            touched_journal,
            waiting,
            readers,
            alone_since,
            is_complete: false,
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
        let (touched, spoken, knocked) = self.wait()?;
        if touched {
            self.touches.take()?.into_iter().try_for_each(|touch| self.meet(touch))?;
        }
        if spoken {
            self.listen();
        }
        if knocked {
            self.let_in();
        }
        self.ask();
        self.lose_patience()
    }

    fn wait(&mut self) -> io::Result<(bool, bool, bool)> {
        // Without a line the door is asked about twice.
        let line = self.line.as_ref().map_or(self.door.descriptor(), Line::descriptor);
        let ours = [self.touches.as_fd(), line, self.door.descriptor()];
        let all = ours.into_iter().chain(self.readers.iter().map(AsFd::as_fd));
        let mut asked: Vec<PollFd> = all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let at_most = Timespec::try_from(LOOK_EVERY).map_err(|_| io::ErrorKind::InvalidInput)?;
        match poll(&mut asked, Some(&at_most)) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok((false, false, false)),
            Err(error) => return Err(error.into()),
        }
        let is_ready = |at: usize| !asked[at].revents().is_empty();
        let found = (is_ready(0), self.line.is_some() && is_ready(1), is_ready(2));
        let gone: Vec<bool> = (ours.len()..asked.len()).map(is_ready).collect();
        if gone.contains(&true) {
            let mut gone = gone.into_iter();
            self.readers.retain(|_| !gone.next().unwrap_or(false));
        }
        Ok(found)
    }

    /// Somebody is about to read.
    fn meet(&mut self, touch: Touch) -> io::Result<()> {
        let end = touch.length.map_or(self.size_bytes, |length| touch.offset.saturating_add(length));
        let bytes = touch.offset..end.max(touch.offset);
        let units = self.filled.touched(&bytes);
        let new: Vec<u64> = units.filter(|unit| self.touched.put(*unit)).collect();
        // The trace is a help, and no reader fails for it.
        let _ = self.touched_journal.add(new.into_iter());
        if self.filled.cover(&bytes) {
            return answer(&self.touches, &touch.file, Answer::GoOn);
        }
        self.waiting.push(Waiting { file: touch.file, bytes, is_asked: false, since: Instant::now() });
        Ok(())
    }

    /// What whoever fills says.
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
            Message::Filled(offset, length) => {
                let units = self.filled.within(&(offset..offset.saturating_add(length)));
                let new: Vec<u64> = units.filter(|unit| self.filled.put(*unit)).collect();
                // What is not noted is fetched again after the next start.
                let _ = self.filled_journal.add(new.into_iter());
                self.settle(|waiting, filled| filled.cover(&waiting.bytes).then_some(Answer::GoOn));
            }
            Message::Failed(offset, length) => {
                let failed = offset..offset.saturating_add(length);
                self.settle(|waiting, _| {
                    let is_meant = waiting.bytes.start < failed.end && failed.start < waiting.bytes.end;
                    (waiting.is_asked && is_meant).then_some(Answer::Fail)
                });
            }
            Message::Mounted => {
                let passed = self.line.as_mut().map(Line::take::<1>);
                self.readers.extend(passed.into_iter().flatten().flatten());
            }
            // What another thread filled may be said after that.
            Message::Complete => self.is_complete = true,
            // Nobody says that to a gate.
            _ => self.leave(),
        }
        self.is_over |= self.is_complete && self.filled.left() == 0;
    }

    /// Answer those of whom that is known now.
    fn settle(&mut self, decide: impl Fn(&Waiting, &Units) -> Option<Answer>) {
        let (touches, filled) = (&self.touches, &self.filled);
        self.waiting.retain(|waiting| match decide(waiting, filled) {
            // Who is gone meanwhile needs no answer.
            Some(said) => {
                let _ = answer(touches, &waiting.file, said);
                false
            }
            None => true,
        });
    }

    /// Whoever fills is gone; another one may come.
    fn leave(&mut self) {
        self.line = None;
        self.alone_since = Instant::now();
        self.waiting.iter_mut().for_each(|waiting| waiting.is_asked = false);
    }

    /// Somebody knocks: of our user, they take the place of who filled before.
    fn let_in(&mut self) {
        let Ok(Some(channel)) = self.door.accept() else { return };
        if !channel.peer().is_ok_and(|peer| peer.user == effective_user()) {
            return;
        }
        let line = Line::new(channel);
        let passed = [
            self.touches.as_fd(),
            self.quiet.as_fd(),
            self.filled_journal.file().as_fd(),
            self.touched_journal.file().as_fd(),
        ];
        let said = line.set_patience(SAY_PATIENCE);
        if said.and_then(|()| line.send(Message::Hello(self.size_bytes, self.unit_bytes), &passed)).is_ok() {
            self.leave();
            self.line = Some(line);
        }
    }

    /// Ask for what is waited for, as much as is taken.
    fn ask(&mut self) {
        let Some(line) = &self.line else { return };
        for waiting in self.waiting.iter_mut().filter(|waiting| !waiting.is_asked) {
            let want = Message::Want(waiting.bytes.start, waiting.bytes.end - waiting.bytes.start);
            waiting.is_asked = line.send(want, &[]).is_ok();
            if !waiting.is_asked {
                break;
            }
        }
    }

    /// Nobody waits for ever for somebody who does not come back.
    fn lose_patience(&mut self) -> io::Result<Going> {
        if self.line.is_some() {
            return Ok(Going::On);
        }
        // Nobody fills and nobody can read any more: there is nothing to hold back. Whoever fills it next, here or in
        // another way, is not to meet us.
        if self.readers.is_empty() && self.waiting.is_empty() {
            return Ok(Going::End);
        }
        if self.alone_since.elapsed() < PATIENCE {
            return Ok(Going::On);
        }
        self.settle(|waiting, _| (waiting.since.elapsed() >= PATIENCE).then_some(Answer::Fail));
        Ok(if self.readers.is_empty() && self.waiting.is_empty() { Going::End } else { Going::On })
    }

    /// Hold nothing back any more: all is there, or nobody reads.
    fn end(mut self) -> io::Result<()> {
        self.touches.watch_nothing()?;
        // Those who asked just before that; others are not asked about any more.
        for touch in self.touches.take()? {
            self.meet(touch)?;
        }
        self.settle(|waiting, filled| Some(if filled.cover(&waiting.bytes) { Answer::GoOn } else { Answer::Fail }));
        Ok(())
    }
}

fn answer(touches: &Touches, file: &OwnedFd, answer: Answer) -> io::Result<()> {
    match touches.answer(file.as_raw_fd(), answer) {
        // Whoever read was killed meanwhile.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// What becomes readable when the file system is gone that this directory is the root of. Nobody reads it, so that it
/// says so to every gate.
pub(super) fn watch_reader(root: BorrowedFd) -> io::Result<OwnedFd> {
    let watch = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
    let path = format!("/proc/self/fd/{}", root.as_raw_fd());
    inotify::add_watch(&watch, path, inotify::WatchFlags::DELETE_SELF)?;
    Ok(watch)
}
