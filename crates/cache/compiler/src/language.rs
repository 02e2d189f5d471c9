//! The language of a file on the command line, by its extension or by `-x`.
//!
//! Unaware of: whether the file exists, and what is in it.

use larder_model::path::ending;

/// What the compiler takes a file for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SourceKind {
    /// A source in C, C++, Objective-C, assembly, Fortran or LLVM's IR.
    Source,
    /// A header or a module interface. Compiling it does not make an object file.
    Interface,
    /// A source in a language that larder has no rules for.
    Foreign,
    /// A file for the linker, which `-c` never starts.
    Linked,
}

/// Returns true if the extension of the file is that of a source.
pub fn is_source(path: &[u8]) -> bool {
    of_file(path) == SourceKind::Source
}

/// Returns what a file is by its extension.
pub(crate) fn of_file(path: &[u8]) -> SourceKind {
    let Some(ending) = ending(path).strip_prefix(b".") else { return SourceKind::Linked };
    let among = |endings: &[&str]| endings.iter().any(|e| e.as_bytes() == ending);
    if among(SOURCES) {
        SourceKind::Source
    } else if among(INTERFACES) {
        SourceKind::Interface
    } else if among(FOREIGN) {
        SourceKind::Foreign
    } else {
        SourceKind::Linked
    }
}

/// Returns what a file is by the argument of `-x`. Returns `None` for `-x none`, after which the
/// extension decides again.
pub(crate) fn of_name(language: &[u8]) -> Option<SourceKind> {
    let ends = |ending: &[u8]| language.ends_with(ending);
    Some(match language {
        b"none" => return None,
        _ if ends(b"-header") || ends(b"-module") || ends(b"-header-cpp-output") || ends(b"-module-cpp-output") => {
            SourceKind::Interface
        }
        b"c" | b"c++" | b"objective-c" | b"objective-c++" | b"objc" | b"objc++" => SourceKind::Source,
        b"cpp-output" | b"c++-cpp-output" | b"objc-cpp-output" | b"objc++-cpp-output" => SourceKind::Source,
        b"objective-c-cpp-output" | b"objective-c++-cpp-output" => SourceKind::Source,
        b"assembler" | b"assembler-with-cpp" | b"ir" => SourceKind::Source,
        b"f77" | b"f77-cpp-input" | b"f95" | b"f95-cpp-input" => SourceKind::Source,
        _ => SourceKind::Foreign,
    })
}

const SOURCES: &[&str] = &[
    "c", "i", // C
    "cc", "cp", "cxx", "cpp", "CPP", "c++", "C", "CC", "ii", // C++
    "m", "mi", "mm", "M", "mii", // Objective-C and Objective-C++
    "s", "S", "sx", // assembler
    "ll", "bc", // LLVM's own
    "f", "for", "ftn", "fpp", "f90", "f95", "f03", "f08", // Fortran
    "F", "FOR", "FTN", "FPP", "F90", "F95", "F03", "F08", // Fortran, preprocessed
];
const INTERFACES: &[&str] = &[
    "h", "hh", "H", "hp", "hxx", "hpp", "HPP", "h++", "tcc", // headers
    "cppm", "ccm", "cxxm", "c++m", "ixx", "pcm", "iim", // modules
];
const FOREIGN: &[&str] = &[
    "cu", "cui", "hip", "hipi", "cl", "clcpp", "go", "d", "di", "dd", "adb", "ads", "rs", "cob", "mod", "m2", "swift",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files() {
        let check = |path: &str, expect| assert_eq!(of_file(path.as_bytes()), expect, "{path}");
        check("x.c", SourceKind::Source);
        check("a.b/x.C", SourceKind::Source);
        check("x.o.c", SourceKind::Source);
        check("x.F90", SourceKind::Source);
        check("x.hpp", SourceKind::Interface);
        check("x.cu", SourceKind::Foreign);
        check("x.o", SourceKind::Linked);
        check("libx.so.1", SourceKind::Linked);
        check("a.c/x", SourceKind::Linked);
        check("", SourceKind::Linked);
    }

    #[test]
    fn languages() {
        let check = |name: &str, expect| assert_eq!(of_name(name.as_bytes()), expect, "{name}");
        check("c", Some(SourceKind::Source));
        check("assembler-with-cpp", Some(SourceKind::Source));
        check("c++-header", Some(SourceKind::Interface));
        check("c++-system-header", Some(SourceKind::Interface));
        check("cuda", Some(SourceKind::Foreign));
        check("none", None);
    }
}
