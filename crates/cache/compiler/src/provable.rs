//! Recognises command lines whose depfile is enough to know all inputs. They compile one C or C++
//! source to an object file, and write a depfile that lists system headers. They use only flags
//! that are known to read and write no other file.
//!
//! Here an unknown flag is refused. This is the one place where larder must know what a flag does,
//! because nothing observes the run.
//!
//! Unaware of: files, and what the texts contain (the depfile observer reads them).

use larder_model::path::ending;
use larder_model::{DepfilePlan, contains_any};

use crate::flag::Proof;
use crate::response::{self, ResponseFiles};
use crate::{Family, depfile, table};

/// Returns what the depfile observer needs to know about a command line in the working directory
/// `cwd`.
///
/// `is_set` returns true if an environment variable is set. The error is the first flag, or another
/// reason, why the depfile is not enough.
pub fn depfile_plan(
    family: Family,
    cwd: &[u8],
    arguments: &[Vec<u8>],
    files: &dyn ResponseFiles,
    is_set: &dyn Fn(&[u8]) -> bool,
) -> Result<DepfilePlan, String> {
    if !family.is_gcc_or_clang() {
        return Err("the program is not called gcc or clang".to_owned());
    }
    if let Some(name) = VARIABLES.iter().find(|name| is_set(name.as_bytes())) {
        return Err(format!("{name} is set"));
    }
    let arguments = response::expand(arguments, files).map_err(|_| "a response file".to_owned())?;
    let plan = DepfilePlan { clang: family == Family::Clang, cwd: cwd.to_vec(), ..DepfilePlan::default() };
    let mut typed = Typed { plan, ..Typed::default() };
    let mut words = arguments.iter().map(Vec::as_slice);
    while let Some(word) = words.next() {
        typed.word(word, &mut words)?;
    }
    typed.plan()
}

/// Variables that change where compilers search, or make them write files.
#[rustfmt::skip]
const VARIABLES: &[&str] = &[
    "CCC_ADD_ARGS", "CCC_OVERRIDE_OPTIONS", "CC_LOG_DIAGNOSTICS", "CC_PRINT_HEADERS", "CC_PRINT_INTERNAL_STAT",
    "CC_PRINT_OPTIONS", "CC_PRINT_PROC_STAT", "COMPILER_PATH", "CPATH", "CPLUS_INCLUDE_PATH", "C_INCLUDE_PATH",
    "DEPENDENCIES_OUTPUT", "GCC_COMPARE_DEBUG", "GCC_EXEC_PREFIX", "LD_AUDIT", "LD_LIBRARY_PATH", "LD_PRELOAD",
    "SDKROOT", "SUNPRO_DEPENDENCIES",
];

#[derive(Default)]
struct Typed {
    compiles: bool,
    dependencies: bool,
    language: Option<bool>,
    sources: Vec<Vec<u8>>,
    sources_cxx: bool,
    output: Option<Vec<u8>>,
    depfile: Option<Vec<u8>>,
    plan: DepfilePlan,
}

type Done = Result<(), String>;

fn in_the_way(word: &[u8]) -> Done {
    Err(String::from_utf8_lossy(word).into_owned())
}

