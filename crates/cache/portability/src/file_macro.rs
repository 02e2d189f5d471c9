//! Finds uses of macros that expand to a file name, such as `assert`, which uses `__FILE__`. It
//! answers whether what was compiled certainly expands such a macro, or certainly expands none. The
//! preprocessor has to run only if neither is certain.
//!
//! A macro is one of these if its definition contains `__FILE__`, a word like it, or another such
//! macro. None is expanded if none is written outside of definitions and none can be formed by `##`
//! from what is written there. In case of doubt a macro counts as used.
//!
//! Unaware of: which texts were read.

use crate::c_words::{FILE_FUNCTIONS, FILE_WORDS, names_files};
use larder_model::quick::{Map, Set};
use larder_model::{is_in_word, leading_word};

use crate::inactive_regions::{Alive, Names};
use crate::macro_table::{Defined, definition, is_expanded};
use crate::unused_macros::is_plain;

/// `__FILE__` expands to the name of the text that contains it, and gcc's `__PRETTY_FUNCTION__` to
/// no file name. The other words may give the name of another text, such as the source.
const OF_ITS_OWN_TEXT: [&[u8]; 2] = [b"__FILE__", b"__PRETTY_FUNCTION__"];

/// Returns true if one of the first `wanted` texts certainly expands a macro to its own file name.
/// The macro may be defined in any of the texts. There may be further texts.
pub(crate) fn a_file_is_named(names: &Names<'_>, texts: &[&[u8]], wanted: usize) -> bool {
    let alive: Vec<Alive> = texts.iter().map(|text| names.alive(text).unwrap_or_default()).collect();
    // For each macro: its bodies, and whether each is certainly in force.
    let mut definitions: Map<&[u8], Vec<(&[u8], bool)>> = Map::default();
    for line in alive.iter().flat_map(Alive::lines) {
        if let Some((name, body)) = definition(line.code) {
            definitions.entry(name).or_default().push((body, line.is_certain));
        }
    }
    let mut certain: Set<&[u8]> = FILE_WORDS.into_iter().collect();
    loop {
        let comes_to_one = |(body, is_certain): &(&[u8], bool)| *is_certain && names_for_certain(body, &certain);
        let more = definitions.iter().filter(|(_, bodies)| bodies.iter().all(comes_to_one)).map(|(name, _)| *name);
        let more: Vec<&[u8]> = more.filter(|name| !certain.contains(name)).collect();
        if more.is_empty() {
            break;
        }
        certain.extend(more);
    }
    let mut lines = alive[..wanted].iter().flat_map(Alive::lines).filter(|line| line.is_certain);
    lines.any(|line| is_expanded(line.code) && names_for_certain(line.code, &certain))
}

/// Returns true if no file name of one of the first `wanted` texts can be in the output of gcc's
/// preprocessor. The compile must have read exactly these texts, with the preprocessor options
/// `words`. The source is among the first texts.
pub(crate) fn no_file_is_named(names: &Names<'_>, texts: &[&[u8]], wanted: usize, words: &[Vec<u8>]) -> bool {
    let alive: Option<Vec<Alive>> = texts.iter().map(|text| names.alive(text)).collect();
    let Some(alive) = alive.filter(|_| !words.iter().any(|word| names_files(word))) else { return false };
    let all: Vec<&[u8]> = FILE_WORDS.into_iter().chain(FILE_FUNCTIONS).collect();
    let Some(defined) = Defined::of(&alive, words, &all) else { return false };
    let near = defined.reaching(all.iter().copied());
    // Only by these words can another text give the file name of a wanted one.
    let far = defined.reaching(all.iter().copied().filter(|word| !OF_ITS_OWN_TEXT.contains(word)));
    let is_known = |name: &&[u8]| all.contains(name) || is_plain(name);
    let is_unnamed = |texts, words: &Set<&[u8]>, ours| {
        let pieces = defined.pieces(texts, words, ours);
        pieces.is_some_and(|pieces| !words.iter().any(|word| pieces.may_make(word)))
    };
    near.iter().all(is_known) && is_unnamed(&alive[..wanted], &near, true) && is_unnamed(&alive[wanted..], &far, false)
}

