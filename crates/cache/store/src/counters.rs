//! Counters of outcomes and their reasons: one small mapped file, to which all processes add
//! without a lock.
//!
//! ```text
//! 64-bit words in native byte order:
//!   0 version · 1 hit · 2 miss · 3 bypass · 4 fallback · 5 approximate bytes in the store
//!   6 hits after waiting · 7 hits after fetching
//!   8…71 bypass reasons · 72…135 fallback causes · 136…199 why a miss was not recorded
//!   200…215 what larderd did with remotes
//!   216…239 fetches by how long they took: word 216+n counts those of 2^n µs and more
//!   240 tools that waited for a job slot · 241 of these, for memory · 242 their waiting time, ms
//!   243 commands that were ever noted in the ring
//!   244…255 kinds of crates of Rust, 2 words each: hits, misses
//!   256…319 families of tools, 8 words each: hits, misses, recorded run time of the hits in µs,
//!           ticks that the hits took, bytes that they put in place
//!   320…511 hours, 6 words each, the hour h since 1970 in row h % 32: h, then as of a family but
//!           without bytes
//!   512…    the ring of recent commands (format: recent.rs)
//! ```
//!
//! Unaware of: when something is counted, how it is shown.

use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::Ordering::Relaxed;

use larder_model::{Bypass, Fallback, Outcome, Unrecorded};
use larder_sys::{Opening, Words};

use crate::layout::{open_plain, read_plain};
use crate::recent::{self, FoundCommand, Recent, Wanted};
use crate::{Store, StoreError};

const VERSION: u64 = 0x4c52_4443_0000_0004;
/// The number of words that count something. The ring comes after them.
const COUNTERS: usize = 512;
const WORDS: usize = COUNTERS + recent::WORDS;
/// The maximum size of a file of counters of any version, in bytes.
const BYTES_MAX: u64 = 1 << 21;
const HIT: usize = 1;
const MISS: usize = 2;
const BYPASS: usize = 3;
const FALLBACK: usize = 4;
const STORE_BYTES: usize = 5;
const WAITED: usize = 6;
const REMOTE_HIT: usize = 7;
const BYPASS_REASONS: usize = 8;
const FALLBACK_CAUSES: usize = 72;
const UNRECORDED_REASONS: usize = 136;
const REMOTE: usize = 200;
const FETCHES: usize = 216;
const FETCH_CLASSES: usize = 24;
const TOKEN_WAITS: usize = 240;
const MEMORY_WAITS: usize = 241;
const TOKEN_WAITED_MS: usize = 242;
const NOTED: usize = 243;
const CRATES: usize = 244;
/// The number of kinds of crates that are counted apart.
const CRATE_KINDS: usize = 6;
const FAMILIES: usize = 256;
const FAMILY_WORDS: usize = 8;
/// The number of families that are counted apart.
const FAMILIES_MAX: usize = 8;
const HOURS: usize = 320;
const HOUR_WORDS: usize = 6;
/// The number of hours that are kept: more than a day with a change of the clock.
const HOURS_KEPT: usize = 32;
const HOUR_NS: u64 = 3_600_000_000_000;

/// The counters of a store.
pub struct Counters {
    words: Words,
}

/// The values of all counters at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Invocations that were answered from the store.
    pub hit: u64,
    /// Hits for which the process waited until another process had recorded the result.
    pub waited: u64,
    /// Hits that were fetched from a remote first.
    pub remote_hit: u64,
    /// Tools that waited because too many others ran or memory was short.
    pub token_waits: u64,
    /// Tools that waited for memory.
    pub memory_waits: u64,
    /// The sum of these waiting times, in ms.
    pub token_waited_ms: u64,
    /// Invocations that were looked up, not found and run.
    pub miss: u64,
    /// Invocations that ran untouched.
    pub bypass: u64,
    /// Invocations that ran because of a problem of larder's.
    pub fallback: u64,
    /// The approximate size of the store, in bytes.
    pub store_bytes: u64,
    /// Reasons of bypasses whose count is not zero.
    pub bypass_reasons: Vec<(Bypass, u64)>,
    /// Causes of fallbacks whose count is not zero.
    pub fallback_reasons: Vec<(Fallback, u64)>,
    /// Reasons why misses were not recorded whose count is not zero.
    pub unrecorded_reasons: Vec<(Unrecorded, u64)>,
    /// What `larderd` did with remotes, in the order of [`Remote::ALL`].
    pub remote: [u64; Remote::ALL.len()],
    /// Element n counts fetches that took at least 2^n µs and less than twice as long.
    pub fetches: [u64; FETCH_CLASSES],
    /// The counts of each family of tools, by its index.
    pub families: [Saved; FAMILIES_MAX],
    /// The hits and misses of each kind of crate of Rust, by its index.
    pub crates: [Saved; CRATE_KINDS],
    /// The counts of the latest hours in which something was counted, and the hours since 1970.
    pub hours: Vec<(u64, Saved)>,
}