impl Typed {
    fn word<'a>(&mut self, word: &'a [u8], rest: &mut impl Iterator<Item = &'a [u8]>) -> Done {
        if !word.starts_with(b"-") {
            return self.file(word);
        }
        let Some(flag) = table::row(word) else { return in_the_way(word) };
        let here = &word[flag.spelling.len()..];
        let mut value = || if here.is_empty() { rest.next() } else { Some(here) };
        match flag.proof {
            Proof::Compile if here.is_empty() => self.compiles = true,
            Proof::Dependencies if here.is_empty() => self.dependencies = true,
            Proof::Ignored if here.is_empty() => {}
            Proof::IgnoredValue => drop(value()),
            Proof::Definition => return self.define(value().unwrap_or_default()),
            Proof::Depfile => self.depfile = value().map(<[u8]>::to_vec),
            Proof::Directory => {
                let value = value().unwrap_or_default();
                // A leading `=` stands for the sysroot, and `-I-` is another flag.
                if value.is_empty() || b"=-$".contains(&value[0]) {
                    return in_the_way(word);
                }
                self.plan.search_flags.extend([flag.spelling.as_bytes(), value].map(<[u8]>::to_vec));
                self.plan.directories.push(value.to_vec());
            }
            Proof::Header if here.is_empty() => return self.forced(value().unwrap_or_default()),
            Proof::Language => return self.language(value().unwrap_or_default()),
            Proof::Output => {
                let value = value().unwrap_or_default();
                // A device is not a file that can be recorded.
                if flag_like(here) || value.is_empty() || value == b"-" || value.starts_with(b"/dev/") {
                    return in_the_way(word);
                }
                self.output = Some(value.to_vec());
            }
            proof if is_plain(proof, self.plan.clang, word, here) => self.plan.search_flags.push(word.to_vec()),
            _ => return in_the_way(word),
        }
        Ok(())
    }

    fn language(&mut self, name: &[u8]) -> Done {
        if !self.sources.is_empty() {
            return Err("-x after the source".to_owned());
        }
        self.language = match name {
            b"c" => Some(false),
            b"c++" => Some(true),
            b"none" => None,
            _ => return in_the_way(&[b"-x ", name].concat()),
        };
        Ok(())
    }

    fn forced(&mut self, name: &[u8]) -> Done {
        if name.is_empty() {
            return in_the_way(b"-include");
        }
        self.plan.forced.push(name.to_vec());
        Ok(())
    }

    /// Adds a definition. A definition is refused if its value uses the date or the time. A
    /// definition of `__DATE__` or a similar macro makes the result independent of the time, so it
    /// is passed on under a name without effect.
    fn define(&mut self, text: &[u8]) -> Done {
        let (name, value) = match text.iter().position(|&b| b == b'=') {
            Some(equals) => (&text[..equals], &text[equals + 1..]),
            None => (text, &b"1"[..]),
        };
        if [&value, &name].iter().any(|part| part.contains(&b'\n')) || contains_any(value, &DepfilePlan::CLOCKS) {
            return in_the_way(&[b"-D", text].concat());
        }
        let redacts = DepfilePlan::CLOCKS.contains(&name);
        let name = if redacts { b"LARDER_REDACTED" } else { name };
        self.plan.definitions.push([name, b" ", value].concat());
        Ok(())
    }

    fn file(&mut self, path: &[u8]) -> Done {
        self.sources_cxx = match (self.language, ending(path).strip_prefix(b".")) {
            (Some(cxx), _) => cxx,
            (None, Some(b"c")) => false,
            (None, Some(b"cc" | b"cp" | b"cxx" | b"cpp" | b"CPP" | b"c++" | b"C")) => true,
            _ => return in_the_way(path),
        };
        self.sources.push(path.to_vec());
        Ok(())
    }

    fn plan(self) -> Result<DepfilePlan, String> {
        let Ok([source]) = <[Vec<u8>; 1]>::try_from(self.sources) else {
            return Err("there is not exactly one source".to_owned());
        };
        if !self.compiles {
            return Err("no -c".to_owned());
        }
        if !self.dependencies {
            return Err("no -MD, so no depfile that lists all headers".to_owned());
        }
        let depfile = self.depfile.unwrap_or_else(|| depfile::default_depfile(&source, self.output.as_deref()));
        if depfile.is_empty() || depfile == b"-" || depfile.starts_with(b"/dev/") {
            return Err("the depfile is not a file".to_owned());
        }
        let object = self.output.unwrap_or_else(|| depfile::default_output(&source, b".o"));
        if object == depfile || object == source || depfile == source {
            return Err("source, object file and depfile are not three different paths".to_owned());
        }
        Ok(DepfilePlan { cxx: self.sources_cxx, source, object, depfile, ..self.plan })
    }
}

