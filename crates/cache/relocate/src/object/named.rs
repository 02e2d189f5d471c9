//! Ephemeral names in objects and programs. They are replaced in the symbol that names the source
//! of an object.
//!
//! GNU as and ld write the names of symbols in the order in which they meet them. A name that is
//! the end of another is not written again. So a new name can take the place of the old one. LLVM
//! sorts the names, so its objects are refused.
//!
//! Unaware of: debug information. An object with an ephemeral name there is refused.

use object::elf;
use object::pod::bytes_of;
use object::read::elf::SectionHeader as _;

use super::elf::{ENDIAN, Elf};
use super::{layout, linked};
use crate::names::Names;

const COMMENT: &[u8] = b"GCC: ";

/// Returns the file with the names replaced in its symbols, or `None` if one occurs elsewhere.
pub(crate) fn relocate(bytes: &[u8], names: &Names<'_>) -> Option<Vec<u8>> {
    let elf = Elf::parse(bytes)?;
    let comments = elf.data(elf.the_section(b".comment")?);
    let mut comments = comments.split(|&c| c == 0).filter(|comment| !comment.is_empty()).peekable();
    if comments.peek().is_none() || !comments.all(|comment| comment.starts_with(COMMENT)) {
        return None;
    }
    let (table_at, symbols_at) = (elf.the_section(b".strtab")??, elf.the_section(b".symtab")??);
    let links_here = |section: &super::elf::Section<'_>| {
        [elf::SHT_SYMTAB, elf::SHT_DYNSYM].contains(&section.header.sh_type(ENDIAN))
            && section.header.sh_link(ENDIAN) as usize == table_at
    };
    let users: Vec<usize> =
        (0..elf.sections.len()).filter(|&at| elf.sections.get(at).is_some_and(links_here)).collect();
    let has_other_use = usize::from(elf.header.e_shstrndx.get(ENDIAN)) == table_at;
    let is_elsewhere =
        elf.sections.iter().enumerate().any(|(at, section)| at != table_at && names.stand_in(section.data));
    let is_golds = elf.sections.iter().any(|section| section.name == b".note.gnu.gold-version");
    if is_golds || users != [symbols_at] || has_other_use || is_elsewhere {
        return None;
    }
    let table = Table::read(elf.data(Some(table_at)), names)?;
    let mut symbols = Vec::new();
    for symbol in elf.symbols(symbols_at)? {
        let mut there = *symbol;
        there.st_name.set(ENDIAN, u32::try_from(table.moved(symbol.st_name.get(ENDIAN) as usize)?).ok()?);
        symbols.extend_from_slice(bytes_of(&there));
    }
    let mut data = vec![None; elf.sections.len()];
    *data.get_mut(symbols_at)? = Some(symbols);
    *data.get_mut(table_at)? = Some(table.bytes);
    if elf.is_linked() { linked::write(&elf, bytes, data) } else { layout::write(&elf, &data) }
}

/// A string table as it will be.
struct Table {
    /// For each string: its old offset, its new offset, its old length, and whether it changes.
    strings: Vec<(usize, usize, usize, bool)>,
    bytes: Vec<u8>,
}

impl Table {
    fn read(section: &[u8], names: &Names<'_>) -> Option<Table> {
        let mut table = Table { strings: Vec::new(), bytes: Vec::with_capacity(section.len()) };
        let (mut at, mut changed) = (0, Vec::new());
        for whole in section.split_inclusive(|&c| c == 0) {
            let here = whole.strip_suffix(&[0])?;
            let is_changed = names.stand_in(here);
            let there = if is_changed { names.replace(here)? } else { here.to_vec() };
            table.strings.push((at, table.bytes.len(), here.len(), is_changed));
            table.bytes.extend_from_slice(&there);
            table.bytes.push(0);
            at += whole.len();
            if is_changed {
                changed.push(there);
            }
        }
        // A changed name must not be the end of another string, nor another string its end, nor may
        // two changed names be equal.
        let is_alone = |one: &[u8]| {
            let all = table.bytes.split(|&c| c == 0).filter(|other| !other.is_empty());
            all.filter(|other| other.ends_with(one) || one.ends_with(other)).count() == 1
        };
        changed.iter().all(|one| is_alone(one)).then_some(table)
    }

    /// Returns the new offset of a name with this old offset. Returns `None` for the end of a name
    /// that changes.
    fn moved(&self, offset: usize) -> Option<usize> {
        let after = self.strings.partition_point(|(here, ..)| *here <= offset);
        let (here, there, length, is_changed) = *self.strings.get(after.checked_sub(1)?)?;
        let behind = offset - here;
        (behind == 0 || behind <= length && !is_changed).then_some(there + behind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_names() {
        let check = |section: &[u8], expect: Option<&[u8]>| {
            let (names, _) = Names::split(&[b"t42"], &[b"t345"]).expect("valid lists");
            assert_eq!(Table::read(section, &names).map(|table| table.bytes).as_deref(), expect);
        };
        check(b"\0t42.c\0main\0", Some(b"\0t345.c\0main\0"));
        check(b"\0t42.c\0xt345.c\0", None);
        check(b"\0t42.c\0.c\0", None);
        check(b"\0xt42.c\0", None);
        let (names, _) = Names::split(&[b"t42"], &[b"t345"]).expect("valid lists");
        let table = Table::read(b"\0t42.c\0_main\0", &names).expect("can be read");
        assert_eq!([0, 1, 2, 6, 7].map(|at| table.moved(at)), [Some(0), Some(1), None, None, Some(8)]);
    }
}
