//! Reads the arguments of known programs: they say whether the program extracts or creates, and
//! which fields of `stat` it uses or prints.
//!
//! Unaware of: what follows for a habit.

use crate::names::is_named;
use larder_model::contains_any;
use larder_model::path::file_name;

/// Returns true if Python runs Meson when it is started with these arguments.
pub fn runs_meson(arguments: &[&[u8]]) -> bool {
    let script = arguments.iter().find(|argument| !argument.starts_with(b"-"));
    script.is_some_and(|script| matches!(file_name(script), b"meson" | b"meson.py"))
}

/// Returns true if `touch` is given a date that would mean another time tomorrow. Fixed dates begin
/// with a year, or count from 1970 (`@1546300800`).
pub(super) fn hangs_on_the_present(arguments: &[&[u8]]) -> bool {
    let digits = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let is_fixed = |date: &[u8]| match date {
        [b'@', rest @ ..] => digits(rest) > 0,
        date => digits(date) == 4 && date.get(4) == Some(&b'-'),
    };
    // Month, day, hour and minute are eight digits; more digits are the year.
    let is_fixed_stamp = |stamp: &[u8]| digits(stamp) >= 10;
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let fixed = match *argument {
            b"--" => return false,
            b"-d" | b"--date" => rest.next().is_some_and(|date| is_fixed(date)),
            b"-t" => rest.next().is_some_and(|stamp| is_fixed_stamp(stamp)),
            b"-r" | b"--reference" => rest.next().is_some(),
            [b'-', b'd', date @ ..] => is_fixed(date),
            [b'-', b't', stamp @ ..] => is_fixed_stamp(stamp),
            [b'-', b'-', long @ ..] => match long.strip_prefix(b"date=") {
                Some(date) => is_fixed(date),
                None => !b"date".starts_with(&long[..long.len().min(1)]),
            },
            [b'-', b'r', ..] => true,
            [b'-', letters @ ..] => !letters.iter().any(|letter| b"dtr".contains(letter)),
            _ => true,
        };
        if !fixed {
            return true;
        }
    }
    false
}

/// Returns true if `tar` is told to extract, with no option that makes it look at the mtimes of
/// existing files.
pub(super) fn only_extracts(arguments: &[&[u8]]) -> bool {
    const LETTERS: &[u8] = b"xvfzjJpokmOhPaBiSC";
    #[rustfmt::skip]
    const WORDS: &[&[u8]] = &[
        b"--bzip2", b"--directory", b"--exclude", b"--extract", b"--file", b"--get", b"--gunzip", b"--gzip", b"--lzma",
        b"--no-same-owner", b"--no-same-permissions", b"--overwrite", b"--preserve-permissions", b"--same-owner",
        b"--same-permissions", b"--strip-components", b"--touch", b"--transform", b"--verbose", b"--wildcards", b"--xz", b"--zstd",
    ];
    let mut extracts = false;
    arguments.iter().enumerate().all(|(at, argument)| match argument {
        [b'-', b'-', ..] => {
            let word = argument.split(|byte| *byte == b'=').next().unwrap_or_default();
            extracts |= matches!(word, b"--extract" | b"--get");
            WORDS.contains(&word)
        }
        [b'-', b'C', ..] => true,
        [b'-', letters @ ..] => {
            extracts |= letters.contains(&b'x');
            letters.iter().all(|letter| LETTERS.contains(letter))
        }
        letters if at == 0 => {
            extracts |= letters.contains(&b'x');
            letters.iter().all(|letter| LETTERS.contains(letter))
        }
        _ => true,
    }) && extracts
}

/// Returns true for a test that depends on more than the mtime, the kind and the permissions of a
/// file.
pub(super) fn asks_status(argument: &[u8]) -> bool {
    matches!(argument, b"-ef" | b"-u" | b"-g" | b"-k" | b"-O" | b"-G" | b"-N")
}

/// Returns true if `find` uses times, owners, or other fields of `stat` in a test or an action.
pub(super) fn finds_by_status(argument: &[u8]) -> bool {
    contains_any(argument, FIND_WORDS)
}

/// Returns true if `find` uses the sizes of directories.
pub(super) fn finds_by_size_of_directory(arguments: &[&[u8]]) -> bool {
    let are_files = arguments.windows(2).any(|pair| pair == [&b"-type"[..], b"f"]);
    !are_files && arguments.contains(&&b"-size"[..])
}

