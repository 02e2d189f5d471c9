//! A picture that takes 4 ms of a processor, sixty times a second.

use larder_samples::cpu_of_thread;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::sleep;
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_nanos(16_666_667);
const WORK: Duration = Duration::from_millis(4);

/// How many there should have been, and how many were not ready when the next one was due.
#[derive(Default)]
pub(crate) struct Frames {
    pub(crate) all: u64,
    pub(crate) missed: u64,
}

pub(crate) fn draw(over: &AtomicBool) -> Frames {
    let mut frames = Frames::default();
    let mut due = Instant::now() + EVERY;
    while !over.load(Relaxed) {
        sleep(due.saturating_duration_since(Instant::now()));
        let end = due + EVERY;
        let begun = cpu_of_thread();
        while cpu_of_thread() - begun < WORK {}
        let late = Instant::now().saturating_duration_since(end);
        // One that took three frames' time missed its own and those.
        let over_by = late.as_nanos().div_ceil(EVERY.as_nanos()) as u64;
        frames.all += 1 + over_by.saturating_sub(1);
        frames.missed += over_by;
        due = end + EVERY * u32::try_from(over_by.saturating_sub(1)).unwrap_or(u32::MAX);
        due = due.max(end);
    }
    frames
}
