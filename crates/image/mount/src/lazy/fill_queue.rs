//! Decides which piece of a file is fetched next: first what a reader waits for, then what earlier
//! jobs read in their order, then the rest. Pure: it uses neither files nor threads nor a clock.
//!
//! Unaware of: how pieces are fetched.

use std::collections::VecDeque;
use std::ops::Range;

use super::units::Units;

/// The limit for readers whose position is remembered, to read ahead of them.
const STREAMS_MAX: usize = 32;
/// After this many failures in a row, background fetches stop until a fetch succeeds again.
const FAILURES_MAX: u32 = 8;

/// How many units are fetched ahead of a reader that reads sequentially: 1 MiB at first, then twice
/// as much each time, up to 16 MiB.
const AHEAD_UNITS: Range<u64> = 256..4096;

/// A sequential reader: the unit that it will read next, and how many units are fetched ahead of
/// it.
struct Stream {
    next: u64,
    ahead: u64,
}

/// Returns the piece that holds the byte at this offset.
type Pieces = Box<dyn Fn(u64) -> Range<u64> + Send>;

/// What is filled, what is being fetched, and what comes next.
pub(super) struct FillQueue {
    filled: Units,
    /// The units that are queued or being fetched.
    taken: Units,
    pieces: Pieces,
    wanted: VecDeque<Range<u64>>,
    streams: VecDeque<Stream>,
    order: VecDeque<Range<u64>>,
    failures: u32,
}

/// A piece that one thread fetches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Work {
    /// The units of the piece.
    pub(super) units: Range<u64>,
}

impl FillQueue {
    /// A fill queue with the units that are filled. `order` is the order in which the background
    /// threads should fetch the rest, in bytes.
    pub(super) fn new(filled: Units, pieces: Pieces, order: &[Range<u64>]) -> FillQueue {
        let taken = filled.like();
        let mut order: VecDeque<Range<u64>> = order.iter().map(|bytes| filled.touched(bytes)).collect();
        order.push_back(0..filled.count());
        let (wanted, streams) = (VecDeque::new(), VecDeque::new());
        FillQueue { filled, taken, pieces, wanted, streams, order, failures: 0 }
    }

    pub(super) fn filled(&self) -> &Units {
        &self.filled
    }

    /// Queues bytes that a reader waits for. Returns how many pieces were added to the queue.
    pub(super) fn want(&mut self, bytes: &Range<u64>) -> usize {
        let units = self.filled.touched(bytes);
        if units.is_empty() {
            return 0;
        }
        let before = self.wanted.len();
        // What the reader waits for is queued first, then the read-ahead.
        let known = self.stream_at(&units);
        let mut next = self.queue(units);
        if known > 0 {
            next = self.queue(next..(next + known).min(self.filled.count())).max(next);
        }
        self.streams.push_back(Stream { next, ahead: known });
        if self.streams.len() > STREAMS_MAX {
            self.streams.pop_front();
        }
        self.wanted.len() - before
    }

    /// Returns how many units to fetch ahead of the reader of these units. It is 0 unless the read
    /// continues an earlier one. For example, a reader that has read 0..12 continues with 12..14.
    fn stream_at(&mut self, units: &Range<u64>) -> u64 {
        let goes_on = |stream: &Stream| units.start <= stream.next && stream.next < units.end;
        let found = self.streams.iter().position(goes_on).and_then(|at| self.streams.remove(at));
        found.map_or(0, |stream| (stream.ahead * 2).clamp(AHEAD_UNITS.start, AHEAD_UNITS.end))
    }

    /// Queues the pieces that hold these units, unless they are filled or taken. Returns the end of
    /// the last piece.
    fn queue(&mut self, units: Range<u64>) -> u64 {
        let mut from = units.start;
        while from < units.end {
            let piece = self.piece_of(from);
            from = piece.end;
            if self.is_missing(&piece) {
                self.mark(&piece);
                self.wanted.push_back(piece);
            }
        }
        from
    }

    fn piece_of(&self, unit: u64) -> Range<u64> {
        piece_of(&self.filled, &self.pieces, unit)
    }

    /// Returns true if a unit of the piece is not filled, and no thread fetches the piece.
    fn is_missing(&self, piece: &Range<u64>) -> bool {
        piece.clone().any(|unit| !self.filled.has(unit)) && !piece.clone().any(|unit| self.taken.has(unit))
    }

    fn mark(&mut self, units: &Range<u64>) {
        for unit in units.clone() {
            self.taken.put(unit);
        }
    }

    /// Returns the next piece that a reader waits for.
    pub(super) fn wanted(&mut self) -> Option<Work> {
        self.wanted.pop_front().map(|units| Work { units })
    }

    /// Returns the next piece that no reader waits for.
    pub(super) fn unasked(&mut self) -> Option<Work> {
        if self.failures >= FAILURES_MAX {
            return None;
        }
        while let Some(range) = self.order.pop_front() {
            let mut from = range.start;
            while from < range.end {
                let piece = self.piece_of(from);
                from = piece.end;
                if self.is_missing(&piece) {
                    self.order.push_front(from..range.end.max(from));
                    self.mark(&piece);
                    return Some(Work { units: piece });
                }
            }
        }
        None
    }

