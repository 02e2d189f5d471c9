//! The uploads: those of the queue, and those of `larder remote push`.
//!
//! Unaware of: the order of the queue.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use larder_model::Origin;
use larder_store::{Remote, Upload};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::queue::{End, PAUSE};
use super::remote_client::{Failure, Sending};
use super::shared::{Shared, on_disk};
use super::single_record::{Alone, alone};

/// The number of records that are uploaded at once.
const AT_ONCE: usize = 32;
/// The number of records that are uploaded at once if a remote packs small objects, because those
/// that wait together go in one pack.
const AT_ONCE_PACKED: usize = 256;
/// How long `push` retries failures after the last successful upload.
const AGAIN: Duration = Duration::from_secs(15);

/// The counts of a `push` or `pull`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moved {
    pub(crate) records: u64,
    /// Records that the remote already had.
    pub(crate) there: u64,
    pub(crate) failed: u64,
    pub(crate) bytes: u64,
}

/// Uploads queued records, for ever.
pub(super) async fn send_all(shared: Arc<Shared>) {
    let room = Arc::new(Semaphore::new(shared.uploads_at_once()));
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
    by_hand(all, shared.uploads_at_once(), send, tell).await
}

/// Uploads records and retries a failure if an upload succeeded within [`AGAIN`] before it. So a
/// short outage in the middle does not lose the rest.
async fn by_hand<F: Future<Output = End> + Send + 'static>(
    all: Vec<Upload>,
    at_once: usize,
    send: impl Fn(Upload) -> F,
    tell: &mut dyn FnMut(&str),
) -> Moved {
    let mut moved = Moved::default();
    let mut under_way = JoinSet::new();
    let mut rest = VecDeque::from(all);
    let mut worked: Option<Instant> = None;
    loop {
        while under_way.len() < at_once
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
            Some(Ok((upload, End::Failed(failure))))
                if !failure.is_for_people && worked.is_some_and(|worked| worked.elapsed() < AGAIN) =>
            {
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
    fn uploads_at_once(&self) -> usize {
        if self.client().packs() { AT_ONCE_PACKED } else { AT_ONCE }
    }

    async fn send(self: &Arc<Self>, upload: &Upload) -> End {
        let (shared, record) = (Arc::clone(self), *upload);
        let read = on_disk(&Handle::current(), move || shared.read(&record)).await;
        match read {
            Some(Some(record)) => match self.client().publish(&record.manifest, &self.dir).await {
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

    use larder_model::Digest;

    use super::*;

    fn upload(n: u64) -> Upload {
        (Digest::of(&n.to_le_bytes()), Digest([0; 32]))
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
            let moved = runtime.block_on(by_hand((0..5).map(upload).collect(), AT_ONCE, send, &mut |_| told += 1));
            assert_eq!((moved.records, moved.failed, told), (records, failed, failed));
        }
    }
}
