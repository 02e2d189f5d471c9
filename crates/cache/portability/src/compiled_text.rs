//! What a compiler proper sees of a source and its headers: the preprocessed text, and where the
//! words of some headers stand in their lines. A compile in which only these headers have changed
//! gives the same result if both are the same.
//!
//! The preprocessed text has each line that is compiled, and line markers say which file and line
//! it comes from. It does not have the columns: gcc and clang write one blank for any number of
//! blanks and comments. Debug information, sanitizers, some warnings, and the names that clang gives
//! to types without a name depend on columns. So the lines of a header that are compiled count as
//! well, with comments replaced by blanks. Directives do not count, because their effect is in the
//! text. But a compiler that warns about indentation sees that something is between two lines. A
//! word that comes from a macro has the column of the macro's name. A macro whose expansion has its
//! own name, such as `#define f(x) f(x)`, leaves no trace in the text, but compilers warn less about
//! words from a macro. So definitions of names that are in the text count as well.
//!
//! A pragma is in the text as it is written. So it is refused if the compiler may expand macros in
//! it, or if it has an effect on the preprocessor only in a compile.
//!
//! Unaware of: which headers have changed, and how the text was made.

use std::collections::{HashMap, HashSet};

use larder_model::path::{absolute, file_name};
use larder_model::{Digest, Roots, Writer, contains, contains_any, is_in_word, leading_word};

use crate::facts::whole;
use crate::pragmas::Pragma;
use crate::preprocessed_text::is_marker;

/// A header that may have changed.
pub struct Header {
    /// Its path, with roots replaced.
    pub encoded: Vec<u8>,
    /// Its path.
    pub path: Vec<u8>,
}

/// How a compile depends on its preprocessed text.
#[derive(Clone, Copy)]
pub struct Reading<'a> {
    /// The roots of this place.
    pub roots: &'a Roots,
    /// The working directory of the compile.
    pub cwd: &'a [u8],
}

/// Returns the digest of everything that the compiler proper sees of the preprocessed text `text`
/// and of these headers. Returns `None` if a header may reach the result in another way.
pub fn compiled_text(text: &[u8], headers: &[Header], reading: Reading) -> Option<Digest> {
    let shown = shown_lines(text, headers, reading)?;
    let mut w = Writer::default();
    w.bytes(&reading.roots.encode_text(text));
    let sources = headers.iter().map(|header| whole(&header.path)).collect::<Option<Vec<_>>>()?;
    for definition in definitions_of_words(text, &sources) {
        w.bytes(definition);
    }
    for ((header, lines), source) in headers.iter().zip(&shown).zip(sources) {
        // Nothing of the header is left in the text, for example if it only defines macros.
        if lines.is_empty() {
            continue;
        }
        let placed = placed_lines(&source, lines);
        w.bytes(&header.encoded);
        w.u8(placed.is_some().into());
        w.bytes(&reading.roots.encode_text(&placed.unwrap_or(source)));
    }
    Some(Digest::of(&w.bytes))
}

/// Returns the definitions of macros in these sources whose names are words of the text.
fn definitions_of_words<'s>(text: &[u8], sources: &'s [Vec<u8>]) -> Vec<&'s [u8]> {
    let lines = sources.iter().flat_map(|source| source.split(|&byte| byte == b'\n'));
    let mut definitions: Vec<(&[u8], &[u8])> = lines.filter_map(|line| Some((defined_name(line)?, line))).collect();
    let names: HashSet<&[u8]> = definitions.iter().map(|(name, _)| *name).collect();
    if names.is_empty() {
        return Vec::new();
    }
    let words = text.split(|&byte| !is_in_word(byte));
    let used: HashSet<&[u8]> = words.filter_map(|word| names.get(word).copied()).collect();
    definitions.retain(|(name, _)| used.contains(name));
    definitions.into_iter().map(|(_, line)| line.trim_ascii()).collect()
}

/// Returns the name of the macro that a line defines.
fn defined_name(line: &[u8]) -> Option<&[u8]> {
    let directive = line.trim_ascii_start().strip_prefix(b"#")?.trim_ascii_start();
    let definition = directive.strip_prefix(b"define")?;
    let name = leading_word(definition.trim_ascii_start());
    (definition.first().is_some_and(u8::is_ascii_whitespace) && !name.is_empty()).then_some(name)
}

