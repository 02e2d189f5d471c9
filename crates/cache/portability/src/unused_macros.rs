//! Finds the macros whose definitions hold a root path, such as those of a generated `config.h`,
//! and decides whether anything that was compiled can have used one. If not, nothing was derived
//! from the path, and the preprocessor need not run.
//!
//! A macro counts as used if its name occurs in a text, except in comments that begin a line. It
//! also counts as used if `##` may form its name from words in the texts, and in case of doubt.
//!
//! Unaware of: which texts were read.

use std::collections::HashSet;
use std::ops::Range;

use crate::c_words::{is_blank, splices};
use larder_model::{contains, contains_any, is_in_word, leading_word};
use memchr::{memchr_iter, memmem};

/// The words that gcc's predefined macros expand to (`gcc -dM -E -x c /dev/null`), besides numbers.
/// On other machines they expand to other words as well, which begin and end with `_`.
pub(crate) const BUILT_IN: [&[u8]; 19] = [
    b"__ORDER_LITTLE_ENDIAN__",
    b"__WCHAR_MAX__",
    b"__SIG_ATOMIC_MAX__",
    b"__int128",
    b"bool",
    b"c",
    b"char",
    b"double",
    b"float",
    b"int",
    b"long",
    b"short",
    b"signed",
    b"unsigned",
    b"void",
    b"L",
    b"LL",
    b"U",
    b"UL",
];

/// A longer macro name counts as used.
const NAME_BYTES_MAX: usize = 64;

/// Macros whose definitions hold a root path, and the parts of their names that occur in the texts.
pub(crate) struct Macros {
    names: Vec<Vec<u8>>,
    /// All parts of the names, and the names themselves.
    within: HashSet<Vec<u8>>,
    starts: Starts,
    longest: usize,
    found: HashSet<Vec<u8>>,
}

/// A quick filter: the first byte of each word, and the lower seven bits of its second byte. Most
/// other words do not pass it.
pub(crate) struct Starts([u128; 256]);

impl Macros {
    /// Finds the macros in `arguments` (as `-DX="/root"`) and in texts that hold a root path.
    /// Returns `None` if a root path occurs outside of macro definitions, or if one of these macros
    /// is used already.
    pub(crate) fn of(arguments: &[Vec<u8>], texts: &[Vec<u8>], roots: &[&[u8]]) -> Option<Macros> {
        let holds = |text: &[u8]| contains_any(text, roots);
        let (mut names, mut parts) = (Vec::new(), Vec::new());
        for argument in arguments {
            if holds(argument) {
                let (name, body) = name_and_body(argument.strip_prefix(b"-D")?)?;
                names.push(name);
                parts.push(body);
            } else {
                parts.push(argument);
            }
        }
        texts.iter().all(|text| divide(text, &holds, &mut names, &mut parts)).then_some(())?;
        names.iter().all(|name| is_plain(name)).then_some(())?;
        let mut macros = Macros::named(names);
        parts.iter().all(|part| macros.read(part)).then_some(macros)
    }

    /// Makes it for macros with these names.
    fn named(names: Vec<&[u8]>) -> Macros {
        let (mut within, mut starts) = (HashSet::new(), Starts::default());
        for name in &names {
            for start in 0..name.len() {
                within.extend((start + 1..=name.len()).map(|end| name[start..end].to_vec()));
            }
        }
        let longest = names.iter().map(|name| name.len()).max().unwrap_or(0);
        let names = names.into_iter().map(<[u8]>::to_vec).collect();
        within.iter().for_each(|word: &Vec<u8>| starts.add(word));
        Macros { names, within, starts, longest, found: HashSet::new() }
    }

    /// Returns true if there are no such macros.
    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Searches another text. Returns false if it uses one of the macros or cannot be searched.
    pub(crate) fn read(&mut self, text: &[u8]) -> bool {
        !hides_words(text) && !embeds_files(text) && self.take(text)
    }

