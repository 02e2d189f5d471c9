//! Sorts the arguments of a compile by what they do with paths: which arguments only say where
//! something is, which could bring a path into the result, and which remain for a run that only
//! preprocesses.
//!
//! This decides in which directories a result can be reused, not whether it is right here. If an
//! argument contains the path of the checkout, larder must know what the compiler does with it. So
//! an unknown argument that contains the path prevents reuse elsewhere.
//!
//! Unaware of: roots, and what the texts contain.

use larder_model::contains;
use larder_model::path::file_name;

use crate::flag::{Columns, Paths, Preprocess, Role};
use crate::language::{self, SourceKind};
use crate::response::{self, ResponseFiles};
use crate::table::{self, Value};
use crate::{Invocation, Stage, binutils};

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
    /// The first flag that makes the compiler hash the path of a source as it is on the command
    /// line. For example, with `-frandom-seed` the hash can be part of a symbol's name.
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
pub fn naming(arguments: &[Vec<u8>], files: &dyn ResponseFiles) -> Option<Naming> {
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
        let value = match table::find(word).map(|found| found.value) {
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
        self.family.is_gcc_or_clang() && self.stage != Stage::End
    }
}

impl Naming {
    /// Returns true if a flag may bring column numbers of the sources into the result, as debug
    /// information and sanitizers do.
    pub fn shows_columns(&self) -> bool {
        self.others.iter().any(|word| table::row(word).is_none_or(|flag| flag.columns == Columns::Shown))
    }

    fn flag(&mut self, word: &[u8], value: Option<&[u8]>) {
        let whole = [word, value.unwrap_or_default()].concat();
        let flag = table::row(word);
        let paths = flag.map_or(Paths::Kept, |flag| flag.paths);
        let list = word.strip_prefix(b"-Wp,");
        let mixes = list.is_some_and(is_mixed_list);
        // The flags of a list that is not mixed have one role, which the first of them shows.
        let role = match table::role(list.unwrap_or(word)) {
            _ if mixes => Role::Other,
            _ if tags_globals(word) => Role::Seed,
            role => role,
        };
        // The run that only preprocesses cannot use such a list: it writes a depfile, and leaving
        // it out would lose its other parts.
        let hides = mixes && contains(word, ",-M");
        let is_transformed = paths == Paths::Transformed && !is_quiet_assembler_list(word);
        let transforms = is_transformed || foreign_language(word, value) || hides;
        if self.transforms.is_none() && transforms {
            self.transforms = Some(whole.clone());
        }
        if self.compares.is_none() && paths == Paths::Compared {
            self.compares = Some(whole.clone());
        }
        let is_talkative = match role {
            Role::Linker => {
                word.strip_prefix(b"-Wl,").or(value).is_some_and(|told| !binutils::is_quiet_linker_word(told))
            }
            role => role == Role::Script,
        };
        if self.talkative.is_none() && is_talkative {
            self.talkative = Some(whole.clone());
        }
        let dropped = match flag.map(|flag| (flag.preprocess, flag.spelling.as_bytes())) {
            Some((Preprocess::Drop, _)) => true,
            Some((Preprocess::DropExact, spelling)) => word == spelling,
            _ => list.is_some_and(|list| list.starts_with(b"-M")),
        };
        self.sort(role, word, whole);
        if !dropped {
            self.preprocess.extend([Some(word), value].into_iter().flatten().map(<[u8]>::to_vec));
        }
    }

    /// Adds a flag to the list for its role. `whole` is the word and the next word, if that is its
    /// argument.
    fn sort(&mut self, role: Role, word: &[u8], whole: Vec<u8>) {
        let argument = |word| table::row(word).map_or(&b""[..], |flag| &word[flag.spelling.len()..]);
        match role {
            Role::Map => {
                let old = argument(word).rsplitn(2, |&b| b == b'=').last().unwrap_or_default();
                self.mapped.push((old.to_vec(), whole));
            }
            Role::Seed => {
                self.seed.get_or_insert_with(|| whole.clone());
                self.others.push(whole);
            }
            Role::Definition => self.definitions.push(whole),
            Role::System | Role::SearchedSystem => {
                let path = argument(&whole);
                if !path.starts_with(b"/") {
                    self.system.push(path.to_vec());
                    if contains(path, "..") {
                        self.shortened.push(whole.clone());
                    }
                }
                self.places.push(whole);
            }
            Role::Header | Role::Linker | Role::Place | Role::RunPath | Role::Script | Role::Searched => {
                self.places.push(whole);
            }
            Role::Other => self.others.push(whole),
        }
    }

