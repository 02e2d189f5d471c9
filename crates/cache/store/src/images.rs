//! Images: the record of each key, which images are in use, and the files that mounts need.
//!
//! ```text
//! images/records/ab/cd…   u8 0 saved here · 1 fetched, unsigned · 2 fetched, digest: the signer's
//!                         public key; then the ImageRecord of the key whose digest is abcd…;
//!                         its mtime is its last use
//! images/newest           when the newest image of each key was saved (newest.rs)
//! images/live/IMAGE/      files for mounts of an image; for its saved path N:
//!                         metadata2-N-BOOT, whole-N-BOOT, data-N,
//!                         lazy-N (what was filled), served-N (the same, for FUSE servers),
//!                         confined-N (the same, for FUSE servers without rights),
//!                         squashfs-N-USER-GROUP-BOOT; and its record
//! images/mounts/          what is mounted (crates/image/mount/src/places)
//! images/broker.sock      the socket of the process that mounts for this user
//! images/staging/         archives that are being unpacked
//! images/fetching/        the temporary files of processes without rights, which see it as tmp/
//! locks/image-ab          locked shared by each process that uses an image ab…
//! locks/broker            locked by the process that mounts for this user
//! ```
//! Trees, lists and packs are blobs. A record is written after them, and only if all of them exist.
//! An eviction keeps images whose lock is held, and images that are noted as mounted. Files are not
//! synced to disk, and the kernel does not verify what it reads of a mounted file system. So such
//! files are only used until the next boot (BOOT).
//!
//! Unaware of: the content of trees and packs, how an image is mounted.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use larder_model::{Blob, DecodeError, Digest, ImageKey, ImageRecord, Origin, PackList, Reader, Writer};

use crate::layout::{Contents, entries, if_there, make_directory, read_if_there, read_plain};
use crate::{Store, StoreError};

/// The maximum size of a record, in bytes. It has a few hundred bytes, and its paths.
const RECORD_BYTES_MAX: u64 = 1 << 20;
/// The maximum size of a list of packs, in bytes, which is enough for 16 TiB.
pub(crate) const PACKS_BYTES_MAX: u64 = 1 << 30;

/// An image in the store.
#[derive(Clone, Debug)]
pub struct StoredImage {
    /// The record of the image.
    pub record: ImageRecord,
    /// How the record came into the store.
    pub origin: Origin,
    /// When the image was last used.
    pub used: SystemTime,
}

/// The use of an image by this process. While it lives, the image is not evicted.
#[derive(Debug)]
pub struct Lease(#[expect(dead_code, reason = "it is locked")] File);

/// The images that are in use. While it lives, no process can begin to use another image.
#[derive(Default)]
pub(crate) struct UsedImages {
    /// For each image, the blobs that it needs.
    pub(crate) used: HashMap<Digest, Vec<Digest>>,
    claims: HashMap<PathBuf, File>,
}

/// The parts of a store that a process without rights needs to fetch images.
#[derive(Clone, Debug)]
pub struct FetcherView {
    /// What it reads.
    pub readable: Vec<PathBuf>,
    /// What it writes, each with the path at which it has to be shown to that process.
    pub writable: Vec<(PathBuf, PathBuf)>,
}

/// A file or directory that mounts of an image need. A number is that of the saved path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Live {
    /// The file system without the content of files.
    Metadata(usize),
    /// The file system with the content of files.
    Whole(usize),
    /// The content of files, as far as it was fetched.
    Data(usize),
    /// A directory that says what was filled and what was accessed.
    Lazy(usize),
    /// Such a directory for a FUSE server, which does not hold back reads.
    Served(usize),
    /// What a FUSE server without rights has filled. No other process writes to this directory.
    Confined(usize),
    /// The saved path as a squashfs file. Files of the user who saved it belong to this user and
    /// group.
    Squashfs(usize, (u32, u32)),
    /// The record of the image. It is kept because the key may get another image while this one is
    /// mounted.
    Record,
}

