//! The units of debug information in a linked file: which compiler wrote each, and where each
//! refers to strings that are paths.
//!
//! Unaware of: how the strings change.

use gimli::{
    AttributeValue, DebugAbbrev, DebugAbbrevOffset, DebugInfo, DebugLine, DebugLineOffset, DwForm, EndianSlice, Format,
    LittleEndian, Reader as _, UnitHeader, UnitType, constants,
};
use memchr::memmem;

use super::elf::Elf;

type Reader<'a> = EndianSlice<'a, LittleEndian>;

/// The offset of a reference in its section, and the offset that it contains.
pub(super) type Reference = (usize, usize);

/// The size of the fields before the string offsets of a unit, in bytes: length, version and
/// padding.
const OFFSETS_HEADER: usize = 8;
const OFFSET_SIZE: usize = 4;

/// One unit.
pub(super) struct Unit {
    pub(super) is_gcc: bool,
    /// References to `.debug_line_str` in `.debug_info`.
    pub(super) from_info: Vec<Reference>,
    /// References to `.debug_line_str` in `.debug_line`.
    pub(super) from_lines: Vec<Reference>,
}

/// All units of a file.
pub(super) struct Units {
    pub(super) all: Vec<Unit>,
    /// References to `.debug_str` in `.debug_str_offsets`.
    pub(super) names: Vec<Reference>,
    /// True if something else refers to `.debug_str`.
    pub(super) names_are_used: bool,
}

/// The sections that are read.
struct Sections<'a> {
    info: &'a [u8],
    abbreviations: &'a [u8],
    lines: &'a [u8],
    names: &'a [u8],
    offsets: &'a [u8],
}

impl Units {
    /// Reads the units. Returns `None` if a unit is split, is not DWARF 5, or was not written by
    /// gcc or clang. Also returns `None` if the line tables do not match the units one to one.
    pub(super) fn read(elf: &Elf<'_>) -> Option<Units> {
        let data = |name: &[u8]| Some(elf.data(elf.the_section(name)?));
        let sections = Sections {
            info: data(b".debug_info")?,
            abbreviations: data(b".debug_abbrev")?,
            lines: data(b".debug_line")?,
            names: data(b".debug_str")?,
            offsets: data(b".debug_str_offsets")?,
        };
        let whole = DebugInfo::new(sections.info, LittleEndian);
        let mut headers = whole.units();
        let mut units = Units { all: Vec::new(), names: sections.name_offsets()?, names_are_used: false };
        let mut lines_end = 0;
        while let Some(header) = headers.next().ok()? {
            let found = sections.unit(&header)?;
            units.names_are_used |= found.uses_names;
            // The line tables follow each other in the order of the units.
            if found.lines_at != lines_end {
                return None;
            }
            let (from_lines, end) = sections.table_of_lines(found.lines_at)?;
            lines_end = end;
            units.all.push(Unit { is_gcc: found.is_gcc, from_info: found.references, from_lines });
        }
        units.names_are_used |= elf.sections.iter().any(|section| USES_NAMES.contains(&section.name));
        (lines_end == sections.lines.len()).then_some(units)
    }
}

const USES_NAMES: [&[u8]; 3] = [b".debug_macro", b".debug_names", b".debug_pubnames"];

/// The content of the first entry of a unit.
struct FirstEntry {
    is_gcc: bool,
    references: Vec<Reference>,
    lines_at: usize,
    uses_names: bool,
}

impl<'a> Sections<'a> {
    fn unit(&self, header: &UnitHeader<Reader<'a>>) -> Option<FirstEntry> {
        if header.version() != 5 || header.type_() != UnitType::Compilation || header.format() != Format::Dwarf32 {
            return None;
        }
        let start = header.offset().as_debug_info_offset()?.0;
        let abbreviations = DebugAbbrev::new(self.abbreviations, LittleEndian);
        let abbreviations = header.abbreviations(&abbreviations).ok()?;
        let mut entries = header.entries_raw(&abbreviations, None).ok()?;
        let first = entries.read_abbreviation().ok()??;
        let forms = self.forms(header.debug_abbrev_offset(), first.code())?;
        let (mut references, mut lines_at, mut producer, mut base) = (Vec::new(), None, None, None);
        for specification in first.attributes() {
            let at = start.checked_add(entries.next_offset().0)?;
            let attribute = entries.read_attribute(*specification).ok()?;
            match (attribute.name(), attribute.raw_value()) {
                (_, AttributeValue::DebugLineStrRef(offset)) => references.push((at, offset.0)),
                (constants::DW_AT_stmt_list, value) => {
                    lines_at = match value {
                        AttributeValue::SecOffset(offset) => Some(offset),
                        _ => return None,
                    };
                }
                (constants::DW_AT_str_offsets_base, AttributeValue::SecOffset(offset)) => base = Some(offset),
                (constants::DW_AT_producer, value) => producer = Some(value),
                _ => {}
            }
        }
        let writer = match producer? {
            AttributeValue::DebugStrRef(offset) => string_at(self.names, offset.0)?,
            AttributeValue::DebugStrOffsetsIndex(index) => {
                let at = index.0.checked_mul(OFFSET_SIZE)?.checked_add(base?)?;
                string_at(self.names, offset_at(self.offsets, at)?)?
            }
            _ => return None,
        };
        let is_gcc = writer.starts_with(b"GNU ") && !writer.starts_with(b"GNU AS");
        let is_clang = memmem::find(writer, b"clang version").is_some();
        if is_gcc == is_clang || forms.line_names_below {
            return None;
        }
        Some(FirstEntry { is_gcc, references, lines_at: lines_at?, uses_names: forms.names })
    }

