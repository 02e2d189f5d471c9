//! Updates what refers to bytes that move: relocations and symbols.
//!
//! Unaware of: why the bytes move.

use object::elf;
use object::pod::bytes_of;
use object::read::elf::SectionHeader as _;

use super::elf::{ENDIAN, Elf, Rela, Section, Symbol};
use super::parts::Parts;

/// Rewrites the sections of relocations and symbols that refer to something that moves.
pub(super) fn update(elf: &Elf<'_>, parts: &Parts<'_>, data: &mut [Option<Vec<u8>>]) -> Option<()> {
    for (index, section) in elf.sections.iter().enumerate() {
        let changed = match section.header.sh_type(ENDIAN) {
            elf::SHT_RELA => relocations(elf, parts, section)?,
            elf::SHT_SYMTAB => symbols(elf.symbols(index)?, parts)?,
            _ => continue,
        };
        *data.get_mut(index)? = changed;
    }
    Some(())
}

fn relocations(elf: &Elf<'_>, parts: &Parts<'_>, section: &Section<'_>) -> Option<Option<Vec<u8>>> {
    let target = section.header.sh_info(ENDIAN) as usize;
    let symbols = elf.symbols_for(section)?;
    let mut out = Vec::with_capacity(section.data.len());
    for rela in elf.references(section)? {
        out.extend_from_slice(bytes_of(&moved(*rela, target, symbols, parts)?));
    }
    Some((out != section.data).then_some(out))
}

fn moved(mut rela: Rela, target: usize, symbols: &[Symbol], parts: &Parts<'_>) -> Option<Rela> {
    let offset = rela.r_offset.get(ENDIAN);
    rela.r_offset.set(ENDIAN, parts.moved(target, offset)?);
    let symbol = symbols.get(rela.r_sym(ENDIAN, false) as usize)?;
    let section = usize::from(symbol.st_shndx.get(ENDIAN));
    if !parts.moves(section) {
        return Some(rela);
    }
    let addend = rela.r_addend.get(ENDIAN);
    if symbol.st_type() == elf::STT_SECTION {
        let there = parts.moved(section, u64::try_from(addend).ok()?)?;
        rela.r_addend.set(ENDIAN, i64::try_from(there).ok()?);
    } else if addend != 0 {
        return None;
    }
    Some(rela)
}

fn symbols(symbols: &[Symbol], parts: &Parts<'_>) -> Option<Option<Vec<u8>>> {
    let mut out = Vec::with_capacity(std::mem::size_of_val(symbols));
    let mut is_changed = false;
    for symbol in symbols {
        let mut there = *symbol;
        let section = usize::from(symbol.st_shndx.get(ENDIAN));
        if parts.moves(section) && symbol.st_type() != elf::STT_SECTION {
            let value = parts.moved(section, symbol.st_value.get(ENDIAN))?;
            if symbol.st_size.get(ENDIAN) != 0 {
                return None;
            }
            is_changed |= value != symbol.st_value.get(ENDIAN);
            there.st_value.set(ENDIAN, value);
        }
        out.extend_from_slice(bytes_of(&there));
    }
    Some(is_changed.then_some(out))
}
