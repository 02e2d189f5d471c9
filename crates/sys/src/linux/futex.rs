//! Waiting for another process to change a shared word.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use rustix::thread::futex;
use rustix::time::Timespec;

use super::map::Words;

/// Who waits for one word: all are woken.
const EVERYBODY: u32 = i32::MAX as u32;

impl Words {
    /// Wait until the word at `at` is woken by [`wake`](Words::wake), was since it was `seen`, or the time is over; or
    /// for no reason.
    pub fn wait(&self, at: usize, seen: u64, at_most: Duration) {
        let time = Timespec { tv_sec: at_most.as_secs() as _, tv_nsec: at_most.subsec_nanos().into() };
        let _ = futex::wait(lower_half(&self.words()[at]), futex::Flags::empty(), seen as u32, Some(&time));
    }

    /// Change the word at `at`, and wake who waits for that.
    pub fn wake(&self, at: usize) {
        let word = &self.words()[at];
        word.fetch_add(1, SeqCst);
        self.wake_lower(at);
    }

    /// Wake who waits for the lower half of the word at `at`, which was changed.
    pub fn wake_lower(&self, at: usize) {
        let _ = futex::wake(lower_half(&self.words()[at]), futex::Flags::empty(), EVERYBODY);
    }
}

fn lower_half(word: &AtomicU64) -> &AtomicU32 {
    let halves: *const AtomicU32 = std::ptr::from_ref(word).cast();
    // SAFETY: one half of a word that lives as long; the kernel reads it and nothing else does.
    unsafe { &*halves.add(usize::from(cfg!(target_endian = "big"))) }
}
