//! Filling: objects that only a farther remote had are copied to the nearer ones, so that the next
//! machine gets them from there.
//!
//! 1. A lookup notes which records nearer remotes lack ([`Remotes::note_lacking`]).
//! 2. Once such a record and its blobs are in the local store, [`Remotes::fill`] uploads them.
//! 3. Bundles and lists of used fingerprints are copied at once, without waiting
//!    ([`Remotes::pass_on`]).
//!
//! Objects are copied unchanged and only if they are trusted. A record keeps the signature of its
//! maker, and this machine does not sign what it did not make. At most
//! [`AT_ONCE`](crate::filling::AT_ONCE) copies run at once. A copy that would have to wait for its turn is left out; a later lookup notes it again.
//!
//! Unaware of: whether a build waits for the result.

use crate::filling::Noted;
use crate::record::Item;
use crate::remotes::Remotes;
use crate::{Key, Published, Put, whole};
use bytes::Bytes;
use larder_model::{Blob, Digest};
use std::path::PathBuf;
use std::sync::Arc;

impl Remotes {
    /// Returns the numbers of the remotes before `than` that may be written. Returns none if this
    /// machine would not trust its own records.
    pub(crate) fn nearer(&self, than: usize) -> impl Iterator<Item = usize> + '_ {
        (0..than).filter(|&at| !self.all[at].read_only && !self.would_not_believe_itself())
    }

    /// Notes which of the trusted records that remotes answered with are missing on nearer remotes.
    /// `answers` has one item for each remote; `None` means that it did not answer.
    pub(crate) fn note_lacking(&self, weak: &Digest, answers: &[Option<Vec<(Item, Bytes)>>]) {
        let has = |at: usize, strong: &Digest| {
            // A remote that did not answer may have the record.
            answers[at].as_ref().is_none_or(|items| items.iter().any(|(item, _)| item.strong == *strong))
        };
        for (from, items) in answers.iter().enumerate().skip(1) {
            for (item, _) in items.iter().flatten() {
                let lacking: Vec<usize> = self.nearer(from).filter(|&at| !has(at, &item.strong)).collect();
                let nearest = (0..from).all(|at| answers[at].is_none() || !has(at, &item.strong));
                if nearest && !lacking.is_empty() {
                    // A copy, because a slice would keep the whole list in memory.
                    let bytes = Bytes::copy_from_slice(item.bytes.as_deref().unwrap_or_default());
                    let item = Item { size: bytes.len() as u64, bytes: Some(bytes), ..item.clone() };
                    self.filling.note(Noted { weak: *weak, item, lacking });
                }
            }
        }
    }

    /// Uploads a record to the nearer remotes that were noted to lack it, with the blobs that it
    /// names. `blobs` returns the local file of a blob. Returns the number of remotes that have the
    /// record now.
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

    /// Starts to copy a small object to the remote number `at`, and does not wait for it. If the
    /// copy fails, the object is fetched from the farther remote again.
    pub(crate) fn pass_on(&self, at: usize, key: Key, bytes: Bytes, how: Put) {
        let Ok(room) = Arc::clone(&self.filling.room).try_acquire_owned() else { return };
        let remote = Arc::clone(&self.all[at].remote);
        tokio::spawn(async move {
            // The error is not lost: the remote's `Log` counts it.
            let _ = remote.put(key, bytes.len() as u64, whole(bytes), how).await;
            drop(room);
        });
    }
}
