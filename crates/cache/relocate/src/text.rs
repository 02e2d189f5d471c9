//! Paths in text: messages, preprocessed sources, listings.
//!
//! A root counts as a path if a path can begin and end there: the character before it does not
//! belong to a path, and after it the path or one of its components ends. If the root is the
//! beginning of a longer path (`/w/a` in `/w/ab`), that is another path and stays. If it could be
//! either, the text is refused.
//!
//! Unaware of: which program wrote the text, except for a few texts whose layout depends on the
//! length of their paths.

use memchr::memmem;

use crate::forms::hides_its_text;
use crate::names::Names;
use crate::roots::{Map, Pair};

/// Returns the text with its roots replaced.
pub(crate) fn relocate(text: &[u8], map: &Map<'_>) -> Option<Vec<u8>> {
    if !map.is_plain() || hides_its_text(text) || !text.iter().all(|&c| is_text(c)) {
        return None;
    }
    if map.stands_wide_in(text) || may_be_quoted_by_gcc(text, map) {
        return None;
    }
    let replaced = replace(text, map)?;
    (replaced.count == 0 || !is_laid_out(text)).then_some(replaced.bytes)
}

/// Returns the text with its roots replaced, even in surroundings where `relocate` refuses: before
/// a column or the end of a sentence, or after a letter or a slash.
pub(crate) fn relocate_loosely(text: &[u8], map: &Map<'_>) -> Option<Vec<u8>> {
    if !map.is_plain() || !text.iter().all(|&c| is_text(c)) {
        return None;
    }
    Some(replace_each(text, map, &|after| side_after(after) == Side::Name))
}

/// Replaces each root that is not the beginning of a longer path, according to `goes_on`. If
/// several roots match at a position, the longest is replaced.
pub(crate) fn replace_each(bytes: &[u8], map: &Map<'_>, goes_on: &dyn Fn(&[u8]) -> bool) -> Vec<u8> {
    let (mut there, mut kept) = (Vec::with_capacity(bytes.len()), 0);
    for at in places_of(bytes, map) {
        let ends = |pair: &&Pair| bytes[at..].strip_prefix(pair.from).is_some_and(|after| !goes_on(after));
        let Some(pair) = map.pairs().iter().find(ends).filter(|_| at >= kept) else { continue };
        there.extend_from_slice(&bytes[kept..at]);
        there.extend_from_slice(pair.to);
        kept = at + pair.from.len();
    }
    there.extend_from_slice(&bytes[kept..]);
    there
}

/// Returns the text with ephemeral names replaced.
pub(crate) fn relocate_names(text: &[u8], names: &Names<'_>) -> Option<Vec<u8>> {
    let is_plain = !hides_its_text(text) && text.iter().all(|&c| is_text(c));
    // Three spaces in a row may fill a column.
    let keeps_columns = names.are_as_long() || !is_laid_out(text) && memmem::find(text, b"   ").is_none();
    if is_plain && keeps_columns { names.replace(text) } else { None }
}

/// A text with roots replaced.
pub(crate) struct Replaced {
    pub(crate) bytes: Vec<u8>,
    /// The number of roots that were replaced.
    pub(crate) count: usize,
}

/// Replaces all roots that are paths. Returns `None` if that is in doubt.
pub(crate) fn replace(text: &[u8], map: &Map<'_>) -> Option<Replaced> {
    let mut replaced = Replaced { bytes: Vec::with_capacity(text.len()), count: 0 };
    let mut kept = 0;
    for at in places_of(text, map) {
        // Roots overlap only if one is nested in the other, and then one of them is replaced.
        if at < kept {
            continue;
        }
        let Some(pair) = judge(text, at, map)? else { continue };
        replaced.bytes.extend_from_slice(text.get(kept..at)?);
        replaced.bytes.extend_from_slice(pair.to);
        replaced.count += 1;
        kept = at + pair.from.len();
        if is_padded(text.get(kept..)?) {
            return None;
        }
    }
    replaced.bytes.extend_from_slice(text.get(kept..)?);
    Some(replaced)
}

/// Returns the positions of all roots, in order.
fn places_of(text: &[u8], map: &Map<'_>) -> Vec<usize> {
    let mut places: Vec<usize> = map.pairs().iter().flat_map(|pair| memmem::find_iter(text, pair.from)).collect();
    places.sort_unstable();
    places.dedup();
    places
}

/// What the text on one side of an occurrence says about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// The path or the component ends here.
    Boundary,
    /// The name continues, so this is another path.
    Name,
    /// It could be either.
    Doubt,
}

