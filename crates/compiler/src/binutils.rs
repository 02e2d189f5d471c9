//! Assembler, linker, archiver and their kin, called directly: what they name, and what they read unnamed.
//!
//! Everything else about them is observed, so that little has to be known of their flags.
//!
//! Unaware of: what an option does.

use crate::{EnvironmentRule, Family, Invocation, StandardInput};

/// Options of `as` and `ld` whose value is the next word, and would be taken for the first file.
const WITH_VALUE: &[&[u8]] = &[
    b"-A",
    b"-G",
    b"-I",
    b"-L",
    b"-T",
    b"-a",
    b"-b",
    b"-c",
    b"-dynamic-linker",
    b"-e",
    b"-f",
    b"-h",
    b"-l",
    b"-m",
    b"-o",
    b"-plugin",
    b"-plugin-opt",
    b"-rpath",
    b"-rpath-link",
    b"-soname",
    b"-u",
    b"-y",
    b"-z",
    b"--MD",
    b"--debug-prefix-map",
    b"--defsym",
    b"--output",
    b"--soname",
    b"--version-script",
];

/// Reads the arguments, `argv[0]` not among them. An archiver's operation stands first, with or without a dash, so the
/// first file may be an operation: it is for messages only.
pub(crate) fn parse(arguments: &[Vec<u8>]) -> Invocation {
    let (mut output, mut source, mut named_input) = (None, Vec::new(), false);
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let value = word.strip_prefix(b"-o").or(word.strip_prefix(b"--output="));
        if word == b"-o" || word == b"--output" {
            output = words.next().cloned();
        } else if let (Some(value), b"-") = (value, &word[..1.min(word.len())]) {
            output = Some(value.to_vec());
        } else if WITH_VALUE.contains(&word.as_slice()) {
            words.next();
        } else if !word.starts_with(b"-") && !word.starts_with(b"@") {
            named_input = true;
            if source.is_empty() {
                source = word.clone();
            }
        }
    }
    Invocation {
        family: Family::Binutils,
        source,
        output,
        depfile: None,
        depfile_has_system_headers: false,
        asks_processor: false,
        standard_input: standard_input(arguments, named_input),
        environment: EnvironmentRule::Listed,
    }
}

/// `as` without a file reads its source there; a dash stands for it, as does `ar -M`. A response file may hold either.
fn standard_input(arguments: &[Vec<u8>], named_input: bool) -> StandardInput {
    let is = |name: &[u8]| arguments.iter().any(|word| word == name);
    if is(b"-") || is(b"-M") || is(b"--") || arguments.iter().any(|word| word.starts_with(b"@")) {
        return StandardInput::Unknown;
    }
    if named_input { StandardInput::Unread } else { StandardInput::Unknown }
}

/// The archive that `ar ARGUMENT…` works on: the first word after its operation that is neither option nor the value of
/// one; and `ranlib`'s.
pub fn archive<'a>(program: &[u8], arguments: &'a [Vec<u8>]) -> Option<&'a [u8]> {
    let mut words = arguments.iter().map(Vec::as_slice).filter(|word| !word.starts_with(b"--")).peekable();
    if !program.ends_with(b"ar") {
        return words.find(|word| !word.starts_with(b"-"));
    }
    let operation = words.next()?;
    // Of these modifiers the value is the next word.
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
    fn files_and_standard_input() {
        let check = |line: &str, source: &str, output: &str, stdin| {
            let invocation = parse(&words(line));
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let got = (text(&invocation.source), text(&invocation.output.unwrap_or_default()));
            assert_eq!(got, (source.to_owned(), output.to_owned()), "{line}");
            assert_eq!(invocation.standard_input, stdin, "{line}");
        };
        check("-o x.o x.s", "x.s", "x.o", StandardInput::Unread);
        check("-ox.o --64 x.s", "x.s", "x.o", StandardInput::Unread);
        check("--64 -o x.o", "", "x.o", StandardInput::Unknown);
        check("-o x -dynamic-linker /lib/ld.so a.o -lc", "a.o", "x", StandardInput::Unread);
        check("--output=x a.o", "a.o", "x", StandardInput::Unread);
        check("-M", "", "", StandardInput::Unknown);
        check("@all", "", "", StandardInput::Unknown);
        check("x.s -", "x.s", "", StandardInput::Unknown);
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