    /// Records that a piece was filled or that fetching it failed. After a failure it is missing as
    /// before.
    pub(super) fn done(&mut self, work: &Work, succeeded: bool) {
        for unit in work.units.clone() {
            self.taken.take(unit);
            if succeeded {
                self.filled.put(unit);
            }
        }
        self.failures = if succeeded { 0 } else { self.failures.saturating_add(1) };
        if !succeeded {
            // It is tried again after everything else.
            self.order.push_back(work.units.clone());
        }
    }

    /// Records a unit that another process filled. Returns true if that was not known before.
    pub(super) fn note_filled(&mut self, unit: u64) -> bool {
        self.filled.put(unit)
    }

    pub(super) fn is_complete(&self) -> bool {
        self.filled.left() == 0
    }
}

/// Returns the units of the piece that holds this unit. Even if `pieces` returns nonsense, the
/// result holds the unit and does not exceed the file.
pub(super) fn piece_of(units: &Units, pieces: &dyn Fn(u64) -> Range<u64>, unit: u64) -> Range<u64> {
    let bytes = units.bytes(&(unit..unit + 1));
    let piece = pieces(bytes.start);
    units.touched(&(piece.start.min(bytes.start)..piece.end.max(bytes.end)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a fill queue of 98 units in pieces of four.
    fn fill_queue(order: &[Range<u64>]) -> FillQueue {
        let pieces = |offset: u64| offset / 4 * 4..offset / 4 * 4 + 4;
        FillQueue::new(Units::none(98, 1), Box::new(pieces), order)
    }

    /// Takes work as a thread that does both kinds would.
    fn next(fill_queue: &mut FillQueue) -> Option<Work> {
        fill_queue.wanted().or_else(|| fill_queue.unasked())
    }

    fn units(work: Option<Work>) -> Range<u64> {
        work.expect("there is work").units
    }

    #[test]
    fn who_waits_comes_first() {
        let mut fill_queue = fill_queue(&[50..53, 40..41]);
        assert_eq!(fill_queue.wanted(), None);
        assert_eq!(units(fill_queue.unasked()), 48..52);
        fill_queue.want(&(51..57));
        // The piece with unit 51 is being fetched already.
        assert_eq!(units(fill_queue.wanted()), 52..56);
        assert_eq!(units(fill_queue.wanted()), 56..60);
        assert_eq!(fill_queue.wanted(), None);
        assert_eq!(units(fill_queue.unasked()), 40..44);
        assert_eq!(units(fill_queue.unasked()), 0..4);
        fill_queue.want(&(200..300));
        assert_eq!(fill_queue.wanted, [], "bytes beyond the file are not queued");
        fill_queue.want(&(97..300));
        assert_eq!(units(fill_queue.wanted()), 96..98, "the last piece ends with the file");
    }

    #[test]
    fn ahead_of_who_goes_on() {
        let mut fill_queue = fill_queue(&[]);
        fill_queue.want(&(10..11));
        let all = |fill_queue: &mut FillQueue| -> Vec<_> {
            std::iter::from_fn(|| fill_queue.wanted()).map(|work| work.units).collect()
        };
        assert_eq!(all(&mut fill_queue), vec![8..12; 1]);
        fill_queue.want(&(70..71));
        assert_eq!(all(&mut fill_queue), vec![68..72; 1], "this read does not continue the first one");
        fill_queue.want(&(12..14));
        let pieces = all(&mut fill_queue);
        assert_eq!((&pieces[0], pieces.last()), (&(12..16), Some(&(96..98))));
        assert_eq!(pieces.len(), 21, "all pieces that follow, except the taken one");
    }

    #[test]
    fn what_failed_is_tried_again() {
        let mut fill_queue = fill_queue(&[]);
        for _ in 0..FAILURES_MAX {
            let work = next(&mut fill_queue).expect("there is more work");
            fill_queue.done(&work, false);
        }
        assert_eq!(fill_queue.unasked(), None, "background fetches stop when all fail");
        fill_queue.want(&(0..1));
        let work = fill_queue.wanted().expect("a reader waits");
        fill_queue.done(&work, true);
        while let Some(work) = next(&mut fill_queue) {
            fill_queue.done(&work, true);
        }
        assert!(fill_queue.is_complete());
    }

    #[test]
    fn odd_pieces_do_no_harm() {
        for pieces in [|_| 0..0, |offset| offset + 7..offset + 9, |_| 5..u64::MAX] as [fn(u64) -> Range<u64>; 3] {
            let mut fill_queue = FillQueue::new(Units::none(98, 1), Box::new(pieces), &[]);
            while let Some(work) = next(&mut fill_queue) {
                fill_queue.done(&work, true);
            }
            assert!(fill_queue.is_complete());
        }
    }
}
