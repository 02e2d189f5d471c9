//! Pairs of files with equal content. gcc reads such a pair once if the first has `#pragma once` or
//! was included by `#import`, and both have one mtime. clang does so if both are one file. Programs
//! such as `cp` also notice that two paths are one file without reading it.
//!
//! Unaware of: what the files are for.

use larder_model::{Fact, contains};
use larder_sys::{Opening, Stat};
use memchr::memmem;

use super::{Source, Walk};
use crate::scan::read_text;

impl Walk<'_> {
    /// Notes a file that was read, with its content.
    pub(super) fn note_source(&mut self, path: &[u8], found: &Stat, fact: &Fact) {
        if let Fact::Content { digest, executable: false, .. } = fact {
            let encoded = self.witness.roots.encoded_path(path);
            let file = found.file_id();
            let source = Source { path: encoded, file, modified_ns: found.modified_ns };
            let sources = self.sources.entry(*digest).or_default();
            if !sources.iter().any(|known| known.path == source.path) {
                sources.push(source);
            }
        }
    }

    /// Notes that a file is another one as well, by another hard link.
    pub(super) fn note_linked(&mut self, path: &[u8], found: &Stat) {
        if !self.witness.one_file_counts || found.links < 2 {
            return;
        }
        let path = self.witness.roots.encoded_path(path);
        let first = self.linked.entry(found.file_id()).or_insert_with(|| path.clone());
        if *first != path {
            self.set.twins.push(([first.clone(), path], true, true));
        }
    }

    /// Returns true if two files of one content may count as one file for gcc: if the content may
    /// have `#pragma once`, or if any file may have `#import`.
    fn may_read_once(&self) -> bool {
        let holds = |source: &Source, is_in: &dyn Fn(&[u8]) -> bool| {
            let Some(path) = self.witness.roots.decoded_path(&source.path) else { return true };
            let bytes = larder_sys::open(&path, Opening::Read).and_then(|mut file| read_text(&mut file));
            bytes.ok().flatten().is_none_or(|bytes| is_in(&bytes))
        };
        let twins = self.sources.values().filter(|sources| sources.len() > 1);
        let mut first = twins.filter_map(|sources| sources.first()).peekable();
        first.peek().is_some()
            && (first.any(|source| holds(source, &|text| contains(text, "once")))
                || self.sources.values().filter_map(|sources| sources.first()).any(|source| holds(source, &may_import)))
    }

    /// Notes pairs of files with equal content: each file with the first one of that content.
    pub(super) fn find_twins(&mut self) {
        if self.witness.only_once_counts && !self.may_read_once() {
            return;
        }
        for sources in self.sources.values().filter(|sources| sources.len() > 1) {
            for other in &sources[1..] {
                let first = &sources[0];
                let same_file = first.file == other.file;
                let same_time = first.modified_ns == other.modified_ns;
                self.set.twins.push(([first.path.clone(), other.path.clone()], same_file, same_time));
            }
        }
        self.set.twins.sort();
        self.set.twins.dedup();
    }
}

/// Returns true if a text may have `#import`, also with a digraph or trigraph for `#` and with the
/// word continued in the next line.
fn may_import(text: &[u8]) -> bool {
    fn after_mark(line: &[u8]) -> Option<&[u8]> {
        let line = line.trim_ascii_start();
        [&b"#"[..], b"%:", b"??="].iter().find_map(|mark| Some(line.strip_prefix(*mark)?.trim_ascii_start()))
    }
    let may_be_one = |word: &[u8]| {
        let end = word.iter().position(|byte| !byte.is_ascii_alphabetic()).unwrap_or(word.len());
        &word[..end] == b"import" || word.get(end) == Some(&b'\\') || word[end..].starts_with(b"/*")
    };
    // A comment may be before the mark.
    let ends = memmem::find_iter(text, b"*/").map(|at| &text[at + 2..]);
    text.split(|&byte| byte == b'\n').chain(ends).filter_map(after_mark).any(may_be_one)
}

#[cfg(test)]
mod tests {
    use super::may_import;

    #[test]
    fn directives_that_import() {
        for text in [
            "#import <a.h>",
            "int a;\n  # import \"a.h\"",
            "%:import <a.h>",
            "??=import <a.h>",
            "/* x */ #import <a.h>",
        ] {
            assert!(may_import(text.as_bytes()), "{text}");
        }
        for text in ["#im\\\nport <a.h>", "#\\\nimport <a.h>", "#/**/import <a.h>"] {
            assert!(may_import(text.as_bytes()), "{text}");
        }
        for text in
            ["#include <a.h>", "import x;", "/* import */", "#define IMPORT import", "#pragma once", "# important"]
        {
            assert!(!may_import(text.as_bytes()), "{text}");
        }
    }
}
