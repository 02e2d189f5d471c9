//! Filling: what came from a far remote is put on the nearer ones that lack it, where the next one asks first.
//!
//! Records, bundles and lists of what was used are passed on as they lay there, and only what is believed: a record keeps
//! the signature of whoever made it, and nobody signs what others made. It is done beside what is asked, a few at once;
//! what would have to wait is left out, and comes with the next who asks.
//!
//! Unaware of: whether anybody waits for what came.

use crate::record::Item;
use crate::remotes::Remotes;
use crate::{Key, Published, Put, whole};
use bytes::Bytes;
use larder_model::{Blob, Digest};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Semaphore;

/// Objects that are passed on at once.
const AT_ONCE: usize = 8;
/// Records that were found and may yet be fetched: so many, and so many bytes of them.
const NOTED_MAX: usize = 1024;
const NOTED_BYTES_MAX: usize = 8 << 20;

/// What may be passed on.
pub(crate) struct Filling {
    room: Arc<Semaphore>,
    noted: Mutex<VecDeque<Noted>>,
}

/// A record, and which remotes lack it.
struct Noted {
    weak: Digest,
    item: Item,
    lacking: Vec<usize>,
}

impl Default for Filling {
    fn default() -> Self {
        Filling { room: Arc::new(Semaphore::new(AT_ONCE)), noted: Mutex::default() }
    }
}

impl Filling {
    fn noted(&self) -> MutexGuard<'_, VecDeque<Noted>> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, new: Noted) {
        let size = |known: &Noted| known.item.bytes.as_ref().map_or(0, Bytes::len);
        let mut noted = self.noted();
        noted.retain(|known| (known.weak, known.item.strong) != (new.weak, new.item.strong));
        noted.push_back(new);
        let mut bytes: usize = noted.iter().map(size).sum();
        while noted.len() > NOTED_MAX || bytes > NOTED_BYTES_MAX {
            bytes -= noted.pop_front().map_or(bytes, |oldest| size(&oldest));
        }
    }

    fn take(&self, weak: &Digest, strong: &Digest) -> Option<Noted> {
        let mut noted = self.noted();
        let at = noted.iter().position(|known| (known.weak, known.item.strong) == (*weak, *strong))?;
        noted.remove(at)
    }
}

impl Remotes {
    /// Those before this one that may be written.
    pub(crate) fn nearer(&self, than: usize) -> impl Iterator<Item = usize> + '_ {
        (0..than).filter(|&at| !self.all[at].read_only && !self.would_not_believe_itself())
    }

    /// Note which of the believed records that remotes answered with are lacking on nearer ones that answered, too.
    pub(crate) fn note_lacking(&self, weak: &Digest, answers: &[Option<Vec<(Item, Bytes)>>]) {
        let has = |at: usize, strong: &Digest| {
            // Who did not answer may have it.
            answers[at].as_ref().is_none_or(|items| items.iter().any(|(item, _)| item.strong == *strong))
        };
        for (from, items) in answers.iter().enumerate().skip(1) {
            for (item, _) in items.iter().flatten() {
                let lacking: Vec<usize> = self.nearer(from).filter(|&at| !has(at, &item.strong)).collect();
                let nearest = (0..from).all(|at| answers[at].is_none() || !has(at, &item.strong));
                if nearest && !lacking.is_empty() {
                    // Bytes of its own: else the list that it stood in would be held for it.
                    let bytes = Bytes::copy_from_slice(item.bytes.as_deref().unwrap_or_default());
                    let item = Item { size: bytes.len() as u64, bytes: Some(bytes), ..item.clone() };
                    self.filling.note(Noted { weak: *weak, item, lacking });
                }
            }
        }
    }

    /// Pass a record on that came from a far remote and is here now, with what it needs, from the files that `blobs`
    /// names, to those nearer ones that lack it. Returns to how many.
    pub async fn fill(
        &self,
        weak: &Digest,
        strong: &Digest,
        needed: &[Blob],
        blobs: impl Fn(&Digest) -> Option<PathBuf> + Send + Sync,
    ) -> usize {
        let Some(noted) = self.filling.take(weak, strong) else { return 0 };
        let Ok(_room) = self.filling.room.try_acquire() else { return 0 };
        let items = [(noted.item, needed.to_vec())];
        let mut filled = 0;
        for at in noted.lacking {
            let mut published = Published::default();
            let done = self.publish_on(&*self.all[at].remote, weak, &items, &blobs, &mut published).await;
            filled += usize::from(done.is_ok() && published.entries > 0);
        }
        filled
    }

    /// Pass on a small object that came from a far remote, without waiting for it: what is lost is fetched from there again.
    pub(crate) fn pass_on(&self, at: usize, key: Key, bytes: Bytes, how: Put) {
        let Ok(room) = Arc::clone(&self.filling.room).try_acquire_owned() else { return };
        let remote = Arc::clone(&self.all[at].remote);
        tokio::spawn(async move {
            // Its trouble is counted where it is asked.
            let _ = remote.put(key, bytes.len() as u64, whole(bytes), how).await;
            drop(room);
        });
    }
}
