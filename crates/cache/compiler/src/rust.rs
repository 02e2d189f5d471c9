//! Command lines of rustc and of clippy's driver: which crate they compile, where its files go, and
//! which directories they search.
//!
//! All else that they do is observed, so little has to be known about their flags.
//!
//! ```text
//! rustc --crate-name a --crate-type lib --emit=dep-info,metadata,link -C extra-filename=-1f
//!       --out-dir target/debug/deps -L dependency=target/debug/deps --extern b=… src/lib.rs
//! ```
//!
//! Unaware of: whether the files exist, and what is in them.

use larder_model::path::file_name;
use larder_model::{Bypass, contains};
use memchr::memmem;

use crate::{Family, Invocation};

/// The parts of a rustc command line that larder needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rust<'a> {
    /// The root file of the crate. Empty if there is none.
    pub source: &'a [u8],
    /// The crate's name, or an empty name if the source decides it.
    pub crate_name: &'a [u8],
    /// The text after the crate's name in the names of its outputs (`-C extra-filename`).
    pub extra_filename: &'a [u8],
    /// `--out-dir`.
    pub out_dir: Option<&'a [u8]>,
    /// `-o`, and the paths in `--emit KIND=PATH`.
    pub outputs: Vec<&'a [u8]>,
    /// The files of `--extern NAME=PATH`.
    pub externs: Vec<&'a [u8]>,
    /// Directories in which the crates are that other crates depend on (`-L dependency=`).
    pub dependency_directories: Vec<&'a [u8]>,
    /// The directory of the sessions of incremental compilation (`-C incremental=`).
    pub incremental: Option<&'a [u8]>,
    /// The width of the messages is in the arguments.
    pub is_told_width: bool,
    /// The command only asks for something, such as `-vV` or `--print`.
    asks: bool,
    /// The command measures itself, such as with `-Z time-passes`.
    measures: bool,
}

/// The parts of a rustc command line that matter when a run is recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RustPaths<'a> {
    /// The directories of `-L`, as they are given, except those of `dependency=`.
    pub directories: Vec<&'a [u8]>,
    /// The path of each `--remap-path-prefix`, and what replaces it.
    pub remaps: Vec<(&'a [u8], &'a [u8])>,
    /// Paths are replaced in a part of what rustc makes only (`--remap-path-scope`).
    pub limits_remaps: bool,
    /// Values of options that are neither here nor in [`Rust`]. rustc may put them into the result.
    pub others: Vec<&'a [u8]>,
}

/// The beginning of an option that replaces paths.
pub const REMAP: &[u8] = b"--remap-path-prefix=";

/// Flags whose value may be the next word.
const WITH_VALUE: &[&[u8]] = &[
    b"--allow",
    b"--cap-lints",
    b"--cfg",
    b"--check-cfg",
    b"--codegen",
    b"--color",
    b"--crate-name",
    b"--crate-type",
    b"--deny",
    b"--diagnostic-width",
    b"--edition",
    b"--emit",
    b"--env-set",
    b"--error-format",
    b"--explain",
    b"--extern",
    b"--forbid",
    b"--force-warn",
    b"--json",
    b"--out-dir",
    b"--pretty",
    b"--print",
    b"--remap-path-prefix",
    b"--remap-path-scope",
    b"--sysroot",
    b"--target",
    b"--unpretty",
    b"--warn",
    b"-A",
    b"-C",
    b"-D",
    b"-F",
    b"-L",
    b"-W",
    b"-Z",
    b"-l",
    b"-o",
];

/// Returns how many words come before the options. A wrapper of a workspace, such as clippy's driver,
/// gets the path of rustc as its first argument. rustup's proxy gets the toolchain, as `+nightly`.
pub fn words_before_options(arguments: &[Vec<u8>]) -> usize {
    let is_before = |word: &&Vec<u8>| file_name(word) == b"rustc" || word.starts_with(b"+");
    usize::from(arguments.first().filter(is_before).is_some())
}

/// A kind of crate, as `larder stats` counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrateKind {
    /// `lib` or `rlib`.
    Library,
    /// `bin`, also of examples.
    Program,
    /// A program with the tests or benchmarks of a crate.
    Test,
    /// A procedural macro.
    ProcMacro,
    /// A library that rustc links: `dylib`, `cdylib` or `staticlib`, perhaps with an `rlib`.
    Linked,
    /// cargo's `build.rs`.
    BuildScript,
}

