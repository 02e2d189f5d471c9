//! Expected hits that larder is known to miss, with the reasons. A row is removed when the hits
//! come.
//!
//! Unaware of: how cases are run.

use crate::caches::{CacheKind, Chosen, Observer};
use crate::machine::{Version, version};
use regex::Regex;
use std::sync::LazyLock;

/// Where a row holds.
#[derive(Clone, Copy)]
enum On {
    /// Everywhere.
    Any,
    /// With the kernel observer alone, if larder's reason for the miss contains this text.
    Kernel(&'static str),
    /// If this program's version is less than this one.
    Before(&'static str, Version),
    /// If this program's version is at least this one.
    Since(&'static str, Version),
}

/// A pattern for `case · step`, where it holds, and the reason.
const MISSES: &[(&str, On, &str)] = &[
    (r"^[WN]/A/text-.* · (third|back)$", On::Any, "within a whole command, the preprocessed text is not compared"),
    (
        r"^([WN]/)?B/own-path-in-assert/.* · (elsewhere|in a third place)$",
        On::Any,
        "the preprocessed text contains the path",
    ),
    (
        r"^B/own-path-unused-with-assert/clang · (elsewhere|in a third place)$",
        On::Any,
        "clang may name a file in `__PRETTY_FUNCTION__`, which `assert` uses",
    ),
    (
        r"^([WN]/)?B/derived-config-and-macros-debug/gcc · (elsewhere|in a third place)",
        On::Any,
        "gcc writes macro strings in the order of a hash table",
    ),
    (
        r"^([WN]/)?B/(relative-g[13]?|derived-line-names-generator-g|derived-header-is-a-link)/gcc · (elsewhere|in a third place)$",
        On::Before("gcc", (11, 0)),
        "gcc writes DWARF 4, with its directory among other strings in the order of a hash table",
    ),
    (r"^A/(as|cc1)-appears · appears, again", On::Any, LEARNS),
    (r"^B/PATH-of-compile/gcc · an assembler, again", On::Any, LEARNS),
    (r"^([WN]/)?A/options-that-matter/gcc · -x c\+\+, again", On::Any, LEARNS),
    (r"^([WN]/)?A/mode-changed/.* · executable", On::Any, "the execute bit is part of what is recorded about a file"),
    (r"^([WN]/)?A/becomes-a-link/clang · a link", On::Any, "clang asks for the real path of a header"),
    (r"^C/umask-changes-link.* · (077|002)", On::Any, "the linker asks for the umask"),
    (r"^C/umask-changes-ar/.* · (077|002)", On::Before("ar", (2, 36)), "ar asks for the umask"),
    (r"^C/with-dump-tree-stdout", On::Any, "an output is written to a device"),
    (r"^C/with-clang-arch", On::Any, "lipo reads and writes in the directory for temporary files"),
    (r"^C/with-clang-ast", On::Any, "an option whose effects are not known well enough"),
    (r"^C/with-clang-header-include-file", On::Any, "the tool appends to it"),
    (r"^C/with-clang-MJ · over", On::Since("clang", (17, 0)), THERE),
    (r"^C/script-makes-directories", On::Any, "an existing directory is another state than a missing one"),
    (r"^C/dies-.* · lives, again", On::Any, "the script uses its process ID, and leaves bytes that are not text"),
    (r"^C/script-moves/.* · over", On::Any, THERE),
    (
        r"^F/link-fuse-mold-(program|static)/.* · (compared again, again|over)",
        On::Since("mold", (2, 30)),
        "mold opens an existing program in a way that is not recorded",
    ),
    (
        r"^F/ar-(new|new-D|order|rsp) · (member edited|turned|fewer), again",
        On::Since("ar", (2, 44)),
        "ar writes into the existing archive",
    ),
    (r"^F/run-list-tar-names · ", On::Any, "it asks for the time"),
    (r"^F/run-(list-cp-r|makes-directories|output-removed-before) · ", On::Any, THERE),
    (r"^F/python-module · back", On::Any, "Python reads the mtime of a module"),
    (
        r"^F/python-fork · ",
        On::Since("python3", (3, 12)),
        "Python counts its threads in `/proc/self/stat` before it forks",
    ),
    (
        r"^[WN]/B/.* · (elsewhere|moved|next sandbox)$",
        On::Any,
        "another checkout only hits after two checkouts gave the same result",
    ),
    (r"^[WN]/B/place-dollar/.* · elsewhere, again", On::Any, "`$$` in a path looks like the process ID of a shell"),
    (
        r"^[WN]/A/variables-that-do-not-matter/.* · set$",
        On::Any,
        "the whole environment is part of the key of any command",
    ),
    (r"^F/run-env-unused", On::Any, "the whole environment is part of the key of any command"),
    (r"^F/run-makes-odd-modes", On::Any, "a set-user-id file is not stored"),
    (
        r"^[WN]/B/place-(shorter|same-length)-relative/.* · in a third place",
        On::Any,
        "two paths of equal length prove nothing about others",
    ),
    (
        r"",
        On::Kernel("it failed, and the kernel observer cannot see whether memory or disk space ran out"),
        "a failure is only recorded if the preloaded library saw it",
    ),
    (r"^N/", On::Kernel("the tool cannot be observed here"), "the kernel observes a process for one observer only"),
    (
        r"^([WN]/)?A/time-epoch-(DATE|TIME)",
        On::Kernel("the result depends on the time"),
        "the kernel observer does not see that a variable is asked for",
    ),
    (
        r"^A/variables-that-do-not-matter/.* · set$|^B/([A-Z0-9_]+-of-[a-z-]+|signals-of-command|login-asked)[ /]",
        On::Kernel(""),
        "the kernel observer does not see which variables are asked for, so all of them count",
    ),
    (
        r"python",
        On::Kernel("random numbers"),
        "glibc since 2.41 makes random numbers in the vDSO, where the kernel observer cannot count them",
    ),
];

const THERE: &str = "the tool looked at the existing file";
const LEARNS: &str = "the first successful run shows whether a tool can be observed, and is not stored";

/// The patterns of the rows that hold on this machine, if the observer does.
static PATTERNS: LazyLock<Vec<Option<Regex>>> = LazyLock::new(|| {
    let holds = |on: On| match on {
        On::Any | On::Kernel(_) => true,
        On::Before(program, than) => version(program).is_some_and(|version| version < than),
        On::Since(program, first) => version(program).is_some_and(|version| version >= first),
    };
    MISSES.iter().map(|(pattern, on, _)| holds(*on).then(|| Regex::new(pattern).expect("is a pattern"))).collect()
});

/// Returns the patterns of all rows.
pub fn rows() -> impl Iterator<Item = &'static str> {
    MISSES.iter().map(|(pattern, ..)| *pattern)
}

/// Returns the index and the reason of the row that excuses this missed hit, if there is one. `said`
/// is what larder said about the step.
pub fn miss(case: &str, step: &str, said: &str, cache: &Chosen) -> Option<(usize, &'static str)> {
    if cache.kind != CacheKind::Larder {
        return None;
    }
    let name = format!("{case} · {step}");
    let is_it = |(row, pattern): (usize, &Option<Regex>)| {
        let is_said = match MISSES[row].1 {
            On::Kernel(text) => cache.observer == Some(Observer::Kernel) && said.contains(text),
            _ => true,
        };
        is_said && pattern.as_ref().is_some_and(|pattern| pattern.is_match(&name))
    };
    let row = PATTERNS.iter().enumerate().position(is_it)?;
    Some((row, MISSES[row].2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_holds_for_its_observer_and_its_reason() {
        let by = |observer| Chosen {
            kind: CacheKind::Larder,
            program: std::path::PathBuf::new(),
            observer,
            locale: String::new(),
        };
        let (kernel, auto) = (by(Some(Observer::Kernel)), by(None));
        let failed = "miss, not recorded: x.c · it failed, and the kernel observer cannot see whether memory or disk space ran out";
        assert!(miss("B/error-relative/gcc", "warm", failed, &kernel).is_some());
        assert!(miss("B/error-relative/gcc", "warm", failed, &auto).is_none());
        assert!(miss("B/error-relative/gcc", "warm", "miss: x.c · recorded", &kernel).is_none());
        assert!(miss("C/with-dump-tree-stdout/gcc", "warm", "", &auto).is_some());
        assert!(miss("A/edit/gcc", "warm", "", &auto).is_none());
    }
}
