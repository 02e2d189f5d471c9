//! The sections, symbols and references of an ELF file of 64 bits, and the kinds of objects that are refused at sight.
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

/// An object file.
pub(super) struct Elf<'a> {
    pub(super) header: &'a Header,
    pub(super) sections: Vec<Section<'a>>,
}

/// A section as it is.
pub(super) struct Section<'a> {
    pub(super) header: &'a SectionHeader,
    pub(super) name: &'a [u8],
    /// Empty where it takes no room in the file.
    pub(super) data: &'a [u8],
}

impl<'a> Elf<'a> {
    /// `None` for other files, and for objects whose contents hide names or depend on them in other ways than as
    /// strings.
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

    /// Whether a linker made it: a program or a shared library.
    pub(super) fn is_linked(&self) -> bool {
        self.header.e_type.get(ENDIAN) != elf::ET_REL
    }

    /// The only section of this name: `Some(None)` when there is none, `None` when there are several.
    pub(super) fn the_section(&self, name: &[u8]) -> Option<Option<usize>> {
        let mut found = self.sections.iter().enumerate().filter(|(_, section)| section.name == name);
        let first = found.next().map(|(index, _)| index);
        found.next().is_none().then_some(first)
    }

    /// What the section holds, or nothing when there is no such section.
    pub(super) fn data(&self, index: Option<usize>) -> &'a [u8] {
        index.and_then(|index| self.sections.get(index)).map_or(&[], |section| section.data)
    }

    /// The references from one section to others, in the order of the file.
    pub(super) fn references(&self, section: &Section<'a>) -> Option<&'a [Rela]> {
        match section.header.sh_type(ENDIAN) {
            elf::SHT_RELA => pod::slice_from_all_bytes(section.data).ok(),
            _ => Some(&[]),
        }
    }

    /// The sections of references from the section with this index.
    pub(super) fn sections_about(&self, target: usize) -> impl Iterator<Item = &Section<'a>> {
        let is_about = move |section: &&Section<'a>| {
            section.header.sh_type(ENDIAN) == elf::SHT_RELA && section.header.sh_info(ENDIAN) as usize == target
        };
        self.sections.iter().filter(is_about)
    }

    /// The symbols that a section of references means.
    pub(super) fn symbols_for(&self, references: &Section<'a>) -> Option<&'a [Symbol]> {
        self.symbols(references.header.sh_link(ENDIAN) as usize)
    }

    /// The symbols that this section holds.
    pub(super) fn symbols(&self, index: usize) -> Option<&'a [Symbol]> {
        let section = self.sections.get(index)?;
        match section.header.sh_type(ENDIAN) {
            elf::SHT_SYMTAB => pod::slice_from_all_bytes(section.data).ok(),
            _ => None,
        }
    }

    /// Whether none is named after a hash of its source's name, or counts for a profile.
    fn symbols_are_plain(&self) -> bool {
        const SIGNS: [&[u8]; 3] = [b"__gcov", b".__uniq.", b"__profd_"];
        let tables = self.sections.iter().filter(|section| section.header.sh_type(ENDIAN) == elf::SHT_STRTAB);
        !tables.into_iter().any(|table| SIGNS.iter().any(|sign| memmem::find(table.data, sign).is_some()))
    }
}

/// Whether names in it are compressed, hashed, kept for a later compile, or referred to in a way that is not handled.
fn is_strange(section: &Section<'_>) -> bool {
    let kind = section.header.sh_type(ENDIAN);
    hides_a_section(section.name, section.header.sh_flags(ENDIAN))
        || section.name.starts_with(b"__llvm_")
        || section.name == b".debug_types"
        || section.name.ends_with(b".dwo")
        || [elf::SHT_REL, elf::SHT_CREL, elf::SHT_SYMTAB_SHNDX].contains(&kind)
}
