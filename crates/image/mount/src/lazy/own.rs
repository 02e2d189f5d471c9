//! A data file that a process fills for its own readers, which ask this process through FUSE.
//!
//! For the backend `lazy-fuse`, several processes may fill one file, each for its own readers. They
//! write the same bytes to the same places. Each process appends to a common journal after it has
//! written. So a process finds in the journal what others have filled, and every unit in the
//! journal is in the file. Two of them may fetch the same piece at once, which costs only time.
//!
//! Unaware of: files and directories of the image, and the protocol of the readers.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use parking_lot::Mutex;

use super::crew::{Crew, Crewed};
use super::directory::{FILLED, forget_complete, forget_filled, lock, make, note_complete, was_completed};
use super::journal::{Journal, Trace};
use super::options::Options;
use super::switches::Switches;
use super::units::{UNIT_BYTES, Units};
use crate::{Fill, MountError};

const DATA: &str = "data";
/// The limit for reads that wait at once. Each is a waiting thread of a job, or one of the few
/// read-ahead requests of the kernel.
const WAITING_MAX: usize = 1 << 16;

/// Called once bytes are local, or with an error if they cannot be fetched.
pub(crate) type Then = Box<dyn FnOnce(io::Result<()>) + Send>;

struct Waiting {
    bytes: Vec<Range<u64>>,
    then: Then,
}

/// The data file, its journal, and the reads that wait. `stop` or `leave` end the filling.
pub(crate) struct Own {
    directory: PathBuf,
    size_bytes: u64,
    file: File,
    filled: Journal,
    /// The number of journal entries that are in the fill queue.
    heard: Mutex<usize>,
    crew: Crew,
    waiting: Mutex<Vec<Waiting>>,
    /// The trace of reads, or `None` if reads are not traced.
    touched: Mutex<Option<Touched>>,
    /// For the backend `lazy`, after it was mounted: the file that each chunk is read from.
    switches: Mutex<Option<Switches>>,
    /// All bytes are local. Then neither fill queue nor journal is consulted.
    is_complete: AtomicBool,
    /// The file was synced and noted as complete.
    noted: AtomicBool,
}

struct Touched {
    units: Units,
    order: Vec<u64>,
}

impl Own {
    /// Fills the file `data` in `directory`; both are created if they do not exist. Units that
    /// other processes filled during this boot are not fetched again. Fails if the files cannot be
    /// written.
    pub(crate) fn begin(
        directory: &Path,
        size_bytes: u64,
        fill: Arc<dyn Fill>,
        options: &Options,
    ) -> Result<Arc<Own>, MountError> {
        fs::create_dir_all(directory).map_err(MountError::path(directory, "cannot be made"))?;
        // The lock makes sure that only one process creates the file and the journal, so that they
        // belong together.
        let begun = lock(directory)?;
        let own = Own::open(directory, &directory.join(DATA), size_bytes, fill, options)?;
        drop(begun);
        own.start(options)?;
        Ok(own)
    }

