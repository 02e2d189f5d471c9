//! Searches texts and splits them into lines, to compare the results of two runs.
//!
//! Unaware of: results and places.

use larder_model::is_in_word;
use larder_model::path::names;

/// Returns true if a text has this name or path, and not as a part of a longer word.
pub(super) fn is_word_of(text: &[u8], name: &[u8]) -> bool {
    let is_part = |byte: Option<&u8>| byte.is_some_and(|byte| is_in_word(*byte));
    memchr::memmem::find_iter(text, name).any(|at| !is_part(text[..at].last()) && !is_part(text.get(at + name.len())))
}

/// Returns `../..` and so on, by which a relative path leads from a root to the nearest directory
/// above it that is in `start` and in which the run relied on something beside the root. That may be
/// `/`, which has the system. `accessed` are the absolute paths that the run relied on.
pub(super) fn climb<'p>(root: &[u8], start: &[u8], accessed: impl Iterator<Item = &'p [u8]>) -> Vec<u8> {
    let (depth, shared_by_both) = (names(root).count(), names(start).count());
    let beside = accessed.filter_map(|path| {
        let shared = names(path).zip(names(root)).take_while(|(there, own)| there == own).count();
        // Otherwise it is a directory above the root, or it is elsewhere in each place.
        (shared < names(path).count() && shared <= shared_by_both).then_some(shared)
    });
    let up = depth - beside.max().unwrap_or(0);
    vec![&b".."[..]; up].join(&b'/')
}

/// Returns true if a text has a relative path that begins with `climb`, such as `-I../../lib` for
/// `../..`.
pub(super) fn climbs_in(text: &[u8], climb: &[u8]) -> bool {
    let ends = |byte: Option<&u8>| byte.is_none_or(|byte| *byte != b'.' && !is_in_word(*byte));
    !climb.is_empty()
        && memchr::memmem::find_iter(text, climb)
            .any(|at| text[..at].last() != Some(&b'.') && ends(text.get(at + climb.len())))
}

/// Returns the lines of a makefile, those of one target that stand together (`x: y`) sorted.
pub(super) fn sorted_prerequisites(makefile: &[u8]) -> Vec<&[u8]> {
    let target = |line: &[u8]| Some(line[..memchr::memmem::find(line, b": ")?].to_vec());
    let mut lines: Vec<&[u8]> = makefile.split(|byte| *byte == b'\n').collect();
    let is_same = |a: &&[u8], b: &&[u8]| !a.starts_with(b"\t") && target(a).is_some_and(|a| Some(a) == target(b));
    lines.chunk_by_mut(is_same).for_each(<[&[u8]]>::sort_unstable);
    lines
}

/// Returns the length of the counter that ninja and the makefiles of CMake put before a line, such
/// as `[3/17] ` and `[ 19%] `. The count depends on the order in which commands end.
pub(super) fn counted(line: &[u8]) -> usize {
    let digits = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let share = || {
        let rest = line.strip_prefix(b"[")?.trim_ascii_start();
        let rest = rest[digits(rest)..].strip_prefix(b"%] ")?;
        // `[`, three characters, `%] `.
        (line.len() - rest.len() == 7 && line[3].is_ascii_digit()).then_some(7)
    };
    let end = || {
        let rest = line.strip_prefix(b"[")?;
        let (before, rest) = rest.split_at(digits(rest));
        let rest = rest.strip_prefix(b"/")?;
        let (after, rest) = rest.split_at(digits(rest));
        let rest = rest.strip_prefix(b"] ")?;
        (!before.is_empty() && !after.is_empty()).then_some(line.len() - rest.len())
    };
    share().or_else(end).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{climb, climbs_in, counted, sorted_prerequisites};

    #[test]
    fn relative_paths_that_lead_up() {
        for (text, expect) in [
            ("../..", true),
            ("-I../../lib", true),
            ("'../../../usr'", true),
            ("../x", false),
            ("../..x", false),
            (".../..", false),
        ] {
            assert_eq!(climbs_in(text.as_bytes(), b"../.."), expect, "{text}");
        }
        let up = |root: &str, start: &str, accessed: &[&str]| {
            let accessed = accessed.iter().map(|path| path.as_bytes());
            String::from_utf8_lossy(&climb(root.as_bytes(), start.as_bytes(), accessed)).into_owned()
        };
        assert_eq!(up("/w/p/a", "/w/p", &["/usr/bin/sh", "/w", "/w/p"]), "../../..");
        assert_eq!(up("/w/p/a", "/w/p", &["/usr/bin/sh", "/w/x"]), "../..");
        assert_eq!(up("/w/p/a", "/w/p", &["/w/x", "/w/p/x"]), "..");
        assert_eq!(up("/w/p/a", "/w", &["/w/x", "/w/p/x"]), "../..");
        assert!(climbs_in(b"x=..\n", b"..") && !climbs_in(b"checking for gcc...", b"..") && !climbs_in(b"x", b""));
    }

    #[test]
    fn prerequisites_in_any_order() {
        let sorted = |text: &'static str| sorted_prerequisites(text.as_bytes()).join(&b'\n');
        assert_eq!(sorted("x: b\nx: a\ny: b\ny: a\n\ttrue\n"), b"x: a\nx: b\ny: a\ny: b\n\ttrue\n");
        for text in ["x: b\n\ttrue\nx: a\n", "\tx: b\n\tx: a\n", "b\na\n", "x: b\n\nx: a", "x:b\nx:a"] {
            assert_eq!(sorted(text), text.as_bytes(), "{text}");
        }
    }

    #[test]
    fn what_ninja_counts() {
        for (line, expect) in [("[ 19%] cc", 7), ("[100%] cc", 7), ("[   %] cc", 0), ("[1%] cc", 0)] {
            assert_eq!(counted(line.as_bytes()), expect, "{line}");
        }
        for (line, expect) in [("[3/17] cc x", 7), ("[/1] x", 0), ("[1/2]x", 0), ("[1/2", 0), ("x [1/2] y", 0), ("", 0)]
        {
            assert_eq!(counted(line.as_bytes()), expect, "{line}");
        }
    }
}
