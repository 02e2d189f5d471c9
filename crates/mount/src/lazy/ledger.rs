//! What is to be filled next: what somebody waits for first, then what earlier jobs touched in their order, then the rest.
//! Pure: neither files nor threads nor a clock.

use std::collections::VecDeque;
use std::ops::Range;

use super::units::Units;

/// How many readers that go forward are remembered, to read ahead of them.
const STREAMS_MAX: usize = 32;
/// So many failures after each other, and nothing is fetched that nobody waits for, until a fetch succeeds again.
const FAILURES_MAX: u32 = 8;

/// A reader that goes forward: where it will go on, and how many units are fetched ahead of it.
struct Stream {
    next: u64,
    ahead: u64,
}

/// What is to be filled, by whom, and what was.
pub(super) struct Ledger {
    filled: Units,
    /// To be filled, or being filled.
    taken: Units,
    wanted: VecDeque<Range<u64>>,
    streams: VecDeque<Stream>,
    order: VecDeque<Range<u64>>,
    piece_units: u64,
    background: usize,
    background_max: usize,
    failures: u32,
}

/// Some units for one who fills.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Work {
    /// Which.
    pub(super) units: Range<u64>,
    /// Whether nobody waits for them, as far as is known.
    pub(super) is_background: bool,
}

impl Ledger {
    /// Of what is filled already, with the order in which the rest is wanted, in bytes.
    pub(super) fn new(filled: Units, order: &[Range<u64>], piece_units: u64, background_max: usize) -> Ledger {
        let mut taken = filled.clone();
        (0..taken.count()).for_each(|unit| taken.take(unit));
        let mut order: VecDeque<Range<u64>> = order.iter().map(|bytes| filled.touched(bytes)).collect();
        order.push_back(0..filled.count());
        let (wanted, streams) = (VecDeque::new(), VecDeque::new());
        Ledger { filled, taken, wanted, streams, order, piece_units, background: 0, background_max, failures: 0 }
    }

    pub(super) fn filled(&self) -> &Units {
        &self.filled
    }

    /// Somebody waits for these bytes; with them `together` is best fetched.
    pub(super) fn want(&mut self, bytes: &Range<u64>, together: &Range<u64>) {
        let units = self.filled.touched(bytes);
        if units.is_empty() {
            return;
        }
        let ahead = self.ahead_of(&units);
        // First what is waited for, then what comes with it.
        self.queue(units.clone());
        self.queue(self.filled.touched(together));
        self.queue(units.end..(units.end + ahead).min(self.filled.count()));
    }

    /// How far ahead of this reader is fetched: twice as far each time that it goes on where it was.
    fn ahead_of(&mut self, units: &Range<u64>) -> u64 {
        let goes_on = |stream: &Stream| units.start <= stream.next && stream.next <= units.end;
        let ahead = match self.streams.iter().position(goes_on).and_then(|at| self.streams.remove(at)) {
            Some(stream) => (stream.ahead * 2).clamp(1, self.piece_units * 8),
            None => 0,
        };
        self.streams.push_back(Stream { next: units.end + ahead, ahead });
        if self.streams.len() > STREAMS_MAX {
            self.streams.pop_front();
        }
        ahead
    }

    /// Have what is missing of these units filled soon.
    fn queue(&mut self, units: Range<u64>) {
        let mut from = units.start;
        while let Some(run) = self.missing(from..units.end) {
            from = run.end;
            self.mark(&run);
            self.wanted.push_back(run);
        }
    }

    fn mark(&mut self, units: &Range<u64>) {
        for unit in units.clone() {
            self.taken.put(unit);
        }
    }

    /// The first units of these that nobody fills, as many as one fetch should have.
    fn missing(&self, units: Range<u64>) -> Option<Range<u64>> {
        let is_missing = |unit: &u64| !self.filled.has(*unit) && !self.taken.has(*unit);
        let start = units.clone().find(is_missing)?;
        let end = (start..units.end).take(self.piece_units as usize).take_while(is_missing).last()? + 1;
        Some(start..end)
    }

