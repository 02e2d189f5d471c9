//! Restoring: packs → directories. Everything is made under a temporary name and moved into place
//! at the end (`place.rs`).
//!
//! | file | does |
//! |---|---|
//! | `frame.rs` | what needs no pack: before the files, and after them |
//! | `file.rs` | a file: its content and metadata |
//! | `unset.rs` | counts of metadata that could not be set |
//!
//! Unaware of: where packs come from.

mod file;
mod frame;
mod unset;

use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;

use larder_model::BLOCK_BYTES;

use self::file::Writer;
use crate::compress::Unpacker;
use crate::place::Site;
use crate::tree::{HOLE, NodeKind, Tree};
use crate::{Image, ImageError, Packs, Progress, Step, packs, threads};

pub use self::unset::Unset;
pub use crate::place::Existing;
pub use crate::sweep::{Left, sweep};

/// A saved path, and where to restore it.
#[derive(Clone, Debug)]
pub struct Target {
    /// The number of the saved path in the image.
    pub saved: usize,
    /// Where it is restored.
    pub path: PathBuf,
}

/// A piece of a file, and its position in a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Use {
    pack: u32,
    target: u32,
    node: u32,
    number: u32,
    /// The first block, counted from the beginning of the pack.
    block: u32,
}

/// Restores saved paths of an image. `source` must return every pack that [`Image::needed`] names.
/// If it fails, the targets are unchanged, or the error says where the old files are.
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
        // All paths are moved back. The error names the first that could not be.
        let aside: Vec<_> = sites.iter_mut().rev().filter_map(Site::take_back).collect();
        return Err(match aside.into_iter().next() {
            Some(old) => ImageError::LeftAside { why: Box::new(why), old },
            None => why,
        });
    }
    sites.into_iter().for_each(Site::done);
    Ok(unset)
}

/// Returns the bytes of all files in a tree.
fn size_of(tree: &Tree) -> u64 {
    let size = |kind| if let NodeKind::File { size, .. } = kind { size } else { 0 };
    tree.nodes.iter().map(|node| size(node.kind)).sum()
}

/// Returns all pieces of all files, sorted by pack. Within a pack files are in tree order, so that
/// files of a directory follow each other.
fn uses(image: &Image, trees: &[&Tree]) -> Vec<Use> {
    let mut uses = Vec::new();
    for (target, tree) in (0..).zip(trees) {
        for (node, known) in (0..).zip(&tree.nodes) {
            let NodeKind::File { pieces, .. } = known.kind else { continue };
            for (number, &block) in (0..).zip(&tree.blocks[pieces.range()]) {
                let Some(pack) = image.packs.of_block(block).filter(|_| block != HOLE) else { continue };
                uses.push(Use { pack: pack as u32, target, node, number, block: block - image.packs.start(pack) });
            }
        }
    }
    uses.sort_unstable();
    uses
}
