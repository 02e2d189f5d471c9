//! The sections, symbols and relocations of a 64-bit ELF file. Refuses the kinds of objects that
//! cannot be relocated.
//!
//! Unaware of: what is in a section, and roots.

use memchr::memmem;
use object::LittleEndian;
use object::elf::{self, FileHeader64, Rela64, SectionHeader64, Sym64};
use object::pod;
use object::read::elf::{FileHeader as _, SectionHeader as _};

use crate::forms::hides_a_section;

pub(super) type Header = FileHeader64<LittleEndian>;
pub(super) type SectionHeader = SectionHeader64<LittleEndian>;
pub(super) type Rela = Rela64<LittleEndian>;
pub(super) type Symbol = Sym64<LittleEndian>;

pub(super) const ENDIAN: LittleEndian = LittleEndian;

/// A parsed ELF file.
pub(super) struct Elf<'a> {
    pub(super) header: &'a Header,
    pub(super) sections: Vec<Section<'a>>,
}

/// A section of the file.
pub(super) struct Section<'a> {
    pub(super) header: &'a SectionHeader,
    pub(super) name: &'a [u8],
    /// The content. Empty if the section takes no space in the file.
    pub(super) data: &'a [u8],
}

impl<'a> Elf<'a> {
    /// Parses a file. Returns `None` if the file is not ELF, or if it contains paths in other forms
    /// than as strings (compressed, hashed and so on).
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Elf<'a>> {
        let header = Header::parse(bytes).ok()?;
        header.endian().ok().filter(|endian| *endian == ENDIAN)?;
        let machine = header.e_machine.get(ENDIAN);
        let kinds = [elf::ET_REL, elf::ET_EXEC, elf::ET_DYN];
        if !kinds.contains(&header.e_type.get(ENDIAN)) || ![elf::EM_X86_64, elf::EM_AARCH64].contains(&machine) {
            return None;
        }
        let table = header.sections(ENDIAN, bytes).ok()?;
        let mut sections = Vec::with_capacity(table.len());
        for section in table.iter() {
            let name = table.section_name(ENDIAN, section).ok()?;
            sections.push(Section { header: section, name, data: section.data(ENDIAN, bytes).ok()? });
        }
        let elf = Elf { header, sections };
        (!elf.sections.iter().any(is_strange) && elf.symbols_are_plain()).then_some(elf)
    }

    /// Returns true if the file is a program or a shared library, which a linker made.
    pub(super) fn is_linked(&self) -> bool {
        self.header.e_type.get(ENDIAN) != elf::ET_REL
    }

    /// Returns the index of the only section with this name. Returns `Some(None)` if there is none,
    /// and `None` if there are several.
    pub(super) fn the_section(&self, name: &[u8]) -> Option<Option<usize>> {
        let mut found = self.sections.iter().enumerate().filter(|(_, section)| section.name == name);
        let first = found.next().map(|(index, _)| index);
        found.next().is_none().then_some(first)
    }

    /// Returns the content of the section, or nothing if there is no such section.
    pub(super) fn data(&self, index: Option<usize>) -> &'a [u8] {
        index.and_then(|index| self.sections.get(index)).map_or(&[], |section| section.data)
    }

    /// Returns the relocations in a section, in the order of the file.
    pub(super) fn references(&self, section: &Section<'a>) -> Option<&'a [Rela]> {
        match section.header.sh_type(ENDIAN) {
            elf::SHT_RELA => pod::slice_from_all_bytes(section.data).ok(),
            _ => Some(&[]),
        }
    }

    /// Returns the sections with relocations for the section with this index.
    pub(super) fn sections_about(&self, target: usize) -> impl Iterator<Item = &Section<'a>> {
        let is_about = move |section: &&Section<'a>| {
            section.header.sh_type(ENDIAN) == elf::SHT_RELA && section.header.sh_info(ENDIAN) as usize == target
        };
        self.sections.iter().filter(is_about)
    }

    /// Returns the symbols to which a section of relocations refers.
    pub(super) fn symbols_for(&self, references: &Section<'a>) -> Option<&'a [Symbol]> {
        self.symbols(references.header.sh_link(ENDIAN) as usize)
    }

    /// Returns the symbols in this section.
    pub(super) fn symbols(&self, index: usize) -> Option<&'a [Symbol]> {
        let section = self.sections.get(index)?;
        match section.header.sh_type(ENDIAN) {
            elf::SHT_SYMTAB => pod::slice_from_all_bytes(section.data).ok(),
            _ => None,
        }
    }

    /// Returns true if no symbol's name contains a hash of the source's path, or is a counter of a
    /// profile.
    fn symbols_are_plain(&self) -> bool {
        const SIGNS: [&[u8]; 3] = [b"__gcov", b".__uniq.", b"__profd_"];
        let tables = self.sections.iter().filter(|section| section.header.sh_type(ENDIAN) == elf::SHT_STRTAB);
        !tables.into_iter().any(|table| SIGNS.iter().any(|sign| memmem::find(table.data, sign).is_some()))
    }
}

/// Returns true if paths in the section are compressed, hashed, kept for a later compile, or
/// referred to in an unsupported way.
fn is_strange(section: &Section<'_>) -> bool {
    let kind = section.header.sh_type(ENDIAN);
    hides_a_section(section.name, section.header.sh_flags(ENDIAN))
        || section.name.starts_with(b"__llvm_")
        || section.name == b".debug_types"
        || section.name.ends_with(b".dwo")
        || [elf::SHT_REL, elf::SHT_CREL, elf::SHT_SYMTAB_SHNDX].contains(&kind)
}
