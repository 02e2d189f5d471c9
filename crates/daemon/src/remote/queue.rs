//! What is to be sent to remotes, and sending it: oldest first, a few at once, again after a pause where it failed. A
//! build never waits for it. What one of several remotes does not take is left for later, so that the others have what
//! comes. Where more comes than can be sent, the oldest is dropped and counted.

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

/// Records that wait: at 100 kB each a gigabyte is still to be sent.
const WAITING_MAX: usize = 10_000;
/// Records that are sent at once.
const AT_ONCE: usize = 16;
/// After a failure nothing is sent for so long, at first and at most; doubled each time.
const PAUSE: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// A remote that cannot be reached is waited for so long by a flush: it may be starting.
const UNREACHABLE_MAX: Duration = Duration::from_secs(15);
/// What is sent by hand is sent again where it fails, unless nothing was taken for so long.
const AGAIN: Duration = Duration::from_secs(15);

/// What waits, and what became of the rest.
#[derive(Default)]
pub(super) struct Queue {
    inner: Mutex<Inner>,
    more: Notify,
    less: Notify,
    /// What waits after a failure is to be tried now.
    hurried: Notify,
}

#[derive(Default)]
struct Inner {
    waiting: VecDeque<Upload>,
    /// Those that some remotes have, and others did not take: for when these are asked again.
    later: Vec<Upload>,
    /// When that is.
    again: Option<Instant>,
    known: HashSet<Upload>,
    under_way: usize,
    /// Failures in a row.
    failing: u32,
    sent: u64,
    dropped: u64,
    failed: u64,
    /// Records that are neither shared nor tried again, since this was told last.
    lost: u64,
    /// Since nothing was sent: why, if waiting does not mend it.
    for_people: Option<String>,
    /// Since nothing was sent: why a remote could not be reached.
    unreachable: Option<String>,
}

impl Queue {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Add one, unless it is there.
    pub(super) fn add(&self, upload: Upload) {
        let mut inner = self.inner();
        if inner.known.insert(upload) {
            inner.waiting.push_back(upload);
            self.more.notify_one();
        }
    }

    /// The same; returns what is dropped for it.
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

    /// One is done with. Returns how long to pause where it failed.
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
                // Behind the others: what fails again and again keeps nobody.
                inner.waiting.push_back(upload);
                Some(PAUSE.saturating_mul(1 << (inner.failing - 1)).min(PAUSE_MAX))
            }
        };
        drop(inner);
        self.more.notify_one();
        self.less.notify_waiters();
        pause
    }

    /// Until nothing waits and nothing is under way.
    pub(super) async fn empty(&self) {
        loop {
            let notified = self.less.notified();
            if self.state().queued == 0 {
                return;
            }
            notified.await;
        }
    }

    /// Until somebody has to change something before anything is sent, or a remote could not be reached for too long.
    pub(super) async fn hopeless(&self) {
        // What was tried before may be mended by now.
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
            // While nothing is tried nothing is said either.
            let _ = tokio::time::timeout(PAUSE, notified).await;
        }
    }

    /// What a flush did not share; what is lost is told once.
    pub(super) fn unshared(&self) -> Unshared {
        let mut inner = self.inner();
        let why = inner.for_people.as_ref().or(inner.unreachable.as_ref()).cloned().unwrap_or_default();
        let mut trouble = why.into_bytes();
        trouble.truncate(TROUBLE_BYTES_MAX);
        Unshared { lost: std::mem::take(&mut inner.lost), trouble }
    }

    /// Let what waits after a failure be tried now.
    pub(super) fn hurry(&self) {
        let mut inner = self.inner();
        inner.failing = 0;
        inner.again = inner.again.map(|_| Instant::now());
        drop(inner);
        self.hurried.notify_waiters();
        self.more.notify_one();
    }

    /// Whether something is sent, and with success: what fails is left to the next time.
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

/// What became of one.
pub(super) enum End {
    /// It is there, with so many bytes that were not.
    Sent(u64),
    /// It was there.
    There,
    /// It is not in the store any more, or is none that others would believe.
    Needless,
    /// A service is in trouble, perhaps for a while.
    Failed(Failure),
    /// The same of one, and others have it.
    Partly(Failure),
    /// A service takes no such object, now or later.
    Refused(Failure),
}

/// Send whatever comes, for ever.
pub(super) async fn send_all(shared: Arc<Shared>) {
    let room = Arc::new(Semaphore::new(AT_ONCE));
    let pause = Arc::new(tokio::sync::Mutex::new(()));
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        // Somebody failed just now.
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
                    (shared.log)(&format!("a record cannot be sent: {why}"));
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

/// Send these, and wait for all of them; `tell` hears of what fails.
pub(super) async fn send_these(shared: &Arc<Shared>, all: Vec<Upload>, tell: &mut dyn FnMut(&str)) -> Moved {
    let send = |upload: Upload| {
        let shared = Arc::clone(shared);
        async move { shared.send(&upload).await }
    };
    by_hand(all, send, tell).await
}

/// What fails is sent again, for as long as it worked just before: a service that is in trouble for a moment, and then
/// left alone for a while, does not cost all the rest.
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
            // Not recorded yet by whoever it was handed over to; or evicted.
            Some(None) => End::Needless,
            None => End::Failed(Failure::ours("the store cannot be read")),
        }
    }

    /// A record of the store that may be sent, alone. Whether it is signed depends on its origin alone. What was handed
    /// over is sent only if larderd's own setting says so, also where it lies among the others.
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
        assert_eq!(queue.state().queued, 1, "what is there twice is sent once");
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
        assert!(!queue.is_busy(), "it need not stay for what fails");
        assert_eq!(runtime.block_on(queue.next()), upload(2), "the others first");
        assert_eq!(queue.done(upload(2), &failed), Some(PAUSE * 2));
        for n in 3..23 {
            runtime.block_on(queue.next());
            assert!(queue.done(upload(n), &failed).expect("pauses") <= PAUSE_MAX);
        }
        runtime.block_on(queue.next());
        assert_eq!(queue.done(upload(23), &End::Refused(Failure::ours(""))), None, "and is not tried again");
        runtime.block_on(queue.next());
        assert_eq!(queue.done(upload(24), &End::Sent(7)), None);
        assert!(queue.is_busy());
        assert_eq!((queue.state().sent, queue.state().queued), (1, WAITING_MAX as u64 - 2));
        let next = runtime.block_on(queue.next());
        assert_eq!(queue.done(next, &End::Partly(Failure::ours(""))), None, "the others go on");
        assert_eq!(queue.state().queued, WAITING_MAX as u64 - 2, "and it is not forgotten");
    }

    #[test]
    fn what_waiting_does_not_mend_ends_a_flush() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("builds");
        let queue = Queue::default();
        (1..=3).for_each(|n| queue.add(upload(n)));
        let next = || runtime.block_on(queue.next());
        let first = next();
        // A moment of trouble ends nothing.
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
        // A remote that takes no such object is told of once.
        queue.done(next(), &End::Refused(Failure::ours("405")));
        assert_eq!(queue.unshared().lost, 1);
        assert_eq!(queue.unshared().lost, 0);
        // What was sent ends the trouble.
        queue.done(next(), &End::Sent(1));
        assert_eq!(queue.unshared(), Unshared::default());
    }

    #[test]
    fn a_moment_of_trouble_does_not_cost_the_rest() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("builds");
        // Three fail: after one that was sent, or before any is.
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
