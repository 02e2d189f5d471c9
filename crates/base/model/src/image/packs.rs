//! Packs: where the bytes of an image's files are. A pack is a sequence of blocks that are
//! compressed together. The packs, one after the other, are the content of a block device.
//!
//! ```text
//! packs  = u8 version, number of packs, pack*
//! pack   = digest of its compressed bytes, number of compressed bytes, number of blocks
//! pieces = u8 version, number of packs, (number of pieces, piece*)*       in the order of packs
//! piece  = digest of its bytes, number of blocks
//! ```
//! A piece is the content of a file, or one mebibyte of a larger file. It begins at a block, and
//! the rest of its last block is zeros. The list of pieces is only needed to save another image
//! without sending pieces that are already stored.
//!
//! Unaware of: which files the pieces belong to, where the bytes are stored.

use std::ops::Range;

use crate::{Blob, DecodeError, Digest, IMAGE_VERSION, Reader, Writer};

/// The size of a block, in bytes: what EROFS and the page cache of every supported machine can map.
pub const BLOCK_BYTES: u64 = 4096;
/// The maximum size of a piece, in bytes. A larger file is cut into pieces.
pub const PIECE_BYTES: u64 = 1 << 20;
/// The maximum number of blocks of a pack. A pack is closed once it has as many blocks as a full
/// piece. So its last piece can exceed that by at most one piece.
pub const PACK_BLOCKS_MAX: u64 = 2 * PIECE_BYTES / BLOCK_BYTES;
/// The maximum size of a compressed pack, in bytes. Bytes that cannot be compressed grow a little.
const PACK_BYTES_MAX: u64 = PACK_BLOCKS_MAX * BLOCK_BYTES + (64 << 10);
/// The maximum number of blocks of all packs. EROFS numbers blocks with 32 bits, and the highest
/// number means a hole.
const BLOCKS_MAX: u64 = u32::MAX as u64 - 1;

/// Some pieces that are compressed together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pack {
    /// The compressed bytes.
    pub blob: Blob,
    /// The number of blocks that they decompress to.
    pub blocks: u32,
}

/// All packs of an image, in the order of the device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PackList {
    /// The packs.
    pub packs: Vec<Pack>,
    /// The first block of each pack, and the end of the last pack.
    starts: Vec<u32>,
}

impl PackList {
    /// Makes a list of these packs. Returns an error if they are more than 16 TiB together.
    pub fn new(packs: Vec<Pack>) -> Result<Self, DecodeError> {
        let mut starts = Vec::with_capacity(packs.len() + 1);
        let mut at = 0u64;
        for pack in &packs {
            starts.push(at as u32);
            at += u64::from(pack.blocks);
            if at > BLOCKS_MAX {
                return Err(DecodeError::Limit { limit: BLOCKS_MAX, at: starts.len() });
            }
        }
        starts.push(at as u32);
        Ok(PackList { packs, starts })
    }

    /// Returns the number of blocks of all packs together.
    pub fn blocks(&self) -> u32 {
        self.starts.last().copied().unwrap_or(0)
    }

    /// Returns the first block of a pack.
    pub fn start(&self, number: usize) -> u32 {
        self.starts[number]
    }

    /// Returns the bytes of the device that a pack holds, or `None` if there is no such pack.
    pub fn bytes_of(&self, number: usize) -> Option<Range<u64>> {
        let (start, end) = (self.starts.get(number)?, self.starts.get(number + 1)?);
        Some(u64::from(*start) * BLOCK_BYTES..u64::from(*end) * BLOCK_BYTES)
    }

    /// Returns the number of the pack that holds a block.
    pub fn of_block(&self, block: u32) -> Option<usize> {
        (block < self.blocks()).then(|| self.starts.partition_point(|&start| start <= block) - 1)
    }

    /// Returns the number of the pack that holds a block. It is fast if that is pack `last`, the
    /// one that was found before, and it stores the found number in `last`.
    pub fn of_next_block(&self, block: u32, last: &mut usize) -> Option<usize> {
        match self.starts.get(*last..*last + 2) {
            Some(&[start, end]) if (start..end).contains(&block) => Some(*last),
            _ => {
                let found = self.of_block(block)?;
                *last = found;
                Some(found)
            }
        }
    }

    /// Returns the packs that hold any of these bytes of the device. Bytes beyond its end are in no
    /// pack.
    pub fn of_range(&self, offset: u64, length: u64) -> Range<usize> {
        let last = (offset.saturating_add(length).saturating_sub(1) / BLOCK_BYTES).min(u64::from(u32::MAX)) as u32;
        let Some(first) = u32::try_from(offset / BLOCK_BYTES).ok().and_then(|block| self.of_block(block)) else {
            return 0..0;
        };
        match length {
            0 => 0..0,
            _ => first..self.of_block(last).map_or(self.packs.len(), |last| last + 1),
        }
    }

