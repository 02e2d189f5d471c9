//! Whether tools in a lowered class get enough processor time, and when to start them without the
//! class instead. Pure.
//!
//! Beside one ordinary program that needs a whole processor, a tool in a lowered class hardly runs,
//! and the build takes many times as long. This is detected when a tool had to wait for a processor
//! most of its time although there are no more tools than processors. Tools are then started like
//! the build itself (the class is "stepped down"), and now and then one is tried in its class
//! again.
//!
//! Such a starved tool costs seconds. So if nothing is known about the recent past, and before each
//! try, the system is probed for some milliseconds in that class first. The probe gets the same
//! share of the processor.
//!
//! ```text
//! state, a word shared by all wrappers:
//! bits  0…39  in ms since boot. If stepped down: until when tools are started without the class.
//!             Otherwise: until when the class is known to work well.
//! bits 40…47  n, if the pause before the next try is 2^n s; 0 if tools are started in the class
//! bits 48…55  the number of successful tries in a row
//! ```

use std::time::Duration;

use larder_sys::Use;

/// How many tries in a row must succeed. On two processors, one busy program leaves one processor
/// free, so half of the tries succeed by luck.
const GOOD_TRIES: u64 = 3;
/// The pause after a successful try, in ms.
const GOOD_PAUSE_MS: u64 = 500;
/// How long an observation of a tool or a probe stays valid, in ms.
const KNOWN_MS: u64 = 10_000;
/// If a tool used less processor time than this, its success says nothing: it may have had a single
/// time slice.
const TELLING: Duration = Duration::from_millis(20);
/// The longest pause is 2^6 s: as long as a busy program stays, the cost is one slow tool per
/// minute.
const PAUSE_LOG_MAX: u64 = 6;
const UNTIL_BITS: u64 = (1 << 40) - 1;

/// A tool may lose less than this by chance, to processes that start and end at the same time.
const LOST_MIN: Duration = Duration::from_millis(50);
/// A tool that waits for a processor is preempted at least about this often.
const TURN_MAX: Duration = Duration::from_millis(100);

/// How the next tool is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// Like the build itself, without a class.
    AsInherited,
    /// In its class.
    Lowered,
    /// In its class as a try, if the probe gets enough processor time.
    Try,
    /// In its class, if the probe gets enough processor time. Nothing is known yet.
    Unknown,
}

#[derive(Clone, Copy)]
struct State {
    until_ms: u64,
    pause_log: u64,
    good: u64,
}

impl State {
    fn of(word: u64) -> State {
        State { until_ms: word & UNTIL_BITS, pause_log: word >> 40 & 0xff, good: word >> 48 & 0xff }
    }

    fn word(self) -> u64 {
        self.until_ms & UNTIL_BITS | self.pause_log << 40 | self.good << 48
    }

    fn pause_ms(self) -> u64 {
        1000 << self.pause_log.min(PAUSE_LOG_MAX)
    }
}

/// Returns how to start a tool now, and the new state.
pub(crate) fn next(word: u64, now_ms: u64) -> (Start, u64) {
    let state = State::of(word);
    match state {
        State { pause_log: 0, .. } if state.until_ms > now_ms && state.until_ms <= now_ms + KNOWN_MS => {
            (Start::Lowered, word)
        }
        State { pause_log: 0, .. } => (Start::Unknown, word),
        // The state is from before the last boot.
        _ if state.until_ms > now_ms + (2000 << PAUSE_LOG_MAX) => (Start::Unknown, 0),
        _ if now_ms < state.until_ms => (Start::AsInherited, word),
        // No other wrapper tries before this try is finished or has taken too long.
        _ => (Start::Try, State { until_ms: now_ms + state.pause_ms(), ..state }.word()),
    }
}

/// Returns true if tools are currently started without their class.
pub(crate) fn is_stepped_down(word: u64, now_ms: u64) -> bool {
    next(word, now_ms).0 == Start::AsInherited
}

/// Returns whether a tool or a probe was starved, or `None` if its use of resources says nothing.
pub(crate) fn seen(used: Use, took: Duration) -> Option<bool> {
    let is_starved = starved(used, took);
    (is_starved || used.cpu_us >= TELLING.as_micros() as u64).then_some(is_starved)
}

