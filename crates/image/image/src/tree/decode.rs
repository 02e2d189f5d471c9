//! Decoding a tree that a stranger may have made. A decoded tree is safe to walk, mount and restore
//! without further checks: names are valid, no path leads out of the tree, no node is its own
//! ancestor, and only attributes that images keep occur.
//!
//! Unaware of: where the bytes come from.

use larder_model::{DecodeError, IMAGE_VERSION, Reader};

use super::encode::Last;
use super::{
    ATTRIBUTES_MAX, Attribute, Extent, HOLE, NODES_MAX, Node, NodeKind, Span, Tree, VALUE_BYTES_MAX, blocks_of,
    is_kept, piece_length, pieces_of,
};

/// The most bytes of a name: the limit of Linux.
const NAME_BYTES_MAX: u64 = 255;
/// The most bytes of a link's target: the limit of Linux.
const TARGET_BYTES_MAX: u64 = 4095;
/// The largest file: what `stat` can report.
const SIZE_MAX: u64 = i64::MAX as u64;
const SECOND_NS: u64 = 1_000_000_000;
const MODE_MAX: u64 = 0o7777;
/// The memory that a tree may take for each of its bytes, without its texts. Trees of package
/// managers take 3 to 6.
pub(crate) const ROOM_PER_BYTE: usize = 12;
/// The memory that every tree may take, in bytes.
const ROOM_ALWAYS: usize = 1 << 20;
/// The memory that an attribute takes besides its bytes: two vectors, and the allocator's overhead.
const ATTRIBUTE_BYTES: usize = 96;
/// The most bytes of the attributes of all nodes together: this, and [`ATTRIBUTES_BYTES_PER_NODE`]
/// for each node. A set is encoded once, but is written for each node that has it.
const ATTRIBUTES_BYTES_ALWAYS: u64 = 256 << 20;
const ATTRIBUTES_BYTES_PER_NODE: u64 = 256;

/// Appends to a list; fails if there is not enough memory.
fn push<T>(list: &mut Vec<T>, item: T, at: usize) -> Result<(), DecodeError> {
    list.try_reserve(1).map_err(|_| DecodeError::Limit { limit: list.len() as u64, at })?;
    list.push(item);
    Ok(())
}

/// Copies bytes; fails if there is not enough memory.
fn owned(bytes: &[u8], at: usize) -> Result<Vec<u8>, DecodeError> {
    let mut owned = Vec::new();
    owned.try_reserve_exact(bytes.len()).map_err(|_| DecodeError::Limit { limit: bytes.len() as u64, at })?;
    owned.extend_from_slice(bytes);
    Ok(owned)
}

/// The memory that a tree may still take, in bytes.
struct Room(usize);

impl Room {
    fn take(&mut self, bytes: usize, at: usize) -> Result<(), DecodeError> {
        self.0 = self.0.checked_sub(bytes).ok_or(DecodeError::Limit { limit: ROOM_PER_BYTE as u64, at })?;
        Ok(())
    }
}

