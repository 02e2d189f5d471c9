//! The number of the process that runs a text, `$$`: whether the text gets at it, and what it does with it.
//!
//! Unaware of: who reads the text, and what follows.

use std::collections::BTreeSet;
use std::ops::Range;

/// What two such signs in a row are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signs {
    /// The number: for a shell, and for all that may hand the text to one.
    Number,
    /// One sign, for a shell that reads it later: for make and ninja, so that four are the number.
    One,
}

/// What a text does with the number of its own process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnProcess {
    /// It has the number in other lines than those that are known.
    pub named: bool,
    /// What stands before the number in the names that come of the lines that are known.
    pub before: BTreeSet<&'static str>,
    /// It has the number otherwise than as a part of a name, as in `conf$$.file`: then it may be written in another
    /// form.
    pub alone: bool,
    /// It calculates with it: what comes of that can be the same in two runs, and another in the third (`$(($$ % 2))`).
    pub calculated: bool,
}

/// What a text does with the number of its own process.
pub fn own_process(text: &[u8], signs: Signs) -> OwnProcess {
    let braces = memchr::memmem::find(text, b"${$}").is_some();
    let mut found = OwnProcess { named: braces, alone: braces, ..OwnProcess::default() };
    for word in numbers(text, signs) {
        match known_line(line_of(text, word.start)) {
            Some(before) => found.before.extend((!before.is_empty()).then_some(before)),
            None => {
                found.named = true;
                found.alone |= is_alone(text, word.clone());
                found.calculated |= is_calculated(text, word);
            }
        }
    }
    found.named |= signs == Signs::One && puts_signs_together(text);
    found
}

/// Whether a text has the word, be it for somebody else.
pub fn holds_own_process(text: &[u8]) -> bool {
    memchr::memmem::find(text, b"$$").is_some() || memchr::memmem::find(text, b"${$}").is_some()
}

/// Where the word stands. In `\$$name` there is none: that is a sign, and what the name stands for.
fn numbers(text: &[u8], signs: Signs) -> impl Iterator<Item = Range<usize>> {
    let word: &[u8] = if signs == Signs::One { b"$$$$" } else { b"$$" };
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'{');
    let is_escaped = move |word: &Range<usize>| {
        let backslashes = text[..word.start].iter().rev().take_while(|byte| **byte == b'\\').count();
        signs == Signs::Number && backslashes % 2 == 1 && text.get(word.end).is_some_and(is_name)
    };
    let words = memchr::memmem::find_iter(text, word).map(move |at| at..at + word.len());
    words.filter(move |word| !is_escaped(word))
}

/// Whether a makefile makes one sign a variable, of which two come to the number, or hands on what it has unread.
fn puts_signs_together(text: &[u8]) -> bool {
    let is_value = |at: usize| {
        let ends = text.get(at + 2).is_none_or(u8::is_ascii_whitespace);
        ends && {
            let line = line_of(text, at);
            let value = line.iter().rposition(|byte| *byte == b'=').map_or(line, |at| &line[at + 1..]);
            value.trim_ascii() == b"$$"
        }
    };
    let unread = [&b"$(value"[..], b"${value"];
    unread.iter().any(|word| memchr::memmem::find(text, word).is_some())
        || memchr::memmem::find_iter(text, b"$$").any(is_value)
}

/// The line, as far as it lies within so many bytes: else a text of one line would be read once a word.
fn line_of(text: &[u8], at: usize) -> &[u8] {
    let from = at.saturating_sub(LINE_BYTES_MAX);
    let to = text.len().min(at + LINE_BYTES_MAX);
    let start = memchr::memrchr(b'\n', &text[from..at]).map_or(from, |line| from + line + 1);
    let end = memchr::memchr(b'\n', &text[at..to]).map_or(to, |line| at + line);
    &text[start..end]
}

/// Longer than all lines that are known, and than those that people write.
const LINE_BYTES_MAX: usize = 16 << 10;

