//! Whether the tools have company: programs that are no tools, and want processors all the time. Pure.
//!
//! As many tools as processors is as much as a machine does when it is theirs. Beside one program that always wants a
//! processor, one tool has half of it, where `make -j16` would leave that program a seventeenth. So while there is such
//! company more tools run, until it is gone. A service, a download, or a picture drawn sixty times a second is none:
//! for a good part of the time nobody but the tools wants to run.
//!
//! Who waits first in the queue counts now and then who wants to run, and notes it in a word that all share. Where it was
//! somebody all the time, the program that seems to be it is watched until the next verdict: it is company if it ran
//! or waited to run nearly all of that time.
//!
//! ```text
//! bits 0…39 when it was last counted, in ms since the system was started · 40…47 how often since the last verdict ·
//! 48…55 how often of those somebody else wanted to run
//! ```

/// Of the time, in hundredths, that a program ran or waited to run which wants a processor all the time. What is paced
/// sleeps for more than the rest.
const WANTED: u64 = 90;
/// How long that is watched, at least and at most, in ms.
const WATCHED_MS: std::ops::RangeInclusive<u64> = 250..=5000;

/// Whether a program that ran or waited to run for so long wants a processor all the time.
pub(super) fn never_rests(wanted_ns: u64, passed_ms: u64) -> bool {
    WATCHED_MS.contains(&passed_ms) && wanted_ns / 10_000 >= passed_ms * WANTED
}

/// How many tools run then, where there are tokens for so many: sixteen times as many, as `make -j16` would on one
/// processor, and on a large machine not that many more.
pub(super) fn more(jobs: u32) -> u32 {
    const TIMES: u32 = 16;
    const MORE_MAX: u32 = 64;
    jobs.saturating_mul(TIMES).min(jobs.saturating_add(MORE_MAX))
}

/// For so long after that was seen.
pub(super) const HOLDS_MS: u64 = 5000;

const COUNT_EVERY_MS: u64 = 40;
/// What was counted before a pause says nothing of now.
const PAUSE_MS: u64 = 1000;
/// A verdict, after half a second.
const COUNTS: u64 = 12;
/// It was somebody all the time, but for one moment.
const ALWAYS: u64 = COUNTS - 1;

const MS_BITS: u64 = (1 << 40) - 1;

/// Whether it is time to count again.
pub(super) fn is_due(word: u64, now_ms: u64) -> bool {
    now_ms.wrapping_sub(word & MS_BITS) >= COUNT_EVERY_MS
}

/// It was counted, and somebody else wanted to run or not: the word from then on, and a verdict where there is one.
pub(super) fn counted(word: u64, now_ms: u64, somebody: bool) -> (u64, Option<bool>) {
    let is_stale = now_ms.wrapping_sub(word & MS_BITS) > PAUSE_MS;
    let (counts, others) = if is_stale { (0, 0) } else { (word >> 40 & 0xff, word >> 48 & 0xff) };
    let (counts, others) = (counts + 1, others + u64::from(somebody));
    let verdict = (counts >= COUNTS).then_some(others >= ALWAYS);
    let (counts, others) = if verdict.is_some() { (0, 0) } else { (counts, others) };
    (now_ms & MS_BITS | counts << 40 | others << 48, verdict)
}

/// Whether that was seen lately.
pub(super) fn is_there(until_ms: u64, now_ms: u64) -> bool {
    // Later than that is of an earlier run of the system.
    now_ms < until_ms && until_ms <= now_ms + HOLDS_MS
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes of these moments, one every so often.
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
        assert_eq!(verdicts((0..24).map(|at| at != 5)), [true, true], "but for a moment");
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
