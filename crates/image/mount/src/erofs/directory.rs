//! The blocks of a directory: entries, sorted by their names.
//!
//! Unaware of: where in an image the blocks are.

use std::io;

use super::bytes::{damaged, u16_at, u64_at};

/// The size of an entry, in bytes.
const ENTRY: usize = 12;
/// The limit for a file name, in bytes. It is Linux' own limit.
pub(super) const NAME_BYTES_MAX: usize = 255;

/// An entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DirectoryEntry<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) number: u64,
    /// The file type as EROFS numbers it: 1 is a regular file, 2 a directory, 7 a symbolic link.
    pub(crate) kind: u8,
}

/// Returns the entry of this index in a block of a directory, or `None` if the block has fewer.
pub(crate) fn entry(block: &[u8], number: usize) -> io::Result<Option<DirectoryEntry<'_>>> {
    let cut = || damaged("an entry of a directory is cut");
    let count = entries(block)?;
    if number >= count {
        return Ok(None);
    }
    let head = |number: usize| block.get(number * ENTRY..(number + 1) * ENTRY).ok_or_else(cut);
    let this = head(number)?;
    let start = usize::from(u16_at(this, 8));
    let end = if number + 1 < count { usize::from(u16_at(head(number + 1)?, 8)) } else { block.len() };
    let name = block.get(start..end).ok_or_else(cut)?;
    // Zeros may follow the last name.
    let name = &name[..name.iter().position(|byte| *byte == 0).unwrap_or(name.len())];
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(&b'/') {
        return Err(damaged("a file name is invalid"));
    }
    Ok(Some(DirectoryEntry { name, number: u64_at(this, 0), kind: this[10] }))
}

fn entries(block: &[u8]) -> io::Result<usize> {
    if block.len() < ENTRY {
        return Err(damaged("a block of a directory is cut"));
    }
    let first = usize::from(u16_at(block, 8));
    if first < ENTRY || first % ENTRY != 0 || first > block.len() {
        return Err(damaged("a block of a directory has no names"));
    }
    Ok(first / ENTRY)
}

/// Finds a name in a sorted block of a directory, and returns its inode number.
pub(super) fn find(block: &[u8], name: &[u8]) -> io::Result<Option<u64>> {
    let (mut low, mut high) = (0, entries(block)?);
    while low < high {
        let middle = low + (high - low) / 2;
        let found = entry(block, middle)?.ok_or_else(|| damaged("an entry is missing"))?;
        match found.name.cmp(name) {
            std::cmp::Ordering::Equal => return Ok(Some(found.number)),
            std::cmp::Ordering::Less => low = middle + 1,
            std::cmp::Ordering::Greater => high = middle,
        }
    }
    Ok(None)
}
