//! What larder knows about programs by their file names: what each asks of the system in every run
//! although its result does not depend on it. For example, every shell reads the clock when it
//! starts.
//!
//! A program that is not listed is not trusted: what it asks for may affect its result.
//!
//! Unaware of: where a program is, and what it really is.

mod git;
mod table;

use larder_model::{Habit, Times};

use self::table::{Archives, Proc, Rule};
use crate::names::{replaces_output, rewrites_output, stem, without_target};
use crate::words::{AWK_WORDS, Named, holds_any};
use crate::{Family, family_of};

/// What is known about a command beyond the names of its programs.
#[derive(Clone, Copy)]
pub struct Told<'a> {
    /// The program's arguments without `argv[0]`, or `None` if not all of them are known.
    pub arguments: Option<&'a [&'a [u8]]>,
    /// The words that the command's texts contain.
    pub named: Named,
    /// Returns true if an environment variable is set to a value other than `random`.
    pub is_set: &'a dyn Fn(&[u8]) -> bool,
    /// The command built this program itself, and a program for which [`configures`] is true
    /// started it.
    pub is_made_to_ask: bool,
}

/// A language whose scripts are read by its own interpreter only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// Python.
    Python,
    /// Perl.
    Perl,
    /// awk.
    Awk,
    /// CMake.
    CMake,
}

impl Language {
    /// The number of languages.
    pub const COUNT: usize = 4;

    /// Returns the language that the program with this file name interprets.
    pub fn of(program: &[u8]) -> Option<Language> {
        match table::rule(program) {
            Rule::Python => Some(Language::Python),
            Rule::Perl => Some(Language::Perl),
            Rule::Awk => Some(Language::Awk),
            Rule::CMake => Some(Language::CMake),
            _ => None,
        }
    }
}

impl Told<'_> {
    /// A command about which nothing special is known: no arguments, no words, no variables.
    pub fn nothing() -> Told<'static> {
        Told { arguments: Some(&[]), named: Named::default(), is_set: &|_| false, is_made_to_ask: false }
    }

    /// Returns true if an argument satisfies `is_one`, or if not all arguments are known.
    fn may_have(&self, is_one: impl Fn(&[u8]) -> bool) -> bool {
        self.arguments.is_none_or(|arguments| arguments.iter().any(|argument| is_one(argument)))
    }
}

/// Returns true if a program with this file name mostly starts other programs, and lives as long as
/// they do.
pub fn starts_others(program: &[u8]) -> bool {
    matches!(table::rule(program), Rule::Shell | Rule::Build | Rule::CMake | Rule::Python | Rule::Perl)
}

