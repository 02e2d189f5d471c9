//! Whether other programs compete for the processors all the time, so that more tools should run.
//! Pure.
//!
//! Normally one tool per processor is all that a machine can do. But beside one program that always
//! wants a processor, a single tool gets half of it, while with `make -j16` that program would get
//! a seventeenth. So as long as there is such a program (called company), more tools run. A
//! service, a download, or an animation at 60 frames per second is none, because it sleeps for a
//! good part of the time.
//!
//! The first in the queue does this:
//! 1. Every 40 ms it counts the threads that want to run, and notes the result in a word that all
//!    wrappers share.
//! 2. If other threads wanted to run in nearly all of 12 counts, the busiest thread that is not a
//!    tool is watched until the next verdict.
//! 3. If that thread ran or waited to run nearly all of that time, it is company.
//!
//! ```text
//! bits  0…39  when it was last counted, in ms since boot
//! bits 40…47  the number of counts since the last verdict
//! bits 48…55  how many of those counts found other threads that wanted to run
//! ```
//!
//! Unaware of: how threads are counted.

/// A program wants a processor all the time if it ran or waited to run for this share of the time,
/// in per cent. A program with a fixed pace sleeps longer.
const WANTED: u64 = 90;
/// The shortest and the longest time of watching, in ms.
const WATCHED_MS: std::ops::RangeInclusive<u64> = 250..=5000;

/// Returns true if a program that ran or waited to run for `wanted_ns` wants a processor all the
/// time.
pub(super) fn never_rests(wanted_ns: u64, passed_ms: u64) -> bool {
    WATCHED_MS.contains(&passed_ms) && wanted_ns / 10_000 >= passed_ms * WANTED
}

/// Returns how many tools run beside company: sixteen times as many, like `make -j16` on one
/// processor, but at most 64 more.
pub(super) fn more(jobs: u32) -> u32 {
    const TIMES: u32 = 16;
    const MORE_MAX: u32 = 64;
    jobs.saturating_mul(TIMES).min(jobs.saturating_add(MORE_MAX))
}

/// How long company counts as present after it was seen, in ms.
pub(super) const HOLDS_MS: u64 = 5000;

/// The time between two counts, in ms.
const COUNT_EVERY_MS: u64 = 40;
/// After a pause of this length, older counts are dropped, in ms.
const PAUSE_MS: u64 = 1000;
/// The number of counts for a verdict, which takes half a second.
const COUNTS: u64 = 12;
/// How many counts must find other threads: all but one.
const ALWAYS: u64 = COUNTS - 1;

const MS_BITS: u64 = (1 << 40) - 1;

/// Returns true if it is time to count again.
pub(super) fn is_due(word: u64, now_ms: u64) -> bool {
    now_ms.wrapping_sub(word & MS_BITS) >= COUNT_EVERY_MS
}

/// Adds a count. `somebody` is true if other threads wanted to run. Returns the new word, and after
/// enough counts a verdict.
pub(super) fn counted(word: u64, now_ms: u64, somebody: bool) -> (u64, Option<bool>) {
    let is_stale = now_ms.wrapping_sub(word & MS_BITS) > PAUSE_MS;
    let (counts, others) = if is_stale { (0, 0) } else { (word >> 40 & 0xff, word >> 48 & 0xff) };
    let (counts, others) = (counts + 1, others + u64::from(somebody));
    let verdict = (counts >= COUNTS).then_some(others >= ALWAYS);
    let (counts, others) = if verdict.is_some() { (0, 0) } else { (counts, others) };
    (now_ms & MS_BITS | counts << 40 | others << 48, verdict)
}

/// Returns true if company was seen lately.
pub(super) fn is_there(until_ms: u64, now_ms: u64) -> bool {
    // A later time is from before the last boot.
    now_ms < until_ms && until_ms <= now_ms + HOLDS_MS
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the verdicts after these counts, which are `COUNT_EVERY_MS` apart.
    fn verdicts(moments: impl Iterator<Item = bool>) -> Vec<bool> {
        let (mut word, mut found, mut now) = (0, Vec::new(), 10_000);
        for somebody in moments {
            now += COUNT_EVERY_MS;
            assert!(is_due(word, now));
            let (next, verdict) = counted(word, now, somebody);
            assert!(!is_due(next, now + 1));
            word = next;
            found.extend(verdict);
        }
        found
    }

    #[test]
    fn company_is_who_wants_to_run_all_the_time() {
        assert_eq!(verdicts((0..24).map(|_| true)), [true, true]);
        assert_eq!(verdicts((0..24).map(|at| at != 5)), [true, true], "all but one count");
        assert_eq!(verdicts((0..24).map(|at| at % 3 != 0)), [false, false], "two thirds of the time");
        assert_eq!(verdicts((0..24).map(|at| at >= 12)), [false, true]);
        assert_eq!(verdicts((0..11).map(|_| true)), []);
    }

    #[test]
    fn how_many_more() {
        assert_eq!([1, 2, 4, 8, 64, u32::MAX].map(more), [16, 32, 64, 72, 128, u32::MAX]);
    }

    #[test]
    fn company_runs_or_waits_to_run() {
        assert!(never_rests(500_000_000, 500) && never_rests(451_000_000, 500));
        assert!(!never_rests(230_000_000, 500), "it has nearly half of a processor, and wants no more");
        assert!(!never_rests(0, 0) && !never_rests(100_000_000, 100) && !never_rests(9_000_000_000, 9000));
    }

    #[test]
    fn what_was_counted_before_a_pause_does_not_count() {
        let mut word = 0;
        for at in 0..COUNTS - 1 {
            word = counted(word, 10_000 + at * COUNT_EVERY_MS, true).0;
        }
        let (word, verdict) = counted(word, 20_000, true);
        assert_eq!((verdict, word >> 40 & 0xff), (None, 1));
    }

    #[test]
    fn any_word_is_a_state() {
        for word in [u64::MAX, MS_BITS, 0xff << 40, 0xff << 48] {
            is_due(word, 5);
            counted(word, 5, true);
            counted(word, u64::MAX, true);
        }
        assert!(!is_there(u64::MAX, 5) && !is_there(0, 5) && is_there(6, 5));
    }
}
