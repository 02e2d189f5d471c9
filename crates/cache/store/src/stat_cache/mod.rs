//! Stamps: the stat cache. A stamp says which content a file with this `stat` has, or which names a
//! directory with this `stat` does not have. Then the file or directory need not be read again.
//!
//! A stamp consists of the `stat` (file system, inode, size, mtime, ctime) and a digest. For a file
//! the digest is that of its content. Stamps of two other kinds have `u64::MAX` for the size. For a
//! directory, the digest is that of names that it does not have. For a file, it can also stand for
//! a statement about its content, for example "contains no root".
//!
//! A stamp could be wrong by the following race:
//! 1. A file is changed, and the kernel sets its ctime to the current clock tick.
//! 2. larder calls `stat` and hashes the file within the same tick.
//! 3. The file is changed again within the same tick. Its size and times stay the same.
//! 4. A later lookup finds the stamp and returns the digest from step 2.
//!
//! So a stamp is only kept if it was taken at least `STAMP_AGE_MIN_NS` after the ctime. The file
//! system must also take the ctime from the kernel's clock. The table of stamps is in `table`.
//!
//! Unaware of: why a file is read.

mod table;

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;

use larder_model::{Digest, DigestWriter};
use larder_sys::{Opening, Stat, Trust};

use self::table::{Near, SLOT_WORDS, SLOTS_MAX, Slot, Table, check};
use crate::{Store, StoreError};

/// How long after the last change of a file its stamp must be taken, in nanoseconds: two ticks of
/// the slowest kernel clock (100 Hz).
pub const STAMP_AGE_MIN_NS: i64 = 20_000_000;

/// Stands in place of a size in stamps of directories, and of statements about files.
const DIRECTORY: u64 = u64::MAX;
/// The size of the buffer, in bytes. A larger one hashes 20 MB faster by a twentieth, and smaller
/// files slower (docs/performance.md, "Buffers").
const BUFFER_BYTES: usize = 64 << 10;

/// The stamps since the last boot, for several threads. Each thread has its own handle to the same
/// table.
pub struct SharedStatCache {
    path: Option<PathBuf>,
    table: Option<Arc<Table>>,
    writable: bool,
}

impl SharedStatCache {
    /// Opens the stamps in `store` with room for those of `files` files. A table that grows only by
    /// doubling would have dropped most stamps before the last one is kept.
    pub fn open(store: &Store, files: usize) -> SharedStatCache {
        let stat_cache = StatCache::open(store, true);
        // Twice as many slots, because in a fuller table some stamps find no free slot in their
        // window.
        let wanted = files.saturating_mul(2).next_power_of_two().min(SLOTS_MAX);
        let StatCache { path, table, writable, .. } = match stat_cache.grow_to(store, wanted) {
            Ok(true) => StatCache::open(store, true),
            // If this fails, more files are read the next time.
            Ok(false) | Err(_) => stat_cache,
        };
        SharedStatCache { path, table, writable }
    }

    /// Returns a handle for one thread.
    pub fn stat_cache(&self) -> StatCache {
        let (path, table, writable) = (self.path.clone(), self.table.clone(), self.writable);
        StatCache { path, table, writable, ..StatCache::none() }
    }
}

/// The stamps since the last boot.
pub struct StatCache {
    path: Option<PathBuf>,
    table: Option<Arc<Table>>,
    near: Near,
    writable: bool,
    trust: RefCell<Vec<(u64, Trust)>>,
    /// The buffer for reading files, one after the other.
    buffer: RefCell<Vec<u8>>,
}

impl StatCache {
    /// Opens the stamps in `store`. If that fails there are none, which only costs time. If
    /// `writable` is set, the table is created if it does not exist.
    pub fn open(store: &Store, writable: bool) -> StatCache {
        let path = larder_sys::boot_id().ok().map(|id| store.file("stamps").join(id));
        let mut table = path.as_ref().and_then(|path| Table::open(path, writable).ok());
        let writable = writable && table.is_some();
        if table.is_none() {
            // A store that cannot be written can still be read.
            table = path.as_ref().and_then(|path| Table::open(path, false).ok());
        }
        StatCache { writable, table: table.map(Arc::new), path, ..StatCache::none() }
    }

    /// Returns an empty set of stamps, so that every file is read.
    pub fn none() -> StatCache {
        let near = Near::default();
        StatCache {
            path: None,
            table: None,
            near,
            writable: false,
            trust: RefCell::default(),
            buffer: RefCell::default(),
        }
    }

