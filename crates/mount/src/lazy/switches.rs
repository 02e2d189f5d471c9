//! Where each chunk of a file is read from: the data file once its bytes are there, until then a file that asks for them.
//!
//! ```text
//!   EROFS metadata, as mounted:  chunk 7 of a file ─► device 1: the data file, which the kernel reads by itself
//!                                               or ─► device 2 or 3: the FUSE file, whose reads ask the filler
//! ```
//!
//! The list of a file's chunks is in the metadata, which the kernel reads from the page cache for each request. So one
//! written byte switches a chunk over, also in file systems that are mounted. A chunk is switched once all of its bytes
//! are in the data file. Therefore no read ever gets there before its bytes do, whichever process dies when: reads of
//! the FUSE file wait or fail.
//!
//! Chunks that follow each other alternate between the devices 2 and 3, which are the same file. So the kernel never asks
//! for more than a chunk at once, and that is one FUSE request, which succeeds or fails as a whole. EROFS shows zeros for
//! what a read of a device lacks at its end.
//!
//! Unaware of: who fills, and who mounts.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};

use crate::erofs::{self, Erofs};

const SUPERBLOCK: u64 = 1024;
/// Compatible features, of which the lowest bit says that there is a checksum of the superblock.
const FEATURES_AT: usize = 8;
/// How many devices there are besides the metadata, and where they are described.
const DEVICES_AT: usize = 86;
const SLOT_BYTES: usize = 128;
/// Where a device says from which number on its blocks are counted: from none here, so that no file is found on a device
/// but by its chunks.
const COUNTED_FROM: Range<usize> = 68..72;
const DEVICES: usize = 3;
/// What reserves the place of a further device behind the first.
const SPARE: &[u8] = b"larder: spare";
/// The number of the data file.
const FILLED: u8 = 1;
/// The numbers of the file that asks.
const ASKED: [u8; 2] = [2, 3];

/// The chunks of an image that is mounted while it is filled.
pub(super) struct Switches {
    file: File,
    /// In the order of where they begin in the data file.
    chunks: Mutex<Vec<Chunk>>,
    /// How many are not switched over.
    left: AtomicUsize,
    longest: u64,
}

#[derive(Debug)]
struct Chunk {
    bytes: Range<u64>,
    device_at: u64,
    is_switched: bool,
}

impl Switches {
    /// The copy `path` of an EROFS image's metadata, which is made unless it is there. Returns an error if there is a file
    /// that is on the data device, but not by a list of chunks of at most 1 MiB.
    pub(super) fn open(metadata: &Path, path: &Path) -> io::Result<Switches> {
        let (tree, mut chunks) = (Erofs::open(metadata)?, Vec::new());
        tree.each_file(|file| {
            tree.chunks(file, |chunk| {
                let erofs::Chunk { number, bytes, device_at } = chunk;
                chunks.push((number, Chunk { bytes, device_at, is_switched: false }));
            })
        })?;
        if !path.exists() {
            let new = path.with_extension("new");
            let _ = fs::remove_file(&new);
            fs::copy(metadata, &new)?;
            let file = File::options().read(true).write(true).open(&new)?;
            add_devices(&file)?;
            for (number, chunk) in &chunks {
                file.write_all_at(&[ASKED[(number % 2) as usize], 0], chunk.device_at)?;
            }
            fs::rename(&new, path)?;
        }
        let mut chunks: Vec<Chunk> = chunks.into_iter().map(|(_, chunk)| chunk).collect();
        chunks.sort_by_key(|chunk| chunk.bytes.start);
        let longest = chunks.iter().map(|chunk| chunk.bytes.end - chunk.bytes.start).max().unwrap_or(0);
        let file = File::options().read(true).write(true).open(path)?;
        Ok(Switches { file, left: AtomicUsize::new(chunks.len()), chunks: Mutex::new(chunks), longest })
    }

    /// Have the chunks that touch these bytes read from the data file, if all of their bytes are in it.
    pub(super) fn switch(&self, bytes: &Range<u64>, filled: impl Fn(&Range<u64>) -> bool) -> io::Result<()> {
        let mut chunks = self.chunks.lock().unwrap_or_else(PoisonError::into_inner);
        let first = chunks.partition_point(|chunk| chunk.bytes.start + self.longest <= bytes.start);
        for chunk in chunks[first..].iter_mut().take_while(|chunk| chunk.bytes.start < bytes.end) {
            if !chunk.is_switched && chunk.bytes.end > bytes.start && filled(&chunk.bytes) {
                self.file.write_all_at(&[FILLED], chunk.device_at)?;
                chunk.is_switched = true;
                self.left.fetch_sub(1, SeqCst);
            }
        }
        Ok(())
    }

    /// Whether all chunks are read from the data file.
    pub(super) fn are_over(&self) -> bool {
        self.left.load(SeqCst) == 0
    }
}

/// Have three devices instead of one.
fn add_devices(file: &File) -> io::Result<()> {
    let mut head = [0; SLOT_BYTES];
    file.read_exact_at(&mut head, SUPERBLOCK)?;
    let two = |at: usize| usize::from(u16::from_le_bytes([head[at], head[at + 1]]));
    if two(DEVICES_AT) != 1 {
        return Err(io::Error::other("its metadata has not one device"));
    }
    let mut slots = [0; SLOT_BYTES * DEVICES];
    let mut at = (two(DEVICES_AT + 2) * SLOT_BYTES) as u64;
    file.read_at(&mut slots, at)?;
    let has_room = slots.chunks(SLOT_BYTES).skip(1).all(|slot| slot.starts_with(SPARE));
    if !has_room {
        // At the end of the file, if the number of the slot has room for that.
        at = file.metadata()?.len().next_multiple_of(SLOT_BYTES as u64);
    }
    let place = u16::try_from(at / SLOT_BYTES as u64).map_err(|_| io::Error::other("it has no room for devices"))?;
    slots[COUNTED_FROM].fill(0);
    slots.copy_within(..SLOT_BYTES, SLOT_BYTES);
    slots.copy_within(..SLOT_BYTES, SLOT_BYTES * 2);
    file.write_all_at(&slots, at)?;
    head[FEATURES_AT] &= !1;
    head[DEVICES_AT..][..2].copy_from_slice(&(DEVICES as u16).to_le_bytes());
    head[DEVICES_AT + 2..][..2].copy_from_slice(&place.to_le_bytes());
    file.write_all_at(&head, SUPERBLOCK)?;
    // The kernel reads whole blocks.
    let length = file.metadata()?.len().next_multiple_of(super::UNIT_BYTES);
    file.set_len(length)
}