impl CrateKind {
    /// All values, in the order of their counters on disk.
    pub const ALL: [CrateKind; 6] = [
        CrateKind::Library,
        CrateKind::Program,
        CrateKind::Test,
        CrateKind::ProcMacro,
        CrateKind::Linked,
        CrateKind::BuildScript,
    ];

    /// Returns the name that people and programs see. It never changes.
    pub fn name(self) -> &'static str {
        match self {
            CrateKind::Library => "lib",
            CrateKind::Program => "bin",
            CrateKind::Test => "test",
            CrateKind::ProcMacro => "proc-macro",
            CrateKind::Linked => "dylib",
            CrateKind::BuildScript => "build-script",
        }
    }
}

/// Returns the kind of crate that the arguments ask for. They do not contain `argv[0]`. A kind that
/// only an attribute in the source names is not known here.
pub fn crate_kind(arguments: &[Vec<u8>]) -> CrateKind {
    let mut kind = CrateKind::Program;
    for (flag, value) in options(arguments) {
        let of_type = |name: &[u8]| match name {
            b"lib" | b"rlib" => CrateKind::Library,
            b"proc-macro" => CrateKind::ProcMacro,
            b"dylib" | b"cdylib" | b"staticlib" => CrateKind::Linked,
            _ => CrateKind::Program,
        };
        match flag {
            b"--test" => return CrateKind::Test,
            // cargo names all build scripts so.
            b"--crate-name" if value.starts_with(b"build_script_") => return CrateKind::BuildScript,
            b"--crate-type" => {
                for one in value.split(|&byte| byte == b',').map(of_type) {
                    kind = if kind == CrateKind::Linked { kind } else { one };
                }
            }
            _ => {}
        }
    }
    kind
}

/// Returns what the arguments name. They do not contain `argv[0]`.
pub fn rust(arguments: &[Vec<u8>]) -> Rust<'_> {
    let mut found = Rust { asks: arguments.len() == words_before_options(arguments), ..Rust::default() };
    options(arguments).for_each(|(flag, value)| found.flag(flag, value));
    found
}

/// Returns more of what the arguments name. They do not contain `argv[0]`.
pub fn rust_paths(arguments: &[Vec<u8>]) -> RustPaths<'_> {
    let mut found = RustPaths::default();
    options(arguments).for_each(|(flag, value)| found.flag(flag, value));
    found
}

/// Returns each flag and its value. The flag of a source is [`SOURCE`].
fn options(arguments: &[Vec<u8>]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut words = arguments[words_before_options(arguments)..].iter().map(Vec::as_slice);
    std::iter::from_fn(move || {
        let word = words.next()?;
        if !word.starts_with(b"-") || word == b"-" {
            return Some((SOURCE, word));
        }
        let (flag, here) = split(word);
        let value = match here {
            Some(here) => here,
            None if WITH_VALUE.contains(&flag) => words.next().unwrap_or_default(),
            None => b"",
        };
        Some((flag, value))
    })
}

const SOURCE: &[u8] = b"";

/// Splits `--flag=value` and `-Cvalue` into flag and value.
fn split(word: &[u8]) -> (&[u8], Option<&[u8]>) {
    if word.starts_with(b"--") {
        return match word.iter().position(|&byte| byte == b'=') {
            Some(at) => (&word[..at], Some(&word[at + 1..])),
            None => (word, None),
        };
    }
    let (flag, rest) = word.split_at(word.len().min(2));
    let takes = WITH_VALUE.contains(&flag);
    (if takes { flag } else { word }, Some(rest).filter(|rest| takes && !rest.is_empty()))
}

impl<'a> Rust<'a> {
    fn flag(&mut self, flag: &[u8], value: &'a [u8]) {
        match flag {
            SOURCE => self.source = value,
            b"--crate-name" => self.crate_name = value,
            b"--out-dir" => self.out_dir = Some(value),
            b"-o" => self.outputs.push(value),
            b"--emit" => self.outputs.extend(value.split(|&byte| byte == b',').filter_map(after_equals)),
            b"--extern" => self.externs.extend(after_equals(value)),
            b"-L" => self.dependency_directories.extend(value.strip_prefix(b"dependency=")),
            b"--diagnostic-width" => self.is_told_width = true,
            b"-C" | b"--codegen" => match value.iter().position(|&byte| byte == b'=') {
                Some(at) if &value[..at] == b"incremental" => self.incremental = Some(&value[at + 1..]),
                Some(at) if matches!(&value[..at], b"extra-filename" | b"extra_filename") => {
                    self.extra_filename = &value[at + 1..];
                }
                _ => {}
            },
            b"-Z" => {
                const MEASURES: [&[u8]; 5] = [b"time", b"self-profile", b"self_profile", b"print-", b"dump"];
                self.measures |= MEASURES.iter().any(|word| value.starts_with(word));
            }
            b"--print" | b"--explain" | b"--help" | b"--version" | b"-h" | b"-V" | b"-vV" | b"-Vv" => self.asks = true,
            _ => {}
        }
    }

