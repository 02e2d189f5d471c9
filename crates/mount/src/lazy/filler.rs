//! Filling what a gate holds back: the threads that fill, and the one that hears what the gate wants.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use larder_sys::{Answer, Touches};

use super::crew::{Crew, Crewed, LOOK_EVERY, STACK_BYTES};
use super::line::{Line, Message};
use super::units::Units;
use super::{Held, Options, UNIT_BYTES, note_complete, start_gate};
use crate::Fill;

/// The gate listens always: it does nothing that waits.
const SAY_PATIENCE: Duration = Duration::from_secs(10);
/// A gate has no more descriptors than this, and no number above.
const NUMBERS_MAX: i32 = 1 << 16;

/// Who fills one file.
pub(super) struct Filler {
    directory: PathBuf,
    size_bytes: u64,
    gate: Vec<std::ffi::OsString>,
    held: Held,
    /// What the kernel asks through. None once all is there: nobody waits for an answer of a gate that ended then.
    touches: Mutex<Option<Touches>>,
    crew: Crew,
    /// What is said to the gate; what it says is heard by one thread on a connection of its own kind.
    line: Mutex<Arc<Line>>,
    /// What watches the mounts, for a gate that takes another's place.
    readers: Mutex<Vec<OwnedFd>>,
    traces: AtomicBool,
    /// All is there, on the disk, and noted.
    noted: AtomicBool,
    /// The gate is told.
    completed: AtomicBool,
}

impl Filler {
    pub(super) fn start(
        directory: &Path,
        size_bytes: u64,
        (line, came): (Line, Vec<Message>),
        (touches, held): (Touches, Held),
        fill: Arc<dyn Fill>,
        options: &Options,
    ) -> io::Result<Arc<Filler>> {
        let mut filled = Units::none(size_bytes, UNIT_BYTES);
        for unit in held.filled.units()? {
            filled.put(unit);
        }
        let (heard, said) = line.split()?;
        let filler = Arc::new(Filler {
            directory: directory.to_owned(),
            size_bytes,
            gate: options.gate.clone(),
            held,
            touches: Mutex::new(Some(touches)),
            crew: Crew::new(fill, filled, &options.order),
            line: Mutex::new(Arc::new(said)),
            readers: Mutex::new(Vec::new()),
            traces: AtomicBool::new(options.trace),
            noted: AtomicBool::new(false),
            completed: AtomicBool::new(false),
        });
        came.into_iter().for_each(|message| filler.want(message));
        let its = Arc::clone(&filler);
        std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || its.hear(heard))?;
        Crew::start(&filler, options)?;
        filler.complete();
        Ok(filler)
    }

    pub(super) fn is_complete(&self) -> bool {
        self.crew.is_complete()
    }

    pub(super) fn filled_bytes(&self) -> u64 {
        self.crew.filled_bytes(self.size_bytes)
    }

    pub(super) fn tell_mounted(&self, watch: OwnedFd) -> io::Result<()> {
        let said = self.say(Message::Mounted, Some(&watch));
        // A gate that is gone hears it from its successor; one that ended because all is there needs not.
        match said {
            Err(error) if !self.completed.load(Relaxed) => Err(error),
            _ => {
                lock(&self.readers).push(watch);
                self.crew.note_mounted();
                Ok(())
            }
        }
    }

    pub(super) fn finish(&self) {
        self.traces.store(false, Relaxed);
        self.complete();
    }

    pub(super) fn stop(&self) {
        self.crew.stop();
        // The gate learns that nobody fills.
        lock(&self.line).hang_up();
    }

    fn say(&self, message: Message, passed: Option<&OwnedFd>) -> io::Result<()> {
        let line = Arc::clone(&lock(&self.line));
        let passed: Vec<_> = passed.map(AsFd::as_fd).into_iter().collect();
        line.send(message, &passed)
    }

    /// What the gate says, until there is none.
    fn hear(&self, mut line: Line) {
        let _ = line.set_patience(SAY_PATIENCE);
        while !self.crew.is_stopped() {
            match line.receive() {
                Ok(messages) => messages.into_iter().for_each(|message| self.want(message)),
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
                Err(_) if self.completed.load(Relaxed) => return drop(lock(&self.touches).take()),
                Err(_) if self.crew.is_stopped() => return,
                // Nobody holds reads back but the kernel, as long as we live.
                Err(_) => match self.replace_gate() {
                    Ok(next) => line = next,
                    Err(_) => std::thread::sleep(LOOK_EVERY),
                },
            }
        }
    }

    fn want(&self, message: Message) {
        let Message::Want(offset, length) = message else { return };
        let bytes = offset..offset.saturating_add(length).min(self.size_bytes);
        let there = self.crew.want(&bytes);
        // A gate that asks for what is there did not hear of it.
        let _ = self.say_filled(there);
    }

    fn say_filled(&self, runs: Vec<Range<u64>>) -> io::Result<()> {
        runs.into_iter().try_for_each(|bytes| self.say(Message::Filled(bytes.start, bytes.end - bytes.start), None))
    }

    /// Start a gate in place of one that was killed. Reads that it was asked about fail: which bytes they want went
    /// with it.
    fn replace_gate(&self) -> io::Result<Line> {
        let touches = lock(&self.touches);
        let touches = touches.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        for number in 0..NUMBERS_MAX {
            // Most numbers are none.
            let _ = touches.answer(number, Answer::Fail);
        }
        let (heard, said) = start_gate(&self.directory, &self.gate, self.size_bytes, touches, &self.held)?.split()?;
        *lock(&self.line) = Arc::new(said);
        for reader in lock(&self.readers).iter() {
            self.say(Message::Mounted, Some(reader))?;
        }
        // What the last one had no time to note.
        let runs = {
            let ledger = self.crew.ledger();
            ledger.filled().runs(0..ledger.filled().count()).collect()
        };
        self.say_filled(runs)?;
        Ok(heard)
    }

    /// Once all is there: on the disk, noted, and nobody is asked any more, unless that is to be known.
    fn complete(&self) {
        if !self.is_complete() {
            return;
        }
        self.crew.wake_all();
        if !self.noted.swap(true, Relaxed) {
            let synced = rustix::fs::fdatasync(&self.held.quiet).map_err(io::Error::from);
            // What is not noted is filled again the next time; nobody waits for anything now.
            let _ = synced.and_then(|()| note_complete(&self.directory, self.size_bytes));
        }
        if !self.traces.load(Relaxed) && !self.completed.swap(true, Relaxed) {
            let _ = self.say(Message::Complete, None);
        }
    }
}

impl Crewed for Filler {
    fn crew(&self) -> &Crew {
        &self.crew
    }

    fn file(&self) -> BorrowedFd<'_> {
        self.held.quiet.as_fd()
    }

    fn tell(&self, bytes: Range<u64>, is_filled: bool) {
        let said = if is_filled { Message::Filled } else { Message::Failed };
        let _ = self.say(said(bytes.start, bytes.end - bytes.start), None);
        self.complete();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