impl Live {
    /// Returns the beginning of the name, and whether the file is for one boot only.
    fn name(self) -> (String, bool) {
        match self {
            Live::Metadata(number) => (format!("metadata2-{number}-"), true),
            Live::Whole(number) => (format!("whole-{number}-"), true),
            Live::Data(number) => (format!("data-{number}"), false),
            Live::Lazy(number) => (format!("lazy-{number}"), false),
            Live::Served(number) => (format!("served-{number}"), false),
            Live::Confined(number) => (format!("confined-{number}"), false),
            Live::Squashfs(number, (user, group)) => (format!("squashfs-{number}-{user}-{group}-"), true),
            Live::Record => (RECORD.to_owned(), false),
        }
    }
}

const RECORD: &str = "record";

impl Store {
    /// Returns the record of a key's image, or `None` if there is none or it is damaged.
    pub fn image(&self, key: &ImageKey) -> Result<Option<ImageRecord>, StoreError> {
        let path = self.path_of(Contents::Images, &key.digest());
        let bytes = read_if_there(&path, RECORD_BYTES_MAX).map_err(StoreError::reading(&path))?;
        let record = bytes.and_then(|bytes| kept(&bytes).ok()).map(|(record, _)| record);
        Ok(record.filter(|record| record.key == *key))
    }

