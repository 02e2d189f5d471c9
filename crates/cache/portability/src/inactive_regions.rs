//! Finds the active lines of a C text: those that no preprocessor condition excludes. For example,
//! with `-DNDEBUG` the body of `#ifndef NDEBUG` is inactive, and so is the body of
//! `#ifdef CURLDEBUG` if no text defines that name.
//!
//! Only conditions on a single name are evaluated. In case of doubt a line counts as active but not
//! as *certain*. A certain line is compiled whenever its text is read.
//!
//! Unaware of: which texts were read, what is looked for in the active lines.

use std::cell::RefCell;
use std::collections::HashMap;

use larder_compiler::may_alter_text;
use larder_model::path::file_name;
use larder_model::{contains, contains_any, is_in_word, leading_word, trailing_word};
use memchr::memmem;

use crate::c_words::splices;
use crate::unused_macros::{hides_words, is_continued, name_and_body};

/// Decides which names are defined, and so how conditions come out.
pub(crate) struct Names<'t> {
    arguments: &'t [Vec<u8>],
    definitions: &'t [Vec<u8>],
    texts: &'t [&'t [u8]],
    known: RefCell<HashMap<Vec<u8>, Option<bool>>>,
}

/// The active lines of a text.
#[derive(Default)]
pub(crate) struct Alive {
    code: Vec<u8>,
    /// The end of each line in `code`, and whether the line is certain.
    ends: Vec<(usize, bool)>,
    /// Indices of lines. Before each there is the start, a branch or the end of a condition that
    /// could not be evaluated.
    undecided: Vec<usize>,
}

/// A logical line, which may span several lines of the file.
#[derive(Clone, Copy)]
pub(crate) struct Line<'a> {
    /// The line without comments and line continuations.
    pub(crate) code: &'a [u8],
    /// True if the line is compiled whenever the text is read.
    pub(crate) is_certain: bool,
}

impl Alive {
    /// Returns the indices of the lines before which there is the start, a branch or the end of a
    /// condition that could not be evaluated.
    pub(crate) fn undecided(&self) -> &[usize] {
        &self.undecided
    }

    pub(crate) fn lines(&self) -> impl Iterator<Item = Line<'_>> + Clone {
        let starts = std::iter::once(0).chain(self.ends.iter().map(|(end, _)| *end));
        starts
            .zip(&self.ends)
            .map(|(start, (end, is_certain))| Line { code: &self.code[start..*end], is_certain: *is_certain })
    }
}

/// The current branch of an open condition.
#[derive(Default)]
struct Branch {
    /// The first branch of the condition is known to be taken.
    is_taken: bool,
    /// This is the first branch, and it is known not to be taken.
    is_next: bool,
    is_dead: bool,
    is_certain: bool,
    /// It is not known which branch of the condition is taken.
    is_undecided: bool,
    /// The name in `#ifndef NAME`, until the next line follows. If that line defines the name, this
    /// is an include guard.
    guard: Vec<u8>,
}

/// Macros without a leading underscore that gcc predefines for Linux on x86 and 64-bit Arm.
const PREDEFINED: [&[u8]; 3] = [b"unix", b"linux", b"i386"];

/// Directives that contain no header names.
const NO_HEADERS: [&[u8]; 10] =
    [b"define", b"undef", b"ifdef", b"ifndef", b"else", b"endif", b"error", b"warning", b"line", b"pragma"];

