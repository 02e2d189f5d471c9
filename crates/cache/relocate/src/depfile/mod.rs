//! Depfiles: the dependencies that compilers write for make.
//!
//! Lines are wrapped at a column, so other paths give other line breaks. To be safe, the depfile is
//! first parsed and rendered again for its own place. If that reproduces it, it is rendered for the
//! new place. Different compilers write short depfiles alike, so the caller must know which
//! compiler it was.
//!
//! Unaware of: flags, and whether the files exist.

mod parse;
mod render;

use memchr::memmem;
use parse::Depfile;
pub use render::Writer;

use crate::roots::{Map, Pair};

/// Returns the depfile with its roots replaced.
pub(crate) fn relocate(writer: Writer, bytes: &[u8], map: &Map<'_>) -> Option<Vec<u8>> {
    let roots: Vec<Root<'_>> = map.pairs().iter().map(Root::new).collect();
    // The target of `-MT` is written unquoted, so a root that needs quotes is split into several
    // words there.
    if roots.iter().any(|root| root.from != root.raw && memmem::find(bytes, root.raw).is_some()) {
        return None;
    }
    let here = Depfile::parse(bytes)?;
    let there = here.map_words(&mut |word| replace(word, &roots))?;
    if writer.render(&here)? != bytes {
        return None;
    }
    writer.render(&there)
}

/// A root as it is quoted in both places.
struct Root<'a> {
    raw: &'a [u8],
    from: Vec<u8>,
    to: Vec<u8>,
}

impl<'a> Root<'a> {
    fn new(pair: &Pair<'a>) -> Root<'a> {
        Root { raw: pair.from, from: quoted(pair.from), to: quoted(pair.to) }
    }
}

/// Returns the word with its root replaced. The word stays quoted. Returns `None` if the word
/// contains a root in another position.
fn replace(word: &[u8], roots: &[Root<'_>]) -> Option<Vec<u8>> {
    for root in roots {
        let Some(rest) = word.strip_prefix(root.from.as_slice()) else { continue };
        if rest.first().is_none_or(|&c| c == b'/') {
            return is_free(rest, roots).then(|| [&root.to, rest].concat());
        }
    }
    is_free(word, roots).then(|| word.to_vec())
}

/// Returns true if no root occurs in the word, except as the beginning of a longer name.
fn is_free(word: &[u8], roots: &[Root<'_>]) -> bool {
    let goes_on = |at: usize, root: &Root<'_>| {
        word.get(at + root.from.len()).is_some_and(|c| c.is_ascii_alphanumeric() || b"_-.+".contains(c))
    };
    roots.iter().all(|root| memmem::find_iter(word, &root.from).all(|at| goes_on(at, root)))
}

/// Quotes a path for make, as both gcc and clang do.
pub(crate) fn quoted(name: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len());
    let mut slashes = 0;
    for &c in name {
        match c {
            b' ' | b'\t' => {
                out.extend(std::iter::repeat_n(b'\\', slashes));
                out.push(b'\\');
            }
            b'#' => out.push(b'\\'),
            b'$' => out.push(b'$'),
            _ => {}
        }
        slashes = if c == b'\\' { slashes + 1 } else { 0 };
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted() {
        let check = |name: &str, expect: &str| {
            assert_eq!(String::from_utf8_lossy(&quoted(name.as_bytes())), expect, "{name}");
        };
        check("/a/b:c%d", "/a/b:c%d");
        check("a b#c$d", "a\\ b\\#c$$d");
        check("a\\ b\\c", "a\\\\\\ b\\c");
    }

    fn check(depfile: &str, expect: Option<&str>) {
        let map = Map::new(&[b"/w/a", b"/my place"], &[b"/other", b"/my $"]).expect("sound roots");
        let found =
            relocate(Writer::Gcc, depfile.as_bytes(), &map).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        assert_eq!(found.as_deref(), expect, "{depfile}");
    }

    #[test]
    fn short_ones() {
        check("x.o: /w/a/x.c /w/ab/y.h\n", Some("x.o: /other/x.c /w/ab/y.h\n"));
        check("/w/a/x.o: x.c\n\nx.c:\n", Some("/other/x.o: x.c\n\nx.c:\n"));
        check("/w/a/x.o: x.c /w/a/y.h\n/w/a/y.h:\n", Some("/other/x.o: x.c /other/y.h\n/other/y.h:\n"));
        check("x.o: /my\\ place/x.c\n", Some("x.o: /my\\ $$/x.c\n"));
        check("a b: x.c\n", Some("a b: x.c\n"));
    }

    #[test]
    fn roots_that_stand_elsewhere_are_refused() {
        check("x=/w/a/x.o: x.c\n", None);
        check("x.o: b/w/a/x.c\n", None);
        check("x.o: /w/a/w/a\n", None);
        check("/my place/x.o: x.c\n", None);
    }

    #[test]
    fn other_layouts_are_refused() {
        check("x.o: \\\n /w/a/x.c\n", None);
        check("x.o:  /w/a/x.c\n", None);
        check("x.o: /w/a/x.c", None);
        check("# x\n", None);
        check("", None);
    }
}
