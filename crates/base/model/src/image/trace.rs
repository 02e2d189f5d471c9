//! AccessTrace: which packs earlier jobs touched, in the order of the first touches. A mount
//! prefetches packs in this order.
//!
//! ```text
//! trace = u8 version, u8 (0: of this image, 1: carried over from an earlier one), number of packs,
//!         number*
//! ```
//! The trace only decides the order of prefetching. A wrong trace costs time and nothing else.

use std::collections::HashSet;
use std::ops::Range;

use super::packs::PackList;
use crate::{DecodeError, IMAGE_VERSION, Reader, Writer};

/// The packs that earlier jobs touched, in the order of the first touches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessTrace {
    /// The numbers of the packs, without repetitions.
    pub packs: Vec<u32>,
    /// True if jobs touched these packs in an earlier image, and this image still has them.
    pub is_carried: bool,
}

impl AccessTrace {
    /// Makes a trace of ranges of bytes of the device, in the order in which they were touched.
    pub fn of(ranges: &[Range<u64>], packs: &PackList) -> AccessTrace {
        let touched = ranges.iter().flat_map(|range| packs.of_range(range.start, range.end - range.start));
        AccessTrace::default().and(touched.map(|pack| pack as u32))
    }

    /// Returns this trace with `packs` appended, except for those that it already has.
    pub fn and(mut self, packs: impl Iterator<Item = u32>) -> AccessTrace {
        let mut seen: HashSet<u32> = self.packs.iter().copied().collect();
        self.packs.extend(packs.filter(|pack| seen.insert(*pack)));
        self
    }

    /// Returns the packs as ranges of bytes of the device, in the same order. Packs that are not in
    /// `packs` are left out.
    pub fn ranges(&self, packs: &PackList) -> Vec<Range<u64>> {
        self.packs.iter().filter_map(|&pack| packs.bytes_of(pack as usize)).collect()
    }

    /// Returns the encoded trace.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::versioned(IMAGE_VERSION);
        w.u8(self.is_carried.into());
        w.number(self.packs.len() as u64);
        self.packs.iter().for_each(|pack| w.number((*pack).into()));
        w.bytes
    }

    /// Decodes a trace.
    pub fn decode(bytes: &[u8]) -> Result<AccessTrace, DecodeError> {
        let mut r = Reader::versioned(bytes, IMAGE_VERSION)?;
        let is_carried = r.flag()?;
        let (count, mut seen) = (r.count()?, HashSet::new());
        let mut packs = Vec::new();
        for _ in 0..count {
            let at = r.position();
            let pack = u32::try_from(r.number()?).ok().filter(|pack| seen.insert(*pack));
            packs.push(pack.ok_or(DecodeError::Limit { limit: u32::MAX.into(), at })?);
        }
        r.finish()?;
        Ok(AccessTrace { packs, is_carried })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BLOCK_BYTES, Blob, Digest, Pack};

    fn packs(blocks: &[u32]) -> PackList {
        let pack = |&blocks: &u32| Pack { blob: Blob { digest: Digest([7; 32]), size_bytes: 9 }, blocks };
        PackList::new(blocks.iter().map(pack).collect()).expect("few")
    }

    #[test]
    fn ranges_become_packs_in_their_order_and_ranges_again() {
        let packs = packs(&[2, 1, 3]);
        let block = |number: u64| number * BLOCK_BYTES..(number + 1) * BLOCK_BYTES;
        let trace = AccessTrace::of(&[block(4), block(0), block(5), block(99)], &packs);
        assert_eq!(trace.packs, [2, 0]);
        let all = trace.clone().and([0, 1].into_iter());
        assert_eq!(all.packs, [2, 0, 1]);
        assert_eq!(trace.ranges(&packs), [3 * BLOCK_BYTES..6 * BLOCK_BYTES, 0..2 * BLOCK_BYTES]);
        let beyond = AccessTrace { packs: vec![3, 1], is_carried: true };
        assert_eq!(beyond.ranges(&packs), [block(2)]);
        assert_eq!(AccessTrace::of(std::slice::from_ref(&(0..3 * BLOCK_BYTES)), &packs).packs, [0, 1]);
    }

    #[test]
    fn there_and_back_and_no_pack_twice() {
        let trace = AccessTrace { packs: vec![300, 1, 0], is_carried: true };
        let bytes = trace.encode();
        assert_eq!(AccessTrace::decode(&bytes), Ok(trace));
        for at in 0..bytes.len() {
            assert!(AccessTrace::decode(&bytes[..at]).is_err(), "cut at {at}");
        }
        let twice = AccessTrace { packs: vec![1, 1], is_carried: false };
        assert!(matches!(AccessTrace::decode(&twice.encode()), Err(DecodeError::Limit { .. })));
    }
}
