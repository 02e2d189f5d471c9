//! Choosing the packs of an image: packs of earlier images of which enough is still needed, and new
//! packs for the rest.
//!
//! Unaware of: files, compression.

use std::collections::{HashMap, HashSet};

use larder_model::{BLOCK_BYTES, Digest, PIECE_BYTES, Pack};

/// A pack of an earlier image is reused if at least one in so many of its blocks is needed.
/// Otherwise its needed pieces are packed again, so that images that are saved often do not end up
/// with many tiny packs. For example, a pack of 8 blocks is reused if 2 or more of them are needed.
const NEEDED_SHARE_MIN: u32 = 4;

/// The packs of earlier images and their pieces.
#[derive(Default)]
pub(super) struct EarlierPacks {
    packs: Vec<(Pack, Vec<(Digest, u32)>)>,
    seen: HashSet<Digest>,
}

impl EarlierPacks {
    /// Adds the packs of an earlier image.
    pub(super) fn add(&mut self, packs: &[Pack], pieces: Vec<Vec<(Digest, u32)>>) {
        for (pack, pieces) in packs.iter().zip(pieces) {
            if self.seen.insert(pack.blob.digest) {
                self.packs.push((*pack, pieces));
            }
        }
    }
}

/// A piece of the image: its number among all pieces, its digest, and its length in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) number: usize,
    pub(super) digest: Digest,
    pub(super) length: u64,
}

/// The packs of an image.
#[derive(Default)]
pub(super) struct Plan {
    /// Packs of earlier images. They come first on the device.
    pub(super) kept: Vec<(Pack, Vec<(Digest, u32)>)>,
    /// New packs, which follow them in this order.
    pub(super) new: Vec<Vec<Wanted>>,
    /// For each digest its pack, counted through `kept` and `new`, and its first block there.
    pub(super) places: HashMap<Digest, (usize, u32)>,
}

impl Plan {
    /// Returns a plan for these pieces, which are in the order of their files.
    pub(super) fn new(pieces: &[Wanted], known: EarlierPacks) -> Plan {
        let needed: HashSet<Digest> = pieces.iter().map(|piece| piece.digest).collect();
        let mut plan = Plan { places: HashMap::with_capacity(needed.len()), ..Plan::default() };
        for (pack, inside) in known.packs {
            let is_new = |digest: &Digest| needed.contains(digest) && !plan.places.contains_key(digest);
            let used: u32 = inside.iter().filter(|(digest, _)| is_new(digest)).map(|(_, blocks)| blocks).sum();
            if used == 0 || used < pack.blocks / NEEDED_SHARE_MIN {
                continue;
            }
            let mut block = 0;
            for (digest, blocks) in &inside {
                if needed.contains(digest) {
                    plan.places.entry(*digest).or_insert((plan.kept.len(), block));
                }
                block += blocks;
            }
            plan.kept.push((pack, inside));
        }
        plan.pack_the_rest(pieces);
        plan
    }

    fn pack_the_rest(&mut self, pieces: &[Wanted]) {
        let (mut open, mut blocks) = (Vec::new(), 0u64);
        for piece in pieces {
            let pack = self.kept.len() + self.new.len();
            if self.places.contains_key(&piece.digest) {
                continue;
            }
            self.places.insert(piece.digest, (pack, blocks as u32));
            blocks += piece.length.div_ceil(BLOCK_BYTES);
            open.push(*piece);
            if blocks * BLOCK_BYTES >= PIECE_BYTES {
                self.new.push(std::mem::take(&mut open));
                blocks = 0;
            }
        }
        if !open.is_empty() {
            self.new.push(open);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_model::{Blob, PACK_BLOCKS_MAX};

    fn digest(n: u32) -> Digest {
        Digest::of(&n.to_le_bytes())
    }

    fn wanted(all: &[(u32, u64)]) -> Vec<Wanted> {
        let one = |(number, &(n, length)): (usize, &(u32, u64))| Wanted { number, digest: digest(n), length };
        all.iter().enumerate().map(one).collect()
    }

    fn known(packs: &[&[u32]]) -> EarlierPacks {
        let mut known = EarlierPacks::default();
        for (at, inside) in packs.iter().enumerate() {
            let blob = Blob { digest: digest(1000 + at as u32), size_bytes: 1 };
            let pieces = inside.iter().map(|&n| (digest(n), 1)).collect();
            known.add(&[Pack { blob, blocks: inside.len() as u32 }], vec![pieces]);
        }
        known
    }

    #[test]
    fn only_what_is_new_is_packed() {
        let pieces = wanted(&[(1, 10), (2, 10), (3, 5000), (3, 5000), (4, 10)]);
        let plan = Plan::new(&pieces, known(&[&[1, 2, 9], &[8, 7], &[1]]));
        assert_eq!(plan.kept.len(), 1);
        assert_eq!(plan.new, [[pieces[2], pieces[4]]]);
        assert_eq!(plan.places[&digest(2)], (0, 1));
        assert_eq!((plan.places[&digest(3)], plan.places[&digest(4)]), ((1, 0), (1, 2)));
    }

    #[test]
    fn a_pack_of_which_little_is_needed_is_not_kept() {
        let mostly_dead: Vec<u32> = (0..8).collect();
        let plan = Plan::new(&wanted(&[(0, 10)]), known(&[&mostly_dead]));
        assert!(plan.kept.is_empty() && plan.new.len() == 1);
        let plan = Plan::new(&wanted(&[(0, 10), (1, 10)]), known(&[&mostly_dead]));
        assert!(plan.kept.len() == 1 && plan.new.is_empty());
    }

    #[test]
    fn no_pack_is_larger_than_its_limit() {
        let pieces: Vec<(u32, u64)> = (0..1000).map(|n| (n, if n % 7 == 0 { PIECE_BYTES } else { 4097 })).collect();
        let plan = Plan::new(&wanted(&pieces), EarlierPacks::default());
        for pack in &plan.new {
            let blocks: u64 = pack.iter().map(|piece| piece.length.div_ceil(BLOCK_BYTES)).sum();
            assert!(blocks <= PACK_BLOCKS_MAX, "{blocks}");
        }
        assert_eq!(plan.new.iter().map(Vec::len).sum::<usize>(), 1000);
    }
}