    /// Returns the encoded list.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::versioned(IMAGE_VERSION);
        w.number(self.packs.len() as u64);
        for pack in &self.packs {
            w.blob(&pack.blob);
            w.number(pack.blocks.into());
        }
        w.bytes
    }

    /// Decodes a list.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::versioned(bytes, IMAGE_VERSION)?;
        let count = r.count()?;
        let mut pack = |_| Ok(Pack { blob: r.blob(PACK_BYTES_MAX)?, blocks: r.number_up_to(PACK_BLOCKS_MAX)? as u32 });
        let packs: Vec<Pack> = (0..count).map(&mut pack).collect::<Result<_, DecodeError>>()?;
        r.finish()?;
        PackList::new(packs)
    }
}

/// The pieces in each pack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PieceList {
    /// For each pack, its pieces in order: the digest of the bytes, and the number of blocks.
    pub packs: Vec<Vec<(Digest, u32)>>,
}

impl PieceList {
    /// Returns the encoded list.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::versioned(IMAGE_VERSION);
        w.number(self.packs.len() as u64);
        for pieces in &self.packs {
            w.number(pieces.len() as u64);
            for (digest, blocks) in pieces {
                w.digest(digest);
                w.number((*blocks).into());
            }
        }
        w.bytes
    }

    /// Decodes a list.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::versioned(bytes, IMAGE_VERSION)?;
        let mut packs = Vec::new();
        for _ in 0..r.count()? {
            let count = r.count()?;
            let piece = |r: &mut Reader<'_>| Ok((r.digest()?, r.number_up_to(PIECE_BYTES / BLOCK_BYTES)? as u32));
            packs.push((0..count).map(|_| piece(&mut r)).collect::<Result<_, DecodeError>>()?);
        }
        r.finish()?;
        Ok(PieceList { packs })
    }

    /// Returns true if this can be the list of `packs`: it has as many packs, and each has as many
    /// blocks.
    pub fn fits(&self, packs: &PackList) -> bool {
        let blocks = |pieces: &Vec<(Digest, u32)>| pieces.iter().map(|piece| u64::from(piece.1)).sum::<u64>();
        self.packs.len() == packs.packs.len()
            && self.packs.iter().zip(&packs.packs).all(|(pieces, pack)| blocks(pieces) == u64::from(pack.blocks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(blocks: &[u32]) -> PackList {
        let pack = |&blocks: &u32| Pack { blob: Blob { digest: Digest([7; 32]), size_bytes: 9 }, blocks };
        PackList::new(blocks.iter().map(pack).collect()).expect("few")
    }

    #[test]
    fn which_packs_hold_a_range() {
        let list = list(&[2, 1, 3]);
        let check =
            |offset, length, expect: Range<usize>| assert_eq!(list.of_range(offset, length), expect, "{offset}");
        check(0, 1, 0..1);
        check(8191, 1, 0..1);
        check(8191, 2, 0..2);
        check(0, 1 << 40, 0..3);
        check(5 * 4096, 4096, 2..3);
        check(6 * 4096, 4096, 0..0);
        check(0, 0, 0..0);
        check(u64::MAX, u64::MAX, 0..0);
        assert_eq!((list.blocks(), list.start(2), list.of_block(5), list.of_block(6)), (6, 3, Some(2), None));
        for mut last in 0..5 {
            (0..7).for_each(|block| assert_eq!(list.of_next_block(block, &mut last), list.of_block(block)));
        }
    }

    #[test]
    fn what_is_too_large_is_refused() {
        let mut w = Writer::versioned(IMAGE_VERSION);
        w.number(1);
        w.digest(&Digest([1; 32]));
        w.number(1);
        w.number(PACK_BLOCKS_MAX + 1);
        assert!(matches!(PackList::decode(&w.bytes), Err(DecodeError::Limit { .. })));
        assert!(PackList::decode(&[IMAGE_VERSION, 200, 1]).is_err());
        assert_eq!(PackList::decode(&[9, 0]), Err(DecodeError::Version(9)));
    }

    #[test]
    fn a_list_of_pieces_fits_its_packs_only() {
        let pieces = PieceList { packs: vec![vec![(Digest([1; 32]), 1), (Digest([2; 32]), 1)], vec![]] };
        assert!(pieces.fits(&list(&[2, 0])));
        assert!(!pieces.fits(&list(&[2, 1])));
        assert!(!pieces.fits(&list(&[2])));
        assert_eq!(PieceList::decode(&pieces.encode()), Ok(pieces));
    }
}
