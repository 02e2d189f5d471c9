//! Stamps: what `stat` said of a file whose content was read, or of a directory in which names were found missing, as
//! proof that this is still so. One mapped table for each run of the system, shared without a lock.
//!
//! ```text
//! words of 64 bits, native order: 0 version · 1 number of slots, a power of two · 2…9 zero · then the slots
//! slot = volume, inode, size, modified ns, changed ns, digest (4 words), check
//! ```
//! A directory's slot has `u64::MAX` for its size and the digest of the names that it does not have; so has a file's
//! that says what its bytes do not hold. The check is a mix
//! of the other nine words, written last: a slot that two processes wrote at once, or that was damaged, is no slot. An
//! empty slot is all zeros. A slot is looked for in a window of `WINDOW` slots from its home; when that is full of others' the
//! table is doubled, up to `SLOTS_MAX`, and then the home slot is overwritten. Whoever knows how many come asks before.
//!
//! A stamp is kept only where the file system's change time is the kernel's clock, and only when it was taken at least
//! `STAMP_AGE_MIN_NS` after that time: a change within the same tick could otherwise go unseen.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use larder_model::{Digest, DigestWriter};
use larder_sys::{Look, Opening, Trust, Words};

use crate::layout::{make_directory, own_user};
use crate::{Store, StoreError};

/// How long after the last change a stamp must be taken to be believed: two ticks of the slowest kernel clock (100 Hz).
pub const STAMP_AGE_MIN_NS: i64 = 20_000_000;

const VERSION: u64 = 0x4c52_4453_0000_0003;
const HEADER_WORDS: usize = 10;
const SLOT_WORDS: usize = 10;
const SLOTS_FIRST: usize = 1 << 12;
const SLOTS_MAX: usize = 1 << 20;
const WINDOW: usize = 16;
/// So many inodes in a row have their homes in one part, and so many slots are a part: as much as a page fault brings,
/// and room for so many rows that parts fill evenly.
const TOGETHER: u64 = 16;
const PART_SLOTS: u64 = 1 << 10;
const DIRECTORY: u64 = u64::MAX;
/// Larger ones hash 20 MB by a twentieth faster, and what is smaller slower: `cargo xtask bench copy --buffers`.
const BUFFER_BYTES: usize = 64 << 10;
/// What an empty table is made of: no memory is asked for, since where there is none the tool must still run.
static ZEROS: [u8; 8 << 10] = [0; 8 << 10];

type Slot = [u64; SLOT_WORDS];

/// What is mapped, by as many threads as there are.
struct Table {
    words: Words,
    crowded: AtomicBool,
}

/// The stamps of this run of the system, for several threads: each has its own handle, all of them one table.
pub struct SharedStamps {
    path: Option<PathBuf>,
    table: Option<Arc<Table>>,
    writable: bool,
}

impl SharedStamps {
    /// The stamps in `store`, with room for those of so many files: a table that grows by doubling would have forgotten
    /// most of them before the last is kept.
    pub fn open(store: &Store, files: usize) -> SharedStamps {
        let stamps = Stamps::open(store, true);
        // Twice as many: fuller, a stamp finds no place near its home.
        let wanted = files.saturating_mul(2).next_power_of_two().min(SLOTS_MAX);
        let Stamps { path, table, writable, .. } = match stamps.grow_to(store, wanted) {
            Ok(true) => Stamps::open(store, true),
            // Without, more is read the next time.
            Ok(false) | Err(_) => stamps,
        };
        SharedStamps { path, table, writable }
    }

    /// A handle for one thread.
    pub fn stamps(&self) -> Stamps {
        let (path, table, writable) = (self.path.clone(), self.table.clone(), self.writable);
        Stamps { path, table, writable, trust: RefCell::default(), buffer: RefCell::default() }
    }
}

/// The stamps of this run of the system.
pub struct Stamps {
    path: Option<PathBuf>,
    table: Option<Arc<Table>>,
    writable: bool,
    trust: RefCell<Vec<(u64, Trust)>>,
    /// For reading, one file after the other.
    buffer: RefCell<Vec<u8>>,
}

