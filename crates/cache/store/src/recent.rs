//! The most recent commands: a ring of fixed-size entries behind the counters, in the same mapped
//! file. `larder explain --last` reads it. Adding an entry takes no lock and no system call.
//!
//! ```text
//! an entry, 32 words of 64 bits in native byte order:
//!   0 number of the entry from 1 on, 0 while it is written · 1 time, ns since 1970
//!   2 hash of the working directory · 3 hash of the output's path, 0 if there is none
//!   4 outcome: bits 0…7 kind, 8…15 reason + 1, 16…31 length of the source, 32…47 of the cause
//!   5 run time of the tool, µs · 6…9 weak fingerprint · 10…31 source and cause, cut off
//! ```
//!
//! An entry may be overwritten while it is read. Then its number changes, and the entry is skipped.
//!
//! Unaware of: what the texts mean.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use larder_model::path::{absolute, without_parents};
use larder_model::{Bypass, Digest, Fallback, Fingerprint, Outcome, Unrecorded};

/// The number of entries. With so many, the mapping is too large to get all of its pages at once,
/// and a process touches the page of its own entry only.
const ENTRIES: usize = 4096;
const ENTRY_WORDS: usize = 32;
const TEXT_AT: usize = 10;
const TEXT_BYTES: usize = (ENTRY_WORDS - TEXT_AT) * 8;
/// The longest source that is kept, in bytes, so that there is room for the cause.
const SOURCE_BYTES_MAX: usize = 72;
/// The size of the ring, in words.
pub(crate) const WORDS: usize = ENTRIES * ENTRY_WORDS;

/// A command that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recent<'a> {
    /// The time, in nanoseconds since 1970.
    pub at_ns: i64,
    /// The outcome.
    pub outcome: Outcome,
    /// How long the tool ran, or had run when the result was recorded, in microseconds.
    pub run_time_us: u64,
    /// The weak fingerprint, if it was computed.
    pub weak: Option<Fingerprint>,
    /// The source, or the tool.
    pub source: &'a [u8],
    /// Why it was no hit. Empty for a hit.
    pub cause: &'a [u8],
}

/// A command that was found. Its texts may be cut off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundCommand {
    text: Vec<u8>,
    source_bytes: usize,
    head: Recent<'static>,
}

impl FoundCommand {
    /// Returns the command.
    pub fn recent(&self) -> Recent<'_> {
        let (source, cause) = self.text.split_at(self.source_bytes);
        Recent { source, cause, ..self.head.clone() }
    }
}

