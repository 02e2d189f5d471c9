//! Sorts the arguments of a compile by what they do with paths: which arguments only say where
//! something is, which could bring a path into the result, and which remain for a run that only
//! preprocesses.
//!
//! This decides in which directories a result can be reused, not whether it is right here. If an
//! argument contains the path of the checkout, larder must know what the compiler does with it. So
//! an unknown argument that contains the path prevents reuse elsewhere.
//!
//! Unaware of: roots, and what the texts contain.

use crate::language::{self, Kind};
use crate::response::{self, ResponseFiles};
use crate::table::{self, Value};
use crate::{Family, Invocation, Stage};

/// The arguments of a compile, by what the compiler does with the paths in them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Naming {
    /// The first argument that turns paths into numbers, or into bytes that cannot be searched for
    /// the paths.
    pub transforms: Option<Vec<u8>>,
    /// The prefixes of directories that are replaced in the result (the `OLD` of
    /// `-ffile-prefix-map=OLD=NEW`), each with its argument.
    pub mapped: Vec<(Vec<u8>, Vec<u8>)>,
    /// The arguments that name a system directory by a relative path with `..`. gcc writes the
    /// canonical path instead if that is shorter.
    pub shortened: Vec<Vec<u8>>,
    /// All system directories that are named by a relative path. gcc may write the canonical path
    /// of a file in them if the file is reached through a symbolic link.
    pub system: Vec<Vec<u8>>,
    /// `-frandom-seed`, which can make the path of a source part of a symbol's name.
    pub seed: Option<Vec<u8>>,
    /// The first flag that cuts paths, or compares them with patterns.
    pub compares: Option<Vec<u8>>,
    /// The sources, and all other files on the command line.
    pub sources: Vec<Vec<u8>>,
    /// Definitions of macros, and similar arguments for the preprocessor.
    pub definitions: Vec<Vec<u8>>,
    /// Arguments that say where something is: directories, sources, outputs, libraries.
    pub places: Vec<Vec<u8>>,
    /// All other arguments.
    pub others: Vec<Vec<u8>>,
    /// The arguments for preprocessing the same sources to standard output.
    pub preprocess: Vec<Vec<u8>>,
    /// The first linker script or linker argument that is not known to be quiet. It may print or
    /// write something about the result.
    pub talkative: Option<Vec<u8>>,
    /// An assembler source that is not preprocessed (`.s`) is among the files.
    pub assembles: bool,
    /// The sources that are preprocessed already (`.i`). The preprocessor outputs nothing for them.
    pub preprocessed: Vec<Vec<u8>>,
}

/// Sorts the arguments of a compile. Returns `None` if a response file cannot be read.
pub fn naming(family: Family, arguments: &[Vec<u8>], files: &dyn ResponseFiles) -> Option<Naming> {
    let arguments = response::expand(arguments, files).ok()?;
    let mut naming = Naming::default();
    let mut words = arguments.iter().map(Vec::as_slice);
    let mut only_files = false;
    while let Some(word) = words.next() {
        if only_files || !word.starts_with(b"-") || word == b"-" {
            naming.file(word);
            continue;
        }
        only_files |= word == b"--";
        let value = match table::find(family, word).map(|found| found.value) {
            Some(Value::Next) => words.next(),
            Some(Value::None | Value::Here(_)) | None => None,
        };
        naming.flag(word, value);
    }
    Some(naming)
}

impl Invocation {
    /// Returns true if this is a compiler's command that stops before linking.
    pub fn compiles(&self) -> bool {
        matches!(self.family, Family::Gcc | Family::Clang) && self.stage != Stage::End
    }
}

impl Naming {
    /// Returns true if a flag may bring column numbers of the sources into the result, as debug
    /// information and sanitizers do.
    pub fn shows_columns(&self) -> bool {
        let blind = |word: &Vec<u8>| BLIND.iter().any(|flag| word.starts_with(flag.as_bytes()));
        !self.others.iter().all(blind)
    }

