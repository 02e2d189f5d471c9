//! Building and encoding a tree.
//!
//! Unaware of: where the tree comes from.

use std::collections::HashMap;

use larder_model::{IMAGE_VERSION, Writer};

use super::{Attribute, Extent, HOLE, Node, NodeKind, Span, Tree, blocks_of, piece_length, pieces_of};

/// Builds a tree node by node, in the order of the encoding: the top, then all names in the top,
/// then all names in its first directory, and so on.
pub(crate) struct Grower {
    tree: Tree,
    owners: HashMap<(u32, u32), u32>,
    sets: HashMap<Vec<Attribute>, u32>,
}

/// The metadata of a name.
pub(crate) struct NodeMetadata {
    pub(crate) mode: u16,
    pub(crate) owner: (u32, u32),
    pub(crate) modified: (i64, u32),
    pub(crate) attributes: Vec<Attribute>,
}

impl Grower {
    /// Returns a builder for a tree that the user `saver` saves.
    pub(crate) fn new(saver: (u32, u32)) -> Self {
        let tree = Tree { owners: vec![saver], sets: vec![Vec::new()], ..Tree::default() };
        Grower { tree, owners: [(saver, 0)].into(), sets: [(Vec::new(), 0)].into() }
    }

    /// Returns how many nodes there are.
    pub(crate) fn len(&self) -> usize {
        self.tree.nodes.len()
    }

    /// Adds a node and returns its number. For a file `kind` is the result of `file`.
    pub(crate) fn add(&mut self, parent: u32, name: &[u8], known: NodeMetadata, kind: NodeKind) -> u32 {
        let owners = self.tree.owners.len() as u32;
        let owner = *self.owners.entry(known.owner).or_insert(owners);
        if owner == owners {
            self.tree.owners.push(known.owner);
        }
        let set = match self.sets.get(&known.attributes) {
            Some(&set) => set,
            None => {
                self.tree.sets.push(known.attributes.clone());
                self.sets.insert(known.attributes, self.tree.sets.len() as u32 - 1);
                self.tree.sets.len() as u32 - 1
            }
        };
        let name = self.text(name);
        let NodeMetadata { mode, modified, .. } = known;
        self.tree.nodes.push(Node { name, parent, mode, owner, set, modified, kind });
        self.tree.nodes.len() as u32 - 1
    }

    /// Returns the kind of a file of this size, whose pieces are all holes until their blocks are
    /// set.
    pub(crate) fn file(&mut self, size: u64) -> NodeKind {
        let from = self.tree.blocks.len();
        self.tree.blocks.resize(from + pieces_of(size) as usize, HOLE);
        NodeKind::File { size, pieces: Span::new(from..self.tree.blocks.len()), extents: Span::default() }
    }

    /// Returns the kind of a symbolic link.
    pub(crate) fn link(&mut self, target: &[u8]) -> NodeKind {
        NodeKind::Link(self.text(target))
    }

    /// Sets the children of a directory: the nodes from number `from` on.
    pub(crate) fn close(&mut self, directory: u32, from: usize) {
        let to = self.tree.nodes.len();
        self.tree.nodes[directory as usize].kind = NodeKind::Directory(Span::new(from..to));
    }

    pub(crate) fn done(self) -> Tree {
        self.tree
    }

    fn text(&mut self, text: &[u8]) -> Span {
        let from = self.tree.text.len();
        self.tree.text.extend_from_slice(text);
        Span::new(from..self.tree.text.len())
    }
}

impl Tree {
    /// Sets the extents of a file that has holes.
    pub(crate) fn set_extents(&mut self, node: u32, written: &[Extent]) {
        let from = self.extents.len();
        self.extents.extend_from_slice(written);
        if let NodeKind::File { extents, .. } = &mut self.nodes[node as usize].kind {
            *extents = Span::new(from..self.extents.len());
        }
    }

    /// Encodes the tree.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.u8(IMAGE_VERSION);
        w.number(self.owners.len() as u64);
        for (user, group) in &self.owners {
            w.number((*user).into());
            w.number((*group).into());
        }
        w.number(self.sets.len() as u64);
        for set in &self.sets {
            w.number(set.len() as u64);
            for (name, value) in set {
                w.bytes(name);
                w.bytes(value);
            }
        }
        w.number(self.nodes.len() as u64);
        let mut last = Last::default();
        let Some(top) = self.nodes.first() else { return w.bytes };
        self.write_node(&mut w, top, &mut last);
        let mut open = vec![top];
        while let Some(directory) = open.pop() {
            let NodeKind::Directory(children) = directory.kind else { continue };
            w.number(children.range().len() as u64);
            for node in &self.nodes[children.range()] {
                w.bytes(self.name(node));
                self.write_node(&mut w, node, &mut last);
            }
            open.extend(self.nodes[children.range()].iter().rev().filter(|n| matches!(n.kind, NodeKind::Directory(_))));
        }
        w.bytes
    }

    fn write_node(&self, w: &mut Writer, node: &Node, last: &mut Last) {
        if let NodeKind::Again(number) = node.kind {
            w.u8(6);
            w.number(number.into());
            return;
        }
        w.u8(match node.kind {
            NodeKind::File { extents, .. } if extents.range().is_empty() => 1,
            NodeKind::File { .. } => 2,
            NodeKind::Directory(_) => 3,
            NodeKind::Link(_) => 4,
            NodeKind::Fifo | NodeKind::Again(_) => 5,
        });
        w.number(node.mode.into());
        w.number(node.owner.into());
        w.number(node.set.into());
        w.number(zigzag(node.modified.0.wrapping_sub(last.seconds)));
        w.number(node.modified.1.into());
        last.seconds = node.modified.0;
        match node.kind {
            NodeKind::File { size, pieces, extents } => {
                w.number(size);
                if !extents.range().is_empty() {
                    self.write_extents(w, extents);
                }
                self.write_pieces(w, size, pieces, last);
            }
            NodeKind::Link(target) => w.bytes(self.target(target)),
            _ => {}
        }
    }

    fn write_extents(&self, w: &mut Writer, extents: Span) {
        w.number(extents.range().len() as u64);
        let mut end = 0;
        for extent in &self.extents[extents.range()] {
            w.number(extent.offset - end);
            w.number(extent.length);
            end = extent.offset + extent.length;
        }
    }

    fn write_pieces(&self, w: &mut Writer, size: u64, pieces: Span, last: &mut Last) {
        for (number, &block) in self.blocks[pieces.range()].iter().enumerate() {
            if block == HOLE {
                w.number(0);
                continue;
            }
            w.number(1 + zigzag(i64::from(block) - last.block as i64));
            last.block = u64::from(block) + blocks_of(piece_length(size, number as u64));
        }
    }
}

/// The values that the next node is encoded relative to.
#[derive(Default)]
pub(super) struct Last {
    pub(super) seconds: i64,
    pub(super) block: u64,
}

fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}
