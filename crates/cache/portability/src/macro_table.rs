//! The macro definitions of some texts: which macros expand to given words, and which words can be
//! formed by `##`.
//!
//! Words are formed only near the use of a macro with `##`, or of a macro that contains such a one.
//! They are formed from the words around that use: those of the lines up to the closing
//! parenthesis, and those in the bodies of macros used there. In case of doubt a macro counts as
//! used, and a word as formed.
//!
//! Unaware of: which words matter.

use larder_model::quick::{Map, Set};
use larder_model::{contains, is_in_word};

use crate::inactive_regions::{Alive, Line, directive, is_include, may_be_in_a_number};
use crate::unused_macros::{BUILT_IN, Starts, is_pasted_of, name_and_body};

/// Macros that gcc predefines with `##`. They append the suffix of a number to their argument.
const PASTING: [&[u8]; 10] = [
    b"__INT8_C",
    b"__INT16_C",
    b"__INT32_C",
    b"__INT64_C",
    b"__INTMAX_C",
    b"__UINT8_C",
    b"__UINT16_C",
    b"__UINT32_C",
    b"__UINT64_C",
    b"__UINTMAX_C",
];

/// All macros that are defined in some texts and arguments.
pub(crate) struct Defined<'t> {
    bodies: Map<&'t [u8], Vec<&'t [u8]>>,
    /// For each word, the macros whose bodies contain it.
    naming: Map<&'t [u8], Vec<&'t [u8]>>,
    /// Macros that use `##`, and macros that contain one of these.
    pasting: Set<&'t [u8]>,
    /// Words in arguments other than `-D`, which may mean anything.
    told: Vec<&'t [u8]>,
}

/// Words from which `##` may form other words.
#[derive(Default)]
pub(crate) struct Pieces<'t> {
    words: Set<&'t [u8]>,
    starts: Starts,
}

/// How the parentheses of a text are nested.
struct Shape {
    /// All conditions and the end of the text are outside of parentheses, and strings are
    /// recognised with certainty.
    is_known: bool,
    /// A text is included inside parentheses.
    includes_within: bool,
}

