//! The threads that fill a data file, in the order of its ledger: some for what a reader waits for, others beside them,
//! by a lower priority, for what nothing waits for yet.
//!
//! Unaware of: how readers are held back, and how they learn that bytes have arrived.

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use larder_sys::Class;

use super::ledger::{Ledger, Work};
use super::outage::Outage;
use super::units::Units;
use super::{Options, UNIT_BYTES};
use crate::Fill;

/// How often is looked whether to stop.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(200);
/// What nobody asked for yet is fetched once it is mounted, or after so long where nobody mounts it.
const MOUNTED_MAX: Duration = Duration::from_secs(1);
/// And so long after that: whoever mounts is not done yet, and somebody waits for that.
const MOUNTED_FIRST: Duration = Duration::from_millis(20);
/// A worker's own; what fills brings its own memory.
pub(super) const STACK_BYTES: usize = 1 << 20;

/// What has a crew: the file that is filled, and who learns of it.
pub(super) trait Crewed: Send + Sync + 'static {
    fn crew(&self) -> &Crew;
    /// The file, as it is written.
    fn file(&self) -> BorrowedFd<'_>;
    /// These bytes were filled, as the ledger has it by now, or could not be.
    fn tell(&self, bytes: Range<u64>, is_filled: bool);
    /// Whether a reader waits for any of these bytes.
    fn is_waited_for(&self, bytes: &Range<u64>) -> bool;
}

/// See above.
pub(super) struct Crew {
    fill: Arc<dyn Fill>,
    outage: Outage,
    ledger: Mutex<Ledger>,
    /// One more piece is waited for.
    asked: Condvar,
    /// There may be more of what nobody waits for.
    more: Condvar,
    was_mounted: AtomicBool,
    stopped: AtomicBool,
}

impl Crew {
    /// Of a file in which these units are there already.
    pub(super) fn new(fill: Arc<dyn Fill>, filled: Units, order: &[Range<u64>]) -> Crew {
        let its = Arc::clone(&fill);
        let pieces = Box::new(move |offset| its.piece(offset));
        Crew {
            fill,
            outage: Outage::default(),
            ledger: Mutex::new(Ledger::new(filled, pieces, order)),
            asked: Condvar::new(),
            more: Condvar::new(),
            was_mounted: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
        }
    }

    /// Start the threads.
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

    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_complete(&self) -> bool {
        self.ledger().is_complete()
    }

    pub(super) fn filled_bytes(&self, size_bytes: u64) -> u64 {
        let ledger = self.ledger();
        let units = ledger.filled();
        (units.count() - units.left()).saturating_mul(UNIT_BYTES).min(size_bytes)
    }

    /// A reader waits for these bytes. Returns which of them are there.
    pub(super) fn want(&self, bytes: &Range<u64>) -> Vec<Range<u64>> {
        let (more, there) = {
            let mut ledger = self.ledger();
            let (more, filled) = (ledger.want(bytes), ledger.filled());
            (more, filled.runs(filled.touched(bytes)).collect())
        };
        // No more of them than there is work for: each that wakes takes time from whoever waits.
        (0..more).for_each(|_| self.asked.notify_one());
        there
    }

    /// From here on what nothing waits for is filled, too.
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

    fn next(&self, of: fn(&mut Ledger) -> Option<Work>, woken: &Condvar) -> Option<Work> {
        let mut ledger = self.ledger();
        loop {
            if self.is_stopped() || ledger.is_complete() {
                return None;
            }
            if let Some(work) = of(&mut ledger) {
                return Some(work);
            }
            ledger = woken.wait_timeout(ledger, LOOK_EVERY).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Fill what nobody waits for yet: after those who use what is there, and who are about to mount it.
fn work_ahead(of: &impl Crewed) {
    let crew = of.crew();
    larder_sys::lower_thread(Class::Utility);
    let waits = |_: &mut Ledger| !crew.was_mounted.load(Relaxed) && !crew.is_stopped();
    drop(crew.more.wait_timeout_while(crew.ledger(), MOUNTED_MAX, waits));
    std::thread::sleep(MOUNTED_FIRST);
    while let Some(work) = crew.next(Ledger::unasked, &crew.more) {
        let bytes = crew.ledger().filled().bytes(&work.units);
        let filled = crew.outage.try_once(&*crew.fill, &bytes, of.file());
        crew.ledger().done(&work, filled.is_ok());
        let is_away = filled.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::HostUnreachable);
        if is_away && of.is_waited_for(&bytes) {
            // A reader came meanwhile: those who fill what is waited for try longer.
            crew.want(&bytes);
        } else {
            of.tell(bytes, filled.is_ok());
        }
    }
}

/// Fill what is waited for, until told to stop or all is there.
fn work(of: &impl Crewed) {
    let crew = of.crew();
    while let Some(work) = crew.next(Ledger::wanted, &crew.asked) {
        let bytes = crew.ledger().filled().bytes(&work.units);
        let filled = crew.outage.fill(&*crew.fill, &bytes, of.file(), || crew.is_stopped());
        // First noted, then said: whoever hears it later finds it in the note.
        crew.ledger().done(&work, filled.is_ok());
        of.tell(bytes, filled.is_ok());
    }
}
