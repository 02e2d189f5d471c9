//! The threads that fetch the bytes of a data file, in the order that its fill queue decides. Some
//! fetch what readers wait for. Others have a lower priority, and fetch the rest.
//!
//! Unaware of: how readers are made to wait, and how they are told that bytes have arrived.

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use larder_sys::Class;
use parking_lot::{Condvar, Mutex};

use super::fill_queue::{FillQueue, Work};
use super::options::Options;
use super::outage::Outage;
use super::units::{UNIT_BYTES, Units};
use crate::Fill;

/// How often a thread checks whether it should stop.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Background fetches begin when the image is mounted, or after this time if it is not mounted.
const MOUNTED_MAX: Duration = Duration::from_secs(1);
/// The background threads wait this much longer, because the process that mounts is still busy, and
/// a job waits for it.
const MOUNTED_FIRST: Duration = Duration::from_millis(20);
/// The stack of a thread, in bytes. `Fill` allocates its own memory.
pub(super) const STACK_BYTES: usize = 1 << 20;

/// The file that a crew fills, and its readers.
pub(super) trait Crewed: Send + Sync + 'static {
    fn crew(&self) -> &Crew;
    /// Returns the data file, open for writing.
    fn file(&self) -> BorrowedFd<'_>;
    /// Called when these bytes were filled, after the fill queue was updated, or when that failed.
    fn tell(&self, bytes: Range<u64>, is_filled: bool);
    /// Returns true if a reader waits for any of these bytes.
    fn is_waited_for(&self, bytes: &Range<u64>) -> bool;
}

/// The state that the threads share.
pub(super) struct Crew {
    fill: Arc<dyn Fill>,
    outage: Outage,
    pub(super) fill_queue: Mutex<FillQueue>,
    /// Signalled when readers wait for another piece.
    asked: Condvar,
    /// Signalled when there may be more work for the background threads.
    more: Condvar,
    was_mounted: AtomicBool,
    stopped: AtomicBool,
}

impl Crew {
    /// A crew for a file in which the units `filled` are local.
    pub(super) fn new(fill: Arc<dyn Fill>, filled: Units, order: &[Range<u64>]) -> Crew {
        let its = Arc::clone(&fill);
        let pieces = Box::new(move |offset| its.piece(offset));
        Crew {
            fill,
            outage: Outage::default(),
            fill_queue: Mutex::new(FillQueue::new(filled, pieces, order)),
            asked: Condvar::new(),
            more: Condvar::new(),
            was_mounted: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
        }
    }

    /// Starts the threads.
    pub(super) fn start(of: &Arc<impl Crewed>, options: &Options) -> io::Result<()> {
        for _ in 0..options.workers.max(1) {
            let its = Arc::clone(of);
            let work = move || work(&*its);
            std::thread::Builder::new().stack_size(STACK_BYTES).spawn(work)?;
        }
        for _ in 0..options.background {
            let its = Arc::clone(of);
            std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || work_ahead(&*its))?;
        }
        Ok(())
    }

    pub(super) fn is_complete(&self) -> bool {
        self.fill_queue.lock().is_complete()
    }

    pub(super) fn filled_bytes(&self, size_bytes: u64) -> u64 {
        let fill_queue = self.fill_queue.lock();
        let units = fill_queue.filled();
        (units.count() - units.left()).saturating_mul(UNIT_BYTES).min(size_bytes)
    }

    /// Puts bytes that a reader waits for into the queue. Returns those of them that are local.
    pub(super) fn want(&self, bytes: &Range<u64>) -> Vec<Range<u64>> {
        let (more, there) = {
            let mut fill_queue = self.fill_queue.lock();
            let (more, filled) = (fill_queue.want(bytes), fill_queue.filled());
            (more, filled.runs(filled.touched(bytes)).collect())
        };
        // Only as many threads are woken as there are new pieces, because each thread that wakes
        // takes CPU time from the readers.
        for _ in 0..more {
            self.asked.notify_one();
        }
        there
    }

    /// Called when the image is mounted: from now on the background threads may fetch.
    pub(super) fn note_mounted(&self) {
        self.was_mounted.store(true, Relaxed);
        self.more.notify_all();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Relaxed)
    }

    pub(super) fn stop(&self) {
        self.stopped.store(true, Relaxed);
        self.wake_all();
    }

    pub(super) fn wake_all(&self) {
        self.asked.notify_all();
        self.more.notify_all();
    }

    fn next(&self, of: fn(&mut FillQueue) -> Option<Work>, woken: &Condvar) -> Option<Work> {
        let mut fill_queue = self.fill_queue.lock();
        loop {
            if self.is_stopped() || fill_queue.is_complete() {
                return None;
            }
            if let Some(work) = of(&mut fill_queue) {
                return Some(work);
            }
            woken.wait_for(&mut fill_queue, LOOK_EVERY);
        }
    }
}

/// The background thread: fetches what no reader waits for. It starts after the image is mounted,
/// at a lower priority than readers.
fn work_ahead(of: &impl Crewed) {
    let crew = of.crew();
    larder_sys::lower_thread(Class::Utility);
    let waits = |_: &mut FillQueue| !crew.was_mounted.load(Relaxed) && !crew.is_stopped();
    crew.more.wait_while_for(&mut crew.fill_queue.lock(), waits, MOUNTED_MAX);
    std::thread::sleep(MOUNTED_FIRST);
    while let Some(work) = crew.next(FillQueue::unasked, &crew.more) {
        let bytes = crew.fill_queue.lock().filled().bytes(&work.units);
        let filled = crew.outage.try_once(&*crew.fill, &bytes, of.file());
        crew.fill_queue.lock().done(&work, filled.is_ok());
        let is_away = filled.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::HostUnreachable);
        if is_away && of.is_waited_for(&bytes) {
            // A reader has asked for these bytes meanwhile. The other threads retry for longer.
            crew.want(&bytes);
        } else {
            of.tell(bytes, filled.is_ok());
        }
    }
}

/// The thread for readers: fetches what they wait for, until it is told to stop or the file is
/// complete.
fn work(of: &impl Crewed) {
    let crew = of.crew();
    while let Some(work) = crew.next(FillQueue::wanted, &crew.asked) {
        let bytes = crew.fill_queue.lock().filled().bytes(&work.units);
        let filled = crew.outage.fill(&*crew.fill, &bytes, of.file(), || crew.is_stopped());
        // The fill queue is updated before readers are told, so a reader that looks later finds the
        // bytes there.
        crew.fill_queue.lock().done(&work, filled.is_ok());
        of.tell(bytes, filled.is_ok());
    }
}