/// Returns the root to replace at this position. Returns `Some(None)` if the text there is another
/// path, and `None` if that is in doubt.
fn judge<'a>(text: &[u8], at: usize, map: &Map<'a>) -> Option<Option<Pair<'a>>> {
    let (before, rest) = text.split_at_checked(at)?;
    for pair in map.pairs() {
        let Some(after) = rest.strip_prefix(pair.from) else { continue };
        match side_after(after) {
            Side::Name => continue,
            Side::Doubt => return None,
            Side::Boundary => {}
        }
        return (side_before(before) == Side::Boundary).then_some(Some(*pair));
    }
    Some(None)
}

fn side_after(after: &[u8]) -> Side {
    match after.first() {
        None | Some(b'/' | b'"' | b'\'' | b'`' | b':' | b')' | b';' | b'>' | b'<' | b']' | b'}') => Side::Boundary,
        Some(b' ' | b'\t' | b'\n' | b'\r' | b'\x1b') => Side::Boundary,
        Some(c) if c.is_ascii_alphanumeric() || b"_-".contains(c) => Side::Name,
        // ’ and ”, which messages in UTF-8 use as quotes.
        Some(0xe2) if after.starts_with("’".as_bytes()) || after.starts_with("”".as_bytes()) => Side::Boundary,
        // A full stop could also be the dot of a file name; a byte above 127 could be a letter or a
        // sign.
        Some(_) => Side::Doubt,
    }
}

fn side_before(before: &[u8]) -> Side {
    match before.last() {
        None => Side::Boundary,
        Some(b' ' | b'\t' | b'\n' | b'\r' | b'"' | b'\'' | b'`' | b'(' | b'[' | b'{' | b'<' | b'=' | b':') => {
            Side::Boundary
        }
        Some(b',' | b';' | b'|' | b'&' | b'>' | b'!') => Side::Boundary,
        Some(_) if before.ends_with("‘".as_bytes()) || before.ends_with("“".as_bytes()) => Side::Boundary,
        Some(b'K' | b'm') if ends_in_colour(before) => Side::Boundary,
        Some(_) if ends_in_option(before) => Side::Boundary,
        // In `file:///w` or `build/w`, this could be the root or a path that ends like it.
        Some(_) => Side::Doubt,
    }
}

/// Returns true if the text ends in an option that is directly followed by a path (`-I/w`).
fn ends_in_option(before: &[u8]) -> bool {
    const OPTIONS: [&[u8]; 13] = [
        b"-I",
        b"-L",
        b"-R",
        b"-B",
        b"-S",
        b"-F",
        b"-T",
        b"-o",
        b"-isystem",
        b"-iquote",
        b"-idirafter",
        b"-include",
        b"-isysroot",
    ];
    OPTIONS.iter().filter_map(|option| before.strip_suffix(*option)).any(|rest| {
        rest.last().is_none_or(|&c| matches!(c, b' ' | b'\t' | b'\n' | b'"' | b'\'' | b'=' | b'(' | b'[' | b','))
    })
}

/// Returns true if the text ends in a terminal sequence for a colour (`ESC [ 0 1 m`) or for
/// clearing (`ESC [ K`).
fn ends_in_colour(before: &[u8]) -> bool {
    let Some((_, rest)) = before.split_last() else { return false };
    let digits = rest.iter().rev().take_while(|c| c.is_ascii_digit() || **c == b';').count();
    rest.get(..rest.len() - digits).is_some_and(|start| start.ends_with(b"\x1b["))
}

/// Returns true if spaces fill a column after a path, as in tables.
fn is_padded(after: &[u8]) -> bool {
    after
        .iter()
        .position(|c| c.is_ascii_whitespace())
        .and_then(|at| after.get(at..))
        .is_some_and(|rest| rest.starts_with(b"  "))
}

/// Returns true for a character of a text: anything except control characters that neither space
/// nor colour it. The bell (0x07) is allowed because autoconf makes awk split fields at it.
fn is_text(c: u8) -> bool {
    c >= b' ' && c != 0x7f || matches!(c, b'\t' | b'\n' | b'\r' | 0x07 | 0x08 | 0x0c | 0x1b)
}

/// Returns true if the layout of a text depends on the length of its paths, or the order of its
/// parts on their letters.
///
/// clang's YAML about optimisations and the comments of `-fverbose-asm` are wrapped at a column. An
/// assembler source with debug information has gcc's strings in the order of a hash table. `-H`
/// ends with a sorted list.
pub fn is_laid_out(text: &[u8]) -> bool {
    const SIGNS: [&[u8]; 7] = [
        b"Multiple include guards may be useful for:",
        b"# options passed: ",
        b"# options enabled: ",
        b"\t.section\t.debug_",
        b"\t.section .debug_",
        b"\n--- !",
        b"\x1b]8;",
    ];
    text.starts_with(b"--- !") || SIGNS.iter().any(|sign| memmem::find(text, sign).is_some())
}