/// Returns the [`Habit`] of the program with this file name: what it does in every run.
pub fn habit(program: &[u8], told: Told) -> Habit {
    let Told { named, is_set, .. } = told;
    let row = table::find(program);
    let rule = row.map_or(Rule::Unknown, |row| row.rule);
    let strict = Habit {
        times: Times::Blind,
        compares: false,
        clock_reads: 0,
        zone_reads: 0,
        tells_time: rule == Rule::Date,
        random_reads: 0,
        seeds_are_compared: false,
        sorts_names: false,
        lists_kinds: false,
        tunes_memory: match row.map_or(Proc::Matters, |row| row.proc) {
            Proc::Always => !named.memory,
            Proc::Told => !told.may_have(|argument| argument.starts_with(b"/proc")),
            Proc::Matters => false,
        },
        tries_terminal: false,
        git: None,
        names_at_random: false,
        names_as_tempfile: rule == Rule::Python,
        shows_numbers: false,
        tries_sockets: false,
        reports: false,
        runs_code_of_builds: false,
    };
    if rule == Rule::Rustc {
        // It times its passes, seeds hash functions, and makes up names of temporary files. By
        // rustc's policy none of that reaches a result. It sorts the names of a directory before it
        // uses them, and looks for a terminal to learn its width.
        let many = u32::MAX;
        return Habit {
            clock_reads: many,
            zone_reads: many,
            random_reads: many,
            sorts_names: true,
            tunes_memory: true,
            tries_terminal: true,
            runs_code_of_builds: true,
            ..strict
        };
    }
    if is_compiler_part(program) {
        // mold's allocator asks for random numbers, and so does its `--build-id=uuid`. Two runs
        // tell whether they matter.
        let is_believed = !rewrites_output(program);
        return Habit {
            clock_reads: u32::MAX,
            random_reads: if is_believed { u32::MAX } else { 0 },
            sorts_names: true,
            tunes_memory: is_believed,
            times: if named.dates_compared { Times::Files } else { Times::Blind },
            ..strict
        };
    }
    let interpreted = |times| if named.times { Times::Status } else { times };
    // The time and random numbers only reach its log and the names of directories that it removes
    // again.
    let builds = Habit {
        compares: true,
        clock_reads: u32::MAX,
        zone_reads: u32::MAX,
        random_reads: u32::MAX,
        sorts_names: true,
        // For patterns such as `*/x`.
        lists_kinds: true,
        // make tells its children the path of its terminal.
        tries_terminal: true,
        ..strict
    };
    match rule {
        Rule::Copier => copies(program, &told, strict),
        Rule::Blind => strict,
        Rule::Shell => {
            // bash reads the clock at its start for $SECONDS, and seeds $RANDOM. Each process that
            // it forks does so again.
            let clock_reads = if named.shell_clocks { 0 } else { u32::MAX };
            // A shell can compare mtimes, but has no way to print them.
            let times = if named.shell_status { Times::Status } else { Times::Blind };
            Habit { times, compares: named.shell_times, clock_reads, sorts_names: true, tries_terminal: true, ..strict }
        }
        Rule::CMake if told.arguments.is_none_or(writes_archive) => Habit { times: Times::Status, ..builds },
        Rule::Build => builds,
        Rule::CMake if !named.cmake_clocks => builds,
        Rule::Python if told.arguments.is_some_and(runs_meson) => builds,
        Rule::Python => {
            // At its start Python asks for the time, for the time zone in winter and in summer, and
            // for the seed of its hash function (3.11). Python 3.9 also reads the system clock
            // (`_PyTime_Init`). Since 3.13 the allocator (mimalloc) draws a random number.
            let minor = minor_version(program);
            let clock_reads = if named.clocks { 0 } else { 1 + u32::from(minor.is_some_and(|minor| minor < 10)) };
            let seed_reads = if is_set(b"PYTHONHASHSEED") { 0 } else { 1 };
            let random_reads = seed_reads + u32::from(minor.is_some_and(|minor| minor >= 13));
            let times = interpreted(Times::Inputs);
            Habit { times, clock_reads, zone_reads: 2, random_reads, seeds_are_compared: named.hashes, ..strict }
        }
        Rule::Perl if !named.perl_clocks => {
            // $^T is the time of its start. The seeds of the hash function are two reads (5.36).
            let random_reads = if is_set(b"PERL_HASH_SEED") { 0 } else { 2 };
            let clock_reads = if named.times { 0 } else { 1 };
            let times = interpreted(Times::Inputs);
            Habit { times, clock_reads, random_reads, seeds_are_compared: named.perl_hashes, ..strict }
        }
        Rule::Awk if !has_clocks(&told) => {
            // It seeds rand() in every run.
            Habit { clock_reads: 2, random_reads: 1, ..strict }
        }
        Rule::Troff if !named.roff_clocks => {
            // It sets its date registers in every run.
            Habit { clock_reads: u32::MAX, zone_reads: u32::MAX, ..strict }
        }
        Rule::Archiver => {
            // Whether it wrote down mtimes can be seen in the archive.
            Habit { times: Times::Files, clock_reads: u32::MAX, ..strict }
        }
        Rule::Git if told.arguments.is_some_and(|arguments| git::shows(arguments).is_some()) => {
            let git = told.arguments.and_then(git::shows);
            Habit { git, clock_reads: u32::MAX, zone_reads: u32::MAX, sorts_names: true, lists_kinds: true, ..strict }
        }
        Rule::Ldconfig if told.arguments.is_some_and(|arguments| arguments.contains(&&b"-n"[..])) => strict,
        Rule::Diff if !told.may_have(shows_files) => strict,
        Rule::TemporaryNames => Habit { names_at_random: true, ..strict },
        Rule::Find if !told.may_have(|argument| holds_any(argument, FIND_WORDS)) => {
            // It reads the clock at its start for options that are in FIND_WORDS.
            Habit { clock_reads: 1, ..strict }
        }
        Rule::Ls if told.arguments == Some(&[b"-di", b"."]) => {
            // autoconf uses this command to test whether two paths are the same directory.
            Habit { shows_numbers: true, ..strict }
        }
        Rule::Ls => lists(&told, strict),
        Rule::Test if !told.may_have(asks_status) => {
            Habit { compares: told.may_have(|argument| matches!(argument, b"-nt" | b"-ot")), ..strict }
        }
        Rule::Touch => {
            // It reads the clock to parse any date, whether or not the date is relative to now.
            let clock_reads = if told.arguments.is_none_or(hangs_on_the_present) { 0 } else { u32::MAX };
            Habit { clock_reads, zone_reads: u32::MAX, ..strict }
        }
        Rule::Tar if told.arguments.is_some_and(only_extracts) => {
            // It reads the clock to warn about files from the future.
            Habit { times: Times::Mode, clock_reads: u32::MAX, ..strict }
        }
        Rule::Status | Rule::Find | Rule::Tar | Rule::Test => {
            // tar reads the clock at its start for warnings.
            let clock_reads = if matches!(rule, Rule::Find | Rule::Tar) && !named.times { 1 } else { 0 };
            Habit { times: status(program, &told), clock_reads, ..strict }
        }
        _ if told.is_made_to_ask && is_probe(program) => {
            let many = u32::MAX;
            Habit {
                times: Times::Files,
                clock_reads: many,
                random_reads: many,
                zone_reads: many,
                tries_sockets: true,
                ..strict
            }
        }
        _ => Habit { times: interpreted(Times::Files), ..strict },
    }
}

