//! Archives of objects, as GNU `ar` writes them: each object as it would be elsewhere, and where the objects then lie.
//!
//! Unaware of: what is done to an object.

use std::collections::HashMap;

use object::archive::{Header, MAGIC};
use object::elf::ELFMAG;
use object::pod::bytes_of;
use object::read::archive::{ArchiveFile, ArchiveKind, ArchiveMember};

use crate::forms::hides_its_text;

/// A member's header, which stands before its bytes.
const HEADER_BYTES: usize = size_of::<Header>();
/// The table of symbols is the first member: how many there are, then for each where its member begins, all as 32 bits,
/// the highest byte first.
const SYMBOLS_AT: usize = MAGIC.len() + HEADER_BYTES + SYMBOL_BYTES;
const SYMBOL_BYTES: usize = 4;

/// Whether bytes begin as an archive does.
pub(crate) fn is_archive(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

/// The archive with `each` object exchanged. `None` where what is to be replaced stands in another part of it, by
/// `holds`.
pub(crate) fn relocate(
    bytes: &[u8],
    holds: &dyn Fn(&[u8]) -> bool,
    each: &dyn Fn(&[u8]) -> Option<Vec<u8>>,
) -> Option<Vec<u8>> {
    let archive = ArchiveFile::parse(bytes).ok()?;
    // Without symbols and long names nothing says whose it is.
    if archive.is_thin() || !matches!(archive.kind(), ArchiveKind::Gnu | ArchiveKind::Unknown) {
        return None;
    }
    let members: Vec<ArchiveMember<'_>> = archive.members().collect::<Result<_, _>>().ok()?;
    let first = begins_at(members.first()?)?;
    let mut out = bytes.get(..first)?.to_vec();
    if holds(&out) {
        return None;
    }
    let mut moved = HashMap::new();
    for member in &members {
        let mut header = *member.header()?;
        let data = member.data(bytes).ok()?;
        // BSD's way to keep a long name: among the bytes.
        if header.name.starts_with(b"#1/") || holds(bytes_of(&header)) {
            return None;
        }
        let there = match data.starts_with(&ELFMAG) {
            true => each(data)?,
            false if holds(data) || hides_its_text(data) => return None,
            false => data.to_vec(),
        };
        header.size = format!("{:<10}", there.len()).into_bytes().try_into().ok()?;
        moved.insert(begins_at(member)?, u32::try_from(out.len()).ok()?);
        out.extend_from_slice(bytes_of(&header));
        out.extend_from_slice(&there);
        if out.len() % 2 == 1 {
            out.push(b'\n');
        }
    }
    for (index, symbol) in archive.symbols().ok()?.into_iter().flatten().enumerate() {
        let there = moved.get(&usize::try_from(symbol.ok()?.offset().0).ok()?)?;
        let at = SYMBOLS_AT + index * SYMBOL_BYTES;
        out.get_mut(at..at + SYMBOL_BYTES)?.copy_from_slice(&there.to_be_bytes());
    }
    Some(out)
}

/// Where its header is.
fn begins_at(member: &ArchiveMember<'_>) -> Option<usize> {
    usize::try_from(member.file_range().0).ok()?.checked_sub(HEADER_BYTES)
}
