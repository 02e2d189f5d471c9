//! The words of C: which bytes form one, where a line continues in the next one, and the words that
//! a compiler replaces by the path of a file.
//!
//! Unaware of: macros, conditions, which texts were read.

use std::borrow::Cow;
use std::ops::Range;

use larder_model::{contains_any, is_in_word, leading_word, trailing_word};
use memchr::memmem;

/// The macros that expand to the path of a file.
pub(crate) const FILE_WORDS: [&[u8]; 2] = [b"__BASE_FILE__", b"__FILE__"];

/// Functions that return the path of a file, and a variable that can contain one.
pub(crate) const FILE_FUNCTIONS: [&[u8]; 4] =
    [b"__builtin_FILE", b"__builtin_source_location", b"__builtin_dump_struct", b"__PRETTY_FUNCTION__"];

/// Returns true if a text contains a word that becomes the path of a file, or a piece of one.
/// Pieces count because `##` can join them.
pub fn names_files(text: &[u8]) -> bool {
    /// The beginning of the first piece of such a word.
    const STARTS: [&[u8]; 3] = [b"__B", b"__F", b"__builtin_"];
    // This is also called for single lines, most of which have no underscore.
    if !text.contains(&b'_') {
        return false;
    }
    let text = &*without_splices(text);
    let begins = |word: &[u8]| {
        let is_piece = |name: &&[u8]| name.len() > word.len() && name.starts_with(word);
        FILE_WORDS.iter().chain(&FILE_FUNCTIONS[..3]).any(is_piece)
    };
    let is_start = |at: usize| (at == 0 || !is_in_word(text[at - 1])) && begins(word_around(text, at));
    let is_end = |at: usize| {
        text.get(at + 3).is_none_or(|b| !is_in_word(*b)) && {
            let word = word_around(text, at);
            FILE_WORDS.iter().any(|name| name.ends_with(word))
        }
    };
    contains_any(text, &FILE_FUNCTIONS)
        || memmem::find_iter(text, b"E__").any(is_end)
        || STARTS.iter().any(|start| memmem::find_iter(text, start).any(is_start))
        || memmem::find_iter(text, b"FILE").any(|at| is_beside_underscores(text, at))
        || memmem::find_iter(text, b"__").any(|at| is_only_underscores(text, at) && has_another(text, at))
}

/// Returns true if the word there is `FILE` or `BASE_FILE` with any underscores around it, and its
/// line also has a word of underscores only.
fn is_beside_underscores(text: &[u8], at: usize) -> bool {
    let word = word_around(text, at);
    let start = word.iter().position(|b| *b != b'_').unwrap_or(0);
    let end = word.iter().rposition(|b| *b != b'_').map_or(0, |last| last + 1);
    [&b"FILE"[..], b"BASE_FILE"].contains(&&word[start..end]) && {
        let line = line_around(text, at);
        memchr::memchr_iter(b'_', line).any(|at| word_around(line, at).iter().all(|b| *b == b'_'))
    }
}

fn is_only_underscores(text: &[u8], at: usize) -> bool {
    word_around(text, at) == b"__"
}

fn has_another(text: &[u8], at: usize) -> bool {
    let line = line_around(text, at);
    memmem::find_iter(line, b"__").filter(|at| is_only_underscores(line, *at)).count() > 1
}

fn line_around(text: &[u8], at: usize) -> &[u8] {
    let start = memchr::memrchr(b'\n', &text[..at]).map_or(0, |last| last + 1);
    let end = memchr::memchr(b'\n', &text[at..]).map_or(text.len(), |length| at + length);
    &text[start..end]
}

fn word_around(text: &[u8], at: usize) -> &[u8] {
    &text[at - trailing_word(&text[..at]).len()..at + leading_word(&text[at..]).len()]
}

/// Returns true if gcc allows this byte between a backslash and the end of the line that it
/// continues.
pub(crate) fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | 0x0b | 0x0c)
}

/// Returns where lines are continued in the next line: from the backslash to after the newline. gcc
/// allows blanks between them.
pub(crate) fn splices(text: &[u8]) -> impl Iterator<Item = Range<usize>> {
    memchr::memchr_iter(b'\\', text).filter_map(move |at| {
        let end = at + 1 + text[at + 1..].iter().take_while(|byte| is_blank(**byte)).count();
        (text.get(end) == Some(&b'\n')).then_some(at..end + 1)
    })
}

/// Returns the text with continued lines joined, if a word is continued in the next line.
fn without_splices(text: &[u8]) -> Cow<'_, [u8]> {
    let is_next_to_word = |Range { start, end }: Range<usize>| {
        let before = start.checked_sub(1).map(|before| text[before]);
        before.is_some_and(|b| is_in_word(b) || b == b'\n')
            && text.get(end).is_some_and(|b| is_in_word(*b) || *b == b'\\')
    };
    if !splices(text).any(is_next_to_word) {
        return Cow::Borrowed(text);
    }
    let (mut whole, mut from) = (Vec::with_capacity(text.len()), 0);
    for splice in splices(text) {
        whole.extend_from_slice(&text[from..splice.start]);
        from = splice.end;
    }
    whole.extend_from_slice(&text[from..]);
    Cow::Owned(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_name_files() {
        let named = [
            &b"assert(__FILE__)"[..],
            b"X(__FI, LE__)",
            b"p(E__)",
            b"__BASE_FILE__",
            b"__builtin_FILE()",
            b"X(__FILE, __)",
            b"X(__BASE_F, a)",
            b"X(__builtin_, FILE)",
            b"X(__, FILE, __)",
            b"X(_, _FILE, __)",
            b"X(__, FI, LE, __)",
            b"__FI\\\nLE__",
            b"__FILE_\\ \t\n_",
            b"__FIL\\\n\\\nE__",
            b"__builtin_FI\\\r\nLE()",
        ];
        named.into_iter().for_each(|text| assert!(names_files(text), "{}", String::from_utf8_lossy(text)));
        let none = [
            &b"#ifndef X_INCLUDE__\n"[..],
            b"__FILE__x",
            b"E__x",
            b"FILE *f;",
            b"__TABLE__",
            b"__CONCAT(__, name)",
            b"FILE *f;\nx = _(\"y\");",
            b"_(\"y\"); _(\"z\");",
            b"__builtin_expect(x, 1) \\\n    __FILEx",
        ];
        none.into_iter().for_each(|text| assert!(!names_files(text), "{}", String::from_utf8_lossy(text)));
    }
}
