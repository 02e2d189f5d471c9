//! Command lines of the binutils (assembler, linker, archiver and others) started directly: which
//! files they name, and whether they read standard input.
//!
//! All else that they do is observed, so little has to be known about their flags.
//!
//! Unaware of: what an option does.

mod flags;

use self::flags::Argument;
use crate::names::base_name;
use crate::response::{self, ResponseFiles};
use crate::{Family, Invocation, StandardInput};

/// Programs that read standard input if no file is named.
const READ_INPUT: &[&[u8]] = &[b"as", b"gas", b"llvm-as", b"strings"];

/// Parses `arguments`, which do not contain `argv[0]`.
///
/// An archiver's operation comes first, with or without a dash, so `source` may be an operation
/// (`rcs`). It is used in messages only.
pub(crate) fn parse(arguments: &[Vec<u8>]) -> Invocation {
    let (mut output, mut source) = (None, Vec::new());
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        if word == b"-o" || word == b"--output" {
            output = words.next().cloned();
        } else if let Some(value) = word.strip_prefix(b"-o").or(word.strip_prefix(b"--output=")) {
            output = Some(value.to_vec());
        } else if flags::argument(word) == Argument::Next {
            words.next();
        } else if !word.starts_with(b"-") && !word.starts_with(b"@") && source.is_empty() {
            source = word.clone();
        }
    }
    Invocation { source, output, ..Invocation::of(Family::Binutils) }
}

/// Returns true if an argument makes a program print timings or draw a random number. For example,
/// `-Wl,--stats`, `-Wl,-plugin-opt=-time-passes`, `-Wa,--statistics` or `--build-id=uuid`, also if
/// it is in a response file.
pub(crate) fn ask_for_statistics(arguments: &[Vec<u8>], files: &dyn ResponseFiles) -> bool {
    arguments.iter().any(|word| {
        word.split(|&b| b == b',').any(|part| {
            let in_file = || response::expand(&[part.to_vec()], files).is_ok_and(|words| words.iter().any(|w| asks(w)));
            if part.starts_with(b"@") { in_file() } else { asks(part) }
        })
    })
}

/// Does what [`ask_for_statistics`] says for an argument that names no response file.
fn asks(word: &[u8]) -> bool {
    word.ends_with(b"build-id=uuid") || word.split(|b| b"=, ".contains(b)).any(flags::prints_statistics)
}

/// Returns true if a linker argument affects at most the linked program, and makes the linker print
/// or write nothing else.
///
/// A map or a statistic would contain the sizes of sections with debug information. These sizes
/// depend on the paths but do not contain them. `word` is the argument of `-Wl,` or `-Xlinker`.
pub(crate) fn is_quiet_linker_word(word: &[u8]) -> bool {
    word.split(|&b| b == b',').filter(|part| part.starts_with(b"-")).all(flags::is_quiet)
}

/// Returns whether the program with this file name reads standard input.
///
/// The assembler and `strings` do so without a file, an archiver with `M`, and any program with
/// `-`. The answer is `Unknown` if it may do so: the word after an unknown option may be its value,
/// so it does not count as a file.
pub fn binutils_input(program: &[u8], arguments: &[Vec<u8>]) -> StandardInput {
    let base = base_name(program);
    let is = |name: &[u8]| arguments.iter().any(|word| word == name);
    let from_file = arguments.iter().any(|word| word.starts_with(b"@"));
    if base.ends_with(b"ar") && (is(b"M") || is(b"-M") || from_file) {
        return StandardInput::Unknown;
    }
    if is(b"-") || from_file && base.starts_with(b"llvm-") {
        return StandardInput::Unknown;
    }
    let named = READ_INPUT.contains(&base) && !is(b"--") && names_a_file(arguments);
    if named || !READ_INPUT.contains(&base) { StandardInput::Unread } else { StandardInput::Unknown }
}

fn names_a_file(arguments: &[Vec<u8>]) -> bool {
    let mut words = arguments.iter().map(Vec::as_slice);
    let mut after_option = false;
    while let Some(word) = words.next() {
        let argument = flags::argument(word);
        if argument == Argument::Next {
            words.next();
            after_option = false;
        } else if word.starts_with(b"-") {
            after_option = argument == Argument::Unknown && !word.contains(&b'=') && !word.starts_with(b"-o");
        } else if !after_option && !word.starts_with(b"@") {
            return true;
        } else {
            after_option = false;
        }
    }
    false
}

/// Returns the archive that `ar` or `ranlib` works on: the first word after the operation that is
/// neither an option nor the value of one. `program` is the program's file name.
pub fn archive<'a>(program: &[u8], arguments: &'a [Vec<u8>]) -> Option<&'a [u8]> {
    let mut words = arguments.iter().map(Vec::as_slice).filter(|word| !word.starts_with(b"--")).peekable();
    if !program.ends_with(b"ar") {
        return words.find(|word| !word.starts_with(b"-"));
    }
    let operation = words.next()?;
    // With one of these modifiers, the next word is its value (a member or a count).
    if operation.iter().any(|letter| b"abiN".contains(letter)) && !operation.contains(&b'/') {
        words.next();
    }
    words.find(|word| !word.starts_with(b"-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<Vec<u8>> {
        line.split_whitespace().map(|word| word.as_bytes().to_vec()).collect()
    }

    #[test]
    fn files() {
        let check = |line: &str, source: &str, output: &str| {
            let invocation = parse(&words(line));
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let got = (text(&invocation.source), text(&invocation.output.unwrap_or_default()));
            assert_eq!(got, (source.to_owned(), output.to_owned()), "{line}");
        };
        check("-o x.o x.s", "x.s", "x.o");
        check("-ox.o --64 x.s", "x.s", "x.o");
        check("-o x -dynamic-linker /lib/ld.so a.o -lc", "a.o", "x");
        check("--output=x a.o", "a.o", "x");
    }

    #[test]
    fn standard_input() {
        let check = |line: &str, expect| {
            let mut words = words(line);
            let program = words.remove(0);
            assert_eq!(binutils_input(&program, &words), expect, "{line}");
        };
        for line in [
            "as -o x.o x.s",
            "as --64 x.s",
            "x86_64-linux-gnu-as x.s",
            "ld a.o",
            "ld @all",
            "ar rcs lib.a x.o",
            "strings x",
        ] {
            check(line, StandardInput::Unread);
        }
        for line in [
            "as -o x.o",
            "as --64 -o x.o",
            "as --listing-lhs-width 4 -o x.o",
            "as --elf-stt-common no",
            "as x.s -",
            "as @all",
            "strings -n 5",
            "strings",
            "ar M",
            "ar -M",
            "ar @all",
            "llvm-nm -",
            "objcopy - x.o",
            "llvm-strip-14 @all",
        ] {
            check(line, StandardInput::Unknown);
        }
    }

    #[test]
    fn archives() {
        let check = |program: &str, line: &str, expect: Option<&str>| {
            let words = words(line);
            assert_eq!(archive(program.as_bytes(), &words), expect.map(str::as_bytes), "{program} {line}");
        };
        check("ar", "rcs lib.a x.o", Some("lib.a"));
        check("ar", "-rcs lib.a x.o", Some("lib.a"));
        check("ar", "--plugin=p rcs lib.a x.o", Some("lib.a"));
        check("gcc-ar", "ra x.o lib.a y.o", Some("lib.a"));
        check("ar", "-M", None);
        check("ranlib", "-D lib.a", Some("lib.a"));
        check("ranlib", "-V", None);
    }
}
