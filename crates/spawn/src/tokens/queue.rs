//! Whose turn it is to have a token, and how long one waits for it.
//!
//! Who finds nobody waiting takes one that is free. All others draw a ticket in the line of their build, and whose turn
//! it is looks whenever one is given back. Who died in the queue, or was stopped there, leaves a gap: whoever sees a
//! free token twice that nobody before him took closes it.
//!
//! A holder that was killed gives back silently, so the first in the queue looks now and then by himself. And he lends
//! himself the tokens of holders that are stopped or frozen: a build that somebody suspended must not hold up another.

use std::time::{Duration, Instant};

use super::lines::Ticket;
use super::pool::Pool;
use super::{Asker, Taken, Token};

/// Between two looks of the first in the queue, if nobody calls.
const FIRST_LOOKS_EVERY: Duration = Duration::from_millis(10);
/// Of the others, for each place that they are behind him.
const OTHERS_LOOK_EVERY: Duration = Duration::from_millis(20);
const PLACES_COUNTED: u32 = 10;
/// Seen so often, a free token is one that nobody before us will take.
const FREE_LOOKS: u32 = 2;
/// Who asked for memory and was refused asks again after this: it means to look at every process.
const MEMORY_AGAIN: Duration = Duration::from_millis(200);
/// Between two looks at who is stopped, which costs a file for each holder.
const STOPPED_LOOKS_EVERY: Duration = Duration::from_millis(200);
/// Nothing was taken nor given back for so long: one more runs than there are tokens. Longer than nearly all compiles
/// take; a whole program's link may take longer, and then has company. It is the way out of whatever nobody has thought
/// of.
const STUCK: Duration = Duration::from_secs(30);
/// Between two looks whether tools do anything, where memory is waited for.
const BUSY_LOOKS_EVERY: Duration = Duration::from_millis(500);
/// Who was passed over looks for himself for so long.
const PASSED_OVER: Duration = Duration::from_millis(50);
/// More for each of those before, who may have been killed: else all in the queue would begin at once.
const STUCK_FOR_EACH: Duration = Duration::from_secs(2);
/// Between two looks no more than this counts of that: whoever was stopped or frozen himself saw nothing meanwhile.
const UNSEEN_MAX: Duration = Duration::from_secs(1);
/// What a holder in a namespace that cannot be seen into is called.
const UNSEEN: u32 = 0;
/// A process with more ancestors than this is none that a build starts.
const ANCESTORS_MAX: usize = 128;

/// Ask, and wait.
pub(super) fn take(pool: Pool, asker: Asker, wanted: &mut dyn FnMut() -> bool) -> Taken {
    let began = Instant::now();
    if !pool.has_locks() {
        return Taken::Token(Token::default());
    }
    pool.forget();
    let mut ancestors = None;
    let mut is_below_a_holder = false;
    if asker.is_inside {
        if let Some(at) = lent(&pool, &mut ancestors) {
            return held(pool, at, asker, began, Waited::default());
        }
        is_below_a_holder = holds_above(&pool, &mut ancestors);
        if !is_below_a_holder && pool.any_holder(&|pid| pid == UNSEEN) {
            // Somebody is around us, and it is none of those whom we see.
            ancestors.get_or_insert_with(ancestors_of_ours).push(UNSEEN);
            if let Some(at) = lent(&pool, &mut ancestors) {
                return held(pool, at, asker, began, Waited::default());
            }
            is_below_a_holder = true;
        }
    }
    if pool.nobody_waits()
        && pool.has_room(asker.needs)
        && let Some(at) = pool.try_take()
    {
        return held(pool, at, asker, began, Waited::default());
    }
    if !asker.is_inside {
        if let Some(at) = lent(&pool, &mut ancestors) {
            return held(pool, at, asker, began, Waited::default());
        }
        is_below_a_holder = holds_above(&pool, &mut ancestors);
    }
    if !asker.may_wait {
        return Taken::Token(Token::default());
    }
    wait(pool, asker, is_below_a_holder.then_some(ancestors).flatten(), began, wanted)
}

