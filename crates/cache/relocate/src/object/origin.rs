//! Which compiler wrote the debug information. This decides the order of the strings.
//!
//! Unaware of: how a string changes.

use memchr::memmem;

use super::elf::{ENDIAN, Elf};
use super::order;
use super::parts::Parts;
use super::strings::Strings;

/// How much of an object must be equal to what the compiler would make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Every byte.
    Same,
    /// All bytes, except the order of strings that gcc takes from a hash table.
    Any,
}

/// The compilers that are distinguished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// gcc. Its strings are in the order of a hash table, except those that the assembler writes
    /// for it.
    Gcc,
    /// Any other compiler. The strings are in the order of first use.
    Other,
}

impl Origin {
    pub(super) fn of(names: &Strings<'_>) -> Origin {
        let is_gcc = names.here().any(|name| name.starts_with(b"GNU ") && !name.starts_with(b"GNU AS"));
        let is_clang = names.here().any(|name| memmem::find(name, b"clang version").is_some());
        if is_gcc && !is_clang { Origin::Gcc } else { Origin::Other }
    }

    /// Sorts the strings as the compiler would write them in the new place. Returns `None` if the
    /// exact order is wanted but not known.
    pub(super) fn reorder(self, elf: &Elf<'_>, parts: &mut Parts<'_>, wanted: Order) -> Option<()> {
        if self == Origin::Other {
            return Some(());
        }
        // The slots in `.debug_str` also depend on strings that are not written.
        if parts.names.is_changed() && wanted == Order::Same {
            return None;
        }
        if !parts.line_names.is_changed() {
            return Some(());
        }
        let order = if parts.has_no_unit(elf) { orphans(&parts.line_names) } else { gcc_line_names(elf, parts) };
        match order {
            Some(order) => parts.line_names.put(order),
            None if wanted == Order::Same => return None,
            None => {}
        }
        Some(())
    }
}

/// Returns the new order of `.debug_line_str`. First come the strings that `.debug_info` refers to,
/// in the order of gcc's hash table. Then the assembler writes one string for each reference of the
/// line table. Returns `None` if this file is not laid out so.
fn gcc_line_names(elf: &Elf<'_>, parts: &Parts<'_>) -> Option<Vec<usize>> {
    let mut inserted = referred(elf, parts, parts.info?)?;
    inserted.dedup();
    let by_line = referred(elf, parts, parts.line_at?)?;
    let strings = &parts.line_names;
    if !by_line.into_iter().eq(inserted.len()..strings.len()) {
        return None;
    }
    let pick = |all: Vec<&'_ [u8]>| -> Option<Vec<usize>> {
        let chosen = inserted.iter().map(|&index| all.get(index).copied()).collect::<Option<Vec<_>>>()?;
        let slots = order::of_slots(&chosen)?;
        slots.iter().map(|&slot| inserted.get(slot).copied()).collect()
    };
    let here = pick(strings.here().collect())?;
    if !here.iter().copied().eq(0..inserted.len()) {
        return None;
    }
    let there = pick(strings.there().collect())?;
    Some(there.into_iter().chain(inserted.len()..strings.len()).collect())
}

/// Returns the new order of `.debug_line_str` if gcc wrote no unit, because the source came to
/// nothing. gcc then writes the name and the directory of the unit nevertheless, in the order of
/// its hash table, which it entered in this order. If both are absolute, it is not known which is
/// the name, so both orders must give one result.
fn orphans(strings: &Strings<'_>) -> Option<Vec<usize>> {
    let absolute: Vec<bool> = strings.here().map(|string| string.starts_with(b"/")).collect();
    let entered: &[&[usize]] = match absolute[..] {
        [_] => &[&[0]],
        [false, true] => &[&[0, 1]],
        [true, false] => &[&[1, 0]],
        [true, true] => &[&[0, 1], &[1, 0]],
        _ => return None,
    };
    let order = |all: &[&[u8]], entered: &[usize]| -> Option<Vec<usize>> {
        let chosen = entered.iter().map(|&index| all.get(index).copied()).collect::<Option<Vec<_>>>()?;
        order::of_slots(&chosen)?.iter().map(|&slot| entered.get(slot).copied()).collect()
    };
    let (here, there): (Vec<&[u8]>, Vec<&[u8]>) = (strings.here().collect(), strings.there().collect());
    let is_possible = |entered: &&&[usize]| order(&here, entered).is_some_and(|order| order.is_sorted());
    let mut orders: Vec<Vec<usize>> =
        entered.iter().filter(is_possible).map(|entered| order(&there, entered)).collect::<Option<_>>()?;
    orders.dedup();
    if orders.len() == 1 { orders.pop() } else { None }
}

/// Returns the strings of `.debug_line_str` to which a section refers, in the order of the
/// references.
fn referred(elf: &Elf<'_>, parts: &Parts<'_>, section: usize) -> Option<Vec<usize>> {
    let mut found = Vec::new();
    for relas in elf.sections_about(section) {
        let symbols = elf.symbols_for(relas)?;
        for rela in elf.references(relas)? {
            let symbol = symbols.get(rela.r_sym(ENDIAN, false) as usize)?;
            if usize::from(symbol.st_shndx.get(ENDIAN)) == parts.line_names_at? {
                let offset = symbol.st_value.get(ENDIAN).checked_add_signed(rela.r_addend.get(ENDIAN))?;
                found.push((rela.r_offset.get(ENDIAN), parts.line_names.at(offset)?));
            }
        }
    }
    found.sort_unstable();
    Some(found.into_iter().map(|(_, index)| index).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roots::Map;

    #[test]
    fn strings_without_a_unit() {
        let check = |section: &[u8], to: &[u8], expect: Option<Vec<usize>>| {
            let map = Map::new(&[b"/w"], &[to]).expect("sound roots");
            assert_eq!(orphans(&Strings::read(section, &map).expect("strings")), expect);
        };
        // The orders that gcc 12.2 wrote.
        check(b"/w\0s.c\0", b"/w1", Some(vec![1, 0]));
        check(b"/w\0s.c\0", b"/tmp/x/aa", Some(vec![1, 0]));
        // Not as gcc writes it.
        check(b"s.c\0/w\0", b"/w1", None);
        check(b"/w\0s.c\0t.c\0", b"/w1", None);
    }
}