/// Returns the second number of the version in a program's file name: 13 for `python3.13`.
fn minor_version(program: &[u8]) -> Option<u32> {
    let dot = memchr::memrchr(b'.', program)?;
    std::str::from_utf8(&program[dot + 1..]).ok()?.parse().ok()
}

/// Returns the habit of a program that copies files. It copies modes, compares mtimes only if told
/// to, and copies mtimes only by setting them, which is observed.
fn copies(program: &[u8], told: &Told, strict: Habit) -> Habit {
    let short = |argument: &[u8], letters: &[u8]| {
        argument.len() > 1
            && argument[0] == b'-'
            && argument[1] != b'-'
            && argument[1..].iter().any(|b| letters.contains(b))
    };
    let letters: &[u8] = if is_named(program, &["sed"]) { b"" } else { b"uC" };
    let words: &[&[u8]] = &[b"--update", b"--compare"];
    let compares =
        told.may_have(|argument| short(argument, letters) || words.iter().any(|word| argument.starts_with(word)));
    Habit { times: Times::Mode, compares, ..strict }
}

/// Returns the habit of `ls`. Options that only print names, sort them by mtime or change the
/// layout are harmless.
fn lists(told: &Told, strict: Habit) -> Habit {
    const HARMLESS: &[u8] = b"1aAdRrFpLHBCxmt";
    let is_odd = |argument: &[u8]| match argument {
        [b'-', b'-', ..] => true,
        [b'-', letters @ ..] => letters.iter().any(|letter| !HARMLESS.contains(letter)),
        _ => false,
    };
    match told.may_have(is_odd) {
        true => Habit { times: status(b"ls", told), ..strict },
        false => {
            let has = |letter: u8| told.may_have(|argument| argument.starts_with(b"-") && argument.contains(&letter));
            let lists_kinds = [b'F', b'R', b'p'].into_iter().any(&has);
            // `-A` and `-a` also show the kinds of hidden entries. These are only recorded if the
            // order of the names counts.
            let sorts_names = !(lists_kinds && [b'A', b'a'].into_iter().any(&has));
            Habit { compares: has(b't'), sorts_names, lists_kinds, ..strict }
        }
    }
}

