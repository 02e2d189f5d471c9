//! Removes repeated lines from a long text, so that it can be searched for many words quickly. The
//! reason is automake's makefiles: curl's `tests/libtest/Makefile` has 95 MB, of which 1.5 MB are
//! different lines.
//!
//! Unaware of: the words that are searched for.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// A shorter text, in bytes, is returned unchanged.
const LONG_BYTES: usize = 256 << 10;
/// A text with more different sequences of three lines repeats too little to be shortened: the
/// table of them would be larger than the text.
const LINES_MAX: usize = 1 << 18;

/// Returns the text with each sequence of three consecutive lines kept once. So a search that looks
/// at a line and the two lines before it finds the same in both texts.
///
/// Empty lines count as part of the next line. The beginning and the end are kept. The text is
/// returned unchanged if it is shorter than 256 KiB or has too many different sequences.
pub fn without_repeats(text: &[u8]) -> Cow<'_, [u8]> {
    if text.len() < LONG_BYTES {
        return Cow::Borrowed(text);
    }
    let mut numbers: HashMap<&[u8], u32> = HashMap::new();
    let mut known: HashSet<[u32; 3]> = HashSet::new();
    let mut kept = Vec::new();
    // The offsets and the numbers of the two previous lines, and the offset up to which the text
    // was copied.
    let (mut begins, mut last, mut kept_to) = ([0; 2], [0; 2], 0);
    let mut at = 0;
    for line in lines(text) {
        let next = numbers.len() as u32 + 1;
        let number = *numbers.entry(line).or_insert(next);
        if known.insert([last[0], last[1], number]) {
            if known.len() > LINES_MAX {
                return Cow::Borrowed(text);
            }
            kept.extend_from_slice(&text[begins[0].max(kept_to)..at + line.len()]);
            kept_to = at + line.len();
        }
        (begins, last) = ([begins[1], at], [last[1], number]);
        at += line.len();
    }
    kept.extend_from_slice(&text[begins[1].max(kept_to)..]);
    Cow::Owned(kept)
}

/// Returns the lines, each together with the empty lines before it.
fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let mut end = 0;
        while end < rest.len() {
            let line = memchr::memchr(b'\n', &rest[end..]).map_or(rest.len(), |at| end + at + 1);
            let is_empty = rest[end..line].trim_ascii().is_empty();
            end = line;
            if !is_empty {
                break;
            }
        }
        let (line, next) = rest.split_at(end);
        rest = next;
        (!line.is_empty()).then_some(line)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_lines_are_no_lines() {
        let seen: Vec<&[u8]> = lines(b"a\n\n \nb\n\nc\n\n").collect();
        assert_eq!(seen, [&b"a\n"[..], b"\n \nb\n", b"\nc\n", b"\n"]);
        let filler = "x\n".repeat(200_000);
        let text = format!("set(x a\n\n\n  TIMESTAMP now)\nl1\nl2\n{filler}string(\n\n\n  TIMESTAMP now)\nl1\nl2\n");
        assert!(crate::names_cmake_clocks(&without_repeats(text.as_bytes())));
    }

    #[test]
    fn what_repeats_little_stays() {
        let text: String = (0..LINES_MAX + 1).map(|number| format!("{number}\n")).collect();
        assert!(matches!(without_repeats(text.as_bytes()), Cow::Borrowed(_)));
    }

    #[test]
    fn what_stands_in_a_long_text_stands_in_what_is_left() {
        let mut text = b"#!/bin/sh\n".to_vec();
        for number in 0..20_000 {
            text.extend(format!("\t-rm -f a{}.Po\n\t@rm b\n", number % 100).bytes());
        }
        text.extend(b"a &&\n\t@rm b\n\t@rm b\nx\n");
        for _ in 0..10_000 {
            text.extend(b"\t-rm -f a7.Po\n\t@rm b\n");
        }
        text.extend(b"cd -");
        let left = without_repeats(&text);
        assert!(left.len() < text.len() / 50, "{} of {} bytes are left", left.len(), text.len());
        assert!(left.starts_with(b"#!/bin/sh\n\t-rm -f a0.Po\n\t@rm b\n") && left.ends_with(b"\t@rm b\ncd -"));
        let lines = |text: &[u8]| -> HashSet<Vec<Vec<u8>>> {
            let lines: Vec<Vec<u8>> = text.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
            lines.windows(3).map(<[Vec<u8>]>::to_vec).collect()
        };
        let missing: Vec<_> = lines(&text).difference(&lines(&left)).cloned().collect();
        assert!(missing.is_empty(), "{missing:?}");
        assert_eq!(without_repeats(b"a\na\na\na\n"), Cow::Borrowed(b"a\na\na\na\n"));
    }
}
