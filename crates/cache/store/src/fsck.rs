//! Verification of the whole store. Every manifest must decode and have the fingerprint that it is
//! named by. Every blob must have the digest that it is named by. Every blob that a record needs
//! must exist.
//!
//! Unaware of: remotes.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use larder_model::{Digest, Manifest};

use crate::evict::blobs_of;
use crate::layout::{Contents, open_plain, read_if_there};
use crate::manifests::MANIFEST_BYTES_MAX;
use crate::{StatCache, Store, StoreError};

/// The result of `fsck`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FsckReport {
    /// The number of manifests that were read.
    pub manifests: u64,
    /// The number of their entries.
    pub entries: u64,
    /// The number of records of images that were read.
    pub images: u64,
    /// The number of blobs that were read.
    pub blobs: u64,
    /// The size of all manifests and blobs, in bytes.
    pub size_bytes: u64,
    /// A sentence for each problem. With `repair` the damaged file was removed, and the sentence
    /// says so.
    pub problems: Vec<String>,
}

impl Store {
    /// Verifies everything. If `repair` is set, removes damaged files. Calls `progress` with the
    /// number of files done and of all files.
    pub fn fsck(&self, repair: bool, progress: &mut dyn FnMut(u64, u64)) -> Result<FsckReport, StoreError> {
        self.inspect()?;
        let mut report = FsckReport::default();
        let mut manifests = self.list(Contents::Manifests)?;
        manifests.extend(self.list(Contents::HandedOver)?);
        let images = self.list(Contents::Images)?;
        let blobs = self.list(Contents::Blobs)?;
        let all = (manifests.len() + blobs.len() + images.len()) as u64;
        let mut done = 0;
        let (mut sound, mut unsound) = (HashSet::new(), HashSet::new());
        for (digest, path) in &blobs {
            report.blobs += 1;
            report.size_bytes += fs::metadata(path).map_or(0, |m| m.len());
            match open_plain(path).and_then(|(mut file, _)| StatCache::none().hash(&mut file)) {
                Ok(found) if found == *digest => {
                    sound.insert(*digest);
                }
                Ok(_) => {
                    unsound.insert(*digest);
                    damaged(&mut report, repair, path, "its bytes have another digest");
                }
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => damaged(&mut report, repair, path, &error.to_string()),
            }
            done += 1;
            progress(done, all);
        }
        for (digest, path) in &manifests {
            report.manifests += 1;
            if let Err(why) = self.manifest_is_sound(digest, path, &sound, &mut report) {
                damaged(&mut report, repair, path, &why);
            }
            done += 1;
            progress(done, all);
        }
        for (digest, path) in &images {
            if let Err(why) = self.image_is_sound(digest, path, &sound, &unsound) {
                damaged(&mut report, repair, path, &why);
            }
            report.images += 1;
            done += 1;
            progress(done, all);
        }
        Ok(report)
    }

    /// Checks a manifest, and that the blobs exist that its entries need. Adds it to the counts of
    /// `report`.
    fn manifest_is_sound(
        &self,
        digest: &Digest,
        path: &Path,
        sound: &HashSet<Digest>,
        report: &mut FsckReport,
    ) -> Result<(), String> {
        // There is none if it was evicted or replaced meanwhile.
        let bytes = read_if_there(path, MANIFEST_BYTES_MAX).map_err(|error| error.to_string())?;
        let Some(bytes) = bytes else { return Ok(()) };
        report.size_bytes += bytes.len() as u64;
        let manifest = Manifest::decode(&bytes).map_err(|error| error.to_string())?;
        if manifest.weak != *digest {
            return Err("is the manifest of another fingerprint".to_owned());
        }
        report.entries += manifest.entries.len() as u64;
        if manifest.entries.iter().any(|entry| entry.open().is_err()) {
            return Err("an entry cannot be read".to_owned());
        }
        // A blob that was written after the listing is checked now.
        match blobs_of(&manifest).iter().all(|blob| sound.contains(blob) || self.blob_is_sound(blob)) {
            true => Ok(()),
            false => Err("needs a blob that is missing or damaged".to_owned()),
        }
    }

    /// Checks the record of an image, and that the blobs exist without which it cannot be restored.
    /// Packs may be missing, because the packs of a remote's image are fetched when they are
    /// needed.
    fn image_is_sound(
        &self,
        digest: &Digest,
        path: &Path,
        sound: &HashSet<Digest>,
        unsound: &HashSet<Digest>,
    ) -> Result<(), String> {
        let bytes = read_if_there(path, MANIFEST_BYTES_MAX).map_err(|error| error.to_string())?;
        let Some(bytes) = bytes else { return Ok(()) };
        let (record, _) = crate::images::kept(&bytes).map_err(|error| error.to_string())?;
        if record.key.digest() != *digest {
            return Err("is the record of another key".to_owned());
        }
        if !record.needed().all(|blob| sound.contains(&blob.digest) || self.blob_is_sound(&blob.digest)) {
            return Err("needs a blob that is missing or damaged".to_owned());
        }
        let packs = self.packs_of(&record).map_err(|error| error.to_string())?;
        match record.blobs().chain(packs).any(|blob| unsound.contains(&blob.digest)) {
            true => Err("needs a blob that is damaged".to_owned()),
            false => Ok(()),
        }
    }
}

impl Store {
    /// Returns true if the blob exists and has the digest that it is named by.
    pub(crate) fn blob_is_sound(&self, digest: &Digest) -> bool {
        let file = open_plain(&self.path_of(Contents::Blobs, digest));
        file.and_then(|(mut file, _)| StatCache::none().hash(&mut file)).is_ok_and(|found| found == *digest)
    }
}

fn damaged(report: &mut FsckReport, repair: bool, path: &Path, why: &str) {
    let done = if repair && fs::remove_file(path).is_ok() { "; removed" } else { "" };
    report.problems.push(format!("{}: {why}{done}", path.display()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_reaches_the_end_if_a_manifest_cannot_be_read() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path()).expect("opens");
        let path = store.path_of(Contents::Manifests, &Digest([7; 32]));
        fs::create_dir_all(path.parent().expect("has one")).expect("makes");
        let file = fs::File::create(&path).expect("makes");
        file.set_len(MANIFEST_BYTES_MAX + 1).expect("grows");
        let mut last = (0, 0);
        let report = store.fsck(false, &mut |done, all| last = (done, all)).expect("reads");
        assert_eq!((last, report.problems.len()), ((1, 1), 1), "{:?}", report.problems);
    }
}