impl<'t> Names<'t> {
    /// Makes it for a compile by `tool` that read exactly these texts. `definitions` are those
    /// arguments that define macros. Returns `None` if a name may be defined in a form that is not
    /// searched for, in a text or by the compiler.
    pub(crate) fn of(
        tool: &[u8],
        arguments: &'t [Vec<u8>],
        definitions: &'t [Vec<u8>],
        texts: &'t [&'t [u8]],
    ) -> Option<Names<'t>> {
        let says_more = |word: &Vec<u8>| word.starts_with(b"@") || may_alter_text(word);
        let is_hidden = |text: &&[u8]| text.contains(&0x0b) || hides_words(text) || goes_on(text) || hides_a_name(text);
        let is_known = is_for_here(tool) && !arguments.iter().any(says_more) && !texts.iter().any(is_hidden);
        is_known.then(|| Names::likely(arguments, definitions, texts))
    }

    /// Makes it without these checks, for uses in which a wrong answer does no harm. There may be
    /// further texts, other forms of definitions, and predefined macros of other machines.
    pub(crate) fn likely(arguments: &'t [Vec<u8>], definitions: &'t [Vec<u8>], texts: &'t [&'t [u8]]) -> Names<'t> {
        Names { arguments, definitions, texts, known: RefCell::default() }
    }

    /// Returns true if the name is defined in every place, false if it is never defined, and `None`
    /// if that is not known.
    fn is_defined(&self, name: &[u8]) -> Option<bool> {
        if let Some(known) = self.known.borrow().get(name) {
            return *known;
        }
        let known = self.find(name);
        self.known.borrow_mut().insert(name.to_vec(), known);
        known
    }

    fn find(&self, name: &[u8]) -> Option<bool> {
        let is_told = || {
            let rest = |word: &'t Vec<u8>| word.strip_prefix(b"-D")?.strip_prefix(name);
            self.definitions.iter().filter_map(rest).any(|rest| rest.is_empty() || rest[0] == b'=')
        };
        let of_itself = name[0] == b'_' || PREDEFINED.contains(&name);
        let mentioned = self.arguments.iter().filter(|argument| contains(argument, name)).count();
        match mentioned {
            0 if !of_itself && !self.is_behind(b"define", b"-D", name) => Some(false),
            // It is mentioned once, in its `-D`.
            1 if is_told() && !self.is_behind(b"undef", b"-U", name) => Some(true),
            _ => None,
        }
    }

    /// Returns true if a text may define the name: it follows `flag`, or it is on one logical line
    /// with the word `directive`.
    fn is_behind(&self, directive: &[u8], flag: &[u8], name: &[u8]) -> bool {
        self.texts.iter().any(|text| {
            memmem::find_iter(text, name).any(|at| {
                let is_directives = || holds_word(line_before(text, at), directive);
                text[..at].ends_with(flag) || is_word(text, at, name.len()) && is_directives()
            })
        })
    }

    /// Returns the active lines of a text, or `None` if its directives cannot be recognised with
    /// certainty.
    pub(crate) fn alive(&self, text: &[u8]) -> Option<Alive> {
        if hides_directives(text) {
            return None;
        }
        let mut alive = Alive { code: Vec::with_capacity(text.len()), ..Alive::default() };
        let mut open = Vec::<Branch>::new();
        let mut code = Vec::new();
        const MARK: &[u8] = b"\xef\xbb\xbf";
        let (mut rest, mut in_comment) = (text.strip_prefix(MARK).unwrap_or(text), false);
        while !rest.is_empty() {
            let before = rest;
            code.clear();
            // A comment counts as one blank, even if it spans several lines.
            while !rest.is_empty() && (in_comment || rest.len() == before.len()) {
                let (line, next) = rest.split_at(end_of_line(rest));
                rest = next;
                code_of(line, &mut in_comment, &mut code)?;
            }
            let line = &before[..before.len() - rest.len()];
            let is_blank = code.trim_ascii().is_empty();
            let guard = open.last_mut().filter(|_| !is_blank).map(|last| std::mem::take(&mut last.guard));
            let is_within = |open: &[Branch]| open.last().is_some_and(|last| last.is_undecided);
            let was_undecided = is_within(&open);
            match directive(&code) {
                // The directive's name may continue with a character that `is_in_word` does not
                // know.
                Some((_, rest)) if rest.first().is_some_and(|byte| may_be_in_name(*byte)) => return None,
                Some((word, rest)) if has_comment(line) && may_begin_elsewhere(word, rest, line) => return None,
                Some((word @ (b"if" | b"ifdef" | b"ifndef"), condition)) => {
                    let known = self.comes_out(word, condition);
                    let guard = if word == b"ifndef" { condition.trim_ascii().to_vec() } else { Vec::new() };
                    open.push(Branch::new(known, guard));
                    alive.undecided.extend(is_within(&open).then_some(alive.ends.len()));
                }
                Some((word @ (b"elif" | b"else"), _)) => {
                    open.last_mut()?.next_branch(word == b"else");
                    alive.undecided.extend(is_within(&open).then_some(alive.ends.len()));
                }
                // Only newer compilers know these directives.
                Some((b"elifdef" | b"elifndef", _)) => {
                    *open.last_mut()? = Branch { is_undecided: true, ..Branch::default() };
                    alive.undecided.push(alive.ends.len());
                }
                Some((b"endif", _)) => {
                    open.pop()?;
                    alive.undecided.extend(was_undecided.then_some(alive.ends.len()));
                }
                _ if open.iter().any(|branch| branch.is_dead) => {}
                told => {
                    if let (Some((b"define", name)), Some(last)) = (told, open.last_mut()) {
                        last.is_certain |= name_and_body(name).is_some_and(|(name, _)| guard.as_deref() == Some(name));
                    }
                    let is_certain = open.iter().all(|branch| branch.is_certain);
                    alive.code.extend_from_slice(&code);
                    alive.ends.push((alive.code.len(), is_certain));
                }
            }
        }
        (open.is_empty() && !in_comment).then_some(alive)
    }

    fn comes_out(&self, word: &[u8], condition: &[u8]) -> Option<bool> {
        let condition = condition.trim_ascii();
        let name = match (word, condition) {
            (b"if", b"0") => return Some(false),
            (b"if", _) => {
                let rest = condition.strip_prefix(b"!").map_or(condition, <[u8]>::trim_ascii_start);
                let name =
                    rest.strip_prefix(b"defined").filter(|rest| !rest.first().is_some_and(|b| is_in_word(*b)))?;
                let name = name.trim_ascii();
                name.strip_prefix(b"(").and_then(|name| name.strip_suffix(b")")).map_or(name, <[u8]>::trim_ascii)
            }
            _ => condition,
        };
        let is_name = !name.is_empty() && !name[0].is_ascii_digit() && name.iter().all(|byte| is_in_word(*byte));
        let defined = if is_name { self.is_defined(name)? } else { return None };
        let negated = word == b"ifndef" || word == b"if" && condition.starts_with(b"!");
        Some(defined != negated)
    }
}

