//! The process id of the process that runs a script, `$$`: whether a text contains it, and what the
//! text does with it.
//!
//! Unaware of: which program reads the text, and what is decided from the answer.

use std::collections::BTreeSet;
use std::ops::Range;

use larder_model::{contains, contains_any};
use memchr::memmem;

/// The meaning of `$$` in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signs {
    /// It is the process id, as in a shell script and in every text that may be passed to a shell.
    Number,
    /// It is one `$` for a shell that gets the text later, as in makefiles and ninja files. There
    /// `$$$$` is the process id.
    One,
}

/// What a text does with the process id of its own process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnProcess {
    /// The text contains the process id in a line that is not one of the known lines.
    pub named: bool,
    /// For the known lines in the text: what comes before the process id in the names that they
    /// make.
    pub before: BTreeSet<&'static str>,
    /// An unknown line uses the process id by itself, not as part of a name such as `conf$$.file`.
    /// It may then be written in another form.
    pub alone: bool,
    /// An unknown line calculates with the process id. The result may be equal in two runs and
    /// differ in a third, as with `$(($$ % 2))`.
    pub calculated: bool,
}

/// Returns what a text does with the process id of its own process.
pub fn own_process(text: &[u8], signs: Signs) -> OwnProcess {
    let braces = contains(text, "${$}");
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

/// Returns true if the text contains `$$` or `${$}`, whichever process that would stand for.
pub fn holds_own_process(text: &[u8]) -> bool {
    contains_any(text, &["$$", "${$}"])
}

/// Returns where the process id is used. `\$$name` does not count, because it is a literal `$`
/// followed by the value of `name`.
fn numbers(text: &[u8], signs: Signs) -> impl Iterator<Item = Range<usize>> {
    let word: &[u8] = if signs == Signs::One { b"$$$$" } else { b"$$" };
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'{');
    let is_escaped = move |word: &Range<usize>| {
        let backslashes = text[..word.start].iter().rev().take_while(|byte| **byte == b'\\').count();
        signs == Signs::Number && backslashes % 2 == 1 && text.get(word.end).is_some_and(is_name)
    };
    let words = memmem::find_iter(text, word).map(move |at| at..at + word.len());
    words.filter(move |word| !is_escaped(word))
}

/// Returns true if a makefile could assemble `$$` from parts: a variable's value is one `$$` (a
/// single `$` after expansion, so two of them make the process id), or `$(value …)` passes text on
/// unexpanded.
fn puts_signs_together(text: &[u8]) -> bool {
    let is_value = |at: usize| {
        let ends = text.get(at + 2).is_none_or(u8::is_ascii_whitespace);
        ends && {
            let line = line_of(text, at);
            let value = line.iter().rposition(|byte| *byte == b'=').map_or(line, |at| &line[at + 1..]);
            value.trim_ascii() == b"$$"
        }
    };
    contains_any(text, &["$(value", "${value"]) || memmem::find_iter(text, b"$$").any(is_value)
}

/// Returns the line around `at`, cut off at `LINE_BYTES_MAX` on both sides. Without this limit a
/// text of one long line would be read again for every match.
fn line_of(text: &[u8], at: usize) -> &[u8] {
    let from = at.saturating_sub(LINE_BYTES_MAX);
    let to = text.len().min(at + LINE_BYTES_MAX);
    let start = memchr::memrchr(b'\n', &text[from..at]).map_or(from, |line| from + line + 1);
    let end = memchr::memchr(b'\n', &text[at..to]).map_or(to, |line| at + line);
    &text[start..end]
}

/// A limit in bytes that is longer than all known lines, and than lines that people write.
const LINE_BYTES_MAX: usize = 16 << 10;