    fn flag(&mut self, word: &[u8], value: Option<&[u8]>) {
        let whole = [word, value.unwrap_or_default()].concat();
        let begins = |flags: &[&str]| flags.iter().any(|flag| word.starts_with(flag.as_bytes()));
        let mixes = is_mixed_list(word);
        // The run that only preprocesses cannot use such a list: it writes a depfile, and leaving
        // it out would lose its other parts.
        let hides = mixes && word.windows(3).any(|part| part == b",-M");
        let transforms = begins(TRANSFORM) && !begins(HARMLESS) || foreign_language(word, value) || hides;
        if self.transforms.is_none() && transforms {
            self.transforms = Some(whole.clone());
        }
        if self.compares.is_none() && begins(COMPARE) {
            self.compares = Some(whole.clone());
        }
        let told = word.strip_prefix(b"-Wl,").or(value.filter(|_| word == b"-Xlinker"));
        let is_talkative = told.is_some_and(|told| !is_quiet_linker_word(told)) || word.starts_with(b"-T");
        if self.talkative.is_none() && is_talkative {
            self.talkative = Some(whole.clone());
        }
        if let Some(old) = MAPS.iter().find_map(|map| word.strip_prefix(map.as_bytes())) {
            let old = old.rsplitn(2, |&b| b == b'=').last().unwrap_or_default();
            self.mapped.push((old.to_vec(), whole));
        } else if begins(&["-frandom-seed"]) {
            self.seed = Some(whole.clone());
            self.others.push(whole);
        } else if mixes {
            self.others.push(whole);
        } else if begins(DEFINITIONS) {
            self.definitions.push(whole);
        } else if begins(PLACES) {
            let path = SYSTEM_DIRECTORIES.iter().find_map(|flag| whole.strip_prefix(flag.as_bytes()));
            if let Some(path) = path.filter(|path| !path.starts_with(b"/")) {
                self.system.push(path.to_vec());
                if path.windows(2).any(|part| part == b"..") {
                    self.shortened.push(whole.clone());
                }
            }
            self.places.push(whole);
        } else {
            self.others.push(whole);
        }
        if !(STAGES.contains(&&String::from_utf8_lossy(word)[..]) || begins(OUTPUTS)) {
            self.preprocess.extend([Some(word), value].into_iter().flatten().map(<[u8]>::to_vec));
        }
    }

    fn file(&mut self, path: &[u8]) {
        self.assembles |= path.ends_with(b".s");
        if [&b".i"[..], b".ii", b".mi", b".mii"].iter().any(|ending| path.ends_with(ending)) {
            self.preprocessed.push(path.to_vec());
        }
        if self.transforms.is_none() && matches!(language::of_file(path), Kind::Foreign | Kind::Interface) {
            self.transforms = Some(path.to_vec());
        }
        let is_script = matches!(language::of_file(path), Kind::Linked) && !is_object_or_library(path);
        if self.talkative.is_none() && is_script {
            self.talkative = Some(path.to_vec());
        }
        self.places.push(path.to_vec());
        self.sources.push(path.to_vec());
        self.preprocess.push(path.to_vec());
    }
}

/// Returns true for a preprocessor list (`-Wp,…`) that consists neither of definitions alone nor of
/// dependency flags alone.
fn is_mixed_list(word: &[u8]) -> bool {
    let Some(list) = word.strip_prefix(b"-Wp,") else { return false };
    let flags = || list.split(|&b| b == b',').filter(|part| part.starts_with(b"-"));
    let is_definition = |flag: &[u8]| flag.starts_with(b"-D") || flag.starts_with(b"-U");
    !flags().all(is_definition) && !flags().all(|flag| flag.starts_with(b"-M"))
}

/// Judges by the file name. Any other file that a linker is given may be a linker script, which can
/// use the sizes of sections.
fn is_object_or_library(path: &[u8]) -> bool {
    let name = path.rsplit(|&b| b == b'/').next().unwrap_or(path);
    let is_versioned = name.windows(4).any(|part| part == b".so.");
    is_versioned || [&b".o"[..], b".lo", b".obj", b".a", b".so"].iter().any(|ending| name.ends_with(ending))
}

/// Returns true if a linker argument affects at most the linked program, and makes the linker print
/// or write nothing else.
///
/// A map or a statistic would contain the sizes of sections with debug information. These sizes
/// depend on the paths but do not contain them. `word` is the argument of `-Wl,` or `-Xlinker`.
fn is_quiet_linker_word(word: &[u8]) -> bool {
    let quiet = |part: &[u8]| {
        let name = part.strip_prefix(b"-").unwrap_or(part);
        let name = name.strip_prefix(b"-").unwrap_or(name);
        let name = name.split(|&b| b == b'=').next().unwrap_or(name);
        QUIET_LINKER_WORDS.iter().any(|known| known.as_bytes() == name)
    };
    word.split(|&b| b == b',').filter(|part| part.starts_with(b"-")).all(quiet)
}

