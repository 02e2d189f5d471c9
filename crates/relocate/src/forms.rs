//! The forms in which a root may stand in bytes of any kind.
//!
//! Unaware of: whether it could be replaced there.

use memchr::memmem;

use crate::depfile;
use crate::roots::{is_plain, is_plain_byte};

/// Whether any of `roots` stands in `bytes`: at any position, also as the beginning of a longer name, also as characters of
/// two or four bytes, also quoted for make. Where a root has characters that are quoted in many ways, its longest part
/// without them is searched. What is compressed is not looked into: see [`hides_its_text`].
pub fn holds_a_root(bytes: &[u8], roots: &[&[u8]]) -> bool {
    roots.iter().any(|root| holds(bytes, root))
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

/// Whether bytes begin as something compressed does, so that nobody sees what stands in them.
pub fn hides_its_text(bytes: &[u8]) -> bool {
    const BEGINNINGS: [&[u8]; 6] =
        [b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zXZ\0", b"PK\x03\x04", b"BC\xc0\xde"];
    BEGINNINGS.iter().any(|beginning| bytes.starts_with(beginning))
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
    }
}
