//! Macros that come to the name of a file, as `assert` does by `__FILE__`: whether what was compiled expands one for
//! certain, or none, so that the preprocessor need not be asked.
//!
//! A macro is one of them where its definition names such a word or another one of them. None is expanded where none is
//! named outside of their definitions, nor can be pasted together of words that stand there: what stands within a
//! definition is read only where that is expanded. What is in doubt counts as named.
//!
//! Unaware of: which texts were read.

use std::collections::HashMap;

use larder_store::{FILE_WORDS, is_in_word, names_files};

use crate::dead::{Line, Names, directive, is_include};
use crate::unnamed::{Macros, is_plain, name_and_body};

/// Whether the name of one of the first `wanted` texts stands for certain in what the preprocessor came to, by a macro
/// that is defined in any of them. Others may have been read.
pub(crate) fn a_file_is_named(names: &Names<'_>, texts: &[&[u8]], wanted: usize) -> bool {
    let mut search = Search::of(names, texts);
    loop {
        let is_growing = search.finds_more();
        let is_certain = |line: &Line| line.is_certain && names_for_certain(&line.code, &search.macros);
        if search.naming().any(|(index, line)| index < wanted && is_certain(line)) {
            return true;
        }
        if !is_growing {
            return false;
        }
    }
}

/// Whether no name of a file can stand in what the preprocessor came to, of a compile that read these texts and no
/// other, and was told these words.
pub(crate) fn no_file_is_named(names: &Names<'_>, texts: &[&[u8]], words: &[Vec<u8>]) -> bool {
    let mut search = Search::of(names, texts);
    loop {
        let is_growing = search.finds_more();
        if search.is_hidden || search.naming().next().is_some() || !search.macros.keys().all(|name| is_plain(name)) {
            return false;
        }
        if !is_growing {
            break;
        }
    }
    let mut macros = search.all();
    words.iter().all(|word| !names_files(word) && macros.take(word))
        && search.expanded().all(|(_, line)| macros.take(&line.code))
        && search.others().all(|text| macros.take(text))
        && macros.are_unnamed()
}

/// The macros that are known so far.
struct Search<'s> {
    names: &'s Names<'s>,
    texts: &'s [&'s [u8]],
    /// By name, and whether it is for certain that it is one of them.
    macros: HashMap<Vec<u8>, bool>,
    /// Those that were found last.
    fresh: Vec<Vec<u8>>,
    /// What is alive of each text in which one of the words or macros stands.
    mentioning: HashMap<usize, Vec<Line>>,
    /// Of one of these that is not known.
    is_hidden: bool,
}

impl<'s> Search<'s> {
    /// Those whose definitions name such words.
    fn of(names: &'s Names<'s>, texts: &'s [&'s [u8]]) -> Search<'s> {
        let (macros, mentioning) = (HashMap::new(), HashMap::new());
        let mut search = Search { names, texts, macros, fresh: Vec::new(), mentioning, is_hidden: false };
        search.look_into(names_files);
        search.define();
        search
    }

    /// Those whose definitions name one that is known; whether there are any.
    fn finds_more(&mut self) -> bool {
        let fresh = std::mem::take(&mut self.fresh);
        let mut these = Macros::named(fresh.iter().map(Vec::as_slice).collect());
        self.look_into(|text| !these.take(text));
        self.define();
        !self.fresh.is_empty()
    }

    fn look_into(&mut self, mut mentions: impl FnMut(&[u8]) -> bool) {
        for (index, text) in self.texts.iter().enumerate() {
            if !self.mentioning.contains_key(&index) && mentions(text) {
                let alive = self.names.alive(text);
                self.is_hidden |= alive.is_none();
                self.mentioning.insert(index, alive.unwrap_or_default());
            }
        }
    }

    fn define(&mut self) {
        let found = definitions(self.mentioning.values().flatten(), &self.macros);
        self.fresh = found.keys().cloned().collect();
        self.macros.extend(found);
    }

    fn all(&self) -> Macros {
        Macros::named(self.macros.keys().map(Vec::as_slice).collect())
    }

    /// By the texts' numbers.
    fn expanded(&self) -> impl Iterator<Item = (usize, &Line)> {
        let lines = self.mentioning.iter().flat_map(|(index, lines)| lines.iter().map(|line| (*index, line)));
        lines.filter(|(_, line)| is_expanded(&line.code, &self.macros))
    }

    /// The lines in which one of the words or macros stands and is expanded. A definition makes its own macro one.
    fn naming(&self) -> impl Iterator<Item = (usize, &Line)> {
        let mut all = self.all();
        let lines = self.expanded().filter(|(_, line)| definition(&line.code).is_none());
        lines.filter(move |(_, line)| names_files(&line.code) || !all.take(&line.code))
    }

    fn others(&self) -> impl Iterator<Item = &'s [u8]> {
        let texts = self.texts.iter().enumerate();
        texts.filter(|(index, _)| !self.mentioning.contains_key(index)).map(|(_, text)| *text)
    }
}