/// The linker flags that configure scripts and build systems commonly pass, without dashes and
/// values.
const QUIET_LINKER_WORDS: &[&str] = &[
    "Bdynamic",
    "Bstatic",
    "Bsymbolic",
    "Bsymbolic-functions",
    "E",
    "L",
    "O1",
    "O2",
    "allow-shlib-undefined",
    "as-needed",
    "build-id",
    "copy-dt-needed-entries",
    "disable-new-dtags",
    "discard-all",
    "discard-locals",
    "dynamic-linker",
    "dynamic-list",
    "enable-new-dtags",
    "end-group",
    "entry",
    "exclude-libs",
    "export-dynamic",
    "fatal-warnings",
    "gc-sections",
    "h",
    "hash-style",
    "init",
    "fini",
    "no-allow-shlib-undefined",
    "no-as-needed",
    "no-copy-dt-needed-entries",
    "no-export-dynamic",
    "no-fatal-warnings",
    "no-gc-sections",
    "no-undefined",
    "no-whole-archive",
    "relax",
    "retain-symbols-file",
    "rpath",
    "rpath-link",
    "s",
    "soname",
    "sort-common",
    "start-group",
    "undefined",
    "unresolved-symbols",
    "version-script",
    "warn-common",
    "whole-archive",
    "wrap",
    "x",
    "z",
];

fn foreign_language(word: &[u8], value: Option<&[u8]>) -> bool {
    let Some(joined) = word.strip_prefix(b"-x") else { return false };
    let name = if joined.is_empty() { value.unwrap_or_default() } else { joined };
    matches!(language::of_name(name), Some(Kind::Foreign | Kind::Interface))
}

/// Prefixes of flags that count, hash or compress paths, or put them where they cannot be searched:
/// - profiles and coverage, link-time optimisation,
/// - types and debug information named by hash, modules, plugins, dumps,
/// - flags for other programs, and messages that are wrapped at a width.
const TRANSFORM: &[&str] = &[
    "--coverage",
    "--offload",
    "--save-temps",
    "-MJ",
    "-Wa,",
    "-Xassembler",
    "-Xclang",
    "-coverage",
    "-emit-llvm",
    "-fauto-profile",
    "-fbasic-block-sections",
    "-fbranch-probabilities",
    "-fcondition-coverage",
    "-fcoverage",
    "-fcs-profile",
    "-fcxx-modules",
    "-fdebug-types-section",
    "-fdiagnostics-add-output",
    "-fdiagnostics-format",
    "-fdiagnostics-set-output",
    "-fdump",
    "-fembed-bitcode",
    "-flto",
    "-fmessage-length",
    "-fmodule",
    "-fopenmp-targets",
    "-foptimization-record",
    "-fpass-plugin",
    "-fpath-coverage",
    "-fplugin",
    "-fprofile",
    "-fsave-optimization-record",
    "-ftest-coverage",
    "-fthinlto",
    "-ftime-trace",
    "-funique-internal-linkage-names",
    "-gsplit-dwarf",
    "-gz",
    "-index-store-path",
    "-mllvm",
    "-save-temps",
    "-serialize-diagnostics",
    "--serialize-diagnostics",
    "-specs",
    "--specs",
    "-wrapper",
];

/// Exceptions from `TRANSFORM`: flags that begin like one of those but do no such thing.
const HARMLESS: &[&str] = &[
    "-Wa,--noexecstack",
    "-fno-lto",
    "-fprofile-prefix-map=",
    "-fcoverage-prefix-map=",
    "-fcoverage-compilation-dir=",
    "-fdiagnostics-format=text",
    "-fdiagnostics-format=clang",
    "-fmessage-length=0",
    "-gz=none",
];

