//! Whether there is memory for one more tool. Pure.
//!
//! The memory that running tools will still take is not visible anywhere: a tool that has just
//! started has hardly any. So first all of them are counted with all that they are expected to
//! need, in addition to the memory in use. Only if that does not fit, the caller looks at what they
//! already have.
//!
//! Unaware of: where the numbers come from.

use larder_sys::FreeMemory;

/// The resources that a tool is expected to need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// The peak memory of its largest process, in KiB; 0 if it is not known.
    pub memory_kb: u64,
}

/// Memory left for everything else, in KiB. A desktop, or the page cache of a build, would
/// otherwise suffer first.
const SPARED_KB: u64 = 256 << 10;
/// The need assumed for an unknown tool, in KiB: what a compiler takes for a file of a few hundred
/// lines.
const UNKNOWN_KB: u64 = 128 << 10;
/// The limit for the share of the last ten seconds in which programs waited for memory, in
/// hundredths of a per cent (10 %). Above it, a machine begins to swap or to read its programs
/// again; below it, the kernel only reclaims memory.
const PRESSURE_MAX: u32 = 1000;

impl Needs {
    /// Returns the memory that is counted for the tool, in KiB.
    pub(super) fn counted_kb(self) -> u64 {
        if self.memory_kb == 0 { UNKNOWN_KB } else { self.memory_kb }
    }
}

/// The memory that the running tools are expected to need, and what they already have, in KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Running {
    pub(super) expected_kb: u64,
    pub(super) has_kb: u64,
}

/// Returns the amount of free memory with which the tool fits for certain, in KiB.
pub(super) fn enough_kb(needs: Needs, running: Running) -> u64 {
    needs.counted_kb().saturating_add(running.expected_kb).saturating_add(SPARED_KB)
}

/// Returns true if there is room for one more tool. `running.has_kb` is already part of the memory
/// in use.
pub(super) fn has_room(needs: Needs, running: Running, free: FreeMemory) -> bool {
    let still_to_come = running.expected_kb.saturating_sub(running.has_kb);
    let wanted = needs.counted_kb().saturating_add(still_to_come).saturating_add(SPARED_KB);
    free.pressure < PRESSURE_MAX && wanted <= free.available_kb
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(needs_mb: u64, expected_mb: u64, has_mb: u64, available_mb: u64, pressure: u32, expect: bool) {
        let running = Running { expected_kb: expected_mb << 10, has_kb: has_mb << 10 };
        let free = FreeMemory { available_kb: available_mb << 10, pressure };
        assert_eq!(has_room(Needs { memory_kb: needs_mb << 10 }, running, free), expect);
    }

    #[test]
    fn counts_what_is_still_to_come() {
        check(1000, 0, 0, 1300, 0, true);
        check(1000, 0, 0, 1200, 0, false);
        check(1000, 2000, 0, 3000, 0, false);
        check(1000, 2000, 1900, 3000, 0, true);
        // Memory beyond what was expected is no room for others.
        check(1000, 2000, 5000, 1200, 0, false);
        check(1000, 0, 0, 90_000, 1001, false);
        check(0, 0, 0, 384, 0, true);
        check(0, 0, 0, 383, 0, false);
        check(u64::MAX >> 10, u64::MAX >> 10, 0, u64::MAX >> 10, 0, false);
    }

    #[test]
    fn enough_is_enough_without_looking() {
        let running = Running { expected_kb: 5, has_kb: 0 };
        let enough = enough_kb(Needs { memory_kb: 7 }, running);
        let free = FreeMemory { available_kb: enough, pressure: 0 };
        assert!(has_room(Needs { memory_kb: 7 }, running, free));
    }
}
