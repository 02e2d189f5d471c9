//! Compares the plain run with the run through a cache, as far as a caller could see a difference.
//!
//! Unaware of: which cache it was.

use crate::case::Case;
use crate::mask::{Masks, temporary_masked};
use crate::run::Ran;
use crate::step::Step;
use crate::tree::{Entry, Kind, Tree};
use anyhow::Result;
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// At most this many bytes of a line are printed.
const SHOWN_BYTES: usize = 110;

/// The result of a command, and what it left.
pub struct Outcome {
    /// How it ended, and its output.
    pub ran: Ran,
    /// The files below the root.
    pub tree: Tree,
    /// Processes and temporary files that it left.
    pub left: Vec<String>,
}

impl Outcome {
    fn span(&self) -> (SystemTime, SystemTime) {
        (self.ran.started, self.ran.ended)
    }

    /// A hash that is equal for runs with the same end, output and written files.
    pub fn mark(&self, inputs: &Tree) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.ran.end, temporary_masked(&self.ran.out), temporary_masked(&self.ran.err)).hash(&mut hasher);
        for (name, entry) in &self.tree {
            let is_input = inputs.get(name).is_some_and(|input| input.kind == entry.kind && !self.wrote(entry));
            if let (false, Kind::File(bytes)) = (is_input, &entry.kind) {
                (name, bytes).hash(&mut hasher);
            }
        }
        hasher.finish()
    }

    fn wrote(&self, entry: &Entry) -> bool {
        let started = self.ran.started.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i128);
        i128::from(entry.time.0) * 1_000_000_000 + i128::from(entry.time.1) >= started
    }
}

/// Returns the differences as text. The list is empty if a caller could not see any.
pub fn differences(case: &Case, step: &Step, plain: &Outcome, cached: &Outcome) -> Result<Vec<String>> {
    let masks = Masks::of(case)?;
    let mut found = Vec::new();
    if plain.ran.end != cached.ran.end {
        found.push(format!("{} became {}", plain.ran.end, cached.ran.end));
    }
    let streams = [
        ("stdout", step.any_stdout, &plain.ran.out, &cached.ran.out),
        ("stderr", step.any_stderr, &plain.ran.err, &cached.ran.err),
    ];
    for (name, any, plain_text, cached_text) in streams {
        let plain_text = masks.message(plain_text, plain.span());
        let cached_text = masks.message(cached_text, cached.span());
        if !any && plain_text != cached_text {
            found.push(format!("{name}: {}", how_bytes_differ(&plain_text, &cached_text)));
        }
    }
    let names: BTreeSet<_> = plain.tree.keys().chain(cached.tree.keys()).collect();
    for name in names {
        let pair = (plain.tree.get(name), cached.tree.get(name));
        let shown = name.as_os_str().as_bytes().escape_ascii();
        match pair {
            (Some(_), None) => found.push(format!("{shown}: missing")),
            (None, Some(_)) => found.push(format!("{shown}: only with the cache")),
            (Some(a), Some(b)) => {
                let loose = case.loose.iter().any(|(pattern, _)| fits(pattern, name));
                let differences = entry_differences(&masks, (plain, a), (cached, b), loose);
                found.extend(differences.into_iter().map(|difference| format!("{shown}: {difference}")));
            }
            (None, None) => {}
        }
    }
    let more = cached.left.iter().filter(|left| !plain.left.contains(left));
    found.extend(more.map(|left| format!("left behind: {left}")));
    Ok(found)
}

fn entry_differences(masks: &Masks, a: (&Outcome, &Entry), b: (&Outcome, &Entry), loose: bool) -> Vec<String> {
    let ((plain, a), (cached, b)) = (a, b);
    if a.kind.word() != b.kind.word() {
        return vec![format!("{} became {}", a.kind.word(), b.kind.word())];
    }
    let mut found = Vec::new();
    if a.mode != b.mode {
        found.push(format!("mode {:o} became {:o}", a.mode, b.mode));
    }
    if a.owner != b.owner {
        found.push(format!("owner {:?} became {:?}", a.owner, b.owner));
    }
    if loose {
        return found;
    }
    match (&a.kind, &b.kind) {
        (Kind::File(plain_bytes), Kind::File(cached_bytes)) => {
            let plain_bytes = masks.content(plain_bytes, plain.span());
            let cached_bytes = masks.content(cached_bytes, cached.span());
            if plain_bytes != cached_bytes {
                found.push(how_bytes_differ(&plain_bytes, &cached_bytes));
            }
            if a.peers != b.peers {
                found.push(format!("names {:?} became {:?}", a.peers, b.peers));
            }
            match (plain.wrote(a), cached.wrote(b)) {
                (true, false) => found.push("time not renewed".to_owned()),
                (false, true) => found.push("time renewed".to_owned()),
                _ => {}
            }
        }
        (Kind::Link(a), Kind::Link(b)) if a != b => {
            found.push(format!("target {} became {}", a.display(), b.display()));
        }
        _ => {}
    }
    found
}

/// Shows the first line of text that differs, or the position of the first byte.
fn how_bytes_differ(a: &[u8], b: &[u8]) -> String {
    if !a.contains(&0) && !b.contains(&0) {
        let lines = a.split(|&byte| byte == b'\n').zip(b.split(|&byte| byte == b'\n'));
        let shown = |line: &[u8]| line[..line.len().min(SHOWN_BYTES)].escape_ascii().to_string();
        if let Some((a, b)) = lines.into_iter().find(|(a, b)| a != b) {
            return format!("“{}” became “{}”", shown(a), shown(b));
        }
    }
    let at = a.iter().zip(b).position(|(a, b)| a != b).unwrap_or_else(|| a.len().min(b.len()));
    format!("differs from byte {at:#x} ({} bytes became {})", a.len(), b.len())
}

/// Matches a path with a pattern, in which `*` stands for any text, including slashes. For example,
/// `mc/*` matches `mc/a/b`.
fn fits(pattern: &str, name: &Path) -> bool {
    fn bytes_fit(pattern: &[u8], name: &[u8]) -> bool {
        match pattern.split_first() {
            None => name.is_empty(),
            Some((b'*', rest)) => (0..=name.len()).any(|at| bytes_fit(rest, &name[at..])),
            Some((byte, rest)) => {
                name.split_first().is_some_and(|(first, left)| first == byte && bytes_fit(rest, left))
            }
        }
    }
    bytes_fit(pattern.as_bytes(), name.as_os_str().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_anything() {
        assert!(fits("*.gcno", Path::new("o/x.gcno")));
        assert!(fits("mc/*", Path::new("mc/a/b")));
        assert!(!fits("mc/*", Path::new("m/a")));
        assert!(!fits("*.o", Path::new("x.oo")));
    }

    #[test]
    fn a_difference_is_shown_where_it_begins() {
        assert_eq!(how_bytes_differ(b"a\nb", b"a\nc"), "“b” became “c”");
        assert_eq!(how_bytes_differ(b"\0ab", b"\0acd"), "differs from byte 0x2 (3 bytes became 4)");
    }
}