/// The counts of a family of tools, or of an hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    /// Commands that were answered from the store.
    pub hit: u64,
    /// Commands that were looked up, not found and run.
    pub miss: u64,
    /// How long the tools of the hits had run when their results were recorded, in microseconds.
    pub run_time_us: u64,
    /// How long the hits took, in ticks (`larder_sys::ticks`).
    pub ticks: u64,
    /// How many bytes the hits put in place. Not counted for an hour.
    pub bytes: u64,
}

/// A hit, as it is counted.
#[derive(Clone, Copy, Debug)]
pub struct HitCount {
    /// The index of the family of its tool.
    pub family: usize,
    /// How long the tool ran when the result was recorded, in microseconds.
    pub run_time_us: u64,
    /// How long the hit took, in ticks.
    pub ticks: u64,
    /// The size of its outputs and messages.
    pub bytes: u64,
    /// The time, in nanoseconds since 1970.
    pub at_ns: i64,
}

/// Declares an enum of counted events, each with a code and a sentence.
macro_rules! counted {
    ($($variant:ident, $code:literal, $text:literal;)*) => {
        /// Something that `larderd` did with remotes. The order is that of the counters on disk, so
        /// rows are only added at the end.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Remote { $(#[doc = $text] $variant,)* }

        impl Remote {
            /// All values, in the order of their counters.
            pub const ALL: [Remote; [$(Remote::$variant),*].len()] = [$(Remote::$variant),*];

            /// Returns the name for machines. It never changes.
            pub fn code(self) -> &'static str {
                match self { $(Remote::$variant => $code,)* }
            }

            /// Returns the sentence for users.
            pub fn sentence(self) -> &'static str {
                match self { $(Remote::$variant => $text,)* }
            }
        }
    };
}

counted! {
    Absent, "absent", "requests for records that no remote had";
    Failed, "failed", "requests that failed: no connection, broken off, or an answer with wrong content";
    BytesIn, "bytes_in", "bytes received";
    BytesOut, "bytes_out", "bytes sent";
    Prefetched, "prefetched", "records that were fetched before they were asked for";
    Races, "races", "tools that were started while a fetch was running";
    RacesWon, "races_won", "of these, tools that the fetch overtook";
    Sent, "sent", "records that were sent";
    Dropped, "dropped", "records that were not sent, because the queue was full";
    SendFailed, "send_failed", "attempts to send that failed";
    Refused, "refused", "records that were received and not trusted";
}

impl Counters {
    /// The size of the file, in bytes.
    pub const FILE_BYTES: usize = WORDS * 8;

    /// Maps the counters of `store` for counting, and creates them if they do not exist.
    pub fn open(store: &Store) -> Result<Counters, StoreError> {
        let path = store.file("counters");
        let file = match larder_sys::open(path.as_os_str().as_bytes(), Opening::ChangePlain) {
            Ok(file) => file,
            Err(_) => store.open_to_change(&path)?,
        };
        let size_bytes = || larder_sys::fstat(&file).map_or(0, |stat| stat.size_bytes);
        let words = match Words::map(&file, size_bytes(), WORDS, true) {
            Ok(words) => words,
            Err(_) => {
                // The file is new or was cut short, so it gets its full length. Zeros are written
                // for the counters, so that a full disk is an error now and not a signal later. The
                // ring may stay without disk space: then its entries are lost (`sys`, `map.rs`).
                let missing = COUNTERS * 8 - file.metadata().map_or(0, |m| m.len().min(COUNTERS as u64 * 8)) as usize;
                append(&file, &vec![0; missing]).map_err(StoreError::writing(&path))?;
                file.set_len(Counters::FILE_BYTES as u64).map_err(StoreError::writing(&path))?;
                Words::map(&file, size_bytes(), WORDS, true).map_err(StoreError::writing(&path))?
            }
        };
        // Words of a new file are zero already. Only the process that sets the version clears old
        // words, so no count of another process is lost.
        let found = words.words()[0].load(Relaxed);
        // No process counts before the version is set, so words without a version are not counts.
        let new = found == 0 && words.words()[1..COUNTERS].iter().all(|word| word.load(Relaxed) == 0);
        let claimed = found != VERSION && words.words()[0].compare_exchange(found, VERSION, Relaxed, Relaxed).is_ok();
        if claimed && !new {
            words.words()[1..].iter().for_each(|word| word.store(0, Relaxed));
        }
        Ok(Counters { words })
    }