    fn file(&mut self, path: &[u8]) {
        self.assembles |= path.ends_with(b".s");
        if [&b".i"[..], b".ii", b".mi", b".mii"].iter().any(|ending| path.ends_with(ending)) {
            self.preprocessed.push(path.to_vec());
        }
        if self.transforms.is_none() && matches!(language::of_file(path), SourceKind::Foreign | SourceKind::Interface) {
            self.transforms = Some(path.to_vec());
        }
        let is_script = matches!(language::of_file(path), SourceKind::Linked) && !is_object_or_library(path);
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
fn is_mixed_list(list: &[u8]) -> bool {
    let flags = || list.split(|&b| b == b',').filter(|part| part.starts_with(b"-"));
    let is_definition = |flag: &[u8]| flag.starts_with(b"-D") || flag.starts_with(b"-U");
    !flags().all(is_definition) && !flags().all(|flag| flag.starts_with(b"-M"))
}

/// Judges by the file name. Any other file that a linker is given may be a linker script, which can
/// use the sizes of sections.
fn is_object_or_library(path: &[u8]) -> bool {
    let name = file_name(path);
    contains(name, ".so.") || [&b".o"[..], b".lo", b".obj", b".a", b".so"].iter().any(|ending| name.ends_with(ending))
}

/// Options of the assembler that only choose instructions, warnings or the kind of the stack.
const QUIET_ASSEMBLER_WORDS: [&[u8]; 6] =
    [b"--execstack", b"--fatal-warnings", b"--no-pad-sections", b"--no-warn", b"--noexecstack", b"--warn"];
/// Settings of the same kind. Any value may follow.
const QUIET_ASSEMBLER_SETTINGS: [&[u8]; 7] =
    [b"-march=", b"-mcpu=", b"-mfpu=", b"-mfloat-abi=", b"-mrelax-relocations=", b"-mtune=", b"-mx86-used-note="];

/// Returns true for `-Wa,` with options that do nothing with paths. For example, `-alh` or
/// `--compress-debug-sections` does.
pub(crate) fn is_quiet_assembler_list(word: &[u8]) -> bool {
    let is_quiet = |part: &[u8]| {
        QUIET_ASSEMBLER_WORDS.contains(&part) || QUIET_ASSEMBLER_SETTINGS.iter().any(|name| part.starts_with(name))
    };
    word.strip_prefix(b"-Wa,").is_some_and(|list| list.split(|&byte| byte == b',').all(is_quiet))
}

fn foreign_language(word: &[u8], value: Option<&[u8]>) -> bool {
    let Some(joined) = word.strip_prefix(b"-x") else { return false };
    let name = if joined.is_empty() { value.unwrap_or_default() } else { joined };
    matches!(language::of_name(name), Some(SourceKind::Foreign | SourceKind::Interface))
}

/// Returns true for `-fsanitize=…` with a sanitizer that gives each global variable a tag. clang
/// takes the first tag from a hash of the source's path.
fn tags_globals(word: &[u8]) -> bool {
    let list = word.strip_prefix(b"-fsanitize=").unwrap_or_default();
    list.split(|&b| b == b',').any(|name| matches!(name, b"hwaddress" | b"kernel-hwaddress"))
}

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
        naming(&words, &None).expect("no response file")
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
    fn paths_that_are_hashed() {
        for word in [
            "-frandom-seed=1",
            "-fpseudo-probe-for-profiling",
            "-fsanitize=hwaddress",
            "-fsanitize=cfi,kernel-hwaddress",
        ] {
            let naming = read(&format!("{word} -c /r/x.c"));
            assert_eq!((naming.seed, naming.transforms), (Some(word.into()), Option::None), "{word}");
        }
        assert_eq!(read("-fsanitize=address -fno-sanitize=hwaddress -c /r/x.c").seed, Option::None);
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
            "-Wa,--noexecstack,--compress-debug-sections",
            "-Wa,--fatal-warnings,-alh=x.lst",
            "-Wa,--fatal-warningss",
            "-fprofile-arcs x.c",
            "-fmessage-length=72 x.c",
            "-Wp,-MD,x.d,-DF=x x.c",
        ] {
            assert!(read(line).transforms.is_some(), "{line}");
        }
        for line in [
            "-Wa,--noexecstack x.c",
            "-Wa,--fatal-warnings,--noexecstack,-mrelax-relocations=no x.s",
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
        let naming = read("--sysroot=../s -isystem-after ../x -iwithprefixbefore y x.c");
        assert_eq!(joined(&naming.system), "../s ../x y");
    }
}
