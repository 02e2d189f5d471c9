//! Eviction: removes the least recently used records, and the blobs that no other record needs.
//!
//! Readers take no lock. So a blob can vanish after a manifest was read and before its blobs are,
//! which is a miss. Writers put blobs in place before the manifest that refers to them, so blobs
//! younger than `GRACE` are kept. A young blob is removed together with its record, unless it was
//! put again after the record was written or last used. In that case a process may be writing
//! another record that needs it.
//!
//! Records of images are evicted like manifests. Images that are mounted or being restored are
//! kept, also by `clear`.
//!
//! Unaware of: when an eviction is due.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use larder_model::{Digest, Manifest};

use crate::images::bytes_on_disk;
use crate::layout::{Contents, entries, if_there, make_directory, read_plain};
use crate::manifests::{MANIFEST_BYTES_MAX, USE_COARSE};
use crate::{Counters, Store, StoreError};

/// If a store is larger than its limit, it is reduced to this share of the limit.
pub const EVICT_TO_PERCENT: u64 = 90;
/// Blobs and temporary files younger than this may belong to a record that is being written.
const GRACE: Duration = Duration::from_secs(600);
/// Judgements and notes of warnings are removed when they are older than this.
const NOTE_AGE_MAX: Duration = Duration::from_secs(30 * 24 * 3600);
/// An older version of larder may still be in use. Its store is removed when it was not used for
/// this time.
const EARLIER_AGE_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// The result of an eviction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Eviction {
    /// The size of the store before, in bytes.
    pub before_bytes: u64,
    /// The size of the store after, in bytes.
    pub after_bytes: u64,
    /// The number of records that were removed.
    pub manifests: u64,
    /// The number of blobs that were removed.
    pub blobs: u64,
}

/// What an eviction keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// The maximum size of the store, in bytes.
    pub bytes_max: u64,
    /// The maximum time since the last use. An hour is added, because uses are noted at most once
    /// an hour.
    pub age_max: Option<Duration>,
    /// If true, both limits apply to images only, and everything else is kept.
    pub images_only: bool,
}

impl Keep {
    /// Keeps at most `bytes_max` bytes.
    pub fn within(bytes_max: u64) -> Keep {
        Keep { bytes_max, age_max: None, images_only: false }
    }
}

struct Record {
    path: PathBuf,
    used: SystemTime,
    /// The ctime of its file: when it was last written, or its times were set.
    changed: SystemTime,
    size_bytes: u64,
    blobs: Vec<Digest>,
    /// The image, if it is the record of one.
    image: Option<Digest>,
}

impl Store {
    /// Evicts until the store has at most `limit_bytes`.
    pub fn evict(&self, limit_bytes: u64) -> Result<Eviction, StoreError> {
        self.evict_all_but(&Keep::within(limit_bytes))
    }

    /// Removes what is not to be kept, unless it is in use. Only one process does so at a time.
    pub fn evict_all_but(&self, keep: &Keep) -> Result<Eviction, StoreError> {
        if !self.base().exists() {
            return Ok(Eviction::default());
        }
        self.inspect()?;
        let _lock = self.lock("evict")?;
        self.sweep_temporary();
        self.remove_old_formats(EARLIER_AGE_MAX);
        let mut records = self.records()?;
        records.extend(self.image_records()?);
        let blobs = self.blob_sizes()?;
        let blob_bytes: u64 = blobs.iter().map(|b| b.2).sum();
        let before_bytes = blob_bytes + records.iter().map(|r| r.size_bytes).sum::<u64>();
        let mut done = Eviction { before_bytes, ..Eviction::default() };

        let others: Vec<Record> = records.extract_if(.., |record| keep.images_only && record.image.is_none()).collect();
        records.sort_by_key(|record| record.used);
        let too_old = |record: &Record| {
            let max = keep.age_max.map(|max| max.saturating_add(USE_COARSE));
            max.is_some_and(|max| record.used.elapsed().is_ok_and(|age| age > max))
        };
        let keep_from = keep_from(&records, &blobs, keep.bytes_max).max(records.partition_point(too_old));
        let mut kept_images: HashSet<Digest> = records[keep_from..].iter().filter_map(|record| record.image).collect();
        // Held until the blobs are removed. A process that begins to use another image waits, and
        // then finds it gone.
        let images = self.used_images(&kept_images)?;
        let mut kept: Vec<&Record> = records[keep_from..].iter().chain(&others).collect();
        let mut gone: Vec<&Record> = Vec::new();
        for record in &records[..keep_from] {
            if record.image.is_some_and(|image| images.used.contains_key(&image)) {
                kept.push(record);
            } else if fs::remove_file(&record.path).is_ok() {
                gone.push(record);
            }
        }
        done.manifests = gone.len() as u64;
        kept_images.extend(images.used.keys());
        for (_, path) in self.live_images()?.into_iter().filter(|(image, _)| !kept_images.contains(image)) {
            let _ = larder_sys::remove_tree(&path);
        }
        let needed = kept.iter().flat_map(|r| &r.blobs).chain(images.used.values().flatten());
        let needed: HashSet<Digest> = needed.copied().collect();
        let mut orphaned: HashMap<Digest, SystemTime> = HashMap::new();
        for (digest, record) in gone.iter().flat_map(|record| record.blobs.iter().map(move |blob| (*blob, record))) {
            let changed = orphaned.entry(digest).or_insert(record.changed);
            *changed = record.changed.max(*changed);
        }
        let now = SystemTime::now();
        done.after_bytes = kept.iter().map(|r| r.size_bytes).sum();
        for (digest, path, size_bytes, changed) in &blobs {
            let young = now.duration_since(*changed).is_ok_and(|age| age < GRACE);
            let with_its_record = || orphaned.get(digest).is_some_and(|record| changed <= record);
            let free = !needed.contains(digest) && (!young || with_its_record());
            if free && fs::remove_file(path).is_ok() {
                done.blobs += 1;
            } else {
                done.after_bytes += size_bytes;
            }
        }
        if let Ok(counters) = Counters::open(self) {
            counters.set_store_bytes(done.after_bytes);
        }
        Ok(done)
    }