/// Tests and actions of `find` that use times, owners, and other fields of `stat`.
const FIND_WORDS: &[&str] = &[
    "newer",
    "min",
    "time",
    "-printf",
    "-fprintf",
    "-ls",
    "-fls",
    "-user",
    "-group",
    "-uid",
    "-gid",
    "-nouser",
    "-nogroup",
    "-links",
    "-inum",
    "-samefile",
    "-used",
    "-daystart",
    "-perm",
];

/// Returns true if the program shows the access time, the change time or the time of birth of files.
pub(super) fn shows_uses(program: &[u8], arguments: &[&[u8]]) -> bool {
    let is = |names: &[&str]| is_named(program, names);
    let any = |is_one: fn(&[u8]) -> bool| arguments.iter().any(|argument| is_one(argument));
    match () {
        () if is(&["stat"]) => match formats_of_stat(arguments) {
            Some(formats) => formats.is_empty() || formats.iter().any(|format| has_directive(format, b"WwXxZz")),
            None => true,
        },
        () if is(&["ls"]) => any(|argument| match argument {
            [b'-', b'-', b't', b'i', b'm', b'e', b'=', which, ..] => b"abcsu".contains(which),
            [b'-', b'-', ..] => false,
            [b'-', letters @ ..] => letters.iter().any(|letter| b"cu".contains(letter)),
            _ => false,
        }),
        () if is(&["find"]) => any(|argument| match argument.strip_prefix(b"-newer") {
            Some([one, other]) => b"Bac".contains(one) || b"Bac".contains(other),
            Some(_) => false,
            None => FIND_USES.iter().any(|word| word.as_bytes() == argument) || has_directive(argument, b"aAcCB"),
        }),
        () if is(&["test", "["]) => any(|argument| argument == b"-N"),
        // It stores the access times of files, unless told to leave out such fields.
        () if is(&["zip"]) => !any(|argument| short_letters(argument).contains(&b'X') || argument == b"--no-extra"),
        () => false,
    }
}

/// Returns the formats that `stat` is given, or `None` if it is asked about file systems (`-f`).
fn formats_of_stat<'a>(arguments: &[&'a [u8]]) -> Option<Vec<&'a [u8]>> {
    let mut formats = Vec::new();
    let mut rest = arguments.iter().copied();
    while let Some(argument) = rest.next() {
        let letters = short_letters(argument);
        let at = letters.iter().position(|letter| *letter == b'c');
        match argument {
            b"--file-system" => return None,
            b"--format" | b"--printf" => formats.extend(rest.next()),
            _ if letters[..at.unwrap_or(letters.len())].contains(&b'f') => return None,
            _ => match at.map(|at| &letters[at + 1..]) {
                Some(b"") => formats.extend(rest.next()),
                Some(format) => formats.push(format),
                None => {
                    let long = [&b"--format="[..], b"--printf="];
                    formats.extend(long.iter().find_map(|option| argument.strip_prefix(*option)));
                }
            },
        }
    }
    Some(formats)
}

/// Returns the letters of an argument that consists of one-letter options, otherwise nothing.
fn short_letters(argument: &[u8]) -> &[u8] {
    match argument {
        [b'-', b'-', ..] => b"",
        [b'-', letters @ ..] => letters,
        _ => b"",
    }
}

/// Returns true if a format contains a directive with one of these letters.
fn has_directive(format: &[u8], letters: &[u8]) -> bool {
    const BEFORE: &[u8] = b"-+ #'.0123456789HL";
    let directives = format.split(|byte| *byte == b'%').skip(1);
    directives.filter_map(|rest| rest.iter().find(|byte| !BEFORE.contains(byte))).any(|letter| letters.contains(letter))
}

/// Tests of `find` that use access or change times, or the current time.
const FIND_USES: &[&str] = &["-amin", "-anewer", "-atime", "-cmin", "-cnewer", "-ctime", "-daystart", "-used"];

/// Returns true if CMake is told to write an archive. An archive contains all that `tar` writes.
pub(super) fn writes_archive(arguments: &[&[u8]]) -> bool {
    matches!(arguments, [b"-E", b"tar", letters, ..] if letters.iter().any(|letter| b"cru".contains(letter)))
}

/// Returns true for an option with which `diff` prints mtimes, or compares directories. `-p` alone
/// implies `-c`.
pub(super) fn shows_files(argument: &[u8]) -> bool {
    let short = argument.len() > 1 && argument[0] == b'-' && argument[1..].iter().any(|b| b"ucpUCNr".contains(b));
    short || argument.starts_with(b"--")
}
