//! The table of stamps: one file for each boot of the system, shared by all processes without a
//! lock.
//!
//! ```text
//! 64-bit words in native byte order:
//!   0 version · 1 number of slots, a power of two · 2…9 zero · then the slots and NEAR more slots
//! slot = volume, inode, size, mtime ns, ctime ns, digest (4 words), check
//! ```
//! The check word is a hash of the other nine words and is written last. A slot with another check
//! word is ignored. It was written by two processes at once, or it was damaged. An empty slot is
//! all zeros.
//!
//! A slot is searched in a window of `WINDOW` slots from its home. If the window is full, the home
//! slot is overwritten, and the table is marked so that it is doubled later, up to `SLOTS_MAX`.
//!
//! Files that were created one after the other have their homes side by side. From a large table
//! such a group is read by one system call. If it were mapped, nearly each slot would cost a page
//! fault, which takes several times as long. So a large table is mapped only for writing, and a
//! small one always.
//!
//! Unaware of: what a stamp says, and when it is believed.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use larder_sys::{Opening, Words};

use crate::layout::{make_directory, own_user};

const VERSION: u64 = 0x4c52_4453_0000_0004;
const HEADER_WORDS: usize = 10;
pub(super) const SLOT_WORDS: usize = 10;
const SLOT_BYTES: usize = SLOT_WORDS * 8;
pub(super) const SLOTS_FIRST: usize = 1 << 12;
pub(super) const SLOTS_MAX: usize = 1 << 20;
const WINDOW: usize = 44;
/// This many consecutive inodes have their homes side by side.
const TOGETHER: u64 = 4;
/// The number of slots that are read at once: all in which the stamps of such a group can be. They
/// take less than a page.
const NEAR: usize = TOGETHER as usize + WINDOW;
/// A table of up to this size, in bytes, is also mapped for reading.
const SMALL_BYTES_MAX: u64 = 1 << 20;
/// How many groups a thread keeps. The files of a directory are looked up by name, and were not
/// created in that order.
const NEAR_KEPT: usize = 8;
/// The content of an empty table. It is static, because allocating memory could fail, and then the
/// tool must still run.
static ZEROS: [u8; 8 << 10] = [0; 8 << 10];

pub(super) type Slot = [u64; SLOT_WORDS];

/// An open table, for any number of threads.
pub(super) struct Table {
    file: File,
    /// The number of slots, without the `NEAR` extra ones at the end.
    count: usize,
    writable: bool,
    /// The mapping, made when it is first needed.
    words: OnceLock<Option<Words>>,
    crowded: AtomicBool,
}

/// The groups of slots that one thread has read from a table.
#[derive(Default)]
pub(super) struct Near {
    bytes: RefCell<Vec<u8>>,
    /// For each group, one more than its first slot, or 0 if there is none.
    first: RefCell<[usize; NEAR_KEPT]>,
}