    /// Removes everything except the counters, what images in use need, and notes about mounts.
    /// Returns the number of these images.
    pub fn clear(&self) -> Result<usize, StoreError> {
        if !self.base().exists() {
            return Ok(0);
        }
        self.inspect()?;
        let images = self.used_images(&HashSet::new())?;
        let needed: HashSet<Digest> = images.used.values().flatten().copied().collect();
        let aside = self.file("tmp");
        make_directory(&aside)?;
        let names = [
            "manifests",
            "handed-over",
            "near",
            "needs",
            "unrecorded",
            "judged",
            "judged-handed-over",
            "notes",
            "stamps",
        ];
        let names = names.iter().chain(&["images/records", "images/staging"]);
        let blobs = needed.is_empty().then(|| self.file("blobs"));
        let live = self.live_images()?.into_iter().filter(|(image, _)| !images.used.contains_key(image));
        let paths = names.map(|name| self.file(name)).chain(blobs).chain(live.map(|(_, path)| path));
        for path in paths {
            // Moved away first, because builds would continue to put files into a directory that is
            // being emptied.
            let moved = fs::rename(&path, self.temporary_path());
            if_there(moved.or_else(|_| larder_sys::remove_tree(&path))).map_err(StoreError::writing(&path))?;
        }
        for path in entries(&aside)?.into_iter().filter(|path| is_temporary(path)) {
            larder_sys::remove_tree(&path).map_err(StoreError::writing(&path))?;
        }
        let mut left_bytes = 0;
        for (digest, path, size_bytes, _) in self.blob_sizes()?.into_iter().filter(|_| !needed.is_empty()) {
            match needed.contains(&digest) {
                true => left_bytes += size_bytes,
                false => larder_sys::remove_tree(&path).map_err(StoreError::writing(&path))?,
            }
        }
        if let Ok(counters) = Counters::open(self) {
            counters.set_store_bytes(left_bytes);
        }
        Ok(images.used.len())
    }

    fn records(&self) -> Result<Vec<Record>, StoreError> {
        let mut records = Vec::new();
        let handed_over = self.list(Contents::HandedOver)?;
        for (_, path) in self.list(Contents::Manifests)?.into_iter().chain(handed_over) {
            let Ok(meta) = fs::metadata(&path) else { continue };
            // A manifest that cannot be read now may be readable later. What is not a regular file
            // of ours is removed.
            let bytes = match read_plain(&path, MANIFEST_BYTES_MAX) {
                Err(error) if error.kind() != std::io::ErrorKind::Other => continue,
                bytes => bytes.unwrap_or_default(),
            };
            let blobs = match Manifest::decode(&bytes) {
                Ok(manifest) => blobs_of(&manifest),
                Err(_) => {
                    let _ = fs::remove_file(&path);
                    continue;
                }
            };
            let used = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            let changed = changed(&meta);
            records.push(Record { path, used, changed, size_bytes: meta.len(), blobs, image: None });
        }
        Ok(records)
    }

