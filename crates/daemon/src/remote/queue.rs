//! The queue of uploads to remotes. It uploads the oldest first, a few at once, and retries after a
//! pause if an upload failed. A build never waits for it.
//!
//! If only some of several remotes fail to take a record, it is retried later, so that the other
//! remotes get the next records at once. If more records come than can be uploaded, the oldest are
//! dropped and counted.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use larder_ipc::{Remotes, TROUBLE_BYTES_MAX, Unshared};
use larder_model::Digest;
use larder_store::Upload;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::remote_client::Failure;

/// The largest number of waiting records. At 100 kB each that is a gigabyte to upload.
const WAITING_MAX: usize = 10_000;

/// The pause after a failed upload, at first and at most; it doubles with each failure.
pub(super) const PAUSE: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// How long a flush waits for a remote that cannot be reached, because it may be starting.
const UNREACHABLE_MAX: Duration = Duration::from_secs(15);

/// The waiting records, and the counts of the finished ones.
#[derive(Default)]
pub(super) struct Queue {
    inner: Mutex<Inner>,
    more: Notify,
    less: Notify,
    /// Wakes the pause after a failure, so that the next upload is tried at once.
    pub(super) hurried: Notify,
}

#[derive(Default)]
struct Inner {
    waiting: VecDeque<Upload>,
    /// Records that some remotes took and others did not, to be retried at `again`.
    later: Vec<Upload>,
    /// The time to retry `later`.
    again: Option<Instant>,
    known: HashSet<Upload>,
    under_way: usize,
    /// The number of failures in a row.
    failing: u32,
    sent: u64,
    dropped: u64,
    failed: u64,
    /// Records that were neither uploaded nor will be retried, since this was last reported.
    lost: u64,
    /// The last error that waiting does not fix, such as a wrong password. A successful upload
    /// clears it.
    for_people: Option<String>,
    /// The last error of a remote that could not be reached. A successful upload clears it.
    unreachable: Option<String>,
}

impl Queue {
    /// Adds an upload, unless it is already queued.
    pub(super) fn add(&self, upload: Upload) {
        let mut inner = self.inner.lock();
        if inner.known.insert(upload) {
            inner.waiting.push_back(upload);
            self.more.notify_one();
        }
    }

    /// Adds an upload, and returns the oldest ones that are dropped to keep the queue within
    /// [`WAITING_MAX`].
    pub(super) fn add_bounded(&self, upload: Upload) -> Vec<Upload> {
        self.add(upload);
        let mut inner = self.inner.lock();
        let over = inner.waiting.len().saturating_sub(WAITING_MAX);
        let dropped: Vec<Upload> = inner.waiting.drain(..over).collect();
        for upload in &dropped {
            inner.known.remove(upload);
        }
        inner.dropped += dropped.len() as u64;
        inner.lost += dropped.len() as u64;
        dropped
    }

    pub(super) async fn next(&self) -> Upload {
        loop {
            let notified = self.more.notified();
            let again = {
                let mut inner = self.inner.lock();
                if inner.again.is_some_and(|again| again <= Instant::now()) {
                    let later = std::mem::take(&mut inner.later);
                    inner.waiting.extend(later);
                    inner.again = None;
                }
                if let Some(upload) = inner.waiting.pop_front() {
                    inner.under_way += 1;
                    return upload;
                }
                inner.again
            };
            match again {
                None => notified.await,
                Some(again) => drop(tokio::time::timeout_at(again, notified).await),
            }
        }
    }

    /// Finishes one upload. Returns how long to pause if it failed.
    pub(super) fn done(&self, upload: Upload, end: &End) -> Option<Duration> {
        let mut inner = self.inner.lock();
        inner.under_way -= 1;
        match end {
            End::Failed(failure) | End::Partly(failure) if failure.is_for_people => {
                inner.for_people = Some(failure.to_string());
            }
            End::Failed(failure) if failure.is_unreachable => inner.unreachable = Some(failure.to_string()),
            End::Sent(_) | End::There => (inner.for_people, inner.unreachable) = (None, None),
            _ => {}
        }
        let pause = match end {
            End::Partly(_) => {
                inner.failed += 1;
                inner.failing = 0;
                inner.later.push(upload);
                inner.again.get_or_insert_with(|| Instant::now() + PAUSE_MAX);
                None
            }
            End::Refused(_) => {
                inner.failed += 1;
                inner.lost += 1;
                inner.known.remove(&upload);
                None
            }
            End::Sent(_) | End::There | End::Needless => {
                inner.sent += u64::from(matches!(end, End::Sent(_)));
                inner.failing = 0;
                inner.known.remove(&upload);
                None
            }
            End::Failed(_) => {
                inner.failed += 1;
                inner.failing = (inner.failing + 1).min(16);
                // At the end of the queue, so that a record that always fails does not block the
                // others.
                inner.waiting.push_back(upload);
                Some(PAUSE.saturating_mul(1 << (inner.failing - 1)).min(PAUSE_MAX))
            }
        };
        drop(inner);
        self.more.notify_one();
        self.less.notify_waiters();
        pause
    }

    /// Waits until no upload is queued or running.
    pub(super) async fn empty(&self) {
        loop {
            let notified = self.less.notified();
            if self.state().queued == 0 {
                return;
            }
            notified.await;
        }
    }

    /// Waits until uploads cannot succeed without a change by a person, or until a remote could not
    /// be reached for [`UNREACHABLE_MAX`].
    pub(super) async fn hopeless(&self) {
        // Earlier errors may be fixed by now.
        (self.inner.lock().for_people, self.inner.lock().unreachable) = (None, None);
        let began = Instant::now();
        loop {
            let notified = self.less.notified();
            let is_away = {
                let inner = self.inner.lock();
                if inner.for_people.is_some() {
                    return;
                }
                inner.unreachable.is_some()
            };
            if is_away && began.elapsed() >= UNREACHABLE_MAX {
                return;
            }
            // With a timeout, because nothing notifies while no upload is tried.
            let _ = tokio::time::timeout(PAUSE, notified).await;
        }
    }

