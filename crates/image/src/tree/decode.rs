//! Reading a tree that somebody else may have made. What is read can be walked, mounted and restored without a further
//! look: names are names, nothing leads out of the tree, nothing is its own parent, attributes are those that images keep.

use larder_model::{DecodeError, IMAGE_VERSION, Reader};

use super::encode::Last;
use super::{
    ATTRIBUTES_MAX, Attribute, Extent, HOLE, Kind, NODES_MAX, Node, Span, Tree, VALUE_BYTES_MAX, blocks_of, is_kept,
    piece_length, pieces_of,
};

/// A name, bytes: Linux' own limit.
const NAME_BYTES_MAX: u64 = 255;
/// A link's target, bytes: the same.
const TARGET_BYTES_MAX: u64 = 4095;
/// A file, bytes: what `stat` can say.
const SIZE_MAX: u64 = i64::MAX as u64;
const SECOND_NS: u64 = 1_000_000_000;
const MODE_MAX: u64 = 0o7777;

impl Tree {
    /// Read a tree's bytes.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Tree, DecodeError> {
        let mut r = Reader::new(bytes);
        match r.u8()? {
            IMAGE_VERSION => {}
            other => return Err(DecodeError::Version(other)),
        }
        let mut tree = Tree { owners: owners(&mut r)?, sets: sets(&mut r)?, ..Tree::default() };
        let at = r.position();
        let count = r.count()? as u64;
        if count == 0 || count > NODES_MAX {
            return Err(DecodeError::Limit { limit: NODES_MAX, at });
        }
        tree.nodes.reserve_exact(count as usize);
        // Names are about as many bytes as all else of a node.
        tree.text.reserve(bytes.len() / 2);
        tree.read_nodes(&mut r, count as usize)?;
        r.finish()?;
        Ok(tree)
    }

    fn read_nodes(&mut self, r: &mut Reader<'_>, count: usize) -> Result<(), DecodeError> {
        let mut last = Last::default();
        let top = self.read_node(r, 0, Span::default(), &mut last)?;
        self.nodes.push(top);
        let mut open = vec![0u32];
        while let Some(directory) = open.pop() {
            if !matches!(self.nodes[directory as usize].kind, Kind::Directory(_)) {
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
                let node = self.read_node(r, directory, name, &mut last)?;
                self.nodes.push(node);
            }
            let to = self.nodes.len();
            self.nodes[directory as usize].kind = Kind::Directory(Span::new(from..to));
            let is_directory = |&number: &usize| matches!(self.nodes[number].kind, Kind::Directory(_));
            open.extend((from..to).rev().filter(is_directory).map(|number| number as u32));
        }
        if self.nodes.len() == count { Ok(()) } else { Err(DecodeError::Truncated(r.position())) }
    }

    /// A name that comes after that of the node before it.
    fn read_name(&mut self, r: &mut Reader<'_>, before: Option<usize>) -> Result<Span, DecodeError> {
        let at = r.position();
        let name = r.bytes(NAME_BYTES_MAX)?;
        let is_name = !matches!(name, b"" | b"." | b"..") && !name.iter().any(|&byte| matches!(byte, b'/' | 0));
        let is_next = before.is_none_or(|number| self.name(&self.nodes[number]) < name);
        if !is_name || !is_next {
            return Err(DecodeError::Limit { limit: 0, at });
        }
        Ok(self.keep(name))
    }

    fn keep(&mut self, text: &[u8]) -> Span {
        let from = self.text.len();
        self.text.extend_from_slice(text);
        Span::new(from..self.text.len())
    }

    fn read_node(&mut self, r: &mut Reader<'_>, parent: u32, name: Span, last: &mut Last) -> Result<Node, DecodeError> {
        let tag = r.u8()?;
        if tag == 6 {
            let at = r.position();
            let first = limited(r, self.nodes.len().saturating_sub(1) as u64)? as u32;
            let Some(&file) = self.nodes.get(first as usize) else { return Err(DecodeError::Limit { limit: 0, at }) };
            if !matches!(file.kind, Kind::File { .. } | Kind::Fifo | Kind::Link(_)) {
                return Err(DecodeError::Limit { limit: 0, at });
            }
            return Ok(Node { name, parent, kind: Kind::Again(first), ..file });
        }
        let mode = limited(r, MODE_MAX)? as u16;
        let owner = limited(r, self.owners.len() as u64 - 1)? as u32;
        let set = limited(r, self.sets.len() as u64 - 1)? as u32;
        let seconds = last.seconds.wrapping_add(unzigzag(r.number()?));
        let modified = (seconds, limited(r, SECOND_NS - 1)? as u32);
        last.seconds = seconds;
        let kind = match tag {
            1 | 2 => self.read_file(r, tag == 2, last)?,
            3 => Kind::Directory(Span::default()),
            4 => {
                let at = r.position();
                let target = r.bytes(TARGET_BYTES_MAX)?;
                if target.is_empty() || target.contains(&0) {
                    return Err(DecodeError::Limit { limit: 0, at });
                }
                Kind::Link(self.keep(target))
            }
            5 => Kind::Fifo,
            _ => return Err(r.unknown_tag(tag)),
        };
        Ok(Node { name, parent, mode, owner, set, modified, kind })
    }

    fn read_file(&mut self, r: &mut Reader<'_>, has_holes: bool, last: &mut Last) -> Result<Kind, DecodeError> {
        let size = limited(r, SIZE_MAX)?;
        let from = self.extents.len();
        if has_holes {
            let mut end = 0;
            for _ in 0..r.count()? {
                let offset = end + limited(r, size - end)?;
                let length = limited(r, size - offset)?;
                self.extents.push(Extent { offset, length });
                end = offset + length;
            }
        }
        let extents = Span::new(from..self.extents.len());
        let from = self.blocks.len();
        for number in 0..pieces_of(size) {
            let at = r.position();
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
            self.blocks.push(block);
        }
        Ok(Kind::File { size, pieces: Span::new(from..self.blocks.len()), extents })
    }
}

fn owners(r: &mut Reader<'_>) -> Result<Vec<(u32, u32)>, DecodeError> {
    let at = r.position();
    let one = |r: &mut Reader<'_>| Ok((limited(r, u32::MAX.into())? as u32, limited(r, u32::MAX.into())? as u32));
    let all: Vec<_> = (0..r.count()?).map(|_| one(r)).collect::<Result<_, DecodeError>>()?;
    if all.is_empty() { Err(DecodeError::Limit { limit: 1, at }) } else { Ok(all) }
}

fn sets(r: &mut Reader<'_>) -> Result<Vec<Vec<Attribute>>, DecodeError> {
    let at = r.position();
    let mut all = Vec::new();
    for _ in 0..r.count()? {
        let mut set = Vec::new();
        for _ in 0..limited(r, ATTRIBUTES_MAX)? {
            let at = r.position();
            let (name, value) = (r.bytes(NAME_BYTES_MAX)?, r.bytes(VALUE_BYTES_MAX)?);
            if !is_kept(name) || name.contains(&0) {
                return Err(DecodeError::Limit { limit: 0, at });
            }
            set.push((name.to_vec(), value.to_vec()));
        }
        all.push(set);
    }
    if all.first().is_some_and(Vec::is_empty) { Ok(all) } else { Err(DecodeError::Limit { limit: 0, at }) }
}

fn limited(r: &mut Reader<'_>, limit: u64) -> Result<u64, DecodeError> {
    let at = r.position();
    let number = r.number()?;
    if number > limit { Err(DecodeError::Limit { limit, at }) } else { Ok(number) }
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}
