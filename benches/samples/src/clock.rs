//! Clocks, as times since some moment that stays the same.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// CPU time of the thread that asks.
pub fn cpu_of_thread() -> Duration {
    now(ClockId::ThreadCPUTime)
}

/// CPU time of all threads of this process.
pub fn cpu_of_process() -> Duration {
    now(ClockId::ProcessCPUTime)
}

/// Wall time that nobody sets.
pub fn wall() -> Duration {
    now(ClockId::Monotonic)
}

fn now(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    // None of these clocks is ever before its zero.
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}
