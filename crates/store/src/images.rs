//! Images: the record of each key, who uses an image now, and the files that are mounted.
//!
//! ```text
//! images/records/ab/cd…   u8 0 saved here · 1 fetched, unsigned · 2 fetched, digest: the signer's public key; then the
//!                         ImageRecord of the key whose digest is abcd…; its modification time is its last use
//! images/newest           when the newest image of each key was saved (newest.rs)
//! images/live/IMAGE/      what mounts of an image need, for its saved path N: metadata2-N-BOOT, data-N, and lazy-N, what was
//!                         filled; served-N, both as FUSE servers fill them; squashfs-N…-BOOT; its record
//! images/mounts/          what is mounted (crates/mount/src/places); images/broker.sock who is asked to mount
//! images/staging/         archives that are unpacked to be saved
//! locks/image-ab          shared by whoever uses an image ab…; an eviction that finds it taken lets such images be, and
//!                         those that are noted as mounted
//! ```
//! Trees, lists and packs are blobs. A record is written after them, and only while all of them are there. Nothing is synced,
//! and what the kernel reads of a file system is not verified: so that is believed for one run of the system, BOOT.
//!
//! Unaware of: what is in a tree or a pack, who mounts.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use larder_model::{Blob, DecodeError, Digest, ImageKey, ImageRecord, Origin, PackList, Reader, Writer};

use crate::layout::{Contents, entries, make_directory, read_plain};
use crate::{Store, StoreError};

/// A record is a few hundred bytes and its paths.
const RECORD_BYTES_MAX: u64 = 1 << 20;
/// A list of packs, bytes: of 16 TiB.
pub(crate) const PACKS_BYTES_MAX: u64 = 1 << 30;

/// An image of the store.
#[derive(Clone, Debug)]
pub struct StoredImage {
    /// What it is.
    pub record: ImageRecord,
    /// How it came here.
    pub origin: Origin,
    /// When it was last used.
    pub used: SystemTime,
}

/// As long as this lives, the image is not evicted.
#[derive(Debug)]
pub struct Lease(#[expect(dead_code, reason = "it is locked")] File);

/// Images that somebody uses, and what keeps everybody from beginning to use others as long as this lives.
#[derive(Default)]
pub(crate) struct UsedImages {
    /// Each with the blobs that it needs.
    pub(crate) used: HashMap<Digest, Vec<Digest>>,
    claims: HashMap<PathBuf, File>,
}

/// A file that mounts of an image need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Live {
    /// What is mounted of the saved path of this number.
    Metadata(usize),
    /// The same together with the bytes of its files.
    Whole(usize),
    /// The bytes of its files, as far as they came.
    Data(usize),
    /// A directory: what came, and what was touched.
    Lazy(usize),
    /// A directory: the same two where a FUSE server fills them, for which no read is held back.
    Served(usize),
    /// All of it as a squashfs file, in which what was the saver's belongs to this user and group.
    Squashfs(usize, (u32, u32)),
    /// The record: another image may get the key while this one is mounted.
    Record,
}

impl Live {
    /// What its name begins with, and whether it is of one run of the system.
    fn name(self) -> (String, bool) {
        match self {
            Live::Metadata(number) => (format!("metadata2-{number}-"), true),
            Live::Whole(number) => (format!("whole-{number}-"), true),
            Live::Data(number) => (format!("data-{number}"), false),
            Live::Lazy(number) => (format!("lazy-{number}"), false),
            Live::Served(number) => (format!("served-{number}"), false),
            Live::Squashfs(number, (user, group)) => (format!("squashfs-{number}-{user}-{group}-"), true),
            Live::Record => (RECORD.to_owned(), false),
        }
    }
}

const RECORD: &str = "record";