    /// Returns all images, the newest first.
    pub fn images(&self) -> Result<Vec<StoredImage>, StoreError> {
        let mut found = Vec::new();
        for (digest, path) in self.list(Contents::Images)? {
            let used = fs::metadata(&path).and_then(|meta| meta.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
            let read = read_plain(&path, RECORD_BYTES_MAX).ok().and_then(|bytes| kept(&bytes).ok());
            let read = read.filter(|(record, _)| record.key.digest() == digest);
            found.extend(read.map(|(record, origin)| StoredImage { record, origin, used }));
        }
        found.sort_by(|a, b| (b.record.created_ms, &b.record.key).cmp(&(a.record.created_ms, &a.record.key)));
        Ok(found)
    }

    /// Stores the record of an image, in place of the previous one of its key. All blobs that it
    /// needs must be in the store. If `complete` is false, packs and the list of pieces may be
    /// missing, because a remote has them.
    pub fn keep_image(&self, record: &ImageRecord, origin: Origin, complete: bool) -> Result<(), StoreError> {
        let mut named: Box<dyn Iterator<Item = Blob> + '_> =
            if complete { Box::new(record.blobs()) } else { Box::new(record.needed()) };
        if let Some(blob) = named.find(|blob| !self.has_blob(blob)) {
            return Err(StoreError::BlobMissing(blob.digest));
        }
        if complete && let Some(blob) = self.packs_of(record)?.iter().find(|blob| !self.has_blob(blob)) {
            return Err(StoreError::BlobMissing(blob.digest));
        }
        self.put_file(&self.path_of(Contents::Images, &record.key.digest()), &to_keep(record, origin))
    }

    /// Returns how the image of a key came into the store, or `None` if there is none.
    pub fn image_origin(&self, key: &ImageKey) -> Option<Origin> {
        let bytes = read_plain(&self.path_of(Contents::Images, &key.digest()), RECORD_BYTES_MAX).ok()?;
        Some(kept(&bytes).ok()?.1)
    }

    /// Removes images that were fetched and that `trust`, the setting `remote_trust`, no longer
    /// believes. Mounts of them stay. Returns their keys.
    pub fn drop_untrusted_images(&self, trust: &[String]) -> Result<Vec<ImageKey>, StoreError> {
        let mut dropped = Vec::new();
        for image in self.images()? {
            if !image.origin.is_believed(trust) && self.remove_image(&image.record.key)? {
                dropped.push(image.record.key);
            }
        }
        Ok(dropped)
    }

    /// Notes that an image was used.
    pub fn note_image_use(&self, key: &ImageKey) {
        self.set_used(Contents::Images, &key.digest());
    }

    /// Sets the mtime of a file to now.
    fn set_used(&self, contents: Contents, digest: &Digest) {
        if let Ok(file) = OpenOptions::new().write(true).open(self.path_of(contents, digest)) {
            let _ = file.set_modified(SystemTime::now());
        }
    }

    /// Removes a key, and forgets when its newest image was saved. Blobs that only this image
    /// needed are removed by the next eviction. Returns false if there was no such key.
    pub fn drop_image(&self, key: &ImageKey) -> Result<bool, StoreError> {
        self.forget_newest_image(key)?;
        self.remove_image(key)
    }

    fn remove_image(&self, key: &ImageKey) -> Result<bool, StoreError> {
        let path = self.path_of(Contents::Images, &key.digest());
        Ok(if_there(fs::remove_file(&path)).map_err(StoreError::writing(&path))?.is_some())
    }

    /// Begins to use an image, so that it is not evicted. The caller must look for the image's
    /// blobs after this, not before.
    pub fn lease_image(&self, image: &Digest) -> Result<Lease, StoreError> {
        let path = self.lease_path(image);
        let file = self.open_to_write(&path)?;
        file.lock_shared().map_err(StoreError::writing(&path))?;
        Ok(Lease(file))
    }

    /// Takes the lock that keeps other processes from using an image. Returns `None` if one uses
    /// it.
    pub(crate) fn claim_image(&self, image: &Digest) -> Option<File> {
        let path = self.lease_path(image);
        let file = self.open_to_write(&path).ok()?;
        larder_sys::try_write_lock(&file).is_ok_and(|locked| locked).then_some(file)
    }

    fn lease_path(&self, image: &Digest) -> PathBuf {
        self.file("locks").join(format!("image-{}", &image.hex()[..2]))
    }

    /// Returns the path of a file for mounts of an image. The file may not exist yet, but its
    /// directory does.
    pub fn live_file(&self, image: &Digest, which: Live) -> Result<PathBuf, StoreError> {
        let dir = self.live_dir(image);
        make_directory(&dir)?;
        Ok(match which.name() {
            (name, false) => dir.join(name),
            (name, true) => dir.join(name + &boot()?),
        })
    }

    /// Writes a file for mounts, completely or not at all, and removes those of earlier boots.
    pub fn put_live<E: From<StoreError>>(
        &self,
        image: &Digest,
        which: Live,
        write: impl FnOnce(&File) -> Result<(), E>,
    ) -> Result<PathBuf, E> {
        let path = self.live_file(image, which)?;
        let temporary = self.temporary()?;
        write(&temporary.file)?;
        temporary.place(&path)?;
        self.forget_earlier(image, which);
        Ok(path)
    }

    /// Removes the versions of a file for mounts that are from earlier boots or from earlier
    /// versions of larder, whose names had no boot.
    pub fn forget_earlier(&self, image: &Digest, which: Live) {
        let ((name, true), Ok(now)) = (which.name(), self.live_file(image, which)) else { return };
        let is_earlier = |path: &PathBuf| {
            let other = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            *path != now && (other.starts_with(&name) || other == name.trim_end_matches('-'))
        };
        // A process that has one mounted keeps it open.
        entries(&self.live_dir(image)).unwrap_or_default().iter().filter(|path| is_earlier(path)).for_each(|path| {
            let _ = fs::remove_file(path);
        });
    }

    /// Returns the directories in which files for mounts are made and archives are unpacked. What
    /// killed processes left there can be removed.
    pub fn image_workplaces(&self) -> Vec<PathBuf> {
        let live = self.live_images().unwrap_or_default().into_values();
        live.chain([self.file("images").join("staging")]).collect()
    }

    /// Returns the path of the socket of the process that mounts for this user, and of the
    /// directory where it notes its mounts. Their parent directory is created.
    pub fn image_broker(&self) -> Result<(PathBuf, PathBuf), StoreError> {
        let dir = self.file("images");
        make_directory(&dir)?;
        Ok((dir.join("broker.sock"), dir.join("mounts")))
    }

    /// Returns the record of the image to which the file for mounts `file` belongs. Returns `None`
    /// if it is no such file, or the record cannot be read.
    pub fn live_record(&self, file: &Path) -> Option<ImageRecord> {
        let dir = file.parent()?;
        let record = ImageRecord::decode(&read_plain(&dir.join(RECORD), RECORD_BYTES_MAX).ok()?).ok()?;
        let same = |left: &Path, right: &Path| Some(left.canonicalize().ok()? == right.canonicalize().ok()?);
        same(dir, &self.live_dir(&record.image())).filter(|same| *same).map(|_| record)
    }

    /// Returns the record of an image that was mounted, even if its key has another image now.
    /// Returns `None` if there is none, or it cannot be read.
    pub fn live_image(&self, image: &Digest) -> Option<ImageRecord> {
        self.live_record(&self.live_dir(image).join(RECORD)).filter(|record| record.image() == *image)
    }

    /// Returns the images that are in use or mounted, except for those in `not`. The result also
    /// keeps other processes from beginning to use the remaining images. Images of which only files
    /// for mounts are left are included.
    pub(crate) fn used_images(&self, not: &HashSet<Digest>) -> Result<UsedImages, StoreError> {
        let live = self.live_images()?.into_keys().map(|image| (image, self.live_image(&image)));
        let stored = self.images()?.into_iter().map(|stored| (stored.record.image(), Some(stored.record)));
        let mut all: HashMap<Digest, Option<ImageRecord>> = live.chain(stored).collect();
        all.retain(|image, _| !not.contains(image));
        let mut found = UsedImages::default();
        for image in all.keys() {
            // Several images have the same lock.
            let lock = self.lease_path(image);
            if !found.claims.contains_key(&lock)
                && let Some(claim) = self.claim_image(image)
            {
                found.claims.insert(lock, claim);
            }
        }
        // This is read after taking the locks, because a process that mounts an image holds its
        // lock until the mount is noted.
        let mounted = self.mounted_images()?;
        for (image, record) in all {
            if found.claims.contains_key(&self.lease_path(&image)) && !mounted.contains(&image) {
                continue;
            }
            let needed = record.map(|record| {
                let packs = self.packs_of(&record).unwrap_or_default();
                record.blobs().chain(packs).map(|blob| blob.digest).collect::<Vec<_>>()
            });
            found.used.insert(image, needed.unwrap_or_default());
        }
        Ok(found)
    }

    /// Returns the images whose mounts outlive the process that mounted them. The process that
    /// serves such a mount may not hold a lock yet.
    fn mounted_images(&self) -> Result<HashSet<Digest>, StoreError> {
        let now = boot().ok();
        let image = |dir: PathBuf| {
            let text = String::from_utf8(read_plain(&dir.join(RECORD), RECORD_BYTES_MAX).ok()?).ok()?;
            let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            let is_over =
                now.as_deref().is_some_and(|now| value("boot") != Some(now)) || value("lease") == Some("held");
            Path::new(value("image").filter(|_| !is_over)?).parent()?.file_name()?.to_str()?.parse::<Digest>().ok()
        };
        Ok(entries(&self.file("images").join("mounts"))?.into_iter().filter_map(image).collect())
    }

    /// Returns the directories with files for mounts, by image.
    pub(crate) fn live_images(&self) -> Result<HashMap<Digest, PathBuf>, StoreError> {
        let image = |path: &Path| path.file_name()?.to_str()?.parse::<Digest>().ok();
        let all = entries(&self.live_top())?.into_iter();
        Ok(all.filter_map(|path| Some((image(&path)?, path))).collect())
    }

    /// Returns a directory in which archives are unpacked before they are saved. It is created.
    pub fn image_staging(&self) -> Result<PathBuf, StoreError> {
        let dir = self.file("images").join("staging");
        make_directory(&dir)?;
        Ok(dir)
    }

    /// Returns what a process without rights needs to fetch an image, after creating it. Of files for
    /// mounts it sees only those of this image, and cannot write them.
    pub fn fetcher_view(&self, image: &Digest) -> Result<FetcherView, StoreError> {
        let images = self.file("images");
        let [records, fetching, blobs] = [self.kind_dir(Contents::Images), images.join("fetching"), self.file("blobs")];
        [&records, &fetching, &blobs].into_iter().try_for_each(|path| make_directory(path))?;
        let newest = images.join("newest");
        self.open_to_write(&newest)?;
        drop(self.lease_image(image)?);
        let as_it_is = |path: PathBuf| (path.clone(), path);
        let own = [blobs, records, newest, self.lease_path(image)].map(as_it_is);
        let writable = own.into_iter().chain([(fetching, self.file("tmp"))]).collect();
        Ok(FetcherView { readable: vec![self.live_dir(image)], writable })
    }

    /// Returns what a process without rights needs to evict: everything, but it can only read files
    /// for mounts and what is mounted. The caller removes the former with [`Store::remove_live`].
    pub fn evictor_view(&self) -> Result<FetcherView, StoreError> {
        let images = self.file("images");
        let inside = ["records", "newest", "fetching"].map(|name| images.join(name));
        let writable = [self.base().to_owned()].into_iter().chain(inside).filter(|path| path.exists());
        Ok(FetcherView { readable: vec![images], writable: writable.map(|path| (path.clone(), path)).collect() })
    }

    /// Returns the images of which only files for mounts are left, and that are not in use.
    pub fn unneeded_live(&self) -> Result<Vec<Digest>, StoreError> {
        let mut live = self.live_images()?;
        let used = self.used_images(&HashSet::new())?.used;
        let stored: HashSet<Digest> = self.images()?.iter().map(|stored| stored.record.image()).collect();
        live.retain(|image, _| !used.contains_key(image) && !stored.contains(image));
        Ok(live.into_keys().collect())
    }

    /// Removes the files for mounts of an image, unless it is in use.
    pub fn remove_live(&self, image: &Digest) -> Result<(), StoreError> {
        let Some(_claim) = self.claim_image(image) else { return Ok(()) };
        let dir = self.live_dir(image);
        if self.mounted_images()?.contains(image) || !dir.exists() {
            return Ok(());
        }
        larder_sys::remove_tree(&dir).map_err(StoreError::writing(&dir))
    }

    /// Returns a new directory in which something may be made. An eviction removes it if the process
    /// is killed.
    pub fn workplace(&self) -> Result<PathBuf, StoreError> {
        let dir = self.temporary_path();
        make_directory(&dir)?;
        Ok(dir)
    }

    /// Takes the lock of the process that mounts for this user, which is held until the file is
    /// closed. Returns `None` if another process has it.
    pub fn lock_image_broker(&self) -> Result<Option<File>, StoreError> {
        self.try_lock("broker")
    }

    /// Returns true if a process has the lock of [`Store::lock_image_broker`].
    pub fn image_broker_runs(&self) -> bool {
        self.is_locked("broker")
    }

    /// Returns the directory with the files for mounts: one subdirectory for each image.
    pub(crate) fn live_top(&self) -> PathBuf {
        self.file("images").join("live")
    }

    pub(crate) fn live_dir(&self, image: &Digest) -> PathBuf {
        self.live_top().join(image.hex())
    }

    /// Returns the packs of an image, from its list of packs.
    pub fn packs_of(&self, record: &ImageRecord) -> Result<Vec<Blob>, StoreError> {
        let path = self.path_of(Contents::Blobs, &record.packs.digest);
        let bytes = read_plain(&path, PACKS_BYTES_MAX).map_err(StoreError::reading_blob(&path, record.packs.digest))?;
        let damaged = |source| StoreError::Damaged { path: path.clone(), source };
        Ok(PackList::decode(&bytes).map_err(damaged)?.packs.iter().map(|pack| pack.blob).collect())
    }

    /// Returns the bytes of a blob, after checking their digest. Returns an error if there are more
    /// than `limit_bytes`.
    pub fn blob_bytes(&self, blob: &Blob, limit_bytes: u64) -> Result<Vec<u8>, StoreError> {
        let path = self.path_of(Contents::Blobs, &blob.digest);
        let bytes = read_plain(&path, limit_bytes.min(blob.size_bytes)).map_err(|error| match error.kind() {
            io::ErrorKind::Other => {
                // If the bytes have the digest, the size in the record is wrong, not the file.
                if !self.blob_is_sound(&blob.digest) {
                    let _ = fs::remove_file(&path);
                }
                StoreError::BlobDamaged(blob.digest)
            }
            _ => StoreError::reading_blob(&path, blob.digest)(error),
        })?;
        match Digest::of(&bytes) == blob.digest {
            true => Ok(bytes),
            false => {
                let _ = fs::remove_file(&path);
                Err(StoreError::BlobDamaged(blob.digest))
            }
        }
    }

    /// Updates the mtime of a blob that is needed again, because an eviction keeps young blobs.
    pub fn freshen_blob(&self, digest: &Digest) {
        self.set_used(Contents::Blobs, digest);
    }
}

/// Encodes the record of an image as a file in the store.
fn to_keep(record: &ImageRecord, origin: Origin) -> Vec<u8> {
    let mut w = Writer::default();
    match origin {
        Origin::Fetched(None) => w.u8(1),
        Origin::Fetched(Some(signer)) => {
            w.u8(2);
            w.digest(&signer);
        }
        // Images are never handed over.
        Origin::Own | Origin::HandedOver => w.u8(0),
    }
    w.bytes.extend_from_slice(&record.encode());
    w.bytes
}

/// Decodes such a file.
pub(crate) fn kept(bytes: &[u8]) -> Result<(ImageRecord, Origin), DecodeError> {
    let mut r = Reader::new(bytes);
    let origin = match r.u8()? {
        0 => Origin::Own,
        1 => Origin::Fetched(None),
        2 => Origin::Fetched(Some(r.digest()?)),
        code => return Err(r.unknown_tag(code)),
    };
    Ok((ImageRecord::decode(&bytes[r.position()..])?, origin))
}

/// Returns the ID of this boot.
fn boot() -> Result<String, StoreError> {
    larder_sys::boot_id().map_err(StoreError::reading(Path::new("/proc/sys/kernel/random/boot_id")))
}

/// Returns the number of bytes that the files in a directory use on disk. Holes do not count.
pub(crate) fn bytes_on_disk(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let files = fs::read_dir(dir).into_iter().flatten().flatten();
    files.filter_map(|file| file.metadata().ok()).map(|meta| meta.blocks() * 512).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_model::{Pack, PieceList, SavedPath};
    use std::io::Write;

    /// Makes an image with one pack, `pack`.
    fn image(store: &Store, key: &str, pack: &[u8]) -> ImageRecord {
        let put = |bytes: &[u8]| store.put_blob(&mut &*bytes).expect("writes");
        let packs = PackList::new(vec![Pack { blob: put(pack), blocks: 1 }]).expect("few");
        ImageRecord {
            key: key.parse().expect("a key"),
            created_ms: pack.len() as u64,
            saved: vec![SavedPath { path: b"d".to_vec(), tree: put(b"tree") }],
            packs: put(&packs.encode()),
            pieces: put(&PieceList { packs: vec![vec![(Digest([1; 32]), 1)]] }.encode()),
            files: 1,
            size_bytes: 1,
            trace: None,
        }
    }

    fn put_live(store: &Store, record: &ImageRecord, which: Live, bytes: &[u8]) -> PathBuf {
        let write = |mut file: &File| file.write_all(bytes).map_err(StoreError::writing(Path::new("")));
        store.put_live(&record.image(), which, write).expect("writes")
    }

    fn aged(store: &Store, record: &ImageRecord, age_s: u64) {
        let file = File::open(store.path_of(Contents::Images, &record.key.digest())).expect("is there");
        file.set_modified(SystemTime::now() - std::time::Duration::from_secs(age_s)).expect("sets");
    }

    #[test]
    fn what_is_kept_is_found_until_it_is_dropped() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path()).expect("opens");
        let (a, b) = (image(&store, "a-1", b"one"), image(&store, "a-2", b"other"));
        assert!(store.image(&a.key).expect("reads").is_none());
        store.keep_image(&a, Origin::Own, true).expect("keeps");
        store.keep_image(&b, Origin::Own, true).expect("keeps");
        assert_eq!(store.image(&a.key).expect("reads"), Some(a.clone()));
        let keys: Vec<_> = store.images().expect("lists").into_iter().map(|image| image.record.key).collect();
        assert_eq!(keys, [b.key.clone(), a.key.clone()]);
        assert!(store.drop_image(&a.key).expect("drops") && !store.drop_image(&a.key).expect("drops"));
    }

    #[test]
    fn no_record_is_kept_of_what_is_not_there() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path()).expect("opens");
        let record = image(&store, "a-1", b"one");
        let pack = store.packs_of(&record).expect("reads")[0];
        fs::remove_file(store.path_of(Contents::Blobs, &pack.digest)).expect("removes");
        assert!(
            matches!(store.keep_image(&record, Origin::Own, true), Err(StoreError::BlobMissing(digest)) if digest == pack.digest)
        );
        store.keep_image(&record, Origin::Own, false).expect("its packs may come later");
        fs::remove_file(store.path_of(Contents::Blobs, &record.packs.digest)).expect("removes");
        assert!(store.keep_image(&record, Origin::Own, false).is_err());
    }

    #[test]
    fn the_oldest_goes_with_its_packs_unless_it_is_used() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path()).expect("opens");
        let (old, new) = (image(&store, "a-1", &[1; 50_000]), image(&store, "a-2", &[2; 40_000]));
        for (record, age_s) in [(&old, 200), (&new, 100)] {
            store.keep_image(record, Origin::Own, true).expect("keeps");
            put_live(&store, record, Live::Metadata(0), &[3; 5000]);
            aged(&store, record, age_s);
        }
        let there = |record: &ImageRecord| store.image(&record.key).expect("reads").is_some();
        let lease = store.lease_image(&old.image()).expect("leases");
        store.evict(60_000).expect("evicts");
        assert!(there(&old), "it is used");
        drop(lease);
        store.evict(60_000).expect("evicts");
        assert!(!there(&old) && there(&new));
        assert!(!store.live_dir(&old.image()).exists() && store.live_dir(&new.image()).exists());
        store.keep_image(&new, Origin::Own, true).expect("has all that it needs");
        assert!(store.fsck(false, &mut |_, _| {}).expect("reads").problems.is_empty());
        assert_eq!(store.evict(0).expect("evicts").after_bytes, 0);
        assert!(!store.live_dir(&new.image()).exists());
    }

    #[test]
    fn what_is_mounted_outlives_clearing() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path()).expect("opens");
        let (used, other) = (image(&store, "a-1", b"used"), image(&store, "a-2", b"other"));
        for record in [&used, &other] {
            store.keep_image(record, Origin::Own, true).expect("keeps");
            put_live(&store, record, Live::Metadata(0), b"metadata");
            put_live(&store, record, Live::Record, &record.encode());
        }
        let blobs = |record: &ImageRecord| -> Vec<Blob> {
            record.blobs().chain(store.packs_of(record).expect("reads")).collect()
        };
        let (of_used, of_other) = (blobs(&used), blobs(&other));
        let upper = store.image_broker().expect("is made").1.join("0123456789abcdef/upper");
        fs::create_dir_all(&upper).expect("makes");
        let there = |blobs: &[Blob]| blobs.iter().filter(|blob| store.has_blob(blob)).count();
        let lease = store.lease_image(&used.image()).expect("leases");
        // Its key could have another image by now.
        store.drop_image(&used.key).expect("drops");
        store.evict(0).expect("evicts");
        assert_eq!((there(&of_used), store.live_image(&used.image())), (of_used.len(), Some(used.clone())));
        assert_eq!(store.clear().expect("clears"), 1);
        assert_eq!(there(&of_used), of_used.len());
        assert!(there(&of_other) < of_other.len() && store.live_image(&other.image()).is_none());
        assert!(store.live_image(&used.image()).is_some() && upper.exists());
        drop(lease);
        assert_eq!(store.clear().expect("clears"), 0);
        assert!(there(&of_used) == 0 && store.live_image(&used.image()).is_none() && upper.exists());
    }

    #[test]
    fn what_is_noted_as_mounted_is_used() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path()).expect("opens");
        let record = image(&store, "a-1", b"pack");
        let note = store.image_broker().expect("is made").1.join("0123456789abcdef/record");
        make_directory(note.parent().expect("has one")).expect("makes");
        let (this, other) = (boot().expect("is known"), "1b9d6bcd");
        for (boot, lease, is_used) in
            [(&*this, "kept", true), (&*this, "process 7 9", true), (&*this, "held", false), (other, "kept", false)]
        {
            store.keep_image(&record, Origin::Own, true).expect("has all that it needs");
            let metadata = put_live(&store, &record, Live::Metadata(0), b"metadata");
            put_live(&store, &record, Live::Record, &record.encode());
            let begun = format!("larder-mount 1\nboot {boot}\nnamespace mnt:[4026]\nvia lazy\nlease {lease}\nname k\n");
            let text = format!("{begun}user 7\nimage {}\ntarget /t\nnumber 9\n", metadata.display());
            fs::write(&note, text).expect("writes");
            assert_eq!(store.clear().expect("clears"), usize::from(is_used), "{boot} {lease}");
            assert_eq!(metadata.exists(), is_used);
            if is_used {
                store.keep_image(&record, Origin::Own, true).expect("has all that it needs");
                store.evict(0).expect("evicts");
                assert!(metadata.exists() && store.image(&record.key).expect("reads").is_some(), "{boot} {lease}");
            } else {
                image(&store, "a-1", b"pack");
            }
        }
    }

    #[test]
    fn what_the_kernel_reads_is_of_this_run_of_the_system() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path()).expect("opens");
        let record = image(&store, "k", b"pack");
        let (now, file) = (Live::Metadata(1), |which| store.live_file(&record.image(), which).expect("is named"));
        let [earlier, older, other, data] = ["metadata2-1-1b9d6bcd", "metadata2-1", "metadata2-11-1b9d6bcd", "data-1"]
            .map(|name| file(now).with_file_name(name));
        [&earlier, &older, &other, &data].iter().for_each(|path| fs::write(path, "earlier").expect("writes"));
        assert!(!file(now).exists(), "a file of an earlier boot is not used");
        put_live(&store, &record, now, b"now");
        assert_eq!(fs::read(file(now)).expect("is there"), b"now");
        assert_eq!([earlier, older, other, data].map(|path| path.exists()), [false, false, true, true]);
    }

    #[test]
    fn damage_is_found() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path()).expect("opens");
        let record = image(&store, "a-1", b"one");
        store.keep_image(&record, Origin::Own, true).expect("keeps");
        assert_eq!(store.blob_bytes(&record.packs, 1 << 20).expect("reads").len() as u64, record.packs.size_bytes);
        let pack = store.packs_of(&record).expect("reads")[0];
        fs::write(store.path_of(Contents::Blobs, &pack.digest), b"eno").expect("writes");
        let found = store.fsck(true, &mut |_, _| {}).expect("reads");
        assert_eq!(found.problems.len(), 2, "{:?}", found.problems);
        assert!(store.image(&record.key).expect("reads").is_none());
        assert!(store.fsck(false, &mut |_, _| {}).expect("reads").problems.is_empty());
        assert!(matches!(store.blob_bytes(&pack, 9), Err(StoreError::BlobMissing(_))));
    }

    #[test]
    fn a_blob_that_is_too_large_is_removed_if_it_is_damaged() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path()).expect("opens");
        let blob = store.put_blob(&mut &b"bytes"[..]).expect("writes");
        let smaller = Blob { size_bytes: 4, ..blob };
        assert!(matches!(store.blob_bytes(&smaller, 9), Err(StoreError::BlobDamaged(_))));
        assert_eq!(store.blob_bytes(&blob, 9).expect("is still there"), b"bytes");
        fs::write(store.path_of(Contents::Blobs, &blob.digest), b"more bytes").expect("writes");
        assert!(matches!(store.blob_bytes(&blob, 9), Err(StoreError::BlobDamaged(_))));
        assert!(matches!(store.blob_bytes(&blob, 9), Err(StoreError::BlobMissing(_))));
    }

    /// If a key is removed from `remote_trust`, images that it signed are removed, whenever they
    /// were fetched.
    #[test]
    fn images_of_a_signer_that_is_not_trusted_any_more_go() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path()).expect("opens");
        let signer = Digest([0xab; 32]);
        let origins = [Origin::Own, Origin::Fetched(None), Origin::Fetched(Some(signer))];
        for (key, origin) in ["own", "unsigned", "signed"].into_iter().zip(origins) {
            let record = image(&store, key, b"pack");
            store.keep_image(&record, origin, false).expect("keeps");
            assert_eq!(store.image_origin(&record.key), Some(origin));
        }
        let keys = |trust: &[String]| {
            store.drop_untrusted_images(trust).expect("drops");
            let mut keys: Vec<String> =
                store.images().expect("lists").iter().map(|image| image.record.key.text().to_owned()).collect();
            keys.sort();
            keys
        };
        assert_eq!(keys(&[]), ["own", "signed", "unsigned"]);
        assert_eq!(keys(&["AB".repeat(32)]), ["own", "signed"]);
        assert_eq!(keys(&["cd".repeat(32)]), ["own"]);
    }
}
