//! Waiting until another process changes a word in shared memory (`futex`).
//!
//! Unaware of: what the words mean.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use rustix::thread::futex;

use super::map::Words;
use super::poll::timespec;

/// How many waiters of a word are woken: all of them.
const EVERYBODY: u32 = i32::MAX as u32;

impl Words {
    /// Waits until [`wake`](Words::wake) wakes the word at `at`, or until `at_most` is over.
    /// Returns at once if the word is no longer `seen`. It may also return for no reason.
    pub fn wait(&self, at: usize, seen: u64, at_most: Duration) {
        let time = timespec(at_most);
        let _ = futex::wait(lower_half(&self.words()[at]), futex::Flags::empty(), seen as u32, Some(&time));
    }

    /// Adds one to the word at `at`, and wakes all its waiters.
    pub fn wake(&self, at: usize) {
        let word = &self.words()[at];
        word.fetch_add(1, SeqCst);
        self.wake_lower(at);
    }

    /// Wakes all waiters of the word at `at`, whose lower half the caller has changed.
    pub fn wake_lower(&self, at: usize) {
        let _ = futex::wake(lower_half(&self.words()[at]), futex::Flags::empty(), EVERYBODY);
    }
}

fn lower_half(word: &AtomicU64) -> &AtomicU32 {
    let halves: *const AtomicU32 = std::ptr::from_ref(word).cast();
    // SAFETY: this is one half of a word that lives as long. Only the kernel reads it as a half.
    unsafe { &*halves.add(usize::from(cfg!(target_endian = "big"))) }
}