impl Branch {
    fn new(known: Option<bool>, guard: Vec<u8>) -> Branch {
        let (is_taken, is_dead) = (known == Some(true), known == Some(false));
        let is_undecided = known.is_none();
        Branch { is_taken, is_next: is_dead, is_dead, is_certain: is_taken, is_undecided, guard }
    }

    fn next_branch(&mut self, is_last: bool) {
        self.is_undecided |= !self.is_taken && !is_last;
        self.is_dead = self.is_taken;
        self.is_certain = is_last && self.is_next;
        self.is_next = false;
    }
}

/// Returns the position after the end of the first logical line.
fn end_of_line(text: &[u8]) -> usize {
    let mut from = 0;
    while let Some(end) = memchr::memchr(b'\n', &text[from..]) {
        let end = from + end;
        if !is_continued(&text[..end]) {
            return end + 1;
        }
        from = end + 1;
    }
    text.len()
}

/// Appends the line to `code` without comments and line continuations. Updates whether a comment is
/// open at its end. An unclosed quote ends with the line. Returns `None` if that may be wrong,
/// because a quote may separate digits of a number (since C++14).
fn code_of(line: &[u8], in_comment: &mut bool, code: &mut Vec<u8>) -> Option<()> {
    let (mut at, mut quote) = (0, None);
    while at < line.len() {
        let (byte, two) = (line[at], &line[at..line.len().min(at + 2)]);
        let mut length = 1;
        match quote {
            _ if *in_comment => {
                length = line.len() - at;
                if let Some(end) = memmem::find(&line[at..], b"*/") {
                    (*in_comment, length) = (false, end + 2);
                    code.push(b' ');
                }
            }
            _ if two == b"\\\n" => length = 2,
            Some(_) if byte == b'\\' => {
                length = two.len();
                code.extend_from_slice(two);
            }
            Some(open) => {
                quote = quote.filter(|_| byte != open);
                code.push(byte);
            }
            None if !matches!(byte, b'/' | b'"' | b'\'' | b'\\') => {
                let is_other = |byte: &u8| matches!(byte, b'/' | b'"' | b'\'' | b'\\');
                length = line[at..].iter().position(is_other).unwrap_or(line.len() - at);
                code.extend_from_slice(&line[at..at + length]);
            }
            None if two == b"/*" => (*in_comment, length) = (true, 2),
            None if two == b"//" => break,
            None => {
                let may_divide = byte == b'\'' && may_be_in_a_number(code);
                if may_divide && has_comment(&line[at..]) {
                    return None;
                }
                quote = (matches!(byte, b'"' | b'\'') && !may_divide).then_some(byte);
                code.push(byte);
            }
        }
        at += length;
    }
    Some(())
}

