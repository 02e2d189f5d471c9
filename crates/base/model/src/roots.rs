//! Roots: directories that the same build has under another path in another place, such as the
//! checkout.
//!
//! In keys and records a root is a placeholder: a NUL byte and the root's number. For example, if
//! `/home/a/src` is root 1, `/home/a/src/x.c` becomes `\0\x01/x.c`. Arguments, variables and paths
//! cannot contain a NUL. So the replacement can be undone, and two different texts never become the
//! same. Paths are not normalised: only a whole leading root is replaced.
//!
//! A *name by chance* is a part of a path that contains a random number or a process ID. It
//! differs even between two runs of the same build in one place. For example, CMake names the
//! program of a check `cmTC_a2f27`. A name by chance is replaced in the same way, with numbers from
//! 128 on.

use crate::is_in_word;
use crate::path::is_in;

/// The byte that begins a placeholder. The number of the root (from 1) or of the name by chance
/// (from 128) follows it.
pub const PLACEHOLDER: u8 = 0;

/// The number of the first name by chance.
const NAMES_FROM: u8 = 128;

/// The roots of this place and the names by chance of this run, each in the order of their numbers.
/// There are at most 127 of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roots {
    roots: Vec<Vec<u8>>,
    names: Vec<Vec<u8>>,
    /// The constant part of each name by chance, for example `cmTC_*` for `cmTC_a2f27`.
    shapes: Vec<Vec<u8>>,
}

impl Roots {
    /// Makes roots from absolute paths without a trailing slash. `/` and relative paths are
    /// ignored.
    pub fn new(roots: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let usable = |root: &Vec<u8>| root.len() > 1 && root[0] == b'/' && !root.ends_with(b"/");
        Roots {
            roots: roots.into_iter().filter(usable).take(usize::from(NAMES_FROM) - 1).collect(),
            ..Roots::default()
        }
    }

    /// Returns these roots with `names` as names by chance, each with its constant part. A name may
    /// consist of letters, digits, `_` and `-`; others are ignored.
    pub fn with_names(self, names: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>) -> Self {
        let usable = |name: &Vec<u8>| !name.is_empty() && name.iter().all(|&byte| is_in_word(byte) || byte == b'-');
        let names = names.into_iter().filter(|(name, _)| usable(name)).take(usize::from(NAMES_FROM) - 1);
        let (names, shapes) = names.unzip();
        Roots { names, shapes, ..self }
    }

    /// Returns the constant part of each name by chance, for example `cmTC_*`.
    pub fn shapes(&self) -> &[Vec<u8>] {
        &self.shapes
    }

    /// Returns the names by chance, in the order of their numbers.
    pub fn names(&self) -> &[Vec<u8>] {
        &self.names
    }

    /// Everything that differs in another run of the same build: names by chance first, then roots.
    /// Two runs of one action have the same number of names by chance, because the names are keyed.
    pub fn all(&self) -> impl Iterator<Item = &[u8]> + Clone {
        self.names.iter().chain(&self.roots).map(Vec::as_slice)
    }

    /// Returns the roots, in the order of their numbers.
    pub fn paths(&self) -> &[Vec<u8>] {
        &self.roots
    }

    /// Returns the longest root that is a prefix of `path` by whole components, and its index.
    fn leading(&self, path: &[u8]) -> Option<(usize, &[u8])> {
        self.longest(|root| !root.is_empty() && is_in(path, root))
    }

    /// Returns the longest root that `fits`, and its index.
    fn longest(&self, fits: impl Fn(&[u8]) -> bool) -> Option<(usize, &[u8])> {
        let found = self.roots.iter().enumerate().filter(|(_, root)| fits(root)).max_by_key(|(_, root)| root.len());
        found.map(|(index, root)| (index, root.as_slice()))
    }

    /// Returns true if `path` is in none of the roots.
    pub fn is_outside(&self, path: &[u8]) -> bool {
        self.leading(path).is_none()
    }

    /// Returns `path` with its root and names by chance replaced.
    pub fn encoded_path(&self, path: &[u8]) -> Vec<u8> {
        let mut encoded = Vec::new();
        self.encode_path(path, &mut encoded);
        encoded
    }

    /// Appends `path` to `to`, with its root and names by chance replaced.
    pub fn encode_path(&self, path: &[u8], to: &mut Vec<u8>) {
        match self.leading(path) {
            Some((index, root)) => {
                to.extend([PLACEHOLDER, index as u8 + 1]);
                self.encode_names(&path[root.len()..], to);
            }
            None => self.encode_names(path, to),
        }
    }