/// Prefixes of flags with which the path of a file decides whether, or how, part of that file
/// enters the result.
const COMPARE: &[&str] = &[
    "--warning-suppression-mappings",
    "-finstrument-functions-exclude-file-list",
    "-fsanitize-blacklist",
    "-fsanitize-coverage-",
    "-fsanitize-ignorelist",
    "-fsanitize-system-ignorelist",
    "-fsanitize-undefined-strip-path-components",
    "-fxray-always-instrument",
    "-fxray-attr-list",
    "-fxray-never-instrument",
];

/// Flags that replace prefixes of paths in the result: `FLAG=OLD=NEW`.
const MAPS: &[&str] = &[
    "-fcoverage-prefix-map=",
    "-fdebug-prefix-map=",
    "-ffile-prefix-map=",
    "-fmacro-prefix-map=",
    "-fprofile-prefix-map=",
];

/// Prefixes of flags that define or undefine macros, and of similar ones for the preprocessor.
const DEFINITIONS: &[&str] = &["--assert", "--define-macro", "--undefine-macro", "-A", "-D", "-U", "-Wp,-D", "-Wp,-U"];

/// Prefixes of flags whose value is a path, and of flags that only a link uses, such as library
/// names.
const PLACES: &[&str] = &[
    "--dependencies",
    "--gcc-toolchain",
    "--imacros",
    "--include",
    "--library-directory",
    "--output",
    "--prefix",
    "--sysroot",
    "-B",
    "-F",
    "-I",
    "-L",
    "-M",
    "-R",
    "-T",
    "-Wl,",
    "-Wp,-M",
    "-Xlinker",
    "-aux-info",
    "-fcoverage-compilation-dir=",
    "-fdebug-compilation-dir",
    "-ffile-compilation-dir=",
    "-gcc-toolchain",
    "-idirafter",
    "-imacros",
    "-include",
    "-iprefix",
    "-iquote",
    "-isysroot",
    "-isystem",
    "-iwithprefix",
    "-l",
    "-o",
    "-resource-dir",
    "-rpath",
    "-stdlib++-isystem",
    "-working-directory",
];

/// Prefixes of flags that do not bring positions in the source into the result.
const BLIND: &[&str] = &[
    "-O",
    "-W",
    "-ansi",
    "-c",
    "-fPIC",
    "-fPIE",
    "-fcommon",
    "-fdata-sections",
    "-fexceptions",
    "-ffunction-sections",
    "-fno-",
    "-fpic",
    "-fpie",
    "-fstack-protector",
    "-fstrict",
    "-fvisibility",
    "-fwrapv",
    "-g0",
    "-m",
    "-pedantic",
    "-pipe",
    "-frandom-seed",
    "-pthread",
    "-std=",
    "-w",
];

/// Flags for system directories. gcc writes the canonical path of files there, if that is shorter.
const SYSTEM_DIRECTORIES: &[&str] =
    &["--sysroot=", "--sysroot", "-B", "-idirafter", "-isysroot", "-isystem", "-iwithprefix"];

/// Flags that select how far the command goes. They are left out when it is only preprocessed.
const STAGES: &[&str] =
    &["--assemble", "--compile", "--preprocess", "-E", "-S", "-c", "-fdirectives-only", "-fsyntax-only", "-v"];

/// Prefixes of other flags that are left out when the command is only preprocessed. They write
/// further files, or change the preprocessed text for debug information.
const OUTPUTS: &[&str] = &[
    "--dependencies",
    "--output",
    "--user-dependencies",
    "--write-dependencies",
    "--write-user-dependencies",
    "-M",
    "-P",
    "-Wp,-M",
    "-aux-info",
    "-d",
    "-fstack-usage",
    "-fcallgraph-info",
    "-g",
    "-o",
];

#[cfg(test)]
mod tests {
    use super::*;

    struct None;
    impl ResponseFiles for None {
        fn read(&self, _: &[u8]) -> Option<Vec<u8>> {
            Option::None
        }
    }

    fn read(line: &str) -> Naming {
        let words: Vec<Vec<u8>> = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        naming(Family::Gcc, &words, &None).expect("no response file")
    }