    /// Returns true if this process may write to the store.
    pub(crate) fn writable(&self) -> bool {
        self.writable
    }

    /// Returns the content of the file with this `stat`, if it is known.
    pub fn content(&self, stat: &Stat) -> Option<Digest> {
        let wanted = stamp(stat, stat.size_bytes);
        self.find(&wanted, 0, |_| true).map(|slot| digest_of(&slot))
    }

    /// Returns the content of the file at a path; links are followed. The file is read if its
    /// content is not known. Returns `None` if it cannot be read.
    pub fn content_of(&self, path: &[u8]) -> Option<Digest> {
        let stat = larder_sys::stat(path).ok()?;
        let read = || self.hash(&mut larder_sys::open(path, Opening::Read).ok()?).ok();
        self.content(&stat).or_else(read)
    }

    /// Returns true if it is known that the directory with this `stat` has none of the names with
    /// the digest `names`.
    pub fn names_absent(&self, stat: &Stat, names: &Digest) -> bool {
        let wanted = stamp(stat, DIRECTORY);
        let names = words_of(names);
        self.find(&wanted, names[0], |slot| same(&slot[5..9], &names)).is_some()
    }

    /// Hashes an open file from its start, and keeps its stamp if it is old enough. Returns an
    /// error if the file changes meanwhile.
    pub fn hash(&self, file: &mut File) -> io::Result<Digest> {
        self.hash_of(file).map(|(digest, _)| digest)
    }

    /// Hashes an open file as [`StatCache::hash`] does. Also returns its `stat`, which was the same
    /// before and after reading.
    pub fn hash_of(&self, file: &mut File) -> io::Result<(Digest, Stat)> {
        let now_ns = larder_sys::now_coarse_ns();
        let before = larder_sys::fstat(&*file)?;
        let digest = hash_all(file, before.size_bytes)?;
        if larder_sys::fstat(&*file)? != before {
            return Err(io::Error::other("changed while it was read"));
        }
        if self.writable && old_enough(&before, now_ns) && self.trust(&before, file).files {
            self.keep(slot_of(stamp(&before, before.size_bytes), &digest), 0);
        }
        Ok((digest, before))
    }

    /// Hashes an open file for comparison with a known content. `stat` is its `stat` after opening.
    /// A change while the file is read does no harm. Either the digest does not match, or the bytes
    /// that were read are the known content. And the stamp that is kept has the times from before
    /// the change, so no later lookup finds it.
    pub(crate) fn hash_for_comparison(&self, file: &mut File, stat: &Stat) -> io::Result<Digest> {
        let now_ns = larder_sys::now_coarse_ns();
        let mut buffer = self.buffer.borrow_mut();
        buffer.resize(BUFFER_BYTES, 0);
        let digest = hash_with(file, &mut buffer, Some(stat.size_bytes))?;
        if self.writable && old_enough(stat, now_ns) && self.trust(stat, file).files {
            self.keep(slot_of(stamp(stat, stat.size_bytes), &digest), 0);
        }
        Ok(digest)
    }

    /// Stores a stamp that says that a directory has none of the names with the digest `names`.
    /// `stat` is its `stat` at `now_ns`, and it must be the same after the names were looked up.
    /// `trust` is called if its file system is not known yet.
    pub fn keep_absent(&self, stat: &Stat, now_ns: i64, names: &Digest, trust: impl FnOnce() -> Trust) {
        if self.writable && old_enough(stat, now_ns) && self.remembered(stat.volume, trust).directories {
            let slot = slot_of(stamp(stat, DIRECTORY), names);
            self.keep(slot, slot[5]);
        }
    }

    /// Returns true if a stamp makes the statement `what` about the file with this `stat`.
    pub(crate) fn says(&self, stat: &Stat, what: &Digest) -> bool {
        self.names_absent(stat, what)
    }

    /// Stores a stamp with the statement `what` about an open file. `stat` is its `stat` at
    /// `now_ns`, and it must be the same after the file was read.
    pub(crate) fn keep_saying(&self, stat: &Stat, now_ns: i64, what: &Digest, file: &File) {
        if self.writable && old_enough(stat, now_ns) && self.trust(stat, file).files {
            let slot = slot_of(stamp(stat, DIRECTORY), what);
            self.keep(slot, slot[5]);
        }
    }

