//! The expected duration of a download, and whether asking the remotes is worthwhile at all. All
//! wrappers of a `larderd` share it. It is computed from recent downloads by size class and remote,
//! from overdue downloads, and from failures.
//!
//! Records are requested from all remotes at once, so it is not known in advance which one will
//! answer: the expectation is over all of them. The blobs of a record usually come from the remote
//! where the record was found. For them, the times of a near remote say nothing about a far one.
//!
//! Unaware of: what is downloaded, and which wrapper waits. The time is an argument.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use larder_ipc::Expect;
use parking_lot::Mutex;

/// The number of recent downloads that are remembered for each class.
const RECENT_MAX: usize = 64;
/// The number of downloads from one remote that is needed before its own times are used. A wrapper
/// wants as many before it trusts an expectation (`wrapper/src/fetch_timeout.rs`).
const OWN_MIN: usize = 5;
/// After this many overdue downloads in a row, wrappers do not wait any more: they run the tool in
/// parallel.
const OVERDUE_MAX: u32 = 2;
/// After this many overdue downloads, or this many failures, in a row, remotes are not asked for a
/// while.
const STRIKES_MAX: u32 = 12;
const FAILURES_MAX: u32 = 3;
/// How long remotes are not asked, at first and at most; it doubles each time.
const PAUSE: Duration = Duration::from_secs(2);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// The class of a download, for which durations are remembered separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// The manifest of a fingerprint.
    Records,
    /// The blobs of a record, with their total size in bytes.
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

/// The number of a remote, the nearest first. `None` if it is not known, or if several remotes were
/// involved.
pub(crate) type Source = Option<usize>;

/// What is known about the remotes.
#[derive(Default)]
pub(crate) struct LatencyModel(Mutex<Latencies>);

/// The durations of recent downloads for each class, in microseconds.
type Recent = [VecDeque<u64>; CLASSES];

#[derive(Default)]
struct Latencies {
    /// The durations of all remotes together.
    recent: Recent,
    /// The durations of each remote.
    of: Vec<Recent>,
    /// The number of overdue downloads in a row.
    overdue: u32,
    /// The number of failures in a row.
    failures: u32,
    closed_until: Option<Instant>,
    pause: Duration,
}

impl LatencyModel {
    /// Returns the expected duration. If there are too few downloads from this remote, the
    /// expectation is over all remotes.
    pub(crate) fn expect(&self, class: Class, from: Source) -> Expect {
        let known = self.0.lock();
        let own = from.and_then(|number| known.of.get(number)).map(|recent| &recent[class.index()]);
        let recent = own.filter(|recent| recent.len() >= OWN_MIN).unwrap_or(&known.recent[class.index()]);
        let mut sorted: Vec<u64> = recent.iter().copied().collect();
        sorted.sort_unstable();
        let at = |tenths: usize| sorted.get((sorted.len() * tenths / 10).min(sorted.len().saturating_sub(1)));
        Expect {
            median_us: at(5).copied().unwrap_or(0),
            p90_us: at(9).copied().unwrap_or(0),
            samples: sorted.len() as u64,
            overdue: known.overdue >= OVERDUE_MAX,
        }
    }

    /// Returns true if remotes may be asked now.
    pub(crate) fn may_ask(&self, now: Instant) -> bool {
        self.0.lock().closed_until.is_none_or(|until| until <= now)
    }

    /// Notes a successful download and its duration.
    pub(crate) fn took(&self, class: Class, from: Source, took: Duration) {
        let mut known = self.0.lock();
        note(&mut known.recent[class.index()], took);
        if let Some(number) = from {
            if known.of.len() <= number {
                known.of.resize_with(number + 1, Recent::default);
            }
            note(&mut known.of[number][class.index()], took);
        }
        (known.overdue, known.failures, known.closed_until, known.pause) = (0, 0, None, Duration::ZERO);
    }

    /// Notes that a download takes longer than expected, so its wrapper has started the tool.
    pub(crate) fn is_overdue(&self, now: Instant) {
        let mut known = self.0.lock();
        known.overdue += 1;
        if known.overdue >= STRIKES_MAX {
            // After the pause, a single overdue download is enough to pause again.
            known.overdue = STRIKES_MAX - 1;
            known.close(now);
        }
    }

