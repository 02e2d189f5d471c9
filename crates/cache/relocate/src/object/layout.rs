//! The layout of sections in a file: one after the other in the old order, each at its alignment,
//! the section table last. GNU as and LLVM both lay out files so.
//!
//! The layout of the old file is not checked here. The caller relocates there and back again, which
//! shows a difference.
//!
//! Unaware of: what is in a section.

use object::elf;
use object::pod::bytes_of;
use object::read::elf::SectionHeader as _;

use super::elf::{ENDIAN, Elf};

/// The alignment of the section table, in bytes.
const TABLE_ALIGN: usize = 8;
/// The limit for all padding together, in bytes.
const PADDING_MAX: usize = 256 << 10;

/// Returns the file with the content of some sections replaced.
pub(super) fn write(elf: &Elf<'_>, data: &[Option<Vec<u8>>]) -> Option<Vec<u8>> {
    let bytes_of_section =
        |index: usize| -> Option<&[u8]> { Some(data.get(index)?.as_deref().unwrap_or(elf.sections.get(index)?.data)) };
    let mut order: Vec<usize> = (0..elf.sections.len()).filter(|&index| takes_part(elf, index)).collect();
    // If sections share an offset, only the last can have content.
    order.sort_by_key(|&index| (offset(elf, index), !bytes_of_section(index).unwrap_or_default().is_empty(), index));

    after(elf, bytes_of(elf.header), order.into_iter(), data)
}

/// Returns the file that begins with `start` and continues with the sections of `order`. Other
/// sections keep their offsets.
pub(super) fn after(
    elf: &Elf<'_>,
    start: &[u8],
    order: impl Iterator<Item = usize>,
    data: &[Option<Vec<u8>>],
) -> Option<Vec<u8>> {
    let mut out = start.to_vec();
    let mut padding = PADDING_MAX;
    let mut headers: Vec<_> = elf.sections.iter().map(|section| *section.header).collect();
    for index in order {
        let header = headers.get_mut(index)?;
        align(&mut out, usize::try_from(header.sh_addralign(ENDIAN)).ok()?, &mut padding)?;
        let bytes = data.get(index)?.as_deref().unwrap_or(elf.sections.get(index)?.data);
        header.sh_offset.set(ENDIAN, u64::try_from(out.len()).ok()?);
        if header.sh_type(ENDIAN) != elf::SHT_NOBITS {
            header.sh_size.set(ENDIAN, u64::try_from(bytes.len()).ok()?);
        }
        out.extend_from_slice(bytes);
    }
    align(&mut out, TABLE_ALIGN, &mut padding)?;
    let mut header = *elf.header;
    header.e_shoff.set(ENDIAN, u64::try_from(out.len()).ok()?);
    let header = bytes_of(&header);
    out.get_mut(..header.len())?.copy_from_slice(header);
    for header in &headers {
        out.extend_from_slice(bytes_of(header));
    }
    Some(out)
}

fn takes_part(elf: &Elf<'_>, index: usize) -> bool {
    elf.sections.get(index).is_some_and(|section| section.header.sh_type(ENDIAN) != elf::SHT_NULL)
}

fn offset(elf: &Elf<'_>, index: usize) -> u64 {
    elf.sections.get(index).map_or(0, |section| section.header.sh_offset(ENDIAN))
}

fn align(out: &mut Vec<u8>, to: usize, padding: &mut usize) -> Option<()> {
    let length = out.len().checked_next_multiple_of(to.max(1))?;
    *padding = padding.checked_sub(length - out.len())?;
    out.resize(length, 0);
    Some(())
}