    /// Returns the forms that the entries of a unit use. It reads the unit's abbreviations, which
    /// all entries use.
    fn forms(&self, offset: DebugAbbrevOffset, first: u64) -> Option<Forms> {
        let mut forms = Forms::default();
        let mut text = EndianSlice::new(self.abbreviations.get(offset.0..)?, LittleEndian);
        loop {
            let code = text.read_uleb128().ok()?;
            if code == 0 {
                return Some(forms);
            }
            text.read_uleb128().ok()?;
            text.read_u8().ok()?;
            loop {
                let (name, form) = (text.read_uleb128().ok()?, DwForm(text.read_uleb128_u16().ok()?));
                if form == constants::DW_FORM_implicit_const {
                    text.read_sleb128().ok()?;
                }
                if name == 0 && form.0 == 0 {
                    break;
                }
                forms.names |= form == constants::DW_FORM_strp;
                forms.line_names_below |= form == constants::DW_FORM_line_strp && code != first;
                if form == constants::DW_FORM_indirect {
                    return None;
                }
            }
        }
    }

    /// Returns the references of a line table in its order, and the offset where the table ends.
    fn table_of_lines(&self, start: usize) -> Option<(Vec<Reference>, usize)> {
        let whole = DebugLine::new(self.lines, LittleEndian);
        let program = whole.program(DebugLineOffset(start), 8, None, None).ok()?;
        let header = program.header();
        if header.version() != 5 || header.format() != Format::Dwarf32 {
            return None;
        }
        let base = EndianSlice::new(self.lines, LittleEndian);
        let mut text = *header.standard_opcode_lengths();
        let names_at = text.offset_from(base).checked_add(text.len())?;
        text = EndianSlice::new(self.lines.get(names_at..)?, LittleEndian);
        let mut references = Vec::new();
        // The table of directories, then the table of files.
        for _ in 0..2 {
            let count = text.read_u8().ok()?;
            let format = (0..count).map(|_| {
                text.read_uleb128().ok()?;
                Some(DwForm(text.read_uleb128_u16().ok()?))
            });
            let format = format.collect::<Option<Vec<_>>>()?;
            for _ in 0..text.read_uleb128().ok()? {
                for form in &format {
                    let at = text.offset_from(base);
                    match *form {
                        constants::DW_FORM_line_strp => {
                            references.push((at, usize::try_from(text.read_u32().ok()?).ok()?));
                        }
                        constants::DW_FORM_udata => text.skip_leb128().ok()?,
                        constants::DW_FORM_data1 => text.skip(1).ok()?,
                        constants::DW_FORM_data2 => text.skip(2).ok()?,
                        constants::DW_FORM_data16 => text.skip(16).ok()?,
                        _ => return None,
                    }
                }
            }
        }
        if text.offset_from(base) != header.raw_program_buf().offset_from(base) {
            return None;
        }
        Some((references, start.checked_add(header.unit_length())?.checked_add(OFFSET_SIZE)?))
    }

    /// Returns all references in `.debug_str_offsets`.
    fn name_offsets(&self) -> Option<Vec<Reference>> {
        let (mut found, mut start) = (Vec::new(), 0);
        while start < self.offsets.len() {
            let end = offset_at(self.offsets, start)?.checked_add(start + OFFSET_SIZE)?;
            if end > self.offsets.len() || !(end - start).is_multiple_of(OFFSET_SIZE) || end < start + OFFSETS_HEADER {
                return None;
            }
            for at in (start + OFFSETS_HEADER..end).step_by(OFFSET_SIZE) {
                found.push((at, offset_at(self.offsets, at)?));
            }
            start = end;
        }
        Some(found)
    }
}

/// How the entries of a unit refer to strings.
#[derive(Default)]
struct Forms {
    /// By an offset into `.debug_str`.
    names: bool,
    /// By an offset into `.debug_line_str`, from an entry other than the first.
    line_names_below: bool,
}

fn offset_at(section: &[u8], at: usize) -> Option<usize> {
    let bytes = section.get(at..at.checked_add(OFFSET_SIZE)?)?;
    usize::try_from(u32::from_le_bytes(bytes.try_into().ok()?)).ok()
}

/// Returns the string that begins at this offset.
pub(super) fn string_at(section: &[u8], offset: usize) -> Option<&[u8]> {
    let rest = section.get(offset..)?;
    rest.get(..memchr::memchr(0, rest)?)
}