/// Returns true for a flag in one word that neither reads nor writes a file. `here` follows the
/// spelling of its row in `word`.
pub(crate) fn is_plain(proof: Proof, is_clang: bool, word: &[u8], here: &[u8]) -> bool {
    match proof {
        Proof::Exact => here.is_empty(),
        Proof::Value => true,
        Proof::ValueOfGcc => !is_clang,
        Proof::Debug => is_debug(&word[2..]),
        Proof::Feature => is_feature(&word[2..]),
        Proof::Machine => is_simple(&word[2..], b"-_=.,+"),
        Proof::Optimization => here.len() <= 4 && here.iter().all(u8::is_ascii_alphanumeric),
        Proof::Pedantic => is_simple(here, b"-"),
        Proof::Standard => is_standard(here),
        Proof::Warning => {
            !matches!(here.first(), None | Some(b'a' | b'p' | b'l')) && is_simple(here, b"-_=+") || is_warning(here)
        }
        _ => false,
    }
}

/// Returns true if the text after `-o` in the same word makes it another flag, such as `-openmp`.
fn flag_like(joined: &[u8]) -> bool {
    joined.starts_with(b"penmp") || joined.starts_with(b"ffload")
}

fn is_simple(text: &[u8], also: &[u8]) -> bool {
    text.iter().all(|b| b.is_ascii_alphanumeric() || also.contains(b))
}

/// Returns true if a flag that begins with the letters of `-Wa`, `-Wl` or `-Wp` is a warning, such
/// as `-Wall`.
fn is_warning(rest: &[u8]) -> bool {
    rest.len() > 2 && rest[1].is_ascii_alphabetic() && is_simple(rest, b"-_=+")
}

/// Returns true for a language standard in which `//` begins a comment and `import` is an ordinary
/// identifier.
fn is_standard(name: &[u8]) -> bool {
    #[rustfmt::skip]
    const NAMES: &[&[u8]] = &[
        b"gnu89", b"gnu90", b"c99", b"gnu99", b"c9x", b"gnu9x", b"iso9899:1999", b"c11", b"gnu11", b"c1x", b"gnu1x",
        b"iso9899:2011", b"c17", b"gnu17", b"c18", b"gnu18", b"c2x", b"gnu2x", b"c++98", b"gnu++98", b"c++03",
        b"gnu++03", b"c++0x", b"gnu++0x", b"c++11", b"gnu++11", b"c++1y", b"gnu++1y", b"c++14", b"gnu++14", b"c++1z",
        b"gnu++1z", b"c++17", b"gnu++17", b"c++2a", b"gnu++2a", b"c++20", b"gnu++20", b"c++2b", b"gnu++2b", b"c++23",
        b"gnu++23",
    ];
    NAMES.contains(&name)
}

/// Returns true for a feature without a value, unless a part of its name shows that it reads or
/// writes another file, starts another program, or does something other than compile.
fn is_feature(name: &[u8]) -> bool {
    #[rustfmt::skip]
    const REFUSED: &[&[u8]] = &[
        b"apinotes", b"bitcode", b"build-session", b"callgraph", b"compare-debug", b"coverage", b"crash", b"cuda",
        b"directives-only", b"dump", b"gpu", b"hip", b"index", b"integrated-as", b"lto", b"mem-report", b"module",
        b"offload", b"openacc", b"openmp", b"opt-info", b"pch", b"plugin", b"preprocessed", b"profile", b"record",
        b"repo", b"report", b"sanitize", b"save", b"stack-usage", b"syntax-only", b"time-trace", b"working-directory",
        b"xray",
    ];
    !name.is_empty() && is_simple(name, b"-+") && !contains_any(name, REFUSED)
}

