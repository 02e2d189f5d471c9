//! The units of debug information of a linked file: who wrote each, and where it refers to strings that are names of
//! files.
//!
//! Unaware of: what becomes of the strings.

use gimli::{
    AttributeValue, DebugAbbrev, DebugAbbrevOffset, DebugInfo, DebugLine, DebugLineOffset, DwForm, EndianSlice, Format,
    LittleEndian, Reader as _, UnitHeader, UnitType, constants,
};
use memchr::memmem;

use super::elf::Elf;

type Reader<'a> = EndianSlice<'a, LittleEndian>;

/// Where a reference stands in its section, and which offset it holds.
pub(super) type Reference = (usize, usize);

/// The length, the version and what fills up, before the offsets of a unit's strings.
const OFFSETS_HEADER: usize = 8;
const OFFSET_SIZE: usize = 4;

/// One unit.
pub(super) struct Unit {
    pub(super) is_gcc: bool,
    /// To `.debug_line_str`, from `.debug_info`.
    pub(super) from_info: Vec<Reference>,
    /// To `.debug_line_str`, from `.debug_line`.
    pub(super) from_lines: Vec<Reference>,
}

/// All units of a file.
pub(super) struct Units {
    pub(super) all: Vec<Unit>,
    /// To `.debug_str`, from `.debug_str_offsets`.
    pub(super) names: Vec<Reference>,
    /// Something refers to `.debug_str` in another way.
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
    /// `None` where there is a unit of another version than 5, of another kind than a whole one, or of another writer
    /// than gcc and clang; and where a table of lines is not that of one unit.
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
            // Tables of lines stand one after the other as the units do.
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

/// What the first entry of a unit says.
struct Found {
    is_gcc: bool,
    references: Vec<Reference>,
    lines_at: usize,
    uses_names: bool,
}

impl<'a> Sections<'a> {
    fn unit(&self, header: &UnitHeader<Reader<'a>>) -> Option<Found> {
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
        Some(Found { is_gcc, references, lines_at: lines_at?, uses_names: forms.names })
    }

    /// Which forms the entries of a unit have: looked for in its abbreviations, which all of them use.
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

    /// What a table of lines refers to, in its order, and where it ends.
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
        // Directories, then files.
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

    /// All that `.debug_str_offsets` refers to.
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

/// How strings are referred to in a unit.
#[derive(Default)]
struct Forms {
    /// By an offset in `.debug_str`.
    names: bool,
    /// By one in `.debug_line_str`, by another entry than the first.
    line_names_below: bool,
}

fn offset_at(section: &[u8], at: usize) -> Option<usize> {
    let bytes = section.get(at..at.checked_add(OFFSET_SIZE)?)?;
    usize::try_from(u32::from_le_bytes(bytes.try_into().ok()?)).ok()
}

/// The string that begins at this offset.
pub(super) fn string_at(section: &[u8], offset: usize) -> Option<&[u8]> {
    let rest = section.get(offset..)?;
    rest.get(..memchr::memchr(0, rest)?)
}
