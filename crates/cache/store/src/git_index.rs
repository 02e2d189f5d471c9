//! The entries of git's index. The index also has what `stat` said of each tracked file, which is
//! different in each checkout and after each `touch`, and does not show in what git prints.
//!
//! The layout is that of `gitformat-index`, versions 2 and 3, with names of 20 bytes:
//!
//! ```text
//! index  = "DIRC" version:u32 count:u32 entry* extension* checksum:20
//! entry  = stat:40 (of which mode:u32 at 24) name:20 flags:u16 [more_flags:u16] path NUL+
//! ```
//!
//! Unaware of: which program reads the index.

use larder_model::{Digest, PLACEHOLDER, contains};

const HEADER_BYTES: usize = 12;
const STAT_BYTES: usize = 40;
const MODE_AT: usize = 24;
const NAME_BYTES: usize = 20;
const CHECKSUM_BYTES: usize = 20;
/// In `flags`: more flags follow.
const EXTENDED: u16 = 0x4000;

/// Returns true for the path of an index: of a repository, or of a further work tree.
pub(crate) fn is_index(path: &[u8]) -> bool {
    path.strip_suffix(b"/index")
        .is_some_and(|directory| directory.ends_with(b"/.git") || contains(directory, ".git/worktrees/"))
}

/// Returns a digest of the entries. It never equals the digest of a file, because it begins with
/// two zeros and a letter. Returns `None` if the layout is another one.
pub(crate) fn entries(bytes: &[u8]) -> Option<Digest> {
    let number = |at: usize| Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?));
    let version = number(4)?;
    if !bytes.starts_with(b"DIRC") || !(2..=3).contains(&version) {
        return None;
    }
    let mut kept = vec![PLACEHOLDER, PLACEHOLDER, b'i'];
    let mut at = HEADER_BYTES;
    for _ in 0..number(8)? {
        let names = at + STAT_BYTES;
        let flags_at = names + NAME_BYTES;
        let flags = u16::from_be_bytes(*bytes.get(flags_at..)?.first_chunk()?);
        let path = flags_at + if flags & EXTENDED == 0 { 2 } else { 4 };
        let length = bytes.get(path..)?.iter().position(|&byte| byte == 0)?;
        kept.extend_from_slice(bytes.get(at + MODE_AT..at + MODE_AT + 4)?);
        kept.extend_from_slice(&bytes[names..path + length + 1]);
        // Each entry is padded to a multiple of eight bytes.
        at += (path + length - at) / 8 * 8 + 8;
    }
    // An extension whose name begins with a small letter changes the meaning of the entries.
    while at < bytes.len().checked_sub(CHECKSUM_BYTES)? {
        if !bytes[at].is_ascii_uppercase() {
            return None;
        }
        at = at.checked_add(8)?.checked_add(number(at + 4)? as usize)?;
    }
    (at + CHECKSUM_BYTES == bytes.len()).then(|| Digest::of(&kept))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(stat: u8, name: u8, path: &str, extension: &[u8]) -> Vec<u8> {
        let mut bytes =
            [&b"DIRC"[..], &2u32.to_be_bytes(), &1u32.to_be_bytes(), &[stat; 24], &[0, 0, 0x81, 0xa4]].concat();
        bytes.extend([[stat; 12].as_slice(), &[name; 20], &[0, path.len() as u8], path.as_bytes()].concat());
        let entry = bytes.len() - HEADER_BYTES;
        bytes.resize(HEADER_BYTES + entry / 8 * 8 + 8, 0);
        [&bytes[..], extension, &[stat; 20]].concat()
    }

    #[test]
    fn only_entries_count() {
        let of = |stat, name, path, extension: &[u8]| entries(&index(stat, name, path, extension));
        let first = of(1, 2, "a.c", b"");
        assert!(first.is_some());
        assert_eq!(first, of(9, 2, "a.c", b"TREE\0\0\0\x02xx"));
        assert_ne!(first, of(1, 3, "a.c", b""));
        assert_ne!(first, of(1, 2, "b.c", b""));
        for length in 1..20 {
            let path = "x".repeat(length);
            assert!(entries(&index(1, 2, &path, b"")).is_some(), "{length}");
        }
        assert_eq!(of(1, 2, "a.c", b"link\0\0\0\x02xx"), None);
        assert_eq!(of(1, 2, "a.c", b"TREE\0\0\0\x09xx"), None);
        let whole = index(1, 2, "a.c", b"TREE\0\0\0\x02xx");
        // Without its checksum, an index looks like one without the extension.
        for length in 0..whole.len() - 10 {
            assert_eq!(entries(&whole[..length]), None, "{length}");
        }
    }

    #[test]
    fn where_an_index_is() {
        for path in ["/w/.git/index", "/w/.git/worktrees/x/index"] {
            assert!(is_index(path.as_bytes()), "{path}");
        }
        for path in ["/w/index", "/w/.git/HEAD", "/w/x.git2/index", "/w/.git/modules/index"] {
            assert!(!is_index(path.as_bytes()), "{path}");
        }
    }
}