    /// Searches a text in which every word is written plainly. Returns false if it uses one of the
    /// macros.
    fn take(&mut self, text: &[u8]) -> bool {
        let holds_raw_strings = contains(text, "R\"");
        // True if only blanks precede on this line, and the line is certain to begin here.
        let (mut at, mut begins) = (0, !holds_raw_strings);
        while let Some(&byte) = text.get(at) {
            if !is_in_word(byte) {
                let comment = if begins && byte == b'/' { comment(&text[at..]) } else { None };
                begins = match byte {
                    b'\n' => !holds_raw_strings && !is_continued(&text[..at]),
                    _ => begins && byte.is_ascii_whitespace(),
                };
                at += comment.map_or(1, <[u8]>::len);
                continue;
            }
            begins = false;
            let word = leading_word(&text[at..]);
            at += word.len();
            let may_be_within = word.len() <= self.longest && self.starts.may_be(word);
            if may_be_within && self.within.contains(word) {
                if self.names.iter().any(|name| name == word) {
                    return false;
                }
                if !self.found.contains(word) {
                    self.found.insert(word.to_vec());
                }
            }
        }
        true
    }

    /// Returns true if no macro can have been used in what was searched.
    pub(crate) fn are_unnamed(&self) -> bool {
        !self.names.iter().any(|name| self.may_be_pasted(name))
    }

    fn may_be_pasted(&self, name: &[u8]) -> bool {
        is_pasted_of(name, |word| self.found.contains(word))
    }
}

impl Default for Starts {
    fn default() -> Starts {
        Starts([0; 256])
    }
}

impl Starts {
    pub(crate) fn add(&mut self, word: &[u8]) {
        self.0[usize::from(word[0])] |= Starts::second(word);
    }

    /// Returns true if one of the words may begin as this word does.
    pub(crate) fn may_be(&self, word: &[u8]) -> bool {
        self.0[usize::from(word[0])] & Starts::second(word) != 0
    }

    fn second(word: &[u8]) -> u128 {
        1 << (word.get(1).copied().unwrap_or(0) & 0x7f)
    }
}

/// Returns true if a name can be formed from at least two words: those for which `is_there` is
/// true, those that gcc's predefined macros expand to, and numbers. Also returns true for a name
/// that is too long.
pub(crate) fn is_pasted_of(name: &[u8], is_there: impl Fn(&[u8]) -> bool) -> bool {
    let mut reached = [false; NAME_BYTES_MAX + 1];
    if name.len() > NAME_BYTES_MAX {
        return true;
    }
    reached[0] = true;
    for start in 0..name.len() {
        if !reached[start] {
            continue;
        }
        for end in start + 1..=name.len() {
            let word = &name[start..end];
            let is_whole = start == 0 && end == name.len();
            reached[end] |= !is_whole && (is_number(word) || is_there(word) || BUILT_IN.contains(&word));
        }
    }
    reached[name.len()]
}

/// Returns true if the name cannot be mistaken for a word that gcc's predefined macros expand to.
pub(crate) fn is_plain(name: &[u8]) -> bool {
    let may_be_gccs = name.starts_with(b"_") && name.ends_with(b"_") || BUILT_IN.contains(&name);
    name.len() <= NAME_BYTES_MAX && !may_be_gccs
}

/// Returns the name at the start of a definition, and what follows.
pub(crate) fn name_and_body(definition: &[u8]) -> Option<(&[u8], &[u8])> {
    let start = definition.trim_ascii_start();
    let (name, body) = start.split_at(leading_word(start).len());
    (!name.is_empty() && !name[0].is_ascii_digit()).then_some((name, body))
}

/// Splits a text at the names of macros whose definitions hold a root path. Returns false if a root
/// path occurs elsewhere, or if a line may not be the definition that it looks like.
fn divide<'t>(
    text: &'t [u8],
    holds: &dyn Fn(&[u8]) -> bool,
    names: &mut Vec<&'t [u8]>,
    parts: &mut Vec<&'t [u8]>,
) -> bool {
    // Inside a raw string, a line is not a directive.
    if contains(text, "R\"") {
        return false;
    }
    let (mut rest, mut line_at, mut continued) = (0, 0, false);
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        if holds(line) {
            let Some((name, _)) = definition(line).filter(|_| !continued) else { return false };
            let name_at = line_at + (name.as_ptr() as usize - line.as_ptr() as usize);
            parts.push(&text[rest..name_at]);
            rest = name_at + name.len();
            names.push(name);
        }
        continued = is_continued(line.strip_suffix(b"\n").unwrap_or(line));
        line_at += line.len();
    }
    parts.push(&text[rest..]);
    true
}

