//! Parses a depfile into words. The words stay quoted.
//!
//! Unaware of: what a word means, and where lines are wrapped.

/// One rule, followed by lines with rules without prerequisites (`-MP`).
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Depfile {
    pub(super) targets: Vec<Vec<u8>>,
    pub(super) prerequisites: Vec<Vec<u8>>,
    /// The targets of the rules without prerequisites, one per line. An empty line, which clang
    /// wrote between them before version 15, is empty here.
    pub(super) phony: Vec<Vec<u8>>,
}

impl Depfile {
    /// Parses a depfile. Returns `None` if the bytes are not what a compiler writes.
    pub(super) fn parse(bytes: &[u8]) -> Option<Depfile> {
        if bytes.contains(&0) {
            return None;
        }
        let end = end_of_rule(bytes)?;
        let (rule, rest) = bytes.split_at_checked(end)?;
        let words = words(rule);
        let colon = words.iter().position(|word| word.ends_with(b":"))?;
        let (targets, prerequisites) = words.split_at_checked(colon + 1)?;
        let mut targets: Vec<Vec<u8>> = targets.iter().map(|word| word.to_vec()).collect();
        targets.last_mut()?.pop();
        if targets.iter().any(Vec::is_empty) {
            return None;
        }
        let prerequisites = prerequisites.iter().map(|word| word.to_vec()).collect();
        let phony = rest.split_inclusive(|&c| c == b'\n').skip(1).map(phony).collect::<Option<_>>()?;
        Some(Depfile { targets, prerequisites, phony })
    }

    /// Returns the depfile with each word replaced. Returns `None` if `map` returns it for a word.
    pub(super) fn map_words(&self, map: &mut dyn FnMut(&[u8]) -> Option<Vec<u8>>) -> Option<Depfile> {
        let mut all = |words: &[Vec<u8>]| words.iter().map(|word| map(word)).collect::<Option<Vec<_>>>();
        Some(Depfile {
            targets: all(&self.targets)?,
            prerequisites: all(&self.prerequisites)?,
            phony: all(&self.phony)?,
        })
    }
}

/// Returns the position of the first newline that does not follow a backslash.
fn end_of_rule(bytes: &[u8]) -> Option<usize> {
    let mut newlines = memchr::memchr_iter(b'\n', bytes);
    newlines.find(|&at| at.checked_sub(1).and_then(|before| bytes.get(before)) != Some(&b'\\'))
}

/// Splits the rule at spaces and wrapped lines. A space after an odd number of backslashes belongs
/// to its word.
fn words(rule: &[u8]) -> Vec<&[u8]> {
    let mut words = Vec::new();
    let (mut start, mut at) = (0, 0);
    while at < rule.len() {
        let rest = rule.get(at..).unwrap_or_default();
        let gap = match rest {
            [b'\\', b'\n', ..] => 2,
            [b' ' | b'\t', ..] if !is_quoted(rule, at) => 1,
            _ => 0,
        };
        if gap > 0 {
            words.extend(rule.get(start..at).filter(|word| !word.is_empty()));
            start = at + gap;
        }
        at += gap.max(1);
    }
    words.extend(rule.get(start..).filter(|word| !word.is_empty()));
    words
}

fn is_quoted(rule: &[u8], at: usize) -> bool {
    let before = rule.get(..at).unwrap_or_default();
    before.iter().rev().take_while(|&&c| c == b'\\').count() % 2 == 1
}

/// Returns the name in a line that consists of a name, a colon and a newline. Returns an empty name
/// for an empty line.
fn phony(line: &[u8]) -> Option<Vec<u8>> {
    if line == b"\n" {
        return Some(Vec::new());
    }
    let name = line.strip_suffix(b":\n")?;
    matches!(words(name).as_slice(), [one] if *one == name).then(|| name.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_their_quotes() {
        let check = |rule: &str, expect: &[&str]| {
            let found: Vec<_> = words(rule.as_bytes()).iter().map(|word| String::from_utf8_lossy(word)).collect();
            assert_eq!(found, expect, "{rule}");
        };
        check("a: b \\\n c", &["a:", "b", "c"]);
        check("a\\ b c\\\\ d", &["a\\ b", "c\\\\", "d"]);
    }

    #[test]
    fn a_colon_ends_the_targets() {
        let depfile = Depfile::parse(b"a b: c:d e\n\nf:\n").expect("a depfile");
        assert_eq!(depfile.targets, [b"a".to_vec(), b"b".to_vec()]);
        assert_eq!(depfile.prerequisites, [b"c:d".to_vec(), b"e".to_vec()]);
        assert_eq!(depfile.phony, [b"".to_vec(), b"f".to_vec()]);
    }
}