impl Tree {
    /// Decodes a tree.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Tree, DecodeError> {
        let mut r = Reader::new(bytes);
        match r.u8()? {
            IMAGE_VERSION => {}
            other => return Err(DecodeError::Version(other)),
        }
        let mut room = Room(bytes.len().saturating_mul(ROOM_PER_BYTE).saturating_add(ROOM_ALWAYS));
        let mut tree = Tree { owners: owners(&mut r, &mut room)?, sets: sets(&mut r, &mut room)?, ..Tree::default() };
        let at = r.position();
        let count = r.count()? as u64;
        if count == 0 || count > NODES_MAX {
            return Err(DecodeError::Limit { limit: NODES_MAX, at });
        }
        room.take(count as usize * size_of::<Node>(), at)?;
        let no_memory = |_| DecodeError::Limit { limit: bytes.len() as u64, at };
        tree.nodes.try_reserve_exact(count as usize).map_err(no_memory)?;
        // Names take about as many bytes as everything else of a node.
        tree.text.try_reserve(bytes.len() / 2).map_err(no_memory)?;
        tree.read_nodes(&mut r, count as usize, &mut room)?;
        r.finish()?;
        match tree.attributes_fit() {
            true => Ok(tree),
            false => Err(DecodeError::Limit { limit: ATTRIBUTES_BYTES_PER_NODE, at }),
        }
    }

    /// Returns whether `decode` would accept this tree, which is encoded in so many bytes.
    pub(crate) fn is_readable(&self, bytes: usize) -> bool {
        let of_set = |set: &Vec<Attribute>| -> usize {
            let attributes = set.iter().map(|(name, value)| ATTRIBUTE_BYTES + name.len() + value.len());
            size_of::<Vec<Attribute>>() + attributes.sum::<usize>()
        };
        let sets: usize = self.sets.iter().map(of_set).sum();
        let others = self.owners.len() * size_of::<(u32, u32)>() + self.blocks.len() * size_of::<u32>();
        let room = sets + others + self.extents.len() * size_of::<Extent>() + self.nodes.len() * size_of::<Node>();
        room <= bytes.saturating_mul(ROOM_PER_BYTE).saturating_add(ROOM_ALWAYS) && self.attributes_fit()
    }

    fn attributes_fit(&self) -> bool {
        self.attributes_bytes() <= ATTRIBUTES_BYTES_ALWAYS + ATTRIBUTES_BYTES_PER_NODE * self.nodes.len() as u64
    }

    /// Returns the bytes of the attributes of all nodes together.
    fn attributes_bytes(&self) -> u64 {
        let of = |set: &Vec<Attribute>| set.iter().map(|(name, value)| (name.len() + value.len()) as u64).sum();
        let sets: Vec<u64> = self.sets.iter().map(of).collect();
        self.nodes.iter().map(|node| sets[node.set as usize]).sum()
    }

    /// Reads all nodes. A directory's children follow each other. The stack `open` has the
    /// directories whose children have not been read, and gives the order of the groups.
    fn read_nodes(&mut self, r: &mut Reader<'_>, count: usize, room: &mut Room) -> Result<(), DecodeError> {
        let mut last = Last::default();
        let top = self.read_node(r, 0, Span::default(), &mut last, room)?;
        self.nodes.push(top);
        let mut open = vec![0u32];
        while let Some(directory) = open.pop() {
            if !matches!(self.nodes[directory as usize].kind, NodeKind::Directory(_)) {
                continue;
            }
            let from = self.nodes.len();
            let at = r.position();
            let entries = r.count()?;
            if entries > count - from {
                return Err(DecodeError::Limit { limit: count as u64, at });
            }
            for number in 0..entries {
                let name = self.read_name(r, (number > 0).then(|| from + number - 1))?;
                let node = self.read_node(r, directory, name, &mut last, room)?;
                self.nodes.push(node);
            }
            let to = self.nodes.len();
            self.nodes[directory as usize].kind = NodeKind::Directory(Span::new(from..to));
            let is_directory = |&number: &usize| matches!(self.nodes[number].kind, NodeKind::Directory(_));
            for number in (from..to).rev().filter(is_directory) {
                push(&mut open, number as u32, r.position())?;
            }
        }
        if self.nodes.len() == count { Ok(()) } else { Err(DecodeError::Truncated(r.position())) }
    }

    /// Reads a name, which must be greater than that of `before`, the previous node in the
    /// directory.
    fn read_name(&mut self, r: &mut Reader<'_>, before: Option<usize>) -> Result<Span, DecodeError> {
        let at = r.position();
        let name = r.bytes(NAME_BYTES_MAX)?;
        let is_name = !matches!(name, b"" | b"." | b"..") && !name.iter().any(|&byte| matches!(byte, b'/' | 0));
        let is_next = before.is_none_or(|number| self.name(&self.nodes[number]) < name);
        if !is_name || !is_next {
            return Err(DecodeError::Limit { limit: 0, at });
        }
        self.keep(name, at)
    }

    fn keep(&mut self, text: &[u8], at: usize) -> Result<Span, DecodeError> {
        let from = self.text.len();
        self.text.try_reserve(text.len()).map_err(|_| DecodeError::Limit { limit: from as u64, at })?;
        self.text.extend_from_slice(text);
        Ok(Span::new(from..self.text.len()))
    }

    fn read_node(
        &mut self,
        r: &mut Reader<'_>,
        parent: u32,
        name: Span,
        last: &mut Last,
        room: &mut Room,
    ) -> Result<Node, DecodeError> {
        let tag = r.u8()?;
        if tag == 6 {
            let at = r.position();
            let first = r.number_up_to(self.nodes.len().saturating_sub(1) as u64)? as u32;
            let Some(&file) = self.nodes.get(first as usize) else { return Err(DecodeError::Limit { limit: 0, at }) };
            if !matches!(file.kind, NodeKind::File { .. } | NodeKind::Fifo | NodeKind::Link(_)) {
                return Err(DecodeError::Limit { limit: 0, at });
            }
            return Ok(Node { name, parent, kind: NodeKind::Again(first), ..file });
        }
        let mode = r.number_up_to(MODE_MAX)? as u16;
        let owner = r.number_up_to(self.owners.len() as u64 - 1)? as u32;
        let set = r.number_up_to(self.sets.len() as u64 - 1)? as u32;
        let seconds = last.seconds.wrapping_add(unzigzag(r.number()?));
        let modified = (seconds, r.number_up_to(SECOND_NS - 1)? as u32);
        last.seconds = seconds;
        let kind = match tag {
            1 | 2 => self.read_file(r, tag == 2, last, room)?,
            3 => NodeKind::Directory(Span::default()),
            4 => {
                let at = r.position();
                let target = r.bytes(TARGET_BYTES_MAX)?;
                if target.is_empty() || target.contains(&0) {
                    return Err(DecodeError::Limit { limit: 0, at });
                }
                NodeKind::Link(self.keep(target, at)?)
            }
            5 => NodeKind::Fifo,
            _ => return Err(r.unknown_tag(tag)),
        };
        Ok(Node { name, parent, mode, owner, set, modified, kind })
    }

    fn read_file(
        &mut self,
        r: &mut Reader<'_>,
        has_holes: bool,
        last: &mut Last,
        room: &mut Room,
    ) -> Result<NodeKind, DecodeError> {
        let size = r.number_up_to(SIZE_MAX)?;
        let from = self.extents.len();
        if has_holes {
            let mut end = 0;
            for _ in 0..r.count()? {
                room.take(size_of::<Extent>(), r.position())?;
                let offset = end + r.number_up_to(size - end)?;
                let length = r.number_up_to(size - offset)?;
                push(&mut self.extents, Extent { offset, length }, r.position())?;
                end = offset + length;
            }
        }
        let extents = Span::new(from..self.extents.len());
        let from = self.blocks.len();
        for number in 0..pieces_of(size) {
            let at = r.position();
            room.take(size_of::<u32>(), at)?;
            let block = match r.number()? {
                0 => HOLE,
                told => {
                    let block = (last.block as i64).checked_add(unzigzag(told - 1)).unwrap_or(-1);
                    let end = block.saturating_add_unsigned(blocks_of(piece_length(size, number)));
                    if block < 0 || end >= i64::from(HOLE) {
                        return Err(DecodeError::Limit { limit: HOLE.into(), at });
                    }
                    last.block = end as u64;
                    block as u32
                }
            };
            push(&mut self.blocks, block, at)?;
        }
        Ok(NodeKind::File { size, pieces: Span::new(from..self.blocks.len()), extents })
    }
}

