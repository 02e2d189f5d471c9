//! Scans one text: which headers it may include, and whether it can read anything else.
//!
//! The text is read as a preprocessor reads it, but without its conditions, so a directive in an
//! inactive region counts. Line splices, comments and strings are recognized. If it is not certain
//! whether something is a comment or a string, it is treated as neither.
//!
//! Unaware of: where headers are.

use larder_model::{contains, contains_any};

use super::reason::{Reason, text};
use super::words::{Word, classify};

/// A header that a text includes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Include {
    pub(super) name: Vec<u8>,
    /// True for `"…"`, false for `<…>`.
    pub(super) quoted: bool,
    /// The search need not stop at the first match, and need not begin at the start of the search
    /// list. For example, `#include_next` and `#import` are searched in this way.
    pub(super) everywhere: bool,
}

/// What a text contains.
#[derive(Debug, Default)]
pub(super) struct Scan {
    pub(super) includes: Vec<Include>,
    /// It contains assembler text, by one of the compiler's keywords.
    pub(super) assembler: bool,
    /// Its strings could be pieces of an assembler directive.
    pub(super) pieces: bool,
}

/// Scans a text. `system` is true for a header in the compiler's own directories.
pub(super) fn scan(text: &[u8], system: bool) -> Result<Scan, Reason> {
    for trigraph in [&b"??/"[..], b"??="] {
        if contains(text, trigraph) {
            return Err("a trigraph".to_owned());
        }
    }
    let (text, certain) = without_comments(&spliced(text));
    let mut reader = Reader { text: &text, at: 0, certain, system, line_start: true, ..Reader::default() };
    reader.run()?;
    let joined = &reader.strings;
    if !system && contains_any(joined, &[".inc", "incbin"]) {
        reader.found.pieces = true;
    }
    if reader.pragma && contains(&text, "dependency") {
        return Err("_Pragma with a dependency".to_owned());
    }
    Ok(reader.found)
}

/// Removes line splices: a backslash, optional blanks, and a newline.
fn spliced(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        if text[at] == b'\\' {
            let blanks = text[at + 1..].iter().take_while(|b| b" \t\r\x0b\x0c".contains(b)).count();
            if text.get(at + 1 + blanks) == Some(&b'\n') {
                at += blanks + 2;
                continue;
            }
        }
        out.push(text[at]);
        at += 1;
    }
    out
}

/// Replaces each comment by a blank. The second value is the offset from which strings are not
/// certain. From there on the text is copied as it is.
fn without_comments(text: &[u8]) -> (Vec<u8>, usize) {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        match (text[at], text.get(at + 1)) {
            (b'/', Some(b'*')) => {
                let end = text[at + 2..].windows(2).position(|two| two == b"*/");
                at = end.map_or(text.len(), |end| at + 2 + end + 2);
                out.push(b' ');
            }
            (b'/', Some(b'/')) => {
                at += text[at..].iter().position(|&b| b == b'\n').unwrap_or(text.len() - at);
                out.push(b' ');
            }
            (b'"' | b'\'', _) => {
                let end = literal_end(text, at);
                if is_uncertain(text, at, end) {
                    let certain = out.len();
                    out.extend_from_slice(&text[at..]);
                    return (out, certain);
                }
                // A digit separator is copied by itself.
                let end = if text[at] == b'\'' && follows_number(text, at) { at + 1 } else { end };
                out.extend_from_slice(&text[at..end]);
                at = end;
            }
            (byte, _) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    let certain = out.len();
    (out, certain)
}

/// Returns the offset behind the quote that closes the one at `at`, or the end of its line.
fn literal_end(text: &[u8], at: usize) -> usize {
    let mut end = at + 1;
    while end < text.len() && text[end] != b'\n' {
        match text[end] {
            b'\\' if text.get(end + 1).is_some_and(|&b| b != b'\n') => end += 2,
            byte if byte == text[at] => return end + 1,
            _ => end += 1,
        }
    }
    end.min(text.len())
}

/// Returns true if a literal is ambiguous. Either it is a raw string, which only some languages
/// have, or it is a `'` in a number, which others take for the start of a character.
fn is_uncertain(text: &[u8], at: usize, end: usize) -> bool {
    let commented = contains_any(&text[at..end], &["//", "/*"]);
    let quoted = text[at + 1..end].contains(&b'"');
    match text[at] {
        b'"' => at > 0 && text[at - 1] == b'R',
        _ => follows_number(text, at) && (commented || quoted),
    }
}

/// Returns true if the quote stands in a number, as in `1'000`.
fn follows_number(text: &[u8], at: usize) -> bool {
    let word = text[..at].iter().rev().take_while(|&&b| is_word(b) || b == b'\'').count();
    word > 0 && text[at - word].is_ascii_digit()
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || byte >= 0x80
}

/// The walk over a text without comments.
#[derive(Default)]
struct Reader<'a> {
    text: &'a [u8],
    at: usize,
    certain: usize,
    system: bool,
    line_start: bool,
    /// The current line is a `#define`.
    defining: bool,
    pragma: bool,
    before: &'a [u8],
    /// The contents of all strings, joined.
    strings: Vec<u8>,
    found: Scan,
}