/// Returns for each header the numbers of its lines that are in the text, in ascending order.
/// Returns `None` if no line marker names the header, or if the text has a pragma whose effect it
/// does not show.
///
/// After a directive `#line` the numbers are others than those of the file, and the name may be
/// that of another file. So a line counts for the file that was entered last.
fn shown_lines(text: &[u8], headers: &[Header], reading: Reading) -> Option<Vec<Vec<u64>>> {
    let mut shown = vec![Vec::new(); headers.len()];
    let mut is_included = vec![false; headers.len()];
    let mut known = HashMap::<&[u8], Option<usize>>::new();
    let mut entered = vec![None];
    let (mut file, mut number): (&[u8], u64) = (b"", 0);
    for line in text.split(|&byte| byte == b'\n') {
        if is_marker(line) {
            let Marker { number: at, name, step } = Marker::of(line)?;
            match step {
                Step::Enters => {
                    let header = *known.entry(name).or_insert_with(|| header_of(name, headers, reading));
                    header.iter().for_each(|&header| is_included[header] = true);
                    entered.push(header);
                }
                Step::Returns => drop(entered.pop()),
                Step::Stays => {}
            }
            (file, number) = (name, at);
            continue;
        }
        if line.trim_ascii_start().starts_with(b"#") && !is_plain_directive(line, file) {
            return None;
        }
        if let Some(header) = entered.last()?
            && !line.trim_ascii().is_empty()
        {
            shown[*header].push(number);
        }
        number += 1;
    }
    for lines in &mut shown {
        lines.sort_unstable();
        lines.dedup();
    }
    is_included.iter().all(|is_included| *is_included).then_some(shown)
}

/// Returns true for a directive in the preprocessed text of a file that has no other effect than
/// the text shows.
fn is_plain_directive(line: &[u8], file: &[u8]) -> bool {
    match Pragma::of(line) {
        Some(pragma) => !pragma.changes_options(file) && !pragma.may_have_macro() && !pragma.enables_warnings(),
        None => line.starts_with(b"#ident "),
    }
}

/// A line marker such as `# 12 "x.h" 1`.
struct Marker<'l> {
    /// The number of the next line.
    number: u64,
    name: &'l [u8],
    step: Step,
}

/// Tells whether a file begins or ends at a line marker.
#[derive(Clone, Copy)]
enum Step {
    /// The file is included here.
    Enters,
    /// An included file ends here, and this one goes on.
    Returns,
    /// The file is the same, but a directive `#line` may have given it another name.
    Stays,
}

