//! The forms in which a root may stand in bytes of any kind.
//!
//! Unaware of: whether it could be replaced there.

use memchr::memmem;
use object::read::elf::{FileHeader, SectionHeader as _};
use object::{Endianness, elf};

use crate::archive::is_archive;
use crate::depfile;
use crate::roots::{is_plain, is_plain_byte};

/// Whether any of `roots` stands in `bytes`: at any position, also as the beginning of a longer name, also as
/// characters of two or four bytes, also quoted for make. Where a root has characters that are quoted in many ways, its
/// longest part without them is searched. What is compressed is not looked into: see [`hides_its_text`].
///
/// clang divides names in debug information at what they share with the working directory. So an object with such
/// information holds a root, too, when a directory above that root stands in it.
pub fn holds_a_root(bytes: &[u8], roots: &[&[u8]]) -> bool {
    roots.iter().any(|root| holds(bytes, root)) || has_lines(bytes) && roots.iter().any(|root| holds_above(bytes, root))
}

/// Whether it is an object, a program or a library of whatever class, or an archive of such, with a section of lines.
fn has_lines(bytes: &[u8]) -> bool {
    const KIND_AT: usize = 16;
    const KINDS: [u16; 3] = [elf::ET_REL, elf::ET_EXEC, elf::ET_DYN];
    let kind = bytes.get(KIND_AT..KIND_AT + 2);
    let is_kind = || kind.is_some_and(|kind| KINDS.contains(&kind.iter().copied().map(u16::from).sum::<u16>()));
    (bytes.starts_with(&elf::ELFMAG) && is_kind() || is_archive(bytes)) && memmem::find(bytes, b".debug_line").is_some()
}

/// Whether a directory above the root stands in it as a whole string.
fn holds_above(bytes: &[u8], root: &[u8]) -> bool {
    let ends = root.iter().enumerate().skip(1).filter(|(_, c)| **c == b'/').map(|(at, _)| at);
    ends.filter_map(|end| root.get(..end)).any(|above| memmem::find(bytes, &[b"\0", above, b"\0"].concat()).is_some())
}

fn holds(bytes: &[u8], root: &[u8]) -> bool {
    if root.is_empty() || memmem::find(bytes, root).is_some() || holds_wide(bytes, root) {
        return true;
    }
    if is_plain(root) {
        return false;
    }
    let part = root.split(|&c| !is_plain_byte(c)).max_by_key(|part| part.len()).unwrap_or_default();
    memmem::find(bytes, &depfile::quoted(root)).is_some() || part.len() < 2 || memmem::find(bytes, part).is_some()
}

/// As `L"…"`, `u"…"` and `U"…"` have it.
pub(crate) fn holds_wide(bytes: &[u8], root: &[u8]) -> bool {
    let wide = |size: usize| -> Vec<u8> {
        root.iter().flat_map(|&c| std::iter::once(c).chain(std::iter::repeat_n(0, size - 1))).collect()
    };
    memmem::find(bytes, &wide(2)).is_some() || memmem::find(bytes, &wide(4)).is_some()
}

/// Whether bytes begin as something compressed does, or are an ELF file of which parts are compressed or kept for a
/// later compile, so that nobody sees what stands in them.
pub fn hides_its_text(bytes: &[u8]) -> bool {
    const BEGINNINGS: [&[u8]; 6] =
        [b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zXZ\0", b"PK\x03\x04", b"BC\xc0\xde"];
    BEGINNINGS.iter().any(|beginning| bytes.starts_with(beginning))
        || hides_sections::<elf::FileHeader64<Endianness>>(bytes)
        || hides_sections::<elf::FileHeader32<Endianness>>(bytes)
}

/// For what is no sound ELF file of this class, `false`.
fn hides_sections<H: FileHeader<Endian = Endianness>>(bytes: &[u8]) -> bool {
    let sections = || {
        let header = H::parse(bytes).ok()?;
        let endian = header.endian().ok()?;
        Some((endian, header.sections(endian, bytes).ok()?))
    };
    sections().is_some_and(|(endian, table)| {
        table.iter().any(|section| {
            let flags: u64 = section.sh_flags(endian).into();
            hides_a_section(table.section_name(endian, section).unwrap_or_default(), flags)
        })
    })
}

/// Whether a section of this name and with these flags is compressed, or not yet compiled.
pub(crate) fn hides_a_section(name: &[u8], flags: u64) -> bool {
    const BEGINNINGS: [&[u8]; 6] = [b".gnu.lto_", b".gnu.debuglto_", b".llvmbc", b".llvmcmd", b".llvm.lto", b".zdebug"];
    flags & u64::from(elf::SHF_COMPRESSED) != 0 || BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_are_found_in_every_form() {
        let check = |bytes: &[u8], root: &str, expect: bool| {
            assert_eq!(holds_a_root(bytes, &[root.as_bytes()]), expect, "{} {root}", bytes.escape_ascii());
        };
        check(b"x/w/ab", "/w/a", true);
        check(b"/w/b", "/w/a", false);
        check(b"/\0w\0/\0a\0", "/w/a", true);
        check(b"/\0\0\0w\0\0\0", "/w", true);
        check(b"/my\\ place", "/my place", true);
        check(b"/my\\040place", "/my place", true);
        check(b"/mine", "/my place", false);
        check(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x01\0>\0/w\0.debug_line\0", "/w/a", true);
        check(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0>\0/w\0.debug_line\0", "/w/a", true);
        check(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0>\0/w\0.text\0", "/w/a", false);
        check(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x04\0>\0/w\0.debug_line\0", "/w/a", false);
    }
}