    /// Returns what a flush did not upload. Lost records are reported once.
    pub(super) fn unshared(&self) -> Unshared {
        let mut inner = self.inner.lock();
        let why = inner.for_people.as_ref().or(inner.unreachable.as_ref()).cloned().unwrap_or_default();
        let mut trouble = why.into_bytes();
        trouble.truncate(TROUBLE_BYTES_MAX);
        Unshared { lost: std::mem::take(&mut inner.lost), trouble }
    }

    /// Makes waiting retries run now.
    pub(super) fn hurry(&self) {
        let mut inner = self.inner.lock();
        inner.failing = 0;
        inner.again = inner.again.map(|_| Instant::now());
        drop(inner);
        self.hurried.notify_waiters();
        self.more.notify_one();
    }

    /// Returns true while uploads run successfully. Failing uploads do not count, because the next
    /// daemon can retry them.
    pub(super) fn is_busy(&self) -> bool {
        let inner = self.inner.lock();
        inner.failing == 0 && inner.under_way + inner.waiting.len() > 0
    }

    pub(super) fn state(&self) -> Remotes {
        let inner = self.inner.lock();
        let queued = (inner.waiting.len() + inner.later.len() + inner.under_way) as u64;
        let Inner { sent, dropped, failed, .. } = *inner;
        Remotes { queued, sent, dropped, failed, settings: Digest([0; 32]) }
    }
}

/// The outcome of one upload.
pub(super) enum End {
    /// It was uploaded. Holds the number of bytes that were sent.
    Sent(u64),
    /// The remote already had it.
    There,
    /// It is no longer in the store, or may not be shared (see [`super::remote_client::Sending::Needless`]).
    Needless,
    /// A remote has a problem, which may be temporary.
    Failed(Failure),
    /// Some remotes took it, and others failed.
    Partly(Failure),
    /// A remote will never accept this object.
    Refused(Failure),
}

#[cfg(test)]
mod tests {
    use larder_remote::{RemoteError, Trouble};

    use super::*;

    fn upload(n: u64) -> Upload {
        (Digest::of(&n.to_le_bytes()), Digest([0; 32]))
    }

    #[test]
    fn the_oldest_is_dropped_and_what_fails_waits() {
        let queue = Queue::default();
        queue.add(upload(0));
        queue.add(upload(0));
        assert_eq!(queue.state().queued, 1, "a record that is queued twice is uploaded once");
        for n in 1..WAITING_MAX as u64 {
            assert!(queue.add_bounded(upload(n)).is_empty());
        }
        assert_eq!(queue.add_bounded(upload(WAITING_MAX as u64)), [upload(0)]);
        assert_eq!((queue.state().queued, queue.state().dropped), (WAITING_MAX as u64, 1));
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("builds");
        let next = runtime.block_on(queue.next());
        assert_eq!(next, upload(1));
        let failed = End::Failed(Failure::ours(""));
        assert_eq!(queue.done(next, &failed), Some(PAUSE));
        assert!(!queue.is_busy(), "failing uploads must not keep the daemon running");
        assert_eq!(runtime.block_on(queue.next()), upload(2), "the failed one goes behind the others");
        assert_eq!(queue.done(upload(2), &failed), Some(PAUSE * 2));
        for n in 3..23 {
            runtime.block_on(queue.next());
            assert!(queue.done(upload(n), &failed).expect("pauses") <= PAUSE_MAX);
        }
        runtime.block_on(queue.next());
        assert_eq!(queue.done(upload(23), &End::Refused(Failure::ours(""))), None, "a refused record is not retried");
        runtime.block_on(queue.next());
        assert_eq!(queue.done(upload(24), &End::Sent(7)), None);
        assert!(queue.is_busy());
        assert_eq!((queue.state().sent, queue.state().queued), (1, WAITING_MAX as u64 - 2));
        let next = runtime.block_on(queue.next());
        assert_eq!(queue.done(next, &End::Partly(Failure::ours(""))), None, "no pause, because other remotes took it");
        assert_eq!(queue.state().queued, WAITING_MAX as u64 - 2, "it waits to be retried");
    }

    #[test]
    fn what_waiting_does_not_mend_ends_a_flush() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("builds");
        let queue = Queue::default();
        (1..=3).for_each(|n| queue.add(upload(n)));
        let next = || runtime.block_on(queue.next());
        let first = next();
        // A temporary failure does not end the wait.
        queue.done(first, &End::Failed(Failure::ours("busy")));
        let waits = async { tokio::time::timeout(Duration::from_millis(50), queue.hopeless()).await };
        assert!(runtime.block_on(waits).is_err());
        let denied = RemoteError::failed(&"redis://host".into(), None, Trouble::Denied, "no such password").into();
        let upload = next();
        let flush = async {
            let ((), _) = tokio::join!(queue.hopeless(), async { queue.done(upload, &End::Failed(denied)) });
        };
        runtime.block_on(flush);
        assert_eq!(queue.unshared(), Unshared { lost: 0, trouble: b"redis://host: denied: no such password".to_vec() });
        // A lost record is reported once.
        queue.done(next(), &End::Refused(Failure::ours("405")));
        assert_eq!(queue.unshared().lost, 1);
        assert_eq!(queue.unshared().lost, 0);
        // A successful upload clears the error.
        queue.done(next(), &End::Sent(1));
        assert_eq!(queue.unshared(), Unshared::default());
    }
}
