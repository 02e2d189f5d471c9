//! Whole command lines, and what the parser makes of each.

mod accepted;
mod bypassed;
mod random;

use crate::ResponseFiles;

/// The response files of these tests, as (path, content).
const FILES: &[(&str, &str)] = &[
    ("flags", "-O2 -march=native"),
    ("source", "-c 'a b.c'"),
    ("nested", "@source -o x.o"),
    ("loop", "@loop"),
    ("statistics", "x.o --stats"),
];

struct Files;

impl ResponseFiles for Files {
    fn read(&self, path: &[u8]) -> Option<Vec<u8>> {
        FILES.iter().find(|(name, _)| name.as_bytes() == path).map(|(_, content)| content.as_bytes().to_vec())
    }
}

/// Returns the words of a command line; `␣` stands for a space within a word.
pub(crate) fn words(line: &str) -> Vec<Vec<u8>> {
    line.split_whitespace().map(|word| word.replace('␣', " ").into_bytes()).collect()
}