/// Returns the name and body of `# define X …`. Returns `None` for a line with `*/`, because code
/// may follow that.
fn definition(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let directive = line.trim_ascii_start().strip_prefix(b"#")?.trim_ascii_start();
    let rest = directive.strip_prefix(b"define").filter(|rest| rest.first().is_some_and(u8::is_ascii_whitespace))?;
    name_and_body(rest).filter(|_| !contains(line, "*/"))
}

/// Returns the comment at the start of a text, if it certainly ends at the first `*/`. A line
/// continuation could hide its end.
///
/// If a line begins with `/*`, a comment begins here or is already open, and it ends at the next
/// `*/` in both cases. A string cannot be open, because it would need a line continuation. `/*/` is
/// excluded, because it would end an open comment.
fn comment(text: &[u8]) -> Option<&[u8]> {
    let inside = text.strip_prefix(b"/*").filter(|inside| !inside.starts_with(b"/"))?;
    let end = memmem::find(inside, b"*/")?;
    let comment = &text[..end + 4];
    (!comment.contains(&b'\\')).then_some(comment)
}

/// Returns true if a line is continued on the next one.
pub(crate) fn is_continued(line: &[u8]) -> bool {
    line.iter().rev().find(|byte| !is_blank(**byte)) == Some(&b'\\')
}

/// Returns true if the text may hold words that a plain search does not find. The causes are binary
/// data, trigraphs, a word that is split by a line continuation, and a lone carriage return, which
/// ends a line for gcc.
pub(crate) fn hides_words(text: &[u8]) -> bool {
    let divides_a_word = |Range { start, end }: Range<usize>| {
        let before = start.checked_sub(1).map(|before| text[before]);
        let after = text.get(end).copied();
        // The prefix of a raw string, `R`, may be on one line and its quote on the next.
        before.is_some_and(is_in_word) && after.is_some_and(|byte| is_in_word(byte) || b"\\\"".contains(&byte))
    };
    let ends_a_line = |at: usize| text.get(at + 1) != Some(&b'\n');
    text.contains(&0)
        || contains(text, "??/")
        || splices(text).any(divides_a_word)
        || memchr_iter(b'\r', text).any(ends_a_line)
}

/// Returns true if the text may use `#embed`, which turns the bytes of a file into numbers. That
/// file may hold a root path.
fn embeds_files(text: &[u8]) -> bool {
    const WORD: &[u8] = b"embed";
    memmem::find_iter(text, WORD).any(|at| !text.get(at + WORD.len()).copied().is_some_and(is_in_word))
}

