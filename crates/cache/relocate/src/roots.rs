//! Pairs of roots: which root contains a path, and whether a root stands in some bytes.
//!
//! Unaware of: what the bytes are.

use memchr::memmem;

/// The minimum length of a root in bytes. A shorter string would occur by accident.
const LENGTH_MIN: usize = 2;

/// Returns true if the bytes contain the root as in the literals `L"…"`, `u"…"` and `U"…"`.
pub(crate) fn holds_wide(bytes: &[u8], root: &[u8]) -> bool {
    let wide = |size: usize| -> Vec<u8> {
        root.iter().flat_map(|&c| std::iter::once(c).chain(std::iter::repeat_n(0, size - 1))).collect()
    };
    memmem::find(bytes, &wide(2)).is_some() || memmem::find(bytes, &wide(4)).is_some()
}

/// The pairs of roots, the longest `from` first.
pub(crate) struct Map<'a> {
    pairs: Vec<Pair<'a>>,
    plain: bool,
}

/// A root in both places.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair<'a> {
    pub(crate) from: &'a [u8],
    pub(crate) to: &'a [u8],
}

impl<'a> Map<'a> {
    /// Pairs the roots. Returns `None` if the lists have different lengths, contain anything but
    /// absolute paths or `/`, or map one root to two.
    pub(crate) fn new(from: &[&'a [u8]], to: &[&'a [u8]]) -> Option<Map<'a>> {
        if from.len() != to.len() || !from.iter().chain(to).all(|root| is_root(root)) {
            return None;
        }
        let mut pairs: Vec<Pair<'a>> = from.iter().zip(to).map(|(&from, &to)| Pair { from, to }).collect();
        pairs.sort_by(|a, b| b.from.len().cmp(&a.from.len()).then(a.from.cmp(b.from)));
        pairs.dedup_by(|a, b| a.from == b.from && a.to == b.to);
        if pairs.windows(2).any(|two| two[0].from == two[1].from) {
            return None;
        }
        let plain = pairs.iter().all(|pair| is_plain(pair.from) && is_plain(pair.to));
        Some(Map { pairs, plain })
    }

    /// Returns true if no root has a character that programs may quote.
    pub(crate) fn is_plain(&self) -> bool {
        self.plain
    }

    /// Returns the pairs, the longest `from` first.
    pub(crate) fn pairs(&self) -> &[Pair<'a>] {
        &self.pairs
    }

    /// Returns true if a root is in the bytes as it is, in whatever surroundings.
    pub(crate) fn stands_in(&self, bytes: &[u8]) -> bool {
        self.pairs.iter().any(|pair| memmem::find(bytes, pair.from).is_some())
    }

    /// Returns true if a root is in the bytes in a wide encoding.
    pub(crate) fn stands_wide_in(&self, bytes: &[u8]) -> bool {
        self.pairs.iter().any(|pair| holds_wide(bytes, pair.from))
    }

    /// Returns the roots that are replaced, the longest first.
    pub(crate) fn replaced(&self) -> Vec<&'a [u8]> {
        self.pairs.iter().map(|pair| pair.from).collect()
    }

    /// Returns the root that equals the path or contains it.
    pub(crate) fn root_of(&self, path: &[u8]) -> Option<Pair<'a>> {
        let below = |pair: &&Pair<'_>| path.strip_prefix(pair.from).is_some_and(is_end_or_slash);
        self.pairs.iter().find(below).copied()
    }
}

fn is_end_or_slash(rest: &[u8]) -> bool {
    rest.first().is_none_or(|&c| c == b'/')
}

fn is_root(root: &[u8]) -> bool {
    root.len() >= LENGTH_MIN
        && root.first() == Some(&b'/')
        && root.last() != Some(&b'/')
        && root.last() != Some(&b'\\')
        && !root.iter().any(|c| c.is_ascii_control())
}

/// Returns true if no kind of quoting changes the characters of the root.
pub(crate) fn is_plain(root: &[u8]) -> bool {
    root.iter().all(|&c| is_plain_byte(c))
}

pub(crate) fn is_plain_byte(c: u8) -> bool {
    c.is_ascii_alphanumeric() || b"_./+-@=,~%".contains(&c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_root_at_a_boundary_is_taken() {
        let map = Map::new(&[b"/w", b"/w/a"], &[b"/x", b"/y/a"]).expect("sound roots");
        let check = |path: &str, expect: Option<&str>| {
            let found = map.root_of(path.as_bytes()).map(|pair| String::from_utf8_lossy(pair.from).into_owned());
            assert_eq!(found.as_deref(), expect, "{path}");
        };
        check("/w", Some("/w"));
        check("/w/b", Some("/w"));
        check("/w/a", Some("/w/a"));
        check("/w/a/b", Some("/w/a"));
        check("/w/ab", Some("/w"));
        check("/wa", None);
        check("w", None);
    }

    #[test]
    fn lists_that_are_no_places() {
        let check = |from: &[&str], to: &[&str]| {
            let from: Vec<&[u8]> = from.iter().map(|root| root.as_bytes()).collect();
            let to: Vec<&[u8]> = to.iter().map(|root| root.as_bytes()).collect();
            assert!(Map::new(&from, &to).is_none(), "{from:?} {to:?}");
        };
        check(&["/w"], &[]);
        check(&["/"], &["/w"]);
        check(&["/w"], &["/"]);
        check(&["w/a"], &["/w"]);
        check(&["/w/"], &["/w"]);
        check(&["/w\n"], &["/w"]);
        check(&["/w", "/w"], &["/a", "/b"]);
    }
}
