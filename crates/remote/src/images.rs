//! Images on remotes: finding them by key or by prefix, and uploading them.
//!
//! An image's record is an item of several lists: the list of its key, and one list for each prefix
//! of its key. Fallback keys therefore work on services that cannot list objects. For example, the
//! image `deps-linux-1` is in the lists of `deps-linux-1`, `deps-` and `deps-linux-`.
//!
//! Unaware of: the local store, how an image is packed.

use crate::items::all_filled;
use crate::merge;
use crate::record::Item;
use crate::{Key, Published, Remote, RemoteError, Remotes, Trouble};
use futures::future::{join_all, try_join_all};
use larder_model::{Blob, Digest, ImageRecord};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// How many packs are uploaded to a remote at once.
const UPLOADS_AT_ONCE: usize = 16;

/// The record of an image, after its checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BelievedImage {
    /// The record.
    pub record: ImageRecord,
    /// The public key that signed it, if it is signed.
    pub signer: Option<Digest>,
}

impl Remotes {
    /// Returns the images in a list, whose digest stands for a key or a prefix. The lists of all
    /// remotes are merged; only trusted records count, and of each key only the newest. Fails if no
    /// remote has an image and one of them did not answer.
    pub async fn images(&self, list: &Digest) -> Result<Vec<BelievedImage>, RemoteError> {
        let asked = self.all.iter().map(|one| self.images_of(&*one.remote, list));
        let (mut newest, mut trouble) = (BTreeMap::<_, BelievedImage>::new(), None);
        for answer in join_all(asked).await {
            match answer {
                Err(error) => trouble = Some(error),
                Ok(images) => {
                    for image in images {
                        let known = newest.entry(image.record.key.clone()).or_insert(image.clone());
                        // If the same image is there twice, the one with a trace wins.
                        let newer = |image: &BelievedImage| (image.record.created_ms, image.record.trace.is_some());
                        if newer(&image) > newer(known) {
                            *known = image;
                        }
                    }
                }
            }
        }
        match trouble {
            Some(error) if newest.is_empty() => Err(error),
            _ => Ok(newest.into_values().collect()),
        }
    }

    async fn images_of(&self, remote: &dyn Remote, list: &Digest) -> Result<Vec<BelievedImage>, RemoteError> {
        let (list, damaged) = merge::read(remote, Key::images(*list)).await?;
        self.tally.add(crate::Share::Damaged, damaged);
        let mut believed = Vec::new();
        for item in all_filled(remote, list).await {
            match item.believed_image(self.keys()) {
                Ok((record, signer)) => believed.push(BelievedImage { record, signer }),
                Err(why) => self.tally.add(why.into(), 1),
            }
        }
        Ok(believed)
    }

    /// Uploads an image to every writable remote: first the missing ones of its blobs and `packs`,
    /// then its record. `blobs` returns the local file of a blob.
    pub async fn publish_image(
        &self,
        record: &ImageRecord,
        packs: &[Blob],
        blobs: impl Fn(&Digest) -> Option<PathBuf> + Send + Sync,
    ) -> Published {
        let mut published = Published::default();
        let all: BTreeMap<Digest, u64> =
            record.blobs().chain(packs.iter().copied()).map(|blob| (blob.digest, blob.size_bytes)).collect();
        for remote in self.writable() {
            if let Err(error) = self.publish_image_on(remote, record, &all, &blobs, &mut published).await {
                published.failed.push(error);
            }
        }
        published
    }

    async fn publish_image_on(
        &self,
        remote: &dyn Remote,
        record: &ImageRecord,
        all: &BTreeMap<Digest, u64>,
        blobs: &(impl Fn(&Digest) -> Option<PathBuf> + Send + Sync),
        published: &mut Published,
    ) -> Result<(), RemoteError> {
        let (lacking, trouble) = self.send_missing(remote, all, blobs, UPLOADS_AT_ONCE, published).await?;
        if let Some(digest) = lacking.first() {
            let why = "the image is not published: not all of its blobs could be uploaded";
            let failed = || RemoteError::failed(&remote.name().into(), Some(Key::blob(*digest)), Trouble::Unable, why);
            return Err(trouble.unwrap_or_else(failed));
        }
        let item = [Item::of_image(record, self.keys())];
        // The list of the key is first, so that an image that is found by a prefix is found by its
        // key, too.
        self.add(remote, Key::images(record.key.digest()), &item).await?;
        try_join_all(record.key.lists().into_iter().map(|list| self.add(remote, Key::images(list), &item))).await?;
        published.entries += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Memory, Options, stacked};
    use larder_model::{PackList, SavedPath, listed_prefix};
    use std::sync::Arc;

