//! Archives of objects, as GNU `ar` writes them. Each object is replaced, and the table of symbols
//! gets the new offsets.
//!
//! Unaware of: how an object is relocated.

use std::collections::HashMap;

use object::archive::{Header, MAGIC};
use object::elf::ELFMAG;
use object::pod::bytes_of;
use object::read::archive::{ArchiveFile, ArchiveKind, ArchiveMember};

use crate::forms::hides_its_text;

/// The size of a member's header, which comes before its content.
const HEADER_BYTES: usize = size_of::<Header>();
/// The offset of the first entry in the table of symbols. This table is the first member: the
/// number of symbols, then for each the offset of its member. All are 32-bit numbers with the
/// highest byte first.
const SYMBOLS_AT: usize = MAGIC.len() + HEADER_BYTES + SYMBOL_BYTES;
const SYMBOL_BYTES: usize = 4;

/// Returns the archive with each object replaced by what `each` returns for it. Returns `None` if
/// another part of the archive contains what is to be replaced, according to `holds`.
pub(crate) fn relocate(
    bytes: &[u8],
    holds: &dyn Fn(&[u8]) -> bool,
    each: &dyn Fn(&[u8]) -> Option<Vec<u8>>,
) -> Option<Vec<u8>> {
    let archive = ArchiveFile::parse(bytes).ok()?;
    // An archive without symbols and long names has an unknown kind.
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
        // BSD stores a long name in the content of the member.
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

/// Returns the offset of the member's header.
fn begins_at(member: &ArchiveMember<'_>) -> Option<usize> {
    usize::try_from(member.file_range().0).ok()?.checked_sub(HEADER_BYTES)
}
