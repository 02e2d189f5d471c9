//! The lines in which tools wait, one per build, and which ticket is next. Two builds may share a
//! line by chance.
//!
//! Within a line, tickets are served in order. Among the lines, the next one is the line whose
//! tools held tokens for the least time while it waited. So two builds get half of the processors
//! each, however many tools each has waiting and however long these take. A build that joins starts
//! with the time of the others. For the time that it used while it was alone, it is held back by at
//! most `AHEAD_MAX_MS`.
//!
//! Unaware of: files, locks, how long a tool waits.
//!
//! ```text
//! words, in arrays with one element per line: tickets drawn · the first ticket not served yet ·
//! time that its tools held tokens, in ms · how often in a row its first ticket was passed over
//! a token's word: bits 48… its line + 1, 0 for none · bits 0…47 since when, in ms since boot
//! ```

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

pub(super) const LINES: usize = 64;
pub(super) const WORDS: usize = 4 * LINES;

const TICKETS: usize = 0;
const SERVED: usize = LINES;
const USED: usize = 2 * LINES;
const PASSED: usize = 3 * LINES;

/// A line that joins again is held back by at most this for the time that it used before the others
/// came.
const AHEAD_MAX_MS: u64 = 5000;
/// The time that counts for a tool that has just started. Without it, one line could take all
/// tokens that are free at the same time.
const BEGUN_MS: u64 = 100;
/// The number of tickets passed over doubles each time, up to two to the power of this. A line
/// never has more waiting.
const PASSED_MAX: u64 = 10;
const SINCE_BITS: u32 = 48;

/// A position in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    line: usize,
    number: u64,
}

/// The words of all lines.
pub(super) struct FairQueue<'a>(pub(super) &'a [AtomicU64]);

/// The time that the currently running tools have held their tokens, by line.
pub(super) struct Running {
    used_ms: [u64; LINES],
    /// A bit for each line that holds a token.
    holds: u64,
}

/// Returns the line of a build.
pub(super) fn line_of(build: u64) -> usize {
    // Fibonacci hashing: consecutive numbers end up far apart.
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    (build.wrapping_mul(FACTOR) >> (64 - LINES.ilog2())) as usize
}

/// Returns a token's word while a tool of this line holds the token.
pub(super) fn begun(line: usize, now_ms: u64) -> u64 {
    (line as u64 + 1) << SINCE_BITS | now_ms & ((1 << SINCE_BITS) - 1)
}

/// Returns the line in a token's word, and how long it has held the token, in ms.
pub(super) fn ran(word: u64, now_ms: u64) -> Option<(usize, u64)> {
    let line = usize::try_from(word >> SINCE_BITS).ok()?.checked_sub(1).filter(|line| *line < LINES)?;
    Some((line, now_ms.saturating_sub(word & ((1 << SINCE_BITS) - 1))))
}

impl Running {
    /// Sums up the words of the tokens that are held.
    pub(super) fn of(words: impl Iterator<Item = u64>, now_ms: u64) -> Running {
        let mut running = Running { used_ms: [0; LINES], holds: 0 };
        for (line, ms) in words.filter_map(|word| ran(word, now_ms)) {
            running.used_ms[line] = running.used_ms[line].saturating_add(ms.max(BEGUN_MS));
            running.holds |= 1 << line;
        }
        running
    }
}

