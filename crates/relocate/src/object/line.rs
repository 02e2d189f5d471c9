//! The line table before DWARF 5, which has its names in itself. Later ones refer to `.debug_line_str` and stay.
//!
//! Unaware of: the program that follows the tables, but for where it begins.

use gimli::{AttributeValue, DebugLine, DebugLineOffset, EndianSlice, Format, LittleEndian};
use memchr::memmem;

use crate::roots::Map;
use crate::text::replace;

/// Where the length of what follows stands, which begins after it: 4 bytes each.
const UNIT_LENGTH_AT: usize = 0;
const HEADER_LENGTH_AT: usize = 6;
const LENGTH_SIZE: usize = 4;

type Reader<'a> = EndianSlice<'a, LittleEndian>;

/// A section of lines as it will be.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// The whole section where it changes.
    pub(super) bytes: Option<Vec<u8>>,
    /// Whether it has names in itself.
    pub(super) has_names: bool,
    /// The names in its tables.
    pub(super) names: Vec<Vec<u8>>,
    /// Where the program began.
    start: usize,
    /// Where it will begin.
    start_there: usize,
}

impl Line {
    /// `None` for what no compiler writes, and for several tables in one section.
    pub(super) fn read(section: &[u8], map: &Map<'_>) -> Option<Line> {
        if section.is_empty() {
            return Some(Line::default());
        }
        let whole = DebugLine::new(section, LittleEndian);
        let program = whole.program(DebugLineOffset(0), 8, None, None).ok()?;
        let header = program.header();
        if header.format() != Format::Dwarf32 || header.unit_length().checked_add(LENGTH_SIZE)? != section.len() {
            return None;
        }
        if header.version() >= 5 {
            return Some(Line::default());
        }
        let base = EndianSlice::new(section, LittleEndian);
        let start = header.raw_program_buf().offset_from(base);
        let files = header.file_names().iter().map(|file| file.path_name());
        let names =
            header.include_directories().iter().cloned().chain(files).map(string).collect::<Option<Vec<_>>>()?;
        let program = section.get(start..)?;
        if map.pairs().iter().any(|pair| memmem::find(program, pair.from).is_some()) {
            return None;
        }
        let mut line = Line { has_names: true, start, ..Line::default() };
        let (mut bytes, mut kept) = (Vec::with_capacity(section.len()), 0);
        for name in names {
            let at = name.offset_from(base);
            bytes.extend_from_slice(section.get(kept..at)?);
            bytes.extend_from_slice(&replace(name.slice(), map)?.bytes);
            kept = at + name.slice().len();
            line.names.push(name.slice().to_vec());
        }
        bytes.extend_from_slice(section.get(kept..start)?);
        line.start_there = bytes.len();
        set_length(&mut bytes, HEADER_LENGTH_AT, line.start_there)?;
        bytes.extend_from_slice(program);
        let length = bytes.len();
        set_length(&mut bytes, UNIT_LENGTH_AT, length)?;
        line.bytes = (bytes != section).then_some(bytes);
        Some(line)
    }

    /// Where what stood at this offset will stand. `None` inside of the tables.
    pub(super) fn moved(&self, offset: u64) -> Option<u64> {
        let start = u64::try_from(self.start).ok()?;
        match offset {
            _ if self.bytes.is_none() => Some(offset),
            0 => Some(0),
            _ => offset.checked_sub(start)?.checked_add(u64::try_from(self.start_there).ok()?),
        }
    }
}

fn string(value: AttributeValue<Reader<'_>>) -> Option<Reader<'_>> {
    match value {
        AttributeValue::String(name) => Some(name),
        _ => None,
    }
}

/// Writes how far it is from behind the length to `end`.
fn set_length(bytes: &mut [u8], at: usize, end: usize) -> Option<()> {
    let length = u32::try_from(end.checked_sub(at + LENGTH_SIZE)?).ok()?;
    bytes.get_mut(at..at + LENGTH_SIZE)?.copy_from_slice(&length.to_le_bytes());
    Some(())
}
