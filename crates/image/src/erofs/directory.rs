//! The bytes of a directory: blocks, in each its entries of 12 bytes and then their names. All names together are in
//! the order of their bytes, `.` and `..` among them: the kernel searches by halving.

use super::{BLOCK, Layout, put16, put64};
use crate::tree::{Kind, Span, Tree};

const ENTRY: usize = 12;

/// An entry: its name, the node that it stands for.
type Named<'a> = (&'a [u8], u32);

/// Every name of a directory, in order.
fn entries<'a>(tree: &'a Tree, directory: u32, children: Span) -> impl Iterator<Item = Named<'a>> {
    let parent = tree.nodes.get(directory as usize).map_or(0, |node| node.parent);
    let mut dots = [(&b"."[..], directory), (&b".."[..], parent)].into_iter().peekable();
    let mut names = children.range().map(|number| (tree.name(&tree.nodes[number]), number as u32)).peekable();
    std::iter::from_fn(move || match (dots.peek(), names.peek()) {
        (Some(dot), Some(name)) if name.0 < dot.0 => names.next(),
        (Some(_), _) => dots.next(),
        (None, _) => names.next(),
    })
}

/// Bytes of a directory.
pub(super) fn size(tree: &Tree, children: Span) -> usize {
    let (mut blocks, mut used) = (0, 0);
    for (name, _) in entries(tree, 0, children) {
        let more = ENTRY + name.len();
        if used + more > BLOCK {
            blocks += 1;
            used = 0;
        }
        used += more;
    }
    blocks * BLOCK + used
}

/// Those bytes, block by block: `put` gets the number of each and what is in it.
pub(super) fn write(tree: &Tree, layout: &Layout, directory: u32, children: Span, mut put: impl FnMut(usize, &[u8])) {
    let (mut block, mut used, mut number) = (Vec::<Named<'_>>::new(), 0, 0);
    let mut bytes = Vec::with_capacity(BLOCK);
    for entry in entries(tree, directory, children) {
        let more = ENTRY + entry.0.len();
        if used + more > BLOCK {
            fill(tree, layout, &block, &mut bytes);
            bytes.resize(BLOCK, 0);
            put(number, &bytes);
            block.clear();
            used = 0;
            number += 1;
        }
        used += more;
        block.push(entry);
    }
    fill(tree, layout, &block, &mut bytes);
    put(number, &bytes);
}

fn fill(tree: &Tree, layout: &Layout, block: &[Named<'_>], bytes: &mut Vec<u8>) {
    bytes.clear();
    bytes.resize(block.len() * ENTRY, 0);
    for (at, (name, node)) in block.iter().enumerate() {
        put64(bytes, at * ENTRY, layout.number_of(*node as usize));
        let name_at = bytes.len() as u16;
        put16(bytes, at * ENTRY + 8, name_at);
        bytes[at * ENTRY + 10] = kind(tree, *node);
        bytes.extend_from_slice(name);
    }
}

/// What an entry says that its inode is.
fn kind(tree: &Tree, node: u32) -> u8 {
    match tree.nodes[node as usize].kind {
        Kind::File { .. } => 1,
        Kind::Directory(_) => 2,
        Kind::Fifo => 5,
        Kind::Link(_) => 7,
        Kind::Again(file) => kind(tree, file),
    }
}
