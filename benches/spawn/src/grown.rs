//! Memory of a process that has grown.
#![allow(unsafe_code, reason = "a mapping of a size and kind that no allocator gives")]

use anyhow::{Context, Result, ensure};
use std::io;
use std::ptr::{null_mut, write_volatile};

const PAGE_BYTES: usize = 4096;

/// Touched memory, until the process ends.
pub(crate) struct Grown {
    start: *mut u8,
    size_bytes: usize,
}

impl Grown {
    /// Map so much and touch each page of it: huge ones where they are asked for and the system has them, else none.
    pub(crate) fn to(size_bytes: usize, huge: bool) -> Result<Self> {
        if !huge {
            // SAFETY: no pointers.
            let done = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
            ensure!(done == 0, "huge pages cannot be switched off: {}", io::Error::last_os_error());
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, at a place that the kernel chooses.
        let start =
            unsafe { libc::mmap(null_mut(), size_bytes, protection, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) };
        ensure!(start != libc::MAP_FAILED, "cannot map {size_bytes} bytes: {}", io::Error::last_os_error());
        if huge {
            // SAFETY: the mapping just made.
            let done = unsafe { libc::madvise(start, size_bytes, libc::MADV_HUGEPAGE) };
            ensure!(done == 0, "huge pages cannot be asked for: {}", io::Error::last_os_error());
        }
        let mut grown = Self { start: start.cast(), size_bytes };
        grown.touch();
        Ok(grown)
    }

    /// Write to each page.
    pub(crate) fn touch(&mut self) {
        for at in (0..self.size_bytes).step_by(PAGE_BYTES) {
            // SAFETY: within the mapping, which nobody else has.
            unsafe { write_volatile(self.start.add(at), 1) };
        }
    }
}

/// Page faults of this process so far that needed no disk.
pub(crate) fn faults() -> u64 {
    usage(libc::RUSAGE_SELF).ru_minflt.unsigned_abs()
}

/// CPU time so far of this process and of the children that it has waited for, in µs.
pub(crate) fn cpu_us() -> u64 {
    let micros = |time: libc::timeval| time.tv_sec.unsigned_abs() * 1_000_000 + time.tv_usec.unsigned_abs();
    let both = [libc::RUSAGE_SELF, libc::RUSAGE_CHILDREN].map(usage);
    both.iter().map(|usage| micros(usage.ru_utime) + micros(usage.ru_stime)).sum()
}

fn usage(who: libc::c_int) -> libc::rusage {
    // SAFETY: plain numbers, for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: writes into that.
    unsafe { libc::getrusage(who, &mut usage) };
    usage
}

/// How much of this process is in huge pages, in kB.
pub(crate) fn huge_kb() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").context("cannot see what memory is made of")?;
    let line = text.lines().find_map(|line| line.strip_prefix("AnonHugePages:"));
    let number = line.and_then(|line| line.trim().split(' ').next()?.parse().ok());
    number.context("the kernel does not say what is in huge pages")
}