/// Who stood in the queue, and what for.
#[derive(Default)]
struct Waited {
    ticket: Option<Ticket>,
    /// How many were before him when he had his turn all the same.
    place: i64,
    for_memory: bool,
}

fn held(pool: Pool, at: (u32, u32), asker: Asker, began: Instant, after: Waited) -> Taken {
    let held = pool.hold(at, asker.needs, after.ticket);
    // Who is next depends on who has what.
    after.ticket.into_iter().for_each(|ticket| held.pool().served(ticket, after.place > 0));
    let waited = began.elapsed();
    Taken::Token(Token { held: Some(held), waited, for_memory: after.for_memory, ..Token::default() })
}

/// What a waiter remembers between two looks.
struct Waiting {
    /// Whoever is below a holder does not stand in the queue: its first may be waiting for that holder.
    ancestors: Option<Vec<u32>>,
    /// Whose turn it was when a free token was seen, and how often in a row.
    free: Option<(Ticket, u32)>,
    /// When memory was refused, and what had been taken and given back by then.
    refused: Option<(Instant, u64)>,
    for_memory: bool,
    /// It was, at some time.
    was_for_memory: bool,
    looked_at_stopped: Instant,
    moves: u64,
    /// How long nothing was seen to move, and when that was last looked at.
    unmoved: Duration,
    looked: Instant,
    /// When to look again whether tools do anything.
    looks_at_busy: Instant,
}

fn wait(
    pool: Pool,
    asker: Asker,
    ancestors: Option<Vec<u32>>,
    began: Instant,
    wanted: &mut dyn FnMut() -> bool,
) -> Taken {
    let build = ancestors.is_none().then(larder_sys::build_of_ours);
    let draw = || build.map(|build| pool.draw_ticket(build));
    let mut ticket = draw();
    let mut passed_over = None;
    let (moves, now) = (pool.moves(), Instant::now());
    let mut waiting = Waiting {
        ancestors,
        free: None,
        refused: None,
        for_memory: false,
        was_for_memory: false,
        looked_at_stopped: now,
        moves,
        unmoved: Duration::ZERO,
        looked: now,
        looks_at_busy: now,
    };
    loop {
        let seen = ticket.map(|ticket| pool.calls(ticket));
        let place = ticket.map_or(0, |ticket| pool.ahead(ticket));
        if place < 0 && passed_over.get_or_insert_with(Instant::now).elapsed() >= PASSED_OVER {
            // Others are called, and are faster: it stands in the queue again.
            (ticket, passed_over) = (draw(), None);
            continue;
        }
        let is_first = ticket.is_some() && place <= 0;
        if is_first {
            pool.look_for_company();
        }
        let in_line = ticket.map_or(0, |ticket| pool.ahead_in_line(ticket));
        let got = waiting.look(&pool, asker, place, in_line);
        let gives_up = got.is_none() && waiting.is_stuck(&pool, place);
        if gives_up {
            // The next one gives up after as long again: not all at once.
            pool.note_move();
        }
        if is_first && waiting.was_for_memory {
            pool.note_waits_for_memory(waiting.for_memory && got.is_none() && !gives_up);
        }
        if got.is_some() || gives_up || !wanted() {
            let Some(at) = got else {
                ticket.filter(|_| gives_up || is_first).into_iter().for_each(|ticket| pool.served(ticket, false));
                let waited = began.elapsed();
                return match gives_up {
                    true => Taken::Token(Token { waited, gave_up: true, ..Token::default() }),
                    false => Taken::NotWanted,
                };
            };
            return held(pool, at, asker, began, Waited { ticket, place, for_memory: waiting.was_for_memory });
        }
        let places = u32::try_from(place).unwrap_or(0).min(PLACES_COUNTED);
        let pause = if places == 0 { FIRST_LOOKS_EVERY } else { OTHERS_LOOK_EVERY * places };
        match ticket.zip(seen) {
            Some((ticket, seen)) => pool.wait_for_call(ticket, seen, pause),
            None => std::thread::sleep(pause),
        }
    }
}

