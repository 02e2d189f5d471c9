//! The sections of an object that may change.
//!
//! Unaware of: which compiler wrote them.

use gimli::{DebugInfo, LittleEndian, UnitType};
use object::elf;
use object::read::elf::SectionHeader as _;

use super::elf::{ENDIAN, Elf, Section};
use super::line::Line;
use super::strings::Strings;
use crate::roots::Map;

/// The sections that may change.
pub(super) struct Parts<'a> {
    /// `.debug_str`
    pub(super) names: Strings<'a>,
    pub(super) names_at: Option<usize>,
    /// `.debug_line_str`
    pub(super) line_names: Strings<'a>,
    pub(super) line_names_at: Option<usize>,
    /// `.debug_line`
    pub(super) line: Line,
    pub(super) line_at: Option<usize>,
    /// `.debug_info`, which does not change.
    pub(super) info: Option<usize>,
}

impl<'a> Parts<'a> {
    pub(super) fn read(elf: &Elf<'a>, map: &Map<'_>) -> Option<Parts<'a>> {
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

    /// Returns true if there is no debug information but strings that nothing refers to.
    pub(super) fn has_no_unit(&self, elf: &Elf<'a>) -> bool {
        let is_empty = |section: Option<usize>| elf.data(section).is_empty();
        let has_references = elf.sections.iter().any(|section| section.header.sh_type(ENDIAN) == elf::SHT_RELA);
        let is_other = |section: &Section<'_>| section.name.starts_with(b".debug_") && !section.data.is_empty();
        let others = elf.sections.iter().filter(|section| is_other(section)).count();
        let strings = [self.names_at, self.line_names_at].into_iter().filter(|at| !is_empty(*at)).count();
        is_empty(self.info) && is_empty(self.line_at) && !has_references && others == strings
    }

    /// Returns all old paths of directories and files, and some other strings.
    pub(super) fn file_names(&self) -> impl Iterator<Item = &[u8]> + Clone {
        let absolute = self.names.here().filter(|name| name.starts_with(b"/"));
        absolute.chain(self.line_names.here()).chain(self.line.names.iter().map(Vec::as_slice))
    }

    /// Returns true if roots are replaced in this section.
    pub(super) fn are_replaced(&self, section: usize) -> bool {
        [self.names_at, self.line_names_at].contains(&Some(section))
            || self.line_at == Some(section) && self.line.has_names
    }

    /// Returns true if the content of this section moves.
    pub(super) fn moves(&self, section: usize) -> bool {
        self.names_at == Some(section) && self.names.is_changed()
            || self.line_names_at == Some(section) && self.line_names.is_changed()
            || self.line_at == Some(section) && self.line.bytes.is_some()
    }

    /// Returns the new content of the section, or `None` if it does not change.
    pub(super) fn bytes(&self, section: usize) -> Option<Vec<u8>> {
        match Some(section) {
            at if !self.moves(section) || at.is_none() => None,
            at if at == self.names_at => Some(self.names.bytes()),
            at if at == self.line_names_at => Some(self.line_names.bytes()),
            _ => self.line.bytes.clone(),
        }
    }

    /// Returns the new offset for this offset in a section, or `None` if there is none.
    pub(super) fn moved(&self, section: usize, offset: u64) -> Option<u64> {
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