/// Returns true if `touch` is given a date that would mean another time tomorrow. Fixed dates begin
/// with a year, or count from 1970 (`@1546300800`).
fn hangs_on_the_present(arguments: &[&[u8]]) -> bool {
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
fn only_extracts(arguments: &[&[u8]]) -> bool {
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
fn asks_status(argument: &[u8]) -> bool {
    matches!(argument, b"-ef" | b"-u" | b"-g" | b"-k" | b"-O" | b"-G" | b"-N")
}

/// Returns how much of `stat` the output of a program may show: access and change times only if its
/// arguments ask for them.
fn status(program: &[u8], told: &Told) -> Times {
    match told.arguments {
        Some(arguments) if shows_uses(program, arguments) => Times::Uses,
        _ => Times::Status,
    }
}

/// Returns true if the program shows the access time or the change time of files.
fn shows_uses(program: &[u8], arguments: &[&[u8]]) -> bool {
    let is = |names: &[&str]| is_named(program, names);
    let any = |is_one: fn(&[u8]) -> bool| arguments.iter().any(|argument| is_one(argument));
    match () {
        () if is(&["stat"]) => match formats_of_stat(arguments) {
            Some(formats) => formats.is_empty() || formats.iter().any(|format| has_directive(format, b"XxZz")),
            None => true,
        },
        () if is(&["ls"]) => any(|argument| match argument {
            [b'-', b'-', b't', b'i', b'm', b'e', b'=', which, ..] => b"acsu".contains(which),
            [b'-', b'-', ..] => false,
            [b'-', letters @ ..] => letters.iter().any(|letter| b"cu".contains(letter)),
            _ => false,
        }),
        () if is(&["find"]) => any(|argument| match argument.strip_prefix(b"-newer") {
            Some([one, other]) => b"ac".contains(one) || b"ac".contains(other),
            Some(_) => false,
            None => FIND_USES.iter().any(|word| word.as_bytes() == argument) || has_directive(argument, b"aAcC"),
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
fn writes_archive(arguments: &[&[u8]]) -> bool {
    matches!(arguments, [b"-E", b"tar", letters, ..] if letters.iter().any(|letter| b"cru".contains(letter)))
}

/// Returns true for an option with which `diff` prints mtimes, or compares directories.
fn shows_files(argument: &[u8]) -> bool {
    let short = argument.len() > 1 && argument[0] == b'-' && argument[1..].iter().any(|b| b"ucUCNr".contains(b));
    short || argument.starts_with(b"--")
}

/// Returns true if Python runs Meson when it is started with these arguments.
pub fn runs_meson(arguments: &[&[u8]]) -> bool {
    let script = arguments.iter().find(|argument| !argument.starts_with(b"-"));
    script.is_some_and(|script| matches!(script.rsplit(|&b| b == b'/').next(), Some(b"meson" | b"meson.py")))
}

/// Returns true if awk's program may read the clock. The program is in the arguments, or in files
/// that they name.
fn has_clocks(told: &Told) -> bool {
    const INPUT: [&[u8]; 3] = [b"-", b"-f-", b"/dev/stdin"];
    let is_file = |argument: &[u8]| argument.starts_with(b"-f") || argument.starts_with(b"--f") || argument == b"-i";
    match told.arguments {
        Some(arguments) if arguments.iter().any(|argument| holds_any(argument, AWK_WORDS)) => true,
        // A program on standard input can come from anywhere.
        Some(arguments) if arguments.iter().any(|argument| INPUT.contains(argument)) => told.may_have(is_file),
        _ => told.named.awk_clocks && told.may_have(is_file),
    }
}

/// Returns true if this program with these arguments configures a build: it builds small programs
/// and runs them to learn about the machine. Such programs are autoconf's `configure`, CMake and
/// Meson.
pub fn configures(program: &[u8], arguments: &[&[u8]]) -> bool {
    let script = || arguments.iter().find(|argument| !argument.starts_with(b"-"));
    let name = || script().and_then(|script| script.rsplit(|&b| b == b'/').next());
    match table::rule(program) {
        Rule::CMake => true,
        Rule::Shell => name() == Some(b"configure"),
        Rule::Python => runs_meson(arguments),
        _ => false,
    }
}

/// Returns true if autoconf, CMake and Meson give programs this name that test a property of the
/// machine.
///
/// Such a test reads the clock only to see whether there is one. A project may use the name for a
/// program of its own, so the name alone is not enough: see [`Told::is_made_to_ask`].
fn is_probe(program: &[u8]) -> bool {
    program == b"conftest" || program.starts_with(b"cmTC_") || program.starts_with(b"sanitycheck")
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

/// Programs that print all environment variables, whatever their names.
pub const LISTS_VARIABLES: &[&str] = &["env", "printenv"];

/// Variables by which build tools pass settings to their children, by program. The key of an
/// unknown tool leaves these variables out.
pub const SERVED: &[(&str, &[&str])] = &[
    ("make", &["MAKEFLAGS", "MFLAGS", "MAKELEVEL"]),
    ("gmake", &["MAKEFLAGS", "MFLAGS", "MAKELEVEL"]),
    ("ninja", &["NINJA_STATUS"]),
    ("cargo", &["CARGO_MAKEFLAGS"]),
];

/// Returns true for a log that build systems write for people. It contains times, process ids and
/// names of temporary files, and no program uses it.
pub fn is_log(path: &[u8]) -> bool {
    let file_name = larder_model::path::file_name(path);
    LOGS.iter().any(|log| log.as_bytes() == file_name)
}

/// Returns true for ninja's database of the dependencies that compilers reported. It contains the
/// mtimes of outputs.
pub fn is_ninjas(path: &[u8]) -> bool {
    path == b".ninja_deps" || path.ends_with(b"/.ninja_deps")
}

/// Returns true for autoconf's `config.status`, a script with the values of variables, wrapped at a
/// fixed column.
pub fn is_config_status(path: &[u8]) -> bool {
    path == b"config.status" || path.ends_with(b"/config.status")
}

/// Returns true for files in which Meson keeps its state. They are in the order of hash tables,
/// which differs in each run and means nothing to Meson.
pub fn is_in_no_order(path: &[u8]) -> bool {
    memchr::memmem::find(path, b"/meson-private/").is_some() || path.ends_with(b"/meson-info/intro-tests.json")
}

#[rustfmt::skip]
const LOGS: &[&str] = &[
    "config.log", "configure.log", "CMakeOutput.log", "CMakeError.log", "CMakeConfigureLog.yaml", "meson-log.txt",
    ".ninja_log",
];

/// Returns true if the program with this file name is a shell. In a process that a shell forks,
/// `$$` is still the id of the shell.
pub fn is_shell(program: &[u8]) -> bool {
    table::rule(program) == Rule::Shell
}

/// Returns true if the program with this file name decides by mtimes what to do, and has shells run
/// the commands that it reads.
pub fn is_build_tool(program: &[u8]) -> bool {
    table::rule(program) == Rule::Build
}

/// Returns true if the program with this file name runs no script, so no text can make it print its
/// process id.
pub fn runs_no_script(program: &[u8]) -> bool {
    let is_known = matches!(
        table::rule(program),
        Rule::Archiver
            | Rule::Blind
            | Rule::Copier
            | Rule::Date
            | Rule::Find
            | Rule::Ls
            | Rule::Status
            | Rule::Tar
            | Rule::TemporaryNames
            | Rule::Test
            | Rule::Touch
    );
    is_known || is_compiler_part(program)
}

/// Returns true if the program with this file name extracts files from archives. Their content can
/// usually not be read before.
pub fn unpacks(program: &[u8]) -> bool {
    table::find(program).is_some_and(|row| row.archives == Archives::Unpacks)
}

/// Returns true if the program with this file name is a known part of a compiler.
///
/// Such programs ask libc for the variables that they use. They read the clock in every run, but
/// except for `__DATE__` and similar macros their result does not depend on it. For example, gcc
/// times its passes, and seeds symbol names that it does not promise to keep.
pub fn is_compiler_part(program: &[u8]) -> bool {
    let rule = table::rule(program);
    let family = family_of(program);
    let binutils = family == Some(Family::Binutils) && rule != Rule::Archiver;
    replaces_output(program)
        || rewrites_output(program)
        || matches!(rule, Rule::CompilerPart | Rule::Rustc)
        || binutils
        || matches!(family, Some(Family::Gcc | Family::Clang))
}

/// Returns true if the program with this file name uses a search path such as `PATH` only if a text
/// of the command names it, if the program asks libc for it, or to find a program by `PATH`.
///
/// Returns false for interpreters other than shells, because their libraries are not searched for
/// names of variables.
pub fn shows_what_it_searches(program: &[u8]) -> bool {
    let lists = is_named(program, LISTS_VARIABLES);
    let is_other = matches!(
        table::rule(program),
        Rule::Unknown | Rule::CMake | Rule::Perl | Rule::Python | Rule::Rustc | Rule::Troff
    );
    is_compiler_part(program) && table::rule(program) != Rule::Rustc || !is_other && !lists
}

/// Returns true if larder knows the program with this file name.
pub fn is_known_program(program: &[u8]) -> bool {
    table::find(program).is_some() || is_compiler_part(program)
}

/// Returns true if this is a shell script of the system that uses `PATH` only to find programs.
pub fn is_plain_system_script(path: &[u8]) -> bool {
    const PLAIN: [&str; 7] = ["egrep", "fgrep", "gunzip", "ldd", "which", "which.debianutils", "zcat"];
    is_named(path, &PLAIN)
}

/// Returns true if the program with this file name runs code of the build in its own process, as
/// rustc runs procedural macros. So its name alone says little about what it may do.
pub fn runs_code_of_builds(program: &[u8]) -> bool {
    table::rule(program) == Rule::Rustc
}

/// Compares the file name, and the name without target and version. The first is needed because
/// `lto1` and `m4` end in a digit that is not a version.
fn is_named(program: &[u8], names: &[&str]) -> bool {
    let base = without_target(stem(program));
    let file = program.rsplit(|&b| b == b'/').next().unwrap_or(program);
    names.iter().any(|name| name.as_bytes() == base || name.as_bytes() == file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, arguments: &[&[u8]], named: Named) -> Habit {
        habit(name.as_bytes(), Told { arguments: Some(arguments), named, ..Told::nothing() })
    }

    #[test]
    fn habits() {
        let times = |name: &str, named| of(name, &[], named).times;
        let (nothing, anything) = (Named::default(), Named::ANYTHING);
        assert_eq!(times("cc1plus", nothing), Times::Blind);
        assert_eq!(times("lto1", nothing), Times::Blind);
        assert_eq!(times("m4", nothing), Times::Blind);
        assert_eq!(times("grep", anything), Times::Blind);
        assert_eq!(times("sed", nothing), Times::Mode);
        assert_eq!(times("dash", Named { shell_times: true, ..nothing }), Times::Blind);
        assert_eq!(times("dash", Named { shell_status: true, ..nothing }), Times::Status);
        assert_eq!(times("python3.11", nothing), Times::Inputs);
        assert_eq!(times("python3.11", anything), Times::Status);
        assert_eq!(times("make", nothing), Times::Blind);
        assert_eq!(times("ar", nothing), Times::Files);
        assert_eq!(times("mygenerator", nothing), Times::Files);
        let told = Told { is_set: &|name| name == b"PYTHONHASHSEED", ..Told::nothing() };
        assert_eq!(habit(b"cc1", told).clock_reads, u32::MAX);
        assert_eq!(habit(b"mygenerator", told).clock_reads, 0);
        assert_eq!([habit(b"ld.lld", told), habit(b"ld.mold", told)].map(|habit| habit.random_reads), [u32::MAX, 0]);
        assert_eq!(habit(b"python3", told).random_reads, 0);
        assert_eq!(habit(b"python3.9", Told::nothing()).clock_reads, 2);
        assert_eq!(habit(b"python3.11", Told::nothing()).clock_reads, 1);
        assert_eq!(
            [habit(b"python3.13", Told::nothing()), habit(b"python3.13", told)].map(|habit| habit.random_reads),
            [2, 1]
        );
        assert_eq!(habit(b"python3.11", Told::nothing()).random_reads, 1);
    }

    #[test]
    fn clocks() {
        let reads = |name: &str, named| of(name, &[], named).clock_reads;
        let shell = Named { shell_clocks: true, ..Named::default() };
        assert_eq!((reads("bash", Named::default()), reads("bash", shell)), (u32::MAX, 0));
        let awk = Named { awk_clocks: true, ..Named::default() };
        let with_file = of("mawk", &[b"-f", b"x.awk"], awk).clock_reads;
        assert_eq!((reads("mawk", shell), reads("mawk", awk), with_file), (2, 2, 0));
        assert_eq!(of("awk", &[b"BEGIN { print systime() }"], Named::default()).clock_reads, 0);
        let roff = Named { roff_clocks: true, ..Named::default() };
        assert_eq!((reads("troff", awk), reads("troff", roff)), (u32::MAX, 0));
        assert_eq!((reads("cmake", Named::default()), reads("cmake", Named::ANYTHING)), (u32::MAX, 0));
        assert_eq!((reads("conftest", Named::ANYTHING), reads("date", Named::default())), (0, 0));
    }

    #[test]
    fn a_name_alone_is_no_probe() {
        for name in ["conftest", "cmTC_a2f27", "sanitycheckc.exe"] {
            let reads = |is_made_to_ask| habit(name.as_bytes(), Told { is_made_to_ask, ..Told::nothing() }).clock_reads;
            assert_eq!((reads(false), reads(true)), (0, u32::MAX), "{name}");
        }
        let asks = |program: &str, arguments: &[&[u8]]| configures(program.as_bytes(), arguments);
        assert!(asks("dash", &[b"./configure", b"--prefix=/usr"]) && asks("bash", &[b"-e", b"../src/configure"]));
        assert!(asks("cmake", &[b".."]) && asks("python3.11", &[b"/usr/bin/meson", b"setup"]));
        assert!(!asks("dash", &[b"build.sh", b"configure"]) && !asks("dash", &[b"-c", b"./conftest"]));
        assert!(!asks("make", &[b"configure"]) && !asks("python3", &[b"x.py"]) && !asks("configure", &[]));
        assert!(!habit(b"larder", Told::nothing()).reports);
    }

    #[test]
    fn a_date_with_a_year_is_the_same_tomorrow() {
        let check = |arguments: &[&[u8]], expect| {
            assert_eq!(of("touch", arguments, Named::default()).clock_reads == 0, expect, "{arguments:?}");
        };
        for fixed in [&b"2019-01-02 03:04:05 UTC"[..], b"2019-01-02", b"@1546300800", b"@1546300800.5"] {
            check(&[b"-d", fixed, b"x"], false);
            check(&[&[b"--date=", fixed].concat(), b"x"], false);
            check(&[&[b"-d", fixed].concat(), b"x"], false);
        }
        for relative in [&b"yesterday"[..], b"12:00", b"-1 hour", b"2019", b"1 2019-01-01", b"01/02/2019"] {
            check(&[b"-d", relative, b"x"], true);
            check(&[b"-c", b"-d", relative, b"x"], true);
        }
        check(&[b"-t", b"201901020304", b"x"], false);
        check(&[b"-t", b"01020304.05", b"x"], true);
        check(&[b"-r", b"a", b"x"], false);
        check(&[b"-cmr", b"a", b"x"], true);
        check(&[b"-c", b"--", b"-d", b"x"], false);
        check(&[b"--dat=yesterday", b"x"], true);
        check(&[b"x", b"y"], false);
    }

    #[test]
    fn ls_shows_kinds_by_the_listing_alone() {
        for (letters, expect) in [(&b"-A"[..], (false, true)), (b"-AF", (true, false)), (b"-R", (true, true))] {
            let habit = of("ls", &[letters], Named::default());
            assert_eq!((habit.lists_kinds, habit.sorts_names), expect);
        }
    }

    #[test]
    fn arguments_count() {
        let of = |name: &str, arguments: &[&[u8]]| {
            let habit = of(name, arguments, Named::default());
            (habit.times, habit.compares)
        };
        assert_eq!(of("make", &[]), (Times::Blind, true));
        assert_eq!(of("cp", &[b"-r", b"a", b"b"]), (Times::Mode, false));
        assert_eq!(of("cp", &[b"-ru", b"a", b"b"]), (Times::Mode, true));
        assert_eq!(of("sed", &[b"-un", b"p"]), (Times::Mode, false));
        assert_eq!(of("ls", &[b"-Lt", b"a", b"b"]), (Times::Blind, true));
        assert_eq!(of("ls", &[b"-l"]), (Times::Status, false));
        assert_eq!(of("ls", &[b"--full-time"]), (Times::Status, false));
        assert_eq!(of("ls", &[]), (Times::Blind, false));
        assert_eq!(of("find", &[b".", b"-name", b"x"]), (Times::Blind, false));
        assert_eq!(of("find", &[b".", b"-newer", b"x"]), (Times::Status, false));
        assert_eq!(of("diff", &[b"a", b"b"]), (Times::Blind, false));
        assert_eq!(of("diff", &[b"-u", b"a", b"b"]), (Times::Files, false));
        assert_eq!(of("test", &[b"a", b"-nt", b"b"]), (Times::Blind, true));
        assert_eq!(of("[", &[b"-f", b"a", b"]"]), (Times::Blind, false));
        assert_eq!(of("[", &[b"-O", b"a", b"]"]), (Times::Status, false));
        assert_eq!(of("python3", &[b"/usr/bin/meson", b"setup"]), (Times::Blind, true));
        assert_eq!(of("tar", &[b"xf", b"a.tar", b"-C", b"d"]), (Times::Mode, false));
        assert_eq!(of("tar", &[b"-xzf", b"a.tgz", b"--strip-components=1"]), (Times::Mode, false));
        assert_eq!(of("tar", &[b"-x", b"--keep-newer-files", b"-f", b"a"]), (Times::Status, false));
        assert_eq!(of("tar", &[b"cf", b"a.tar", b"x"]), (Times::Status, false));
        assert_eq!(of("tar", &[b"-f", b"a.tar", b"-tv"]), (Times::Status, false));
        assert_eq!(of("cmake", &[b"-E", b"tar", b"cfz", b"a.tgz", b"x"]), (Times::Status, true));
        assert_eq!(of("cmake", &[b"-E", b"tar", b"xf", b"a.tar"]), (Times::Blind, true));
        assert_eq!(of("stat", &[b"-Lc", b"%a %-8Y", b"in"]), (Times::Status, false));
        assert_eq!(of("stat", &[b"-c%s", b"in"]), (Times::Status, false));
        assert_eq!(of("stat", &[b"in"]), (Times::Uses, false));
        assert_eq!(of("stat", &[b"-c", b"%X", b"in"]), (Times::Uses, false));
        assert_eq!(of("stat", &[b"--printf=%i%z", b"in"]), (Times::Uses, false));
        assert_eq!(of("stat", &[b"-fc", b"%T", b"in"]), (Times::Uses, false));
        assert_eq!(of("ls", &[b"-l", b"--color"]), (Times::Status, false));
        assert_eq!(of("ls", &[b"-lu"]), (Times::Uses, false));
        assert_eq!(of("ls", &[b"-l", b"--time=ctime"]), (Times::Uses, false));
        assert_eq!(of("find", &[b"-newermt", b"2020-01-01"]), (Times::Status, false));
        assert_eq!(of("find", &[b"-neweram", b"x"]), (Times::Uses, false));
        assert_eq!(of("find", &[b"-cmin", b"-5"]), (Times::Uses, false));
        assert_eq!(of("find", &[b"-printf", b"%T@ %p"]), (Times::Status, false));
        assert_eq!(of("find", &[b"-printf", b"%p %A@"]), (Times::Uses, false));
        assert_eq!(of("test", &[b"-N", b"in"]), (Times::Uses, false));
        assert_eq!(of("zip", &[b"-rX", b"x.zip", b"d"]), (Times::Status, false));
        assert_eq!(of("zip", &[b"-r", b"x.zip", b"d"]), (Times::Uses, false));
        let unknown = Told { arguments: None, ..Told::nothing() };
        assert_eq!(habit(b"ls", unknown).times, Times::Status);
        assert_eq!(habit(b"find", unknown).times, Times::Status);
        assert!(habit(b"cp", unknown).compares);
    }
}
