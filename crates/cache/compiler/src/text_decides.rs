//! Recognises compiles whose preprocessed text decides the result: two compiles with the same
//! arguments and the same text give the same object file, except for positions within a line.
//!
//! Here an unknown flag is refused, as in [`crate::provable`], and most rules are taken from there.
//! For example, `-g3` is refused because it puts the definitions of unused macros into the result.
//!
//! Unaware of: the text, the files, and what else a run relied on.

use larder_model::contains_any;
use larder_model::path::ending;

use crate::flag::Proof;
use crate::naming::is_quiet_assembler_list;
use crate::provable::is_plain;
use crate::table;

/// Variables by which a compiler changes its arguments, or writes further files.
pub const VARIABLES_BESIDE_TEXT: &[&str] = &[
    "CCC_ADD_ARGS",
    "CCC_OVERRIDE_OPTIONS",
    "CC_LOG_DIAGNOSTICS",
    "CC_PRINT_HEADERS",
    "CC_PRINT_INTERNAL_STAT",
    "CC_PRINT_OPTIONS",
    "CC_PRINT_PROC_STAT",
    "DEPENDENCIES_OUTPUT",
    "GCC_COMPARE_DEBUG",
    "SUNPRO_DEPENDENCIES",
];

/// File name extensions of C and C++.
const ENDINGS: [&[u8]; 8] = [b".c", b".cc", b".cp", b".cxx", b".cpp", b".CPP", b".c++", b".C"];

/// Flags that are harmless here, and that [`crate::provable`] refuses because the depfile would not
/// list all headers, or because it does not need them.
const HARMLESS: [&[u8]; 2] = [b"-MMD", b"-W"];

/// Parts of the names of flags that make the result depend on more than the text: definitions of
/// macros, comments, or the way in which the compiler warns.
const REFUSED: [&[u8]; 6] =
    [b"analyzer", b"-Weverything", b"-Wdocumentation", b"-Wunused-macros", b"-Wimplicit-fallthrough=1", b"debug-macro"];

/// Returns true if these arguments compile one C or C++ source to an object file, and the
/// preprocessed text decides the result. `arguments` do not contain `argv[0]`.
pub fn text_decides(arguments: &[Vec<u8>]) -> bool {
    let (mut compiles, mut sources, mut is_named) = (false, 0, false);
    let mut words = arguments.iter().map(Vec::as_slice);
    while let Some(word) = words.next() {
        if !word.starts_with(b"-") {
            if word.starts_with(b"@") || !is_named && !ENDINGS.contains(&ending(word)) {
                return false;
            }
            sources += 1;
            continue;
        }
        let Some(flag) = table::row(word) else { return false };
        let here = &word[flag.spelling.len()..];
        let mut value = || if here.is_empty() { words.next() } else { Some(here) };
        match flag.proof {
            _ if contains_any(word, &REFUSED) => return false,
            _ if HARMLESS.contains(&word) || is_list_of_dependencies(word) || is_quiet_assembler_list(word) => {}
            Proof::Compile if here.is_empty() => compiles = true,
            Proof::Dependencies | Proof::Ignored if here.is_empty() => {}
            Proof::Header if here.is_empty() => drop(value()),
            Proof::IgnoredValue | Proof::Definition | Proof::Depfile | Proof::Directory => {
                // `-I-` is another flag, and `-MF -` writes to standard output.
                if value().is_none_or(|value| value.is_empty() || value[0] == b'-') {
                    return false;
                }
            }
            Proof::Language if sources == 0 => match value() {
                Some(b"c" | b"c++") => is_named = true,
                _ => return false,
            },
            Proof::Output => {
                let is_file = |value: &[u8]| !value.is_empty() && value != b"-" && !value.starts_with(b"/dev/");
                if here.starts_with(b"penmp") || here.starts_with(b"ffload") || !value().is_some_and(is_file) {
                    return false;
                }
            }
            // `-g3`, `-ggdb3` and similar: macros are in the debug information.
            Proof::Debug if here.ends_with(b"3") && !here.starts_with(b"dwarf") => return false,
            proof if is_plain(proof, false, word, here) => {}
            _ => return false,
        }
    }
    compiles && sources == 1
}

/// Returns true for `-Wp,-MD,FILE` and similar.
fn is_list_of_dependencies(word: &[u8]) -> bool {
    let Some(list) = word.strip_prefix(b"-Wp,") else { return false };
    let parts: Vec<&[u8]> = list.split(|&byte| byte == b',').collect();
    matches!(parts[..], [b"-MD" | b"-MMD", file] if !file.starts_with(b"-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expect: bool) {
        let words: Vec<Vec<u8>> = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        assert_eq!(text_decides(&words), expect, "{line}");
    }

    #[test]
    fn what_the_text_decides() {
        for line in [
            "-c x.c",
            "-O2 -g -Wall -Iinc -I inc -DX=1 -D X -c x.cc -o x.o -std=gnu++17 -fPIC",
            "-MD -MP -MT x.o -MF x.d -c x.c",
            "-MMD -W -fdiagnostics-color -c x.c",
            "-Wp,-MD,x.d -include autoconf.h -imacros m.h -Os -march=native -c x.c",
            "-Wa,--noexecstack -fdiagnostics-color=always -fsanitize=undefined -gdwarf-3 -c x.c",
            "-ggdb -gdwarf-4 -x c -c x",
        ] {
            check(line, true);
        }
    }

    #[test]
    fn what_more_than_the_text_decides() {
        for line in [
            "x.c",
            "-E x.c",
            "-S x.c",
            "-c x.c y.c",
            "-c x.S",
            "-c x.s",
            "-c x.i",
            "-c x.h",
            "-x assembler-with-cpp -c x.c",
            "-c -",
            "-c @x",
            "-c x.c -fnever-heard=1",
            "-c x.c -never-heard",
        ] {
            check(line, false);
        }
        for flag in [
            "-g3",
            "-ggdb3",
            "-gsplit-dwarf",
            "-fdebug-macro",
            "-save-temps",
            "--coverage",
            "-fprofile-arcs",
            "-fprofile-use=x",
            "-Wunused-macros",
            "-Wdocumentation",
            "-Wimplicit-fallthrough=1",
            "-fanalyzer",
            "-fplugin=x.so",
            "-fopenmp",
            "-fmodules",
            "-fdirectives-only",
            "-traditional-cpp",
            "-ansi",
            "-Wp,-DX",
            "-Wp,-MD,x.d,-DX",
            "-Xclang -x",
            "-frecord-command-line",
            "-fdiagnostics-format=json",
            "-flto",
            "-fstack-usage",
            "-fdump-tree-all",
            "-C",
            "-o -",
            "-MF -",
            "-I-",
            "-v",
            "-H",
        ] {
            check(&format!("{flag} -c x.c"), false);
        }
    }
}
