//! The table of flags of the binutils: assembler, linker, archiver and others. It holds flags that
//! take the next word as their argument, and those that configure scripts and build systems
//! commonly pass to the linker. To add a flag, add one row.
//!
//! Unaware of: which program has which flag.

use Argument::{Alone, Next, Unknown};
use Prints::{Nothing, Perhaps, Statistics};

/// A row of the table.
struct Flag {
    spelling: &'static str,
    argument: Argument,
    prints: Prints,
}

/// The place that a flag takes its argument from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Argument {
    /// It has none, so a file may follow.
    Alone,
    /// The next word, which would otherwise be taken for the first file.
    Next,
    /// Not known. The next word may be its argument or a file.
    Unknown,
}

/// Text that a flag makes the program print, or write to a file other than the output.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Prints {
    /// Nothing: the flag affects at most the output.
    Nothing,
    /// Not known.
    Perhaps,
    /// Times and counts, which differ in each run.
    Statistics,
}

const fn flag(spelling: &'static str, argument: Argument, prints: Prints) -> Flag {
    Flag { spelling, argument, prints }
}

/// Returns where the flag takes its argument from. The word must be exactly the flag.
pub(super) fn argument(word: &[u8]) -> Argument {
    find(word).map_or(Unknown, |flag| flag.argument)
}

/// Returns true if the flag prints times or counts. The word must be exactly the flag.
pub(super) fn prints_statistics(word: &[u8]) -> bool {
    find(word).is_some_and(|flag| flag.prints == Statistics)
}

/// Returns true if the flag is known to print nothing. The linker takes one dash for two, and `=`
/// may follow.
pub(super) fn is_quiet(word: &[u8]) -> bool {
    let name = word.split(|&b| b == b'=').next().unwrap_or(word);
    FLAGS.iter().any(|flag| flag.prints == Nothing && bare(flag.spelling.as_bytes()) == bare(name))
}

/// Returns the flag without its dashes, of which there are at most two.
fn bare(word: &[u8]) -> &[u8] {
    let word = word.strip_prefix(b"-").unwrap_or(word);
    word.strip_prefix(b"-").unwrap_or(word)
}

fn find(word: &[u8]) -> Option<&'static Flag> {
    // This saves the search for the thousands of files that a linker can have as arguments.
    if !word.starts_with(b"-") {
        return None;
    }
    FLAGS.binary_search_by(|flag| flag.spelling.as_bytes().cmp(word)).ok().map(|at| &FLAGS[at])
}

