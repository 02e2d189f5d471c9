//! Programs and shared libraries that GNU ld linked from objects of gcc and clang, with debug
//! information of DWARF 5.
//!
//! The strings in `.debug_line_str` change, and with clang also those in `.debug_str`. ld merges
//! the strings of all objects into one section (see `merged`), so offsets of strings change, and
//! references to them are updated. The sections after them move, and the build id is computed anew.
//! None of this is loaded when the program runs.
//!
//! To check that ld made the file, its work is repeated for the old place. This must give the same
//! file.
//!
//! Unaware of: which command made the file, and what its inputs contain.

use std::borrow::Cow;

use memchr::memmem;
use object::elf;
use object::read::elf::{FileHeader as _, ProgramHeader as _, SectionHeader as _};

use super::elf::{ENDIAN, Elf};
use super::merged::Merged;
use super::units::{Reference, Units, string_at};
use super::{build_id, layout, order, shared};
use crate::roots::Map;
use crate::text::replace;

/// The names that linkers other than GNU ld write into `.comment`.
const OTHER_LINKERS: [&[u8]; 3] = [b"LLD ", b"mold ", b"Wild "];
/// Sections that only other linkers make, and indexes that are sorted by hashes of names.
const STRANGE: [&[u8]; 3] = [b".note.gnu.gold-version", b".gdb_index", b".debug_names"];

/// Returns the file with its roots replaced.
pub(super) fn relocate(elf: &Elf<'_>, bytes: &[u8], map: &Map<'_>) -> Option<Vec<u8>> {
    let comment = elf.data(elf.the_section(b".comment")?);
    let is_other = OTHER_LINKERS.iter().any(|linker| memmem::find(comment, linker).is_some());
    if comment.is_empty() || is_other || elf.sections.iter().any(|section| STRANGE.contains(&section.name)) {
        return None;
    }
    build_id::is_right(elf, bytes)?;
    let tables = [b".debug_line_str".as_slice(), b".debug_str"].map(|name| elf.the_section(name));
    let [line_names_at, names_at] = [tables[0]?, tables[1]?];
    let is_elsewhere = |index| ![line_names_at, names_at].contains(&Some(index));
    if elf.sections.iter().enumerate().any(|(index, section)| is_elsewhere(index) && map.stands_in(section.data)) {
        return None;
    }
    let mut file = File { elf, bytes, data: vec![None; elf.sections.len()] };
    let units = Units::read(elf)?;
    let (line_names, names) = (elf.data(line_names_at), elf.data(names_at));
    if units.all.iter().any(|unit| !unit.is_gcc) && !splits_alike(&units, line_names, names, map) {
        return None;
    }
    if map.stands_in(line_names) {
        let all = |from: fn(&super::units::Unit) -> &Vec<Reference>| units.all.iter().flat_map(from).copied();
        let moved = line_strings(&units, line_names, map)?;
        file.exchange(b".debug_info", all(|unit| &unit.from_info), &moved)?;
        file.exchange(b".debug_line", all(|unit| &unit.from_lines), &moved)?;
        *file.data.get_mut(line_names_at?)? = Some(moved.bytes);
    }
    if map.stands_in(names) {
        if units.names_are_used {
            return None;
        }
        let moved = name_strings(&units.names, names, map)?;
        file.exchange(b".debug_str_offsets", units.names.iter().copied(), &moved)?;
        *file.data.get_mut(names_at?)? = Some(moved.bytes);
    }
    file.write()
}

/// Returns the file with the content of these sections replaced. All of them must lie after
/// everything that is loaded.
pub(super) fn write(elf: &Elf<'_>, bytes: &[u8], data: Vec<Option<Vec<u8>>>) -> Option<Vec<u8>> {
    build_id::is_right(elf, bytes)?;
    File { elf, bytes, data }.write()
}

/// A section of strings as it will be.
struct Moved {
    bytes: Vec<u8>,
    /// The old and the new offset of each string, sorted.
    offsets: Vec<(usize, usize)>,
}

