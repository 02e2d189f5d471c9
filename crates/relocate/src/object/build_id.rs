//! The build id: the SHA-1 by which GNU ld names what it links.
//!
//! ld (`elf_checksum_contents`): the ELF header without the positions of its tables, the program headers, each
//! section's header without its position, and the contents of all sections but the tables of symbols and their names,
//! which it has not written by then. The note itself counts as zeros, all of it.
//!
//! Unaware of: what is in a section.

use object::elf;
use object::pod::bytes_of;
use object::read::elf::{FileHeader as _, SectionHeader as _};
use sha1_smol::Sha1;

use super::elf::{ENDIAN, Elf, Section};

/// Length of the name, length of the id, kind, and the name: `GNU` and a zero.
const NOTE_HEADER: [u8; 16] = *b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0";
const ID_SIZE: usize = 20;
const SECTION: &[u8] = b".note.gnu.build-id";

/// The id that ld gives to this file, and where it stands. `Some(None)` where the file has no such note, `None` where
/// it has one of another kind.
pub(super) fn of(elf: &Elf<'_>, bytes: &[u8]) -> Option<Option<(usize, [u8; ID_SIZE])>> {
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

/// The symbols and the names of symbols and sections; those for the loader are written before.
fn is_written_later(elf: &Elf<'_>, index: usize, section: &Section<'_>) -> bool {
    let kind = section.header.sh_type(ENDIAN);
    let is_loaded = section.header.sh_flags(ENDIAN) & u64::from(elf::SHF_ALLOC) != 0;
    kind == elf::SHT_SYMTAB
        || kind == elf::SHT_STRTAB && !is_loaded
        || usize::from(elf.header.e_shstrndx.get(ENDIAN)) == index
}
