//! Lists what a program asks of the system in every run although its result does not depend on it.
//! For example, every shell reads the clock when it starts.
//!
//! Unaware of: where a program is, and what it really is.

use larder_model::{DirectoryChecks, DirectoryTimes, Habit, Times, contains_any};

use super::arguments::{
    asks_status, finds_by_size_of_directory, finds_by_status, hangs_on_the_present, only_extracts, runs_meson,
    shows_files, shows_uses, writes_archive,
};
use super::table::{self, Proc, Rule};
use super::{git, is_compiler_part, may_load_plugins};
use crate::names::{is_named, rewrites_output};
use crate::python::draws_numbers;
use crate::words::{AWK_WORDS, Named, OWN_MEMORY_WORDS};

/// How programs that are no shells compare mtimes of directories.
const IN_PAIRS: DirectoryTimes = DirectoryTimes::InPairs(DirectoryChecks::Unknown);

/// Holds facts about a command that the names of its programs do not show.
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

/// Returns the [`Habit`] of the program with this file name: what it does in every run.
pub fn habit(program: &[u8], told: Told) -> Habit {
    let rule = table::rule(program);
    let strict = strict(program, &told);
    match rule {
        Rule::Rustc => Some(of_rustc(strict)),
        _ if is_compiler_part(program) => Some(of_compiler_part(program, &told, strict)),
        Rule::Shell | Rule::Build | Rule::CMake | Rule::Python | Rule::Perl | Rule::Awk | Rule::Troff => {
            of_interpreter(program, rule, &told, strict)
        }
        _ => of_tool(program, rule, &told, strict),
    }
    .unwrap_or_else(|| of_any(program, &told, strict))
}

/// Returns the habit with the fewest allowances, by the table's columns. The rules add theirs.
fn strict(program: &[u8], told: &Told) -> Habit {
    let row = table::find(program);
    let rule = row.map_or(Rule::Unknown, |row| row.rule);
    // The path may be spelled in a way that no word shows, so reads of the maps are also counted.
    let is_told = told.named.own_memory || told.may_have(|argument| contains_any(argument, OWN_MEMORY_WORDS));
    let (tunes_memory, maps_reads) = match row.map_or(Proc::Matters, |row| row.proc) {
        Proc::Always if !told.named.memory => (true, u32::MAX),
        Proc::Limits if !is_told => (true, 0),
        Proc::Stack if !is_told => (false, 1),
        Proc::Always | Proc::Limits | Proc::Stack | Proc::Matters => (false, 0),
    };
    Habit {
        tells_time: rule == Rule::Date,
        tunes_memory,
        maps_reads,
        names_as_tempfile: rule == Rule::Python,
        imports: rule == Rule::Python,
        ..Habit::default()
    }
}

fn of_rustc(strict: Habit) -> Habit {
    // It times its passes, seeds hash functions, and makes up names of temporary files. By
    // rustc's policy none of that reaches a result. It sorts the names of a directory before it
    // uses them, and looks for a terminal to learn its width.
    let many = u32::MAX;
    Habit {
        clock_reads: many,
        zone_reads: many,
        random_reads: many,
        sorts_names: true,
        tunes_memory: true,
        maps_reads: many,
        tries_terminal: true,
        runs_code_of_builds: true,
        ..strict
    }
}

fn of_compiler_part(program: &[u8], told: &Told, strict: Habit) -> Habit {
    // mold's allocator asks for random numbers, and so does its `--build-id=uuid`. Two runs
    // tell whether they matter.
    let is_believed = !rewrites_output(program);
    Habit {
        clock_reads: u32::MAX,
        random_reads: if is_believed { u32::MAX } else { 0 },
        sorts_names: true,
        tunes_memory: is_believed,
        maps_reads: if is_believed { u32::MAX } else { 0 },
        times: if told.named.dates_compared { Times::Files } else { Times::Blind },
        // `strip -p` and `objcopy -p` do so.
        copies_times: true,
        runs_code_of_builds: may_load_plugins(program),
        ..strict
    }
}