    /// Returns true if a directory of this file system with an unchanged `stat` has the same names.
    /// `ask` is called at most once per file system.
    pub fn trusts_directories(&self, stat: &Stat, ask: impl FnOnce() -> Trust) -> bool {
        self.remembered(stat.volume, ask).directories
    }

    /// Returns true if this is a local file system of a known kind.
    pub(crate) fn trusts_files(&self, stat: &Stat, ask: impl FnOnce() -> Trust) -> bool {
        self.remembered(stat.volume, ask).files
    }

    /// Returns true if a change after a `stat` always changes the ctime (multigrain timestamps).
    pub fn times_are_exact(&self, stat: &Stat, ask: impl FnOnce() -> Trust) -> bool {
        self.remembered(stat.volume, ask).files && larder_sys::times_are_multigrain()
    }

    fn trust(&self, stat: &Stat, file: &File) -> Trust {
        self.remembered(stat.volume, || larder_sys::file_trust(file).unwrap_or(Trust::NONE))
    }

    fn remembered(&self, volume: u64, ask: impl FnOnce() -> Trust) -> Trust {
        if volume == 1 << 63 {
            return Trust::NONE;
        }
        if let Some((_, trust)) = self.trust.borrow().iter().find(|(v, _)| *v == volume) {
            return *trust;
        }
        let trust = ask();
        self.trust.borrow_mut().push((volume, trust));
        trust
    }

    fn find(&self, stamp: &[u64; 5], salt: u64, also: impl Fn(&Slot) -> bool) -> Option<Slot> {
        self.table.as_ref()?.find(&self.near, stamp, salt, |slot| same(&slot[..5], stamp) && also(slot))
    }

    fn keep(&self, slot: Slot, salt: u64) {
        let Some(table) = &self.table else { return };
        // Stamps of earlier states of this file are replaced, whatever its size was.
        table.keep(&self.near, &slot, salt, |found| {
            let of_files = found[2] != DIRECTORY && slot[2] != DIRECTORY;
            found[..2] == slot[..2] && (of_files || found[2] == slot[2] && found[5..9] == slot[5..9])
        });
    }

    /// Doubles the table if a stamp found no free slot. If another process does so at the same
    /// time, one of the two tables is dropped.
    pub fn settle(&self, store: &Store) -> Result<(), StoreError> {
        let Some(table) = self.table.as_ref().filter(|table| table.is_crowded()) else { return Ok(()) };
        self.grow_to(store, table.count() * 2).map(drop)
    }

    /// Replaces a smaller table by one with `count` slots. Returns true if it was made.
    fn grow_to(&self, store: &Store, count: usize) -> Result<bool, StoreError> {
        let (Some(path), Some(table)) = (&self.path, &self.table) else { return Ok(false) };
        if !self.writable || count > SLOTS_MAX || count <= table.count() {
            return Ok(false);
        }
        let temporary = store.temporary()?;
        let new = temporary.file.try_clone().and_then(|file| Table::create(file, count));
        let new = new.map_err(StoreError::writing(path))?;
        match new.fill_from(table, |slot| if slot[2] == DIRECTORY { slot[5] } else { 0 }) {
            true => temporary.place(path).map(|()| true),
            false => Ok(false),
        }
    }
}

fn old_enough(stat: &Stat, now_ns: i64) -> bool {
    stat.changed_ns.saturating_add(STAMP_AGE_MIN_NS) <= now_ns
}

fn hash_all(file: &mut File, size_bytes: u64) -> io::Result<Digest> {
    // Files in `/proc` and `/sys` have size 0. Some return all or only the beginning of their
    // content in one read.
    const KERNELS_FILE_BYTES: usize = 4096;
    let buffer_bytes = BUFFER_BYTES.min(size_bytes as usize + 1).max(KERNELS_FILE_BYTES);
    hash_with(file, &mut vec![0; buffer_bytes], None)
}