/// Further macros of which a definition stands in these lines that names such a word or one of `macros`.
fn definitions<'l>(lines: impl Iterator<Item = &'l Line>, macros: &HashMap<Vec<u8>, bool>) -> HashMap<Vec<u8>, bool> {
    let mut known = Macros::named(macros.keys().map(Vec::as_slice).collect());
    let mut found: HashMap<Vec<u8>, bool> = HashMap::new();
    for line in lines {
        let Some((name, body)) = definition(&line.code).filter(|(name, _)| !macros.contains_key(*name)) else {
            continue;
        };
        if names_files(body) || !known.take(body) {
            let is_certain = line.is_certain && names_for_certain(body, macros);
            found.entry(name.to_vec()).and_modify(|all| *all &= is_certain).or_insert(is_certain);
        }
    }
    found
}

fn definition(code: &[u8]) -> Option<(&[u8], &[u8])> {
    match directive(code)? {
        (b"define", rest) => name_and_body(rest),
        _ => None,
    }
}

/// Whether macros in this line are expanded: not in a definition of one of `macros`, which is read where that one is,
/// and not where a file is included by its name or a macro is none any more.
fn is_expanded(code: &[u8], macros: &HashMap<Vec<u8>, bool>) -> bool {
    match directive(code) {
        Some((b"define", rest)) => name_and_body(rest).is_none_or(|(name, _)| !macros.contains_key(name)),
        Some((word, rest)) if is_include(word) => {
            !rest.trim_ascii_start().first().is_some_and(|byte| b"\"<".contains(byte))
        }
        Some((b"undef", _)) => false,
        _ => true,
    }
}

