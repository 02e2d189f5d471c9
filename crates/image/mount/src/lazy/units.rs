//! A set of units of a file. A unit has `unit_bytes` bytes; the last one of a file may have fewer.
//! Pure.
//!
//! Unaware of: what the set stands for.

use std::ops::Range;

/// The size of a unit, in bytes: the smallest part that is filled or traced. It is the size of an
/// EROFS block and of a page.
pub(super) const UNIT_BYTES: u64 = 4096;

/// A set of units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Units {
    size_bytes: u64,
    unit_bytes: u64,
    words: Vec<u64>,
    left: u64,
}

impl Units {
    /// Makes an empty set for a file of this size.
    pub(super) fn none(size_bytes: u64, unit_bytes: u64) -> Units {
        let left = size_bytes.div_ceil(unit_bytes);
        Units { size_bytes, unit_bytes, words: vec![0; left.div_ceil(64) as usize], left }
    }

    /// Makes an empty set for the same file.
    pub(super) fn like(&self) -> Units {
        Units::none(self.size_bytes, self.unit_bytes)
    }

    /// Returns the number of units of the file.
    pub(super) fn count(&self) -> u64 {
        self.size_bytes.div_ceil(self.unit_bytes)
    }

    /// The number of units that are not in the set.
    pub(super) fn left(&self) -> u64 {
        self.left
    }

    pub(super) fn has(&self, unit: u64) -> bool {
        self.words.get((unit / 64) as usize).is_some_and(|word| word >> (unit % 64) & 1 == 1)
    }

    /// Adds a unit. Returns true if it was not in the set.
    pub(super) fn put(&mut self, unit: u64) -> bool {
        let is_new = unit < self.count() && !self.has(unit);
        if is_new {
            self.words[(unit / 64) as usize] |= 1 << (unit % 64);
            self.left -= 1;
        }
        is_new
    }

    /// Removes a unit.
    pub(super) fn take(&mut self, unit: u64) {
        if self.has(unit) {
            self.words[(unit / 64) as usize] &= !(1 << (unit % 64));
            self.left += 1;
        }
    }

    /// Returns the byte ranges of consecutive units of the set within `units`.
    pub(super) fn runs(&self, units: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let mut from = units.start;
        std::iter::from_fn(move || {
            let start = (from..units.end).find(|unit| self.has(*unit))?;
            from = (start..units.end).find(|unit| !self.has(*unit)).unwrap_or(units.end);
            Some(self.bytes(&(start..from)))
        })
    }

    /// Returns the units that these bytes touch. Bytes beyond the file are ignored. For example,
    /// with units of 300 bytes, the bytes 299..301 touch the units 0 and 1.
    pub(super) fn touched(&self, bytes: &Range<u64>) -> Range<u64> {
        let end = bytes.end.min(self.size_bytes);
        if bytes.start >= end { 0..0 } else { bytes.start / self.unit_bytes..end.div_ceil(self.unit_bytes) }
    }

    /// Returns the units that lie completely in these bytes. For example, with units of 300 bytes,
    /// the bytes 1..900 hold the units 1 and 2.
    pub(super) fn within(&self, bytes: &Range<u64>) -> Range<u64> {
        let end = if bytes.end >= self.size_bytes { self.count() } else { bytes.end / self.unit_bytes };
        let start = bytes.start.div_ceil(self.unit_bytes);
        start..end.max(start)
    }

    /// Returns the bytes of these units.
    pub(super) fn bytes(&self, units: &Range<u64>) -> Range<u64> {
        units.start * self.unit_bytes..(units.end * self.unit_bytes).min(self.size_bytes)
    }

    /// Returns true if all units that these bytes touch are in the set.
    pub(super) fn cover(&self, bytes: &Range<u64>) -> bool {
        self.touched(bytes).all(|unit| self.has(unit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_unit_is_shorter() {
        let mut units = Units::none(1000, 300);
        assert_eq!((units.count(), units.left()), (4, 4));
        assert_eq!(units.touched(&(299..301)), 0..2);
        assert_eq!(units.touched(&(900..5000)), 3..4);
        assert_eq!(units.touched(&(1000..5000)), 0..0);
        assert_eq!(units.within(&(1..900)), 1..3);
        assert_eq!(units.within(&(900..1000)), 3..4);
        assert!(units.within(&(10..20)).is_empty());
        assert_eq!(units.bytes(&(2..4)), 600..1000);
        assert!(units.put(3) && !units.put(3) && !units.put(4));
        assert!(units.cover(&(950..2000)) && !units.cover(&(899..950)) && units.cover(&(1000..1001)));
        units.put(1);
        units.put(2);
        assert_eq!(units.runs(0..4).collect::<Vec<_>>(), vec![300..1000; 1]);
        assert_eq!(units.runs(0..2).collect::<Vec<_>>(), vec![300..600; 1]);
        units.take(1);
        assert_eq!(units.runs(0..4).collect::<Vec<_>>(), vec![600..1000; 1]);
        units.take(2);
        units.take(3);
        units.take(9);
        assert_eq!(units.left(), 4);
    }
}