/// Returns true if one of the words occurs outside of strings.
fn names_for_certain(code: &[u8], words: &Set<&[u8]>) -> bool {
    let (mut at, mut quote) = (0, None);
    while let Some(&byte) = code.get(at) {
        let length = match byte {
            b'\\' => 2,
            _ if is_in_word(byte) => leading_word(&code[at..]).len(),
            _ => 1,
        };
        if quote.is_none() && is_in_word(byte) && words.contains(&code[at..at + length]) {
            return true;
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

    /// The first text is inside the checkout.
    #[track_caller]
    fn check(texts: &[&str], words: &[&str], expect: Named) {
        let words: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        let texts: Vec<&[u8]> = texts.iter().map(|text| text.as_bytes()).collect();
        let names = |texts| Names::of(b"/usr/bin/gcc", &words, &words, texts).expect("is known");
        let is_sure = a_file_is_named(&names(&texts[..1]), &texts[..1], 1);
        let found = match no_file_is_named(&names(&texts), &texts, 1, &words) {
            true => Named::Never,
            false if is_sure => Named::Surely,
            false => Named::Perhaps,
        };
        assert_eq!(found, expect, "{}", if is_sure { "for certain" } else { "" });
    }

    #[test]
    fn what_nobody_names() {
        check(&["int x;\n", ASSERT], &[], Named::Never);
        check(&["/* ensure */ int x; // ensure\n", ASSERT, "int ensured;\n"], &["-DF=ensure"], Named::Never);
        check(&["/* ensure */ int x; // ensure __FILE__\n#define A __FILE__\n", ASSERT], &[], Named::Never);
        check(&["/* A */ int x; // A __FILE__\n#define A __FILE__\n#undef A\n"], &[], Named::Never);
        check(&["#include <A.h>\n#include \"A.h\"\n#define A __FILE__\n"], &[], Named::Never);
        check(&["#ifdef OFF\nA\n#endif\n#define A __FILE__\n"], &[], Named::Never);
        check(&["#ifdef A\nint x;\n#endif\n#define A __FILE__\n#define _b A\n"], &[], Named::Never);
        check(&["#define B A\n#define A __FILE__\n#define C(x) B\n", "int x;"], &[], Named::Never);
        check(&["int x;", "#define X(a, b) a##b\nX(ens, ured)\n", ASSERT], &[], Named::Never);
        // The macro is used in another text, and gives that text's name.
        check(&["int x;\n", "ensure(1);\nchar *x = __FILE__;\n", ASSERT], &[], Named::Never);
        check(&["int x;\n", "#define X(a, b) a##b\nX(ens, ure)(1);\n", ASSERT], &[], Named::Never);
        // Macros like those of libc.
        let libcs = "#define __lib_x(f) __ ## f ## _alias\ntypedef struct _IO_FILE __FILE;\n";
        check(&["FILE *x;\n", "#define X(a, b) a##b\nX(a, b)\n", libcs, ASSERT], &[], Named::Never);
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
        check(&["char *s = \"ensure\";\n", ASSERT], &[], Named::Perhaps);
        check(&["#if X > 1\nensure(1);\n#endif\n", ASSERT], &[], Named::Perhaps);
        check(&["A\n#if X > 1\n#define A __FILE__\n#endif\n"], &[], Named::Perhaps);
        check(&["F(1)\n", ASSERT], &["-DF=ensure"], Named::Perhaps);
        check(&["int x;\n", ASSERT], &["-imacros ensure"], Named::Perhaps);
        check(&["int x;\n"], &["-DF=__FILE__"], Named::Perhaps);
        check(&["#define X(a, b) a##b\nX(ens, ure)(1);\n", ASSERT], &[], Named::Perhaps);
        check(&["#define X(a, b) a##b\nX(__FI, LE__)(1);\n"], &[], Named::Perhaps);
        check(&["#define _A_ __FILE__\n"], &[], Named::Perhaps);
        check(&["#define X(a, b) a##b\nX(__FILE, __)\n"], &[], Named::Perhaps);
        check(&["X(__FILE, __)\n", "#define X(a, b) a##b\n"], &[], Named::Perhaps);
        check(&["char *x = Y(FILE__);\n", "#define X(a, b) a##b\n#define Y(a) X(__, a)\n"], &[], Named::Perhaps);
        check(&["char *x = X(FILE__);\n", "#define X(f) __ ## f\n"], &[], Named::Perhaps);
        check(&["char *x = X(FILE)();\n", "#define X(f) __builtin_ ## f\n"], &[], Named::Perhaps);
        // Another text uses the macro.
        check(&["int x;\n", "char *x = __BASE_FILE__;\n"], &[], Named::Perhaps);
        check(&["int x;\n", "A\n#define A B\n#define B __BASE_FILE__\n"], &[], Named::Perhaps);
        check(&["int x;\n", "void f(char * = __builtin_FILE());\n"], &[], Named::Perhaps);
        check(&["int x;\n", "#define X(a, b) a##b\nX(__BASE_, FILE__)\n"], &[], Named::Perhaps);
        check(&["R\"(\n#define A __FILE__\n)\""], &[], Named::Perhaps);
        check(&[&format!("#define {} __FILE__\n", "A".repeat(100))], &[], Named::Perhaps);
    }
}
