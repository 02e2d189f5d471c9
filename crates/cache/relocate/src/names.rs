//! Ephemeral names: words in file names that differ in each run of the same build. For example,
//! CMake names its checks `cmTC_a2f27`.
//!
//! Unaware of: the bytes that contain a name, except that it must be a whole word there.

use memchr::memmem;

use crate::roots::Pair;
use crate::roots::holds_wide;

/// Pairs of ephemeral names.
pub(crate) struct Names<'a> {
    pairs: Vec<Pair<'a>>,
}

type Lists<'a> = (Vec<&'a [u8]>, Vec<&'a [u8]>);

impl<'a> Names<'a> {
    /// Splits the two lists into ephemeral names and roots. Returns `None` if the lists have
    /// different lengths, or if one has a name where the other has a root. A name may contain
    /// letters, digits, `_` and `-`.
    pub(crate) fn split(from: &[&'a [u8]], to: &[&'a [u8]]) -> Option<(Names<'a>, Lists<'a>)> {
        if from.len() != to.len() {
            return None;
        }
        let (mut pairs, mut roots) = (Vec::new(), (Vec::new(), Vec::new()));
        for (&from, &to) in from.iter().zip(to) {
            match (is_name(from), is_name(to)) {
                (true, true) => pairs.push(Pair { from, to }),
                (false, false) => {
                    roots.0.push(from);
                    roots.1.push(to);
                }
                _ => return None,
            }
        }
        Some((Names { pairs }, roots))
    }

    /// Returns true if the bytes contain any of the old names, as a word or in another form.
    pub(crate) fn stand_in(&self, bytes: &[u8]) -> bool {
        self.pairs.iter().any(|pair| memmem::find(bytes, pair.from).is_some() || holds_wide(bytes, pair.from))
    }

    /// Returns true if the bytes contain any of the old names outside these roots.
    pub(crate) fn stand_outside(&self, bytes: &[u8], roots: &[&[u8]]) -> bool {
        let is_part = |at: usize, name: &[u8]| {
            roots.iter().any(|root| {
                memmem::find_iter(root, name)
                    .any(|offset| at.checked_sub(offset).is_some_and(|start| bytes[start..].starts_with(root)))
            })
        };
        let stands = |pair: &Pair<'_>| {
            holds_wide(bytes, pair.from) || memmem::find_iter(bytes, pair.from).any(|at| !is_part(at, pair.from))
        };
        self.pairs.iter().any(stands)
    }

    /// Returns true if each name has the same length in both places.
    pub(crate) fn are_as_long(&self) -> bool {
        self.pairs.iter().all(|pair| pair.from.len() == pair.to.len())
    }

    /// Returns the bytes with all names replaced. Returns `None` if a name occurs in a longer word,
    /// or in wide characters.
    pub(crate) fn replace(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut places = Vec::new();
        for pair in &self.pairs {
            if holds_wide(bytes, pair.from) {
                return None;
            }
            for at in memmem::find_iter(bytes, pair.from) {
                let (before, after) = (bytes.get(..at)?, bytes.get(at + pair.from.len()..)?);
                if before.last().is_some_and(is_token) || after.first().is_some_and(is_token) {
                    return None;
                }
                places.push((at, pair));
            }
        }
        places.sort_by_key(|(at, _)| *at);
        let (mut out, mut kept) = (Vec::with_capacity(bytes.len()), 0);
        for (at, pair) in places {
            out.extend_from_slice(bytes.get(kept..at)?);
            out.extend_from_slice(pair.to);
            kept = at + pair.from.len();
        }
        out.extend_from_slice(bytes.get(kept..)?);
        Some(out)
    }
}

fn is_name(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|c| is_token(c) || *c == b'-')
}

fn is_token(c: &u8) -> bool {
    c.is_ascii_alphanumeric() || *c == b'_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_words_are_replaced() {
        let check = |text: &str, expect: Option<&str>| {
            let (names, roots) = Names::split(&[b"cm_1", b"/w", b"x42"], &[b"cm_2", b"/v", b"x7"]).expect("valid");
            assert_eq!(roots, (vec![&b"/w"[..]], vec![&b"/v"[..]]));
            let found = names.replace(text.as_bytes()).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            assert_eq!(found.as_deref(), expect, "{text}");
        };
        check("a/cm_1.dir/x42.c: x42.c", Some("a/cm_2.dir/x7.c: x7.c"));
        check("none", Some("none"));
        check("xcm_1", None);
        check("cm_12", None);
        check("c\0m\0_\x001\0", None);
    }

    #[test]
    fn names_in_roots() {
        let (names, _) = Names::split(&[b"x42"], &[b"x7"]).expect("valid");
        let outside = |text: &str| names.stand_outside(text.as_bytes(), &[b"/w/x42"]);
        assert!(!outside("a /w/x42/y") && outside("a /w/x42/y x42") && outside("/v/x42"));
    }

    #[test]
    fn lists_that_do_not_fit() {
        assert!(Names::split(&[b"x"], &[b"/x"]).is_none());
        assert!(Names::split(&[b"x"], &[]).is_none());
    }
}
