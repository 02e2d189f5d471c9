//! Restoring: packs as they come → directories. Everything is made beside where it belongs, under another name, and put
//! in its place at the end (`place.rs`).
//!
//! | file | does |
//! |---|---|
//! | `frame.rs` | all that needs no pack before the files, and all that must come after them |
//! | `file.rs` | a file: its bytes, and what `stat` says of it |
//!
//! Unaware of: where packs come from.

mod file;
mod frame;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use larder_model::BLOCK_BYTES;

use self::file::Writer;
use crate::place::Site;
use crate::squeeze::Unpacker;
use crate::tree::{HOLE, Kind, Tree};
use crate::{Image, ImageError, Packs, Progress, Step, packs, threads};

pub use crate::place::{Existing, Left, sweep};

/// Which saved path goes where.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its number in the image.
    pub saved: usize,
    /// Where it goes.
    pub path: PathBuf,
}

/// What this user may not set, and how often.
#[derive(Debug, Default)]
pub struct Unset {
    owners: AtomicU64,
    attributes: AtomicU64,
}

impl Unset {
    /// Files of somebody else, which are the restoring user's now.
    pub fn owners(&self) -> u64 {
        self.owners.load(Relaxed)
    }

    /// Extended attributes that the file system or the kernel refused.
    pub fn attributes(&self) -> u64 {
        self.attributes.load(Relaxed)
    }
}

/// A piece of a file, and where in its pack it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Use {
    pack: u32,
    target: u32,
    node: u32,
    number: u32,
    /// Blocks from the beginning of the pack.
    block: u32,
}

/// Restore saved paths of an image; `source` must give every pack that [`Image::needed`] names. After an error nothing
/// is where it was to be put, and what was there still is.
pub fn restore(
    image: &Image,
    targets: &[Target],
    source: &dyn Packs,
    existing: Existing,
    progress: &Progress,
) -> Result<Unset, ImageError> {
    let unset = Unset::default();
    let trees: Vec<&Tree> = targets.iter().map(|target| &image.trees[target.saved]).collect();
    let mut sites: Vec<Site> =
        targets.iter().map(|target| Site::prepare(&target.path, existing)).collect::<Result<_, ImageError>>()?;
    progress.begin(Step::Unpack, trees.iter().map(|tree| size_of(tree)).sum());
    for (tree, site) in trees.iter().zip(&sites) {
        frame::before(tree, site)?;
    }
    let uses = uses(image, &trees);
    threads::together(|_, ended| {
        let mut unpacker = Unpacker::new()?;
        let mut writers: Vec<Writer<'_>> =
            trees.iter().zip(&sites).map(|(tree, site)| Writer::new(tree, site, &unset)).collect();
        let mut raw = Vec::new();
        while !ended.load(Relaxed) {
            let Some(arrived) = source.next() else { return Ok(()) };
            let (number, bytes) = arrived?;
            let opened = packs::open(&image.packs.packs[number], &bytes, &mut unpacker, &mut raw);
            opened.inspect_err(|_| source.refuse(number))?;
            let from = uses.partition_point(|one| (one.pack as usize) < number);
            for one in uses[from..].iter().take_while(|one| one.pack as usize == number) {
                let start = one.block as usize * BLOCK_BYTES as usize;
                progress.add(writers[one.target as usize].write(one.node, one.number.into(), &raw[start..])?);
            }
        }
        Ok(())
    })?;
    for (tree, site) in trees.iter().zip(&sites) {
        frame::after(tree, site, &unset)?;
    }
    let placed = sites.iter_mut().try_for_each(Site::put_in_place);
    if let Err(why) = placed {
        // Each is taken back, and the first that could not be is named.
        let aside: Vec<_> = sites.iter_mut().rev().filter_map(Site::take_back).collect();
        return Err(match aside.into_iter().next() {
            Some(old) => ImageError::LeftAside { why: Box::new(why), old },
            None => why,
        });
    }
    sites.into_iter().for_each(Site::done);
    Ok(unset)
}

fn size_of(tree: &Tree) -> u64 {
    let size = |kind| if let Kind::File { size, .. } = kind { size } else { 0 };
    tree.nodes.iter().map(|node| size(node.kind)).sum()
}

/// Every piece of every file, by pack, and in a pack in the order of files: names of one directory one after the other.
fn uses(image: &Image, trees: &[&Tree]) -> Vec<Use> {
    let mut uses = Vec::new();
    for (target, tree) in (0..).zip(trees) {
        for (node, known) in (0..).zip(&tree.nodes) {
            let Kind::File { pieces, .. } = known.kind else { continue };
            for (number, &block) in (0..).zip(&tree.blocks[pieces.range()]) {
                let Some(pack) = image.packs.of_block(block).filter(|_| block != HOLE) else { continue };
                uses.push(Use { pack: pack as u32, target, node, number, block: block - image.packs.start(pack) });
            }
        }
    }
    uses.sort_unstable();
    uses
}