/// Hashes a file. If `expected_bytes` have been read and the last read did not fill the buffer, no
/// further read is made.
fn hash_with(file: &mut File, buffer: &mut [u8], expected_bytes: Option<u64>) -> io::Result<Digest> {
    let mut digest = DigestWriter::default();
    let mut read_bytes = 0;
    loop {
        match file.read(buffer) {
            Ok(0) => return Ok(digest.finish()),
            Ok(count) => {
                digest.update(&buffer[..count]);
                read_bytes += count as u64;
                if count < buffer.len() && expected_bytes == Some(read_bytes) {
                    return Ok(digest.finish());
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn stamp(stat: &Stat, size: u64) -> [u64; 5] {
    [stat.volume, stat.inode, size, stat.modified_ns as u64, stat.changed_ns as u64]
}

fn slot_of(stamp: [u64; 5], digest: &Digest) -> Slot {
    let mut slot = [0; SLOT_WORDS];
    slot[..5].copy_from_slice(&stamp);
    slot[5..9].copy_from_slice(&words_of(digest));
    slot[9] = check(&slot);
    slot
}

fn words_of(digest: &Digest) -> [u64; 4] {
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(digest.0.chunks_exact(8)) {
        *word = u64::from_ne_bytes(bytes.try_into().unwrap_or_default());
    }
    words
}

/// Compares word by word, because `==` calls `memcmp`, which in musl compares byte by byte.
fn same(a: &[u64], b: &[u64]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a == b)
}

fn digest_of(slot: &Slot) -> Digest {
    let mut bytes = [0; 32];
    for (bytes, word) in bytes.chunks_exact_mut(8).zip(&slot[5..9]) {
        bytes.copy_from_slice(&word.to_ne_bytes());
    }
    Digest(bytes)
}

#[cfg(test)]
mod tests {
    use super::table::SLOTS_FIRST;
    use super::*;

    fn stat(inode: u64, changed_ns: i64) -> Stat {
        Stat {
            kind: larder_sys::FileType::File,
            mode: 0o644,
            volume: 9,
            device: 9,
            inode,
            size_bytes: 5,
            modified_ns: 1,
            changed_ns,
            links: 1,
            owner: 0,
            group: 0,
        }
    }

    fn open() -> (tempfile::TempDir, Store, StatCache) {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path()).expect("opens");
        let stat_cache = StatCache::open(&store, true);
        (dir, store, stat_cache)
    }

    const BOTH: Trust = Trust { files: true, directories: true };

    #[test]
    fn absences_hold_for_the_same_look_and_names_only() {
        let (_dir, _store, stat_cache) = open();
        let (a, b) = (Digest::of(b"a"), Digest::of(b"b"));
        let now = 1 << 60;
        stat_cache.keep_absent(&stat(1, 5), now, &a, || BOTH);
        stat_cache.keep_absent(&stat(1, 5), now, &b, || BOTH);
        assert!(stat_cache.names_absent(&stat(1, 5), &a) && stat_cache.names_absent(&stat(1, 5), &b));
        assert!(!stat_cache.names_absent(&stat(1, 6), &a));
        assert!(!stat_cache.names_absent(&stat(2, 5), &a));
        assert!(!stat_cache.names_absent(&stat(1, 5), &Digest::of(b"c")));
    }

    #[test]
    fn too_young_or_untrusted_stamps_are_not_kept() {
        let (_dir, _store, stat_cache) = open();
        let names = Digest::of(b"a");
        stat_cache.keep_absent(&stat(1, 1000), 1000 + STAMP_AGE_MIN_NS - 1, &names, || BOTH);
        assert!(!stat_cache.names_absent(&stat(1, 1000), &names));
        let (_dir, _store, stat_cache) = open();
        stat_cache.keep_absent(&stat(1, 1000), 1 << 60, &names, || Trust { files: true, directories: false });
        assert!(!stat_cache.names_absent(&stat(1, 1000), &names));
    }

    #[test]
    fn a_table_with_room_keeps_what_several_threads_learn() {
        let (_dir, store, _) = open();
        let names = Digest::of(b"n");
        let shared = SharedStatCache::open(&store, 20_000);
        std::thread::scope(|scope| {
            for from in [0, 10_000] {
                let (shared, names) = (&shared, &names);
                scope.spawn(move || {
                    let stat_cache = shared.stat_cache();
                    for inode in from..from + 10_000 {
                        stat_cache.keep_absent(&stat(inode, 5), 1 << 60, names, || BOTH);
                    }
                });
            }
        });
        let again = StatCache::open(&store, false);
        let known = (0..20_000).filter(|&inode| again.names_absent(&stat(inode, 5), &names)).count();
        assert!(known > 19_900, "{known}: nearly all find a slot");
        let smaller = SharedStatCache::open(&store, 10).stat_cache();
        assert!(smaller.names_absent(&stat(7, 5), &names), "a larger table stays");
    }

    #[test]
    fn a_crowded_table_grows_and_forgets_nothing_it_still_has() {
        let (_dir, store, stat_cache) = open();
        let names = Digest::of(b"n");
        for inode in 0..20_000 {
            stat_cache.keep_absent(&stat(inode, 5), 1 << 60, &names, || BOTH);
        }
        let known =
            |stat_cache: &StatCache| (0..20_000).filter(|&i| stat_cache.names_absent(&stat(i, 5), &names)).count();
        let before = known(&stat_cache);
        stat_cache.settle(&store).expect("grows");
        let grown = StatCache::open(&store, true);
        assert_eq!(known(&grown), before);
        for inode in 0..3_000 {
            grown.keep_absent(&stat(inode, 5), 1 << 60, &names, || BOTH);
        }
        assert!(known(&grown) > before);
    }

    #[test]
    fn a_file_that_changes_often_has_one_stamp_and_does_not_make_the_table_grow() {
        let (_dir, store, stat_cache) = open();
        let slot = |size_bytes, changed_ns| {
            let stat = Stat { size_bytes, ..stat(1, changed_ns) };
            (stat, slot_of(stamp(&stat, size_bytes), &Digest::of(&changed_ns.to_ne_bytes())))
        };
        for at in 0..200 {
            stat_cache.keep(slot(at as u64, at).1, 0);
        }
        stat_cache.settle(&store).expect("settles");
        let known = |at: i64| stat_cache.content(&slot(at as u64, at).0);
        assert_eq!((known(199), known(198)), (Some(Digest::of(&199i64.to_ne_bytes())), None));
        let again = StatCache::open(&store, false);
        assert_eq!(again.table.map(|table| table.count()), Some(SLOTS_FIRST));
    }

    #[test]
    fn half_a_table_finds_room() {
        let (_dir, store, stat_cache) = open();
        let inodes = || 0..(SLOTS_FIRST / 2) as u64;
        for inode in inodes() {
            let stat = stat(inode, 5);
            stat_cache.keep(slot_of(stamp(&stat, stat.size_bytes), &Digest::of(&inode.to_ne_bytes())), 0);
        }
        let known =
            |stat_cache: &StatCache| inodes().filter(|&inode| stat_cache.content(&stat(inode, 5)).is_some()).count();
        let found = known(&stat_cache);
        assert!(found > SLOTS_FIRST * 49 / 100, "{found}");
        stat_cache.settle(&store).expect("settles");
        assert!(known(&StatCache::open(&store, false)) >= found);
    }

    #[test]
    fn what_is_kept_is_found_by_who_looked_before() {
        let (_dir, store, stat_cache) = open();
        let (reader, names) = (StatCache::open(&store, false), Digest::of(b"n"));
        assert!(!reader.names_absent(&stat(1, 5), &names) && !stat_cache.names_absent(&stat(1, 5), &names));
        stat_cache.keep_absent(&stat(1, 5), 1 << 60, &names, || BOTH);
        assert!(stat_cache.names_absent(&stat(1, 5), &names));
        assert!(StatCache::open(&store, false).names_absent(&stat(1, 5), &names));
    }

    #[test]
    fn no_damaged_byte_is_believed() {
        let (_dir, store, stat_cache) = open();
        let names = Digest::of(b"n");
        stat_cache.keep_absent(&stat(1, 5), 1 << 60, &names, || BOTH);
        let path = stat_cache.path.clone().expect("has a path");
        let bytes = std::fs::read(&path).expect("reads");
        // The header is as long as a slot.
        let start = (80..bytes.len()).step_by(80).find(|&at| bytes[at..at + 80] != [0; 80]).expect("a slot");
        for byte in start..start + 80 {
            let mut damaged = bytes.clone();
            damaged[byte] ^= 0x41;
            std::fs::write(&path, damaged).expect("writes");
            assert!(!StatCache::open(&store, false).names_absent(&stat(1, 5), &names), "byte {}", byte - start);
        }
    }

    #[test]
    fn a_file_is_hashed_once() {
        let (dir, _store, stat_cache) = open();
        let path = dir.path().join("f");
        std::fs::write(&path, "hello").expect("writes");
        let mut file = File::open(&path).expect("opens");
        let stat = larder_sys::fstat(&file).expect("looks");
        assert_eq!(stat_cache.content(&stat), None);
        std::thread::sleep(std::time::Duration::from_millis(40));
        assert_eq!(stat_cache.hash(&mut file).expect("hashes"), Digest::of(b"hello"));
        let trusted = larder_sys::file_trust(&file).expect("asks").files;
        assert_eq!(stat_cache.content(&stat), trusted.then(|| Digest::of(b"hello")));
    }
}