/// The rows, sorted by spelling, byte by byte.
const FLAGS: &[Flag] = &[
    flag("--32", Alone, Perhaps),
    flag("--64", Alone, Perhaps),
    flag("--MD", Next, Perhaps),
    flag("--allow-multiple-definition", Unknown, Nothing),
    flag("--allow-shlib-undefined", Unknown, Nothing),
    flag("--as-needed", Unknown, Nothing),
    flag("--build-id", Unknown, Nothing),
    flag("--check-sections", Unknown, Nothing),
    flag("--color-diagnostics", Unknown, Nothing),
    flag("--copy-dt-needed-entries", Unknown, Nothing),
    flag("--debug-prefix-map", Next, Perhaps),
    flag("--defsym", Next, Perhaps),
    flag("--demangle", Unknown, Nothing),
    flag("--disable-new-dtags", Unknown, Nothing),
    flag("--discard-all", Unknown, Nothing),
    flag("--discard-locals", Unknown, Nothing),
    flag("--discard-none", Unknown, Nothing),
    flag("--dynamic-list", Unknown, Nothing),
    flag("--dynamic-list-cpp-new", Unknown, Nothing),
    flag("--dynamic-list-cpp-typeinfo", Unknown, Nothing),
    flag("--dynamic-list-data", Unknown, Nothing),
    flag("--eh-frame-hdr", Unknown, Nothing),
    flag("--enable-new-dtags", Unknown, Nothing),
    flag("--end-group", Unknown, Nothing),
    flag("--entry", Unknown, Nothing),
    flag("--error-unresolved-symbols", Unknown, Nothing),
    flag("--exclude-libs", Unknown, Nothing),
    flag("--export-dynamic", Unknown, Nothing),
    flag("--export-dynamic-symbol", Unknown, Nothing),
    flag("--fatal-warnings", Alone, Nothing),
    flag("--gc-sections", Unknown, Nothing),
    flag("--gdwarf-5", Alone, Perhaps),
    flag("--hash-style", Unknown, Nothing),
    flag("--icf", Unknown, Nothing),
    flag("--image-base", Unknown, Nothing),
    flag("--no-allow-shlib-undefined", Unknown, Nothing),
    flag("--no-as-needed", Unknown, Nothing),
    flag("--no-check-sections", Unknown, Nothing),
    flag("--no-copy-dt-needed-entries", Unknown, Nothing),
    flag("--no-demangle", Unknown, Nothing),
    flag("--no-dynamic-linker", Unknown, Nothing),
    flag("--no-eh-frame-hdr", Unknown, Nothing),
    flag("--no-export-dynamic", Unknown, Nothing),
    flag("--no-fatal-warnings", Unknown, Nothing),
    flag("--no-gc-sections", Unknown, Nothing),
    flag("--no-keep-memory", Unknown, Nothing),
    flag("--no-map-whole-files", Unknown, Nothing),
    flag("--no-pie", Unknown, Nothing),
    flag("--no-relax", Unknown, Nothing),
    flag("--no-rosegment", Unknown, Nothing),
    flag("--no-threads", Unknown, Nothing),
    flag("--no-undefined", Unknown, Nothing),
    flag("--no-undefined-version", Unknown, Nothing),
    flag("--no-warn-execstack", Unknown, Nothing),
    flag("--no-whole-archive", Unknown, Nothing),
    flag("--noexecstack", Alone, Perhaps),
    flag("--noinhibit-exec", Unknown, Nothing),
    flag("--output", Next, Perhaps),
    flag("--pack-dyn-relocs", Unknown, Nothing),
    flag("--perf", Unknown, Statistics),
    flag("--pic-executable", Unknown, Nothing),
    flag("--pie", Unknown, Nothing),
    flag("--pop-state", Unknown, Nothing),
    flag("--push-state", Unknown, Nothing),
    flag("--reduce-memory-overheads", Unknown, Nothing),
    flag("--relax", Unknown, Nothing),
    flag("--retain-symbols-file", Unknown, Nothing),
    flag("--rosegment", Unknown, Nothing),
    flag("--sort-common", Unknown, Nothing),
    flag("--start-group", Unknown, Nothing),
    flag("--statistics", Unknown, Statistics),
    flag("--stats", Unknown, Statistics),
    flag("--strip-all", Unknown, Nothing),
    flag("--strip-debug", Unknown, Nothing),
    flag("--thread-count", Unknown, Nothing),
    flag("--threads", Unknown, Nothing),
    flag("--time-trace", Unknown, Statistics),
    flag("--time-trace-file", Unknown, Statistics),
    flag("--undefined", Unknown, Nothing),
    flag("--undefined-version", Unknown, Nothing),
    flag("--unresolved-symbols", Unknown, Nothing),
    flag("--version-script", Unknown, Nothing),
    flag("--warn-common", Unknown, Nothing),
    flag("--whole-archive", Unknown, Nothing),
    flag("--wrap", Unknown, Nothing),
    flag("-32", Alone, Perhaps),
    flag("-64", Alone, Perhaps),
    flag("-Bdynamic", Unknown, Nothing),
    flag("-Bstatic", Unknown, Nothing),
    flag("-Bsymbolic", Unknown, Nothing),
    flag("-Bsymbolic-functions", Unknown, Nothing),
    flag("-E", Unknown, Nothing),
    flag("-I", Next, Perhaps),
    flag("-L", Next, Nothing),
    flag("-O1", Unknown, Nothing),
    flag("-O2", Unknown, Nothing),
    flag("-S", Unknown, Nothing),
    flag("-T", Next, Perhaps),
    flag("-W", Alone, Perhaps),
    flag("-X", Unknown, Nothing),
    flag("-dynamic-linker", Next, Nothing),
    flag("-e", Unknown, Nothing),
    flag("-fini", Unknown, Nothing),
    flag("-g", Alone, Perhaps),
    flag("-h", Unknown, Nothing),
    flag("-init", Unknown, Nothing),
    flag("-m", Next, Perhaps),
    flag("-no-pie", Unknown, Nothing),
    flag("-o", Next, Perhaps),
    flag("-perf", Unknown, Statistics),
    flag("-pie", Unknown, Nothing),
    flag("-plugin", Next, Perhaps),
    flag("-plugin-opt", Next, Perhaps),
    flag("-rpath", Next, Nothing),
    flag("-rpath-link", Next, Nothing),
    flag("-s", Unknown, Nothing),
    flag("-soname", Next, Nothing),
    flag("-stats", Unknown, Statistics),
    flag("-time-passes", Unknown, Statistics),
    flag("-u", Unknown, Nothing),
    flag("-x", Unknown, Nothing),
    flag("-z", Next, Nothing),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted() {
        for pair in FLAGS.windows(2) {
            assert!(pair[0].spelling.as_bytes() < pair[1].spelling.as_bytes(), "{}", pair[1].spelling);
        }
    }

    #[test]
    fn quiet_flags() {
        for word in [&b"-soname"[..], b"--soname=x", b"-E", b"--as-needed", b"-as-needed"] {
            assert!(is_quiet(word));
        }
        for word in [&b"-Map"[..], b"--stats", b"-T", b"---E", b"-"] {
            assert!(!is_quiet(word));
        }
    }
}
