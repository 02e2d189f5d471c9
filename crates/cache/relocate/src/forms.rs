//! The forms in which bytes of any kind may contain a root.
//!
//! Unaware of: whether the root could be replaced there.

use std::io::{Read, Seek};

use memchr::memmem;
use object::archive::THIN_MAGIC;
use object::read::elf::{Dyn as _, FileHeader, SectionHeader as _};
use object::{Endianness, ReadCache, ReadRef, elf};

use crate::depfile;
use crate::magic::is_archive;
use crate::roots::{holds_wide, is_plain, is_plain_byte};

/// Returns true if `bytes` contain any of the `roots`, in one of these forms:
/// - as it is, at any position, even as the beginning of a longer path,
/// - as characters of two or four bytes,
/// - quoted for make. If a root has characters that programs quote in different ways, its longest
///   part without them is searched instead.
///
/// Compressed content is not searched: see [`hides_its_text`].
///
/// clang splits paths in debug information after the part that they share with the working
/// directory. So an object with debug information also contains a root if it contains a directory
/// above that root.
pub fn holds_a_root(bytes: &[u8], roots: &[&[u8]]) -> bool {
    roots.iter().any(|root| holds(bytes, root))
        || has_lines(bytes) && roots.iter().any(|root| holds_above(bytes, root, |_| true))
}

/// Returns true if `bytes` contain any of the `roots` in the forms of [`holds_a_root`], with one
/// exception: a directory above a root counts only if the rest of the root's path is there as well. For
/// example, of the root `/w/target`, `/w` counts together with `target/debug/x.rs`.
///
/// This is for tools that make a directory above a root in no other way than by splitting its path.
pub fn holds_a_root_in_parts(bytes: &[u8], roots: &[&[u8]]) -> bool {
    let counts = |rest: &[u8]| begins_a_path(bytes, rest);
    roots.iter().any(|root| holds(bytes, root))
        || has_lines(bytes) && roots.iter().any(|root| holds_above(bytes, root, counts))
}

/// Returns true if a relative path may begin with this directory.
fn begins_a_path(bytes: &[u8], directory: &[u8]) -> bool {
    let start = [directory, b"/"].concat();
    memmem::find_iter(bytes, &start).any(|at| at == 0 || bytes[at - 1] != b'/')
}

/// Returns true for an object, a program, a library or an archive of objects that has a section
/// `.debug_line`.
fn has_lines(bytes: &[u8]) -> bool {
    const KIND_AT: usize = 16;
    const KINDS: [u16; 3] = [elf::ET_REL, elf::ET_EXEC, elf::ET_DYN];
    let kind = bytes.get(KIND_AT..KIND_AT + 2);
    let is_kind = || kind.is_some_and(|kind| KINDS.contains(&kind.iter().copied().map(u16::from).sum::<u16>()));
    (bytes.starts_with(&elf::ELFMAG) && is_kind() || is_archive(bytes)) && memmem::find(bytes, b".debug_line").is_some()
}

/// Returns true if a directory above the root occurs as a whole string, and `counts` returns true for
/// the rest of the root's path.
fn holds_above(bytes: &[u8], root: &[u8], counts: impl Fn(&[u8]) -> bool) -> bool {
    let ends = root.iter().enumerate().skip(1).filter(|(_, c)| **c == b'/').map(|(at, _)| at);
    ends.map(|end| (&root[..end], &root[end + 1..]))
        .any(|(above, rest)| memmem::find(bytes, &[b"\0", above, b"\0"].concat()).is_some() && counts(rest))
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

/// Returns true if a linker that reads this file may look for another one below one of the `roots`:
/// - It is a shared library that names such a directory (`DT_RUNPATH`), or a library by such a path
///   (`DT_NEEDED`).
/// - It is a thin archive that names a member there.
///
/// Of a large library, only the parts that tell this are read.
pub fn leads_a_linker(file: impl Read + Seek, roots: &[&[u8]]) -> bool {
    let file = &ReadCache::new(file);
    if file.read_bytes_at(0, THIN_MAGIC.len() as u64) == Ok(&THIN_MAGIC) {
        let bytes = file.len().and_then(|size| file.read_bytes_at(0, size));
        return bytes.map_or(true, |bytes| holds_a_root(bytes, roots));
    }
    let named = |text: &[u8]| roots.iter().any(|root| holds(text, root));
    libraries_named::<elf::FileHeader64<Endianness>, _>(file)
        .or_else(|| libraries_named::<elf::FileHeader32<Endianness>, _>(file))
        .is_some_and(|texts| texts.into_iter().any(named))
}

/// Returns the libraries that a shared library needs, and the directories in which they are. Returns
/// `None` if the file is no shared library of this class.
fn libraries_named<'d, H: FileHeader<Endian = Endianness>, R: ReadRef<'d>>(file: R) -> Option<Vec<&'d [u8]>> {
    const TAGS: [u32; 3] = [elf::DT_NEEDED, elf::DT_RPATH, elf::DT_RUNPATH];
    let header = H::parse(file).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, file).ok()?;
    let (entries, index) = sections.dynamic(endian, file).ok()??;
    let strings = sections.strings(endian, file, index).ok()?;
    let named = entries.iter().filter(|entry| entry.tag32(endian).is_some_and(|tag| TAGS.contains(&tag)));
    Some(named.filter_map(|entry| strings.get(entry.val32(endian)?).ok()).collect())
}

