//! The queue of uploads to remotes. It uploads the oldest first, a few at once, and retries after a
//! pause if an upload failed. A build never waits for it.
//!
//! If only some of several remotes fail to take a record, it is retried later, so that the other
//! remotes get the next records at once. If more records come than can be uploaded, the oldest are
//! dropped and counted.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use larder_ipc::{Remotes, TROUBLE_BYTES_MAX, Unshared};
use larder_model::{Digest, Origin};
use larder_store::{Remote, Upload};
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::arrival::{Alone, alone};
use super::far::{Failure, Sending};
use super::{Moved, Shared, on_disk};

/// The largest number of waiting records. At 100 kB each that is a gigabyte to upload.
const WAITING_MAX: usize = 10_000;
/// The number of records that are uploaded at once.
const AT_ONCE: usize = 16;
/// The pause after a failed upload, at first and at most; it doubles with each failure.
const PAUSE: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// How long a flush waits for a remote that cannot be reached, because it may be starting.
const UNREACHABLE_MAX: Duration = Duration::from_secs(15);
/// How long `push` retries failures after the last successful upload.
const AGAIN: Duration = Duration::from_secs(15);

/// The waiting records, and the counts of the finished ones.
#[derive(Default)]
pub(super) struct Queue {
    inner: Mutex<Inner>,
    more: Notify,
    less: Notify,
    /// Wakes the pause after a failure, so that the next upload is tried at once.
    hurried: Notify,
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
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an upload, unless it is already queued.
    pub(super) fn add(&self, upload: Upload) {
        let mut inner = self.inner();
        if inner.known.insert(upload) {
            inner.waiting.push_back(upload);
            self.more.notify_one();
        }
    }

    /// Adds an upload, and returns the oldest ones that are dropped to keep the queue within
    /// [`WAITING_MAX`].
    pub(super) fn add_bounded(&self, upload: Upload) -> Vec<Upload> {
        self.add(upload);
        let mut inner = self.inner();
        let over = inner.waiting.len().saturating_sub(WAITING_MAX);
        let dropped: Vec<Upload> = inner.waiting.drain(..over).collect();
        for upload in &dropped {
            inner.known.remove(upload);
        }
        inner.dropped += dropped.len() as u64;
        inner.lost += dropped.len() as u64;
        dropped
    }