/// Returns true if a quote at this position may separate digits of a number, because what precedes
/// it begins with a digit. The sign of an exponent is included.
pub(crate) fn may_be_in_a_number(before: &[u8]) -> bool {
    let is_part = |byte: &u8| is_in_word(*byte) || may_be_in_name(*byte) || b".'+-".contains(byte);
    let start = before.iter().rposition(|byte| !is_part(byte)).map_or(0, |last| last + 1);
    before[start..].iter().any(u8::is_ascii_digit)
}

fn has_comment(line: &[u8]) -> bool {
    contains_any(line, &["/*", "//"])
}

/// Returns true if `rest` is a header name in which nothing looks like a comment or a string.
/// Header names have their own rules for both.
fn is_plain_name(rest: &[u8]) -> bool {
    let rest = rest.trim_ascii_start();
    let close = match rest.first() {
        Some(b'"') => b'"',
        Some(b'<') => b'>',
        _ => return false,
    };
    let Some(end) = rest[1..].iter().position(|byte| *byte == close) else { return false };
    let (name, behind) = (&rest[1..=end], &rest[end + 2..]);
    behind.trim_ascii().is_empty() && !name.iter().any(|byte| b"'\"\\".contains(byte)) && !has_comment(name)
}

/// Returns true if what looks like a comment or a string on this line may be part of a header name.
fn may_begin_elsewhere(word: &[u8], rest: &[u8], line: &[u8]) -> bool {
    if is_include(word) || word == b"embed" {
        return !is_plain_name(rest);
    }
    // `__has_include` takes a header name, and a macro may stand for it.
    let comment = line.windows(2).position(|two| two == b"/*" || two == b"//").unwrap_or(line.len());
    let may_be_a_name = line.contains(&b'"') || line[..comment].contains(&b'<') && line[comment..].contains(&b'>');
    may_be_a_name && !NO_HEADERS.contains(&word)
}

/// Returns true for characters that gcc allows in names and `is_in_word` does not know.
fn may_be_in_name(byte: u8) -> bool {
    byte == b'$' || byte == b'\\' || byte >= 0x80
}

/// Returns true for the name of a directive that includes another text.
pub(crate) fn is_include(word: &[u8]) -> bool {
    matches!(word, b"include" | b"include_next" | b"import")
}

/// Returns the name of a directive and what follows it.
pub(crate) fn directive(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = line.trim_ascii_start().strip_prefix(b"#")?.trim_ascii_start();
    Some(rest.split_at(leading_word(rest).len()))
}

/// Returns true if the text may have directives in another form, or lines that only look like
/// directives. The causes are raw strings, trigraphs and digraphs, and the start or end of a
/// comment that is split over two lines.
fn hides_directives(text: &[u8]) -> bool {
    const RAW: [&[u8]; 5] = [b"R", b"LR", b"UR", b"uR", b"u8R"];
    let is_raw = |at: usize| RAW.contains(&trailing_word(&text[..=at]));
    const FORMS: [&str; 6] = ["??=", "??'", "??(", "??)", "%:", "\\\\\n"];
    // Two-character signs that may be split over two lines, with the characters that may follow.
    const DIVIDED: [(&[u8], &[u8]); 3] = [(b"%\\\n", b":\\"), (b"/\\\n", b"/*\\"), (b"*\\\n", b"/\\")];
    let goes_on = |(form, rest): &(&[u8], &[u8])| {
        let behind = |at: usize| text.get(at + form.len());
        memmem::find_iter(text, form).any(|at| behind(at).is_some_and(|next| rest.contains(next)))
    };
    contains_any(text, &FORMS) || DIVIDED.iter().any(goes_on) || memmem::find_iter(text, b"R\"").any(is_raw)
}