impl<'a> Reader<'a> {
    fn run(&mut self) -> Result<(), Reason> {
        while let Some(&byte) = self.text.get(self.at) {
            let line_start = self.line_start;
            self.line_start &= byte.is_ascii_whitespace();
            match byte {
                b'\n' => (self.line_start, self.defining) = (true, false),
                b'#' => self.hash(1, line_start)?,
                b'%' if self.text.get(self.at + 1) == Some(&b':') => self.hash(2, line_start)?,
                b'"' | b'\'' if self.at < self.certain => {
                    self.literal()?;
                    continue;
                }
                b'.' => self.dot()?,
                _ if is_word(byte) => {
                    self.word(line_start)?;
                    continue;
                }
                _ => {}
            }
            self.at += 1;
        }
        Ok(())
    }

    /// Handles `#` or `%:`, which is `length` bytes long.
    fn hash(&mut self, length: usize, line_start: bool) -> Result<(), Reason> {
        let start = self.at;
        self.at += length;
        if !line_start && self.at < self.certain {
            // `##` does not matter here: the pieces of a refused word are refused themselves.
            let pastes = self.text[self.at..].starts_with(b"#") || self.text[..start].ends_with(b"#");
            self.found.pieces |= self.defining && !pastes && !self.system;
            self.at = start;
            return Ok(());
        }
        self.blanks();
        match self.take_word() {
            b"include" => self.header(false)?,
            b"include_next" | b"import" => self.header(true)?,
            b"embed" => return Err("#embed".to_owned()),
            b"define" => (self.defining, self.before) = (true, b"define"),
            word => self.before = word,
        }
        self.at -= 1;
        Ok(())
    }

    /// Parses the name of an include directive.
    fn header(&mut self, everywhere: bool) -> Result<(), Reason> {
        self.blanks();
        let computed = || "a computed include".to_owned();
        let close = match self.text.get(self.at) {
            Some(b'"') => b'"',
            Some(b'<') => b'>',
            _ => return Err(computed()),
        };
        let rest = &self.text[self.at + 1..];
        let end = rest.iter().position(|&b| b == close || b == b'\n').filter(|&end| rest[end] == close);
        let name = &rest[..end.ok_or_else(computed)?];
        if name.is_empty() || name.contains(&0) {
            return Err(computed());
        }
        self.found.includes.push(Include { name: name.to_vec(), quoted: close == b'"', everywhere });
        self.at += name.len() + 2;
        Ok(())
    }

    fn literal(&mut self) -> Result<(), Reason> {
        let (start, quote) = (self.at, self.text[self.at]);
        if quote == b'\'' && follows_number(self.text, start) {
            self.at += 1;
            return Ok(());
        }
        self.at = literal_end(self.text, start);
        let content = &self.text[start..self.at];
        if quote == b'"' && !self.system {
            let content = content[1..].strip_suffix(b"\"").unwrap_or(&content[1..]);
            if contains_any(content, &["incbin", ".inc"]) {
                return Err("a string with .inc in it, which the assembler may read".to_owned());
            }
            let coded = |two: &[u8]| two[0] == b'\\' && (b"xuUN".contains(&two[1]) || two[1].is_ascii_digit());
            self.found.pieces |= content.windows(2).any(coded);
            self.strings.extend_from_slice(content);
        }
        Ok(())
    }

    /// Refuses `.inc` unless it is a member of a struct. It may be a directive of the assembler
    /// that a macro turns into a string.
    fn dot(&mut self) -> Result<(), Reason> {
        let before = self.text[..self.at].iter().rev().find(|b| !b.is_ascii_whitespace());
        let member = before.is_some_and(|&b| is_word(b) || b")]>".contains(&b));
        if !self.system && !member && self.text[self.at..].starts_with(b".inc") {
            return Err(".inc outside a string".to_owned());
        }
        Ok(())
    }

    fn word(&mut self, line_start: bool) -> Result<(), Reason> {
        let word = self.take_word();
        let before = std::mem::replace(&mut self.before, word);
        let refused = |word: &[u8]| Err(text(word));
        let exports = before == b"export" && matches!(word, b"import" | b"module");
        if exports || line_start && matches!(word, b"import" | b"module") || (before, word) == (b"GCC", b"dependency") {
            return refused(word);
        }
        self.pragma |= word == b"_Pragma";
        match classify(word, self.system) {
            Word::Plain => Ok(()),
            Word::Refused => refused(word),
            Word::Assembler => {
                self.found.assembler |= !self.system;
                Ok(())
            }
            Word::HasInclude if matches!(before, b"defined" | b"ifdef" | b"ifndef" | b"define") => Ok(()),
            Word::HasInclude => {
                self.blanks();
                if self.text.get(self.at) != Some(&b'(') {
                    return if self.asked_for() { Ok(()) } else { refused(word) };
                }
                self.at += 1;
                self.header(true).or_else(|_| refused(word))
            }
        }
    }

    /// Returns true if the line tests with `defined (…)` whether this macro exists.
    fn asked_for(&self) -> bool {
        let line = self.text[..self.at].rsplit(|&b| b == b'\n').next().unwrap_or_default();
        self.text.get(self.at) == Some(&b')') && contains(line, "defined")
    }

    fn take_word(&mut self) -> &'a [u8] {
        let rest = &self.text[self.at..];
        let length = rest.iter().take_while(|&&b| is_word(b)).count();
        self.at += length;
        &rest[..length]
    }

    fn blanks(&mut self) {
        self.at += self.text[self.at..].iter().take_while(|b| b" \t\r\x0b\x0c".contains(b)).count();
    }
}

#[cfg(test)]
#[path = "scan_tests.rs"]
mod tests;
