//! Whole command lines: what each is taken for.

mod accepted;
mod bypassed;
mod random;

use crate::ResponseFiles;

/// What `@file` holds in these tests.
const FILES: &[(&str, &str)] =
    &[("flags", "-O2 -march=native"), ("source", "-c 'a b.c'"), ("nested", "@source -o x.o"), ("loop", "@loop")];

struct Files;

impl ResponseFiles for Files {
    fn read(&self, path: &[u8]) -> Option<Vec<u8>> {
        FILES.iter().find(|(name, _)| name.as_bytes() == path).map(|(_, content)| content.as_bytes().to_vec())
    }
}

/// A command line's words; `␣` stands for a space within one.
fn words(line: &str) -> Vec<Vec<u8>> {
    line.split_whitespace().map(|word| word.replace('␣', " ").into_bytes()).collect()
}