/// Returns true if a line is continued by a backslash with blanks after it, which gcc ignores.
fn goes_on(text: &[u8]) -> bool {
    splices(text).any(|splice| splice.len() > 2)
}

/// Returns true if the compiler of this name is for Linux on x86 or 64-bit Arm. For other machines
/// it predefines other names.
fn is_for_here(tool: &[u8]) -> bool {
    let name = file_name(tool);
    let prefix = [&b"gcc"[..], b"g++", b"cc", b"c++"].iter().find_map(|tool| memmem::find(name, tool));
    match prefix.map(|end| &name[..end]) {
        Some(b"") => cfg!(any(target_arch = "x86_64", target_arch = "aarch64")),
        Some(prefix) => {
            let machine = [&b"x86_64-"[..], b"i686-", b"aarch64-"].iter().any(|machine| prefix.starts_with(machine));
            machine && contains(prefix, "linux")
        }
        None => false,
    }
}

/// Returns true if there is a comment between `#define` or `#undef` and the name.
fn hides_a_name(text: &[u8]) -> bool {
    let is_comment = |end: usize| {
        let goes_on = |at: &usize| match text[*at] {
            b'\n' => is_continued(&text[..*at]),
            byte => byte.is_ascii_whitespace() || byte == b'\\',
        };
        let behind = (end..text.len()).find(|at| !goes_on(at));
        behind.is_some_and(|at| text[at] == b'/')
    };
    // The word follows `#` or one of its other forms, or a comment.
    let is_directive = |at: usize| {
        let is_blank = |byte: &u8| byte.is_ascii_whitespace() || *byte == b'\\';
        text[..at].iter().rev().find(|byte| !is_blank(byte)).is_some_and(|byte| b"#:=/".contains(byte))
    };
    [&b"define"[..], b"undef"]
        .iter()
        .any(|word| memmem::find_iter(text, word).any(|at| is_comment(at + word.len()) && is_directive(at)))
}

/// Returns the part of the logical line before `at`.
fn line_before(text: &[u8], at: usize) -> &[u8] {
    let mut start = at;
    while start > 0 && (text[start - 1] != b'\n' || is_continued(&text[..start - 1])) {
        start -= 1;
    }
    &text[start..at]
}

fn holds_word(text: &[u8], word: &[u8]) -> bool {
    memmem::find_iter(text, word).any(|at| is_word(text, at, word.len()))
}

