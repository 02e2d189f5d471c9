//! Checksums (MD5) of sources, which clang's debug information contains from DWARF 5 on.
//!
//! Unaware of: which sources these are.

use gimli::{DebugLine, DebugLineOffset, Format, LittleEndian};
use memchr::memmem;

use super::elf::Elf;

/// The size of the length field that precedes a line table, in bytes.
const LENGTH_SIZE: usize = 4;

/// Returns true if the debug information of an object or a program contains checksums of sources,
/// or if it cannot be parsed.
pub fn sums_sources(bytes: &[u8]) -> bool {
    let Some(elf) = Elf::parse(bytes) else { return memmem::find(bytes, b".debug_line_str").is_some() };
    let lines = elf.sections.iter().filter(|section| section.name == b".debug_line");
    lines.into_iter().any(|section| have_sums(section.data).unwrap_or(true))
}

/// Returns true if a line table contains checksums, and `None` if the section is not what a
/// compiler writes.
fn have_sums(tables: &[u8]) -> Option<bool> {
    let whole = DebugLine::new(tables, LittleEndian);
    let mut at = 0;
    while at < tables.len() {
        let program = whole.program(DebugLineOffset(at), 8, None, None).ok()?;
        let header = program.header();
        if header.format() != Format::Dwarf32 {
            return None;
        }
        if header.file_has_md5() {
            return Some(true);
        }
        at = at.checked_add(LENGTH_SIZE)?.checked_add(header.unit_length())?;
    }
    Some(false)
}
