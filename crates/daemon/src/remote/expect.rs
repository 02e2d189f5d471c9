//! How long fetches take, and whether it is worth asking at all: recent ones by what is fetched, those that took too
//! long, those that failed. Remembered for all wrappers of a `larderd`.
//!
//! Unaware of: what is fetched, who waits; the time is an argument.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use larder_ipc::Expect;

/// So many of each class are remembered: older ones say little of now.
const RECENT_MAX: usize = 64;
/// After so many in a row that took longer than they do nobody waits any more; who asks runs the tool beside it.
const OVERDUE_MAX: u32 = 2;
/// After so many, or so many failures, nobody asks for a while.
const STRIKES_MAX: u32 = 12;
const FAILURES_MAX: u32 = 3;
/// How long that is at first, and at most; doubled each time.
const PAUSE: Duration = Duration::from_secs(2);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// What is fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// The records of a fingerprint.
    Records,
    /// What a record needs, so many bytes.
    Blobs(u64),
}

const CLASSES: usize = 6;

impl Class {
    fn index(self) -> usize {
        match self {
            Class::Records => 0,
            Class::Blobs(0..=0xffff) => 1,
            Class::Blobs(0x1_0000..=0xf_ffff) => 2,
            Class::Blobs(0x10_0000..=0xff_ffff) => 3,
            Class::Blobs(0x100_0000..=0xfff_ffff) => 4,
            Class::Blobs(_) => 5,
        }
    }
}

/// What is known of all remotes together.
#[derive(Default)]
pub(crate) struct Expectations(Mutex<Known>);

#[derive(Default)]
struct Known {
    recent: [VecDeque<u64>; CLASSES],
    /// In a row, that took longer than they do.
    overdue: u32,
    /// In a row, that failed.
    failures: u32,
    closed_until: Option<Instant>,
    pause: Duration,
}

impl Expectations {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long it takes.
    pub(crate) fn expect(&self, class: Class) -> Expect {
        let known = self.known();
        let mut sorted: Vec<u64> = known.recent[class.index()].iter().copied().collect();
        sorted.sort_unstable();
        let at = |tenths: usize| sorted.get((sorted.len() * tenths / 10).min(sorted.len().saturating_sub(1)));
        Expect {
            median_us: at(5).copied().unwrap_or(0),
            p90_us: at(9).copied().unwrap_or(0),
            samples: sorted.len() as u64,
            overdue: known.overdue >= OVERDUE_MAX,
        }
    }

    /// Whether to ask now.
    pub(crate) fn may_ask(&self, now: Instant) -> bool {
        self.known().closed_until.is_none_or(|until| until <= now)
    }

    /// One came, and took so long.
    pub(crate) fn took(&self, class: Class, took: Duration) {
        let mut known = self.known();
        let recent = &mut known.recent[class.index()];
        recent.push_back(took.as_micros() as u64);
        if recent.len() > RECENT_MAX {
            recent.pop_front();
        }
        (known.overdue, known.failures, known.closed_until, known.pause) = (0, 0, None, Duration::ZERO);
    }

    /// One takes longer than they do: somebody has started the tool.
    pub(crate) fn is_overdue(&self, now: Instant) {
        let mut known = self.known();
        known.overdue += 1;
        if known.overdue >= STRIKES_MAX {
            // The next one that is asked then is enough to close it again.
            known.overdue = STRIKES_MAX - 1;
            known.close(now);
        }
    }

    /// One failed, and by the fault of who was asked.
    pub(crate) fn failed(&self, now: Instant) {
        let mut known = self.known();
        known.failures += 1;
        if known.failures >= FAILURES_MAX {
            known.failures = FAILURES_MAX - 1;
            known.close(now);
        }
    }
}

impl Known {
    fn close(&mut self, now: Instant) {
        // Those that were under way when it closed do not make it longer.
        if self.closed_until.is_none_or(|until| until <= now) {
            self.pause = (self.pause * 2).clamp(PAUSE, PAUSE_MAX);
            self.closed_until = Some(now + self.pause);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_expected_is_what_was() {
        let all = Expectations::default();
        assert_eq!(all.expect(Class::Records), Expect::default());
        for n in 1..=200 {
            all.took(Class::Records, Duration::from_micros(n));
        }
        let expect = all.expect(Class::Records);
        assert_eq!((expect.median_us, expect.p90_us, expect.samples), (169, 194, 64), "the last ones");
        assert_eq!(all.expect(Class::Blobs(0)).samples, 0);
        all.took(Class::Blobs(70_000), Duration::from_millis(3));
        assert_eq!(all.expect(Class::Blobs(1 << 19)).median_us, 3000);
        assert_eq!(all.expect(Class::Blobs(60_000)).samples, 0);
        assert_eq!(
            [0, 1 << 16, 1 << 20, 1 << 24, 1 << 28, u64::MAX].map(|size| Class::Blobs(size).index()),
            [1, 2, 3, 4, 5, 5]
        );
    }

    #[test]
    fn who_stalls_is_not_waited_for_and_then_left_alone() {
        let (all, now) = (Expectations::default(), Instant::now());
        all.is_overdue(now);
        assert!(!all.expect(Class::Records).overdue);
        all.is_overdue(now);
        assert!(all.expect(Class::Records).overdue && all.may_ask(now));
        (2..STRIKES_MAX).for_each(|_| all.is_overdue(now));
        assert!(!all.may_ask(now) && all.may_ask(now + PAUSE));
        // Asked once more, in vain.
        all.is_overdue(now + PAUSE);
        assert!(!all.may_ask(now + PAUSE * 2) && all.may_ask(now + PAUSE * 3));
        all.took(Class::Records, Duration::from_secs(1));
        assert!(!all.expect(Class::Records).overdue && all.may_ask(now));
    }

    #[test]
    fn who_is_dead_is_left_alone() {
        let (all, now) = (Expectations::default(), Instant::now());
        (0..FAILURES_MAX).for_each(|_| {
            assert!(all.may_ask(now));
            all.failed(now);
        });
        assert!(!all.may_ask(now) && all.may_ask(now + PAUSE));
        let mut at = now;
        for _ in 0..20 {
            at += PAUSE_MAX;
            assert!(all.may_ask(at), "not longer than that");
            all.failed(at);
        }
        assert!(!all.may_ask(at + PAUSE_MAX / 2));
    }
}