fn is_word(text: &[u8], at: usize, length: usize) -> bool {
    let before = at.checked_sub(1).map(|before| text[before]);
    let after = text.get(at + length).copied();
    ![before, after].into_iter().flatten().any(is_in_word)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the active code, or the whole text if that is not known.
    fn code(names: &Names<'_>, text: &[u8]) -> String {
        let alive = names.alive(text).map(|alive| alive.code);
        String::from_utf8(alive.unwrap_or_else(|| text.to_vec())).expect("is text")
    }

    /// Compares the active code of the first text in a compile with these arguments. `None` stands
    /// for an unknown result.
    #[track_caller]
    fn check(texts: &[&str], arguments: &[&str], expect: Option<&str>) {
        let arguments: Vec<Vec<u8>> = arguments.iter().map(|word| word.as_bytes().to_vec()).collect();
        let texts: Vec<&[u8]> = texts.iter().map(|text| text.as_bytes()).collect();
        let names = Names::of(b"/usr/bin/gcc-12", &arguments, &arguments, &texts);
        let alive = names.map(|names| code(&names, texts[0]));
        assert_eq!(alive.as_deref(), expect);
    }

    const ASSERT: &str =
        "a\n#ifdef NDEBUG\nb\n# else /* not NDEBUG */\nc\n# ifdef __cplusplus\nd\n# endif\n#endif /* NDEBUG. */\ne\n";

    #[test]
    fn conditions_on_what_is_told() {
        check(&[ASSERT], &["-DNDEBUG"], Some("a\nb\ne\n"));
        check(&[ASSERT], &["-O2", "-DNDEBUG=1"], Some("a\nb\ne\n"));
        check(&[ASSERT], &[], Some("a\nc\nd\ne\n"));
        check(&[ASSERT], &["-DNDEBUG", "-UNDEBUG"], Some("a\nb\nc\nd\ne\n"));
        check(&[ASSERT], &["-Wp,-DNDEBUG"], Some("a\nb\nc\nd\ne\n"));
        check(&[ASSERT], &["-std=c90"], None);
        check(&[ASSERT, "a \\ \n"], &[], None);
        check(&[ASSERT, "#define \\\r\nNDEBUG\r\n"], &[], None);
        check(&[ASSERT, "\x0b"], &[], None);
        check(&[ASSERT, "# define /\\\n*\n*/ NDEBUG\n"], &[], None);
        check(&[ASSERT, "/* define / undef */\n"], &[], Some("a\nc\nd\ne\n"));
        check(&[ASSERT, "// by #define\n// X\n"], &[], Some("a\nc\nd\ne\n"));
        check(&[ASSERT, "#define \\\n/**/ NDEBUG\n"], &[], None);
        check(&[ASSERT], &["-D", "NDEBUG"], Some("a\nb\nc\nd\ne\n"));
        check(&[ASSERT, "#undef NDEBUG\n"], &["-DNDEBUG"], Some("a\nb\nc\nd\ne\n"));
        check(&[ASSERT, "# define \\\nNDEBUG\n"], &[], Some("a\nb\nc\nd\ne\n"));
        check(&[ASSERT, "#if defined(NDEBUG) /* NDEBUG */\n#endif\n"], &[], Some("a\nc\nd\ne\n"));
    }

    #[test]
    fn forms_of_conditions() {
        for (form, is_alive) in [
            ("if 0", false),
            ("if 1", true),
            ("if defined X", false),
            ("if defined( X )", false),
            ("  if !defined(X) // not", true),
            ("if defined(X) || Y", true),
            ("ifndef X", true),
            ("ifdef X", false),
            ("ifdef __X", true),
            ("ifdef linux", true),
        ] {
            let text = format!("#{form}\na\n#endif\n");
            let alive = if is_alive { "a\n" } else { "" };
            let arguments: Vec<Vec<u8>> = Vec::new();
            let texts = [text.as_bytes()];
            let names = Names::of(b"gcc", &arguments, &arguments, &texts).expect("is known");
            assert_eq!(code(&names, texts[0]), alive, "{form}");
        }
    }

    #[test]
    fn what_is_no_condition() {
        check(&["/*\n#ifdef X\n*/\na\n/*\n#endif\n*/\n"], &[], Some(" \na\n \n"));
        check(&["// \\\n#ifdef X\na\n"], &[], Some("a\n"));
        check(&["\"/*\"\n#ifdef X\na\n#endif\n\"*/\"\n"], &[], Some("\"/*\"\n\"*/\"\n"));
        check(&["'\"' /*\n#ifdef X\n*/ a\n"], &[], Some("'\"'   a\n"));
        check(&["don't /*\n#ifdef X\n*/ a\n#endif\n"], &[], Some("don't /*\n"));
        check(&["#ifdef X\na\n#elif Y\nb\n#else\nc\n#endif\n"], &[], Some("b\nc\n"));
        check(&["#ifdef X\na\n#elif Y\nb\n#else\nc\n#endif\n"], &["-DX"], Some("a\n"));
        for text in ["#define /**/ X", "#define /*\n*/ X", "#define \\\n/**/ X", "\0", "X\\\nY"] {
            check(&[text], &[], None);
        }
        let dead = "#ifdef X\na\n#endif\n";
        for before in [
            "R\"(\n",
            "??=\n",
            "%:\n",
            "%\\\n:endif\n",
            "/\\\n*\n",
            "char *s = \"a\\\\\n\" /*\";\n",
            "/*\n*/ #if Y\n",
            "#endif\n",
            "#if 1\n",
            "/*\n",
            "#include <a/*b.h>\n",
            "#include <it's.h> /* */\n",
            "#include \"a\\\" /* */\n",
            "#include <a\"b.h> // \n",
            "#include X // \n",
            "#include \"x.h\" <a//b> /*\n",
            "#include \"x.h\" \"\\\" /*\n",
            "#if __has_include(<a/*b.h>)\n#endif\n",
            "#define H __has_include(\n#if !H <a//b.h>) /*\n#endif\n",
            "#if H(\"a//b.h\") /*\n#endif\n",
            "int a = 1 ??' 2; /*\n",
            "#define X 1$'a /*\n",
            "#define X 1\u{e4}'a /*\n",
            "#if$\n",
            "#endif\u{e4}\n",
            "1'0 /* */\n",
        ] {
            let text = format!("{before}{dead}");
            check(&[&text], &[], Some(&text));
        }
        for before in ["\"ERROR\"\n", "1'000 + L'\"'\n", "'\\''\n", "#include <x.h>\n", "#include \"..\\x.h\"\n"] {
            check(&[&format!("{before}{dead}")], &[], Some(before));
        }
        check(&[&format!("#include <x.h> // a\n{dead}")], &[], Some("#include <x.h> "));
        check(&[&format!("#if __has_include(<x.h>)\na\n#endif // __has_include\n{dead}")], &[], Some("a\n"));
        check(&[dead, "#ifdef __has_include\n#endif\n"], &[], Some(""));
        check(&[&format!("/* */ int x; // don't /*\n{dead}")], &[], Some("  int x; "));
        check(&["/* c */ #ifdef X\na\n/* d */ # endif\n"], &[], Some(""));
        check(&["/* c\n*/ #ifdef X\na\n# endif /*\nd */\nb\n"], &[], Some("b\n"));
        check(&["#if 0 /*\n*/ + 1\na\n#endif\n"], &[], Some("a\n"));
        check(&["#define X /* a\n */ 1 /*\n\n*/ + 2 // b\nc\n"], &[], Some("#define X   1   + 2 c\n"));
        check(&["a /*/ b\n/*/ c\n"], &[], Some("a   c\n"));
        check(&["a /*\n*/ #ifdef X\nb\n"], &[], Some("a   #ifdef X\nb\n"));
        check(&["a /* */\\\n b *\\\n c\n"], &[], Some("a   b * c\n"));
        check(&["#ifdef X\na\n#endif\n/* \n"], &[], Some("#ifdef X\na\n#endif\n/* \n"));
    }

    #[test]
    fn what_is_certain() {
        let check = |text: &str, expect: &str| {
            let arguments = [b"-DX".to_vec()];
            let names = Names::of(b"gcc", &arguments, &arguments, &[]).expect("is known");
            let alive = names.alive(text.as_bytes()).expect("is known");
            let certain: Vec<_> = alive.lines().filter(|line| line.is_certain).map(|line| line.code).collect();
            let certain = certain.concat();
            assert_eq!(String::from_utf8(certain).expect("is text"), expect, "{text}");
        };
        check("a\n", "a\n");
        check("#ifdef X\na\n#else\nb\n#endif\nc\n", "a\nc\n");
        check("#ifndef X\na\n#else\nb\n#endif\n", "b\n");
        check("#ifdef Y\na\n#elif Z\nb\n#else\nc\n#endif\n", "");
        check("#if Z\na\n#else\nb\n#endif\n", "");
        check("/* G */\n#ifndef _G\n\n#define _G\na\n#if Z\nb\n#endif\nc\n#endif\n", " \n#define _G\na\nc\n");
        check("#ifndef _G\n#define _G\n#else\na\n#endif\n", "#define _G\n");
        check("#ifndef _G\na\n#define _G\nb\n#endif\n", "");
        check("#ifdef _G\n#define _G\na\n#endif\n", "");
    }
}