/// Returns the state after a tool that was started in the way `start` turned out to be starved or
/// not.
pub(crate) fn after(word: u64, now_ms: u64, start: Start, starved: bool) -> u64 {
    let state = State::of(word);
    let step_down = |pause_log| {
        let state = State { pause_log, good: 0, ..state };
        State { until_ms: now_ms + state.pause_ms(), ..state }.word()
    };
    match (start, starved) {
        (Start::Try, true) => step_down((state.pause_log + 1).min(PAUSE_LOG_MAX)),
        (Start::Try, false) if state.good + 1 >= GOOD_TRIES => known_to_go_well(now_ms),
        (Start::Try, false) => State { until_ms: now_ms + GOOD_PAUSE_MS, good: state.good + 1, ..state }.word(),
        // Only the first report counts. Tools that were started before it add nothing new.
        (Start::Lowered | Start::Unknown, true) if state.pause_log == 0 => step_down(1),
        (Start::Lowered | Start::Unknown, false) if state.pause_log == 0 => known_to_go_well(now_ms),
        _ => word,
    }
}

fn known_to_go_well(now_ms: u64) -> u64 {
    State { until_ms: now_ms + KNOWN_MS, pause_log: 0, good: 0 }.word()
}

/// Returns true if a tool with this use of resources had to wait for a processor during most of its
/// time.
pub(crate) fn starved(used: Use, took: Duration) -> bool {
    let cpu = Duration::from_micros(used.cpu_us);
    let lost = took.saturating_sub(cpu);
    let turns = u32::try_from(used.preempted).unwrap_or(u32::MAX);
    lost > LOST_MIN && cpu < took / 2 && TURN_MAX.saturating_mul(turns) >= lost
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_a_processor_is_starved() {
        let check = |cpu_ms: u64, took_ms: u64, preempted: u64, expect: bool| {
            let used = Use { cpu_us: cpu_ms * 1000, peak_kb: 0, preempted };
            assert_eq!(starved(used, Duration::from_millis(took_ms)), expect, "{cpu_ms} of {took_ms}, {preempted}");
        };
        check(300, 310, 5, false);
        check(300, 3000, 80, true);
        // It waited for a disk or for another process.
        check(300, 3000, 3, false);
        // Two programs share a processor fairly.
        check(300, 590, 80, false);
        check(10, 50, 9, false);
        check(900, 300, 9, false);
        check(1, 300, u64::MAX, true);
    }

    #[test]
    fn steps_down_and_tries_again() {
        let (start, word) = next(0, 5000);
        assert_eq!((start, next(after(word, 5000, start, true), 5001).0), (Start::Unknown, Start::AsInherited));
        let word = after(word, 5000, start, false);
        assert_eq!((next(word, 5001), next(word, 14_999).0), ((Start::Lowered, word), Start::Lowered));
        assert_eq!(next(word, 15_000).0, Start::Unknown, "the knowledge has expired");
        let word = after(word, 5000, Start::Lowered, true);
        // Other tools that were started before report the same a moment later.
        assert_eq!(after(word, 5300, Start::Lowered, true), word);
        assert_eq!(next(word, 6999), (Start::AsInherited, word));
        assert_eq!(after(word, 6999, Start::AsInherited, true), word);
        let (start, word) = next(word, 7000);
        assert_eq!((start, next(word, 7001).0), (Start::Try, Start::AsInherited));
        let word = after(word, 7500, start, true);
        assert_eq!((next(word, 11_499).0, next(word, 11_500).0), (Start::AsInherited, Start::Try));
    }

    #[test]
    fn returns_when_tries_go_well() {
        let mut word = after(0, 0, Start::Lowered, true);
        let mut now = 2000;
        for _ in 0..GOOD_TRIES {
            let (start, next_word) = next(word, now);
            assert_eq!(start, Start::Try);
            word = after(next_word, now + 100, start, false);
            now += 100 + GOOD_PAUSE_MS;
        }
        assert_eq!(next(word, now), (Start::Lowered, word));
    }

    #[test]
    fn any_word_is_a_state() {
        for word in [u64::MAX, UNTIL_BITS, 1 << 40, 0xff << 40, 1 << 63] {
            let (start, word) = next(word, 1000);
            after(word, 1000, start, true);
            after(word, u64::MAX >> 1, Start::Try, true);
        }
        let never = State { until_ms: 1 << 39, pause_log: 3, good: 0 }.word();
        assert_eq!(next(never, 1000), (Start::Unknown, 0), "the state is from before the last boot");
        let known = known_to_go_well(1 << 39);
        assert_eq!(next(known, 1000), (Start::Unknown, known), "the state is from before the last boot");
    }

    #[test]
    fn a_short_tool_says_nothing() {
        let check = |cpu_ms: u64, took_ms: u64, expect: Option<bool>| {
            let used = Use { cpu_us: cpu_ms * 1000, peak_kb: 0, preempted: 99 };
            assert_eq!(seen(used, Duration::from_millis(took_ms)), expect, "{cpu_ms} of {took_ms}");
        };
        check(5, 6, None);
        check(5, 500, Some(true));
        check(300, 320, Some(false));
    }
}