impl<'t> Defined<'t> {
    /// Collects the macros of these texts and of the preprocessor options `arguments`. Of the words
    /// that are not macros, only those in `words` are known to [`Defined::reaching`]. Returns
    /// `None` if a macro's name has unusual characters, or if an argument may use `##` in a form
    /// that is not searched for.
    pub(crate) fn of(texts: &'t [Alive], arguments: &'t [Vec<u8>], words: &[&[u8]]) -> Option<Defined<'t>> {
        let mut bodies: Map<_, Vec<_>> = Map::default();
        let mut told = Vec::new();
        for argument in arguments {
            match argument.strip_prefix(b"-D").and_then(name_and_body) {
                Some((name, body)) => bodies.entry(name).or_default().push(body),
                None if contains(argument, "##") => return None,
                None => told.extend(self::words(argument)),
            }
        }
        if arguments.iter().any(|argument| contains(argument, "%:")) {
            return None;
        }
        for line in texts.iter().flat_map(Alive::lines) {
            if let Some((b"define", rest)) = directive(line.code) {
                let (name, body) = name_and_body(rest)?;
                bodies.entry(name).or_default().push(body);
            }
        }
        let mut naming: Map<&[u8], Vec<&[u8]>> = Map::default();
        let mut pasting = Set::default();
        let is_known = |word: &&[u8]| bodies.contains_key(word) || words.contains(word) || PASTING.contains(word);
        for (name, body) in bodies.iter().flat_map(|(name, bodies)| bodies.iter().map(|body| (*name, *body))) {
            if contains(body, "##") {
                pasting.insert(name);
            }
            for word in self::words(body).filter(is_known) {
                naming.entry(word).or_default().push(name);
            }
        }
        let mut all = Defined { bodies, naming, pasting: Set::default(), told };
        all.pasting = all.reaching(pasting.into_iter().chain(PASTING));
        Some(all)
    }

    /// Returns these words and all macros whose expansion contains one of them.
    pub(crate) fn reaching<'w>(&self, words: impl Iterator<Item = &'w [u8]>) -> Set<&'w [u8]>
    where
        't: 'w,
    {
        let mut found: Set<&[u8]> = words.collect();
        let mut fresh: Vec<&[u8]> = found.iter().copied().collect();
        while let Some(word) = fresh.pop() {
            let names = self.naming.get(word).into_iter().flatten();
            fresh.extend(names.filter(|name| found.insert(name)));
        }
        found
    }

    /// Returns the words from which others may be formed where these texts are read. Returns `None`
    /// in these cases:
    ///
    /// - A text uses one of `banned`.
    /// - A macro's arguments may end in another text than the one in which they begin. With `ours`,
    ///   even a doubt about that suffices.
    pub(crate) fn pieces(&self, texts: &'t [Alive], banned: &Set<&[u8]>, ours: bool) -> Option<Pieces<'t>> {
        // The words that gcc's predefined macros expand to.
        let gccs = || BUILT_IN.into_iter().filter(|word| self.bodies.contains_key(word));
        let is_bad = |word: &[u8]| banned.contains(word) || self.pasting.contains(word);
        if self.told.iter().copied().chain(gccs()).any(is_bad) {
            return None;
        }
        let mut pieces = Pieces::default();
        self.told.iter().copied().chain(gccs()).for_each(|word| _ = pieces.insert(word));
        let mut starts = Starts::default();
        banned.iter().chain(&self.pasting).for_each(|word| starts.add(word));
        for text in texts {
            let mut pastes = false;
            for word in text.lines().filter(|line| is_expanded(line.code)).flat_map(|line| words(line.code)) {
                if starts.may_be(word) {
                    if banned.contains(word) {
                        return None;
                    }
                    pastes |= self.pasting.contains(word);
                }
            }
            let shape = Shape::of(text);
            if shape.includes_within || ours && !shape.is_known {
                return None;
            }
            if pastes {
                self.take(text, shape.is_known, &mut pieces);
            }
        }
        let mut fresh: Vec<&[u8]> = pieces.words.iter().copied().collect();
        loop {
            while let Some(word) = fresh.pop() {
                let within = self.bodies.get(word).into_iter().flatten().flat_map(|body| words(body));
                fresh.extend(within.filter(|word| pieces.insert(word)));
            }
            // A word that can be formed is itself a macro, so the words in its body count as well.
            let is_made = |name: &&&[u8]| !pieces.words.contains(**name) && pieces.may_make(name);
            fresh = self.bodies.keys().filter(is_made).copied().collect();
            if fresh.is_empty() {
                return Some(pieces);
            }
            fresh.iter().for_each(|word| _ = pieces.insert(word));
        }
    }

    /// Adds the words of the lines in which words may be formed.
    fn take(&self, text: &'t Alive, is_known: bool, pieces: &mut Pieces<'t>) {
        let pastes = |line: &Line<'_>| words(line.code).any(|word| self.pasting.contains(word));
        let (mut group, mut depth) = (Vec::new(), 0);
        let mut end = |group: &mut Vec<Line<'t>>| {
            if group.iter().any(pastes) {
                group.iter().flat_map(|line| words(line.code)).for_each(|word| _ = pieces.insert(word));
            }
            group.clear();
        };
        if !is_known {
            return end(&mut text.lines().collect());
        }
        for line in text.lines() {
            if directive(line.code).is_some() {
                // The words of a definition count where the macro is used.
                if is_expanded(line.code) {
                    end(&mut vec![line]);
                }
                continue;
            }
            // A line inside parentheses may belong to a macro's arguments, and so may a line that
            // begins with a parenthesis.
            if depth == 0 && line.code.trim_ascii_start().first().is_some_and(|first| *first != b'(') {
                end(&mut group);
            }
            group.push(line);
            depth += deeper(line.code).map_or(0, |(_, depth)| depth);
        }
        end(&mut group);
    }
}