    /// Returns the records of images. A record whose list of packs cannot be read is useless and is
    /// removed.
    fn image_records(&self) -> Result<Vec<Record>, StoreError> {
        let mut records = Vec::new();
        let mut counted = HashSet::new();
        for (_, path) in self.list(Contents::Images)? {
            let Ok(meta) = fs::metadata(&path) else { continue };
            let read = read_plain(&path, MANIFEST_BYTES_MAX).ok().and_then(|bytes| crate::images::kept(&bytes).ok());
            let Some((record, packs)) =
                read.map(|(record, _)| record).and_then(|r| self.packs_of(&r).ok().map(|packs| (r, packs)))
            else {
                let _ = fs::remove_file(&path);
                continue;
            };
            let blobs = record.blobs().chain(packs).map(|blob| blob.digest).collect();
            let used = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            let image = record.image();
            // If several keys have the same image, files for mounts count with the first.
            let live = if counted.insert(image) { bytes_on_disk(&self.live_dir(&image)) } else { 0 };
            let changed = changed(&meta);
            records.push(Record { path, used, changed, size_bytes: meta.len() + live, blobs, image: Some(image) });
        }
        Ok(records)
    }

    fn blob_sizes(&self) -> Result<Vec<(Digest, PathBuf, u64, SystemTime)>, StoreError> {
        let mut blobs = Vec::new();
        for (digest, path) in self.list(Contents::Blobs)? {
            if let Ok(meta) = fs::metadata(&path) {
                blobs.push((digest, path, meta.len(), meta.modified().unwrap_or(SystemTime::UNIX_EPOCH)));
            }
        }
        Ok(blobs)
    }

    /// Removes what killed writers left, old judgements and notes, and stamps of earlier boots.
    fn sweep_temporary(&self) {
        let is_older = |path: &PathBuf, than: Duration| {
            let age = fs::metadata(path).and_then(|m| m.modified()).ok().and_then(|t| t.elapsed().ok());
            age.is_some_and(|age| age > than)
        };
        let temporary = [self.file("tmp"), self.file("images").join("fetching")];
        let temporary = temporary.iter().flat_map(|dir| entries(dir).unwrap_or_default());
        for path in temporary.filter(|path| is_temporary(path) && is_older(path, GRACE)) {
            let _ = larder_sys::remove_tree(&path);
        }
        let tables = [Contents::Judgements, Contents::JudgementsHandedOver];
        let judged = tables.into_iter().flat_map(|table| self.list(table).unwrap_or_default()).map(|(_, path)| path);
        let notes = entries(&self.file("notes")).unwrap_or_default();
        for path in judged.chain(notes).filter(|path| is_older(path, NOTE_AGE_MAX)) {
            let _ = fs::remove_file(path);
        }
        let Ok(boot) = larder_sys::boot_id() else { return };
        for path in entries(&self.file("stamps")).unwrap_or_default() {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if is_stamps(name) && name != boot && is_older(&path, GRACE) {
                let _ = fs::remove_file(path);
            }
        }
    }
}

/// Returns the ctime: when a file was last written, or its times were set. Programs cannot set it.
fn changed(meta: &fs::Metadata) -> SystemTime {
    let since = Duration::new(meta.ctime().unsigned_abs(), u32::try_from(meta.ctime_nsec()).unwrap_or(0));
    SystemTime::UNIX_EPOCH + since
}

/// Returns true if a file has a name as `Store::temporary` and `clear` make them. Other files are
/// not ours to remove.
fn is_temporary(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.len() == 16 && name.as_encoded_bytes().iter().all(u8::is_ascii_hexdigit))
}

/// Returns true if a file is named after a boot of the system, or is an unfinished table of stamps.
fn is_stamps(name: &str) -> bool {
    name.len() >= 16 && name.bytes().all(|b| b.is_ascii_hexdigit() || matches!(b, b'-' | b'.'))
}

pub(crate) fn blobs_of(manifest: &Manifest) -> Vec<Digest> {
    let opened = manifest.entries.iter().filter_map(|entry| entry.open().ok());
    opened.flat_map(|(_, result)| result.blobs().map(|b| b.digest).collect::<Vec<_>>()).collect()
}

