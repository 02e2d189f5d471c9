//! The line table before DWARF 5, which contains its paths. Later line tables refer to
//! `.debug_line_str` and do not change.
//!
//! Unaware of: the line program after the tables, except where it begins.

use gimli::{AttributeValue, DebugLine, DebugLineOffset, EndianSlice, Format, LittleEndian};

use crate::roots::Map;
use crate::text::replace;

/// The offsets of the two length fields. Each is 4 bytes long and counts the bytes after it.
const UNIT_LENGTH_AT: usize = 0;
const HEADER_LENGTH_AT: usize = 6;
const LENGTH_SIZE: usize = 4;

type Reader<'a> = EndianSlice<'a, LittleEndian>;

/// A `.debug_line` section as it will be.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// The new content, if it changes.
    pub(super) bytes: Option<Vec<u8>>,
    /// True if the section contains paths.
    pub(super) has_names: bool,
    /// The old paths in its tables.
    pub(super) names: Vec<Vec<u8>>,
    /// The old offset of the line program.
    start: usize,
    /// The new offset of the line program.
    start_there: usize,
}

impl Line {
    /// Reads a section and replaces its roots. Returns `None` if the section is not what a compiler
    /// writes, or contains several tables.
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
        if map.stands_in(program) {
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

    /// Returns the new offset for this old offset, or `None` inside the tables.
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

/// Writes the distance from the end of the length field to `end`.
fn set_length(bytes: &mut [u8], at: usize, end: usize) -> Option<()> {
    let length = u32::try_from(end.checked_sub(at + LENGTH_SIZE)?).ok()?;
    bytes.get_mut(at..at + LENGTH_SIZE)?.copy_from_slice(&length.to_le_bytes());
    Some(())
}