impl<'t> Pieces<'t> {
    /// Returns true if this word can be formed from at least two of them.
    pub(crate) fn may_make(&self, name: &[u8]) -> bool {
        is_pasted_of(name, |word| self.starts.may_be(word) && self.words.contains(word))
    }

    /// Adds a word. Returns true if it is new.
    fn insert(&mut self, word: &'t [u8]) -> bool {
        self.starts.add(word);
        self.words.insert(word)
    }
}

impl Shape {
    fn of(text: &Alive) -> Shape {
        let (mut shape, mut depth) = (Shape { is_known: true, includes_within: false }, 0);
        let mut undecided = text.undecided().iter().peekable();
        for (index, line) in text.lines().enumerate() {
            while undecided.next_if(|before| **before <= index).is_some() {
                shape.is_known &= depth == 0;
            }
            if let Some((word, _)) = directive(line.code) {
                shape.includes_within |= is_include(word) && depth != 0;
                continue;
            }
            match deeper(line.code) {
                Some((lowest, more)) if depth + lowest >= 0 => depth += more,
                _ => (shape.is_known, depth) = (false, 0),
            }
        }
        shape.is_known &= depth == 0;
        shape
    }
}

/// Returns the name of the macro that a line defines, and what follows.
pub(crate) fn definition(code: &[u8]) -> Option<(&[u8], &[u8])> {
    match directive(code)? {
        (b"define", rest) => name_and_body(rest),
        _ => None,
    }
}

/// Returns true if macros in this line are expanded. They are not in a definition, in `#undef`, and
/// in `#include` with a quoted name.
pub(crate) fn is_expanded(code: &[u8]) -> bool {
    match directive(code) {
        Some((b"define", rest)) => name_and_body(rest).is_none(),
        Some((word, rest)) if is_include(word) => {
            !rest.trim_ascii_start().first().is_some_and(|byte| b"\"<".contains(byte))
        }
        Some((b"undef", _)) => false,
        _ => true,
    }
}

/// Returns all words, including those in strings.
fn words(code: &[u8]) -> impl Iterator<Item = &[u8]> {
    code.split(|byte| !is_in_word(*byte)).filter(|word| !word.is_empty())
}

