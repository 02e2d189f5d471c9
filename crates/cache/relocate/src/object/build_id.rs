//! The build id: the SHA-1 with which GNU ld identifies what it links.
//!
//! In ld (`elf_checksum_contents`) the sum covers the ELF header and the section headers without
//! their offsets, the program headers, and the content of all sections. It does not cover the
//! symbol table and the string tables for symbols and sections, which ld has not written by then.
//! The note with the build id counts as zeros.
//!
//! Unaware of: what is in a section.

use object::elf;
use object::pod::bytes_of;
use object::read::elf::{FileHeader as _, SectionHeader as _};
use sha1_smol::Sha1;

use super::elf::{ENDIAN, Elf, Section};

/// The start of the note: the length of the name, the length of the id, the type, and the name
/// `GNU` with a zero byte.
const NOTE_HEADER: [u8; 16] = *b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0";
const ID_SIZE: usize = 20;
const SECTION: &[u8] = b".note.gnu.build-id";

/// Returns the id that ld gives to this file, and its offset in the file. Returns `Some(None)` if
/// the file has no such note, and `None` if the note is of another kind.
fn of(elf: &Elf<'_>, bytes: &[u8]) -> Option<Option<(usize, [u8; ID_SIZE])>> {
    let Some(note) = elf.the_section(SECTION)? else { return Some(None) };
    let section = elf.sections.get(note)?;
    if section.data.len() != NOTE_HEADER.len() + ID_SIZE || !section.data.starts_with(&NOTE_HEADER) {
        return None;
    }
    let mut sum = Sha1::new();
    let mut header = *elf.header;
    header.e_phoff.set(ENDIAN, 0);
    header.e_shoff.set(ENDIAN, 0);
    sum.update(bytes_of(&header));
    for segment in elf.header.program_headers(ENDIAN, bytes).ok()? {
        sum.update(bytes_of(segment));
    }
    for (index, section) in elf.sections.iter().enumerate() {
        let mut header = *section.header;
        header.sh_offset.set(ENDIAN, 0);
        sum.update(bytes_of(&header));
        if index == note {
            sum.update(&[0; NOTE_HEADER.len() + ID_SIZE]);
        } else if !is_written_later(elf, index, section) {
            sum.update(section.data);
        }
    }
    let at = usize::try_from(section.header.sh_offset(ENDIAN)).ok()?.checked_add(NOTE_HEADER.len())?;
    Some(Some((at, sum.digest().bytes())))
}

/// Returns true if the file has the build id that ld computes for it, and false if it has none. Any
/// other build id is refused.
pub(super) fn is_right(elf: &Elf<'_>, bytes: &[u8]) -> Option<bool> {
    match of(elf, bytes)? {
        Some((at, id)) => bytes.get(at..)?.starts_with(&id).then_some(true),
        None => Some(false),
    }
}

/// Replaces the build id, if there is one, by that of the file as it is now.
pub(super) fn renew(bytes: &mut [u8]) -> Option<()> {
    let id = of(&Elf::parse(bytes)?, bytes)?;
    if let Some((at, id)) = id {
        bytes.get_mut(at..at.checked_add(id.len())?)?.copy_from_slice(&id);
    }
    Some(())
}

/// Returns true for the symbol table and the tables of names. The tables for the dynamic loader are
/// written earlier.
fn is_written_later(elf: &Elf<'_>, index: usize, section: &Section<'_>) -> bool {
    let kind = section.header.sh_type(ENDIAN);
    let is_loaded = section.header.sh_flags(ENDIAN) & u64::from(elf::SHF_ALLOC) != 0;
    kind == elf::SHT_SYMTAB
        || kind == elf::SHT_STRTAB && !is_loaded
        || usize::from(elf.header.e_shstrndx.get(ENDIAN)) == index
}