impl Stamps {
    /// The stamps in `store`; none where they cannot be opened, which only costs time. With `writable` they are made
    /// where they are not there.
    pub fn open(store: &Store, writable: bool) -> Stamps {
        let path = larder_sys::boot_id().ok().map(|id| store.file("stamps").join(id));
        let mut table = path.as_ref().and_then(|path| open_table(path, writable).ok());
        let writable = writable && table.is_some();
        if table.is_none() {
            // A store that cannot be written can still be read.
            table = path.as_ref().and_then(|path| open_table(path, false).ok());
        }
        let table = table.map(|words| Arc::new(Table { words, crowded: AtomicBool::new(false) }));
        Stamps { writable, table, path, trust: RefCell::default(), buffer: RefCell::default() }
    }

    /// No stamps: everything is read.
    pub fn none() -> Stamps {
        Stamps { path: None, table: None, writable: false, trust: RefCell::default(), buffer: RefCell::default() }
    }

    /// Whether something may be written to the store.
    pub(crate) fn writable(&self) -> bool {
        self.writable
    }

    /// The content that a file with this look is known to have.
    pub fn content(&self, look: &Look) -> Option<Digest> {
        let wanted = stamp(look, look.size_bytes);
        self.find(home(&wanted, 0), &wanted, |_| true).map(|slot| digest_of(&slot))
    }

    /// Whether a directory with this look is known to have none of the names with this digest.
    pub fn names_absent(&self, look: &Look, names: &Digest) -> bool {
        let wanted = stamp(look, DIRECTORY);
        let names = words_of(names);
        self.find(home(&wanted, names[0]), &wanted, |slot| same(&slot[5..9], &names)).is_some()
    }

    /// Hash an open file from its start, and keep its stamp if it can be believed. A file that changes meanwhile is an
    /// error.
    pub fn hash(&self, file: &mut File) -> io::Result<Digest> {
        self.hash_of(file).map(|(digest, _)| digest)
    }

    /// As `hash`, and what the file system says of the file, before as after.
    pub fn hash_of(&self, file: &mut File) -> io::Result<(Digest, Look)> {
        let now_ns = larder_sys::now_coarse_ns();
        let before = larder_sys::file_look(&*file)?;
        let digest = hash_all(file, before.size_bytes)?;
        if larder_sys::file_look(&*file)? != before {
            return Err(io::Error::other("changed while it was read"));
        }
        if self.writable && old_enough(&before, now_ns) && self.trust(&before, file).files {
            self.keep(slot_of(stamp(&before, before.size_bytes), &digest), 0);
        }
        Ok((digest, before))
    }

    /// Hash a file that had this look when it was opened, for comparing its content with one that is known. A change
    /// meanwhile does no harm: the bytes are not the known ones, or they are; and its stamp, which is old, is that of
    /// no file any more.
    pub(crate) fn hash_for_comparison(&self, file: &mut File, look: &Look) -> io::Result<Digest> {
        let now_ns = larder_sys::now_coarse_ns();
        let mut buffer = self.buffer.borrow_mut();
        buffer.resize(BUFFER_BYTES, 0);
        let digest = hash_with(file, &mut buffer, Some(look.size_bytes))?;
        if self.writable && old_enough(look, now_ns) && self.trust(look, file).files {
            self.keep(slot_of(stamp(look, look.size_bytes), &digest), 0);
        }
        Ok(digest)
    }

    /// Keep that a directory, which had this look at `now_ns` and still after the names were looked for, has none of
    /// them. `trust` is asked of its file system where that is not known yet.
    pub fn keep_absent(&self, look: &Look, now_ns: i64, names: &Digest, trust: impl FnOnce() -> Trust) {
        if self.writable && old_enough(look, now_ns) && self.remembered(look.volume, trust).directories {
            let slot = slot_of(stamp(look, DIRECTORY), names);
            self.keep(slot, slot[5]);
        }
    }

    /// Whether of a file with this look it is known what this digest stands for.
    pub(crate) fn says(&self, look: &Look, what: &Digest) -> bool {
        self.names_absent(look, what)
    }

    /// Keep that of the open file, which had this look at `now_ns` and still after it was read.
    pub(crate) fn keep_saying(&self, look: &Look, now_ns: i64, what: &Digest, file: &File) {
        if self.writable && old_enough(look, now_ns) && self.trust(look, file).files {
            let slot = slot_of(stamp(look, DIRECTORY), what);
            self.keep(slot, slot[5]);
        }
    }

