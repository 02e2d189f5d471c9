//! Finding the image for a key: exact, by a fallback, or not at all.
//!
//! Unaware of: remotes; the caller passes their records to [`newest_of`].

use larder_model::{ImageKey, ImageRecord};
use larder_store::{Store, StoreError};

/// The result of a search for a key and its fallbacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundImage {
    /// The image of the key itself.
    Exact(ImageRecord),
    /// The newest image whose key begins with a fallback. The first fallback with an image counts.
    Fallback(ImageRecord),
    /// There is no image.
    Miss,
}

impl FoundImage {
    /// Returns the image, if there is one.
    pub fn record(&self) -> Option<&ImageRecord> {
        match self {
            FoundImage::Exact(record) | FoundImage::Fallback(record) => Some(record),
            FoundImage::Miss => None,
        }
    }

    /// Returns the word for it in messages.
    pub fn word(&self) -> &'static str {
        match self {
            FoundImage::Exact(_) => "exact",
            FoundImage::Fallback(_) => "fallback",
            FoundImage::Miss => "miss",
        }
    }
}

/// Searches the store. Images with a missing blob are ignored.
///
/// For example, with the fallbacks `deps-x-` and `deps-` the newest image `deps-x-…` is returned,
/// and only if there is none, the newest image `deps-…`.
pub fn find_here(store: &Store, key: &ImageKey, fallbacks: &[String]) -> Result<FoundImage, StoreError> {
    let is_whole = |record: &ImageRecord| record.needed().all(|blob| store.has_blob(&blob));
    if let Some(record) = store.image(key)?.filter(is_whole) {
        return Ok(FoundImage::Exact(record));
    }
    if fallbacks.is_empty() {
        return Ok(FoundImage::Miss);
    }
    let all: Vec<ImageRecord> =
        store.images()?.into_iter().map(|image| image.record).filter(|record| is_whole(record)).collect();
    let first = fallbacks.iter().find_map(|fallback| newest_of(&all, fallback));
    Ok(first.map_or(FoundImage::Miss, |record| FoundImage::Fallback(record.clone())))
}

/// Returns the newest of these images whose key begins with `fallback`.
pub fn newest_of<'a>(records: &'a [ImageRecord], fallback: &str) -> Option<&'a ImageRecord> {
    let fitting = records.iter().filter(|record| record.key.text().starts_with(fallback));
    fitting.max_by(|a, b| (a.created_ms, &a.key).cmp(&(b.created_ms, &b.key)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_model::Blob;

    fn kept(store: &Store, key: &str, created_ms: u64) -> ImageRecord {
        let blob: Blob =
            store.put_blob(&mut larder_model::PackList::new(vec![]).expect("few").encode().as_slice()).expect("w");
        let key = key.parse().expect("a key");
        let record = ImageRecord {
            key,
            created_ms,
            saved: vec![],
            packs: blob,
            pieces: blob,
            files: 0,
            size_bytes: 0,
            trace: None,
        };
        store.keep_image(&record, larder_model::Origin::Own, true).expect("keeps");
        record
    }

    #[test]
    fn the_first_fallback_and_of_it_the_newest() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path()).expect("opens");
        let (a, b, c) = (kept(&store, "deps-x-1", 5), kept(&store, "deps-x-2", 7), kept(&store, "deps-y-1", 9));
        let check = |key: &str, fallbacks: &[&str], expect: FoundImage| {
            let fallbacks: Vec<String> = fallbacks.iter().map(|text| (*text).to_owned()).collect();
            let found = find_here(&store, &key.parse().expect("a key"), &fallbacks).expect("reads");
            assert_eq!(found, expect, "{key} {fallbacks:?}");
        };
        check("deps-x-1", &["deps-y-"], FoundImage::Exact(a));
        check("deps-x-3", &["deps-x-", "deps-"], FoundImage::Fallback(b.clone()));
        check("deps-x-3", &["deps-z-", "deps-"], FoundImage::Fallback(c.clone()));
        check("deps-x-3", &["deps-z-", "eps-"], FoundImage::Miss);
        check("deps-x-3", &[], FoundImage::Miss);
        std::fs::remove_file(store.blob_file(&c.packs.digest)).expect("removes");
        check("deps-x-1", &["deps-"], FoundImage::Miss);
    }
}
