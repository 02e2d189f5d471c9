//! The action cache: one manifest for each weak fingerprint.
//!
//! Unaware of: whether an entry holds.

use std::fs::{FileTimes, OpenOptions};
use std::io::{self, Read};
use std::time::{Duration, SystemTime};

use larder_model::{Digest, Entry, ExplainWalk, Fingerprint, Manifest};

use crate::layout::{Contents, if_there, open_plain};
use crate::{Store, StoreError};

/// The time of last use is updated at most once in this time.
pub(crate) const USE_COARSE: Duration = Duration::from_secs(3600);
/// A manifest with more bytes than this is not read.
pub(crate) const MANIFEST_BYTES_MAX: u64 = 256 << 20;

/// How many bytes of a manifest are read first: two or three entries of a compile with about 250
/// inputs.
const START_BYTES: u64 = 64 << 10;

/// The bytes of a manifest, not decoded yet.
pub struct ManifestFile {
    /// All bytes of the manifest, or its first ones.
    pub bytes: Vec<u8>,
    /// True if these are all bytes.
    pub whole: bool,
    /// True if the time of last use had to be updated and could not be.
    pub overdue: bool,
    /// The time when it was read, in nanoseconds since 1970.
    pub read_ns: i64,
}

impl Store {
    /// Returns the bytes of the manifest of `weak`, if there is one. If `touch` is set, updates the
    /// time of its last use.
    pub fn read_manifest(&self, weak: &Fingerprint, touch: bool) -> Result<Option<ManifestFile>, StoreError> {
        self.read_manifest_to(Contents::Manifests, weak, touch, MANIFEST_BYTES_MAX)
    }

    /// Returns the bytes of the manifest of handed-over records for `weak`. A process that can
    /// write the store must not use it: see [`Store::may_be_written`].
    pub fn read_handed_over(&self, weak: &Fingerprint, touch: bool) -> Result<Option<ManifestFile>, StoreError> {
        self.read_manifest_to(Contents::HandedOver, weak, touch, MANIFEST_BYTES_MAX)
    }

    /// Returns the start of the manifest of `weak`, for [`Manifest::decode_start`]. With each
    /// further value of `parts`, from 0 on, the start is four times as long. A small manifest is
    /// returned whole.
    pub fn read_manifest_start(
        &self,
        weak: &Fingerprint,
        touch: bool,
        parts: u32,
    ) -> Result<Option<ManifestFile>, StoreError> {
        let bytes_max = START_BYTES.checked_shl(2 * parts).unwrap_or(MANIFEST_BYTES_MAX);
        self.read_manifest_to(Contents::Manifests, weak, touch, bytes_max.min(MANIFEST_BYTES_MAX))
    }

    fn read_manifest_to(
        &self,
        table: Contents,
        weak: &Fingerprint,
        touch: bool,
        bytes_max: u64,
    ) -> Result<Option<ManifestFile>, StoreError> {
        let path = self.path_of(table, weak);
        let opened = if_there(open_plain(&path)).map_err(StoreError::reading(&path))?;
        let Some((file, stat)) = opened.filter(|(_, stat)| stat.size_bytes <= MANIFEST_BYTES_MAX) else {
            return Ok(None);
        };
        let whole = stat.size_bytes <= bytes_max;
        let read = match whole {
            true => larder_sys::read_sized(&file, stat.size_bytes),
            false => {
                let mut bytes = Vec::with_capacity(bytes_max as usize);
                (&file).take(bytes_max).read_to_end(&mut bytes).map(|_| bytes)
            }
        };
        let bytes = read.map_err(StoreError::reading(&path))?;
        let read_ns = larder_sys::now_coarse_ns();
        let age_ns = read_ns.saturating_sub(stat.modified_ns);
        let due = touch && age_ns > USE_COARSE.as_nanos() as i64;
        let overdue = due && file.set_times(FileTimes::new().set_modified(SystemTime::now())).is_err();
        Ok(Some(ManifestFile { bytes, whole, overdue, read_ns }))
    }

    /// Returns the weak fingerprints of all manifests.
    pub fn recorded(&self) -> Result<Vec<Fingerprint>, StoreError> {
        Ok(self.list(Contents::Manifests)?.into_iter().map(|(weak, _)| weak).collect())
    }

    /// Adds `entry` to the manifest of `weak`. Its blobs must be in the store already. Returns by
    /// how many bytes the store grew.
    pub fn record(&self, weak: &Fingerprint, walk: &ExplainWalk, entry: Entry) -> Result<u64, StoreError> {
        let mut manifest = Manifest::new(*weak, walk);
        manifest.add(entry);
        self.add_to_manifest(&manifest, Contents::Manifests)
    }

    /// Writes the first manifest of a fingerprint in `table`. Returns by how many bytes the store
    /// grew, or `None` if there is a manifest already. No lock is needed, because nothing is
    /// replaced. The following race loses the new manifest, which costs a hit:
    /// 1. A process that holds the lock finds no manifest.
    /// 2. This function puts the new one in place.
    /// 3. The other process replaces it with its own.
    pub(crate) fn begin_manifest(&self, new: &Manifest, table: Contents) -> Result<Option<u64>, StoreError> {
        let path = self.path_of(table, &new.weak);
        if path.exists() {
            return Ok(None);
        }
        let mut temporary = self.temporary()?;
        let bytes = new.encode();
        temporary.write_all(&bytes)?;
        Ok(temporary.place_new(&path)?.then_some(bytes.len() as u64))
    }

    /// Adds the entries of `new` to the manifest of the same fingerprint in `table`. Returns by how
    /// many bytes the store grew.
    pub(crate) fn add_to_manifest(&self, new: &Manifest, table: Contents) -> Result<u64, StoreError> {
        let weak = &new.weak;
        let _lock = self.lock(&weak.hex()[..2])?;
        let old = match self.read_manifest_to(table, weak, false, MANIFEST_BYTES_MAX) {
            // The path is not a regular file or belongs to another user. It is replaced.
            Err(StoreError::Io { source, .. }) if source.kind() == io::ErrorKind::Other => None,
            other => other?,
        };
        let mut manifest = Manifest { entries: Vec::new(), ..new.clone() };
        if let Some(old) = &old
            && let Ok(read) = Manifest::decode(&old.bytes)
            && read.weak == *weak
        {
            manifest.entries = read.entries;
            // A manifest from a remote does not have the fields of the walk.
            if manifest.fields.is_empty() {
                manifest.fields = read.fields;
            }
        }
        new.entries.iter().rev().for_each(|entry| manifest.add(entry.clone()));
        let bytes = manifest.encode();
        self.put_file(&self.path_of(table, weak), &bytes)?;
        Ok((bytes.len() as u64).saturating_sub(old.map_or(0, |old| old.bytes.len() as u64)))
    }

    /// Returns true if `note` was not noted before, and notes it. Returns false if it cannot be
    /// noted, so that no warning is shown twice.
    pub fn first_time(&self, note: &Digest) -> bool {
        let path = self.file("notes").join(note.hex());
        if path.exists() {
            return false;
        }
        self.open_or_make(&path, OpenOptions::new().write(true).create_new(true)).is_ok()
    }
}