impl Table {
    /// Opens the table at `path`. If `writable` is set, a table that does not exist or is not valid
    /// is created.
    pub(super) fn open(path: &Path, writable: bool) -> io::Result<Table> {
        let opening = if writable { Opening::ChangePlain } else { Opening::ReadPlain };
        match larder_sys::open(path.as_os_str().as_bytes(), opening).and_then(|file| Table::of(file, writable)) {
            Err(_) if writable => {
                if let Some(dir) = path.parent() {
                    make_directory(dir).map_err(io::Error::other)?;
                }
                let new = path.with_extension(format!("{:016x}", larder_sys::random_u64()));
                let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&new)?;
                let done = Table::create(file, SLOTS_FIRST).and_then(|table| {
                    std::fs::rename(&new, path)?;
                    Ok(table)
                });
                if done.is_err() {
                    let _ = std::fs::remove_file(&new);
                }
                done
            }
            other => other,
        }
    }

    /// Fills a new file with an empty table. Zeros are written so that a full disk is an error now
    /// and not a signal later.
    pub(super) fn create(mut file: File, count: usize) -> io::Result<Table> {
        let mut bytes = [0; HEADER_WORDS * 8];
        for (bytes, word) in bytes.chunks_exact_mut(8).zip([VERSION, count as u64]) {
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        file.write_all(&bytes)?;
        let mut left = (count + NEAR) * SLOT_BYTES;
        while left > 0 {
            let part = left.min(ZEROS.len());
            file.write_all(&ZEROS[..part])?;
            left -= part;
        }
        Table::of(file, true)
    }

    fn of(file: File, writable: bool) -> io::Result<Table> {
        let stat = larder_sys::fstat(&file)?;
        // Stamps that another user wrote could say anything.
        if stat.owner != own_user() {
            return Err(io::Error::from(io::ErrorKind::PermissionDenied));
        }
        let mut header = [0; 16];
        file.read_exact_at(&mut header, 0)?;
        let [version, count] = [word_at(&header, 0), word_at(&header, 1)];
        let is_one = version == VERSION && count.is_power_of_two() && count <= SLOTS_MAX as u64;
        if !is_one || stat.size_bytes != size_bytes(count as usize) {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        }
        Ok(Table { file, count: count as usize, writable, words: OnceLock::new(), crowded: AtomicBool::new(false) })
    }

    /// Returns the number of slots.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns true if a stamp found no free slot.
    pub(super) fn is_crowded(&self) -> bool {
        self.crowded.load(Ordering::Relaxed)
    }

    /// Returns the slot of this file for which `wanted` returns true. `salt` is 0 for the content
    /// of a file. For other stamps it is the first word of the digest, because one directory may
    /// have several stamps.
    pub(super) fn find(
        &self,
        near: &Near,
        stamp: &[u64; 5],
        salt: u64,
        wanted: impl Fn(&Slot) -> bool,
    ) -> Option<Slot> {
        let (first, home) = self.home(stamp, salt);
        let is_it = |slot: &Slot| wanted(slot) && slot[9] == check(slot);
        if let (true, Some(slots)) = (self.is_small(), self.slots()) {
            let slots = slots[home * SLOT_WORDS..].chunks_exact(SLOT_WORDS).take(WINDOW);
            return slots.filter(|slot| slot[1].load(Ordering::Acquire) == stamp[1]).map(read).find(is_it);
        }
        let mut bytes = near.bytes.borrow_mut();
        let at = near.take(&self.file, first, &mut bytes)?;
        let slots = bytes[at + (home - first) * SLOT_BYTES..].chunks_exact(SLOT_BYTES).take(WINDOW);
        let of_this = slots.filter(|slot| word_at(slot, 1) == stamp[1]);
        of_this.map(|bytes| std::array::from_fn(|word| word_at(bytes, word))).find(is_it)
    }

    fn is_small(&self) -> bool {
        size_bytes(self.count) <= SMALL_BYTES_MAX
    }

    /// Writes a slot in place of one for which `same` returns true, or else of a free one.
    pub(super) fn keep(&self, near: &Near, slot: &Slot, salt: u64, same: impl Fn(&Slot) -> bool) {
        let Some(slots) = self.slots() else { return };
        let stamp = slot[..5].try_into().unwrap_or_default();
        let (_, home) = self.home(&stamp, salt);
        let window = &slots[home * SLOT_WORDS..(home + WINDOW) * SLOT_WORDS];
        let free = |found: &Slot| found[9] == 0 || found[9] != check(found);
        let at = |wanted: &dyn Fn(&Slot) -> bool| window.chunks_exact(SLOT_WORDS).find(|slot| wanted(&read(slot)));
        let chosen = at(&same).or_else(|| at(&free)).unwrap_or_else(|| {
            self.crowded.store(true, Ordering::Relaxed);
            &window[..SLOT_WORDS]
        });
        write(chosen, slot);
        near.forget();
    }

    /// Writes all slots of `other` to this table, as far as there is room. `salt` gives the salt of
    /// a slot. Returns false if one of the tables cannot be mapped.
    pub(super) fn fill_from(&self, other: &Table, salt: impl Fn(&Slot) -> u64) -> bool {
        let (Some(_), Some(all)) = (self.slots(), other.slots()) else { return false };
        let near = Near::default();
        let all = all.chunks_exact(SLOT_WORDS).map(read);
        for slot in all.filter(|slot| slot[9] != 0 && slot[9] == check(slot)) {
            self.keep(&near, &slot, salt(&slot), |_| false);
        }
        true
    }

    fn slots(&self) -> Option<&[AtomicU64]> {
        // If the file was cut since it was opened, the words that are gone read as zero.
        let map = || {
            let size_bytes = size_bytes(self.count);
            Words::map(&self.file, size_bytes, size_bytes as usize / 8, self.writable).ok()
        };
        self.words.get_or_init(map).as_ref()?.words().get(HEADER_WORDS..)
    }

    /// Returns the first slot of the group of a file, and its home. The home of a file depends on
    /// its identity and not on its times, so that a new stamp replaces the old one.
    fn home(&self, stamp: &[u64; 5], salt: u64) -> (usize, usize) {
        let together = mix(stamp[0] ^ mix((stamp[1] / TOGETHER) ^ mix(salt)));
        let first = together as usize & (self.count - 1);
        (first, first + (stamp[1] % TOGETHER) as usize)
    }
}

