//! Waiting for descriptors (`poll`).
//!
//! Unaware of: what comes by a descriptor.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Returns a time as system calls take it.
pub(super) fn timespec(time: Duration) -> Timespec {
    Timespec { tv_sec: time.as_secs() as _, tv_nsec: time.subsec_nanos().into() }
}

/// Returns what is found of `wanted`, errors and ends at a descriptor without waiting.
pub(super) fn found_now(descriptor: &impl AsFd, wanted: PollFlags) -> rustix::io::Result<PollFlags> {
    let mut asked = [PollFd::new(descriptor, wanted)];
    poll(&mut asked, Some(&timespec(Duration::ZERO)))?;
    Ok(asked[0].revents())
}
