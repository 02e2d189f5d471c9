//! Sets which file each chunk is read from: the data file once its bytes are local, until then the
//! FUSE file.
//!
//! ```text
//!   mounted EROFS metadata: chunk 7 of a file ─► device 1: the data file, read by the kernel
//!                                          or ─► device 2 or 3: the FUSE file, read via the filler
//! ```
//!
//! The list of a file's chunks is in the metadata, which the kernel reads from the page cache for
//! each request. So a single written byte switches a chunk, even in file systems that are mounted.
//! A chunk is only switched when all of its bytes are in the data file. So no read reaches the data
//! file before its bytes do, no matter which process dies at which moment. Reads of the FUSE file
//! wait or fail.
//!
//! Consecutive chunks alternate between the devices 2 and 3, which are the same file. So the kernel
//! cannot merge reads of several chunks. A read of a chunk is a single FUSE request, which succeeds
//! or fails as a whole. This matters because EROFS shows zeros for bytes that a read of a device
//! lacks at its end.
//!
//! Unaware of: which process fills, and which process mounts.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use parking_lot::Mutex;

use crate::erofs::{self, Erofs, Source, Windows};

const SUPERBLOCK: u64 = 1024;
/// The position of the compatible features in the superblock. Their lowest bit says that the
/// superblock has a checksum.
const FEATURES_AT: usize = 8;
/// The position of the number of devices, which is followed by the position of the device table.
const DEVICES_AT: usize = 86;
const SLOT_BYTES: usize = 128;
/// The field of a device slot with the number of the device's first block. It is set to 0, so that
/// only chunks refer to blocks on devices.
const COUNTED_FROM: Range<usize> = 68..72;
const DEVICES: usize = 3;
/// The text in a slot that is reserved for a further device.
const SPARE: &[u8] = b"larder: spare";
/// The device number of the data file.
const FILLED: u8 = 1;
/// The device numbers of the FUSE file.
const ASKED: [u8; 2] = [2, 3];

/// The most chunks of an image, which take 640 MB of memory. With chunks of 1 MiB that is 16 TiB.
const CHUNKS_MAX: u64 = 1 << 24;
const CHUNK_BYTES: usize = 24;
/// The bytes of metadata that are copied at once, an even number.
const PART_BYTES: usize = 256 << 10;

/// Called with an image's metadata and two empty files, for what [`prepare`] does.
pub type Prepare = Arc<dyn Fn(&File, &File, &File) -> io::Result<()> + Send + Sync>;

/// The chunks of an image that is mounted while it is filled.
pub(super) struct Switches {
    file: File,
    /// Sorted by their position in the data file.
    chunks: Mutex<Vec<Chunk>>,
    /// The number of chunks that are not switched yet.
    left: AtomicUsize,
    longest: u64,
}

#[derive(Debug)]
struct Chunk {
    bytes: Range<u64>,
    device_at: u64,
    is_switched: bool,
}

/// Writes a copy of an EROFS image's metadata, in which each chunk is read from the FUSE file, to
/// the empty file `copy`, and the list of its chunks to the empty file `table`. The list is sorted
/// by the position in the data file. Each chunk has three numbers of 64 bits, little-endian: where
/// it begins and ends in the data file, and where its device number is in the metadata. Fails if a
/// file has data on the device that is not in chunks of at most 1 MiB.
pub fn prepare(metadata: &File, copy: &File, table: &File) -> io::Result<()> {
    let (tree, mut chunks) = (Erofs::of(Windows::new(metadata.try_clone()?))?, Vec::new());
    tree.each_file(|file| {
        tree.chunks(file, |chunk| {
            let erofs::Chunk { number, bytes, device_at } = chunk;
            chunks.push((bytes.start, bytes.end, device_at, ASKED[(number % 2) as usize]));
        })
    })?;
    chunks.sort_unstable_by_key(|(_, _, device_at, _)| *device_at);
    copy_with_devices(metadata, copy, chunks.iter().map(|&(_, _, device_at, device)| (device_at, device)))?;
    add_devices(copy)?;
    chunks.sort_unstable();
    let mut to = BufWriter::new(table);
    for (start, end, device_at, _) in chunks {
        [start, end, device_at].into_iter().try_for_each(|number| to.write_all(&number.to_le_bytes()))?;
    }
    to.flush()
}

/// Copies the metadata with other device numbers. `devices` has their positions, sorted, and the
/// lower byte of each. A number is two bytes at an even position.
fn copy_with_devices(metadata: &File, mut copy: &File, devices: impl Iterator<Item = (u64, u8)>) -> io::Result<()> {
    let (mut devices, mut part, mut start) = (devices.peekable(), vec![0; PART_BYTES], 0);
    loop {
        let length = metadata.read_some(&mut part, start)?;
        while let Some((at, device)) = devices.next_if(|(at, _)| *at < start + length as u64) {
            let within = (at - start) as usize;
            part[within] = device;
            part[within + 1] = 0;
        }
        copy.write_all(&part[..length])?;
        start += length as u64;
        if length < PART_BYTES {
            return Ok(());
        }
    }
}

