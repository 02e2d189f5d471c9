//! The contents of files: the digest of each piece, from the stat cache or by reading, and the
//! holes.
//!
//! Unaware of: packs.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;

use larder_model::{Digest, PIECE_BYTES};
use larder_store::{SharedStatCache, StatCache, Store};

use super::snapshot::{Opened, Snapshot};
use crate::tree::{Extent, piece_length, pieces_of};
use crate::{ImageError, Progress, threads};

/// The files that a thread takes at once.
const FILES_AT_ONCE: usize = 256;
/// Holes of smaller files are ignored, because they would save less than a page.
const HOLES_BYTES_MIN: u64 = 32 << 10;

/// The digests and holes of a file.
struct Learned {
    node: u32,
    from: usize,
    digests: Vec<Digest>,
    written: Option<Vec<Extent>>,
}

struct Reader {
    opened: Opened,
    stat_cache: StatCache,
    buffer: Vec<u8>,
}

/// Fills in the digests and holes of a snapshot. Fails if a file has changed since it was scanned.
pub(super) fn read(store: &Store, snapshot: &mut Snapshot, progress: &Progress) -> Result<(), ImageError> {
    let files: Vec<_> = snapshot.files().collect();
    let learned = Mutex::new(Vec::new());
    let shared = SharedStatCache::open(store, files.len());
    let begin = || Reader { opened: Opened::default(), stat_cache: shared.stat_cache(), buffer: Vec::new() };
    threads::each(files.len().div_ceil(FILES_AT_ONCE), begin, |reader, job| {
        let mut batch = Vec::with_capacity(FILES_AT_ONCE);
        for &(node, size, pieces) in files.iter().skip(job * FILES_AT_ONCE).take(FILES_AT_ONCE) {
            batch.push(reader.learn(snapshot, node, size, pieces.range().start)?);
            progress.add(size);
        }
        learned.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).extend(batch);
        Ok(())
    })?;
    // Grows the stat cache if it is too full: other processes may have added entries meanwhile.
    let _ = shared.stat_cache().settle(store);
    let mut learned = learned.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    // Extents are added in the order of nodes, so that the same tree has the same bytes.
    learned.sort_unstable_by_key(|learned| learned.node);
    for Learned { node, from, digests, written } in learned {
        snapshot.digests[from..from + digests.len()].copy_from_slice(&digests);
        if let Some(written) = written {
            snapshot.tree.set_extents(node, &written);
        }
    }
    Ok(())
}

impl Reader {
    fn learn(&mut self, snapshot: &Snapshot, node: u32, size: u64, from: usize) -> Result<Learned, ImageError> {
        let look = &snapshot.looks[node as usize];
        if size <= PIECE_BYTES.min(HOLES_BYTES_MIN - 1)
            && let Some(digest) = self.stat_cache.content(look)
        {
            return Ok(Learned { node, from, digests: vec![digest], written: None });
        }
        let mut file = self.opened.of(snapshot, node, larder_sys::Dir::open_file)?;
        let changed = |_| ImageError::Changed(snapshot.path(node));
        let written = if size >= HOLES_BYTES_MIN { written(&file, size).map_err(changed)? } else { None };
        let digests = if size <= PIECE_BYTES {
            let digest = match self.stat_cache.content(look) {
                Some(digest) => digest,
                None => {
                    let (digest, now) = self.stat_cache.hash_of(&mut file).map_err(changed)?;
                    if now != *look {
                        return Err(ImageError::Changed(snapshot.path(node)));
                    }
                    digest
                }
            };
            vec![digest]
        } else {
            let digest = |number| {
                let bytes = piece(&file, size, number, &mut self.buffer).map_err(changed)?;
                Ok(Digest::of(bytes))
            };
            (0..pieces_of(size)).map(digest).collect::<Result<_, ImageError>>()?
        };
        Ok(Learned { node, from, digests, written })
    }
}

/// Reads a piece. Fails if the file is too short.
pub(super) fn piece<'a>(file: &File, size: u64, number: u64, buffer: &'a mut Vec<u8>) -> std::io::Result<&'a [u8]> {
    let length = piece_length(size, number) as usize;
    buffer.resize(length.max(buffer.len()), 0);
    file.read_exact_at(&mut buffer[..length], number * PIECE_BYTES)?;
    Ok(&buffer[..length])
}

/// Returns the parts of a file that are not holes, or `None` if it has no holes.
fn written(file: &File, size: u64) -> std::io::Result<Option<Vec<Extent>>> {
    let found = extents(file, size)?;
    // Callers read the file from its start.
    rustix::fs::seek(file, rustix::fs::SeekFrom::Start(0))?;
    Ok(found)
}

fn extents(file: &File, size: u64) -> std::io::Result<Option<Vec<Extent>>> {
    use rustix::fs::{SeekFrom, seek};
    use rustix::io::Errno;
    if seek(file, SeekFrom::Hole(0)).is_ok_and(|hole| hole >= size) {
        return Ok(None);
    }
    let (mut found, mut at) = (Vec::new(), 0);
    while at < size {
        let offset = match seek(file, SeekFrom::Data(at)) {
            Ok(offset) if offset < size => offset,
            Ok(_) | Err(Errno::NXIO) => break,
            // The file system does not support it.
            Err(_) => return Ok(None),
        };
        let end = seek(file, SeekFrom::Hole(offset))?.min(size);
        found.push(Extent { offset, length: end - offset });
        at = end;
    }
    if found.is_empty() {
        found.push(Extent { offset: size, length: 0 });
    }
    Ok(Some(found))
}

/// Returns whether any part of a piece is not a hole.
pub(super) fn is_written(extents: &[Extent], number: u64) -> bool {
    let (from, to) = (number * PIECE_BYTES, (number + 1) * PIECE_BYTES);
    extents.is_empty() || extents.iter().any(|e| e.offset < to && e.offset + e.length > from)
}
