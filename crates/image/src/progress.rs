//! How far it is: counted by whoever works, looked at by whoever shows it.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

/// What is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Names are read; their number is not known yet.
    Scan,
    /// Contents are compared with what is known: bytes.
    Compare,
    /// What is new is packed: bytes.
    Pack,
    /// It is looked whether anything changed meanwhile: names.
    Look,
    /// Files are written: bytes.
    Unpack,
    /// Something is fetched: bytes.
    Fetch,
    /// What a remote lacks is sent, bytes; how much that is is not known yet.
    Send,
    /// Somebody else does it.
    Wait,
}

const STEPS: [Step; 8] =
    [Step::Scan, Step::Compare, Step::Pack, Step::Look, Step::Unpack, Step::Fetch, Step::Send, Step::Wait];

/// The state of one piece of work.
#[derive(Debug, Default)]
pub struct Progress {
    step: AtomicU8,
    done: AtomicU64,
    all: AtomicU64,
}

impl Progress {
    /// A new step begins, of so much work; 0 where that is not known.
    pub fn begin(&self, step: Step, all: u64) {
        self.done.store(0, Relaxed);
        self.all.store(all, Relaxed);
        self.step.store(step as u8, Relaxed);
    }

    /// So much more was done.
    pub fn add(&self, done: u64) {
        self.done.fetch_add(done, Relaxed);
    }

    /// The step, how much of it was done, and of how much.
    pub fn now(&self) -> (Step, u64, u64) {
        (STEPS[usize::from(self.step.load(Relaxed)) % STEPS.len()], self.done.load(Relaxed), self.all.load(Relaxed))
    }
}