/// Lines of what autoconf, automake and libtool write that have the number, and what stands before it in the name that
/// comes of it: of a temporary file, which is gone at the end, or of one on a system that is not ours. Nothing stands
/// before it where the line is one for make.
#[rustfmt::skip]
const KNOWN_LINES: &[(&str, &str)] = &[
    // Autoconf's, in configure and config.status: whether there are links.
    ("rm -f conf$$ conf$$.exe conf$$.file", "conf"),
    ("if test -d conf$$.dir; then", "conf"),
    ("rm -f conf$$.dir/conf$$.file", "conf"),
    ("rm -f conf$$.dir", "conf"),
    ("mkdir conf$$.dir", "conf"),
    ("mkdir conf$$.dir 2>/dev/null", "conf"),
    ("if (echo >conf$$.file) 2>/dev/null; then", "conf"),
    ("if ln -s conf$$.file conf$$ 2>/dev/null; then", "conf"),
    ("ln -s conf$$.file conf$$.dir 2>/dev/null && test ! -f conf$$.exe ||", "conf"),
    ("elif ln conf$$.file conf$$ 2>/dev/null; then", "conf"),
    ("rm -f conf$$ conf$$.exe conf$$.dir/conf$$.file conf$$.file", "conf"),
    ("rmdir conf$$.dir 2>/dev/null", "conf"),
    // And where config.status puts what it makes meanwhile.
    ("tmp=./conf$$-$RANDOM", "conf"),
    // Libtool's, where there is no mktemp or it only says what it would do, and for systems that are not ours.
    ("_G_tmpdir=$_G_template-$$", "-"),
    ("_G_tmpdir=$_G_template-${RANDOM-0}$$", "-"),
    ("my_tmpdir=\"${my_template}-$$\"", "-"),
    ("my_tmpdir=\"${my_template}-${RANDOM-0}$$\"", "-"),
    ("func_mkdir_p \"unfat-$$/$darwin_base_archive-$darwin_arch\"", "unfat-"),
    ("func_mkdir_p \"unfat-$$/${darwin_base_archive}-${darwin_arch}\"", "unfat-"),
    ("$LIPO -thin $darwin_arch -output \"unfat-$$/$darwin_base_archive-$darwin_arch/$darwin_base_archive\" \"$darwin_archive\"", "unfat-"),
    ("$LIPO -thin $darwin_arch -output \"unfat-$$/${darwin_base_archive}-${darwin_arch}/${darwin_base_archive}\" \"${darwin_archive}\"", "unfat-"),
    ("cd \"unfat-$$/$darwin_base_archive-$darwin_arch\"", "unfat-"),
    ("cd \"unfat-$$/${darwin_base_archive}-${darwin_arch}\"", "unfat-"),
    ("$RM \"unfat-$$/$darwin_base_archive-$darwin_arch/$darwin_base_archive\"", "unfat-"),
    ("$RM \"unfat-$$/${darwin_base_archive}-${darwin_arch}/${darwin_base_archive}\"", "unfat-"),
    ("darwin_filelist=`find unfat-$$ -type f -name \\*.o -print -o -name \\*.lo -print | $SED -e \"$sed_basename\" | sort -u`", "unfat-"),
    ("darwin_filelist=`find unfat-$$ -type f -name \\*.o -print -o -name \\*.lo -print | $SED -e \"$basename\" | sort -u`", "unfat-"),
    ("darwin_files=`find unfat-$$ -name $darwin_file -print | sort | $NL2SP`", "unfat-"),
    ("$RM -rf unfat-$$", "unfat-"),
    // Automake's: where install-sh tries and puts things meanwhile, and where `make distcheck` installs to.
    ("tmpdir=${TMPDIR-/tmp}/ins$RANDOM-$$", "-"),
    ("dsttmp=$dstdir/_inst.$$_", "_inst."),
    ("rmtmp=$dstdir/_rm.$$_", "_rm."),
    ("dsttmp=${dstdirslash}_inst.$$_", "_inst."),
    ("rmtmp=${dstdirslash}_rm.$$_", "_rm."),
    ("&& dc_destdir=\"${TMPDIR-/tmp}/am-dc-$$/\" \\", "am-dc-"),
    ("&& dc_destdir=\"$${TMPDIR-/tmp}/am-dc-$$$$/\" \\", "am-dc-"),
    // What configure hands on to makefiles.
    ("AMTAR='$${TAR-tar}'", ""),
    ("am__tar='$${TAR-tar} chof - \"$$tardir\"' am__untar='$${TAR-tar} xf -'", ""),
    ("am__tar='$${TAR-tar} chf - --format=ustar --owner=0 --group=0 \"$$tardir\"'", ""),
];

/// What stands before the number in the name that comes of a line, where that is one of those.
fn known_line(line: &[u8]) -> Option<&'static str> {
    let line = line.trim_ascii();
    KNOWN_LINES.iter().find(|(known, _)| known.as_bytes() == line).map(|(_, before)| *before)
}

/// Whether the word is part of a calculation or of a comparison.
fn is_calculated(text: &[u8], word: Range<usize>) -> bool {
    let from = word.start.saturating_sub(LINE_BYTES_MAX);
    let line = memchr::memrchr(b'\n', &text[from..word.start]).map_or(from, |line| from + line + 1);
    let (before, after) = (&text[line..word.start], &text[word.end..]);
    let last = |word: &[u8]| memchr::memmem::rfind(before, word);
    let calls = || CALCULATORS.iter().any(|word| last(word.as_bytes()).is_some());
    let operates = || operates(after.iter().copied()) || operates(before.iter().rev().copied());
    last(b"((") > last(b"))") || is_alone(text, word) && (calls() || operates())
}

/// What calculates with, or compares, what stands behind it in the line.
const CALCULATORS: &[&str] = &["expr ", "let ", "$[", "case ", "test ", "[ "];