impl Store {
    /// The image of a key; none where there is none, or its record is damaged.
    pub fn image(&self, key: &ImageKey) -> Result<Option<ImageRecord>, StoreError> {
        let path = self.path_of(Contents::Images, &key.digest());
        match read_plain(&path, RECORD_BYTES_MAX) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(StoreError::reading(&path)(error)),
            Ok(bytes) => Ok(kept(&bytes).ok().map(|(record, _)| record).filter(|record| record.key == *key)),
        }
    }

    /// All images, the newest first.
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

    /// Keep the record of an image that came so, in place of what its key had. All that it needs must be in the store; `complete` is
    /// false for one of which a remote has the packs, and the list of what is in them.
    pub fn keep_image(&self, record: &ImageRecord, origin: Origin, complete: bool) -> Result<(), StoreError> {
        let mut named: Box<dyn Iterator<Item = Blob> + '_> =
            if complete { Box::new(record.blobs()) } else { Box::new(record.needed()) };
        if let Some(blob) = named.find(|blob| !self.has_blob(blob)) {
            return Err(StoreError::BlobMissing(blob.digest));
        }
        if complete && let Some(blob) = self.packs_of(record)?.iter().find(|blob| !self.has_blob(blob)) {
            return Err(StoreError::BlobMissing(blob.digest));
        }
        let mut temporary = self.temporary()?;
        temporary.write_all(&to_keep(record, origin))?;
        temporary.place(&self.path_of(Contents::Images, &record.key.digest()))
    }

    /// How the image of a key came here; none where there is none.
    pub fn image_origin(&self, key: &ImageKey) -> Option<Origin> {
        let bytes = read_plain(&self.path_of(Contents::Images, &key.digest()), RECORD_BYTES_MAX).ok()?;
        Some(kept(&bytes).ok()?.1)
    }

    /// Forget the images that were fetched and that `trust`, the setting `remote_trust`, does not believe any more. What
    /// is mounted stays mounted. Returns their keys.
    pub fn drop_disbelieved_images(&self, trust: &[String]) -> Result<Vec<ImageKey>, StoreError> {
        let mut dropped = Vec::new();
        for image in self.images()? {
            if !image.origin.is_believed(trust) && self.remove_image(&image.record.key)? {
                dropped.push(image.record.key);
            }
        }
        Ok(dropped)
    }

    /// Note that an image was used.
    pub fn note_image_use(&self, key: &ImageKey) {
        if let Ok(file) = OpenOptions::new().write(true).open(self.path_of(Contents::Images, &key.digest())) {
            let _ = file.set_modified(SystemTime::now());
        }
    }

    /// Forget a key, also when it was saved last; what only it needed goes with the next eviction. False where there was
    /// none.
    pub fn drop_image(&self, key: &ImageKey) -> Result<bool, StoreError> {
        self.forget_newest_image(key)?;
        self.remove_image(key)
    }

    fn remove_image(&self, key: &ImageKey) -> Result<bool, StoreError> {
        let path = self.path_of(Contents::Images, &key.digest());
        match fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(StoreError::writing(&path)(error)),
        }
    }

    /// Use an image: from here on nobody evicts it. What it needs is looked for after this.
    pub fn lease_image(&self, image: &Digest) -> Result<Lease, StoreError> {
        let path = self.lease_path(image);
        let file = self.open_or_make(&path, OpenOptions::new().write(true).create(true).truncate(false))?;
        file.lock_shared().map_err(StoreError::writing(&path))?;
        Ok(Lease(file))
    }

    /// The lock that keeps everybody from beginning to use an image; none while somebody does.
    pub(crate) fn claim_image(&self, image: &Digest) -> Option<File> {
        let path = self.lease_path(image);
        let file = self.open_or_make(&path, OpenOptions::new().write(true).create(true).truncate(false)).ok()?;
        larder_sys::try_write_lock(&file).is_ok_and(|locked| locked).then_some(file)
    }

    fn lease_path(&self, image: &Digest) -> PathBuf {
        self.file("locks").join(format!("image-{}", &image.hex()[..2]))
    }

    /// A file that mounts of an image need, which may not be there yet; its directory is.
    pub fn live_file(&self, image: &Digest, which: Live) -> Result<PathBuf, StoreError> {
        let dir = self.live_dir(image);
        make_directory(&dir)?;
        Ok(match which.name() {
            (name, false) => dir.join(name),
            (name, true) => dir.join(name + &boot()?),
        })
    }

    /// Write such a file, whole or not at all; those of earlier runs of the system go.
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

    /// Remove what earlier runs of the system left of such a file, and earlier versions of larder, whose names had no run.
    pub fn forget_earlier(&self, image: &Digest, which: Live) {
        let ((name, true), Ok(now)) = (which.name(), self.live_file(image, which)) else { return };
        let is_earlier = |path: &PathBuf| {
            let other = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            *path != now && (other.starts_with(&name) || other == name.trim_end_matches('-'))
        };
        // Whoever has one mounted goes on with it.
        entries(&self.live_dir(image)).unwrap_or_default().iter().filter(|path| is_earlier(path)).for_each(|path| {
            let _ = fs::remove_file(path);
        });
    }

    /// Where files for mounts are made, and archives unpacked: what is left there of who was killed can be swept.
    pub fn image_workplaces(&self) -> Vec<PathBuf> {
        let live = self.live_images().unwrap_or_default().into_values();
        live.chain([self.file("images").join("staging")]).collect()
    }

    /// Where who mounts for us is asked, and where it keeps what is mounted; the directory above both is made.
    pub fn image_broker(&self) -> Result<(PathBuf, PathBuf), StoreError> {
        let dir = self.file("images");
        make_directory(&dir)?;
        Ok((dir.join("broker.sock"), dir.join("mounts")))
    }

    /// The record of the image that `file` belongs to, which mounts of it need; none where it is no such file, or the
    /// record cannot be read.
    pub fn live_record(&self, file: &Path) -> Option<ImageRecord> {
        let dir = file.parent()?;
        let record = ImageRecord::decode(&read_plain(&dir.join(RECORD), RECORD_BYTES_MAX).ok()?).ok()?;
        let same = |left: &Path, right: &Path| Some(left.canonicalize().ok()? == right.canonicalize().ok()?);
        same(dir, &self.live_dir(&record.image())).filter(|same| *same).map(|_| record)
    }

    /// The record of an image that was mounted, whatever its key has now; none where none was, or it cannot be read.
    pub fn live_image(&self, image: &Digest) -> Option<ImageRecord> {
        self.live_record(&self.live_dir(image).join(RECORD)).filter(|record| record.image() == *image)
    }

    /// The images that somebody uses or that are mounted, with the blobs that these need, but for those of `not`; and what
    /// keeps everybody from beginning to use the others. Those of which only files for mounts are left are among them.
    pub(crate) fn used_images(&self, not: &HashSet<Digest>) -> Result<UsedImages, StoreError> {
        let live = self.live_images()?.into_keys().map(|image| (image, self.live_image(&image)));
        let stored = self.images()?.into_iter().map(|stored| (stored.record.image(), Some(stored.record)));
        let mut all: HashMap<Digest, Option<ImageRecord>> = live.chain(stored).collect();
        all.retain(|image, _| !not.contains(image));
        let mut found = UsedImages::default();
        for image in all.keys() {
            // Several have one lock.
            let lock = self.lease_path(image);
            if !found.claims.contains_key(&lock)
                && let Some(claim) = self.claim_image(image)
            {
                found.claims.insert(lock, claim);
            }
        }
        // Not before: who mounts an image uses it until that is noted.
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

    /// The images whose mounts outlive who mounted them: who goes on with those may not be there yet, and uses none.
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

    /// The directories with files for mounts, by image.
    pub(crate) fn live_images(&self) -> Result<HashMap<Digest, PathBuf>, StoreError> {
        let image = |path: &Path| path.file_name()?.to_str()?.parse::<Digest>().ok();
        let all = entries(&self.live_top())?.into_iter();
        Ok(all.filter_map(|path| Some((image(&path)?, path))).collect())
    }

    /// A directory where archives are unpacked before they are saved; it is made.
    pub fn image_staging(&self) -> Result<PathBuf, StoreError> {
        let dir = self.file("images").join("staging");
        make_directory(&dir)?;
        Ok(dir)
    }

    /// The lock that one who mounts for us has as long as it lives; none while another has it.
    pub fn lock_image_broker(&self) -> Result<Option<File>, StoreError> {
        let path = self.file("locks").join("broker");
        let file = self.open_or_make(&path, OpenOptions::new().write(true).create(true).truncate(false))?;
        Ok(larder_sys::try_write_lock(&file).map_err(StoreError::writing(&path))?.then_some(file))
    }

    /// Whether somebody has it.
    pub fn image_broker_runs(&self) -> bool {
        let file = OpenOptions::new().read(true).open(self.file("locks").join("broker"));
        file.is_ok_and(|file| larder_sys::is_write_locked(&file).unwrap_or(false))
    }

    /// What mounts need, a directory an image.
    pub(crate) fn live_top(&self) -> PathBuf {
        self.file("images").join("live")
    }

    pub(crate) fn live_dir(&self, image: &Digest) -> PathBuf {
        self.live_top().join(image.hex())
    }

    /// The packs that an image's record leads to.
    pub fn packs_of(&self, record: &ImageRecord) -> Result<Vec<Blob>, StoreError> {
        let path = self.path_of(Contents::Blobs, &record.packs.digest);
        let bytes = read_plain(&path, PACKS_BYTES_MAX).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => StoreError::BlobMissing(record.packs.digest),
            _ => StoreError::reading(&path)(error),
        })?;
        let damaged = |source| StoreError::Damaged { path: path.clone(), source };
        Ok(PackList::decode(&bytes).map_err(damaged)?.packs.iter().map(|pack| pack.blob).collect())
    }

    /// The bytes of a blob, at most `limit_bytes`, found to be those of its name.
    pub fn blob_bytes(&self, blob: &Blob, limit_bytes: u64) -> Result<Vec<u8>, StoreError> {
        let path = self.path_of(Contents::Blobs, &blob.digest);
        let bytes = read_plain(&path, limit_bytes.min(blob.size_bytes)).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => StoreError::BlobMissing(blob.digest),
            io::ErrorKind::Other => StoreError::BlobDamaged(blob.digest),
            _ => StoreError::reading(&path)(error),
        })?;
        match Digest::of(&bytes) == blob.digest {
            true => Ok(bytes),
            false => {
                let _ = fs::remove_file(&path);
                Err(StoreError::BlobDamaged(blob.digest))
            }
        }
    }

    /// Note that a blob is needed again: an eviction leaves alone what is young.
    pub fn freshen_blob(&self, digest: &Digest) {
        if let Ok(file) = OpenOptions::new().write(true).open(self.path_of(Contents::Blobs, digest)) {
            let _ = file.set_modified(SystemTime::now());
        }
    }
}

/// A record of an image as it lies in the store.
fn to_keep(record: &ImageRecord, origin: Origin) -> Vec<u8> {
    let mut w = Writer::default();
    match origin {
        Origin::Fetched(None) => w.u8(1),
        Origin::Fetched(Some(signer)) => {
            w.u8(2);
            w.digest(&signer);
        }
        // No image is handed over.
        Origin::Own | Origin::HandedOver => w.u8(0),
    }
    w.bytes.extend_from_slice(&record.encode());
    w.bytes
}

/// Read such a file's bytes.
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

/// This run of the system.
fn boot() -> Result<String, StoreError> {
    larder_sys::boot_id().map_err(StoreError::reading(Path::new("/proc/sys/kernel/random/boot_id")))
}

/// Bytes on the disk of what lies in a directory: holes do not count.
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

    /// An image whose one pack is `pack`.
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
        // Another image has its key by now.
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
        assert!(!file(now).exists(), "what an earlier run left is not believed");
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

    /// A key that is taken out of `remote_trust` is believed for nothing that was fetched before.
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
            store.drop_disbelieved_images(trust).expect("drops");
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