/// Returns the habit of an interpreter or a build tool, or `None` if nothing is known about what
/// this command makes it do.
fn of_interpreter(program: &[u8], rule: Rule, told: &Told, strict: Habit) -> Option<Habit> {
    let named = told.named;
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
    let known = match rule {
        Rule::Shell => {
            // bash reads the clock at its start for $SECONDS, and seeds $RANDOM. Each process that
            // it forks does so again.
            let is_zsh = is_named(program, &["zsh"]);
            let clock_reads = if named.shell_clocks || is_zsh && named.zsh_clocks { 0 } else { u32::MAX };
            // A shell can compare mtimes, but has no way to print them. zsh has a module for that,
            // and sorts files by mtime, as in `*(om)`.
            let times = match named.shell_status || is_zsh && named.zsh_clocks {
                true => Times::Status,
                false if is_zsh => Times::Files,
                false => Times::Blind,
            };
            let compares = named.shell_times;
            let checks = match program {
                b"bash" => DirectoryChecks::EachAbove,
                b"dash" => DirectoryChecks::Once,
                _ => DirectoryChecks::Unknown,
            };
            let directories = compares.then_some(DirectoryTimes::InPairs(checks));
            Habit { times, compares, directories, clock_reads, sorts_names: true, tries_terminal: true, ..strict }
        }
        Rule::CMake if told.arguments.is_none_or(writes_archive) => Habit { times: Times::Status, ..builds },
        Rule::Build if is_named(program, &["make", "gmake"]) => {
            Habit { directories: Some(DirectoryTimes::UnlessListed), ..builds }
        }
        // ninja looks at the directory of each output before it runs a command.
        Rule::Build => builds,
        // `include(CTest)` asks for the host name, and CMake then finds out all about the system.
        Rule::CMake if !named.cmake_clocks => Habit { reads_memory_size: !named.cmake_memory, ..builds },
        Rule::Python if told.arguments.is_some_and(runs_meson) => builds,
        Rule::Python => {
            // At its start Python asks for the time, for the time zone in winter and in summer, and
            // for the seed of its hash function (3.11). Python 3.9 also reads the system clock
            // (`_PyTime_Init`). Since 3.13 the allocator (mimalloc) draws a random number.
            let minor = minor_version(program);
            let clock_reads = if named.clocks { 0 } else { 1 + u32::from(minor.is_some_and(|minor| minor < 10)) };
            let seed_reads = if (told.is_set)(b"PYTHONHASHSEED") { 0 } else { 1 };
            let random_reads = seed_reads + u32::from(minor.is_some_and(|minor| minor >= 13));
            let times = interpreted(named, Times::Inputs);
            let draws = named.python_draws || told.may_have(draws_numbers);
            Habit {
                times,
                clock_reads,
                zone_reads: 2,
                random_reads,
                seeds_are_compared: named.hashes,
                draws_are_compared: !draws,
                ..strict
            }
        }
        Rule::Perl if !named.perl_clocks => {
            // $^T is the time of its start. The seeds of the hash function are two reads (5.36).
            let random_reads = if (told.is_set)(b"PERL_HASH_SEED") { 0 } else { 2 };
            let clock_reads = if named.times { 0 } else { 1 };
            let times = interpreted(named, Times::Inputs);
            Habit { times, clock_reads, random_reads, seeds_are_compared: named.perl_hashes, ..strict }
        }
        Rule::Awk if !has_clocks(told) => {
            // It seeds rand() in every run.
            Habit { clock_reads: 2, random_reads: 1, ..strict }
        }
        Rule::Troff if !named.roff_clocks => {
            // It sets its date registers in every run.
            Habit { clock_reads: u32::MAX, zone_reads: u32::MAX, ..strict }
        }
        _ => return None,
    };
    Some(known)
}

/// Returns the second number of the version in a program's file name: 13 for `python3.13`.
fn minor_version(program: &[u8]) -> Option<u32> {
    let dot = memchr::memrchr(b'.', program)?;
    std::str::from_utf8(&program[dot + 1..]).ok()?.parse().ok()
}

