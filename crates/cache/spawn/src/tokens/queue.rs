//! The queue for tokens: whose turn it is, and how long a tool waits.
//!
//! 1. If no tool waits and a token is free, the tool takes it at once.
//! 2. Otherwise the tool draws a ticket in the line of its build, and sleeps.
//! 3. A process that gives a token back wakes the next tool in turn, which takes the token.
//! 4. A waiter that was killed or stopped does not come. If a later waiter sees a free token twice
//!    that no waiter before it took, it takes the token and passes over them.
//! 5. A holder that is killed gives its token back silently. So the first in the queue also checks
//!    every 10 ms.
//! 6. The first in the queue may borrow the tokens of holders that are stopped or frozen, because a
//!    suspended build must not block another one.
//! 7. If no token was taken or given back for 30 s, one tool runs without a token.
//!
//! Unaware of: which bytes are locked, and the file.

use std::time::{Duration, Instant};

use super::fair_queue::Ticket;
use super::pool::Pool;
use super::token::{Asker, Taken, Token};

/// The pause between two checks of the first in the queue if it is not called.
const FIRST_LOOKS_EVERY: Duration = Duration::from_millis(10);
/// The pause of the others, per position behind the first.
const OTHERS_LOOK_EVERY: Duration = Duration::from_millis(20);
const PLACES_COUNTED: u32 = 10;
/// A free token that was seen this many times will not be taken by a waiter before us.
const FREE_LOOKS: u32 = 2;
/// The pause before memory is checked again after a refusal. A check may read every process.
const MEMORY_AGAIN: Duration = Duration::from_millis(200);
/// The pause between two checks for stopped holders. Each check opens a file per holder.
const STOPPED_LOOKS_EVERY: Duration = Duration::from_millis(200);
/// If no token was taken or given back for this long, one tool runs without a token. This is longer
/// than nearly all compiles take. The link of a large program may take longer, and then one more
/// tool runs. It is the last resort for cases that were not foreseen.
const STUCK: Duration = Duration::from_secs(30);
/// The pause between two checks whether tools do anything, while memory is waited for.
const BUSY_LOOKS_EVERY: Duration = Duration::from_millis(500);
/// How long a waiter that was passed over checks for a token itself, before it draws a new ticket.
const PASSED_OVER: Duration = Duration::from_millis(50);
/// Added to `STUCK` for each waiter ahead. Without this, all waiters would give up at the same
/// time.
const STUCK_FOR_EACH: Duration = Duration::from_secs(2);
/// The longest time between two checks that counts as unchanged. A waiter that was stopped or
/// frozen itself saw nothing meanwhile.
const UNSEEN_MAX: Duration = Duration::from_secs(1);
/// The process id reported for a holder in a pid namespace that is not visible from here.
const UNSEEN: u32 = 0;
/// The limit for the number of ancestors. A build has no deeper process tree.
const ANCESTORS_MAX: usize = 128;

/// Asks for a token, and waits for it.
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
            // By `is_inside` a process above us holds a token, but no visible ancestor does. So the
            // holder is outside of our pid namespace.
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

/// How a tool waited.
#[derive(Default)]
struct Waited {
    ticket: Option<Ticket>,
    /// How many were before it when it took the token.
    place: i64,
    for_memory: bool,
}

fn held(pool: Pool, at: (u32, u32), asker: Asker, began: Instant, after: Waited) -> Taken {
    let held = pool.hold(at, asker.needs, after.ticket);
    // Whose turn is next depends on which tool holds what, so this comes after `hold`.
    after.ticket.into_iter().for_each(|ticket| held.pool().served(ticket, after.place > 0));
    let waited = began.elapsed();
    Taken::Token(Token { held: Some(held), waited, for_memory: after.for_memory, ..Token::default() })
}

