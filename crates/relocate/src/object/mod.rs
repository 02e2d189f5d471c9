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
mod references;
mod shared;
mod strings;
mod sums;
mod units;

use elf::{ENDIAN, Elf, Section};
use gimli::{DebugInfo, LittleEndian, UnitType};
use line::Line;
use memchr::memmem;
use object::read::elf::SectionHeader as _;
use origin::Origin;
use strings::Strings;

use crate::forms::holds_wide;
pub(crate) use named::relocate as relocate_names;
pub use sums::sums_sources;

use crate::roots::Map;

/// How much of an object must be equal to what the compiler would make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Every byte.
    Same,
    /// All bytes, except the order of strings that gcc takes from a hash table.
    Any,
}

/// Sections with paths of directories and sources for debuggers.
const OF_DEBUGGERS: [&[u8]; 3] = [b".debug_str", b".debug_line_str", b".debug_line"];

/// Before DWARF 5, a string with fewer bytes is written in `.debug_info` itself.
const STRING_MIN: usize = 4;

/// Returns the object with its roots replaced.
pub(crate) fn relocate(bytes: &[u8], map: &Map<'_>, order: Order) -> Option<Vec<u8>> {
    if !map.is_plain() || map.pairs().iter().any(|pair| holds_wide(bytes, pair.from)) {
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
        if !parts.are_replaced(index) && map.pairs().iter().any(|pair| memmem::find(section.data, pair.from).is_some())
        {
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
    let id = build_id::of(&elf, bytes)?;
    let mut there = bytes.to_vec();
    let has_more = |section: &&Section<'_>| !section.data.is_empty() && !OF_DEBUGGERS.contains(&section.name);
    for section in elf.sections.iter().filter(has_more) {
        let at = usize::try_from(section.header.sh_offset(ENDIAN)).ok()?;
        let exchanged = exchange(section.data);
        there.get_mut(at..at.checked_add(section.data.len())?)?.copy_from_slice(&exchanged);
    }
    if let Some((at, id)) = id {
        let range = at..at.checked_add(id.len())?;
        if bytes.get(range.clone())? != id {
            return None;
        }
        let (_, id) = build_id::of(&Elf::parse(&there)?, &there)??;
        there.get_mut(range)?.copy_from_slice(&id);
    }
    Some(there)
}

/// The sections that may change.
struct Parts<'a> {
    /// `.debug_str`
    names: Strings<'a>,
    names_at: Option<usize>,
    /// `.debug_line_str`
    line_names: Strings<'a>,
    line_names_at: Option<usize>,
    /// `.debug_line`
    line: Line,
    line_at: Option<usize>,
    /// `.debug_info`, which does not change.
    info: Option<usize>,
}

impl<'a> Parts<'a> {
    fn read(elf: &Elf<'a>, map: &Map<'_>) -> Option<Parts<'a>> {
        let info = elf.the_section(b".debug_info")?;
        let has_addresses = elf.the_section(b".debug_addr")?.is_some();
        if !is_one_unit(elf.data(info), has_addresses) {
            return None;
        }
        let names_at = elf.the_section(b".debug_str")?;
        let line_names_at = elf.the_section(b".debug_line_str")?;
        let line_at = elf.the_section(b".debug_line")?;
        Some(Parts {
            names: Strings::read(elf.data(names_at), map)?,
            names_at,
            line_names: Strings::read(elf.data(line_names_at), map)?,
            line_names_at,
            line: Line::read(elf.data(line_at), map)?,
            line_at,
            info,
        })
    }

    /// Returns all old paths of directories and files, and some other strings.
    fn file_names(&self) -> impl Iterator<Item = &[u8]> + Clone {
        let absolute = self.names.here().filter(|name| name.starts_with(b"/"));
        absolute.chain(self.line_names.here()).chain(self.line.names.iter().map(Vec::as_slice))
    }

    /// Returns true if roots are replaced in this section.
    fn are_replaced(&self, section: usize) -> bool {
        [self.names_at, self.line_names_at].contains(&Some(section))
            || self.line_at == Some(section) && self.line.has_names
    }

    /// Returns true if the content of this section moves.
    fn moves(&self, section: usize) -> bool {
        self.names_at == Some(section) && self.names.is_changed()
            || self.line_names_at == Some(section) && self.line_names.is_changed()
            || self.line_at == Some(section) && self.line.bytes.is_some()
    }

    /// Returns the new content of the section, or `None` if it does not change.
    fn bytes(&self, section: usize) -> Option<Vec<u8>> {
        match Some(section) {
            at if !self.moves(section) || at.is_none() => None,
            at if at == self.names_at => Some(self.names.bytes()),
            at if at == self.line_names_at => Some(self.line_names.bytes()),
            _ => self.line.bytes.clone(),
        }
    }

    /// Returns the new offset for this offset in a section, or `None` if there is none.
    fn moved(&self, section: usize, offset: u64) -> Option<u64> {
        match Some(section) {
            at if at == self.names_at => self.names.moved(offset),
            at if at == self.line_names_at => self.line_names.moved(offset),
            at if at == self.line_at => self.line.moved(offset),
            _ => Some(offset),
        }
    }
}

/// Returns true if the section contains at most one unit, and that is a whole unit of a known
/// version. A split unit is refused, because it is named by a hash of the paths. Before DWARF 5,
/// only the presence of `.debug_addr` shows that a unit is split.
fn is_one_unit(info: &[u8], has_addresses: bool) -> bool {
    let whole = DebugInfo::new(info, LittleEndian);
    let mut units = whole.units();
    match units.next() {
        Ok(None) => info.is_empty(),
        Ok(Some(unit)) => {
            let is_whole = match unit.version() {
                2..=4 => !has_addresses,
                5 => unit.type_() == UnitType::Compilation,
                _ => false,
            };
            is_whole && matches!(units.next(), Ok(None))
        }
        Err(_) => false,
    }
}