    /// Notes a failure that was the remote's fault.
    pub(crate) fn failed(&self, now: Instant) {
        let mut known = self.0.lock();
        known.failures += 1;
        if known.failures >= FAILURES_MAX {
            known.failures = FAILURES_MAX - 1;
            known.close(now);
        }
    }
}

fn note(recent: &mut VecDeque<u64>, took: Duration) {
    recent.push_back(took.as_micros() as u64);
    if recent.len() > RECENT_MAX {
        recent.pop_front();
    }
}

impl Latencies {
    fn close(&mut self, now: Instant) {
        // Failures of downloads that were already running must not prolong the pause.
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
        let all = LatencyModel::default();
        assert_eq!(all.expect(Class::Records, None), Expect::default());
        for n in 1..=200 {
            all.took(Class::Records, None, Duration::from_micros(n));
        }
        let expect = all.expect(Class::Records, None);
        assert_eq!((expect.median_us, expect.p90_us, expect.samples), (169, 194, 64), "only the last 64 count");
        assert_eq!(all.expect(Class::Blobs(0), None).samples, 0);
        all.took(Class::Blobs(70_000), None, Duration::from_millis(3));
        assert_eq!(all.expect(Class::Blobs(1 << 19), None).median_us, 3000);
        assert_eq!(all.expect(Class::Blobs(60_000), None).samples, 0);
        assert_eq!(
            [0, 1 << 16, 1 << 20, 1 << 24, 1 << 28, u64::MAX].map(|size| Class::Blobs(size).index()),
            [1, 2, 3, 4, 5, 5]
        );
    }

    #[test]
    fn a_near_remote_says_nothing_of_a_far_one() {
        let (all, small, large) = (LatencyModel::default(), Class::Blobs(1), Class::Blobs(1 << 20));
        (0..40).for_each(|_| all.took(small, Some(0), Duration::from_millis(1)));
        let median_ms = |class, from| all.expect(class, from).median_us / 1000;
        assert_eq!(median_ms(small, Some(1)), 1, "no download from this remote yet");
        (1..OWN_MIN).for_each(|_| all.took(small, Some(1), Duration::from_millis(200)));
        assert_eq!(median_ms(small, Some(1)), 1, "too few downloads from this remote");
        all.took(small, Some(1), Duration::from_millis(200));
        assert_eq!([Some(0), Some(1), None].map(|from| median_ms(small, from)), [1, 200, 1]);
        assert_eq!(all.expect(small, Some(1)).samples, OWN_MIN as u64);
        assert_eq!(all.expect(large, Some(1)).samples, 0, "small downloads say nothing about large ones");
    }

    #[test]
    fn who_stalls_is_not_waited_for_and_then_left_alone() {
        let (all, now) = (LatencyModel::default(), Instant::now());
        all.is_overdue(now);
        assert!(!all.expect(Class::Records, None).overdue);
        all.is_overdue(now);
        assert!(all.expect(Class::Records, None).overdue && all.may_ask(now));
        (2..STRIKES_MAX).for_each(|_| all.is_overdue(now));
        assert!(!all.may_ask(now) && all.may_ask(now + PAUSE));
        // One more download after the pause, which is overdue as well.
        all.is_overdue(now + PAUSE);
        assert!(!all.may_ask(now + PAUSE * 2) && all.may_ask(now + PAUSE * 3));
        all.took(Class::Records, None, Duration::from_secs(1));
        assert!(!all.expect(Class::Records, None).overdue && all.may_ask(now));
    }

    #[test]
    fn who_is_dead_is_left_alone() {
        let (all, now) = (LatencyModel::default(), Instant::now());
        (0..FAILURES_MAX).for_each(|_| {
            assert!(all.may_ask(now));
            all.failed(now);
        });
        assert!(!all.may_ask(now) && all.may_ask(now + PAUSE));
        let mut at = now;
        for _ in 0..20 {
            at += PAUSE_MAX;
            assert!(all.may_ask(at), "no pause is longer than PAUSE_MAX");
            all.failed(at);
        }
        assert!(!all.may_ask(at + PAUSE_MAX / 2));
    }
}
