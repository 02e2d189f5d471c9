//! Makes reads of the clock visible. Programs read the clock by code that the kernel maps into each
//! process (the vDSO), without a system call. So in the copy of a new program, the beginning of
//! each such function is overwritten by the system call of the same name (`vdso.rs`).
//!
//! This happens when the program makes its first observed call. That is before any code of its own:
//! its loader looks for libraries, or its libc sets up the first thread. If it is not possible, the
//! program counts as one that reads the clock often.
//!
//! Unaware of: which programs may read the clock.

use super::pending::{Expected, Pending};
use super::process::Caller;
use super::vdso::Patches;
use super::watch::Watch;
use crate::event::{CLOCK_GETTIME, EventKind};

/// More reads than any known program makes in every run (`LARDER_FEW` in `preload/log.h`).
const OFTEN: usize = 4;
impl Watch {
    /// Notes that a program is about to begin in a process, so that its vDSO is not patched yet.
    pub(super) fn clock_is_hidden(&mut self, caller: Caller) {
        self.hidden_clocks.insert(caller.process);
    }

    /// If a calling process has begun a new program, patches the vDSO of that program.
    pub(super) fn show_clock(&mut self, caller: Caller, waits: &dyn Fn() -> bool) {
        let begun = caller.thread == caller.process && self.hidden_clocks.contains(&caller.process);
        let unsure = |watch: &Watch| {
            let runs = |p: &Pending| matches!(p.expected, Expected::Runs { .. });
            watch.pending.iter().any(|p| p.caller.process == caller.process && runs(p))
        };
        if !begun || unsure(self) {
            return;
        }
        self.hidden_clocks.remove(&caller.process);
        let patches = self.patches.get_or_insert_with(Patches::find);
        if patches.as_ref().and_then(|patches| patches.write(caller.process, waits)).is_none() {
            self.clock_was_hidden(caller.process);
        }
    }

    /// Counts a program that was replaced or has ended before its first call as one that reads the
    /// clock often, because its reads were not visible.
    pub(super) fn hidden_clock_is_gone(&mut self, process: u32) {
        if self.hidden_clocks.remove(&process) {
            self.clock_was_hidden(process);
        }
    }

    /// Counts all programs whose vDSO was not patched by the end of the run as such.
    pub(super) fn hidden_clocks_are_gone(&mut self) {
        for process in std::mem::take(&mut self.hidden_clocks) {
            self.clock_was_hidden(process);
        }
    }

    fn clock_was_hidden(&mut self, process: u32) {
        let caller = Caller { thread: process, process };
        (0..OFTEN).for_each(|_| self.number_event(caller, EventKind::Clock, CLOCK_GETTIME, b""));
    }
}