/// What a waiter remembers between two checks.
struct Waiting {
    /// Set if a process above us holds a token. Such a waiter stays out of the queue, whose first
    /// may be waiting for that holder.
    ancestors: Option<Vec<u32>>,
    /// The ticket whose turn it was when a free token was seen, and how many times in a row.
    free: Option<(Ticket, u32)>,
    /// When memory was refused, and the value of `moves` then.
    refused: Option<(Instant, u64)>,
    for_memory: bool,
    /// True if `for_memory` was true at any time.
    was_for_memory: bool,
    looked_at_stopped: Instant,
    moves: u64,
    /// How long no token was taken or given back. `looked` is the time of the last check.
    unmoved: Duration,
    looked: Instant,
    /// When to check again whether tools do anything.
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
            // Others are called and are faster, so it draws a new ticket.
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
            // The next waiter gives up after as long again, so that not all do it at once.
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
    /// Checks once for a token. `place` is how many are before us, and `in_line` how many of those
    /// are in our build's line.
    fn look(&mut self, pool: &Pool, asker: Asker, place: i64, in_line: i64) -> Option<(u32, u32)> {
        if let Some(above) = &self.ancestors
            && let Some(at) = pool.try_borrow(&|pid| above.contains(&pid))
        {
            return Some(at);
        }
        // This opens a file per holder. The first in a line does it, and the second one, in case
        // the first is stopped itself.
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
        // One tool may always run. A stopped holder does not count as running.
        self.for_memory = !pool.has_room(asker.needs) && pool.any_holder(&|pid| !is_stopped(pid));
        self.was_for_memory |= self.for_memory;
        self.refused = self.for_memory.then(|| (Instant::now(), pool.moves()));
        if self.for_memory {
            return None;
        }
        pool.try_take().or_else(|| if looks_at_stopped { pool.try_borrow(&is_stopped) } else { None })
    }

    /// Returns true if the waiter whose turn it is does not take a free token, although it was
    /// called.
    fn is_left_to_us(&mut self, pool: &Pool) -> bool {
        let Some(due) = pool.due() else { return true };
        let looks = self.free.filter(|(ticket, _)| *ticket == due).map_or(1, |(_, looks)| looks + 1);
        self.free = Some((due, looks));
        if looks < FREE_LOOKS {
            pool.call();
        }
        looks >= FREE_LOOKS && !pool.first_waits_for_memory()
    }

    /// Returns true if nothing has changed for too long. `place` is how many are before us; they
    /// would have noticed earlier.
    fn is_stuck(&mut self, pool: &Pool, place: i64) -> bool {
        let (moves, now) = (pool.moves(), Instant::now());
        let since = now.saturating_duration_since(self.looked).min(UNSEEN_MAX);
        self.unmoved = if moves == self.moves { self.unmoved + since } else { Duration::ZERO };
        (self.moves, self.looked) = (moves, now);
        // Memory becomes free when a tool ends, however long that takes. But if no tool does
        // anything any more, it may be waiting for us.
        let is_looked_at = self.for_memory && self.unmoved >= STUCK / 2 && now >= self.looks_at_busy;
        if is_looked_at {
            self.looks_at_busy = now + BUSY_LOOKS_EVERY;
            self.unmoved = if pool.any_busy() { Duration::ZERO } else { self.unmoved };
        }
        let before = u32::try_from(place).unwrap_or(0).min(PLACES_COUNTED);
        self.unmoved >= STUCK + STUCK_FOR_EACH * before
    }
}

/// Returns true if the process is stopped or frozen. A process that is not visible counts as
/// running.
fn is_stopped(pid: u32) -> bool {
    larder_sys::process_state(pid).is_some_and(|(stopped, _)| stopped || larder_sys::is_frozen(pid))
}

/// Borrows a token from a holder above us.
fn lent(pool: &Pool, ancestors: &mut Option<Vec<u32>>) -> Option<(u32, u32)> {
    let above = ancestors.get_or_insert_with(ancestors_of_ours);
    pool.try_borrow(&|pid| above.contains(&pid))
}

fn holds_above(pool: &Pool, ancestors: &mut Option<Vec<u32>>) -> bool {
    let above = ancestors.get_or_insert_with(ancestors_of_ours);
    pool.any_holder(&|pid| above.contains(&pid))
}

/// Returns the process ids of the visible ancestors of this process.
fn ancestors_of_ours() -> Vec<u32> {
    larder_sys::ancestors().take(ANCESTORS_MAX).collect()
}