/// Returns true if awk's program may read the clock. The program is in the arguments, or in files
/// that they name.
fn has_clocks(told: &Told) -> bool {
    const INPUT: [&[u8]; 3] = [b"-", b"-f-", b"/dev/stdin"];
    const FILE: [&[u8]; 4] = [b"-f", b"--f", b"-E", b"--e"];
    // `--include` and `--load`. The files are usually those of the system, whose text is not known.
    const LIBRARY: [&[u8]; 4] = [b"-i", b"--i", b"-l", b"--lo"];
    let is_one_of = |options: &[&[u8]], argument: &[u8]| options.iter().any(|option| argument.starts_with(option));
    let is_file = |argument: &[u8]| is_one_of(&FILE, argument);
    match told.arguments {
        Some(arguments) if arguments.iter().any(|argument| is_one_of(&LIBRARY, argument)) => true,
        Some(arguments) if arguments.iter().any(|argument| contains_any(argument, AWK_WORDS)) => true,
        // A program on standard input can come from anywhere.
        Some(arguments) if arguments.iter().any(|argument| INPUT.contains(argument)) => told.may_have(is_file),
        _ => told.named.awk_clocks && told.may_have(is_file),
    }
}

/// Returns the habit of another program, or `None` if nothing is known about what these arguments
/// make it do.
fn of_tool(program: &[u8], rule: Rule, told: &Told, strict: Habit) -> Option<Habit> {
    let known = match rule {
        Rule::Copier => copies(program, told, strict),
        Rule::Blind => strict,
        Rule::Archiver => {
            // Whether it wrote down mtimes can be seen in the archive.
            Habit { times: Times::Files, clock_reads: u32::MAX, ..strict }
        }
        Rule::Git if told.arguments.is_some_and(|arguments| git::shows(arguments).is_some()) => {
            let git = told.arguments.and_then(git::shows);
            Habit { git, clock_reads: u32::MAX, zone_reads: u32::MAX, sorts_names: true, lists_kinds: true, ..strict }
        }
        Rule::Cargo if told.arguments.and_then(|arguments| arguments.first()) == Some(&&b"locate-project"[..]) => {
            Habit { clock_reads: u32::MAX, random_reads: u32::MAX, ..strict }
        }
        Rule::Ldconfig if told.arguments.is_some_and(|arguments| arguments.contains(&&b"-n"[..])) => strict,
        // It takes the present for the mtime of a pipe, and only these options show mtimes.
        Rule::Diff if !told.may_have(shows_files) => Habit { clock_reads: 1, ..strict },
        // It shows mtimes as local time, and nothing else of what `stat` returns. They count, and so
        // do `TZ` and the files of the time zone.
        Rule::Diff => Habit { times: Times::Files, zone_reads: u32::MAX, ..strict },
        // libxml2 seeds the hash function of its dictionary with the time. The header, which is left
        // out, would hold another one.
        Rule::Xgettext if told.arguments.is_some_and(|arguments| arguments.contains(&&b"--omit-header"[..])) => {
            Habit { clock_reads: 1, ..of_any(program, told, strict) }
        }
        Rule::TemporaryNames => Habit { names_at_random: true, ..strict },
        Rule::Find if !told.may_have(finds_by_status) && !told.arguments.is_some_and(finds_by_size_of_directory) => {
            // It reads the clock at its start for options that are known to `finds_by_status`.
            Habit { clock_reads: 1, ..strict }
        }
        Rule::Ls if told.arguments == Some(&[b"-di", b"."]) => {
            // autoconf uses this command to test whether two paths are the same directory.
            Habit { shows_numbers: true, ..strict }
        }
        Rule::Ls => lists(told, strict),
        Rule::Test if !told.may_have(asks_status) => {
            let compares = told.may_have(|argument| matches!(argument, b"-nt" | b"-ot"));
            Habit { compares, directories: compares.then_some(IN_PAIRS), ..strict }
        }
        Rule::Touch => {
            // It reads the clock to parse any date, whether or not the date is relative to now.
            let clock_reads = if told.arguments.is_none_or(hangs_on_the_present) { 0 } else { u32::MAX };
            // With `-r` and a date, the date is relative to the mtime of the other file.
            Habit { clock_reads, zone_reads: u32::MAX, copies_times: true, ..strict }
        }
        Rule::Tar if told.arguments.is_some_and(only_extracts) => {
            // It reads the clock to warn about files from the future.
            Habit { times: Times::Mode, clock_reads: u32::MAX, ..strict }
        }
        Rule::Status | Rule::Find | Rule::Tar | Rule::Test => {
            // tar reads the clock at its start for warnings.
            let clock_reads = if matches!(rule, Rule::Find | Rule::Tar) && !told.named.times { 1 } else { 0 };
            Habit { times: status(program, told), clock_reads, ..strict }
        }
        _ => return None,
    };
    Some(known)
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
    Habit { times: Times::Mode, compares, copies_times: true, ..strict }
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
            let directories = has(b't').then_some(IN_PAIRS);
            Habit { compares: has(b't'), directories, sorts_names, lists_kinds, ..strict }
        }
    }
}