impl FairQueue<'_> {
    fn word(&self, array: usize, line: usize) -> &AtomicU64 {
        &self.0[array + line]
    }

    /// Returns about how many wait in a line. A damaged line counts as empty.
    fn waits_in(&self, line: usize) -> u64 {
        let (served, given) = (self.word(SERVED, line).load(SeqCst), self.word(TICKETS, line).load(SeqCst));
        u64::try_from(given.wrapping_sub(served) as i64).unwrap_or(0)
    }

    /// Returns a mask with a bit for each line in which a tool waits.
    fn waiting(&self) -> u64 {
        (0..LINES).filter(|line| self.waits_in(*line) > 0).fold(0, |all, line| all | 1 << line)
    }

    pub(super) fn nobody_waits(&self) -> bool {
        self.waiting() == 0
    }

    /// Returns about how many wait in all lines.
    pub(super) fn count(&self) -> u64 {
        (0..LINES).map(|line| self.waits_in(line)).fold(0, u64::saturating_add)
    }

    /// Draws a ticket in a line. If the line was empty, its time is set to that of the other lines.
    /// So it does not make up for the time when it wanted nothing, and hardly pays for what it used
    /// while the others were not there.
    pub(super) fn draw(&self, line: usize, running: impl FnOnce() -> Running) -> Ticket {
        if self.waits_in(line) == 0 {
            let (running, others) = (running(), self.waiting() & !(1 << line));
            let waiting = each(others).map(|other| self.used(other, &running)).min();
            let holding = || each(running.holds & !(1 << line)).map(|other| self.used(other, &running)).max();
            let (from, used) = (waiting.or_else(holding).unwrap_or(0), self.used(line, &running));
            let used = used.clamp(from, from.saturating_add(AHEAD_MAX_MS)).saturating_sub(running.used_ms[line]);
            self.word(USED, line).store(used, Relaxed);
            self.word(PASSED, line).store(0, Relaxed);
            // Repairs the word of a damaged file.
            let served = self.word(SERVED, line).load(SeqCst);
            advance(self.word(TICKETS, line), served);
        }
        Ticket { line, number: self.word(TICKETS, line).fetch_add(1, SeqCst) }
    }

    /// Returns how many in its own line are before this ticket. 0 or less means that it is the
    /// first.
    pub(super) fn ahead_in_line(&self, ticket: Ticket) -> i64 {
        ticket.number.wrapping_sub(self.word(SERVED, ticket.line).load(SeqCst)) as i64
    }

    fn used(&self, line: usize, running: &Running) -> u64 {
        self.word(USED, line).load(Relaxed).saturating_add(running.used_ms[line])
    }

    /// Returns a mask of the `waiting` lines that are served before this one.
    fn before(&self, line: usize, waiting: u64, running: impl FnOnce() -> Running) -> u64 {
        let others = waiting & !(1 << line);
        if others == 0 {
            return 0;
        }
        let running = running();
        let own = (self.used(line, &running), line);
        each(others).filter(|other| (self.used(*other, &running), *other) < own).fold(0, |all, line| all | 1 << line)
    }

    /// Returns how many are before this ticket. It is 0 if it is this ticket's turn, and negative
    /// if it was passed over.
    pub(super) fn ahead(&self, ticket: Ticket, running: impl FnOnce() -> Running) -> i64 {
        let ahead = self.ahead_in_line(ticket);
        if ahead < 0 {
            return ahead;
        }
        ahead.saturating_add(self.before(ticket.line, self.waiting(), running).count_ones().into())
    }

    /// Removes a ticket from its line. If it was served before others whose turn it was, those were
    /// killed or stopped, and are passed over. They must check for tokens themselves. Perhaps their
    /// whole build was killed, so each time more of that line is passed over.
    pub(super) fn served(&self, ticket: Ticket, passes_over: bool, running: impl FnOnce() -> Running) {
        let others = if passes_over { self.before(ticket.line, self.waiting(), running) } else { 0 };
        for line in each(others) {
            let first = self.word(SERVED, line).load(SeqCst);
            let times = self.word(PASSED, line).fetch_add(1, Relaxed).min(PASSED_MAX);
            let count = self.waits_in(line).min(1 << times);
            advance(self.word(SERVED, line), first.wrapping_add(count));
        }
        advance(self.word(SERVED, ticket.line), ticket.number.wrapping_add(1));
        self.word(PASSED, ticket.line).store(0, Relaxed);
    }

    /// Returns the ticket whose turn it is, or `None` if no tool waits.
    pub(super) fn due(&self, running: impl FnOnce() -> Running) -> Option<Ticket> {
        let waiting = self.waiting();
        let line = match waiting.count_ones() {
            0 => return None,
            1 => waiting.trailing_zeros() as usize,
            _ => {
                let running = running();
                each(waiting).min_by_key(|line| self.used(*line, &running))?
            }
        };
        Some(Ticket { line, number: self.word(SERVED, line).load(SeqCst) })
    }

    /// Charges a line for the time that its tool held a token. `word` is the token's word.
    pub(super) fn charge(&self, word: u64, now_ms: u64) {
        if let Some((line, ms)) = ran(word, now_ms) {
            self.word(USED, line).fetch_add(ms, Relaxed);
        }
    }
}