    /// Returns the index of the outermost root that `path` is in.
    pub fn outermost(&self, path: &[u8]) -> Option<usize> {
        let mut holding = (0..self.roots.len()).filter(|&index| is_in(path, &self.roots[index]));
        let first = holding.next()?;
        Some(holding.fold(first, |a, b| if self.roots[b].len() < self.roots[a].len() { b } else { a }))
    }

    /// Appends a directory that lies above a root to `to`, as the number of levels between the two:
    /// for the root `/a/b/c`, the directory `/a` is two levels above it. Returns false and appends
    /// nothing if `path` is not above the root with this index, or if it is in a root.
    #[must_use]
    pub fn encode_above(&self, index: usize, path: &[u8], to: &mut Vec<u8>) -> bool {
        let rest = self.roots.get(index).and_then(|root| root.strip_prefix(path));
        let Some(rest) = rest.filter(|rest| path.len() > 1 && rest.first() == Some(&b'/')) else { return false };
        let levels = rest.iter().filter(|&&byte| byte == b'/').count();
        if levels >= usize::from(NAMES_FROM) || !self.is_outside(path) {
            return false;
        }
        to.extend([PLACEHOLDER, index as u8 + 1, PLACEHOLDER, levels as u8]);
        true
    }

    /// Appends a part of a path that does not begin with a root to `to`, with names by chance
    /// replaced.
    pub fn encode_names(&self, part: &[u8], to: &mut Vec<u8>) {
        if self.names.is_empty() {
            return to.extend_from_slice(part);
        }
        let mut at = 0;
        while at < part.len() {
            if let Some((number, name)) = self.name_at(part, at) {
                to.extend([PLACEHOLDER, number]);
                at += name.len();
            } else {
                to.push(part[at]);
                at += 1;
            }
        }
    }

    /// Returns the name by chance that is at this position as a whole word, and its number.
    fn name_at(&self, text: &[u8], at: usize) -> Option<(u8, &[u8])> {
        let stands = |name: &[u8]| {
            text[at..].starts_with(name)
                && (at == 0 || !is_in_word(text[at - 1]))
                && text.get(at + name.len()).is_none_or(|&next| !is_in_word(next))
        };
        let found = self.names.iter().position(|name| stands(name))?;
        Some((NAMES_FROM + found as u8, &self.names[found]))
    }

    /// Reverses [`Roots::encode_names`]. Returns `None` if [`Roots::decode_names`] returns false.
    pub fn decoded_names(&self, encoded: &[u8]) -> Option<Vec<u8>> {
        let mut names = Vec::new();
        self.decode_names(encoded, &mut names).then_some(names)
    }

    /// Reverses [`Roots::encode_names`]. Returns false if `encoded` has the placeholder of a root,
    /// or of a name by chance that this run does not have.
    #[must_use]
    pub fn decode_names(&self, mut encoded: &[u8], to: &mut Vec<u8>) -> bool {
        while let Some(at) = encoded.iter().position(|&byte| byte == PLACEHOLDER) {
            let number = encoded.get(at + 1).and_then(|number| number.checked_sub(NAMES_FROM));
            let Some(name) = number.and_then(|number| self.names.get(usize::from(number))) else { return false };
            to.extend_from_slice(&encoded[..at]);
            to.extend_from_slice(name);
            encoded = &encoded[at + 2..];
        }
        to.extend_from_slice(encoded);
        true
    }

    /// Returns the path that `encoded` means in this place, or `None` if this place does not have
    /// such a root or name by chance.
    pub fn decoded_path(&self, encoded: &[u8]) -> Option<Vec<u8>> {
        let mut path = Vec::new();
        self.decode_path(encoded, &mut path).then_some(path)
    }