/// Whether one stands there outside of strings and of which that is certain.
fn names_for_certain(code: &[u8], macros: &HashMap<Vec<u8>, bool>) -> bool {
    let (mut at, mut quote) = (0, None);
    while let Some(&byte) = code.get(at) {
        let length = match byte {
            b'\\' => 2,
            _ if is_in_word(byte) => code[at..].iter().position(|byte| !is_in_word(*byte)).unwrap_or(code.len() - at),
            _ => 1,
        };
        if quote.is_none() && is_in_word(byte) {
            let word = &code[at..at + length];
            if FILE_WORDS.contains(&word) || macros.get(word) == Some(&true) {
                return true;
            }
        }
        quote = match quote {
            Some(open) if open == byte => None,
            None if byte == b'"' || byte == b'\'' => Some(byte),
            other => other,
        };
        at += length;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASSERT: &str = "#define ensure(x) \\\n    do { if (!(x)) { \\\n print (#x, __FILE__); } } while (0)\n";

    #[derive(Debug, PartialEq)]
    enum Named {
        Never,
        Surely,
        Perhaps,
    }

    /// The first text is one of this place's.
    #[track_caller]
    fn check(texts: &[&str], words: &[&str], expect: Named) {
        let words: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        let texts: Vec<&[u8]> = texts.iter().map(|text| text.as_bytes()).collect();
        let names = |texts| Names::of(b"/usr/bin/gcc", &words, &words, texts).expect("is known");
        let is_sure = a_file_is_named(&names(&texts[..1]), &texts[..1], 1);
        let found = match no_file_is_named(&names(&texts), &texts, &words) {
            true => Named::Never,
            false if is_sure => Named::Surely,
            false => Named::Perhaps,
        };
        assert_eq!(found, expect, "{}", if is_sure { "for certain" } else { "" });
    }

    #[test]
    fn what_nobody_names() {
        check(&["int x;\n", ASSERT], &[], Named::Never);
        check(&["/* ensure */ int x; // ensure\n", ASSERT, "int ensured;\n"], &[], Named::Never);
        check(&["/* ensure */ int x; // ensure __FILE__\n#define A __FILE__\n", ASSERT], &[], Named::Never);
        check(&["/* A */ int x; // A __FILE__\n#define A __FILE__\n#undef A\n"], &[], Named::Never);
        check(&["#include <A.h>\n#include \"A.h\"\n#define A __FILE__\n"], &[], Named::Never);
        check(&["#ifdef OFF\nA\n#endif\n#define A __FILE__\n"], &[], Named::Never);
        check(&["#ifdef A\nint x;\n#endif\n#define A __FILE__\n"], &[], Named::Never);
        check(&["#define B A\n#define A __FILE__\n#define C(x) B\n", "int x;"], &[], Named::Never);
        check(&["int x;", "#define X(a, b) a##b\nX(ens, ured)\n", ASSERT], &[], Named::Never);
    }

    #[test]
    fn what_is_named_for_certain() {
        let check = |text: &str, words: &[&str], expect| check(&[&format!("{ASSERT}{text}")], words, expect);
        check("ensure(1);\n", &[], Named::Surely);
        check("char *s = __FILE__;\n", &[], Named::Surely);
        check("C(1)\n#define B A\n#define A __FILE__\n#define C(x) B\n", &[], Named::Surely);
        check("#ifndef G_H\n#define G_H\nensure(1);\n#endif\n", &["-DX"], Named::Surely);
        check("#ifdef X\nensure(1);\n#endif\n", &["-DX"], Named::Surely);
        check("#include A\n#define A __FILE__\n", &[], Named::Surely);
        check("#ifndef A\n#define A(x) ensure(x)\n#endif\nA(1);\n", &[], Named::Surely);
        check("#ifdef X\nensure(1);\n#endif\n", &[], Named::Never);
    }

    #[test]
    fn only_the_wanted_ones_count() {
        let texts = ["char *s = __FILE__;\n".as_bytes(), b"ensure(1);\n", ASSERT.as_bytes()];
        let is_named = |texts: &[&[u8]], wanted| a_file_is_named(&Names::likely(&[], &[], texts), texts, wanted);
        assert_eq!([0, 1].map(|wanted| is_named(&texts, wanted)), [false, true]);
        assert_eq!([0, 1].map(|wanted| is_named(&texts[1..], wanted)), [false, true]);
    }

    #[test]
    fn what_only_the_preprocessor_knows() {
        check(&["int x;\n", "ensure(1);\n", ASSERT], &[], Named::Perhaps);
        check(&["char *s = \"ensure\";\n", ASSERT], &[], Named::Perhaps);
        check(&["#if X > 1\nensure(1);\n#endif\n", ASSERT], &[], Named::Perhaps);
        check(&["A\n#if X > 1\n#define A __FILE__\n#endif\n"], &[], Named::Perhaps);
        check(&["int x;\n", ASSERT], &["-DF=ensure"], Named::Perhaps);
        check(&["int x;\n"], &["-DF=__FILE__"], Named::Perhaps);
        check(&["#define X(a, b) a##b\nX(ens, ure)(1);\n", ASSERT], &[], Named::Perhaps);
        check(&["#define X(a, b) a##b\nX(__FI, LE__)(1);\n"], &[], Named::Perhaps);
        check(&["#define _A __FILE__\n"], &[], Named::Perhaps);
        check(&["R\"(\n#define A __FILE__\n)\""], &[], Named::Perhaps);
        check(&[&format!("#define {} __FILE__\n", "A".repeat(100))], &[], Named::Perhaps);
    }
}