fn owners(r: &mut Reader<'_>, room: &mut Room) -> Result<Vec<(u32, u32)>, DecodeError> {
    let at = r.position();
    let mut one = |r: &mut Reader<'_>| {
        room.take(size_of::<(u32, u32)>(), r.position())?;
        Ok((r.number_up_to(u32::MAX.into())? as u32, r.number_up_to(u32::MAX.into())? as u32))
    };
    let mut all = Vec::new();
    for _ in 0..r.count()? {
        let owner = one(r)?;
        push(&mut all, owner, at)?;
    }
    if all.is_empty() { Err(DecodeError::Limit { limit: 1, at }) } else { Ok(all) }
}

fn sets(r: &mut Reader<'_>, room: &mut Room) -> Result<Vec<Vec<Attribute>>, DecodeError> {
    let at = r.position();
    let mut all = Vec::new();
    for _ in 0..r.count()? {
        let mut set = Vec::new();
        for _ in 0..r.number_up_to(ATTRIBUTES_MAX)? {
            let at = r.position();
            let (name, value) = (r.bytes(NAME_BYTES_MAX)?, r.bytes(VALUE_BYTES_MAX)?);
            if !is_kept(name) || name.contains(&0) {
                return Err(DecodeError::Limit { limit: 0, at });
            }
            room.take(ATTRIBUTE_BYTES + name.len() + value.len(), at)?;
            push(&mut set, (owned(name, at)?, owned(value, at)?), at)?;
        }
        room.take(size_of::<Vec<Attribute>>(), r.position())?;
        push(&mut all, set, r.position())?;
    }
    if all.first().is_some_and(Vec::is_empty) { Ok(all) } else { Err(DecodeError::Limit { limit: 0, at }) }
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}