impl<'l> Marker<'l> {
    /// Returns `None` for a name with an escape.
    fn of(line: &'l [u8]) -> Option<Marker<'l>> {
        let rest = line.strip_prefix(b"#line ").or_else(|| line.strip_prefix(b"# "))?;
        let (number, rest) = rest.split_at(rest.iter().position(|&byte| byte == b' ')?);
        let rest = rest.strip_prefix(b" \"")?;
        let (name, flags) = rest.split_at(rest.iter().position(|&byte| byte == b'"')?);
        let number = std::str::from_utf8(number).ok()?.parse().ok()?;
        let step = match flags {
            b"\" 1" | [b'"', b' ', b'1', b' ', ..] => Step::Enters,
            b"\" 2" | [b'"', b' ', b'2', b' ', ..] => Step::Returns,
            _ => Step::Stays,
        };
        (!name.contains(&b'\\')).then_some(Marker { number, name, step })
    }
}

/// Returns which header a line marker names.
fn header_of(name: &[u8], headers: &[Header], reading: Reading) -> Option<usize> {
    let file = |path: &[u8]| larder_sys::stat(path).ok().map(|stat| stat.file_id());
    let mut path = None;
    let is_it = |header: &Header| {
        file_name(&header.path) == file_name(name)
            && path
                .get_or_insert_with(|| file(&absolute(reading.cwd, name)))
                .is_some_and(|id| Some(id) == file(&header.path))
    };
    headers.iter().position(is_it)
}

/// Returns the lines of a text that are compiled, with their numbers, and with blanks in place of
/// comments. `shown` are the numbers of the lines that the preprocessed text has. Returns `None` if
/// it is not certain which lines these are.
///
/// A macro's arguments may be on the lines after it, and the preprocessed text has all of them in
/// one line. So all lines from one directive to the next count if one of them is shown, and further
/// lines until all parentheses are closed.
///
/// The indentation of each line between the first and the last counts, and so does whether the line
/// is a directive. For example, the compiler warns about an indented line below an `if`, but not if
/// a directive or a line with less indentation is between them.
fn placed_lines(source: &[u8], shown: &[u64]) -> Option<Vec<u8>> {
    let lines = Lines::of(source)?;
    let (mut placed, mut depth, mut is_open) = (Writer::default(), 0, false);
    let mut rest = &lines.0[..];
    let mut left = shown.len();
    while !rest.is_empty() {
        let end = rest.iter().position(|line| line.is_directive).unwrap_or(rest.len());
        let (block, next) = rest.split_at(end);
        let directives = next.iter().position(|line| !line.is_directive).unwrap_or(next.len());
        let is_among = |lines: &[Line]| {
            let count = |number| shown.partition_point(|&shown| shown < number);
            match (lines.first(), lines.last()) {
                (Some(first), Some(last)) => count(last.number + 1) - count(first.number),
                _ => 0,
            }
        };
        let here = is_among(block);
        left -= here + is_among(&next[..directives]);
        if here > 0 || is_open {
            for line in block.iter().filter(|line| !line.code.is_empty()) {
                placed.number(line.number);
                placed.bytes(&line.code);
                depth += line.depth;
            }
            is_open = depth > 0;
            depth = depth.max(0);
        }
        rest = &next[directives..];
    }
    let (first, last) = (*shown.first()?, *shown.last()?);
    for line in lines.0.iter().filter(|line| (first..=last).contains(&line.number) && !line.start.is_empty()) {
        placed.number(line.number);
        placed.bytes(&line.start);
    }
    (left == 0).then_some(placed.bytes)
}

/// A line of a C text.
struct Line {
    /// The number, from 1.
    number: u64,
    is_directive: bool,
    /// The blanks at the beginning and one more byte, which is `#` if a directive begins here.
    /// Empty for an empty line.
    start: Vec<u8>,
    /// The line with blanks in place of comments, and without blanks at its end.
    code: Vec<u8>,
    /// How many more parentheses are opened than closed.
    depth: i64,
}

struct Lines(Vec<Line>);

impl Lines {
    /// Returns `None` for a text in which it is not certain what is a comment, a string or a
    /// directive.
    fn of(source: &[u8]) -> Option<Lines> {
        let is_odd = contains_any(source, &["??", "%:", "R\"", "\x0b", "\x0c", "\0", "\r"])
            || source.starts_with(b"\xef\xbb\xbf");
        if is_odd {
            return None;
        }
        // With `-Wimplicit-fallthrough`, such comments have a meaning.
        let keeps_comments = contains(&source.to_ascii_lowercase(), "fall");
        let mut lines = Vec::new();
        let (mut in_comment, mut in_directive) = (false, false);
        for (line, number) in source.split(|&byte| byte == b'\n').zip(1..) {
            let begins_in_comment = in_comment;
            let was_directive = in_directive;
            let Code { code, depth, is_closed } = Code::of(line, &mut in_comment)?;
            let word = code.trim_ascii_start().strip_prefix(b"#").map(<[u8]>::trim_ascii_start);
            if let Some(word) = word.filter(|_| !was_directive) {
                // A header's name has its own rules for comments, and `#line` moves all lines.
                let is_include = [&b"inc"[..], b"imp", b"emb", b"__"].iter().any(|start| word.starts_with(start));
                let moves = word.starts_with(b"line") || word.first().is_some_and(u8::is_ascii_digit);
                if begins_in_comment || moves || is_include && contains(line, "/*") {
                    return None;
                }
                in_directive = !word.starts_with(b"pragma");
            }
            let is_directive = in_directive;
            let goes_on = line.trim_ascii_end().ends_with(b"\\");
            // A comment or a string may begin in one line and go on in the next.
            let is_cut = goes_on && (contains(line, "//") || line.ends_with(b"/\\") || line.ends_with(b"*\\"));
            let is_unclear =
                if is_directive { is_cut || !is_closed && (goes_on || contains(line, "/*")) } else { goes_on };
            if is_unclear || !is_closed && !is_directive {
                return None;
            }
            let indentation = line.len() - line.trim_ascii_start().len();
            let kind = if word.is_some() { b'#' } else { b'.' };
            let is_empty = indentation == line.len();
            let start = if is_empty { Vec::new() } else { [&line[..indentation], &[kind]].concat() };
            let code = if keeps_comments { line.trim_ascii_end().to_vec() } else { code };
            lines.push(Line { number, is_directive, start, code, depth });
            in_directive &= goes_on || in_comment;
        }
        (!in_comment).then_some(Lines(lines))
    }
}

/// A line without its comments.
struct Code {
    code: Vec<u8>,
    depth: i64,
    /// All quotes of the line are closed.
    is_closed: bool,
}

impl Code {
    /// Returns `None` if a quote may be a part of a number, as in `1'000`.
    fn of(line: &[u8], in_comment: &mut bool) -> Option<Code> {
        let (mut code, mut depth) = (line.to_vec(), 0);
        let (mut at, mut quote) = (0, None);
        while at < line.len() {
            let (byte, two) = (line[at], &line[at..line.len().min(at + 2)]);
            let is_comment = *in_comment || quote.is_none() && (two == b"/*" || two == b"//");
            let length = match quote {
                _ if *in_comment => memchr::memmem::find(&line[at..], b"*/").map_or(line.len() - at, |end| end + 2),
                None if two == b"//" => line.len() - at,
                None if two == b"/*" => 2,
                Some(_) if byte == b'\\' => two.len(),
                _ => 1,
            };
            if is_comment {
                *in_comment = two == b"/*" && !*in_comment || *in_comment && !line[..at + length].ends_with(b"*/");
                code[at..at + length].iter_mut().filter(|byte| **byte != b'\t').for_each(|byte| *byte = b' ');
            } else if quote == Some(byte) {
                quote = None;
            } else if quote.is_none() {
                depth += i64::from(byte == b'(') - i64::from(byte == b')');
                if byte == b'\''
                    && line[..at].iter().rev().take_while(|byte| is_in_word(**byte)).any(u8::is_ascii_digit)
                {
                    return None;
                }
                quote = (byte == b'"' || byte == b'\'').then_some(byte);
            }
            at += length;
        }
        code.truncate(code.trim_ascii_end().len());
        Some(Code { code, depth, is_closed: quote.is_none() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(source: &str, shown: &[u64]) -> Option<String> {
        let lines = placed_lines(source.as_bytes(), shown)?;
        Some(String::from_utf8_lossy(&lines).into_owned())
    }

    #[track_caller]
    fn check(before: &str, after: &str, shown: &[u64], is_same: bool) {
        let (before, after) = (placed(before, shown), placed(after, shown));
        assert!(before.is_some() && after.is_some(), "{before:?} {after:?}");
        assert_eq!(before == after, is_same, "{before:?} {after:?}");
    }

    #[test]
    fn what_does_not_move_a_word() {
        check("#define A 1\nint x;\n", "#define A 22 /* b */ \nint x;\n", &[2], true);
        check("int x; // a\n", "int x;   /* another */\n", &[1], true);
        check("/* one\n * two */ int x;\n", "/* two\n * one */ int x;\n", &[2], true);
        check("#if A\nint y;\n#else\nint x;\n#endif\n", "#if A\nlong y;\n#else\nint x;\n#endif\n", &[4], true);
        check("#define A \\\n 1\nint x;\n", "#define A \\\n 2\nint x;\n", &[3], true);
        check("int x;\n#if A\n a;\n#endif\nint y;\n", "int x;\n#if B\n b\n#endif\nint y;\n", &[1, 5], true);
        check("#define A /* a\n b */ 1\nint x;\n", "#define A /* a\n c */ 2\nint x;\n", &[3], true);
        check("char *s = \"/*\"; int x; // a\n", "char *s = \"/*\"; int x; // b\n", &[1], true);
        check("#error don't\nint x;\n", "#error doesn't\nint x;\n", &[2], true);
    }

    #[test]
    fn what_moves_a_word() {
        check("int x;\n", " int x;\n", &[1], false);
        check("/* a */ int x;\n", "/* ab */ int x;\n", &[1], false);
        check("int x;\n", "int  x;\n", &[1], false);
        check("F(a,\n b)+x;\n", "F(a,\nb)+x;\n", &[1], false);
        check("F(a,\n#if A\n b)+x;\n#endif\n", "F(a,\n#if A\nb)+x;\n#endif\n", &[1], false);
        check("F(a,\n#if A\nb);\n#endif\nint x;\n", "F(a,\n#if A\nb);\n#endif\nlong x;\n", &[1], true);
        check("#pragma a\n", "#pragma b\n", &[1], false);
        check("int x;\n#if A\n#endif\nint y;\n", "int x;\n\n\nint y;\n", &[1, 4], false);
        check("int x;\n// a\nint y;\n", "int x;\n // a\nint y;\n", &[1, 3], false);
        check("/* fall through */ int x;\n", "/* fall thrruogh */ int x;\n", &[1], false);
        check("char *s = \"//\"; // a\n", "char *s = \"// \"; // a\n", &[1], false);
    }

    #[test]
    fn what_is_not_certain() {
        for source in [
            "int x = 1'000; // a\n",
            "char *s = R\"(\n)\";\n",
            "int x; // a \\\nint y;\n",
            "#define A // a \\\n /* b\nint x;\n",
            "#define A \"a \\\n/*\"\nint x;\n",
            "#define A /\\\n* a */\nint x;\n",
            "#line 3\nint x;\n",
            "# 3 \"x.c\"\nint x;\n",
            "#include <a/*b>\nint x;\n",
            "/* a */ int x; /* b\n",
            "/* a\n */ #define A\n",
            "int don't;\n",
            "??=define A\n",
            "%:define A\n",
        ] {
            assert_eq!(placed(source, &[1]), None, "{source}");
        }
        assert_eq!(placed("int x;\n", &[7]), None, "the text has a line that the file does not have");
    }

    #[test]
    fn what_a_text_shows_of_a_header() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = dir.path().to_str().expect("is a text");
        let roots = Roots::new([root.as_bytes().to_vec()]);
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).expect("writes");
        let of = |text: &str| {
            let header = Header { encoded: b"\0\x01/c.h".to_vec(), path: format!("{root}/c.h").into_bytes() };
            let reading = Reading { roots: &roots, cwd: root.as_bytes() };
            compiled_text(text.as_bytes(), &[header], reading)
        };
        let text = "# 1 \"x.c\"\n# 1 \"c.h\" 1\nint x;\n# 2 \"x.c\" 2\n";
        write("c.h", "int x;\n");
        let first = of(text);
        assert!(first.is_some());
        write("c.h", "int  x;\n");
        assert_ne!(of(text), first);
        write("c.h", "int x; // a\n");
        assert_eq!(of(text), first);
        let by_macro = "# 1 \"x.c\"\n# 1 \"./c.h\" 1\n\n# 2 \"x.c\" 2\nint x = 1;\n";
        let of_macros = of(by_macro);
        write("c.h", "#define A  1\n");
        assert_eq!(of(by_macro), of_macros);
        write("c.h", "#define x x\n");
        assert_ne!(of(by_macro), of_macros, "a word of the text comes from a macro");
        assert_eq!(of("# 1 \"x.c\"\nint x;\n"), None, "the header has no marker");
        assert_eq!(of("# 1 \"x.c\"\n# 1 \"c.h\"\nint x;\n"), None, "it is not included");
        assert_eq!(of("# 1 \"x.c\"\n# 1 \"d/c.h\" 1\n"), None, "it is another file");
        let moved = text.replace("c.h", &format!("{root}/c.h"));
        assert!(of(&moved).is_some());
        let renamed = "# 1 \"x.c\"\n# 1 \"c.h\" 1\n# 7 \"q.h\"\nint x;\n# 2 \"x.c\" 2\n";
        write("c.h", "#line 7 \"q.h\"\nint x;\n");
        let first = of(renamed);
        write("c.h", "#line 7 \"q.h\"\nint  x;\n");
        assert!(first.is_some() && of(renamed) != first, "it gives itself another name");
    }

    #[test]
    fn which_directives_have_no_other_effect() {
        let check = |line: &str, expect| assert_eq!(is_plain_directive(line.as_bytes(), b"x.h"), expect, "{line}");
        for line in ["#ident \"1\"", "#pragma once", "#pragma GCC diagnostic ignored \"-Wall\""] {
            check(line, true);
        }
        for line in
            ["#pragma pack(N)", "#pragma GCC diagnostic error \"-Wall\"", "#pragma GCC target(\"avx2\")", " # 3"]
        {
            check(line, false);
        }
    }
}