/// Returns the index of the first record, in the order of last use, that is kept. A blob counts
/// with the most recently used record that needs it.
fn keep_from(records: &[Record], blobs: &[(Digest, PathBuf, u64, SystemTime)], limit_bytes: u64) -> usize {
    let sizes: HashMap<Digest, u64> = blobs.iter().map(|b| (b.0, b.2)).collect();
    let mut counted = HashSet::new();
    let mut total = 0u64;
    for (index, record) in records.iter().enumerate().rev() {
        total += record.size_bytes;
        for digest in &record.blobs {
            if counted.insert(*digest) {
                total += sizes.get(digest).copied().unwrap_or(0);
            }
        }
        if total > limit_bytes {
            return index + 1;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_model::{
        ActionResult, Content, Entry, ExplainWalk, FileMode, Made, ObservationSet, Observer, Output, OutputKind,
        Placement, Rewrite, Streams,
    };

    fn record(store: &Store, name: &str, object: &[u8], age_s: u64) -> Digest {
        let blob = store.put_blob(&mut &object[..]).expect("writes");
        let mode = FileMode { bits: 0o666, rule: larder_model::ModeRule::Masked };
        let kind = OutputKind::File {
            placement: Placement::Replace,
            mode,
            rewrite: Rewrite::None,
            content: Content::Blob(blob),
        };
        let streams = Streams::Apart { stdout: Content::EMPTY, stderr: Content::EMPTY };
        let result = ActionResult { outputs: vec![Output::new(b"/o", kind)], ..ActionResult::of(streams) };
        let weak = Digest::of(name.as_bytes());
        let mut body = Vec::new();
        let (set, made) = (ObservationSet::default(), Made { made_in: Digest([3; 32]), bound: None });
        let entry = Entry::new(&weak, Observer::Preload, 1, &made, &set, &result, &mut body);
        store.record(&weak, &ExplainWalk::default(), entry).expect("writes");
        let manifest = fs::File::open(store.path_of(Contents::Manifests, &weak)).expect("is there");
        manifest.set_modified(SystemTime::now() - Duration::from_secs(age_s)).expect("sets the time");
        weak
    }

    #[test]
    fn the_oldest_goes_with_what_only_it_needs() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path()).expect("opens");
        let shared = vec![1; 10_000];
        let oldest = record(&store, "oldest", &[2; 10_000], 300);
        let old = record(&store, "old", &shared, 200);
        let new = record(&store, "new", &shared, 100);
        let done = store.evict(20_400).expect("evicts");
        assert_eq!((done.manifests, done.blobs), (1, 1), "{done:?}");
        let there = |weak| store.read_manifest(weak, false).expect("reads").is_some();
        assert!(!there(&oldest) && there(&old) && there(&new));
        let done = store.evict(10_300).expect("evicts");
        assert_eq!((done.manifests, done.blobs), (1, 0), "the shared blob stays: {done:?}");
        assert!(store.fsck(false, &mut |_, _| {}).expect("reads").problems.is_empty());
        assert_eq!(store.evict(0).expect("evicts").after_bytes, 0);
    }

    #[test]
    fn what_was_not_used_for_long_goes() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path()).expect("opens");
        let old = record(&store, "old", &[2; 10_000], 3600 + 3000);
        let new = record(&store, "new", &[3; 10_000], 3600 + 1000);
        let there = |weak| store.read_manifest(weak, false).expect("reads").is_some();
        let keep = |age_s, images_only| {
            let age_max = Some(Duration::from_secs(age_s));
            store.evict_all_but(&Keep { bytes_max: u64::MAX, age_max, images_only }).expect("evicts")
        };
        assert_eq!(keep(5000, false).manifests, 0);
        assert_eq!(keep(2000, true).manifests, 0, "it is no image");
        assert_eq!((keep(2000, false).manifests, there(&old), there(&new)), (1, false, true));
        let nothing = Keep { images_only: true, ..Keep::within(0) };
        assert_eq!(store.evict_all_but(&nothing).expect("evicts").manifests, 0);
        assert!(there(&new));
    }

    #[test]
    fn a_blob_that_is_being_recorded_stays() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path()).expect("opens");
        let blob = store.put_blob(&mut &b"young"[..]).expect("writes");
        store.evict(0).expect("evicts");
        assert!(store.has_blob(&blob));
    }

    /// Another process puts the same bytes and has not written its record yet.
    #[test]
    fn a_blob_that_was_put_again_stays() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path()).expect("opens");
        let object = [7; 5000];
        record(&store, "old", &object, 300);
        // Longer than a tick of the file system's clock.
        std::thread::sleep(Duration::from_millis(30));
        let blob = store.put_blob(&mut &object[..]).expect("writes");
        let done = store.evict(0).expect("evicts");
        assert_eq!((done.manifests, done.blobs), (1, 0), "{done:?}");
        assert!(store.has_blob(&blob));
    }

    #[test]
    fn a_store_is_cleared_while_it_is_written_to() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path()).expect("opens");
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0u64.. {
                    // The writer may fail, because its directory is moved away.
                    let _ = store.put_blob(&mut &number.to_ne_bytes()[..]);
                    if done.load(std::sync::atomic::Ordering::Relaxed) {
                        break;
                    }
                }
            });
            let cleared: Vec<_> = (0..50).map(|_| store.clear()).collect();
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(cleared.iter().all(Result::is_ok), "{cleared:?}");
        });
        store.clear().expect("clears");
        assert!(store.list(Contents::Blobs).expect("lists").is_empty());
        assert!(entries(&store.file("tmp")).expect("lists").is_empty());
    }
}
