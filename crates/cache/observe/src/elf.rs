//! Reads which dynamic loader an ELF program needs, and which names it links to.
//!
//! Unaware of: what follows from the loader.

use std::fs::File;

use object::elf::{DT_STRSZ, DT_STRTAB, FileHeader64, PT_DYNAMIC, PT_LOAD, ProgramHeader64, SHT_DYNSYM};
use object::read::elf::{Dyn, FileHeader, ProgramHeader, SectionHeader, Sym};
use object::{Endianness, ReadCache, ReadRef};

#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = object::elf::EM_X86_64;
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = object::elf::EM_AARCH64;

/// The segments of a program for this machine.
pub(crate) struct Segments<'c> {
    file: &'c ReadCache<&'c File>,
    endian: Endianness,
    headers: &'c [ProgramHeader64<Endianness>],
}

impl<'c> Segments<'c> {
    /// Reads the headers of a program. Returns `None` if it is not for this machine.
    pub(crate) fn parse(file: &'c ReadCache<&'c File>) -> Option<Segments<'c>> {
        let header = FileHeader64::<Endianness>::parse(file).ok()?;
        let endian = header.endian().ok()?;
        if header.e_machine(endian) != MACHINE {
            return None;
        }
        let headers = header.program_headers(endian, file).ok()?;
        Some(Segments { file, endian, headers })
    }

    /// Returns the path of the dynamic loader, or `None` if the program is static.
    pub(crate) fn loader(&self) -> Option<&'c [u8]> {
        self.headers.iter().find_map(|segment| segment.interpreter(self.endian, self.file).ok()?)
    }

    /// Returns the names of the program's libraries and dynamic symbols, as one text.
    pub(crate) fn dynamic_names(&self) -> Option<&'c [u8]> {
        let endian = self.endian;
        let dynamic = self.headers.iter().find(|segment| segment.p_type(endian) == PT_DYNAMIC)?;
        let entries = dynamic.dynamic(endian, self.file).ok()??;
        let value = |tag: u32| entries.iter().find(|d| d.tag32(endian) == Some(tag)).map(|d| d.d_val(endian));
        let (address, size) = (value(DT_STRTAB)?, value(DT_STRSZ)?);
        let load = self.headers.iter().find(|s| {
            s.p_type(endian) == PT_LOAD
                && (s.p_vaddr(endian)..s.p_vaddr(endian) + s.p_filesz(endian)).contains(&address)
        })?;
        self.file.read_bytes_at(load.p_offset(endian) + (address - load.p_vaddr(endian)), size).ok()
    }
}

/// Returns the names of the symbols that a shared object takes from others. Returns `None` if the
/// file cannot be read, or has no table of sections.
pub fn imported_symbols(file: &File) -> Option<Vec<Vec<u8>>> {
    let cache = ReadCache::new(file);
    let header = FileHeader64::<Endianness>::parse(&cache).ok()?;
    let endian = header.endian().ok()?;
    let table = header.sections(endian, &cache).ok()?.symbols(endian, &cache, SHT_DYNSYM).ok()?;
    let names = table.iter().skip(1).filter(|symbol| symbol.is_undefined(endian));
    let names: Option<Vec<Vec<u8>>> =
        names.map(|symbol| Some(symbol.name(endian, table.strings()).ok()?.to_vec())).collect();
    names.filter(|names| !names.is_empty())
}

/// Returns the names of a shared object's own symbols, one after the other with a NUL behind each.
/// Returns `None` if it has no table of them.
pub fn own_symbols(file: &File) -> Option<Vec<u8>> {
    let cache = ReadCache::new(file);
    let header = FileHeader64::<Endianness>::parse(&cache).ok()?;
    let endian = header.endian().ok()?;
    let (_, section) = header.sections(endian, &cache).ok()?.section_by_name(endian, b".strtab")?;
    Some(section.data(endian, &cache).ok()?.to_vec())
}

/// Returns the names by which a shared object refers to functions and libraries. They are separated
/// by NUL bytes.
pub fn linked_names(file: &File) -> Option<Vec<u8>> {
    let cache = ReadCache::new(file);
    Segments::parse(&cache)?.dynamic_names().map(<[u8]>::to_vec)
}

/// Returns the dynamic loader of a program for this machine. Returns `Some(None)` if the program is
/// static, and `None` if it is not for this machine.
pub(crate) fn loader_of(file: &File) -> Option<Option<Vec<u8>>> {
    let cache = ReadCache::new(file);
    let segments = Segments::parse(&cache)?;
    Some(segments.loader().map(<[u8]>::to_vec))
}
