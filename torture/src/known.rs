//! Expected hits that larder is known to miss, and why. A row goes when its hit comes.

use crate::caches::{Chosen, Kind};
use regex::Regex;
use std::sync::LazyLock;

/// Pattern of `case · step`, and the reason.
const MISSES: &[(&str, &str)] = &[];

static PATTERNS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    let compiled = |&(pattern, why): &(&str, &'static str)| (Regex::new(pattern).expect("is a pattern"), why);
    MISSES.iter().map(compiled).collect()
});

/// Why this expected hit of larder is none, if that is known.
pub fn miss(case: &str, step: &str, cache: &Chosen) -> Option<&'static str> {
    if cache.kind != Kind::Larder {
        return None;
    }
    let name = format!("{case} · {step}");
    PATTERNS.iter().find(|(pattern, _)| pattern.is_match(&name)).map(|(_, why)| *why)
}