    fn record(key: &str, created_ms: u64, blob: Blob) -> ImageRecord {
        let saved = vec![SavedPath { path: b"d".to_vec(), tree: blob }];
        let key = key.parse().expect("a key");
        ImageRecord { key, created_ms, saved, packs: blob, pieces: blob, files: 1, size_bytes: 2, trace: None }
    }

    fn remotes(memory: &Arc<Memory>, keys: crate::Keys) -> Remotes {
        let options = Options { keys, settle: std::time::Duration::ZERO, ..Options::default() };
        Remotes::of(vec![(stacked(memory.clone(), &options), false)], &options)
    }

    async fn listed(remotes: &Remotes, list: &Digest) -> Vec<ImageRecord> {
        remotes.images(list).await.expect("the remotes answer").into_iter().map(|image| image.record).collect()
    }

    #[tokio::test]
    async fn an_image_is_found_by_key_and_prefix_once_it_is_whole() {
        let dir = tempfile::tempdir().expect("a directory");
        let bytes = PackList::default().encode();
        let file = dir.path().join("blob");
        std::fs::write(&file, &bytes).expect("writes");
        let blob = Blob { digest: Digest::of(&bytes), size_bytes: bytes.len() as u64 };
        let memory = Arc::new(Memory::new("memory"));
        let far = remotes(&memory, crate::Keys::default());
        let (old, new) = (record("deps-a-1", 1, blob), record("deps-b-2", 2, blob));
        for image in [&old, &new] {
            let published = far.publish_image(image, &[], |_| Some(file.clone())).await;
            assert!(published.failed.is_empty() && published.entries == 1, "{published:?}");
        }
        assert_eq!(listed(&far, &old.key.digest()).await, std::slice::from_ref(&old));
        let found = listed(&far, &listed_prefix("deps-").expect("is listed")).await;
        assert_eq!(found, [old.clone(), new.clone()]);
        let again = ImageRecord { created_ms: 3, ..old.clone() };
        far.publish_image(&again, &[], |_| Some(file.clone())).await;
        assert_eq!(listed(&far, &old.key.digest()).await, std::slice::from_ref(&again));

        // A delayed writer, or one that adds a trace, does not replace a newer image by an older
        // one.
        far.publish_image(&old, &[], |_| Some(file.clone())).await;
        far.publish_image(&ImageRecord { trace: Some(blob), ..old.clone() }, &[], |_| Some(file.clone())).await;
        assert_eq!(listed(&far, &old.key.digest()).await, std::slice::from_ref(&again));
        let traced = ImageRecord { trace: Some(blob), ..again.clone() };
        far.publish_image(&traced, &[], |_| Some(file.clone())).await;
        assert_eq!(listed(&far, &old.key.digest()).await, [traced]);

        let gone = Blob { digest: Digest([9; 32]), size_bytes: 5 };
        let published = far.publish_image(&record("other-1", 1, gone), &[], |_| None).await;
        assert_eq!((published.failed.len(), published.entries), (1, 0));
        assert!(listed(&far, &listed_prefix("other-").expect("is listed")).await.is_empty());

        let ours = crate::Keys::default().sign_with(&"11".repeat(32)).expect("a key");
        let wary = remotes(&memory, ours);
        assert!(listed(&wary, &old.key.digest()).await.is_empty());
        assert_eq!(wary.tally().of(crate::Share::Unsigned), 1);
        wary.publish_image(&again, &[], |_| Some(file.clone())).await;
        assert_eq!(listed(&wary, &old.key.digest()).await, [again]);
    }
}