    /// Appends the path that `encoded` means in this place to `to`. Returns false if this place
    /// does not have such a root or name by chance.
    #[must_use]
    pub fn decode_path(&self, encoded: &[u8], to: &mut Vec<u8>) -> bool {
        let rest = match encoded {
            [PLACEHOLDER, number, ..] if *number >= NAMES_FROM => return self.decode_names(encoded, to),
            [PLACEHOLDER, rest @ ..] => rest,
            _ => return self.decode_names(encoded, to),
        };
        let root = rest.first().and_then(|&number| self.roots.get(usize::from(number).wrapping_sub(1)));
        let Some(root) = root else { return false };
        match &rest[1..] {
            // A directory above the root: see `encode_above`.
            [PLACEHOLDER, levels] if *levels < NAMES_FROM => {
                let end = root.iter().enumerate().rev().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
                let end = end.take(usize::from(*levels)).last().filter(|end| *end > 0);
                let is_there = root.iter().filter(|&&byte| byte == b'/').count() > usize::from(*levels);
                to.extend_from_slice(&root[..end.filter(|_| is_there).unwrap_or(0)]);
                is_there
            }
            rest => {
                to.extend_from_slice(root);
                self.decode_names(rest, to)
            }
        }
    }

    /// Replaces roots and names by chance anywhere in a text, such as an argument, for use in a
    /// key. The text before a root does not matter, as in `-I/root` and `-DX="/root"`. A root is
    /// left alone if it is only the beginning of a longer name, as in `/root.d`.
    pub fn encode_text(&self, text: &[u8]) -> Vec<u8> {
        let mut encoded = Vec::with_capacity(text.len());
        let mut at = 0;
        while at < text.len() {
            if self.names.is_empty() {
                // Without names by chance, only a slash can begin something to replace.
                let plain = text[at..].iter().position(|&byte| byte == b'/').unwrap_or(text.len() - at);
                encoded.extend_from_slice(&text[at..at + plain]);
                at += plain;
            }
            if text.get(at) == Some(&b'/')
                && let Some((index, root)) = self.embedded(&text[at..])
            {
                encoded.extend([PLACEHOLDER, index as u8 + 1]);
                at += root.len();
                continue;
            }
            if let Some((number, name)) = self.name_at(text, at) {
                encoded.extend([PLACEHOLDER, number]);
                at += name.len();
                continue;
            }
            encoded.extend(text.get(at));
            at += 1;
        }
        encoded
    }

    /// Returns the bytes of a text file with roots replaced, for comparing files that were
    /// generated in two places. A root is replaced if it begins a path, as in `"/root/x"` or
    /// `-I/root`. Returns `None` if nothing was replaced, or if the file contains a NUL byte and so
    /// is not text.
    pub fn encode_content(&self, text: &[u8]) -> Option<Vec<u8>> {
        if text.contains(&PLACEHOLDER) {
            return None;
        }
        let mut encoded = Vec::new();
        let (mut at, mut kept) = (0, 0);
        while let Some(slash) = text[at..].iter().position(|&b| b == b'/').map(|slash| at + slash) {
            at = slash + 1;
            if begins_a_path(&text[..slash])
                && let Some((index, root)) =
                    self.embedded(&text[slash..]).or_else(|| self.ends_a_sentence(&text[slash..]))
            {
                encoded.extend_from_slice(&text[kept..slash]);
                encoded.extend([PLACEHOLDER, index as u8 + 1]);
                (at, kept) = (slash + root.len(), slash + root.len());
            }
        }
        encoded.extend_from_slice(&text[kept..]);
        (kept > 0).then_some(encoded)
    }

    /// Returns each root that lies inside another root: its number, and its path with the outer
    /// root replaced. This is keyed because tools add components to paths and take them off. The
    /// same components lead to the same file only if the roots are nested in the same way.
    pub fn nested(&self) -> impl Iterator<Item = (u8, Vec<u8>)> {
        self.roots.iter().enumerate().filter_map(|(index, root)| {
            let others = Roots {
                names: self.names.clone(),
                shapes: Vec::new(),
                roots: self.roots.iter().map(|r| if r == root { Vec::new() } else { r.clone() }).collect(),
            };
            let encoded = others.encoded_path(root);
            (encoded != *root).then_some((index as u8 + 1, encoded))
        })
    }

    /// Returns the longest root at the beginning of `text` that is followed by a full stop and then
    /// by white space or nothing.
    fn ends_a_sentence(&self, text: &[u8]) -> Option<(usize, &[u8])> {
        self.longest(|root| match text.strip_prefix(root) {
            Some([b'.', rest @ ..]) => rest.first().is_none_or(u8::is_ascii_whitespace),
            _ => false,
        })
    }

    /// Returns true if [`Roots::encode_text`] takes the beginning of `path` for a root although the
    /// path is not in it. For example, with the root `/root` that is so for `/root (2)/x`. In
    /// another place such a path would be replaced by the wrong one, and the record would not show
    /// it.
    pub fn is_beside(&self, path: &[u8]) -> bool {
        let next = |root: &Vec<u8>| path.strip_prefix(&root[..]).and_then(|rest| rest.first().copied());
        self.leading(path).is_none()
            && self.roots.iter().filter_map(next).any(|next| next != b'/' && (!is_name(next) || next == b'.'))
    }

