//! Pins threads that are traced to the CPU that this thread runs on.
//!
//! Each stop of a traced thread costs an interrupt on two CPUs, but only a context switch on one
//! CPU. On a virtual machine that is 60 µs compared with 3 µs.
//!
//! A thread is pinned only while it is traced, and only as long as no other thread or process can
//! observe the pinning.
//!
//! Unaware of: why a thread is traced, and how it is known that the pinning could be observed.

use std::collections::HashMap;

use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// The pinned threads, each with the CPU set that it had before.
#[derive(Default)]
pub(super) struct CpuAffinity {
    kept: HashMap<i32, CpuSet>,
    /// The CPU set that our own thread had before. `None` if it is not pinned.
    own: Option<CpuSet>,
    /// The CPU set that the last threads were pinned to, and the set that they had before.
    last: Option<[CpuSet; 2]>,
}

impl CpuAffinity {
    /// Pins a stopped thread to our CPU, if no thread is pinned yet. Threads can be pinned one
    /// after the other, but not two unrelated ones at once.
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

    /// Notes that a pinned thread created another one, which inherits the pinning.
    pub(super) fn made(&mut self, by: i32, thread: i32) {
        if let Some(its) = self.kept.get(&by).copied() {
            self.kept.insert(thread, its);
        }
    }

    /// Gives a thread the CPU set that it had before.
    pub(super) fn release(&mut self, thread: i32) {
        if let Some(its) = self.kept.remove(&thread) {
            // The thread may have ended.
            let _ = sched_setaffinity(Pid::from_raw(thread), &its);
            self.go_where_we_may();
        }
    }

    /// Gives a thread its CPU set back that was not noted as pinned, because its creation was not
    /// seen. Its creator had been pinned until then.
    pub(super) fn release_unseen(&mut self, thread: i32) {
        let its = |thread| sched_getaffinity(Pid::from_raw(thread)).ok();
        if let Some([_, elsewhere]) = self.last.filter(|[here, _]| its(thread) == Some(*here)) {
            let _ = sched_setaffinity(Pid::from_raw(thread), &elsewhere);
        }
    }

    /// Gives all pinned threads their CPU sets back.
    pub(super) fn release_all(&mut self) {
        for thread in self.kept.keys().copied().collect::<Vec<_>>() {
            self.release(thread);
        }
    }

    /// Gives our own thread its CPU set back, if no other thread is pinned any more.
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
        let mut near = CpuAffinity::default();
        near.keep(pid);
        assert!(its().count() == 1 && its() == sched_getaffinity(None).expect("tells"));
        near.made(pid, i32::MAX);
        near.release_unseen(pid);
        assert_eq!(its(), own);
        near.release(pid);
        assert_eq!(sched_getaffinity(None).expect("tells").count(), 1, "another thread is pinned");
        near.release_all();
        assert_eq!(sched_getaffinity(None).expect("tells"), own);
        child.kill().expect("ends");
        child.wait().expect("is waited for");
    }
}
