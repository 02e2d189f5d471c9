//! Which whole commands were not recorded in their last runs, and why.
//!
//! ```text
//! unrecorded: 4,096 slots of 16 bytes; the slot of a key is given by the first eight bytes of its
//!             digest (little-endian, modulo the number of slots):
//!   0…7   the last bytes of the digest of the command (its weak fingerprint)
//!   8     the index of the reason
//!   9     how many runs in a row
//!   10…11 the day of the last observed run, in days since 1970, little-endian
//!   12…15 first bytes of the digest of these 12 bytes
//! ```
//!
//! A command that was not recorded twice in a row for the same lasting reason is not observed in
//! its next [`SKIPPED_MAX`] runs on the same day (UTC). Then it is observed again, because it may
//! have changed. A wrong value costs at most that: a run that is not recorded.
//!
//! Unaware of: how a reason is found.

use std::fs::OpenOptions;

use larder_model::{Digest, Unrecorded};

use crate::Store;
use crate::layout::open_plain;
use crate::slots::Slots;

const RUNS: Slots<4, 16> = Slots { count: 1 << 12, key: 24..32 };

/// After this many runs in a row the reason is believed.
const BELIEVED: u8 = 2;
/// The number of runs that are then not observed.
const SKIPPED_MAX: u8 = 7;
/// No index of a reason.
const NO_REASON: u8 = u8::MAX;
const DAY_NS: i64 = 24 * 60 * 60 * 1_000_000_000;

impl Store {
    /// Returns why this command would not be recorded, if it need not be observed at `now_ns`
    /// (nanoseconds since 1970). Counts the run.
    pub fn need_not_observe(&self, command: &Digest, now_ns: i64) -> Option<Unrecorded> {
        let path = self.file("unrecorded");
        let (file, _) = open_plain(&path).ok()?;
        let [reason, runs, day @ ..] = RUNS.read(&file, command)?;
        let is_believed = (BELIEVED..BELIEVED + SKIPPED_MAX).contains(&runs) && day == day_of(now_ns);
        let reason = Unrecorded::ALL.get(usize::from(reason)).filter(|_| is_believed)?;
        // If the run cannot be counted, the command would never be observed again.
        let file = OpenOptions::new().write(true).open(&path).ok()?;
        RUNS.write(&file, command, &[reason.index() as u8, runs + 1, day[0], day[1]]).ok()?;
        Some(*reason)
    }

    /// Notes that an observed run of this command was not recorded for this reason, or that it was
    /// recorded.
    pub fn note_observed(&self, command: &Digest, unrecorded: Option<Unrecorded>, now_ns: i64) {
        let path = self.file("unrecorded");
        let before = open_plain(&path).ok().and_then(|(file, _)| RUNS.read(&file, command));
        let value = match unrecorded.filter(|reason| lasts(*reason)).map(|reason| reason.index() as u8) {
            Some(reason) => {
                let is_again = before.is_some_and(|[known, ..]| known == reason);
                let [low, high] = day_of(now_ns);
                [reason, if is_again { BELIEVED } else { 1 }, low, high]
            }
            None if before.is_none_or(|[known, ..]| known == NO_REASON) => return,
            None => [NO_REASON; 4],
        };
        // If it cannot be written, the next run is observed too.
        if let Ok(file) = self.open_to_change(&path) {
            let _ = RUNS.write(&file, command, &value);
        }
    }
}

fn day_of(now_ns: i64) -> [u8; 2] {
    ((now_ns / DAY_NS) as u16).to_le_bytes()
}

/// Returns true for reasons that lie in what the command does. Others lie in the moment, or the run
/// has taught larder something, so that the next one may be recorded (`updates-file`,
/// `not-observed`).
fn lasts(reason: Unrecorded) -> bool {
    matches!(
        reason,
        Unrecorded::Clock
            | Unrecorded::Network
            | Unrecorded::Device
            | Unrecorded::Outlives
            | Unrecorded::OutputSpecial
            | Unrecorded::OutputElsewhere
            | Unrecorded::Random
            | Unrecorded::ComparesTimes
            | Unrecorded::Terminal
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_two_runs_it_is_left_alone_for_a_while() {
        let dir = tempfile::tempdir().expect("makes a directory");
        let store = Store::open(dir.path()).expect("opens");
        let command = Digest([7; 32]);
        let why = Some(Unrecorded::Network);
        let known = |now_ns| store.need_not_observe(&command, now_ns);
        store.note_observed(&command, None, 0);
        assert!(!store.file("unrecorded").exists(), "nothing is written for commands that are recorded");
        assert_eq!(known(0), None);
        store.note_observed(&command, why, 0);
        assert_eq!(known(0), None);
        store.note_observed(&command, why, 0);
        for _ in 0..SKIPPED_MAX {
            assert_eq!(known(0), why);
        }
        assert_eq!(known(0), None, "it is tried again");
        store.note_observed(&command, why, 0);
        assert_eq!(known(0), why);
        assert_eq!(known(DAY_NS), None, "it is tried again on the next day");
        store.note_observed(&command, Some(Unrecorded::Clock), 0);
        assert_eq!(known(0), None, "another reason must be seen twice as well");
        store.note_observed(&command, Some(Unrecorded::Clock), 0);
        store.note_observed(&command, None, 0);
        assert_eq!(known(0), None, "it was recorded");
        for _ in 0..3 {
            store.note_observed(&command, Some(Unrecorded::InputChanged), 0);
        }
        assert_eq!(known(0), None, "such a reason may be gone the next time");
    }
}
