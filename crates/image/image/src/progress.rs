//! Progress: counters that the working threads update and a display reads.
//!
//! Unaware of: how it is displayed.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

/// A step of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Reading names. Their number is not known in advance.
    Scan,
    /// Comparing contents with what is known. Counts bytes.
    Compare,
    /// Packing what is new. Counts bytes.
    Pack,
    /// Checking whether anything changed meanwhile. Counts names.
    Stat,
    /// Writing files. Counts bytes.
    Unpack,
    /// Downloading. Counts bytes.
    Fetch,
    /// Uploading what a remote lacks. Counts bytes; their number is not known in advance.
    Send,
    /// Waiting for another process that does the work.
    Wait,
}

const STEPS: [Step; 8] =
    [Step::Scan, Step::Compare, Step::Pack, Step::Stat, Step::Unpack, Step::Fetch, Step::Send, Step::Wait];

/// The current step and its counters.
#[derive(Debug, Default)]
pub struct Progress {
    step: AtomicU8,
    done: AtomicU64,
    all: AtomicU64,
}

impl Progress {
    /// Begins a step with `all` units of work; 0 if their number is unknown.
    pub fn begin(&self, step: Step, all: u64) {
        self.done.store(0, Relaxed);
        self.all.store(all, Relaxed);
        self.step.store(step as u8, Relaxed);
    }

    /// Adds finished units of work.
    pub fn add(&self, done: u64) {
        self.done.fetch_add(done, Relaxed);
    }

    /// Returns the step, its finished units, and all its units.
    pub fn now(&self) -> (Step, u64, u64) {
        (STEPS[usize::from(self.step.load(Relaxed)) % STEPS.len()], self.done.load(Relaxed), self.all.load(Relaxed))
    }
}