/// Whether a sign of a calculation comes next, or one of a comparison, or one that is otherwise a shell's with a number
/// behind it.
fn operates(from_word: impl Iterator<Item = u8>) -> bool {
    let mut signs = from_word.filter(|byte| !matches!(byte, b' ' | b'\t' | b'"' | b'\'')).take(3);
    match (signs.next(), signs.next()) {
        (Some(b'%' | b'*' | b'/' | b'^'), _) | (Some(b'=' | b'!' | b'<' | b'>'), Some(b'=' | b'!')) => true,
        (Some(b'&' | b'|' | b'<' | b'>' | b'+' | b'-'), Some(next)) => next.is_ascii_digit(),
        _ => false,
    }
}

/// Whether such a word is no part of a name.
fn is_alone(text: &[u8], word: Range<usize>) -> bool {
    let is_part = |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_alphanumeric() || b"_-./{}".contains(b));
    let before = word.start.checked_sub(1).and_then(|at| text.get(at));
    let quoted = before == Some(&b'"') && is_part(word.start.checked_sub(2).and_then(|at| text.get(at)));
    before != Some(&b'\\') && !quoted && !is_part(before) && !is_part(text.get(word.end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_process_in_a_calculation() {
        for (text, expect) in [
            ("echo $((10000 + $$ % 5000)) > out", true),
            ("x=$(($$/2))", true),
            ("x=`expr $$ + 1`", true),
            ("let x=$$", true),
            ("x=$[ $$ & 1 ]", true),
            ("print $$ % 2", true),
            ("my $x = 7 * $$;", true),
            ("x=$((n + 1)); rm -f conf$$.c", false),
            ("tmp=/tmp/conf$$-`expr ${RANDOM-$$} % 9000`", false),
            ("perl -e 'print $$ & 1'", true),
            ("case $$ in *[02468]) echo even;; esac", true),
            ("[ $$ -gt 1000 ] && echo large", true),
            ("print 'x' if $$ < 4000;", true),
            ("kill -9 $$", false),
            ("sleep 1 $$ & wait", false),
            ("echo $$ | cat", false),
        ] {
            assert_eq!(own_process(text.as_bytes(), Signs::Number).calculated, expect, "{text}");
        }
        assert!(own_process(b"\techo $$(( $$$$ % 2 ))", Signs::One).calculated);
        assert!(!own_process(b"\techo $$(( $$x % 2 ))", Signs::One).calculated);
    }

    #[test]
    fn a_sign_before_a_name_is_no_number() {
        let named = |text: &str| own_process(text.as_bytes(), Signs::Number).named;
        for text in ["eval x=\\$$1", "eval \"test -z \\\"\\$$name\\\"\"", "x=\\$${name}_y", "x=\\\\\\$$y", "$1 $x"] {
            assert!(!named(text), "{text}");
        }
        for text in
            ["x$$y", "echo \\\\$$y", "eval \"echo \\$$\"", "\\$$$x", "rm x$$", "${$}", "conf$$", "echo conf$$.file"]
        {
            assert!(named(text), "{text}");
        }
    }

    #[test]
    fn what_make_hands_on() {
        let named = |text: &str| own_process(text.as_bytes(), Signs::One).named;
        for text in ["\tfor x in a b; do echo $$x; done\n", "\tsed 's/x$$//' $< > $@\n", "x = $$(pwd)\n", "\t$${x}"] {
            assert!(!named(text), "{text}");
        }
        for text in [
            "\techo x$$$$ > $@\n",
            "S = $$\n\techo $(S)$(S)\n",
            "define S\n$$\nendef\n",
            "x = echo $$x\nall:\n\t$(value x)\n",
            "x := $${$$}$$$$\n",
        ] {
            assert!(named(text), "{text}");
        }
    }

    #[test]
    fn lines_that_are_known() {
        let of = |text: &str, signs| {
            let found = own_process(text.as_bytes(), signs);
            (found.named, found.before.into_iter().collect::<Vec<_>>())
        };
        assert_eq!(
            of("x\n    dsttmp=$dstdir/_inst.$$_\n  rm -f conf$$.dir\n", Signs::Number),
            (false, vec!["_inst.", "conf"])
        );
        let distcheck = "\t  && dc_destdir=\"$${TMPDIR-/tmp}/am-dc-$$$$/\" \\\n";
        assert_eq!(of(distcheck, Signs::One), (false, vec!["am-dc-"]));
        assert_eq!(of("AMTAR='$${TAR-tar}'\n", Signs::Number), (false, vec![]));
        // A line that has more in it is another one.
        assert_eq!(of("rm -f conf$$.dir; echo conf$$ > x", Signs::Number), (true, vec![]));
        assert_eq!(of("rm -f conf$$.dir\necho conf$$ > x", Signs::Number), (true, vec!["conf"]));
    }
}