/// Returns true for a number as `__LINE__` and gcc's predefined macros give it.
fn is_number(word: &[u8]) -> bool {
    word[0].is_ascii_digit() && word.iter().all(|byte| byte.is_ascii_hexdigit() || b"xXuUlLpP".contains(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &[u8] =
        b"/* Generated. */\n#define HAVE 1\n #  define DATA_DIR \"/r/share\"\n#define F(x) \"/r\" x\n";

    /// Checks the answer for these texts. Those that hold a root path come first.
    fn check(texts: &[&[u8]], arguments: &[&[u8]], expect: bool) {
        let owned = |all: &[&[u8]]| all.iter().map(|bytes| bytes.to_vec()).collect::<Vec<_>>();
        let (rooted, others) = texts.split_at(texts.iter().filter(|text| contains(text, "/r")).count());
        let macros = Macros::of(&owned(arguments), &owned(rooted), &[b"/r"]);
        let unnamed =
            macros.is_some_and(|mut macros| others.iter().all(|text| macros.read(text)) && macros.are_unnamed());
        let shown = texts.iter().map(|text| String::from_utf8_lossy(text)).collect::<Vec<_>>();
        assert_eq!(unnamed, expect, "{shown:?} {arguments:?}");
    }

    #[test]
    fn what_nobody_names() {
        check(&[CONFIG, b"int x = HAVE; /* DATA, DIRS, DATA_ */"], &[], true);
        check(&[b"int x;"], &[b"-DDATA_DIR=\"/r\"", b"-DN=1"], true);
        check(&[b"int x;"], &[b"-DF(x)=\"/r\"x"], true);
        check(&[b"#define C(a, b) a ## b\nC(DATA, DIR)"], &[b"-DDATA_DIR=\"/r\""], true);
        check(&[b"no path"], &[], true);
    }

    #[test]
    fn what_is_named() {
        check(&[CONFIG, b"char *x = DATA_DIR;"], &[], false);
        check(&[CONFIG, b"F(1)"], &[], false);
        check(&[CONFIG, b"#ifdef DATA_DIR\n#endif"], &[], false);
        check(&[b"X"], &[b"-DX=DATA_DIR", b"-DDATA_DIR=\"/r\""], false);
        check(&[b"#define DATA_DIR \"/r\"\n#define X DATA_DIR\n"], &[], false);
        check(&[b"#define DATA_DIR \"/r\"\n#define DATA_DIR \"/r\"\n"], &[], true);
    }

    #[test]
    fn what_stands_in_comments() {
        check(&[CONFIG, b"/* DATA_DIR */ int x;\n  /* DATA_DIR\n * DATA_DIR\n */"], &[], true);
        check(&[b"#define HAVE 1\n/* DATA_DIR */\n#define DATA_DIR \"/r\"\n"], &[], true);
        let others = [
            &b"int x; /* DATA_DIR */"[..],
            b"/* */ DATA_DIR",
            b"/* /* */ DATA_DIR /* */ */",
            b"char *x = \"\\\n/*\"; char *y = DATA_DIR; /* */",
            b"// \\\n/* \nchar *y = DATA_DIR; /* */",
            b"R\"(\n/*)\" DATA_DIR /* */",
            b"R\\\n\"(\n/*)\" DATA_DIR /* */",
            b"/* *\\\n/ DATA_DIR /* */",
            b"/* DATA_DIR",
            b"int x; /*\n/*/ DATA_DIR /* */",
        ];
        others.iter().for_each(|text| check(&[CONFIG, text], &[], false));
    }

    #[test]
    fn what_may_be_pasted() {
        for parts in ["DATA,_DIR", "DATA_ DIR", "D ATA _D IR", "DATA_D\nR I"] {
            check(&[CONFIG, parts.as_bytes()], &[], false);
        }
        check(&[CONFIG, b"ATA_DIR _DIR IR"], &[], true);
        check(&[b"GLIB DIR"], &[b"-DGLIB20DIR=\"/r\""], false);
        check(&[b"GLIB"], &[b"-DGLIB20_DIR=\"/r\""], true);
        check(&[b"GLIB 20_DIR"], &[b"-DGLIB20_DIR=\"/r\""], false);
        check(&[b"GLIB"], &[b"-DGLIB_intL=\"/r\""], true);
        check(&[b"GLIB_"], &[b"-DGLIB_intL=\"/r\""], false);
        check(&[b"X"], &[b"-DINT=X", b"-Dint=\"/r\""], false);
        check(&[b"x"], &[b"-D__SIZE_TYPE__=\"/r\""], false);
    }

    #[test]
    fn where_it_stands_otherwise() {
        let others = [
            &b"char *x = \"/r\";\n"[..],
            b"#include \"/r/x.h\"\n",
            b"#define X \\\n \"/r\"\n",
            b"#define Y \\\n#define X \"/r\"\n",
            b"char *x = R\"(\n#define X \"/r\"\n)\";\n",
            b"/*\n#define X \"/r\" */ char *y = \"/r\";\n",
            b"#define 1 \"/r\"\n",
            b"#undefine X /r\n",
            b"#define X 1\rchar *x = \"/r\";\n",
        ];
        others.iter().for_each(|text| check(&[text], &[], false));
        check(&[b""], &[b"-UX/r"], false);
        check(&[b""], &[b"-Wp,-DX=/r"], false);
    }

    #[test]
    fn files_as_numbers() {
        check(&[CONFIG, b"# embed \"config.h\" limit(9)"], &[], false);
        check(&[CONFIG, b"/* for embedded systems */ int embedded;"], &[], true);
    }

    #[test]
    fn words_in_another_form() {
        for text in [&b"DATA\\\n_DIR"[..], b"DATA\\ \t\r\n_DIR", b"D\\\n\\\nATA_DIR", b"DATA??/\n_DIR", b"gpch\0DATA"] {
            check(&[CONFIG, text], &[], false);
        }
        check(&[CONFIG, b"#define X do \\\n while\nint a\\\n (void);"], &[], true);
        check(&[b"#define DATA_DIR \"/r\"\r\n#define X\r\n", b"int x;\r\n"], &[], true);
    }
}
