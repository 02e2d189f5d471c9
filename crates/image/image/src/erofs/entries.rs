//! The entries of a directory: their order, and the space that they take. All names of a directory,
//! including `.` and `..`, are sorted by their bytes, because the kernel uses a binary search.
//!
//! Unaware of: where inodes are.

use std::ops::Range;

use super::bytes::BLOCK;
use crate::tree::{Span, Tree};

pub(super) const ENTRY: usize = 12;

/// An entry: its name and its node.
pub(super) type Named<'a> = (&'a [u8], u32);

/// Returns all entries of a directory, sorted.
pub(super) fn entries<'a>(tree: &'a Tree, directory: u32, children: Span) -> impl Iterator<Item = Named<'a>> {
    let parent = tree.nodes.get(directory as usize).map_or(0, |node| node.parent);
    let named = move |number: usize| (tree.name(&tree.nodes[number]), number as u32);
    // Few names sort before `.` and `..`.
    let Range { start, end } = children.range();
    let first = (start..end).take_while(|&number| named(number).0 < &b"."[..]).count() + start;
    let second = (first..end).take_while(|&number| named(number).0 < &b".."[..]).count() + first;
    let dots = [(&b"."[..], directory), (&b".."[..], parent)];
    let [before, between, behind] = [start..first, first..second, second..end].map(|range| range.map(named));
    before.chain([dots[0]]).chain(between).chain([dots[1]]).chain(behind)
}

/// Returns the size of a directory, in bytes.
pub(super) fn size(tree: &Tree, children: Span) -> u64 {
    let names: usize = tree.nodes[children.range()].iter().map(|node| ENTRY + tree.name(node).len()).sum();
    let all = names + 2 * ENTRY + b"...".len();
    // If everything fits into one block, the order does not change the size.
    if all <= BLOCK {
        return all as u64;
    }
    let (mut blocks, mut used) = (0, 0);
    for (name, _) in entries(tree, 0, children) {
        let more = ENTRY + name.len();
        if used + more > BLOCK {
            blocks += 1;
            used = 0;
        }
        used += more;
    }
    blocks * BLOCK as u64 + used as u64
}