impl Moved {
    /// Combines the old and the new section, which have the same strings in different orders.
    /// `places` contains pairs of the old and the new index of a string.
    fn new(here: &Merged, there: Merged, places: impl Iterator<Item = (usize, usize)>) -> Option<Moved> {
        let pair = |(at, at_there): (usize, usize)| Some((*here.offsets.get(at)?, *there.offsets.get(at_there)?));
        let mut offsets = places.map(pair).collect::<Option<Vec<_>>>()?;
        offsets.sort_unstable();
        offsets.dedup();
        // Each old offset belongs to one string.
        let is_one = offsets.windows(2).all(|two| two[0].0 != two[1].0);
        is_one.then_some(Moved { bytes: there.bytes, offsets })
    }

    fn of(&self, offset: usize) -> Option<usize> {
        let at = self.offsets.binary_search_by_key(&offset, |(here, _)| *here).ok()?;
        self.offsets.get(at).map(|(_, there)| *there)
    }
}

/// Returns the new `.debug_line_str`. For each object it contains the strings from gcc's hash
/// table, in the order of the slots, and then the strings of the line table.
fn line_strings(units: &Units, section: &[u8], map: &Map<'_>) -> Option<Moved> {
    let mut strings: Vec<&[u8]> = Vec::new();
    // For each unit: the index of its first string, and how many strings come from the hash table.
    let mut slotted = Vec::new();
    for unit in &units.all {
        let mut inserted: Vec<&[u8]> = Vec::new();
        for (_, offset) in &unit.from_info {
            let string = string_at(section, *offset)?;
            if !inserted.contains(&string) {
                inserted.push(string);
            }
        }
        if !unit.is_gcc && !inserted.is_empty() {
            return None;
        }
        slotted.push((strings.len(), inserted.len()));
        strings.extend(inserted);
        for (_, offset) in &unit.from_lines {
            strings.push(string_at(section, *offset)?);
        }
    }
    let replaced = all_replaced(&strings, map)?;
    let there: Vec<&[u8]> = replaced.iter().map(Cow::as_ref).collect();
    let (here_order, there_order) = (in_slots(&strings, &slotted)?, in_slots(&there, &slotted)?);
    let merged = |strings: &[&[u8]], order: &[usize]| -> Option<Merged> {
        Merged::of(&order.iter().map(|&at| strings.get(at).copied()).collect::<Option<Vec<_>>>()?)
    };
    let here = merged(&strings, &here_order)?;
    let there = merged(&there, &there_order)?;
    if here.bytes != section {
        return None;
    }
    let mut at_there = vec![0; there_order.len()];
    for (at, number) in there_order.iter().enumerate() {
        *at_there.get_mut(*number)? = at;
    }
    let places: Vec<_> =
        here_order.iter().enumerate().map(|(at, &number)| Some((at, *at_there.get(number)?))).collect::<Option<_>>()?;
    Moved::new(&here, there, places.into_iter())
}

/// Returns the indices of the strings, where those from a hash table are in the order of its slots.
fn in_slots(strings: &[&[u8]], slotted: &[(usize, usize)]) -> Option<Vec<usize>> {
    let mut all: Vec<usize> = (0..strings.len()).collect();
    for &(first, count) in slotted {
        let slots = order::of_slots(strings.get(first..first + count)?)?;
        for (place, slot) in all.get_mut(first..first + count)?.iter_mut().zip(slots) {
            *place = first + slot;
        }
    }
    Some(all)
}

/// Returns the new `.debug_str`. The order of the strings stays. It is refused if a string becomes
/// the end of another or stops being one, because then the order is not known.
fn name_strings(references: &[Reference], section: &[u8], map: &Map<'_>) -> Option<Moved> {
    let mut strings: Vec<&[u8]> =
        section.split_inclusive(|&c| c == 0).map(|whole| whole.strip_suffix(&[0])).collect::<Option<_>>()?;
    for (_, offset) in references {
        strings.push(string_at(section, *offset)?);
    }
    let replaced = all_replaced(&strings, map)?;
    let there: Vec<&[u8]> = replaced.iter().map(Cow::as_ref).collect();
    let (here, there) = (Merged::of(&strings)?, Merged::of(&there)?);
    if here.bytes != section || here.is_kept != there.is_kept {
        return None;
    }
    let count = strings.len();
    Moved::new(&here, there, (0..count).map(|at| (at, at)))
}

