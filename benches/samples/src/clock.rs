//! The CPU clock of this process.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Returns the CPU time of all threads of this process.
pub fn cpu_of_process() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    // This clock never shows a negative time.
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}