impl Waiting {
    /// Once; `place` is how many are before us, `in_line` how many of our build.
    fn look(&mut self, pool: &Pool, asker: Asker, place: i64, in_line: i64) -> Option<(u32, u32)> {
        if let Some(above) = &self.ancestors
            && let Some(at) = pool.try_borrow(&|pid| above.contains(&pid))
        {
            return Some(at);
        }
        // It costs a file for each holder: the first does it, and the next one, should the first be stopped himself.
        let looks_at_stopped = in_line <= 1 && self.looked_at_stopped.elapsed() >= STOPPED_LOOKS_EVERY;
        let is_free = pool.has_free() || looks_at_stopped && pool.has_borrowable(&is_stopped);
        if !is_free {
            self.looked_at_stopped = if looks_at_stopped { Instant::now() } else { self.looked_at_stopped };
            self.free = None;
            self.for_memory = false;
            return None;
        }
        if place > 0 && !self.is_left_to_us(pool) {
            return None;
        }
        if self.refused.is_some_and(|(at, moves)| at.elapsed() < MEMORY_AGAIN && moves == pool.moves()) {
            return None;
        }
        // One may always run, and who is stopped does not.
        self.for_memory = !pool.has_room(asker.needs) && pool.any_holder(&|pid| !is_stopped(pid));
        self.was_for_memory |= self.for_memory;
        self.refused = self.for_memory.then(|| (Instant::now(), pool.moves()));
        if self.for_memory {
            return None;
        }
        pool.try_take().or_else(|| if looks_at_stopped { pool.try_borrow(&is_stopped) } else { None })
    }

    /// Whether he whose turn it is does not take a free token, though he was called.
    fn is_left_to_us(&mut self, pool: &Pool) -> bool {
        let Some(due) = pool.due() else { return true };
        let looks = self.free.filter(|(ticket, _)| *ticket == due).map_or(1, |(_, looks)| looks + 1);
        self.free = Some((due, looks));
        if looks < FREE_LOOKS {
            pool.call();
        }
        looks >= FREE_LOOKS && !pool.first_waits_for_memory()
    }

    /// Whether nothing has moved for too long; `place` is how many are before us, who would have seen it first.
    fn is_stuck(&mut self, pool: &Pool, place: i64) -> bool {
        let (moves, now) = (pool.moves(), Instant::now());
        let since = now.saturating_duration_since(self.looked).min(UNSEEN_MAX);
        self.unmoved = if moves == self.moves { self.unmoved + since } else { Duration::ZERO };
        (self.moves, self.looked) = (moves, now);
        // Memory comes when somebody ends, however long that takes: but not where no tool does anything any more, since
        // it waits for this one, say.
        let is_looked_at = self.for_memory && self.unmoved >= STUCK / 2 && now >= self.looks_at_busy;
        if is_looked_at {
            self.looks_at_busy = now + BUSY_LOOKS_EVERY;
            self.unmoved = if pool.any_busy() { Duration::ZERO } else { self.unmoved };
        }
        let before = u32::try_from(place).unwrap_or(0).min(PLACES_COUNTED);
        self.unmoved >= STUCK + STUCK_FOR_EACH * before
    }
}

/// Who cannot be seen is taken to run.
fn is_stopped(pid: u32) -> bool {
    larder_sys::process_state(pid).is_some_and(|(stopped, _)| stopped || larder_sys::is_frozen(pid))
}

/// A token that a holder above us lends.
fn lent(pool: &Pool, ancestors: &mut Option<Vec<u32>>) -> Option<(u32, u32)> {
    let above = ancestors.get_or_insert_with(ancestors_of_ours);
    pool.try_borrow(&|pid| above.contains(&pid))
}

fn holds_above(pool: &Pool, ancestors: &mut Option<Vec<u32>>) -> bool {
    let above = ancestors.get_or_insert_with(ancestors_of_ours);
    pool.any_holder(&|pid| above.contains(&pid))
}

/// The processes above us, as far as they can be seen.
fn ancestors_of_ours() -> Vec<u32> {
    let mut above = Vec::new();
    let mut pid = larder_sys::process_id();
    while above.len() < ANCESTORS_MAX {
        match larder_sys::process_state(pid) {
            Some((_, parent)) if parent != 0 => pid = parent,
            _ => break,
        }
        above.push(pid);
    }
    above
}