    fn embedded(&self, text: &[u8]) -> Option<(usize, &[u8])> {
        self.longest(|root| text.starts_with(root) && text.get(root.len()).is_none_or(|&next| !is_name(next)))
    }
}

/// Returns true for a directory that [`Roots::encode_above`] encoded.
pub fn is_above_root(encoded: &[u8]) -> bool {
    matches!(encoded, [PLACEHOLDER, _, PLACEHOLDER, levels] if *levels < NAMES_FROM)
}

/// Returns true if a part of a path contains a placeholder. It compares eight bytes at a time,
/// because a record has hundreds of short names.
pub fn is_encoded(part: &[u8]) -> bool {
    const ONES: u64 = u64::MAX / 0xff;
    let holds_zero = |word: u64| word.wrapping_sub(ONES) & !word & (ONES << 7) != 0;
    match (part.first_chunk::<8>(), part.last_chunk::<8>()) {
        (Some(_), Some(last)) => {
            let (whole, _) = part.as_chunks::<8>();
            holds_zero(u64::from_le_bytes(*last)) || whole.iter().any(|word| holds_zero(u64::from_le_bytes(*word)))
        }
        _ => part.iter().fold(false, |found, byte| found | (*byte == PLACEHOLDER)),
    }
}

/// Returns true if a slash after `before` begins a path: the byte before it cannot be part of a
/// path, or a flag of one letter such as `-I` is before it.
fn begins_a_path(before: &[u8]) -> bool {
    match before {
        [.., flag, letter] if *flag == b'-' && letter.is_ascii_alphabetic() => true,
        [.., last] => !is_name(*last) && *last != b'/',
        [] => true,
    }
}