impl Switches {
    /// Opens the copy of an EROFS image's metadata at `path`. If it does not exist, it is made by
    /// `prepare`. The data file has `size_bytes`. Fails if `prepare` fails, or if its list of
    /// chunks does not belong to such files.
    pub(super) fn open(metadata: &Path, path: &Path, size_bytes: u64, prepare: &Prepare) -> io::Result<Switches> {
        let table = path.with_extension("chunks");
        if !path.exists() || !table.exists() {
            let [copied, listed] = ["new", "listed"].map(|end| path.with_extension(end));
            let new = |path: &Path| {
                let _ = fs::remove_file(path);
                File::options().read(true).write(true).create_new(true).open(path)
            };
            prepare(&File::open(metadata)?, &new(&copied)?, &new(&listed)?)?;
            fs::rename(&listed, &table)?;
            // A copy that exists may be mounted, so it stays.
            if path.exists() { fs::remove_file(&copied)? } else { fs::rename(&copied, path)? }
        }
        let file = File::options().read(true).write(true).open(path)?;
        let chunks = listed(&table, file.metadata()?.len(), size_bytes)?;
        let longest = chunks.iter().map(|chunk| chunk.bytes.end - chunk.bytes.start).max().unwrap_or(0);
        Ok(Switches { file, left: AtomicUsize::new(chunks.len()), chunks: Mutex::new(chunks), longest })
    }

    /// Switches the chunks that touch these bytes to the data file, if `filled` returns true for
    /// all of their bytes.
    pub(super) fn switch(&self, bytes: &Range<u64>, filled: impl Fn(&Range<u64>) -> bool) -> io::Result<()> {
        let mut chunks = self.chunks.lock();
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

    /// Returns true if all chunks are read from the data file.
    pub(super) fn are_over(&self) -> bool {
        self.left.load(SeqCst) == 0
    }
}

/// Reads a list of chunks. Another process may have written it, so each number is checked.
fn listed(table: &Path, metadata_bytes: u64, size_bytes: u64) -> io::Result<Vec<Chunk>> {
    let wrong = |what| io::Error::new(io::ErrorKind::InvalidData, what);
    let table = File::open(table)?;
    let length = table.metadata()?.len();
    if length > CHUNKS_MAX * CHUNK_BYTES as u64 {
        return Err(wrong("it has too many chunks"));
    }
    let data_end = size_bytes.next_multiple_of(super::units::UNIT_BYTES);
    let (mut from, mut one) = (BufReader::new(table), [0; CHUNK_BYTES]);
    let (mut chunks, mut last) = (Vec::new(), 0);
    let count = usize::try_from(length / CHUNK_BYTES as u64).unwrap_or(usize::MAX);
    chunks.try_reserve_exact(count).map_err(|_| wrong("there is no memory for its chunks"))?;
    for _ in 0..count {
        from.read_exact(&mut one)?;
        let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| one[at * 8 + byte]));
        let (bytes, device_at) = (number(0)..number(1), number(2));
        let is_possible = last <= bytes.start && bytes.start < bytes.end && bytes.end <= data_end;
        if !is_possible || device_at >= metadata_bytes {
            return Err(wrong("its list of chunks is invalid"));
        }
        last = bytes.start;
        chunks.push(Chunk { bytes, device_at, is_switched: false });
    }
    Ok(chunks)
}

/// Changes the metadata from one device to three.
fn add_devices(file: &File) -> io::Result<()> {
    let mut head = [0; SLOT_BYTES];
    file.read_exact_at(&mut head, SUPERBLOCK)?;
    let two = |at: usize| usize::from(u16::from_le_bytes([head[at], head[at + 1]]));
    if two(DEVICES_AT) != 1 {
        return Err(io::Error::other("its metadata does not have exactly one device"));
    }
    let mut slots = [0; SLOT_BYTES * DEVICES];
    let mut at = (two(DEVICES_AT + 2) * SLOT_BYTES) as u64;
    file.read_at(&mut slots, at)?;
    let has_room = slots.chunks(SLOT_BYTES).skip(1).all(|slot| slot.starts_with(SPARE));
    if !has_room {
        // The table is placed at the end of the file. An error follows if its slot number exceeds
        // 16 bits.
        at = file.metadata()?.len().next_multiple_of(SLOT_BYTES as u64);
    }
    let place = u16::try_from(at / SLOT_BYTES as u64)
        .map_err(|_| io::Error::other("its metadata has no room for more devices"))?;
    slots[COUNTED_FROM].fill(0);
    slots.copy_within(..SLOT_BYTES, SLOT_BYTES);
    slots.copy_within(..SLOT_BYTES, SLOT_BYTES * 2);
    file.write_all_at(&slots, at)?;
    head[FEATURES_AT] &= !1;
    head[DEVICES_AT..][..2].copy_from_slice(&(DEVICES as u16).to_le_bytes());
    head[DEVICES_AT + 2..][..2].copy_from_slice(&place.to_le_bytes());
    file.write_all_at(&head, SUPERBLOCK)?;
    // The kernel reads whole blocks.
    let length = file.metadata()?.len().next_multiple_of(super::units::UNIT_BYTES);
    file.set_len(length)
}