    async fn next(&self) -> Upload {
        loop {
            let notified = self.more.notified();
            let again = {
                let mut inner = self.inner();
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
    fn done(&self, upload: Upload, end: &End) -> Option<Duration> {
        let mut inner = self.inner();
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
        (self.inner().for_people, self.inner().unreachable) = (None, None);
        let began = Instant::now();
        loop {
            let notified = self.less.notified();
            let is_away = {
                let inner = self.inner();
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
        let mut inner = self.inner();
        let why = inner.for_people.as_ref().or(inner.unreachable.as_ref()).cloned().unwrap_or_default();
        let mut trouble = why.into_bytes();
        trouble.truncate(TROUBLE_BYTES_MAX);
        Unshared { lost: std::mem::take(&mut inner.lost), trouble }
    }

    /// Makes waiting retries run now.
    pub(super) fn hurry(&self) {
        let mut inner = self.inner();
        inner.failing = 0;
        inner.again = inner.again.map(|_| Instant::now());
        drop(inner);
        self.hurried.notify_waiters();
        self.more.notify_one();
    }

    /// Returns true while uploads run successfully. Failing uploads do not count, because the next
    /// daemon can retry them.
    pub(super) fn is_busy(&self) -> bool {
        let inner = self.inner();
        inner.failing == 0 && inner.under_way + inner.waiting.len() > 0
    }

    pub(super) fn state(&self) -> Remotes {
        let inner = self.inner();
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
    /// It is no longer in the store, or may not be shared (see [`Sending::Needless`]).
    Needless,
    /// A remote has a problem, which may be temporary.
    Failed(Failure),
    /// Some remotes took it, and others failed.
    Partly(Failure),
    /// A remote will never accept this object.
    Refused(Failure),
}

/// Uploads queued records, for ever.
pub(super) async fn send_all(shared: Arc<Shared>) {
    let room = Arc::new(Semaphore::new(AT_ONCE));
    let pause = Arc::new(tokio::sync::Mutex::new(()));
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        // Another task holds this lock while it pauses after a failure.
        drop(pause.lock().await);
        let upload = shared.queue.next().await;
        let (shared, pause) = (Arc::clone(&shared), Arc::clone(&pause));
        tokio::spawn(async move {
            let end = shared.send(&upload).await;
            match &end {
                End::Sent(bytes) => {
                    shared.count(Remote::Sent, 1);
                    shared.count(Remote::BytesOut, *bytes);
                }
                End::There | End::Needless => {}
                End::Failed(why) | End::Partly(why) | End::Refused(why) => {
                    shared.count(Remote::SendFailed, 1);
                    (shared.log)(&format!("a record cannot be uploaded: {why}"));
                }
            }
            if !matches!(end, End::Failed(_) | End::Partly(_))
                && let Ok(store) = shared.store()
            {
                store.forget_upload(&upload);
            }
            if let Some(time) = shared.queue.done(upload, &end)
                && let Ok(_held) = pause.try_lock()
            {
                let _ = tokio::time::timeout(time, shared.queue.hurried.notified()).await;
            }
            drop(permit);
        });
    }
}

/// Uploads these records and waits for all of them. Calls `tell` with each failure.
pub(super) async fn send_these(shared: &Arc<Shared>, all: Vec<Upload>, tell: &mut dyn FnMut(&str)) -> Moved {
    let send = |upload: Upload| {
        let shared = Arc::clone(shared);
        async move { shared.send(&upload).await }
    };
    by_hand(all, send, tell).await
}

/// Uploads records and retries a failure if an upload succeeded within [`AGAIN`] before it. So a
/// short outage in the middle does not lose the rest.
async fn by_hand<F: Future<Output = End> + Send + 'static>(
    all: Vec<Upload>,
    send: impl Fn(Upload) -> F,
    tell: &mut dyn FnMut(&str),
) -> Moved {
    let mut moved = Moved::default();
    let mut under_way = JoinSet::new();
    let mut rest = VecDeque::from(all);
    let mut worked: Option<Instant> = None;
    loop {
        while under_way.len() < AT_ONCE
            && let Some(upload) = rest.pop_front()
        {
            let sending = send(upload);
            under_way.spawn(async move { (upload, sending.await) });
        }
        match under_way.join_next().await {
            None => return moved,
            Some(Ok((_, End::Sent(bytes)))) => {
                worked = Some(Instant::now());
                moved.records += 1;
                moved.bytes += bytes;
            }
            Some(Ok((_, End::There))) => {
                worked = Some(Instant::now());
                moved.there += 1;
            }
            Some(Ok((_, End::Needless))) => {}
            Some(Ok((upload, End::Failed(_)))) if worked.is_some_and(|worked| worked.elapsed() < AGAIN) => {
                rest.push_front(upload);
                tokio::time::sleep(PAUSE).await;
            }
            Some(Ok((_, End::Failed(why) | End::Partly(why) | End::Refused(why)))) => {
                tell(&why.to_string());
                moved.failed += 1;
            }
            Some(Err(_)) => moved.failed += 1,
        }
    }
}

impl Shared {
    async fn send(self: &Arc<Self>, upload: &Upload) -> End {
        let (shared, record) = (Arc::clone(self), *upload);
        let read = on_disk(&Handle::current(), move || shared.read(&record)).await;
        match read {
            Some(Some(record)) => match self.far().publish(&record.manifest, &self.dir).await {
                Ok(Sending::Sent(bytes)) => End::Sent(bytes),
                Ok(Sending::There) => End::There,
                Ok(Sending::Needless) => End::Needless,
                Err(error) if error.is_final => End::Refused(error),
                Err(error) if error.of_one => End::Partly(error),
                Err(error) => End::Failed(error),
            },
            // Handed over but not recorded yet, or evicted.
            Some(None) => End::Needless,
            None => End::Failed(Failure::ours("the store cannot be read")),
        }
    }

    /// Returns one record of the store in a manifest of its own, if it may be uploaded. Its origin
    /// alone decides whether it is signed. A handed-over record is uploaded only if larderd's own
    /// setting says so, even if it is stored among the other records.
    fn read(&self, (weak, strong): &Upload) -> Option<Alone> {
        let store = self.store().ok()?;
        let sent = |alone: &Alone| alone.origin != Origin::HandedOver || self.how.remote_handover;
        let own = store.read_manifest(weak, false).ok().flatten().and_then(|file| alone(&file.bytes, strong));
        own.filter(sent).or_else(|| {
            let file = self.how.remote_handover.then(|| store.read_handed_over(weak, false).ok().flatten())??;
            alone(&file.bytes, strong)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

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

    #[test]
    fn a_moment_of_trouble_does_not_cost_the_rest() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("builds");
        // Three uploads in a row fail: after a successful one, or before any.
        for (well, records, failed) in [(1, 5, 0), (0, 2, 3)] {
            let calls = AtomicU64::new(0);
            let send = |_: Upload| {
                let call = calls.fetch_add(1, Relaxed);
                let fails = (well..well + 3).contains(&call);
                let takes_ms = match call {
                    0 => 0,
                    _ if fails => 20 * well,
                    _ => 40,
                };
                async move {
                    tokio::time::sleep(Duration::from_millis(takes_ms)).await;
                    if fails { End::Failed(Failure::ours("it is in trouble")) } else { End::Sent(7) }
                }
            };
            let mut told = 0;
            let moved = runtime.block_on(by_hand((0..5).map(upload).collect(), send, &mut |_| told += 1));
            assert_eq!((moved.records, moved.failed, told), (records, failed, failed));
        }
    }
}
