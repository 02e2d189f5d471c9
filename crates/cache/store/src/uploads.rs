//! The queue of records to be sent to remotes. It survives the process that sends them.
//!
//! Each queued record is an empty file that is named by its two fingerprints. Its mtime is when the
//! record was queued. A record that is queued twice is sent once.
//!
//! Unaware of: remotes, when something is sent.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use larder_model::Fingerprint;

use crate::layout::entries;
use crate::{Store, StoreError};

/// The number of hexadecimal digits of a fingerprint.
const DIGITS: usize = 64;

/// A record to be sent: its weak fingerprint and its strong fingerprint.
pub type Upload = (Fingerprint, Fingerprint);

impl Store {
    /// Queues a record.
    pub fn queue_upload(&self, (weak, strong): &Upload) -> Result<(), StoreError> {
        let path = self.upload(weak, strong);
        self.open_to_write(&path).map(drop)
    }

    /// Returns the queued records, oldest first.
    pub fn queued_uploads(&self) -> Result<Vec<Upload>, StoreError> {
        let mut found: Vec<(SystemTime, Upload)> = Vec::new();
        for path in entries(&self.file("uploads"))? {
            if let (Some(upload), Ok(since)) = (named(&path), fs::symlink_metadata(&path).and_then(|m| m.modified())) {
                found.push((since, upload));
            }
        }
        found.sort();
        Ok(found.into_iter().map(|(_, upload)| upload).collect())
    }

    /// Removes a record from the queue: it was sent, or never will be.
    pub fn forget_upload(&self, (weak, strong): &Upload) {
        let _ = fs::remove_file(self.upload(weak, strong));
    }

    fn upload(&self, weak: &Fingerprint, strong: &Fingerprint) -> std::path::PathBuf {
        self.file("uploads").join(format!("{}{}", weak.hex(), strong.hex()))
    }
}

fn named(path: &Path) -> Option<Upload> {
    let (weak, strong) = path.file_name()?.to_str()?.split_at_checked(DIGITS)?;
    Some((weak.parse().ok()?, strong.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_model::Digest;

    #[test]
    fn what_is_queued_is_there_until_it_is_forgotten() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path()).expect("opens");
        assert_eq!(store.queued_uploads().expect("lists"), []);
        let all: Vec<Upload> = (0..3).map(|n| (Digest([n; 32]), Digest([n + 7; 32]))).collect();
        for (at, upload) in all.iter().enumerate().rev() {
            store.queue_upload(upload).expect("writes");
            let file = fs::File::open(store.upload(&upload.0, &upload.1)).expect("is there");
            file.set_modified(SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(at as u64)).expect("sets");
        }
        store.queue_upload(&all[1]).expect("is there already");
        fs::write(store.file("uploads").join("nonsense"), b"").expect("writes");
        assert_eq!(store.queued_uploads().expect("lists"), all);
        store.forget_upload(&all[0]);
        store.forget_upload(&all[0]);
        assert_eq!(store.queued_uploads().expect("lists"), all[1..]);
    }
}