/// Which command is searched for.
#[derive(Clone, Copy, Debug)]
pub enum Wanted<'a> {
    /// The last one in this working directory.
    In(&'a [u8]),
    /// The last one that had this absolute path as its output.
    Output(&'a [u8]),
}

/// Adds an entry. `next` counts all entries that were ever added.
pub(crate) fn add(ring: &[AtomicU64], next: &AtomicU64, recent: &Recent, cwd: &[u8], output: Option<&[u8]>) {
    let number = next.fetch_add(1, Relaxed) + 1;
    let entry = &ring[number as usize % ENTRIES * ENTRY_WORDS..][..ENTRY_WORDS];
    let source = &recent.source[..recent.source.len().min(SOURCE_BYTES_MAX)];
    let cause = &recent.cause[..recent.cause.len().min(TEXT_BYTES - source.len())];
    let (kind, reason) = outcome_code(recent.outcome);
    let lengths = (source.len() as u64) << 16 | (cause.len() as u64) << 32;
    entry[0].store(0, Release);
    entry[1].store(recent.at_ns as u64, Relaxed);
    entry[2].store(hash(cwd, None), Relaxed);
    entry[3].store(output.map_or(0, |output| hash(cwd, Some(output))), Relaxed);
    entry[4].store(kind | reason << 8 | lengths, Relaxed);
    entry[5].store(recent.run_time_us, Relaxed);
    let weak = recent.weak.map_or([0; 32], |weak| weak.0);
    let mut text = [0; TEXT_BYTES];
    text[..source.len()].copy_from_slice(source);
    text[source.len()..][..cause.len()].copy_from_slice(cause);
    for (word, bytes) in entry[6..].iter().zip(weak.chunks_exact(8).chain(text.chunks_exact(8))) {
        word.store(u64::from_ne_bytes(bytes.try_into().unwrap_or_default()), Relaxed);
    }
    entry[0].store(number, Release);
}

/// Returns the newest entry that matches.
pub(crate) fn find(ring: &[AtomicU64], wanted: Wanted) -> Option<FoundCommand> {
    let (at, key) = match wanted {
        Wanted::In(cwd) => (2, hash(cwd, None)),
        Wanted::Output(path) => (3, hash(b"", Some(path))),
    };
    newest_first(ring, |entry| entry[at].load(Relaxed) == key).next()
}

/// Returns all entries, the newest first.
pub(crate) fn all(ring: &[AtomicU64]) -> Vec<FoundCommand> {
    newest_first(ring, |_| true).collect()
}

fn newest_first(ring: &[AtomicU64], wanted: impl Fn(&[AtomicU64]) -> bool) -> impl Iterator<Item = FoundCommand> {
    let entries = ring.chunks_exact(ENTRY_WORDS).filter(|entry| wanted(entry));
    let numbered = entries.map(|entry| (entry[0].load(Acquire), entry)).filter(|(number, _)| *number > 0);
    let mut numbered: Vec<(u64, &[AtomicU64])> = numbered.collect();
    numbered.sort_unstable_by_key(|(number, _)| std::cmp::Reverse(*number));
    numbered.into_iter().filter_map(|(number, entry)| {
        let found = decode(entry)?;
        (entry[0].load(Acquire) == number).then_some(found)
    })
}

fn decode(entry: &[AtomicU64]) -> Option<FoundCommand> {
    let word = |at: usize| entry[at].load(Relaxed);
    let bytes: Vec<u8> = entry[6..].iter().flat_map(|word| word.load(Relaxed).to_ne_bytes()).collect();
    let (weak, mut text) = (bytes[..32].try_into().ok()?, bytes[32..].to_vec());
    let part = |at: u32| (word(4) >> at & 0xffff) as usize;
    let (source_bytes, cause_bytes) = (part(16), part(32));
    if source_bytes + cause_bytes > TEXT_BYTES {
        return None;
    }
    text.truncate(source_bytes + cause_bytes);
    let head = Recent {
        at_ns: word(1) as i64,
        outcome: outcome_of(word(4) & 0xff, word(4) >> 8 & 0xff)?,
        run_time_us: word(5),
        weak: (weak != [0; 32]).then_some(Digest(weak)),
        source: b"",
        cause: b"",
    };
    Some(FoundCommand { text, source_bytes, head })
}

fn outcome_code(outcome: Outcome) -> (u64, u64) {
    match outcome {
        Outcome::Hit => (0, 0),
        Outcome::Miss(why) => (1, why.map_or(0, |why| why.index() as u64 + 1)),
        Outcome::Bypass(why) => (2, why.index() as u64 + 1),
        Outcome::Fallback(cause) => (3, cause.index() as u64 + 1),
    }
}

fn outcome_of(kind: u64, reason: u64) -> Option<Outcome> {
    let index = (reason as usize).checked_sub(1);
    Some(match kind {
        0 => Outcome::Hit,
        1 => Outcome::Miss(index.and_then(|index| Unrecorded::ALL.get(index).copied())),
        2 => Outcome::Bypass(*Bypass::ALL.get(index?)?),
        3 => Outcome::Fallback(*Fallback::ALL.get(index?)?),
        _ => return None,
    })
}

/// Returns the FNV-1a hash of a directory, or of a path that is relative to it. It does not matter how
/// the path is written: `../w/./a.o` in `/w` is `/w/a.o`.
fn hash(cwd: &[u8], path: Option<&[u8]>) -> u64 {
    let path = path.map(|path| path.strip_prefix(b"./").unwrap_or(path));
    let resolved = path.filter(|path| has_dots(path)).map(|path| without_parents(&absolute(cwd, path)));
    let path = resolved.as_deref().or(path);
    let parts = match path {
        None => [cwd, b"", b""],
        Some(path) if path.starts_with(b"/") => [b"", b"", path],
        Some(path) => [cwd, b"/", path],
    };
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    parts.into_iter().flatten().fold(0xcbf2_9ce4_8422_2325, step).max(1)
}

/// Returns true if a component of the path is empty, `.` or `..`, apart from the slash at its
/// beginning.
fn has_dots(path: &[u8]) -> bool {
    let below_root = path.strip_prefix(b"/").unwrap_or(path);
    below_root.split(|&byte| byte == b'/').any(|part| matches!(part, b"" | b"." | b".."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring() -> (Vec<AtomicU64>, AtomicU64) {
        ((0..WORDS).map(|_| AtomicU64::new(0)).collect(), AtomicU64::new(0))
    }

    fn recent<'a>(source: &'a [u8], outcome: Outcome, cause: &'a [u8]) -> Recent<'a> {
        Recent { at_ns: 7, outcome, run_time_us: 9, weak: Some(Digest([3; 32])), source, cause }
    }

    #[test]
    fn the_newest_that_matches_is_found() {
        let (ring, next) = ring();
        assert_eq!(find(&ring, Wanted::In(b"/w")), None);
        let outcomes = [
            Outcome::Hit,
            Outcome::Miss(None),
            Outcome::Miss(Some(Unrecorded::Clock)),
            Outcome::Bypass(Bypass::TooHard),
            Outcome::Fallback(Fallback::Damaged),
        ];
        for outcome in outcomes {
            let one = recent(b"a.c", outcome, b"b.h is new");
            add(&ring, &next, &one, b"/w", Some(b"./a.o"));
            for wanted in [Wanted::In(b"/w"), Wanted::Output(b"/w/a.o")] {
                let found = find(&ring, wanted).expect("was added");
                assert_eq!(found.recent(), one);
            }
        }
        assert_eq!(find(&ring, Wanted::In(b"/v")), None);
        add(&ring, &next, &recent(b"b.c", Outcome::Hit, b""), b"/w/build", Some(b"../out/./b.o"));
        for path in ["/w/out/b.o", "/w/build/../out/b.o", "/w//out/b.o"] {
            assert!(find(&ring, Wanted::Output(path.as_bytes())).is_some(), "{path}");
        }
        for _ in 0..ENTRIES {
            add(&ring, &next, &recent(b"b.c", Outcome::Hit, b""), b"/v", Some(b"/v/b.o"));
        }
        assert_eq!(find(&ring, Wanted::In(b"/w")), None, "it was overwritten");
        assert!(find(&ring, Wanted::Output(b"/v/b.o")).is_some());
    }

    #[test]
    fn long_texts_are_cut_off_and_damage_is_skipped() {
        let (ring, next) = ring();
        add(&ring, &next, &recent(&[b'x'; 500], Outcome::Miss(None), &[b'y'; 500]), b"/w", None);
        let found = find(&ring, Wanted::In(b"/w")).expect("was added");
        assert_eq!((found.recent().source.len(), found.recent().cause.len()), (72, TEXT_BYTES - 72));
        for damage in [u64::MAX, 0xff, 2] {
            ring[ENTRY_WORDS + 4].store(damage, Relaxed);
            assert_eq!(find(&ring, Wanted::In(b"/w")), None);
        }
    }
}