    /// Returns the beginning that the names of the outputs have, after a possible `lib`.
    pub fn stem(&self) -> Vec<u8> {
        let source = file_name(self.source);
        let source = source.strip_suffix(b".rs").unwrap_or(source);
        let name = if self.crate_name.is_empty() { source } else { self.crate_name };
        [name, self.extra_filename].concat()
    }
}

impl<'a> RustPaths<'a> {
    fn flag(&mut self, flag: &[u8], value: &'a [u8]) {
        let is_known = |value: &[u8]| {
            [&b"incremental="[..], b"extra-filename=", b"extra_filename="].iter().any(|name| value.starts_with(name))
        };
        match flag {
            SOURCE | b"--crate-name" | b"--out-dir" | b"-o" | b"--emit" | b"--extern" | b"--diagnostic-width" => {}
            b"-L" if value.starts_with(b"dependency=") => {}
            b"-L" => self.directories.push(after_kind(value)),
            b"--remap-path-scope" => self.limits_remaps = true,
            b"--remap-path-prefix" => {
                let at = value.iter().rposition(|&byte| byte == b'=');
                self.remaps.extend(at.map(|at| (&value[..at], &value[at + 1..])));
            }
            b"-C" | b"--codegen" if is_known(value) => {}
            _ => {
                self.limits_remaps |= value.starts_with(b"remap-path-scope");
                self.others.push(value);
            }
        }
    }
}

/// Returns the directory of `-L`, whose value may begin with a kind such as `native=`.
fn after_kind(value: &[u8]) -> &[u8] {
    let kinds = [&b"crate="[..], b"native=", b"framework=", b"all="];
    kinds.iter().find_map(|kind| value.strip_prefix(*kind)).unwrap_or(value)
}

fn after_equals(word: &[u8]) -> Option<&[u8]> {
    word.iter().position(|&byte| byte == b'=').map(|at| &word[at + 1..])
}

/// The ending of the objects in a library that rustc made.
const OBJECT: &[u8] = b".rcgu.o";
/// The length of the random word before that ending, which `-C incremental` adds. It is the same in
/// all names of a run: `a-1f.7kgzo3o0axpl6jdeouxngquyb.0sadr97.rcgu.o`.
const SESSION_WORD: usize = 7;

/// Returns true if two libraries have the same bytes except for the random word in the names of
/// their members.
pub fn are_same_members(one: &[u8], other: &[u8]) -> bool {
    fn word(library: &[u8]) -> Option<&[u8]> {
        let end = memmem::find(library, OBJECT)?;
        let start = end.checked_sub(SESSION_WORD + 1)?;
        let word = library[start..end].strip_prefix(b".")?;
        word.iter().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit()).then_some(word)
    }
    let (Some(ours), Some(theirs)) = (word(one), word(other)) else { return false };
    let ending = |word: &[u8]| [b".", word, OBJECT].concat();
    let (ours, theirs) = (ending(ours), ending(theirs));
    let places = |library, ending: &[u8]| memmem::find_iter(library, ending).collect::<Vec<usize>>();
    let found = places(one, &ours);
    let mut from = 0;
    let is_same = |to: usize| {
        let is_same = one[from..to] == other[from..to];
        from = (to + ours.len()).min(one.len());
        is_same
    };
    one.len() == other.len() && found == places(other, &theirs) && found.iter().copied().chain([one.len()]).all(is_same)
}