fn all_replaced<'s>(strings: &[&'s [u8]], map: &Map<'_>) -> Option<Vec<Cow<'s, [u8]>>> {
    let one = |string: &&'s [u8]| -> Option<Cow<'s, [u8]>> {
        Some(if map.stands_in(string) { Cow::Owned(replace(string, map)?.bytes) } else { Cow::Borrowed(*string) })
    };
    strings.iter().map(one).collect()
}

/// Returns true if clang splits these paths alike in both places: after the part that they share
/// with the working directory (see `shared`).
fn splits_alike(units: &Units, line_names: &[u8], names: &[u8], map: &Map<'_>) -> bool {
    let from_lines = units.all.iter().flat_map(|unit| &unit.from_lines);
    let lines = from_lines.map(|(_, offset)| string_at(line_names, *offset).unwrap_or_default());
    let others = units.names.iter().map(|(_, offset)| string_at(names, *offset).unwrap_or_default());
    shared::splits_alike(lines.chain(others.filter(|name| name.starts_with(b"/"))), map)
}

/// The file as it will be.
struct File<'f, 'a> {
    elf: &'f Elf<'a>,
    bytes: &'a [u8],
    /// The content of sections that change.
    data: Vec<Option<Vec<u8>>>,
}

impl File<'_, '_> {
    /// Writes the new offsets of strings where a section refers to them.
    fn exchange(&mut self, name: &[u8], references: impl Iterator<Item = Reference>, moved: &Moved) -> Option<()> {
        let mut references = references.peekable();
        if references.peek().is_none() {
            return Some(());
        }
        let index = self.elf.the_section(name)??;
        let mut data = self.elf.sections.get(index)?.data.to_vec();
        for (at, offset) in references {
            let there = u32::try_from(moved.of(offset)?).ok()?;
            data.get_mut(at..at.checked_add(4)?)?.copy_from_slice(&there.to_le_bytes());
        }
        *self.data.get_mut(index)? = Some(data);
        Some(())
    }

    /// Returns the new file. Everything before the first section that changes stays, and all that
    /// is loaded must be there.
    fn write(&self) -> Option<Vec<u8>> {
        let is_changed = |index: &usize| self.data.get(*index).is_some_and(Option::is_some);
        let offset = |index: usize| -> Option<u64> { Some(self.elf.sections.get(index)?.header.sh_offset(ENDIAN)) };
        let changed = (0..self.elf.sections.len()).filter(is_changed);
        let Some(start) = changed.filter_map(offset).min() else { return Some(self.bytes.to_vec()) };
        let ends_before = |end: Option<u64>| end.is_some_and(|end| end <= start);
        for segment in self.elf.header.program_headers(ENDIAN, self.bytes).ok()? {
            if !ends_before(segment.p_offset(ENDIAN).checked_add(segment.p_filesz(ENDIAN))) {
                return None;
            }
        }
        let mut moving = Vec::new();
        for (index, section) in self.elf.sections.iter().enumerate() {
            let header = section.header;
            let (at, kind) = (header.sh_offset(ENDIAN), header.sh_type(ENDIAN));
            let is_before = ends_before(at.checked_add(u64::try_from(section.data.len()).ok()?));
            if kind == elf::SHT_NULL || is_before && !is_changed(&index) && at < start {
                continue;
            }
            let is_loaded = header.sh_flags(ENDIAN) & u64::from(elf::SHF_ALLOC) != 0;
            if at < start || is_loaded || kind == elf::SHT_NOBITS || kind == elf::SHT_RELA {
                return None;
            }
            moving.push((at, index));
        }
        moving.sort_unstable();
        let start = usize::try_from(start).ok()?;
        let mut there =
            layout::after(self.elf, self.bytes.get(..start)?, moving.iter().map(|(_, index)| *index), &self.data)?;
        build_id::renew(&mut there)?;
        Some(there)
    }
}