    /// Opens the file `data`, whose state is in `directory`. The caller has locked the directory.
    /// `start` starts to fill the file.
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
            // The file was removed, so the journal is invalid.
            forget_filled(directory)?;
        }
        if !was_complete {
            forget_complete(directory)?;
        }
        make(data, size_bytes).map_err(MountError::path(data, "cannot be made"))?;
        let file = File::options().read(true).write(true).open(data);
        let file = file.map_err(MountError::path(data, "cannot be opened"))?;
        let opened = Journal::open(&directory.join(FILLED), size_bytes, UNIT_BYTES);
        let (filled, entries) = opened.map_err(at("the journal of filled units cannot be opened"))?;
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

    /// Starts to fill the file, unless it is complete.
    pub(super) fn start(self: &Arc<Own>, options: &Options) -> Result<(), MountError> {
        if !self.is_complete() {
            Crew::start(self, options)
                .map_err(MountError::lazy("the image cannot be filled, because no thread can be started"))?;
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

    /// Sets the switches, and switches chunks that are local to the data file. Later chunks are
    /// switched as their bytes arrive. If reads are traced, all of this waits for the end of the
    /// trace, because the kernel does not ask for chunks that were switched.
    pub(super) fn set_switches(&self, switches: Switches) {
        *self.switches.lock() = Some(switches);
        self.switch(&(0..u64::MAX));
    }

    /// Returns true if the kernel reads all bytes without asking from now on.
    pub(super) fn is_settled(&self) -> bool {
        self.is_complete()
            && self.touched.lock().is_none()
            && self.switches.lock().as_ref().is_none_or(Switches::are_over)
    }

    fn switch(&self, bytes: &Range<u64>) {
        let switches = self.switches.lock();
        let Some(switches) = switches.as_ref().filter(|_| self.touched.lock().is_none()) else { return };
        // After an error, the kernel continues to ask for these chunks.
        let _ = switches.switch(bytes, |bytes| self.has(std::slice::from_ref(bytes)));
    }

    /// Called when the image is mounted: from now on, bytes that no reader waits for are fetched,
    /// too.
    pub(crate) fn note_mounted(&self) {
        self.crew.note_mounted();
    }

    /// Calls `then` once all these bytes are local. If they are now, it is called at once.
    /// Otherwise they are fetched, and another thread calls it, with an error if a fetch failed.
    /// The next read then fetches again.
    pub(crate) fn when_there(&self, bytes: Vec<Range<u64>>, then: Then) {
        self.touch(&bytes);
        if self.has(&bytes) || (self.hear_others() && self.has(&bytes)) {
            return then(Ok(()));
        }
        {
            let mut waiting = self.waiting.lock();
            // The fill queue is checked again under the lock. A thread that fills bytes updates the
            // fill queue first and looks for waiting reads afterwards, so none is missed.
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

    /// Reads bytes that are local.
    pub(crate) fn read(&self, to: &mut [u8], at: u64) -> io::Result<()> {
        self.file.read_exact_at(to, at)
    }

    /// Ends the trace and returns it.
    pub(crate) fn end_trace(&self) -> Trace {
        let touched = self.touched.lock().take();
        self.switch(&(0..u64::MAX));
        touched.map_or_else(Trace::default, |touched| Trace::of(&touched.order, &touched.units))
    }

    /// Returns the trace so far.
    pub(super) fn trace(&self) -> Trace {
        let touched = self.touched.lock();
        touched.as_ref().map_or_else(Trace::default, |touched| Trace::of(&touched.order, &touched.units))
    }

    /// Stops filling. Waiting reads stay unanswered, because another process will answer them.
    pub(super) fn leave(&self) {
        self.crew.stop();
        self.waiting.lock().clear();
    }

    /// Stops filling. Waiting reads fail.
    pub(crate) fn stop(&self) {
        self.crew.stop();
        let waiting = std::mem::take(&mut *self.waiting.lock());
        waiting.into_iter().for_each(|waiting| (waiting.then)(Err(io::ErrorKind::NotConnected.into())));
    }

    fn has(&self, bytes: &[Range<u64>]) -> bool {
        if self.is_complete.load(SeqCst) {
            return true;
        }
        let fill_queue = self.crew.fill_queue.lock();
        bytes.iter().all(|bytes| fill_queue.filled().cover(bytes))
    }

    fn touch(&self, bytes: &[Range<u64>]) {
        if let Some(Touched { units, order }) = &mut *self.touched.lock() {
            for bytes in bytes {
                order.extend(units.touched(bytes).filter(|unit| units.put(*unit)));
            }
        }
    }

    /// Reads new entries of the journal into the fill queue. Returns true if there were any.
    fn hear_others(&self) -> bool {
        let mut heard = self.heard.lock();
        // If the journal cannot be read, the bytes are fetched again.
        let Ok(entries) = self.filled.units_from(*heard) else { return false };
        *heard += entries.len();
        let mut fill_queue = self.crew.fill_queue.lock();
        // All entries must be recorded. `any` would stop at the first new one.
        entries.into_iter().filter(|unit| fill_queue.note_filled(*unit)).count() > 0
    }

    fn complete(&self) {
        if !self.crew.is_complete() {
            return;
        }
        self.is_complete.store(true, SeqCst);
        self.crew.wake_all();
        // Chunks that could not be switched before are tried again.
        self.switch(&(0..u64::MAX));
        if !self.noted.swap(true, SeqCst) {
            // If this fails, the file is filled again the next time. No reader depends on it now.
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
        self.waiting.lock().iter().any(|waiting| waiting.bytes.iter().any(touches))
    }

    fn tell(&self, bytes: Range<u64>, is_filled: bool) {
        if is_filled {
            let units = self.crew.fill_queue.lock().filled().within(&bytes);
            // If this fails, other processes fetch the bytes themselves.
            let _ = self.filled.add(units);
            self.switch(&bytes);
        }
        let settled = {
            let mut waiting = self.waiting.lock();
            let is_failed = |one: &Range<u64>| !is_filled && one.start < bytes.end && bytes.start < one.end;
            let is_settled = |one: &Waiting| self.has(&one.bytes) || one.bytes.iter().any(is_failed);
            waiting.extract_if(.., |one| is_settled(one)).collect::<Vec<_>>()
        };
        for Waiting { bytes, then } in settled {
            // If one piece of a read failed, another process may have filled it meanwhile.
            then(if self.has(&bytes) { Ok(()) } else { Err(io::Error::other("it could not be fetched")) });
        }
        self.complete();
    }
}