    /// Reads the counters of `store` without creating anything.
    pub fn read(store: &Store) -> Totals {
        Counters::mapped(store).map(|words| Counters { words }.totals()).unwrap_or_default()
    }

    /// Returns true if a store has counters, of this version or another.
    pub(crate) fn are_there(store: &Store) -> bool {
        let bytes = read_plain(&store.file("counters"), BYTES_MAX).unwrap_or_default();
        bytes.first_chunk().is_some_and(|first| u64::from_ne_bytes(*first) >> 32 == VERSION >> 32)
    }

    /// Counts one invocation.
    pub fn count(&self, outcome: Outcome) {
        let (total, reason) = match outcome {
            Outcome::Hit => (HIT, None),
            Outcome::Miss(None) => (MISS, None),
            Outcome::Miss(Some(why)) => (MISS, Some(UNRECORDED_REASONS + why.index())),
            Outcome::Bypass(why) => (BYPASS, Some(BYPASS_REASONS + why.index())),
            Outcome::Fallback(cause) => (FALLBACK, Some(FALLBACK_CAUSES + cause.index())),
        };
        for index in [Some(total), reason].into_iter().flatten() {
            self.words.words()[index].fetch_add(1, Relaxed);
        }
    }

    /// Counts what a hit saved. The hit itself is counted separately.
    pub fn count_saved(&self, hit: &HitCount) {
        let values = [1, 0, hit.run_time_us, hit.ticks, hit.bytes];
        self.add(FAMILIES + hit.family.min(FAMILIES_MAX - 1) * FAMILY_WORDS, &values);
        self.add(self.hour(hit.at_ns), &values[..4]);
    }

    /// Counts a miss for the family of its tool. The miss itself is counted separately.
    pub fn count_missed(&self, family: usize, at_ns: i64) {
        self.add(FAMILIES + family.min(FAMILIES_MAX - 1) * FAMILY_WORDS + 1, &[1]);
        self.add(self.hour(at_ns) + 1, &[1]);
    }

    /// Counts a crate of Rust by its kind. The hit or miss itself is counted separately.
    pub fn count_crate(&self, kind: usize, is_hit: bool) {
        self.add(CRATES + kind.min(CRATE_KINDS - 1) * 2 + usize::from(!is_hit), &[1]);
    }

    /// Adds to consecutive words.
    fn add(&self, at: usize, values: &[u64]) {
        for (word, value) in self.words.words()[at..].iter().zip(values) {
            word.fetch_add(*value, Relaxed);
        }
    }

    /// Returns the index of an hour's first count. If its row still holds an earlier hour, that is
    /// cleared. A count that another process adds at that moment may be lost.
    fn hour(&self, at_ns: i64) -> usize {
        let hour = at_ns.unsigned_abs() / HOUR_NS;
        let at = HOURS + hour as usize % HOURS_KEPT * HOUR_WORDS;
        let row = &self.words.words()[at..at + HOUR_WORDS];
        let found = row[0].load(Relaxed);
        if found != hour && row[0].compare_exchange(found, hour, Relaxed, Relaxed).is_ok() {
            row[1..].iter().for_each(|word| word.store(0, Relaxed));
        }
        at + 1
    }

    /// Notes a command that has ended, for [`Counters::recent`]. `output` is relative to `cwd`.
    pub fn note(&self, recent: &Recent, cwd: &[u8], output: Option<&[u8]>) {
        let (counters, ring) = self.words.words().split_at(COUNTERS);
        recent::add(ring, &counters[NOTED], recent, cwd, output);
    }

    /// Returns the last command of `store` that is wanted, if it is still in the ring.
    pub fn recent(store: &Store, wanted: Wanted) -> Option<FoundCommand> {
        let words = Counters::mapped(store)?;
        recent::find(&words.words()[COUNTERS..], wanted)
    }