fn is_debug(rest: &[u8]) -> bool {
    #[rustfmt::skip]
    const PLAIN: &[&[u8]] = &[
        b"", b"0", b"1", b"2", b"3", b"gdb", b"gdb0", b"gdb1", b"gdb2", b"gdb3", b"dwarf", b"dwarf-2", b"dwarf-3",
        b"dwarf-4", b"dwarf-5", b"strict-dwarf", b"no-strict-dwarf", b"column-info", b"no-column-info",
        b"record-gcc-switches", b"no-record-gcc-switches", b"line-tables-only", b"pubnames", b"no-pubnames", b"z",
        b"z=none", b"z=zlib",
    ];
    PLAIN.contains(&rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct NoFiles;
    impl ResponseFiles for NoFiles {
        fn read(&self, _: &[u8]) -> Option<Vec<u8>> {
            None
        }
    }

    fn plan(family: Family, line: &str) -> Result<DepfilePlan, String> {
        let words: Vec<_> = line.split_whitespace().map(|word| word.as_bytes().to_vec()).collect();
        depfile_plan(family, b"/w", &words, &NoFiles, &|_| false)
    }

    #[test]
    fn what_is_provable() {
        let line = "-O2 -g -Wall -Wpedantic -Wno-unused -fPIC -std=c11 -march=native -Iinc -isystem sys -DA=1 -D B \
            -include f.h -MD -MF d/x.d -MT x.o -c src/x.c -o x.o";
        let found = plan(Family::Gcc, line).expect("is provable");
        let bytes = |list: &[&str]| list.iter().map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
        assert_eq!((found.clang, found.cxx), (false, false));
        assert_eq!([&found.source, &found.object, &found.depfile], [&b"src/x.c"[..], b"x.o", b"d/x.d"]);
        assert_eq!(found.directories, bytes(&["inc", "sys"]));
        assert_eq!(found.forced, bytes(&["f.h"]));
        assert_eq!(found.definitions, bytes(&["A 1", "B 1"]));
        let flags = ["-O2", "-g", "-Wall", "-Wpedantic", "-Wno-unused", "-fPIC", "-std=c11", "-march=native"];
        let searched = ["-I", "inc", "-isystem", "sys"];
        assert_eq!(found.search_flags, bytes(&[&flags[..], &searched].concat()));
        let found = plan(Family::Clang, "-MD -c x.cc -D__DATE__=\"x\" -ffast-math").expect("is provable");
        assert_eq!((found.clang, found.cxx), (true, true));
        assert_eq!([&found.object, &found.depfile], [&b"x.o"[..], b"x.d"]);
        assert_eq!(found.definitions, bytes(&["LARDER_REDACTED \"x\""]));
    }

    #[test]
    fn what_is_in_the_way() {
        #[rustfmt::skip]
        let flags = [
            "-MMD", "-M", "-E", "-S", "-v", "-save-temps", "-fplugin=x.so", "-fprofile-use", "-fprofile-use=x",
            "--coverage", "-ftest-coverage", "-fdump-tree-all", "-fopt-info", "-fmodules", "-fmodules-ts",
            "-fstack-usage", "-fcallgraph-info", "-specs=x", "-Bx", "-Wa,-a=f", "-Wp,-MD,f", "-Wl,-x",
            "-gsplit-dwarf", "-aux-info f", "-Xclang x", "-mllvm x", "--sysroot=x", "-isysroot x", "-I-", "-I=x",
            "-ansi", "-std=c89", "-trigraphs", "-DX=__TIME__", "-unknown", "y.c", "x.o", "-x assembler-with-cpp",
            "@r", "-fsanitize-x=y", "-frandom-seed=x", "-ftime-trace", "-flto", "-fno-integrated-as", "-o /dev/null",
            "-mdump-x", "-foffload", "-", "-object x", "-objcmt-x", "-openmp", "-iprefix x", "-imultilib x", "-iwithprefix x",
        ];
        for flag in flags {
            let found = plan(Family::Gcc, &format!("{flag} -MD -c x.c"));
            assert!(found.is_err(), "{flag} {found:?}");
        }
        assert!(plan(Family::Gcc, "-c x.c").is_err());
        assert!(plan(Family::Gcc, "-MD x.c").is_err());
        assert!(plan(Family::Generic, "-MD -c x.c").is_err());
        assert!(plan(Family::Clang, "-MD -c x.c -fsanitize=address").is_err());
        let words = ["-MD", "-c", "x.c"].map(|word| word.as_bytes().to_vec());
        assert!(depfile_plan(Family::Gcc, b"/w", &words, &NoFiles, &|name| name == b"CPATH").is_err());
    }
}
