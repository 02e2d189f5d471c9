//! Relocates bytes of any kind to a place whose roots have the same lengths. Each root is replaced
//! where it is, and nothing moves.
//!
//! In objects, programs and libraries, the module `object` handles the strings of debug
//! information, because gcc sorts some of them by a hash. The build id is computed anew.
//!
//! Unaware of: what wrote the bytes.

use object::elf::ELFMAG;

use crate::archive;
use crate::forms::holds_a_root;
use crate::object::{self as objects, Order};
use crate::roots::Map;
use crate::text::replace_each;

/// Returns the bytes with their roots replaced, or `None` if a root has another length in the new
/// place.
pub(crate) fn relocate(bytes: &[u8], map: &Map<'_>) -> Option<Vec<u8>> {
    if map.pairs().iter().any(|pair| pair.from.len() != pair.to.len()) {
        return None;
    }
    if crate::magic::is_archive(bytes) {
        return archive::relocate(bytes, &|part| map.stands_in(part), &|object| of_object(object, map));
    }
    match bytes.starts_with(&ELFMAG) {
        true => of_object(bytes, map),
        false => Some(replace_each(bytes, map, &goes_on)),
    }
}

/// Replaces the roots that the program itself may use, and then those in its debug information.
fn of_object(bytes: &[u8], map: &Map<'_>) -> Option<Vec<u8>> {
    let there = objects::exchange_in_place(bytes, &|section| replace_each(section, map, &goes_on))?;
    // This also finds a directory above a root in debug information, where clang splits paths.
    match holds_a_root(&there, &map.replaced()) {
        true => objects::relocate(&there, map, Order::Same),
        false => Some(there),
    }
}

/// Returns true if the text after a root makes it another name.
fn goes_on(after: &[u8]) -> bool {
    after.first().is_some_and(|c| c.is_ascii_alphanumeric() || b"_-.+~@%".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_are_replaced_where_they_stand() {
        let check = |bytes: &[u8], expect: Option<&[u8]>| {
            let map = Map::new(&[b"/w/a", b"/w/a/in"], &[b"/w/b", b"/v/b/in"]).expect("sound roots");
            assert_eq!(relocate(bytes, &map).as_deref(), expect, "{}", bytes.escape_ascii());
        };
        check(b"\0/w/a\0x/w/a/y:/w/a/in\xff", Some(b"\0/w/b\0x/w/b/y:/v/b/in\xff"));
        check(b"/w/ab /w/a.c /w/a/into", Some(b"/w/ab /w/a.c /w/b/into"));
        check(b"nothing", Some(b"nothing"));
        check(b"\x7fELF", None);
    }

    #[test]
    fn nothing_moves() {
        let map = Map::new(&[b"/w/a"], &[b"/w/bc"]).expect("sound roots");
        assert_eq!(relocate(b"/w/a", &map), None);
    }
}