    fn joined(words: &[Vec<u8>]) -> String {
        words.iter().map(|word| String::from_utf8_lossy(word)).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn an_ordinary_compile() {
        let naming = read("-O2 -g -I /r/inc -DX=\"/r\" -MD -MF /r/x.d -c /r/x.c -o x.o -std=c99");
        assert_eq!(naming.transforms, Option::None);
        assert_eq!(joined(&naming.places), "-I/r/inc -MD -MF/r/x.d /r/x.c -ox.o");
        assert_eq!(joined(&naming.definitions), "-DX=\"/r\"");
        assert_eq!(joined(&naming.others), "-O2 -g -c -std=c99");
        assert_eq!(joined(&naming.preprocess), "-O2 -I /r/inc -DX=\"/r\" /r/x.c -std=c99");
    }

    #[test]
    fn lists_for_the_preprocessor() {
        let naming = read("-Wp,-UX,-DX=1 -Wp,-MD,x.d -Wp,-DX,-finput-charset=latin1 x.c");
        assert_eq!(joined(&naming.definitions), "-Wp,-UX,-DX=1");
        assert_eq!(joined(&naming.places), "-Wp,-MD,x.d x.c");
        assert_eq!(joined(&naming.others), "-Wp,-DX,-finput-charset=latin1");
    }

    #[test]
    fn names_that_are_compared() {
        let naming = read("-fsanitize=shift -fsanitize-ignorelist=x -fxray-attr-list=y x.c");
        assert_eq!(naming.compares, Some(b"-fsanitize-ignorelist=x".to_vec()));
        assert_eq!(read("-fsanitize=shift -finstrument-functions x.c").compares, Option::None);
    }

    #[test]
    fn what_was_preprocessed_before() {
        assert_eq!(joined(&read("-c x.i /r/y.ii z.c i").preprocessed), "x.i /r/y.ii");
    }

    #[test]
    fn what_is_preprocessed_otherwise_stays_so() {
        assert_eq!(joined(&read("-traditional-cpp -g -c x.c").preprocess), "-traditional-cpp x.c");
    }

    #[test]
    fn what_turns_names_into_something_else() {
        for line in [
            "-flto -c x.c",
            "--coverage -c x.c",
            "-x cuda x.c",
            "x.cu",
            "x.h",
            "-Wa,-alh",
            "-fprofile-arcs x.c",
            "-fmessage-length=72 x.c",
            "-Wp,-MD,x.d,-DF=x x.c",
        ] {
            assert!(read(line).transforms.is_some(), "{line}");
        }
        for line in [
            "-Wa,--noexecstack x.c",
            "-fprofile-prefix-map=/a=b x.c",
            "-x c x",
            "-gdwarf-4 x.c",
            "-fmessage-length=0 x.c",
            "-Wp,-MD,x.d,-MT,x.o x.c",
            "-Wp,-U_FORTIFY_SOURCE,-D_FORTIFY_SOURCE=3 x.c",
        ] {
            assert_eq!(read(line).transforms, Option::None, "{line}");
        }
    }

    #[test]
    fn linkers_that_say_something() {
        for line in [
            "x.c -Wl,-M",
            "x.c -Wl,-Map=x",
            "-Wl,-O1,--print-map x.c",
            "-Xlinker --stats x.c",
            "-Wl,-Map,x.map x.c",
            "-T x.ld x.c",
            "x.c x.ld",
            "-Wl,--defsym=a=1 x.c",
        ] {
            assert!(read(line).talkative.is_some(), "{line}");
        }
        for line in [
            "-Wl,-z,now x.c -Wl,--as-needed",
            "-Wl,-soname,libx.so.1,--version-script,x.map x.o",
            "x.c -M y.o libz.so.1 libx.a",
        ] {
            assert_eq!(read(line).talkative, Option::None, "{line}");
        }
    }

    #[test]
    fn columns() {
        assert!(!read("-O2 -Wall -fPIC -pthread -c x.c").shows_columns());
        for line in ["-g -c x.c", "-fsanitize=undefined -c x.c", "-fopenmp -c x.c", "-ggdb3 -O2 -c x.c"] {
            assert!(read(line).shows_columns(), "{line}");
        }
    }

    #[test]
    fn maps_and_shortened_names() {
        let naming = read("-ffile-prefix-map=/a=b=c -isystem ../x -isystem /a/../x -I../y x.c");
        assert_eq!(naming.mapped, [(b"/a=b".to_vec(), b"-ffile-prefix-map=/a=b=c".to_vec())]);
        assert_eq!(joined(&naming.shortened), "-isystem../x");
    }
}