    /// Returns the most recent commands of `store`, the newest first.
    pub fn recents(store: &Store) -> Vec<FoundCommand> {
        Counters::mapped(store).map(|words| recent::all(&words.words()[COUNTERS..])).unwrap_or_default()
    }

    /// Maps the counters of `store` for reading, if they exist.
    fn mapped(store: &Store) -> Option<Words> {
        let (file, stat) = open_plain(&store.file("counters")).ok()?;
        let words = Words::map(&file, stat.size_bytes, WORDS, false).ok()?;
        (words.words()[0].load(Relaxed) == VERSION).then_some(words)
    }

    /// Counts a hit as one after waiting. The hit itself is counted separately.
    pub fn count_waited(&self) {
        self.words.words()[WAITED].fetch_add(1, Relaxed);
    }

    /// Counts a hit as one after fetching. The hit itself is counted separately.
    pub fn count_remote_hit(&self) {
        self.words.words()[REMOTE_HIT].fetch_add(1, Relaxed);
    }

    /// Counts a tool that waited for `waited_ms` before it was started.
    pub fn count_token_wait(&self, waited_ms: u64, for_memory: bool) {
        let counts = [(TOKEN_WAITS, 1), (MEMORY_WAITS, u64::from(for_memory)), (TOKEN_WAITED_MS, waited_ms)];
        for (index, count) in counts {
            self.words.words()[index].fetch_add(count, Relaxed);
        }
    }

    /// Counts something that was done with remotes.
    pub fn count_remote(&self, what: Remote, count: u64) {
        self.words.words()[REMOTE + what as usize].fetch_add(count, Relaxed);
    }

    /// Counts a fetch that took `took_us`.
    pub fn count_fetch(&self, took_us: u64) {
        let class = (took_us.max(1).ilog2() as usize).min(FETCH_CLASSES - 1);
        self.words.words()[FETCHES + class].fetch_add(1, Relaxed);
    }

    /// Adds to the size of the store, and returns the approximate new size.
    pub fn grew(&self, bytes: u64) -> u64 {
        self.words.words()[STORE_BYTES].fetch_add(bytes, Relaxed).saturating_add(bytes)
    }

    /// Sets the size of the store.
    pub fn set_store_bytes(&self, bytes: u64) {
        self.words.words()[STORE_BYTES].store(bytes, Relaxed);
    }

    /// Sets all counters except the size of the store to zero.
    pub fn zero(&self) {
        for index in (HIT..=FALLBACK).chain(WAITED..NOTED).chain(CRATES..COUNTERS) {
            self.words.words()[index].store(0, Relaxed);
        }
    }

    /// Returns the values of all counters.
    pub fn totals(&self) -> Totals {
        let word = |index: usize| self.words.words()[index].load(Relaxed);
        fn table<R: Copy>(all: &[R], count: impl Fn(usize) -> u64) -> Vec<(R, u64)> {
            let counted = all.iter().enumerate().map(|(index, &reason)| (reason, count(index)));
            counted.filter(|(_, count)| *count > 0).collect()
        }
        let saved = |at: usize, bytes: u64| Saved {
            hit: word(at),
            miss: word(at + 1),
            run_time_us: word(at + 2),
            ticks: word(at + 3),
            bytes,
        };
        let family = |index: usize| FAMILIES + index * FAMILY_WORDS;
        let hours = (0..HOURS_KEPT).map(|row| HOURS + row * HOUR_WORDS);
        Totals {
            families: std::array::from_fn(|index| saved(family(index), word(family(index) + 4))),
            crates: std::array::from_fn(|kind| Saved {
                hit: word(CRATES + kind * 2),
                miss: word(CRATES + kind * 2 + 1),
                ..Saved::default()
            }),
            hours: hours.filter(|at| word(*at) > 0).map(|at| (word(at), saved(at + 1, 0))).collect(),
            hit: word(HIT),
            waited: word(WAITED),
            remote_hit: word(REMOTE_HIT),
            token_waits: word(TOKEN_WAITS),
            memory_waits: word(MEMORY_WAITS),
            token_waited_ms: word(TOKEN_WAITED_MS),
            remote: Remote::ALL.map(|what| word(REMOTE + what as usize)),
            fetches: std::array::from_fn(|class| word(FETCHES + class)),
            miss: word(MISS),
            bypass: word(BYPASS),
            fallback: word(FALLBACK),
            store_bytes: word(STORE_BYTES),
            bypass_reasons: table(Bypass::ALL, |index| word(BYPASS_REASONS + index)),
            fallback_reasons: table(Fallback::ALL, |index| word(FALLBACK_CAUSES + index)),
            unrecorded_reasons: table(Unrecorded::ALL, |index| word(UNRECORDED_REASONS + index)),
        }
    }
}