/// Returns the change of the depth of parentheses: the lowest within the line, and that at its end.
/// Strings are skipped. Returns `None` if a quote may separate digits of a number.
fn deeper(code: &[u8]) -> Option<(isize, isize)> {
    let is_sign = |byte: &u8| matches!(byte, b'(' | b')' | b'"' | b'\'' | b'\\');
    let (mut lowest, mut depth, mut quote, mut at) = (0, 0, None, 0);
    while let Some(next) = code[at..].iter().position(is_sign) {
        at += next;
        match (quote, code[at]) {
            // The character after a backslash does not end a string.
            (Some(_), b'\\') => at += 1,
            (None, b'\\') => {}
            (Some(open), byte) if open == byte => quote = None,
            (Some(_), _) => {}
            (None, b'\'') if may_be_in_a_number(&code[..at]) => return None,
            (None, b'(') => depth += 1,
            (None, b')') => depth -= 1,
            (None, byte) => quote = Some(byte),
        }
        lowest = lowest.min(depth);
        at = (at + 1).min(code.len());
    }
    Some((lowest, depth))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inactive_regions::Names;

    #[track_caller]
    fn check(text: &str, arguments: &[&str], name: &str, expect: bool) {
        let arguments: Vec<Vec<u8>> = arguments.iter().map(|word| word.as_bytes().to_vec()).collect();
        let alive = [Names::likely(&[], &[], &[]).alive(text.as_bytes()).expect("is known")];
        let defined = Defined::of(&alive, &arguments, &[]).expect("is known");
        let pieces = defined.pieces(&alive, &Set::default(), false).expect("is known");
        assert_eq!(pieces.may_make(name.as_bytes()), expect, "{text}: {:?}", pieces.words);
    }

    #[test]
    fn what_can_be_put_together() {
        let check = |text: &str, expect| check(&format!("#define CAT(a, b) a ## b\n{text}"), &[], "name", expect);
        check("na me\n", false);
        check("CAT(na, me)\n", true);
        check("CAT(na, you)\nme\n", false);
        check("f(CAT(na, x),\nme)\n", true);
        check("CAT\n(na, me)\n", true);
        check("f(\n  CAT(na, x)\n,\n\n\")\", me)\n", true);
        check("f(\"(\", CAT(na, x));\nme\n", false);
        check("f('(' + CAT(na, x));\nme\n", false);
        // The nesting of parentheses is not certain here.
        check("f(1'0 + '(' + CAT(na, x));\nme\n", true);
        check("CAT(na, x) '1 + '\nme\n", false);
        check("f(CAT(na, \\(),\nme, \\);\n", true);
        check("CAT(na, 1.e1'0)\nme\n", true);
        check(")\nCAT(na, x);\nme\n", true);
        check("CAT(na, x) ) + (\nme\n", true);
        check("CAT(na,\n#if Z > 1\nx);\nf(\n#endif\nme)\n", true);
        check("CAT(na,\n#ifndef Z\nx);\n#else\n#endif\nme\n", false);
        check("#define X CAT\n#define Y(a) X(a, me)\nY(na)\n", true);
        check("#define Y(a) CAT(a, me)\n#undef Y\nna\n", false);
        check("#define M me\nCAT(na, M)\n", true);
        check("#define AB me\nCAT(A, B) na\n", true);
        check("#pragma x CAT(na, me)\n", true);
        check("#define Y(a) na ## a\nY(me)\n", true);
        check("#define Y(a) na ## a\nX(me)\n", false);
        check("CAT(n, 1) am e\n", true);
        check("#define Y \"na##me\"\nY na me\n", true);
    }

    #[test]
    fn what_arguments_define() {
        check("C(na, me)\n", &["-DC(a, b)=a##b"], "name", true);
        check("C(na, x)\n", &["-DC(a, b)=a##b"], "name", false);
        check("C(na, x)\n", &["-DC(a, b)=a##b", "-Dx=me"], "name", true);
        check("C(na, x)\n", &["-DC(a, b)=a##b", "-imacros me"], "name", true);
        check("__INT64_C(na)\n", &[], "naL", true);
        check("#define int na\nx\n", &["-DC(a)=a##me"], "name", false);
        check("#define int na\nC(me)\n", &["-DC(a)=a##me"], "name", true);
        check("#define I(a) __INT64_C(a)\nI(na)\n", &[], "naUL", true);
    }

    #[test]
    fn what_is_not_known() {
        let check = |text: &str, argument: &str, ours, expect| {
            let arguments = [argument.as_bytes().to_vec()];
            let alive = [Names::likely(&[], &[], &[]).alive(text.as_bytes()).expect("is known")];
            let defined = Defined::of(&alive, &arguments, &[]);
            let is_known = defined.is_some_and(|known| known.pieces(&alive, &Set::default(), ours).is_some());
            assert_eq!(is_known, expect, "{text} {argument}");
        };
        check("f(a)\n#include <x.h>\n", "-DX", true, true);
        check("#define $P(a, b) a##b\n", "-DX", true, false);
        check("#define \u{e9}P(a, b) a##b\n", "-DX", true, false);
        check("int x;\n", "--define-macro=C(a)=a##b", true, false);
        check("int x;\n", "-DC(a)=a%:%:b", true, false);
        check("#define C(a) a##b\n", "--define-macro=P=C", true, false);
        check("#define C(a) a##b\n", "-D$P=C", true, false);
        check("#define int P\n#define P(a, b) a##b\n", "-DX", true, false);
        check("f(a\n#include <x.h>\n);\n", "-DX", false, false);
        for text in ["f(\n#if X > 1\na\n#endif\n)\n", ")\n", "(\n", "f(1'0)\n", "a) + (b\n"] {
            check(text, "-DX", true, false);
            check(text, "-DX", false, true);
        }
    }
}
