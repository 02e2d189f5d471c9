//! The debug information of object files: directories and sources, as gcc, clang and the assembler
//! write them. The module `linked` handles programs and shared libraries.
//!
//! Only strings change: those in `.debug_str` and `.debug_line_str`, and the tables of the line
//! program before DWARF 5. References to a string are updated, and the file is laid out again. If a
//! root occurs anywhere else, the object is refused.
//!
//! Unaware of: which command made the object, and what its inputs contain.

mod build_id;
mod elf;
mod layout;
mod line;
mod linked;
mod merged;
mod named;
mod order;
mod origin;
mod parts;
mod references;
mod shared;
mod strings;
mod sums;
mod units;

use elf::{ENDIAN, Elf, Section};
use object::read::elf::SectionHeader as _;
pub(crate) use origin::Order;
use origin::Origin;
use parts::Parts;

pub(crate) use named::relocate as relocate_names;
pub use sums::sums_sources;

use crate::roots::Map;

/// Sections with paths of directories and sources for debuggers.
const OF_DEBUGGERS: [&[u8]; 3] = [b".debug_str", b".debug_line_str", b".debug_line"];

/// Before DWARF 5, a string with fewer bytes is written in `.debug_info` itself.
const STRING_MIN: usize = 4;

/// Returns the object with its roots replaced.
pub(crate) fn relocate(bytes: &[u8], map: &Map<'_>, order: Order) -> Option<Vec<u8>> {
    if !map.is_plain() || map.stands_wide_in(bytes) {
        return None;
    }
    let elf = Elf::parse(bytes)?;
    if elf.is_linked() {
        return linked::relocate(&elf, bytes, map);
    }
    let mut parts = Parts::read(&elf, map)?;
    let origin = Origin::of(&parts.names);
    origin.reorder(&elf, &mut parts, order)?;
    if origin != Origin::Gcc && !shared::splits_alike(parts.file_names(), map) {
        return None;
    }
    // A symbol's name that contains a path, such as a lambda's, has a position in this table that
    // depends on its hash.
    let has_table = elf.sections.iter().any(|section| section.name == b".debug_names");
    if parts.names.changed().any(|name| name.len() < STRING_MIN || has_table && !name.starts_with(b"/")) {
        return None;
    }
    let mut data = Vec::with_capacity(elf.sections.len());
    for (index, section) in elf.sections.iter().enumerate() {
        if !parts.are_replaced(index) && map.stands_in(section.data) {
            return None;
        }
        data.push(parts.bytes(index));
    }
    references::update(&elf, &parts, &mut data)?;
    layout::write(&elf, &data)
}

/// Returns the file with each section replaced by what `exchange` returns for it, except the
/// sections in `OF_DEBUGGERS`. `exchange` must return as many bytes as it gets, so that nothing
/// moves. A build id is computed anew; an unknown kind of build id is refused.
pub(crate) fn exchange_in_place(bytes: &[u8], exchange: &dyn Fn(&[u8]) -> Vec<u8>) -> Option<Vec<u8>> {
    let elf = Elf::parse(bytes)?;
    let has_id = build_id::is_right(&elf, bytes)?;
    let mut there = bytes.to_vec();
    let has_more = |section: &&Section<'_>| !section.data.is_empty() && !OF_DEBUGGERS.contains(&section.name);
    for section in elf.sections.iter().filter(has_more) {
        let at = usize::try_from(section.header.sh_offset(ENDIAN)).ok()?;
        let exchanged = exchange(section.data);
        there.get_mut(at..at.checked_add(section.data.len())?)?.copy_from_slice(&exchanged);
    }
    if has_id {
        build_id::renew(&mut there)?;
    }
    Some(there)
}