/// Lines that autoconf, automake and libtool write and that use the process id, each with what
/// comes before it in the name that the line makes. The name is that of a temporary file, which is
/// removed at the end, or is used on other systems only. The second text is empty if the `$$` is
/// meant for make.
#[rustfmt::skip]
const KNOWN_LINES: &[(&str, &str)] = &[
    // autoconf, in `configure` and `config.status`: tests whether links work.
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
    // autoconf: the temporary directory of `config.status`.
    ("tmp=./conf$$-$RANDOM", "conf"),
    // libtool: used without `mktemp` or in a dry run, and on other systems.
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
    // automake: the temporary files of `install-sh`, and the directory that `make distcheck`
    // installs to.
    ("tmpdir=${TMPDIR-/tmp}/ins$RANDOM-$$", "-"),
    ("dsttmp=$dstdir/_inst.$$_", "_inst."),
    ("rmtmp=$dstdir/_rm.$$_", "_rm."),
    ("dsttmp=${dstdirslash}_inst.$$_", "_inst."),
    ("rmtmp=${dstdirslash}_rm.$$_", "_rm."),
    ("&& dc_destdir=\"${TMPDIR-/tmp}/am-dc-$$/\" \\", "am-dc-"),
    ("&& dc_destdir=\"$${TMPDIR-/tmp}/am-dc-$$$$/\" \\", "am-dc-"),
    // Values that `configure` passes to makefiles.
    ("AMTAR='$${TAR-tar}'", ""),
    ("am__tar='$${TAR-tar} chof - \"$$tardir\"' am__untar='$${TAR-tar} xf -'", ""),
    ("am__tar='$${TAR-tar} chf - --format=ustar --owner=0 --group=0 \"$$tardir\"'", ""),
];

/// Returns what comes before the process id in the name that a known line makes, or `None` for an
/// unknown line.
fn known_line(line: &[u8]) -> Option<&'static str> {
    let line = line.trim_ascii();
    KNOWN_LINES.iter().find(|(known, _)| known.as_bytes() == line).map(|(_, before)| *before)
}

/// Returns true if the process id is part of a calculation or of a comparison.
fn is_calculated(text: &[u8], word: Range<usize>) -> bool {
    let from = word.start.saturating_sub(LINE_BYTES_MAX);
    let line = memchr::memrchr(b'\n', &text[from..word.start]).map_or(from, |line| from + line + 1);
    let (before, after) = (&text[line..word.start], &text[word.end..]);
    let last = |word: &[u8]| memmem::rfind(before, word);
    let calls = || CALCULATORS.iter().any(|word| last(word.as_bytes()).is_some());
    let operates = || operates(after.iter().copied()) || operates(before.iter().rev().copied());
    last(b"((") > last(b"))") || is_alone(text, word) && (calls() || operates())
}

/// Words after which the rest of the line is a calculation or a comparison.
const CALCULATORS: &[&str] = &["expr ", "let ", "$[", "case ", "test ", "[ "];

/// Returns true if the next character is an arithmetic or comparison operator. A character that
/// also has another meaning in a shell, such as `&` or `<`, counts only if a digit follows.
fn operates(from_word: impl Iterator<Item = u8>) -> bool {
    let mut signs = from_word.filter(|byte| !matches!(byte, b' ' | b'\t' | b'"' | b'\'')).take(3);
    match (signs.next(), signs.next()) {
        (Some(b'%' | b'*' | b'/' | b'^'), _) | (Some(b'=' | b'!' | b'<' | b'>'), Some(b'=' | b'!')) => true,
        (Some(b'&' | b'|' | b'<' | b'>' | b'+' | b'-'), Some(next)) => next.is_ascii_digit(),
        _ => false,
    }
}

/// Returns true if the process id is not part of a name.
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
        // A line that contains more than a known line is unknown.
        assert_eq!(of("rm -f conf$$.dir; echo conf$$ > x", Signs::Number), (true, vec![]));
        assert_eq!(of("rm -f conf$$.dir\necho conf$$ > x", Signs::Number), (true, vec!["conf"]));
    }
}
