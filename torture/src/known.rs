//! Expected hits that larder is known to miss, and why. A row goes when its hit comes.

use crate::caches::{Chosen, Kind};
use regex::Regex;
use std::sync::LazyLock;

/// Pattern of `case · step`, and the reason.
const MISSES: &[(&str, &str)] = &[
    (r"^([WN]/)?B/own-path-in-assert/.* · (elsewhere|in a third place)$", "the preprocessed text names the place"),
    (
        r"^([WN]/)?B/derived-config-and-macros-debug/gcc · (elsewhere|in a third place)",
        "gcc has strings of macros in the order of a hash table",
    ),
    (r"^A/(as|cc1)-appears · appears, again", LEARNS),
    (r"^([WN]/)?A/options-that-matter/gcc · -x c\+\+, again", LEARNS),
    (r"^([WN]/)?A/mode-changed/.* · executable", "the execute bit is part of what is known of a file"),
    (r"^([WN]/)?A/becomes-a-link/clang · a link", "clang asks for the real path of a header"),
    (r"^C/umask-changes-link.* · (077|002)", "the linker asks for the umask"),
    (r"^C/with-dump-tree-all", "a dump is opened many times, and is not as it was closed"),
    (r"^C/with-dump-tree-stdout", "an output is named by a device"),
    (r"^C/with-clang-arch", "lipo reads and writes in the directory for temporary files"),
    (r"^C/with-clang-ast", "an option whose effects are not known well enough"),
    (r"^C/with-clang-header-include-file", "the tool appends to it"),
    (r"^C/script-makes-directories", "a directory that is there is another state than none"),
    (r"^C/dies-.* · lives, again", "a script that names its own number, and leaves bytes that are no text"),
    (r"^C/script-moves/clang · over", THERE),
    (r"^F/link-map/", "the map is opened more than once, and is not as it was closed"),
    (r"^F/run-list-(find|find-name|tar-names) · ", "it asks for the time"),
    (r"^F/run-(list-cp-r|makes-directories|output-removed-before) · ", THERE),
    (r"^F/run-list-python-glob", "not understood yet"),
    (r"^F/python-module · back", "Python looks at the time of a module"),
    (r"^[WN]/B/.* · (elsewhere|moved|next sandbox)$", "another place is answered once two places came to the same"),
    (r"^[WN]/B/place-dollar/.* · elsewhere, again", "`$$` in a path reads like a shell's own number"),
    (
        r"^[WN]/A/variables-that-do-not-matter/.* · set$",
        "the whole environment is part of what is known of any command",
    ),
    (r"^F/run-env-unused", "the whole environment is part of what is known of any command"),
    (r"^F/run-makes-odd-modes", "a file that sets the user is not kept"),
    (
        r"^[WN]/B/place-(shorter|same-length)-relative/.* · in a third place",
        "two places with paths of one length say nothing of others",
    ),
];

const THERE: &str = "the tool looked at what was there";
const LEARNS: &str = "whether a tool is seen whole is learnt from its first run that ends well, which is not kept";

static PATTERNS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    let compiled = |&(pattern, why): &(&str, &'static str)| (Regex::new(pattern).expect("is a pattern"), why);
    MISSES.iter().map(compiled).collect()
});

/// Every row, as a pattern.
pub fn rows() -> impl Iterator<Item = &'static str> {
    MISSES.iter().map(|(pattern, _)| *pattern)
}

/// The row, and the reason, why this expected hit of larder is none, if that is known.
pub fn miss(case: &str, step: &str, cache: &Chosen) -> Option<(usize, &'static str)> {
    if cache.kind != Kind::Larder {
        return None;
    }
    let name = format!("{case} · {step}");
    let row = PATTERNS.iter().position(|(pattern, _)| pattern.is_match(&name))?;
    Some((row, PATTERNS[row].1))
}
