//! A data file that a process fills for readers that ask the process itself, by FUSE.
//!
//! For the rung `lazy-fuse`, several processes may fill one file, each for its own readers. They write the same bytes to the same places, and each
//! notes what it has written in one journal, after it has written it. So a process finds there what another one filled,
//! and what is noted is there, in whatever order they do that. Two of them may fetch the same piece at once, which costs
//! time only.
//!
//! Unaware of: files and directories, and the protocol that readers speak.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::crew::{Crew, Crewed};
use super::journal::{Journal, Trace};
use super::switches::Switches;
use super::units::Units;
use super::{FILLED, Options, UNIT_BYTES, forget_complete, forget_filled, lock, make, note_complete, was_completed};
use crate::{Fill, MountError};

const DATA: &str = "data";
/// Reads that wait at once. Each is a thread of a job that waits, or one of the few requests that the kernel makes ahead.
const WAITING_MAX: usize = 1 << 16;

/// What is done once bytes are there, or cannot be had.
pub(crate) type Then = Box<dyn FnOnce(io::Result<()>) + Send>;

struct Waiting {
    bytes: Vec<Range<u64>>,
    then: Then,
}

/// See above. Dropped by whoever began it, the file is filled no further.
pub(crate) struct Own {
    directory: PathBuf,
    size_bytes: u64,
    file: File,
    filled: Journal,
    /// How many entries of the journal are in the ledger.
    heard: Mutex<usize>,
    crew: Crew,
    waiting: Mutex<Vec<Waiting>>,
    /// What was touched, in the order of first touches, as long as that is noted.
    touched: Mutex<Option<Touched>>,
    /// For the rung `lazy`, once it is mounted: where each chunk is read from.
    switches: Mutex<Option<Switches>>,
    /// All of it is there: then nothing else is looked at.
    is_complete: AtomicBool,
    /// That is noted, and on the disk.
    noted: AtomicBool,
}

struct Touched {
    units: Units,
    order: Vec<u64>,
}

impl Own {
    /// Fill the file `data` of `directory`, which are made, by `fill`. What other processes filled, or earlier ones since
    /// the system began, is there.
    ///
    /// # Errors
    ///
    /// If it cannot be written there.
    pub(crate) fn begin(
        directory: &Path,
        size_bytes: u64,
        fill: Arc<dyn Fill>,
        options: &Options,
    ) -> Result<Arc<Own>, MountError> {
        fs::create_dir_all(directory).map_err(MountError::path(directory, "cannot be made"))?;
        // Only one process at a time makes the file and the journal: a journal is never of another file.
        let begun = lock(directory)?;
        let own = Own::open(directory, &directory.join(DATA), size_bytes, fill, options)?;
        drop(begun);
        own.start(options)?;
        Ok(own)
    }

    /// The file `data` with what belongs to it in `directory`, which the caller has locked. `start` fills it.
    pub(super) fn open(
        directory: &Path,
        data: &Path,
        size_bytes: u64,
        fill: Arc<dyn Fill>,
        options: &Options,
    ) -> Result<Arc<Own>, MountError> {
        let at = |what| MountError::path(directory, what);
        let was_complete = size_bytes == 0 || was_completed(directory, data, size_bytes);
        if !data.exists() {
            // What was filled went with it.
            forget_filled(directory)?;
        }
        if !was_complete {
            forget_complete(directory)?;
        }
        make(data, size_bytes).map_err(MountError::path(data, "cannot be made"))?;
        let file = File::options().read(true).write(true).open(data);
        let file = file.map_err(MountError::path(data, "cannot be opened"))?;
        let opened = Journal::open(&directory.join(FILLED), size_bytes, UNIT_BYTES);
        let (filled, entries) = opened.map_err(at("what is filled cannot be noted there"))?;
        let mut units = Units::none(size_bytes, UNIT_BYTES);
        let there: Vec<u64> = if was_complete { (0..units.count()).collect() } else { entries };
        for unit in there {
            units.put(unit);
        }
        let touched = Touched { units: units.like(), order: Vec::new() };
        Ok(Arc::new(Own {
            directory: directory.to_owned(),
            size_bytes,
            file,
            filled,
            heard: Mutex::new(0),
            crew: Crew::new(fill, units, &options.order),
            waiting: Mutex::new(Vec::new()),
            touched: Mutex::new(options.trace.then_some(touched)),
            switches: Mutex::new(None),
            is_complete: AtomicBool::new(was_complete),
            noted: AtomicBool::new(was_complete),
        }))
    }

    /// Fill it from now on.
    pub(super) fn start(self: &Arc<Own>, options: &Options) -> Result<(), MountError> {
        if !self.is_complete() {
            Crew::start(self, options).map_err(MountError::lazy("it cannot be filled: no thread can be started"))?;
            self.complete();
        }
        Ok(())
    }

    pub(super) fn is_complete(&self) -> bool {
        self.is_complete.load(SeqCst)
    }

    pub(super) fn filled_bytes(&self) -> u64 {
        self.crew.filled_bytes(self.size_bytes)
    }

    /// Switch over what is there, and from now on each chunk as its bytes come; if it is noted what is touched, only once
    /// that has ended, because the kernel asks for nothing that was switched over.
    pub(super) fn set_switches(&self, switches: Switches) {
        *held(&self.switches) = Some(switches);
        self.switch(&(0..u64::MAX));
    }

    /// Whether the kernel reads all bytes by itself from now on.
    pub(super) fn is_settled(&self) -> bool {
        self.is_complete()
            && held(&self.touched).is_none()
            && held(&self.switches).as_ref().is_none_or(Switches::are_over)
    }