/// Parses `arguments`, which do not contain `argv[0]`.
pub(crate) fn parse(arguments: &[Vec<u8>]) -> Result<Invocation, Bypass> {
    let named = rust(arguments);
    if named.asks {
        return Err(Bypass::Query);
    }
    if arguments.iter().any(|word| word.starts_with(b"@")) {
        return Err(Bypass::ResponseFile);
    }
    if named.source == b"-" {
        return Err(Bypass::StandardInput);
    }
    if named.measures {
        return Err(Bypass::TooHard);
    }
    // For example, `-C help`.
    if named.source.is_empty() {
        return Err(Bypass::Query);
    }
    let output = match (named.outputs.first(), named.out_dir) {
        (Some(output), _) => output.to_vec(),
        (None, Some(directory)) => [directory, b"/", &named.stem()].concat(),
        (None, None) => named.stem(),
    };
    Ok(Invocation {
        source: named.source.to_vec(),
        output: Some(output),
        // `-C target-cpu=native`.
        asks_processor: arguments.iter().any(|word| contains(word, "native")),
        ..Invocation::of(Family::Rustc)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::words;

    #[test]
    fn what_cargo_passes() {
        let line = words(
            "rustc --crate-name a_b --edition=2021 src/lib.rs --error-format=json --diagnostic-width=80 --crate-type lib \
             --emit=dep-info,metadata=/m/x.rmeta,link -C embed-bitcode=no -Cdebuginfo=2 -C extra-filename=-1f \
             --out-dir /t/deps -C incremental=/t/inc -L dependency=/t/deps -L native=/n --extern b=/t/deps/libb.rlib \
             --extern proc_macro -W unused --remap-path-prefix /a=b=/c",
        );
        let found = rust(&line);
        let expect = Rust {
            source: b"src/lib.rs",
            crate_name: b"a_b",
            extra_filename: b"-1f",
            out_dir: Some(b"/t/deps"),
            outputs: vec![b"/m/x.rmeta"],
            externs: vec![b"/t/deps/libb.rlib"],
            dependency_directories: vec![b"/t/deps"],
            incremental: Some(b"/t/inc"),
            is_told_width: true,
            asks: false,
            measures: false,
        };
        assert_eq!(found, expect);
        assert_eq!(found.stem(), b"a_b-1f");
        let paths = RustPaths {
            directories: vec![b"/n"],
            remaps: vec![(b"/a=b", b"/c")],
            limits_remaps: false,
            others: vec![b"2021", b"json", b"lib", b"embed-bitcode=no", b"debuginfo=2", b"unused"],
        };
        assert_eq!(rust_paths(&line), paths);
        assert!(rust_paths(&words("x.rs --remap-path-scope=macro")).limits_remaps);
        assert!(rust_paths(&words("x.rs -Zremap-path-scope=macro")).limits_remaps);
        assert_eq!(rust(&words("src/main.rs")).stem(), b"main");
    }

    #[test]
    fn kinds_of_crates() {
        for (line, expect) in [
            ("--crate-name a a.rs --crate-type lib --emit=metadata", "lib"),
            ("--crate-name a a.rs --crate-type=bin", "bin"),
            ("a.rs", "bin"),
            ("--crate-name a --test a.rs", "test"),
            ("--crate-name m m.rs --crate-type proc-macro", "proc-macro"),
            ("--crate-type cdylib --crate-type rlib a.rs", "dylib"),
            ("--crate-type rlib,staticlib a.rs", "dylib"),
            ("--crate-name build_script_build build.rs --crate-type bin", "build-script"),
        ] {
            assert_eq!(crate_kind(&words(line)).name(), expect, "{line}");
        }
    }

    #[test]
    fn names_of_members_are_random() {
        let library = |word: &str, text: &str| format!("!<arch>\na.cgu.{word}.rcgu.o/\nb.cgu.{word}.rcgu.o/\n{text}");
        let check = |one: &str, other: &str, expect: bool| {
            assert_eq!(are_same_members(one.as_bytes(), other.as_bytes()), expect, "{one} {other}");
        };
        let one = library("0sadr97", "text");
        check(&one, &library("15td1bh", "text"), true);
        check(&one, &one, true);
        check(&one, &library("15td1bh", "Text"), false);
        check(&one, &library("15td1bh", "texts"), false);
        check(&one, &library("15td1b", "text"), false);
        check(&one, &one.replacen("0sadr97", "15td1bh", 1), false);
        check("text", "text", false);
    }

    #[test]
    fn what_is_not_cached() {
        let check = |line: &str, expect: Bypass| assert_eq!(parse(&words(line)), Err(expect), "{line}");
        check("-vV", Bypass::Query);
        check("", Bypass::Query);
        check("rustc", Bypass::Query);
        check("+nightly", Bypass::Query);
        check("- --crate-name ___ --print=file-names", Bypass::Query);
        check("x.rs --print cfg", Bypass::Query);
        check("--explain E0001", Bypass::Query);
        check("-", Bypass::StandardInput);
        check("-Ztime-passes x.rs", Bypass::TooHard);
        check("-Z self-profile x.rs", Bypass::TooHard);
        check("--crate-type lib", Bypass::Query);
        check("-C help", Bypass::Query);
        check("@args", Bypass::ResponseFile);
    }
}
