//! Keeping threads that are followed on the processor that we are on: between two processors each stop costs both of
//! them an interrupt, on one it is a switch. On a virtual machine that is the difference of 60 µs to 3.
//!
//! A thread is kept so only while it is followed, and only as long as nobody but itself could notice.
//!
//! Unaware of: why it is followed, what shows that somebody could notice.

use std::collections::HashMap;

use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// Which threads are kept here, each with where it may run otherwise.
#[derive(Default)]
pub(super) struct Near {
    kept: HashMap<i32, CpuSet>,
    /// Where we may run otherwise.
    own: Option<CpuSet>,
    /// Where the last ones were kept, and where they may run otherwise.
    last: Option<[CpuSet; 2]>,
}

impl Near {
    /// Keep a stopped thread here. Only where no other is: one after the other can do so, but not several at once.
    pub(super) fn keep(&mut self, thread: i32) {
        if !self.kept.is_empty() {
            return;
        }
        let here = sched_getcpu();
        let (Ok(own), Ok(its)) = (sched_getaffinity(None), sched_getaffinity(Pid::from_raw(thread))) else { return };
        if here >= CpuSet::MAX_CPU || !its.is_set(here) || its.count() == 1 {
            return;
        }
        let mut only_here = CpuSet::new();
        only_here.set(here);
        if sched_setaffinity(None, &only_here).is_err() {
            return;
        }
        self.own = Some(own);
        match sched_setaffinity(Pid::from_raw(thread), &only_here) {
            Ok(()) => {
                self.kept.insert(thread, its);
                self.last = Some([only_here, its]);
            }
            Err(_) => self.go_where_we_may(),
        }
    }

    /// A thread that is kept here made another one, which is kept as well therefore.
    pub(super) fn made(&mut self, by: i32, thread: i32) {
        if let Some(its) = self.kept.get(&by).copied() {
            self.kept.insert(thread, its);
        }
    }

    /// Let a thread run where it may.
    pub(super) fn release(&mut self, thread: i32) {
        if let Some(its) = self.kept.remove(&thread) {
            // It may be gone.
            let _ = sched_setaffinity(Pid::from_raw(thread), &its);
            self.go_where_we_may();
        }
    }

    /// The same of one that was made unseen, by a thread that had been kept until then.
    pub(super) fn release_unseen(&mut self, thread: i32) {
        let its = |thread| sched_getaffinity(Pid::from_raw(thread)).ok();
        if let Some([_, elsewhere]) = self.last.filter(|[here, _]| its(thread) == Some(*here)) {
            let _ = sched_setaffinity(Pid::from_raw(thread), &elsewhere);
        }
    }

    /// All of them.
    pub(super) fn release_all(&mut self) {
        for thread in self.kept.keys().copied().collect::<Vec<_>>() {
            self.release(thread);
        }
    }

    /// Nobody is kept here any more.
    fn go_where_we_may(&mut self) {
        if self.kept.is_empty()
            && let Some(own) = self.own.take()
        {
            let _ = sched_setaffinity(None, &own);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_kept_and_released() {
        let own = sched_getaffinity(None).expect("tells");
        if own.count() == 1 {
            return;
        }
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("starts");
        let pid = child.id() as i32;
        let its = || sched_getaffinity(Pid::from_raw(pid)).expect("tells");
        let mut near = Near::default();
        near.keep(pid);
        assert!(its().count() == 1 && its() == sched_getaffinity(None).expect("tells"));
        near.made(pid, i32::MAX);
        near.release_unseen(pid);
        assert_eq!(its(), own);
        near.release(pid);
        assert_eq!(sched_getaffinity(None).expect("tells").count(), 1, "another is kept");
        near.release_all();
        assert_eq!(sched_getaffinity(None).expect("tells"), own);
        child.kill().expect("ends");
        child.wait().expect("is waited for");
    }
}