impl Ticket {
    pub(super) fn line(self) -> usize {
        self.line
    }

    /// Returns which of `count` words this ticket waits on. Few tickets share a word.
    pub(super) fn one_of(self, count: usize) -> usize {
        const STRIDE: u64 = 7;
        (self.number.wrapping_add(self.line as u64 * STRIDE) % count as u64) as usize
    }
}

/// Sets the word to `to` unless it is already further. Numbers wrap around.
fn advance(word: &AtomicU64, to: u64) {
    let _ = word.fetch_update(SeqCst, SeqCst, |now| (to.wrapping_sub(now) as i64 > 0).then_some(to));
}

fn each(mask: u64) -> impl Iterator<Item = usize> {
    (0..LINES).filter(move |line| mask & 1 << line != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words() -> Vec<AtomicU64> {
        (0..WORDS).map(|_| AtomicU64::new(0)).collect()
    }

    fn none() -> Running {
        Running::of([].into_iter(), 0)
    }

    /// Simulates builds with (line, jobs, duration of a tool in ms) on this many tokens, where each
    /// build always has a tool waiting. Returns how long the tools of each build held a token.
    fn shared(builds: &[(usize, usize, u64)], tokens: usize, until_ms: u64) -> Vec<u64> {
        let words = words();
        let lines = FairQueue(&words);
        let mut held = vec![(0, 0); tokens];
        let mut waiting: Vec<(usize, Ticket)> = Vec::new();
        let (mut running, mut had) = (vec![0; builds.len()], vec![0; builds.len()]);
        for now in 0..until_ms {
            for (word, ends) in held.iter_mut().filter(|(word, ends)| *word != 0 && *ends == now) {
                lines.charge(*word, now);
                let build = builds.iter().position(|(line, ..)| ran(*word, now).is_some_and(|it| it.0 == *line));
                let build = build.expect("one of them");
                had[build] += builds[build].2;
                running[build] -= 1;
                (*word, *ends) = (0, 0);
            }
            let now_running = |held: &[(u64, u64)]| Running::of(held.iter().map(|(word, _)| *word), now);
            for (build, (line, jobs, _)) in builds.iter().enumerate() {
                let waits = waiting.iter().filter(|(of, _)| *of == build).count();
                (waits + running[build]..*jobs)
                    .for_each(|_| waiting.push((build, lines.draw(*line, || now_running(&held)))));
            }
            while let Some(free) = held.iter().position(|(word, _)| *word == 0) {
                let first = waiting.iter().position(|(_, ticket)| lines.ahead(*ticket, || now_running(&held)) == 0);
                let Some(first) = first else { break };
                let (build, ticket) = waiting.remove(first);
                lines.served(ticket, false, none);
                held[free] = (begun(ticket.line, now), now + builds[build].2);
                running[build] += 1;
            }
        }
        had
    }

    #[test]
    fn builds_have_equal_shares() {
        // Each build is (line, jobs, duration of a tool in ms).
        for (builds, tokens) in [
            (vec![(3, 16, 50), (9, 2, 50)], 1),
            (vec![(3, 16, 50), (9, 2, 50)], 2),
            (vec![(9, 16, 400), (3, 16, 20)], 2),
            (vec![(9, 16, 400), (3, 4, 20), (1, 4, 70)], 3),
            (vec![(9, 60, 30), (3, 4, 2000)], 2),
        ] {
            let had = shared(&builds, tokens, 60_000);
            let (least, most) = (had.iter().min().expect("some"), had.iter().max().expect("some"));
            assert!(*least as f64 >= 0.85 * *most as f64, "{builds:?}, {tokens} tokens: {had:?}");
        }
    }

    #[test]
    fn a_build_with_fewer_jobs_than_its_share_gets_all_that_it_can_use() {
        let had = shared(&[(3, 16, 50), (9, 1, 50)], 4, 20_000);
        assert!(had[1] > 18_000 && had[0] > 55_000, "{had:?}");
    }

    #[test]
    fn in_a_line_who_came_first_is_first() {
        let words = words();
        let lines = FairQueue(&words);
        let tickets = [5, 5, 5].map(|line| lines.draw(line, none));
        assert_eq!(tickets.map(|ticket| lines.ahead(ticket, none)), [0, 1, 2]);
        lines.served(tickets[0], false, none);
        assert_eq!(lines.ahead(tickets[1], none), 0);
        assert_eq!((lines.count(), lines.due(none).map(|ticket| ticket.number)), (2, Some(1)));
    }

    #[test]
    fn who_does_not_come_is_passed_over_and_soon_his_line() {
        let words = words();
        let lines = FairQueue(&words);
        (0..16).for_each(|_| _ = lines.draw(2, none));
        let passes = (0..).take_while(|_| {
            let ticket = lines.draw(7, none);
            let ahead = lines.ahead(ticket, none);
            lines.served(ticket, true, none);
            ahead > 0
        });
        assert_eq!((passes.count(), lines.count()), (5, 0), "1, 2, 4, 8 and the last");
        // A line that comes when it is called starts again with one ticket passed over.
        let late = [2, 2, 2].map(|line| lines.draw(line, none));
        lines.served(late[0], false, none);
        lines.served(lines.draw(7, none), true, none);
        assert_eq!(lines.ahead(late[2], none), 0);
    }

    #[test]
    fn what_was_used_alone_is_forgotten() {
        let words = words();
        let lines = FairQueue(&words);
        lines.charge(begun(2, 0), 3_600_000);
        let other = lines.draw(7, none);
        let back = lines.draw(2, none);
        assert_eq!(lines.ahead(other, none), 0);
        assert_eq!(lines.word(USED, 2).load(Relaxed), AHEAD_MAX_MS);
        // A line that joins does not make up for the time when it was not there.
        lines.served(other, false, none);
        lines.served(back, false, none);
        let held = || Running::of([begun(2, 0)].into_iter(), 60_000);
        lines.draw(7, held);
        assert_eq!(lines.word(USED, 7).load(Relaxed), 60_000 + AHEAD_MAX_MS);
    }

    #[test]
    fn who_wanted_little_for_long_does_not_make_up_for_it() {
        let words = words();
        let lines = FairQueue(&words);
        // One tool of line 7 ran all the time. Line 2 ran many tools, and one of them waits.
        let held = || Running::of([begun(7, 0), begun(2, 59_000)].into_iter(), 60_000);
        lines.draw(2, held);
        lines.word(USED, 2).store(600_000, Relaxed);
        lines.draw(7, held);
        assert_eq!(lines.word(USED, 7).load(Relaxed) + 60_000, 601_000);
    }

    #[test]
    fn any_words_are_lines() {
        let words: Vec<AtomicU64> = (0..WORDS).map(|at| AtomicU64::new(u64::MAX - at as u64 * 3)).collect();
        let lines = FairQueue(&words);
        let running = || Running::of([u64::MAX, 1 << 48, 65 << 48].into_iter(), 5);
        let ticket = lines.draw(63, running);
        lines.ahead(ticket, running);
        lines.charge(u64::MAX, 7);
        lines.charge(begun(63, 9), 7);
        lines.served(ticket, true, running);
        lines.count();
        // A damaged line works again after a ticket was drawn in it.
        for line in 0..LINES {
            lines.word(SERVED, line).store(lines.word(TICKETS, line).load(SeqCst).wrapping_add(7), SeqCst);
        }
        assert!(lines.nobody_waits() && lines.due(running).is_none());
        let ticket = lines.draw(5, running);
        assert_eq!((lines.ahead(ticket, running), lines.due(running)), (0, Some(ticket)));
        assert!([0, 1, 12_345, u64::MAX].iter().all(|build| line_of(*build) < LINES));
    }
}
