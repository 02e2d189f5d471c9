//! The threads that fill, and the one that hears what the gate wants.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use larder_sys::{Answer, Class, Touches};

use super::ledger::{Ledger, Work};
use super::line::{Line, Message};
use super::units::Units;
use super::{Held, Options, UNIT_BYTES, note_complete, start_gate};
use crate::Fill;

/// The gate listens always: it does nothing that waits.
const SAY_PATIENCE: Duration = Duration::from_secs(10);
/// How often is looked whether to stop.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// A gate has no more descriptors than this, and no number above.
const NUMBERS_MAX: i32 = 1 << 16;
/// What nobody asked for yet is fetched once it is mounted, or after so long where nobody mounts it.
const MOUNTED_MAX: Duration = Duration::from_secs(1);
/// And so long after that: whoever mounts is not done yet, and somebody waits for that.
const MOUNTED_FIRST: Duration = Duration::from_millis(20);
/// A worker's own; what fills brings its own memory.
const STACK_BYTES: usize = 1 << 20;

/// Who fills one file.
pub(super) struct Filler {
    directory: PathBuf,
    size_bytes: u64,
    gate: Vec<std::ffi::OsString>,
    held: Held,
    /// What the kernel asks through. None once all is there: nobody waits for an answer of a gate that ended then.
    touches: Mutex<Option<Touches>>,
    fill: Arc<dyn Fill>,
    ledger: Mutex<Ledger>,
    /// One more piece is waited for.
    asked: Condvar,
    /// There may be more of what nobody waits for.
    more: Condvar,
    /// What is said to the gate; what it says is heard by one thread on a connection of its own kind.
    line: Mutex<Arc<Line>>,
    /// What watches the mounts, for a gate that takes another's place.
    readers: Mutex<Vec<OwnedFd>>,
    was_mounted: AtomicBool,
    traces: AtomicBool,
    stopped: AtomicBool,
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
        let its = Arc::clone(&fill);
        let pieces = Box::new(move |offset| its.piece(offset));
        let (heard, said) = line.split()?;
        let filler = Arc::new(Filler {
            directory: directory.to_owned(),
            size_bytes,
            gate: options.gate.clone(),
            held,
            touches: Mutex::new(Some(touches)),
            fill,
            ledger: Mutex::new(Ledger::new(filled, pieces, &options.order)),
            asked: Condvar::new(),
            more: Condvar::new(),
            line: Mutex::new(Arc::new(said)),
            readers: Mutex::new(Vec::new()),
            was_mounted: AtomicBool::new(false),
            traces: AtomicBool::new(options.trace),
            stopped: AtomicBool::new(false),
            noted: AtomicBool::new(false),
            completed: AtomicBool::new(false),
        });
        came.into_iter().for_each(|message| filler.want(message));
        let its = Arc::clone(&filler);
        std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || its.hear(heard))?;
        for _ in 0..options.workers.max(1) {
            let its = Arc::clone(&filler);
            std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || its.work(Ledger::wanted, &its.asked))?;
        }
        for _ in 0..options.background {
            let its = Arc::clone(&filler);
            std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || its.work_ahead())?;
        }
        filler.complete();
        Ok(filler)
    }

    pub(super) fn is_complete(&self) -> bool {
        self.ledger().is_complete()
    }

    pub(super) fn filled_bytes(&self) -> u64 {
        let ledger = self.ledger();
        let units = ledger.filled();
        (units.count() - units.left()).saturating_mul(UNIT_BYTES).min(self.size_bytes)
    }

    pub(super) fn tell_mounted(&self, watch: OwnedFd) -> io::Result<()> {
        let said = self.say(Message::Mounted, Some(&watch));
        // A gate that is gone hears it from its successor; one that ended because all is there needs not.
        match said {
            Err(error) if !self.completed.load(Relaxed) => Err(error),
            _ => {
                lock(&self.readers).push(watch);
                self.was_mounted.store(true, Relaxed);
                self.more.notify_all();
                Ok(())
            }
        }
    }

    pub(super) fn finish(&self) {
        self.traces.store(false, Relaxed);
        self.complete();
    }

    pub(super) fn stop(&self) {
        self.stopped.store(true, Relaxed);
        self.wake_all();
        // The gate learns that nobody fills.
        lock(&self.line).hang_up();
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        lock(&self.ledger)
    }

    fn say(&self, message: Message, passed: Option<&OwnedFd>) -> io::Result<()> {
        let line = Arc::clone(&lock(&self.line));
        let passed: Vec<_> = passed.map(AsFd::as_fd).into_iter().collect();
        line.send(message, &passed)
    }

    /// What the gate says, until there is none.
    fn hear(&self, mut line: Line) {
        let _ = line.set_patience(SAY_PATIENCE);
        while !self.stopped.load(Relaxed) {
            match line.receive() {
                Ok(messages) => messages.into_iter().for_each(|message| self.want(message)),
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
                Err(_) if self.completed.load(Relaxed) => return drop(lock(&self.touches).take()),
                Err(_) if self.stopped.load(Relaxed) => return,
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
        let (more, there) = {
            let mut ledger = self.ledger();
            let (more, filled) = (ledger.want(&bytes), ledger.filled());
            (more, filled.runs(filled.touched(&bytes)).collect())
        };
        // No more of them than there is work for: each that wakes takes time from whoever waits.
        (0..more).for_each(|_| self.asked.notify_one());
        // A gate that asks for what is there did not hear of it.
        let _ = self.say_filled(there);
    }

    fn say_filled(&self, runs: Vec<Range<u64>>) -> io::Result<()> {
        runs.into_iter().try_for_each(|bytes| self.say(Message::Filled(bytes.start, bytes.end - bytes.start), None))
    }

    fn wake_all(&self) {
        self.asked.notify_all();
        self.more.notify_all();
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
            let ledger = self.ledger();
            ledger.filled().runs(0..ledger.filled().count()).collect()
        };
        self.say_filled(runs)?;
        Ok(heard)
    }

    /// Fill what nobody waits for yet: after those who use what is there, and who are about to mount it.
    fn work_ahead(&self) {
        larder_sys::lower_thread(Class::Utility);
        let waits = |_: &mut Ledger| !self.was_mounted.load(Relaxed) && !self.stopped.load(Relaxed);
        drop(self.more.wait_timeout_while(self.ledger(), MOUNTED_MAX, waits));
        std::thread::sleep(MOUNTED_FIRST);
        self.work(Ledger::unasked, &self.more);
    }

    /// Fill what is to be filled, until told to stop or all is there.
    fn work(&self, of: fn(&mut Ledger) -> Option<Work>, woken: &Condvar) {
        while let Some(work) = self.next(of, woken) {
            let bytes = self.ledger().filled().bytes(&work.units);
            let length = bytes.end - bytes.start;
            let filled = self.fill.fill(bytes.start, length, self.held.quiet.as_fd());
            // First noted by us, then said: a gate that is replaced in between hears it from the note.
            self.ledger().done(&work, filled.is_ok());
            let said = if filled.is_ok() { Message::Filled } else { Message::Failed };
            let _ = self.say(said(bytes.start, length), None);
            self.complete();
        }
    }

    fn next(&self, of: fn(&mut Ledger) -> Option<Work>, woken: &Condvar) -> Option<Work> {
        let mut ledger = self.ledger();
        loop {
            if self.stopped.load(Relaxed) || ledger.is_complete() {
                return None;
            }
            if let Some(work) = of(&mut ledger) {
                return Some(work);
            }
            ledger = woken.wait_timeout(ledger, LOOK_EVERY).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Once all is there: on the disk, noted, and nobody is asked any more, unless that is to be known.
    fn complete(&self) {
        if !self.is_complete() {
            return;
        }
        self.wake_all();
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