/// Returns true if `byte` after a root makes it part of a longer name.
fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'+' | b'~' | b'%' | 0x80..)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roots() -> Roots {
        Roots::new([b"/a/b".to_vec(), b"/a/b/c".to_vec()])
    }

    fn check_path(path: &str, expect: &[u8]) {
        let mut encoded = Vec::new();
        roots().encode_path(path.as_bytes(), &mut encoded);
        assert_eq!(encoded, expect, "{path}");
        let mut back = Vec::new();
        assert!(roots().decode_path(&encoded, &mut back));
        assert_eq!(back, path.as_bytes());
    }

    #[test]
    fn paths() {
        check_path("/a/b", b"\0\x01");
        check_path("/a/b/x", b"\0\x01/x");
        check_path("/a/b/c/../x", b"\0\x02/../x");
        check_path("/a/bc", b"/a/bc");
        check_path("/a/b//x", b"\0\x01//x");
        check_path("/x/a/b", b"/x/a/b");
    }

    #[test]
    fn placeholders_are_found() {
        for length in 0..40 {
            let mut part = vec![0xff; length];
            assert!(!is_encoded(&part), "{length}");
            for at in 0..length {
                for byte in [0x01, 0x80, 0x00] {
                    part[at] = byte;
                    assert_eq!(is_encoded(&part), byte == PLACEHOLDER, "{at} of {length}");
                }
                part[at] = b'a';
            }
        }
    }

    #[test]
    fn text() {
        let check = |text: &str, expect: &[u8]| assert_eq!(roots().encode_text(text.as_bytes()), expect, "{text}");
        check("-I/a/b/inc", b"-I\0\x01/inc".as_slice());
        check("-DX=\"/a/b\"", b"-DX=\"\0\x01\"");
        check("/a/b:/a/b/c", b"\0\x01:\0\x02");
        check("x/a/b", b"x\0\x01");
        check("/a/b.d", b"/a/b.d");
        check("-fmap=/a/b=.", b"-fmap=\0\x01=.");
    }

    #[test]
    fn contents() {
        let check = |text: &str, expect: Option<&[u8]>| {
            assert_eq!(roots().encode_content(text.as_bytes()).as_deref(), expect, "{text}");
        };
        check("#define X \"/a/b/c\"\n", Some(b"#define X \"\0\x02\"\n"));
        check("-L/a/b x", Some(b"-L\0\x01 x"));
        check("in /a/b. Then", Some(b"in \0\x01. Then"));
        check("x/a/b", None);
        check("/a/bc", None);
        check("/a/b.c", None);
        check("\0/a/b", None);
        check("", None);
    }

    #[test]
    fn directories_above_a_root() {
        let there = Roots::new([b"/a/b/c".to_vec(), b"/x".to_vec()]);
        let check = |path: &str, expect: Option<&[u8]>| {
            let mut encoded = Vec::new();
            assert_eq!(there.encode_above(0, path.as_bytes(), &mut encoded), expect.is_some(), "{path}");
            assert_eq!(encoded, expect.unwrap_or_default(), "{path}");
        };
        check("/a", Some(b"\0\x01\0\x02"));
        check("/a/b", Some(b"\0\x01\0\x01"));
        for path in ["/a/b/c", "/a/b/c/d", "/a/", "/", "", "/x", "/ab", "/a/b/c2"] {
            check(path, None);
        }
        let here = |root: &str, encoded: &[u8]| {
            let mut path = Vec::new();
            let is_there = Roots::new([root.as_bytes().to_vec()]).decode_path(encoded, &mut path);
            is_there.then_some(String::from_utf8_lossy(&path).into_owned())
        };
        assert_eq!(here("/q/r/s/t", b"\0\x01\0\x02").as_deref(), Some("/q/r"));
        assert_eq!(here("/q/r", b"\0\x01\0\x01").as_deref(), Some("/q"));
        assert_eq!(here("/q/r", b"\0\x01\0\x02"), None);
        assert_eq!(here("/q", b"\0\x01\0\x01"), None);
        assert_eq!(there.outermost(b"/a/b/c/d"), Some(0));
        assert_eq!(roots().outermost(b"/a/b/c/d"), Some(0));
        assert_eq!(there.outermost(b"/a/b"), None);
        assert!(is_above_root(b"\0\x01\0\x02") && !is_above_root(b"\0\x01") && !is_above_root(b"\0\x01/a"));
    }

    #[test]
    fn neighbours() {
        let beside = |path: &str| roots().is_beside(path.as_bytes());
        assert!(beside("/a/b (2)/x") && beside("/a/b@2/x") && beside("/a/b.d"));
        assert!(!beside("/a/b") && !beside("/a/b/c (2)") && !beside("/a/bc") && !beside("/x"));
    }

    #[test]
    fn roots_in_each_other() {
        let nested = |paths: &[&str]| -> Vec<_> {
            Roots::new(paths.iter().map(|path| path.as_bytes().to_vec())).nested().collect()
        };
        assert_eq!(nested(&["/a/b", "/a/bc"]), []);
        assert_eq!(nested(&["/a/b/c/d", "/a/b", "/a/b/c"]), [(1, b"\0\x03/d".to_vec()), (3, b"\0\x02/c".to_vec())]);
    }

    #[test]
    fn names_by_chance() {
        let roots =
            roots().with_names([(b"cmTC_1a2b3".to_vec(), b"cmTC_*".to_vec()), (b"x42".to_vec(), b"x*".to_vec())]);
        let path = |path: &str, expect: &[u8]| {
            let mut encoded = Vec::new();
            roots.encode_path(path.as_bytes(), &mut encoded);
            assert_eq!(encoded, expect, "{path}");
            let mut back = Vec::new();
            assert!(roots.decode_path(&encoded, &mut back));
            assert_eq!(back, path.as_bytes());
        };
        path("/a/b/cmTC_1a2b3.dir/x", b"\0\x01/\0\x80.dir/x");
        path("/t/x42.c", b"/t/\0\x81.c");
        path("/t/x423.c", b"/t/x423.c");
        path("/t/ax42", b"/t/ax42");
        assert_eq!(roots.encode_text(b"-ox42.o"), b"-ox42.o", "part of a longer word");
        assert_eq!(roots.encode_text(b"-o=x42.o:/a/b"), b"-o=\0\x81.o:\0\x01");
        assert!(!Roots::default().decode_path(b"\0\x80", &mut Vec::new()));
        assert!(!Roots::default().decode_path(b"/a/\0\x80", &mut Vec::new()));
        assert!(!Roots::default().decode_names(b"\0", &mut Vec::new()));
    }

    #[test]
    fn an_unknown_root_is_refused() {
        assert!(!roots().decode_path(b"\0\x09/x", &mut Vec::new()));
        assert!(!roots().decode_path(b"\0", &mut Vec::new()));
        assert!(!roots().decode_path(b"\0\0", &mut Vec::new()));
    }
}
