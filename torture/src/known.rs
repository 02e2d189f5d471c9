//! Expected hits that larder is known to miss, with the reasons. A row is removed when the hits
//! come.
//!
//! Unaware of: how cases are run.

use crate::caches::{Chosen, Kind};
use regex::Regex;
use std::sync::LazyLock;

/// A pattern for `case · step`, and the reason.
const MISSES: &[(&str, &str)] = &[
    (r"^([WN]/)?B/own-path-in-assert/.* · (elsewhere|in a third place)$", "the preprocessed text contains the path"),
    (
        r"^([WN]/)?B/derived-config-and-macros-debug/gcc · (elsewhere|in a third place)",
        "gcc writes macro strings in the order of a hash table",
    ),
    (r"^A/(as|cc1)-appears · appears, again", LEARNS),
    (r"^([WN]/)?A/options-that-matter/gcc · -x c\+\+, again", LEARNS),
    (r"^([WN]/)?A/mode-changed/.* · executable", "the execute bit is part of what is recorded about a file"),
    (r"^([WN]/)?A/becomes-a-link/clang · a link", "clang asks for the real path of a header"),
    (r"^C/umask-changes-link.* · (077|002)", "the linker asks for the umask"),
    (r"^C/with-dump-tree-all", "the dump is opened several times, and is not as it was last closed"),
    (r"^C/with-dump-tree-stdout", "an output is written to a device"),
    (r"^C/with-clang-arch", "lipo reads and writes in the directory for temporary files"),
    (r"^C/with-clang-ast", "an option whose effects are not known well enough"),
    (r"^C/with-clang-header-include-file", "the tool appends to it"),
    (r"^C/script-makes-directories", "an existing directory is another state than a missing one"),
    (r"^C/dies-.* · lives, again", "the script uses its process ID, and leaves bytes that are not text"),
    (r"^C/script-moves/clang · over", THERE),
    (r"^F/run-list-(find|find-name|tar-names) · ", "it asks for the time"),
    (r"^F/run-(list-cp-r|makes-directories|output-removed-before) · ", THERE),
    (r"^F/run-list-python-glob", "not understood yet"),
    (r"^F/python-module · back", "Python reads the mtime of a module"),
    (
        r"^[WN]/B/.* · (elsewhere|moved|next sandbox)$",
        "another checkout only hits after two checkouts gave the same result",
    ),
    (r"^[WN]/B/place-dollar/.* · elsewhere, again", "`$$` in a path looks like the process ID of a shell"),
    (r"^[WN]/A/variables-that-do-not-matter/.* · set$", "the whole environment is part of the key of any command"),
    (r"^F/run-env-unused", "the whole environment is part of the key of any command"),
    (r"^F/run-makes-odd-modes", "a set-user-id file is not stored"),
    (
        r"^[WN]/B/place-(shorter|same-length)-relative/.* · in a third place",
        "two paths of equal length prove nothing about others",
    ),
];

const THERE: &str = "the tool looked at the existing file";
const LEARNS: &str = "the first successful run shows whether a tool can be observed, and is not stored";

static PATTERNS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    let compiled = |&(pattern, why): &(&str, &'static str)| (Regex::new(pattern).expect("is a pattern"), why);
    MISSES.iter().map(compiled).collect()
});

/// The patterns of all rows.
pub fn rows() -> impl Iterator<Item = &'static str> {
    MISSES.iter().map(|(pattern, _)| *pattern)
}

/// Returns the index and the reason of the row that excuses this missed hit, if there is one.
pub fn miss(case: &str, step: &str, cache: &Chosen) -> Option<(usize, &'static str)> {
    if cache.kind != Kind::Larder {
        return None;
    }
    let name = format!("{case} · {step}");
    let row = PATTERNS.iter().position(|(pattern, _)| pattern.is_match(&name))?;
    Some((row, PATTERNS[row].1))
}