/// Returns true if a word with a root may be quoted in one place but not in the other. `gcc -###`
/// quotes words with characters other than these. The output of `-v` looks the same but has no
/// quotes.
fn may_be_quoted_by_gcc(text: &[u8], map: &Map<'_>) -> bool {
    let is_bare = |root: &[u8]| root.iter().all(|c| c.is_ascii_alphanumeric() || b"_/-.".contains(c));
    let are_bare = map.pairs().iter().all(|pair| is_bare(pair.from) && is_bare(pair.to));
    !are_bare && memmem::find(text, b"COLLECT_GCC_OPTIONS=").is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: Option<&str>) {
        let map = Map::new(&[b"/w/a", b"/w/a/in"], &[b"/other/place", b"/n"]).expect("sound roots");
        let found = relocate(text.as_bytes(), &map).map(|text| String::from_utf8_lossy(&text).into_owned());
        assert_eq!(found.as_deref(), expect, "{text}");
    }

    #[test]
    fn loosely() {
        let map = Map::new(&[b"/w/a", b"/w/a/in"], &[b"/other/place", b"/n"]).expect("sound roots");
        let text = "ran in /w/a.\n/w/a/in   3\nx//w/a/y /w/ab\n--- !\n/w/a";
        let expect = "ran in /other/place.\n/n   3\nx//other/place/y /w/ab\n--- !\n/other/place";
        assert_eq!(relocate_loosely(text.as_bytes(), &map).as_deref(), Some(expect.as_bytes()));
        assert!(relocate_loosely(b"\x80\x04\x8c\x04/w/a.", &map).is_none(), "is not text");
    }

    #[test]
    fn paths_are_replaced() {
        check("/w/a", Some("/other/place"));
        check("/w/a/x.c:3:4: error", Some("/other/place/x.c:3:4: error"));
        check("# 1 \"/w/a//\"\n# 2 \"/w/a/in/h.h\"", Some("# 1 \"/other/place//\"\n# 2 \"/n/h.h\""));
        check("from /w/a:\n", Some("from /other/place:\n"));
        check("‘/w/a’ ‘/w/a/in’", Some("‘/other/place’ ‘/n’"));
        check("\x1b[01m\x1b[K/w/a/x.c:\x1b[m", Some("\x1b[01m\x1b[K/other/place/x.c:\x1b[m"));
        check("a=/w/a b:/w/a;", Some("a=/other/place b:/other/place;"));
        check("a='-I/w/a -L/w/a/in'", Some("a='-I/other/place -L/n'"));
        check("nothing", Some("nothing"));
    }

    #[test]
    fn other_paths_stay() {
        check("/w/ab /w/a-b /w/a_", Some("/w/ab /w/a-b /w/a_"));
        check("/w/a/into", Some("/other/place/into"));
        check("/w /w/b", Some("/w /w/b"));
    }

    #[test]
    fn doubts_are_refused() {
        check("no file /w/a.", None);
        check("/w/a, and", None);
        check("x-I/w/a", None);
        check("-Wl/w/a", None);
        check("file:///w/a/x.c", None);
        check("build/w/a/x.c", None);
        check("/w/a\0", None);
        check("/w/aé", None);
        check("/\0w\0/\0a\0", None);
        check("--- !Passed\nFile: '/w/a/x.c'", None);
        check("x\0", None);
        check("/w/a/x.o    10", None);
    }

    #[test]
    fn words_that_gcc_may_quote_are_refused() {
        let text = b"COLLECT_GCC_OPTIONS='-c'\n cc1 /w/a/x.c";
        let plain = Map::new(&[b"/w/a"], &[b"/w/b"]).expect("sound roots");
        assert!(relocate(text, &plain).is_some());
        let quoted = Map::new(&[b"/w/a"], &[b"/w/b+c"]).expect("sound roots");
        assert_eq!(relocate(text, &quoted), None);
        assert!(relocate(b"/w/a/x.c", &quoted).is_some());
    }

    #[test]
    fn roots_that_are_quoted_in_many_ways_are_refused() {
        let map = Map::new(&[b"/my place"], &[b"/n"]).expect("sound roots");
        assert_eq!(relocate(b"/my place", &map), None);
    }
}
