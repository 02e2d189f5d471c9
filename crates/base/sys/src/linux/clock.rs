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

/// Returns the processor's time stamp counter, which advances evenly, or 0 if there is none here.
/// Reading it takes no system call. [`ticks_per_second`] says how fast it is.
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every processor of this architecture has the instruction.
    return unsafe { core::arch::x86_64::_rdtsc() };
    #[cfg(target_arch = "aarch64")]
    {
        let ticks: u64;
        // SAFETY: Linux lets every process read this register, and nothing else changes.
        unsafe { core::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack)) };
        return ticks;
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    0
}

/// Measures how often [`ticks`] advances in a second. Takes a few milliseconds.
pub fn ticks_per_second() -> u64 {
    const MEASURED: std::time::Duration = std::time::Duration::from_millis(10);
    let (began, first) = (std::time::Instant::now(), ticks());
    std::thread::sleep(MEASURED);
    let (took, last) = (began.elapsed(), ticks());
    (u128::from(last.saturating_sub(first)) * 1_000_000_000 / took.as_nanos().max(1)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_does_not_go_backwards() {
        let (one, other) = (now_ms(), now_ms());
        assert!(one > 0 && other >= one);
        assert!(ticks() <= ticks() && ticks_per_second() > 0);
    }
}
