//! The copies to nearer remotes that run, and the records that may be copied.
//!
//! Unaware of: remotes, and how a record is copied.

use crate::record::Item;
use bytes::Bytes;
use larder_model::Digest;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// The most copies that run at once.
pub(crate) const AT_ONCE: usize = 8;
/// The most noted records that have not been fetched yet, and the most bytes of them.
pub(crate) const NOTED_MAX: usize = 1024;
pub(crate) const NOTED_BYTES_MAX: usize = 8 << 20;

/// The copies that run, and the records that may be copied.
pub(crate) struct Filling {
    /// One permit for each copy that may run.
    pub(crate) room: Arc<Semaphore>,
    pub(crate) noted: Mutex<VecDeque<Noted>>,
}

/// A record, and the numbers of the remotes that lack it.
pub(crate) struct Noted {
    pub(crate) weak: Digest,
    pub(crate) item: Item,
    pub(crate) lacking: Vec<usize>,
}

impl Default for Filling {
    fn default() -> Self {
        Filling { room: Arc::new(Semaphore::new(AT_ONCE)), noted: Mutex::default() }
    }
}

impl Filling {
    pub(crate) fn note(&self, new: Noted) {
        let size = |known: &Noted| known.item.bytes.as_ref().map_or(0, Bytes::len);
        let mut noted = self.noted.lock();
        noted.retain(|known| (known.weak, known.item.strong) != (new.weak, new.item.strong));
        noted.push_back(new);
        let mut bytes: usize = noted.iter().map(size).sum();
        while noted.len() > NOTED_MAX || bytes > NOTED_BYTES_MAX {
            bytes -= noted.pop_front().map_or(bytes, |oldest| size(&oldest));
        }
    }

    pub(crate) fn take(&self, weak: &Digest, strong: &Digest) -> Option<Noted> {
        let mut noted = self.noted.lock();
        let at = noted.iter().position(|known| (known.weak, known.item.strong) == (*weak, *strong))?;
        noted.remove(at)
    }
}