fn append(mut file: &File, bytes: &[u8]) -> std::io::Result<()> {
    use std::io::{Seek, SeekFrom, Write};
    file.seek(SeekFrom::End(0))?;
    file.write_all(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_saved_is_counted_by_family_and_hour() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path()).expect("opens");
        let counters = Counters::open(&store).expect("opens");
        let hit = |at_ns| HitCount { family: 1, run_time_us: 500, ticks: 20, bytes: 3, at_ns };
        let hour = |hour: u64| (hour * HOUR_NS) as i64 + 5;
        counters.count_saved(&hit(hour(100)));
        counters.count_saved(&hit(hour(100)));
        counters.count_missed(1, hour(101));
        let totals = Counters::read(&store);
        let saved = Saved { hit: 2, miss: 1, run_time_us: 1000, ticks: 40, bytes: 6 };
        assert_eq!((totals.families[0], totals.families[1]), (Saved::default(), saved));
        let mut hours = totals.hours;
        hours.sort_by_key(|(hour, _)| *hour);
        let expected = [(100, Saved { miss: 0, bytes: 0, ..saved }), (101, Saved { miss: 1, ..Saved::default() })];
        assert_eq!(hours, expected);
        // Another hour in the same row replaces the earlier one.
        counters.count_missed(1, hour(100 + HOURS_KEPT as u64));
        let hours = Counters::read(&store).hours;
        assert!(hours.contains(&(132, Saved { miss: 1, ..Saved::default() })), "{hours:?}");
        counters.zero();
        assert_eq!(Counters::read(&store).hours, []);
    }

    #[test]
    fn crates_are_counted_by_kind() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path()).expect("opens");
        let counters = Counters::open(&store).expect("opens");
        counters.count_crate(0, true);
        counters.count_crate(CRATE_KINDS - 1, true);
        counters.count_crate(CRATE_KINDS - 1, false);
        let of = |hit, miss| Saved { hit, miss, ..Saved::default() };
        let totals = Counters::read(&store);
        assert_eq!((totals.crates[0], totals.crates[CRATE_KINDS - 1]), (of(1, 0), of(1, 1)));
        // The words before and behind are those of others.
        assert_eq!(totals.families, [Saved::default(); FAMILIES_MAX]);
        counters.zero();
        assert_eq!(Counters::read(&store).crates, [Saved::default(); CRATE_KINDS]);
    }

    #[test]
    fn counters_of_an_earlier_version_are_kept_and_grow() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path()).expect("opens");
        Counters::open(&store).expect("opens").count(Outcome::Hit);
        let bytes = std::fs::read(store.file("counters")).expect("reads");
        std::fs::write(store.file("counters"), &bytes[..2048]).expect("writes");
        Counters::open(&store).expect("opens").count(Outcome::Hit);
        assert_eq!(Counters::read(&store).hit, 2);
    }

    #[test]
    fn counts_are_kept_and_damage_is_survived() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path()).expect("opens");
        assert_eq!(Counters::read(&store), Totals::default());
        Counters::open(&store).expect("opens").count(Outcome::Hit);
        Counters::open(&store).expect("opens").count(Outcome::Bypass(Bypass::Disabled));
        let totals = Counters::read(&store);
        assert_eq!((totals.hit, totals.bypass), (1, 1));
        assert_eq!(totals.bypass_reasons, [(Bypass::Disabled, 1)]);
        for length in [0, 1, 100, 5000] {
            std::fs::write(store.file("counters"), vec![7; length]).expect("writes");
            Counters::open(&store).expect("opens").count(Outcome::Miss(None));
            assert_eq!(Counters::read(&store).miss, 1, "{length}");
        }
        let mut bytes = std::fs::read(store.file("counters")).expect("reads");
        bytes[..8].fill(0);
        bytes[8] = 5;
        std::fs::write(store.file("counters"), bytes).expect("writes");
        Counters::open(&store).expect("opens").count(Outcome::Hit);
        let totals = Counters::read(&store);
        assert_eq!((totals.hit, totals.miss), (1, 0), "words without a version are no counts");
    }
}