    /// What to fill now, if there is something.
    pub(super) fn next(&mut self) -> Option<Work> {
        if let Some(units) = self.wanted.pop_front() {
            return Some(Work { units, is_background: false });
        }
        if self.background >= self.background_max || self.failures >= FAILURES_MAX {
            return None;
        }
        while let Some(range) = self.order.pop_front() {
            if let Some(units) = self.missing(range.clone()) {
                self.order.push_front(units.end..range.end);
                self.mark(&units);
                self.background += 1;
                return Some(Work { units, is_background: true });
            }
        }
        None
    }

    /// It was filled, or it failed: then it is missing as before.
    pub(super) fn done(&mut self, work: &Work, succeeded: bool) {
        for unit in work.units.clone() {
            self.taken.take(unit);
            if succeeded {
                self.filled.put(unit);
            }
        }
        self.background -= usize::from(work.is_background);
        self.failures = if succeeded { 0 } else { self.failures.saturating_add(1) };
        if !succeeded {
            // To be tried again, last.
            self.order.push_back(work.units.clone());
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.filled.left() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(order: &[Range<u64>]) -> Ledger {
        Ledger::new(Units::none(100, 1), order, 4, 2)
    }

    fn next(ledger: &mut Ledger) -> Option<(Range<u64>, bool)> {
        ledger.next().map(|work| (work.units, work.is_background))
    }

    #[test]
    fn who_waits_comes_first() {
        let mut ledger = ledger(&[50..52, 40..41]);
        assert_eq!(next(&mut ledger), Some((50..52, true)));
        ledger.want(&(51..60), &(51..60));
        // 51 is being filled already, and four units are one fetch.
        assert_eq!(next(&mut ledger), Some((52..56, false)));
        assert_eq!(next(&mut ledger), Some((56..60, false)));
        assert_eq!(next(&mut ledger), Some((40..41, true)));
        assert_eq!(next(&mut ledger), None, "two in the background are enough");
        ledger.done(&Work { units: 40..41, is_background: true }, true);
        assert_eq!(next(&mut ledger), Some((0..4, true)));
        ledger.want(&(200..300), &(0..300));
        assert_eq!(ledger.wanted.len(), 0, "beyond the file there is nothing to wait for");
    }

    #[test]
    fn ahead_of_who_goes_on() {
        let mut ledger = ledger(&[]);
        ledger.background_max = 0;
        ledger.want(&(10..11), &(10..11));
        ledger.want(&(11..12), &(11..12));
        let all: Vec<_> = std::iter::from_fn(|| next(&mut ledger)).map(|(units, _)| units).collect();
        assert_eq!(all, [10..11, 11..12, 12..13]);
        ledger.want(&(13..14), &(13..14));
        let all: Vec<_> = std::iter::from_fn(|| next(&mut ledger)).map(|(units, _)| units).collect();
        assert_eq!(all, [13..14, 14..16]);
        ledger.want(&(70..71), &(68..74));
        let all: Vec<_> = std::iter::from_fn(|| next(&mut ledger)).map(|(units, _)| units).collect();
        assert_eq!(all, [70..71, 68..70, 71..74], "what comes together, after what is waited for");
    }

    #[test]
    fn what_failed_is_tried_again() {
        let mut ledger = ledger(&[]);
        for _ in 0..FAILURES_MAX {
            let work = ledger.next().expect("there is more");
            ledger.done(&work, false);
        }
        assert_eq!(ledger.next(), None, "not when all fails");
        ledger.want(&(0..1), &(0..1));
        let work = ledger.next().expect("somebody waits");
        ledger.done(&work, true);
        while let Some(work) = ledger.next() {
            ledger.done(&work, true);
        }
        assert!(ledger.is_complete());
    }
}