/// Returns how much of `stat` the output of a program may show: access and change times only if its
/// arguments ask for them.
fn status(program: &[u8], told: &Told) -> Times {
    match told.arguments {
        Some(arguments) if shows_uses(program, arguments) => Times::Uses,
        _ => Times::Status,
    }
}

/// Returns the habit of a program of which only the name is known.
fn of_any(program: &[u8], told: &Told, strict: Habit) -> Habit {
    if told.is_made_to_ask && is_probe(program) {
        let many = u32::MAX;
        return Habit {
            times: Times::Files,
            clock_reads: many,
            random_reads: many,
            zone_reads: many,
            tries_sockets: true,
            ..strict
        };
    }
    Habit { times: interpreted(told.named, Times::Files), ..strict }
}

/// Returns how much of `stat` a program may use that does what scripts say. `times` is what it uses
/// if no text of the command asks for more.
fn interpreted(named: Named, times: Times) -> Times {
    if named.times { Times::Status } else { times }
}

/// Returns true if autoconf, CMake and Meson give programs this name that test a property of the
/// machine.
///
/// Such a test reads the clock only to see whether there is one. A project may use the name for a
/// program of its own, so the name alone is not enough: see [`Told::is_made_to_ask`].
fn is_probe(program: &[u8]) -> bool {
    program == b"conftest" || program.starts_with(b"cmTC_") || program.starts_with(b"sanitycheck")
}

#[cfg(test)]
mod tests {
    use super::super::configures;
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
        let loads = |name: &[u8]| habit(name, told).runs_code_of_builds;
        assert!(loads(b"cc1plus") && loads(b"clang-14") && loads(b"rustc"));
        assert!(!loads(b"ld.bfd") && !loads(b"ar") && !loads(b"mygenerator"));
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
        let told = |name: &str, argument: &[u8]| of(name, &[argument, b"-"], Named::default()).clock_reads;
        assert_eq!((told("diff", b"a"), told("diff", b"-u"), told("diff", b"-p")), (1, 0, 0));
        assert_eq!((told("xgettext", b"--omit-header"), told("xgettext", b"-C")), (1, 0));
    }

    #[test]
    fn random_numbers_of_python() {
        let compared = |arguments: &[&[u8]], named| of("python3.11", arguments, named).draws_are_compared;
        assert!(compared(&[b"x.py"], Named::default()) && compared(&[b"-c", b"import random"], Named::default()));
        assert!(!compared(&[b"x.py"], Named { python_draws: true, ..Named::default() }));
        assert!(!compared(&[b"-c", b"import random; random.random()"], Named::default()));
        assert!(!of("mygenerator", &[], Named::default()).draws_are_compared);
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
        assert_eq!(of("diff", &[b"-wp", b"a", b"b"]), (Times::Files, false));
        assert_eq!(of("diff", &[b"-r", b"a", b"b"]), (Times::Files, false));
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
        assert_eq!(of("stat", &[b"-c", b"%W", b"in"]), (Times::Uses, false));
        assert_eq!(of("ls", &[b"-lu"]), (Times::Uses, false));
        assert_eq!(of("ls", &[b"-l", b"--time=birth"]), (Times::Uses, false));
        assert_eq!(of("find", &[b"-newerBt", b"2020-01-01"]), (Times::Uses, false));
        assert_eq!(of("find", &[b".", b"-size", b"+1"]).0, Times::Status);
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