/// Returns true if text in these bytes cannot be found by searching. They begin like compressed
/// data, or are an ELF file with sections that are compressed or contain code for a later compile
/// (LTO).
pub fn hides_its_text(bytes: &[u8]) -> bool {
    const BEGINNINGS: [&[u8]; 6] =
        [b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zXZ\0", b"PK\x03\x04", b"BC\xc0\xde"];
    BEGINNINGS.iter().any(|beginning| bytes.starts_with(beginning))
        || hides_sections::<elf::FileHeader64<Endianness>>(bytes)
        || hides_sections::<elf::FileHeader32<Endianness>>(bytes)
}

/// Returns true if these bytes begin like a file that is compressed as a whole, by gzip, zstd, bzip2
/// or xz. Words are in such bytes only by chance. A zip file can also store its members as they are.
pub fn is_compressed(bytes: &[u8]) -> bool {
    const BEGINNINGS: [&[u8]; 3] = [b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ\0"];
    // A text may begin with the letters of bzip2. After them come a level and the first block.
    let is_bzip2 = || matches!(bytes, [b'B', b'Z', b'h', b'1'..=b'9', b'1', b'A', b'Y', b'&', b'S', b'Y', ..]);
    BEGINNINGS.iter().any(|beginning| bytes.starts_with(beginning)) || is_bzip2()
}

/// Returns true if an ELF file of this class has such sections. Returns false for other bytes.
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

/// Returns true if a section with this name and these flags is compressed, or contains code for a
/// later compile.
pub(crate) fn hides_a_section(name: &[u8], flags: u64) -> bool {
    const BEGINNINGS: [&[u8]; 6] = [b".gnu.lto_", b".gnu.debuglto_", b".llvmbc", b".llvmcmd", b".llvm.lto", b".zdebug"];
    flags & u64::from(elf::SHF_COMPRESSED) != 0 || BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_compressed() {
        for bytes in [&b"\x1f\x8b\x08\0"[..], b"BZh91AY&SY\0", b"\xfd7zXZ\0\0", b"\x28\xb5\x2f\xfd\0"] {
            assert!(is_compressed(bytes) && hides_its_text(bytes), "{bytes:?}");
        }
        for bytes in [&b"BZh=$$\n"[..], b"BZh91\n", b"PK\x03\x04", b"\x1f\x8b\n", b"#!/bin/sh\n\x1f\x8b\x08", b""] {
            assert!(!is_compressed(bytes), "{bytes:?}");
        }
    }

    #[test]
    fn a_root_in_two_parts() {
        let check = |text: &str, expect: bool| {
            let bytes = [b"!<arch>\n.debug_line\0", text.as_bytes()].concat();
            let root: &[&[u8]] = &[b"/w/s/target"];
            assert_eq!(holds_a_root_in_parts(&bytes, root), expect, "{text:?}");
            assert!(holds_a_root(&bytes, root), "{text:?}");
        };
        check("\0/w/s\0src/lib.rs\0", false);
        check("/w/s\0target_feature\0a/target/x\0", false);
        check("/w/s\0target/debug/x.rs\0", true);
        check("/w\0s/target/debug/x.rs\0", true);
        check("/w/s/target/debug\0", true);
    }

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
