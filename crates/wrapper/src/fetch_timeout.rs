//! How long to wait for a fetch before the tool is started beside it: the rule *cautious* of
//! docs/fetching.md.
//!
//! Unaware of: what is fetched, what the tool is.

use std::time::Duration;

use larder_ipc::Expect;

/// The wait if too few fetches are known.
pub(crate) const UNKNOWN: Duration = Duration::from_millis(250);
/// With fewer samples than this, the measured times say nothing.
const SAMPLES_MIN: u64 = 5;
/// The least wait. Starting a tool under an observer and stopping it again costs about as much.
const STARTING: Duration = Duration::from_millis(5);
/// The wait for a remote that did not answer last time. It is not zero, because the remote may be
/// back and we would never notice.
const SILENT: Duration = Duration::from_millis(10);
/// The longest wait, whatever earlier fetches took. It bounds what one fetch can cost a build.
const LONGEST: Duration = Duration::from_secs(2);

/// Returns how long to wait, counted from the request. `run` is how long the tool is expected to
/// run, and `free` is true if a processor is idle.
pub(crate) fn fetch_timeout(expect: &Expect, run: Option<Duration>, free: bool) -> Duration {
    let (median, p90) = (Duration::from_micros(expect.median_us), Duration::from_micros(expect.p90_us));
    if expect.overdue {
        return SILENT;
    }
    if expect.samples < SAMPLES_MIN {
        return UNKNOWN;
    }
    if free && run.is_some_and(|run| run < median) {
        return Duration::ZERO;
    }
    let twentieth = run.unwrap_or_default() / 20;
    let worth = median.saturating_mul(2).max(median.saturating_add(twentieth));
    p90.min(worth).clamp(STARTING, LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule() {
        let check = |median: u64, p90: u64, run: Option<u64>, free: bool, expected: u64| {
            let expect = Expect { median_us: median * 1000, p90_us: p90 * 1000, samples: 100, overdue: false };
            let found = fetch_timeout(&expect, run.map(Duration::from_millis), free);
            assert_eq!(found, Duration::from_millis(expected), "{median} {p90} {run:?} {free}");
        };
        // A tool that is faster than a fetch starts at once if a processor is idle.
        check(100, 500, Some(50), true, 0);
        check(100, 500, Some(50), false, 200);
        check(100, 500, None, true, 200);
        check(100, 150, Some(1000), true, 150);
        // If the tool runs long, waiting longer is worth it.
        check(100, 5000, Some(20_000), true, 1100);
        check(0, 0, Some(1000), true, 5);
        check(10_000, 50_000, None, false, 2000);
        let known = Expect { median_us: 1, p90_us: 1, samples: 100, overdue: false };
        assert_eq!(fetch_timeout(&Expect { samples: 4, ..known }, None, true), UNKNOWN);
        assert_eq!(fetch_timeout(&Expect { overdue: true, ..known }, None, false), SILENT);
        let most = Expect { median_us: u64::MAX, p90_us: u64::MAX, ..known };
        assert_eq!(fetch_timeout(&most, Some(Duration::MAX), false), LONGEST);
    }
}