impl Near {
    /// Returns the offset in `bytes` of the slots from `first` on. They are read if they are not
    /// there.
    fn take(&self, file: &File, first: usize, bytes: &mut Vec<u8>) -> Option<usize> {
        let mut firsts = self.first.borrow_mut();
        let place = (mix(first as u64) % NEAR_KEPT as u64) as usize;
        let at = place * NEAR * SLOT_BYTES;
        if firsts[place] != first + 1 {
            if bytes.is_empty() {
                *bytes = vec![0; NEAR_KEPT * NEAR * SLOT_BYTES];
            }
            firsts[place] = 0;
            let from = (HEADER_WORDS * 8 + first * SLOT_BYTES) as u64;
            file.read_exact_at(&mut bytes[at..at + NEAR * SLOT_BYTES], from).ok()?;
            firsts[place] = first + 1;
        }
        Some(at)
    }

    fn forget(&self) {
        *self.first.borrow_mut() = [0; NEAR_KEPT];
    }
}

fn size_bytes(count: usize) -> u64 {
    (HEADER_WORDS * 8 + (count + NEAR) * SLOT_BYTES) as u64
}

fn word_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at * 8..at * 8 + 8).map_or(0, |word| u64::from_ne_bytes(word.try_into().unwrap_or_default()))
}

/// Mixes the bits by the finaliser of SplitMix64, so that every input bit affects every output bit.
fn mix(mut x: u64) -> u64 {
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// Returns the check word of a slot, which is never zero. Pairs of words are multiplied and their
/// products folded, as in wyhash. No pair depends on another one, so that the processor can work on
/// them in parallel. This is computed for each file of a hit.
pub(super) fn check(slot: &Slot) -> u64 {
    const ODD: [u64; 4] = [0x9e37_79b9_7f4a_7c15, 0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb, 0xd6e8_feb8_6659_fd93];
    let fold = |pair: usize| {
        let [a, b] = [slot[2 * pair] ^ ODD[pair], slot[2 * pair + 1] ^ ODD[pair].rotate_left(32)];
        let product = u128::from(a) * u128::from(b);
        (product as u64 ^ (product >> 64) as u64).rotate_left(16 * pair as u32 + 1)
    };
    mix(VERSION ^ fold(0) ^ fold(1) ^ fold(2) ^ fold(3) ^ mix(slot[8])) | 1
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_made_one_after_the_other_are_read_at_once() {
        let file = tempfile::tempfile().expect("a file");
        let table = Table::create(file, SLOTS_FIRST).expect("is made");
        let first = |inode| table.home(&[9, inode, 5, 1, 5], 0).0;
        assert!((1..TOGETHER).all(|inode| first(inode) == first(0)) && first(TOGETHER) != first(0));
    }
}
