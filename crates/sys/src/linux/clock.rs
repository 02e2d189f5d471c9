//! Clocks.
//!
//! Unaware of: what a time is compared with.

/// Returns the milliseconds since the system was started, without the time that it was suspended.
pub fn now_ms() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1000 + now.tv_nsec.unsigned_abs() / 1_000_000
}

/// Returns the clock that files are stamped with, in nanoseconds since 1970. It advances once per
/// clock tick.
pub fn now_coarse_ns() -> i64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // The system call is made directly. A hit reads the clock a few times, and using the vDSO would
    // take three page faults, which cost more than the calls.
    // SAFETY: writes to our own structure, which has the kernel's form if pointers have 64 bits. It
    // cannot fail, because every kernel has this clock.
    #[cfg(target_pointer_width = "64")]
    let told = unsafe { libc::syscall(libc::SYS_clock_gettime, libc::CLOCK_REALTIME_COARSE, &mut now) == 0 };
    #[cfg(not(target_pointer_width = "64"))]
    let told = false;
    // A sandbox may refuse the call, and then nothing was written.
    if !told {
        // SAFETY: writes to our own structure.
        unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &mut now) };
    }
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_does_not_go_backwards() {
        let (one, other) = (now_ms(), now_ms());
        assert!(one > 0 && other >= one);
    }
}
