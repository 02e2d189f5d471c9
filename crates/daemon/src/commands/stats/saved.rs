//! The time that hits saved: how long their tools ran when the results were recorded, minus how
//! long the hits took.
//!
//! Unaware of: how it is shown.

use jiff::Zoned;
use larder_compiler::{CrateKind, Family};
use larder_store::{Saved, Totals};

/// The counters of ticks as a duration.
#[derive(Clone, Copy)]
pub(super) struct Clock {
    ticks_per_us: f64,
}

impl Clock {
    /// Measures the processor's counter.
    pub(super) fn measured() -> Clock {
        Clock { ticks_per_us: larder_sys::ticks_per_second() as f64 / 1e6 }
    }

    /// Returns the time saved, in microseconds. Negative if the hits took longer than their tools.
    pub(super) fn saved_us(&self, saved: &Saved) -> i64 {
        let took_us = if self.ticks_per_us > 0.0 { saved.ticks as f64 / self.ticks_per_us } else { 0.0 };
        saved.run_time_us as i64 - took_us as i64
    }
}

/// Returns the counts of each family that was used, with its name.
pub(super) fn families(totals: &Totals) -> Vec<(&'static str, Saved)> {
    let name = |index: usize| Family::ALL.get(index).map_or("other", |family| family.name());
    let all = totals.families.iter().enumerate().map(|(index, saved)| (name(index), *saved));
    all.filter(|(_, saved)| saved.hit + saved.miss > 0).collect()
}

/// Returns the hits and misses of each kind of crate of Rust that was compiled, with its name.
pub(super) fn crates(totals: &Totals) -> Vec<(&'static str, Saved)> {
    let all = CrateKind::ALL.iter().zip(totals.crates).map(|(kind, saved)| (kind.name(), saved));
    all.filter(|(_, saved)| saved.hit + saved.miss > 0).collect()
}

/// Returns the sum over all families.
pub(super) fn total(totals: &Totals) -> Saved {
    totals.families.iter().fold(Saved::default(), plus)
}

/// Returns the counts since midnight, in the local time zone.
pub(super) fn today(totals: &Totals, now: &Zoned) -> Saved {
    let midnight = now.start_of_day().unwrap_or_else(|_| now.clone());
    let first_hour = midnight.timestamp().as_second().unsigned_abs() / 3600;
    let since = totals.hours.iter().filter(|(hour, _)| *hour >= first_hour);
    since.fold(Saved::default(), |sum, (_, saved)| plus(sum, saved))
}

fn plus(sum: Saved, other: &Saved) -> Saved {
    Saved {
        hit: sum.hit + other.hit,
        miss: sum.miss + other.miss,
        run_time_us: sum.run_time_us + other.run_time_us,
        ticks: sum.ticks + other.ticks,
        bytes: sum.bytes + other.bytes,
    }
}

/// Returns the share of hits in percent, or `None` if nothing was looked up.
pub(super) fn percent(hit: u64, miss: u64) -> Option<f64> {
    let asked = hit.saturating_add(miss);
    (asked > 0).then(|| hit as f64 * 100.0 / asked as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_hours_since_midnight_are_of_today() {
        let now: Zoned = "2026-11-26T09:30:00[UTC]".parse().expect("is a time");
        let hour = now.timestamp().as_second() as u64 / 3600;
        let one = Saved { hit: 1, ..Saved::default() };
        let totals = Totals { hours: vec![(hour, one), (hour - 9, one), (hour - 10, one)], ..Totals::default() };
        assert_eq!(today(&totals, &now).hit, 2);
    }

    #[test]
    fn hits_that_take_longer_than_their_tools_save_less_than_nothing() {
        let clock = Clock { ticks_per_us: 1000.0 };
        let saved = |run_time_us, ticks| clock.saved_us(&Saved { run_time_us, ticks, ..Saved::default() });
        assert_eq!((saved(5000, 1_000_000), saved(500, 1_000_000)), (4000, -500));
    }
}
