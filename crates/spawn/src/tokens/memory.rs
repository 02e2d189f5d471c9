//! Whether there is memory for one more tool. Pure: numbers come in, a word goes out.
//!
//! What tools that run will still take is not to be seen anywhere: one that just started has hardly anything. So first
//! all of them are counted with all that they are expected to need, on top of what is used; only where that does not
//! fit is it worth looking at what they have got already.

use larder_sys::FreeMemory;

/// What a tool is expected to need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// The most memory of one of its processes, in KiB; 0 where nothing is known.
    pub memory_kb: u64,
}

/// Left for everybody else, in KiB: what a desktop or the page cache of a build misses first.
const SPARED_KB: u64 = 256 << 10;
/// Of a tool of which nothing is known: what a compiler takes for a file of a few hundred lines.
const UNKNOWN_KB: u64 = 128 << 10;
/// Programs waited for memory in that share of the last ten seconds, in hundredths of a per cent: a tenth. What a
/// machine does that begins to swap or to read its programs again; below it the kernel merely tidies up.
const PRESSURE_MAX: u32 = 1000;

impl Needs {
    /// What is counted for it.
    pub(super) fn counted_kb(self) -> u64 {
        if self.memory_kb == 0 { UNKNOWN_KB } else { self.memory_kb }
    }
}

/// What the tools that run are expected to need, and what they have, in KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Running {
    pub(super) expected_kb: u64,
    pub(super) has_kb: u64,
}

/// So much free memory that nothing else need be known.
pub(super) fn enough_kb(needs: Needs, running: Running) -> u64 {
    needs.counted_kb().saturating_add(running.expected_kb).saturating_add(SPARED_KB)
}

/// Whether there is room beside `running`, of which `has_kb` is already in what is used.
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
        // More than was expected is no room for others.
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