    fn switch(&self, bytes: &Range<u64>) {
        let switches = held(&self.switches);
        let Some(switches) = switches.as_ref().filter(|_| held(&self.touched).is_none()) else { return };
        // What could not be switched over is asked for as before.
        let _ = switches.switch(bytes, |bytes| self.has(std::slice::from_ref(bytes)));
    }

    /// From here on what nothing waits for is filled, too.
    pub(crate) fn note_mounted(&self) {
        self.crew.note_mounted();
    }

    /// Do `then` once all these bytes are there, at once if they are. Else they are fetched first, and it is done by
    /// another thread; with an error if that failed. The next read asks for them again.
    pub(crate) fn when_there(&self, bytes: Vec<Range<u64>>, then: Then) {
        self.touch(&bytes);
        if self.has(&bytes) || (self.hear_others() && self.has(&bytes)) {
            return then(Ok(()));
        }
        {
            let mut waiting = held(&self.waiting);
            // What was filled meanwhile is in the ledger, and whoever filled it looks for those who wait after that.
            if !self.has(&bytes) {
                if waiting.len() >= WAITING_MAX {
                    drop(waiting);
                    return then(Err(io::Error::other("too many reads wait")));
                }
                let wanted = bytes.clone();
                waiting.push(Waiting { bytes, then });
                drop(waiting);
                wanted.iter().for_each(|bytes| drop(self.crew.want(bytes)));
                return;
            }
        }
        then(Ok(()));
    }

    /// Read bytes that are there.
    pub(crate) fn read(&self, to: &mut [u8], at: u64) -> io::Result<()> {
        self.file.read_exact_at(to, at)
    }

    /// What was touched so far; it is noted no more.
    pub(crate) fn end_trace(&self) -> Trace {
        let touched = held(&self.touched).take();
        self.switch(&(0..u64::MAX));
        touched.map_or_else(Trace::default, |touched| Trace::of(&touched.order, &touched.units))
    }

    /// What was touched so far.
    pub(super) fn trace(&self) -> Trace {
        let touched = held(&self.touched);
        touched.as_ref().map_or_else(Trace::default, |touched| Trace::of(&touched.order, &touched.units))
    }

    /// Fill no further. Reads that wait stay unanswered: another process answers them.
    pub(super) fn leave(&self) {
        self.crew.stop();
        held(&self.waiting).clear();
    }

    /// Fill no further. Reads that wait fail.
    pub(crate) fn stop(&self) {
        self.crew.stop();
        let waiting = std::mem::take(&mut *held(&self.waiting));
        waiting.into_iter().for_each(|waiting| (waiting.then)(Err(io::ErrorKind::NotConnected.into())));
    }

    fn has(&self, bytes: &[Range<u64>]) -> bool {
        if self.is_complete.load(SeqCst) {
            return true;
        }
        let ledger = self.crew.ledger();
        bytes.iter().all(|bytes| ledger.filled().cover(bytes))
    }

    fn touch(&self, bytes: &[Range<u64>]) {
        if let Some(Touched { units, order }) = &mut *held(&self.touched) {
            for bytes in bytes {
                order.extend(units.touched(bytes).filter(|unit| units.put(*unit)));
            }
        }
    }

    /// Put into the ledger what is new in the journal. Returns whether anything is.
    fn hear_others(&self) -> bool {
        let mut heard = held(&self.heard);
        // What cannot be read is fetched again.
        let Ok(entries) = self.filled.units_from(*heard) else { return false };
        *heard += entries.len();
        let mut ledger = self.crew.ledger();
        // Each is noted, so not by `any`, which stops at the first.
        entries.into_iter().filter(|unit| ledger.note_filled(*unit)).count() > 0
    }

    fn complete(&self) {
        if !self.crew.is_complete() {
            return;
        }
        self.is_complete.store(true, SeqCst);
        self.crew.wake_all();
        // What could not be switched over before.
        self.switch(&(0..u64::MAX));
        if !self.noted.swap(true, SeqCst) {
            // What is not noted is filled again the next time; nothing waits for that now.
            let synced = self.file.sync_data();
            let _ = synced.and_then(|()| note_complete(&self.directory, self.size_bytes));
        }
    }
}

impl Crewed for Own {
    fn crew(&self) -> &Crew {
        &self.crew
    }

    fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    fn is_waited_for(&self, bytes: &Range<u64>) -> bool {
        let touches = |one: &Range<u64>| one.start < bytes.end && bytes.start < one.end;
        held(&self.waiting).iter().any(|waiting| waiting.bytes.iter().any(touches))
    }

    fn tell(&self, bytes: Range<u64>, is_filled: bool) {
        if is_filled {
            let units = self.crew.ledger().filled().within(&bytes);
            // Others fetch what is not noted.
            let _ = self.filled.add(units);
            self.switch(&bytes);
        }
        let settled = {
            let mut waiting = held(&self.waiting);
            let is_failed = |one: &Range<u64>| !is_filled && one.start < bytes.end && bytes.start < one.end;
            let is_settled = |one: &Waiting| self.has(&one.bytes) || one.bytes.iter().any(is_failed);
            waiting.extract_if(.., |one| is_settled(one)).collect::<Vec<_>>()
        };
        for Waiting { bytes, then } in settled {
            // What failed for one piece of a read may be there by now all the same.
            then(if self.has(&bytes) { Ok(()) } else { Err(io::Error::other("it could not be fetched")) });
        }
        self.complete();
    }
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