    /// Whether an unchanged directory of this file system has the same names. `ask` is asked once a file system.
    pub fn trusts_directories(&self, look: &Look, ask: impl FnOnce() -> Trust) -> bool {
        self.remembered(look.volume, ask).directories
    }

    /// Whether this file system is a local one of a kind that is known.
    pub(crate) fn trusts_files(&self, look: &Look, ask: impl FnOnce() -> Trust) -> bool {
        self.remembered(look.volume, ask).files
    }

    /// Whether a change always shows in the change time of a file that was looked at before it.
    pub fn times_are_exact(&self, look: &Look, ask: impl FnOnce() -> Trust) -> bool {
        self.remembered(look.volume, ask).files && larder_sys::times_are_multigrain()
    }

    fn trust(&self, look: &Look, file: &File) -> Trust {
        self.remembered(look.volume, || larder_sys::file_trust(file).unwrap_or(Trust::NONE))
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

    fn find(&self, home: u64, stamp: &[u64; 5], also: impl Fn(&Slot) -> bool) -> Option<Slot> {
        let slots = slots(&self.table.as_ref()?.words)?;
        let inode = |slot: &&[AtomicU64]| slot[1].load(Ordering::Acquire) == stamp[1];
        let found = window(slots, home).filter(inode).map(read);
        found.filter(|slot| same(&slot[..5], stamp) && also(slot)).find(|slot| slot[9] == check(slot))
    }

    fn keep(&self, slot: Slot, salt: u64) {
        let place = home(&slot[..5].try_into().unwrap_or_default(), salt);
        let Some(table) = &self.table else { return };
        let Some(slots) = slots(&table.words) else { return };
        // What a file was before it changed is true no more, whatever its size was.
        let same = |found: &Slot| {
            let of_files = found[2] != DIRECTORY && slot[2] != DIRECTORY;
            found[..2] == slot[..2] && (of_files || found[2] == slot[2] && found[5..9] == slot[5..9])
        };
        let free = |found: &Slot| found[9] == 0 || found[9] != check(found);
        let places: Vec<usize> = positions(slots, place).collect();
        let at =
            |wanted: &dyn Fn(&Slot) -> bool| places.iter().copied().find(|&p| wanted(&read(&slots[p..p + SLOT_WORDS])));
        let chosen = at(&same).or_else(|| at(&free)).unwrap_or_else(|| {
            table.crowded.store(true, Ordering::Relaxed);
            places[0]
        });
        write(&slots[chosen..chosen + SLOT_WORDS], &slot);
    }

    /// Double the table if it was found crowded. Another process may do the same; one of the two tables stays.
    pub fn settle(&self, store: &Store) -> Result<(), StoreError> {
        let Some(table) = self.table.as_ref().filter(|table| table.crowded.load(Ordering::Relaxed)) else {
            return Ok(());
        };
        let count = slots(&table.words).map_or(0, <[AtomicU64]>::len) / SLOT_WORDS * 2;
        self.grow_to(store, count).map(drop)
    }

    /// Have a table of so many slots in place of a smaller one; whether it was made.
    fn grow_to(&self, store: &Store, count: usize) -> Result<bool, StoreError> {
        let (Some(path), Some(table)) = (&self.path, &self.table) else { return Ok(false) };
        let Some(old) = slots(&table.words) else { return Ok(false) };
        if !self.writable || count > SLOTS_MAX || count <= old.len() / SLOT_WORDS {
            return Ok(false);
        }
        let temporary = store.temporary()?;
        let words = create_table(&temporary.file, count).map_err(StoreError::writing(path))?;
        if let Some(new) = slots(&words) {
            for slot in old.chunks_exact(SLOT_WORDS).map(read).filter(|slot| slot[9] != 0 && slot[9] == check(slot)) {
                let salt = if slot[2] == DIRECTORY { slot[5] } else { 0 };
                let place = home(&slot[..5].try_into().unwrap_or_default(), salt);
                if let Some(free) = positions(new, place).find(|&p| new[p + 9].load(Ordering::Relaxed) == 0) {
                    write(&new[free..free + SLOT_WORDS], &slot);
                }
            }
        }
        temporary.place(path).map(|()| true)
    }
}

fn old_enough(look: &Look, now_ns: i64) -> bool {
    look.changed_ns.saturating_add(STAMP_AGE_MIN_NS) <= now_ns
}

fn hash_all(file: &mut File, size_bytes: u64) -> io::Result<Digest> {
    // The kernel's own files have no size, and some give all that they hold at once or only its beginning.
    const KERNELS_FILE_BYTES: usize = 4096;
    let buffer_bytes = BUFFER_BYTES.min(size_bytes as usize + 1).max(KERNELS_FILE_BYTES);
    hash_with(file, &mut vec![0; buffer_bytes], None)
}

/// With an expected size, its last bytes are not followed by another look for more, where they did not fill the buffer.
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

fn stamp(look: &Look, size: u64) -> [u64; 5] {
    [look.volume, look.inode, size, look.modified_ns as u64, look.changed_ns as u64]
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

/// Word by word: `==` calls `memcmp`, which in musl goes byte by byte.
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

/// SplitMix64's finaliser: every input bit reaches every output bit.
fn mix(mut x: u64) -> u64 {
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// Never zero. Pairs are multiplied and their products folded (the idea is wyhash's): no pair waits for another one,
/// since this is done for each file of a hit.
fn check(slot: &Slot) -> u64 {
    const ODD: [u64; 4] = [0x9e37_79b9_7f4a_7c15, 0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb, 0xd6e8_feb8_6659_fd93];
    let fold = |pair: usize| {
        let [a, b] = [slot[2 * pair] ^ ODD[pair], slot[2 * pair + 1] ^ ODD[pair].rotate_left(32)];
        let product = u128::from(a) * u128::from(b);
        (product as u64 ^ (product >> 64) as u64).rotate_left(16 * pair as u32 + 1)
    };
    mix(VERSION ^ fold(0) ^ fold(1) ^ fold(2) ^ fold(3) ^ mix(slot[8])) | 1
}

/// Files have their home by identity alone, so that a new stamp takes the place of the old one; those that were made
/// one after the other have it in one part of the table, so that a directory's headers touch few pages of a large one.
fn home(stamp: &[u64; 5], salt: u64) -> u64 {
    let part = mix(stamp[0] ^ mix((stamp[1] / TOGETHER) ^ mix(salt)));
    part - part % PART_SLOTS + mix(part ^ stamp[1]) % PART_SLOTS
}

fn positions(slots: &[AtomicU64], home: u64) -> impl Iterator<Item = usize> + use<> {
    let count = slots.len() / SLOT_WORDS;
    (0..WINDOW).map(move |step| ((home as usize).wrapping_add(step) & (count - 1)) * SLOT_WORDS)
}

fn window(slots: &[AtomicU64], home: u64) -> impl Iterator<Item = &[AtomicU64]> {
    positions(slots, home).map(|at| &slots[at..at + SLOT_WORDS])
}

fn read(words: &[AtomicU64]) -> Slot {
    let mut slot = [0; SLOT_WORDS];
    for (value, word) in slot.iter_mut().zip(words) {
        *value = word.load(Ordering::Acquire);
    }
    slot
}

fn write(words: &[AtomicU64], slot: &Slot) {
    words[9].store(0, Ordering::Release);
    for (word, value) in words.iter().zip(slot) {
        word.store(*value, Ordering::Release);
    }
}

fn slots(table: &Words) -> Option<&[AtomicU64]> {
    table.words().get(HEADER_WORDS..)
}

fn open_table(path: &PathBuf, writable: bool) -> io::Result<Words> {
    let opening = if writable { Opening::ChangePlain } else { Opening::ReadPlain };
    match larder_sys::open(path.as_os_str().as_bytes(), opening).and_then(|file| map_table(&file, writable)) {
        Err(_) if writable => {
            if let Some(dir) = path.parent() {
                make_directory(dir).map_err(io::Error::other)?;
            }
            let new = path.with_extension(format!("{:016x}", larder_sys::random_u64()));
            let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&new)?;
            let done = create_table(&file, SLOTS_FIRST).and_then(|words| std::fs::rename(&new, path).map(|()| words));
            if done.is_err() {
                let _ = std::fs::remove_file(&new);
            }
            done
        }
        other => other,
    }
}

/// Fill a new file with an empty table: with real blocks, so that a full disk is an error now and no signal later.
fn create_table(mut file: &File, count: usize) -> io::Result<Words> {
    use std::io::Write;
    let mut header = [0u64; HEADER_WORDS];
    header[..2].copy_from_slice(&[VERSION, count as u64]);
    let mut bytes = [0; HEADER_WORDS * 8];
    for (bytes, word) in bytes.chunks_exact_mut(8).zip(header) {
        bytes.copy_from_slice(&word.to_ne_bytes());
    }
    file.write_all(&bytes)?;
    let mut left = count * SLOT_WORDS * 8;
    while left > 0 {
        let part = left.min(ZEROS.len());
        file.write_all(&ZEROS[..part])?;
        left -= part;
    }
    map_table(file, true)
}

fn map_table(file: &File, writable: bool) -> io::Result<Words> {
    let look = larder_sys::file_look(file)?;
    // Another user's stamps could say anything.
    if look.owner != own_user() {
        return Err(io::Error::from(io::ErrorKind::PermissionDenied));
    }
    let length = look.size_bytes as usize;
    let words = Words::map(file, look.size_bytes, length / 8, writable)?;
    let count = (length / 8).saturating_sub(HEADER_WORDS) / SLOT_WORDS;
    let [version, slots] = [0, 1].map(|i| words.words().get(i).map_or(0, |word| word.load(Ordering::Relaxed)));
    let whole = length == (HEADER_WORDS + count * SLOT_WORDS) * 8;
    if version != VERSION || slots != count as u64 || !count.is_power_of_two() || !whole || count > SLOTS_MAX {
        return Err(io::Error::from(io::ErrorKind::InvalidData));
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(inode: u64, changed_ns: i64) -> Look {
        Look {
            kind: larder_sys::Kind::File,
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

    fn open() -> (tempfile::TempDir, Store, Stamps) {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path()).expect("opens");
        let stamps = Stamps::open(&store, true);
        (dir, store, stamps)
    }

    const BOTH: Trust = Trust { files: true, directories: true };

    #[test]
    fn absences_hold_for_the_same_look_and_names_only() {
        let (_dir, _store, stamps) = open();
        let (a, b) = (Digest::of(b"a"), Digest::of(b"b"));
        let now = 1 << 60;
        stamps.keep_absent(&look(1, 5), now, &a, || BOTH);
        stamps.keep_absent(&look(1, 5), now, &b, || BOTH);
        assert!(stamps.names_absent(&look(1, 5), &a) && stamps.names_absent(&look(1, 5), &b));
        assert!(!stamps.names_absent(&look(1, 6), &a));
        assert!(!stamps.names_absent(&look(2, 5), &a));
        assert!(!stamps.names_absent(&look(1, 5), &Digest::of(b"c")));
    }

    #[test]
    fn too_young_or_untrusted_stamps_are_not_kept() {
        let (_dir, _store, stamps) = open();
        let names = Digest::of(b"a");
        stamps.keep_absent(&look(1, 1000), 1000 + STAMP_AGE_MIN_NS - 1, &names, || BOTH);
        assert!(!stamps.names_absent(&look(1, 1000), &names));
        let (_dir, _store, stamps) = open();
        stamps.keep_absent(&look(1, 1000), 1 << 60, &names, || Trust { files: true, directories: false });
        assert!(!stamps.names_absent(&look(1, 1000), &names));
    }

    #[test]
    fn a_table_with_room_keeps_what_several_threads_learn() {
        let (_dir, store, _) = open();
        let names = Digest::of(b"n");
        let shared = SharedStamps::open(&store, 20_000);
        std::thread::scope(|scope| {
            for from in [0, 10_000] {
                let (shared, names) = (&shared, &names);
                scope.spawn(move || {
                    let stamps = shared.stamps();
                    for inode in from..from + 10_000 {
                        stamps.keep_absent(&look(inode, 5), 1 << 60, names, || BOTH);
                    }
                });
            }
        });
        let again = Stamps::open(&store, false);
        let known = (0..20_000).filter(|&inode| again.names_absent(&look(inode, 5), &names)).count();
        assert!(known > 19_900, "{known}: nearly all find a place");
        let smaller = SharedStamps::open(&store, 10).stamps();
        assert!(smaller.names_absent(&look(7, 5), &names), "what is larger stays");
    }

    #[test]
    fn a_crowded_table_grows_and_forgets_nothing_it_still_has() {
        let (_dir, store, stamps) = open();
        let names = Digest::of(b"n");
        for inode in 0..20_000 {
            stamps.keep_absent(&look(inode, 5), 1 << 60, &names, || BOTH);
        }
        let known = |stamps: &Stamps| (0..20_000).filter(|&i| stamps.names_absent(&look(i, 5), &names)).count();
        let before = known(&stamps);
        stamps.settle(&store).expect("grows");
        let grown = Stamps::open(&store, true);
        assert_eq!(known(&grown), before);
        for inode in 0..3_000 {
            grown.keep_absent(&look(inode, 5), 1 << 60, &names, || BOTH);
        }
        assert!(known(&grown) > before);
    }

    #[test]
    fn a_file_that_changes_often_has_one_stamp_and_does_not_make_the_table_grow() {
        let (_dir, store, stamps) = open();
        let slot = |size_bytes, changed_ns| {
            let look = Look { size_bytes, ..look(1, changed_ns) };
            (look, slot_of(stamp(&look, size_bytes), &Digest::of(&changed_ns.to_ne_bytes())))
        };
        for at in 0..200 {
            stamps.keep(slot(at as u64, at).1, 0);
        }
        stamps.settle(&store).expect("settles");
        let known = |at: i64| stamps.content(&slot(at as u64, at).0);
        assert_eq!((known(199), known(198)), (Some(Digest::of(&199i64.to_ne_bytes())), None));
        let again = Stamps::open(&store, false);
        let words = slots(&again.table.as_ref().expect("a table").words).map(<[AtomicU64]>::len);
        assert_eq!(words, Some(SLOTS_FIRST * SLOT_WORDS));
    }

    #[test]
    fn files_made_one_after_the_other_lie_in_one_part() {
        let (_dir, store, stamps) = open();
        for inode in 0..(SLOTS_FIRST / 2) as u64 {
            let look = look(inode, 5);
            stamps.keep(slot_of(stamp(&look, look.size_bytes), &Digest::of(&inode.to_ne_bytes())), 0);
        }
        let known = |stamps: &Stamps| {
            (0..SLOTS_FIRST as u64 / 2).filter(|&inode| stamps.content(&look(inode, 5)).is_some()).count()
        };
        let found = known(&stamps);
        assert!(found > SLOTS_FIRST * 49 / 100, "{found}: half a table finds room");
        stamps.settle(&store).expect("settles");
        assert!(known(&Stamps::open(&store, false)) >= found);
        let part = |inode| home(&stamp(&look(inode, 5), 5), 0) / PART_SLOTS;
        assert!((1..TOGETHER).all(|inode| part(inode) == part(0)) && part(TOGETHER) != part(0));
    }

    #[test]
    fn no_damaged_byte_is_believed() {
        let (_dir, store, stamps) = open();
        let names = Digest::of(b"n");
        stamps.keep_absent(&look(1, 5), 1 << 60, &names, || BOTH);
        let path = stamps.path.clone().expect("has a path");
        let bytes = std::fs::read(&path).expect("reads");
        let at = bytes[HEADER_WORDS * 8..].iter().position(|b| *b != 0).expect("a slot") + HEADER_WORDS * 8;
        let start = (at - HEADER_WORDS * 8) / 80 * 80 + HEADER_WORDS * 8;
        for byte in start..start + 80 {
            let mut damaged = bytes.clone();
            damaged[byte] ^= 0x41;
            std::fs::write(&path, damaged).expect("writes");
            assert!(!Stamps::open(&store, false).names_absent(&look(1, 5), &names), "byte {}", byte - start);
        }
    }

    #[test]
    fn a_file_is_hashed_once() {
        let (dir, _store, stamps) = open();
        let path = dir.path().join("f");
        std::fs::write(&path, "hello").expect("writes");
        let mut file = File::open(&path).expect("opens");
        let look = larder_sys::file_look(&file).expect("looks");
        assert_eq!(stamps.content(&look), None);
        std::thread::sleep(std::time::Duration::from_millis(40));
        assert_eq!(stamps.hash(&mut file).expect("hashes"), Digest::of(b"hello"));
        let trusted = larder_sys::file_trust(&file).expect("asks").files;
        assert_eq!(stamps.content(&look), trusted.then(|| Digest::of(b"hello")));
    }
}
