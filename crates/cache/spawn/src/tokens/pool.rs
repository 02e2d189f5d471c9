//! The file of the tokens: bytes that are locked, and words that all wrappers share.
//!
//! ```text
//! locked bytes: byte = layer * 1,024 + token. Layer 0 is the token itself. The holder of layer n
//! can lend the token to the process that locks layer n + 1.
//!
//! words of 64 bits in native byte order; times are in ms since boot:
//! 2          how many times a token was taken or given back
//! 3          whether tools in a class are starved (starvation.rs)
//! 4          until when other programs compete for the processors (cpu_contention.rs)
//! 5          the counts from which that is derived
//! 6          the thread that is watched for it
//! 7          how long that thread had run or waited to run, in ns
//! 8          when word 7 was measured
//! 9          until when the first in the queue waits for memory
//! 64…127     changed when a ticket is called; its waiter sleeps on this word (futex)
//! 128…1151   the memory that the tool of each token is expected to need, in KiB
//! 1152…1407  the lines (fair_queue.rs)
//! 1408…2431  for each token: the line of its holder, and since when (fair_queue.rs)
//! ```
//!
//! Unaware of: how long a tool waits.

use std::fs::File;
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

use larder_sys::{FreeMemory, Words, now_ms};

use super::cpu_contention;
use super::fair_queue::{self, FairQueue, Ticket};
use super::memory::{self, Needs, Running};
use crate::starvation;

/// The maximum number of tools at once. No machine runs more.
pub const JOBS_MAX: u32 = 1024;
/// The number of layers, so a token can be lent on 15 times. A process further down needs a free
/// token.
const LAYERS_MAX: u32 = 16;

const MOVES: usize = 2;
const FARE: usize = 3;
const COMPANY_UNTIL: usize = 4;
const COMPANY: usize = 5;
const WATCHED: usize = 6;
const WATCHED_NS: usize = 7;
const WATCHED_SINCE: usize = 8;
const WAITS_FOR_MEMORY_UNTIL: usize = 9;
const CALLS: usize = 64;
const CALLS_COUNT: usize = 64;
const EXPECTED: usize = CALLS + CALLS_COUNT;
const LINES: usize = EXPECTED + JOBS_MAX as usize;
const HELD: usize = LINES + fair_queue::WORDS;
const WORDS: usize = HELD + JOBS_MAX as usize;
const BYTES: u64 = WORDS as u64 * 8;

/// How long the note that the first in the queue waits for memory stays valid. The first renews it
/// up to a hundred times a second.
const WAITS_FOR_MEMORY_MS: u64 = 500;

/// The tokens of a file.
pub(crate) struct Pool {
    file: File,
    words: Words,
    jobs: u32,
    /// No number was configured, so more tokens may be given out for a while.
    may_be_more: bool,
    /// The token of this process. The kernel shows the lock only to other processes.
    own: Option<u32>,
}

/// A byte that is locked until this is dropped.
pub(super) struct Held {
    pool: Pool,
    token: u32,
    layer: u32,
}

/// The state of the tokens, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The current number of tokens.
    pub jobs: u32,
    /// The process ids of the holders; 0 for a holder in a pid namespace that is not visible from
    /// here.
    pub holders: Vec<u32>,
    /// About how many tools wait.
    pub waiting: u64,
    /// The memory that the running tools are expected to need, in KiB.
    pub expected_kb: u64,
    /// True if tools are started without their class because they starved in it.
    pub stepped_down: bool,
}

impl Pool {
    /// Maps a file of this size in bytes.
    pub(super) fn new((file, mut size_bytes): (File, u64), jobs: u32) -> io::Result<Pool> {
        let may_be_more = jobs == 0;
        let jobs = if may_be_more { larder_sys::processors() } else { jobs }.min(JOBS_MAX);
        if size_bytes < BYTES {
            if larder_sys::file_size_is_limited() {
                // Growing the file would make the kernel kill this process (SIGXFSZ).
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            // This allocates real blocks, so that a full disk is an error now. It does not change
            // existing content.
            larder_sys::make_room(&file, BYTES)?;
            size_bytes = BYTES;
        }
        let words = Words::map(&file, size_bytes, WORDS, true)?;
        Ok(Pool { file, words, jobs, may_be_more, own: None })
    }

    /// Unlocks what this process locked before it became this program. A process sees its own locks
    /// as free, so one tool would get two tokens.
    pub(super) fn forget(&self) {
        let _ = larder_sys::unlock_bytes(&self.file, 0, u64::from(LAYERS_MAX) * u64::from(JOBS_MAX));
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        &self.words.words()[at]
    }

    /// Returns the state of `starvation.rs`.
    pub(crate) fn starvation(&self) -> &AtomicU64 {
        self.word(FARE)
    }

    // ------------------------------------------------------------ how many

    /// Returns how many tools may run now.
    fn jobs(&self) -> u32 {
        let more = || cpu_contention::is_there(self.word(COMPANY_UNTIL).load(Relaxed), now_ms());
        if self.may_be_more && more() { cpu_contention::more(self.jobs).min(JOBS_MAX) } else { self.jobs }
    }

    /// Checks whether other programs compete for the processors, if a check is due. Only called by
    /// the first in the queue.
    pub(super) fn look_for_company(&self) {
        let (word, now) = (self.word(COMPANY).load(Relaxed), now_ms());
        if !self.may_be_more || !cpu_contention::is_due(word, now) {
            return;
        }
        let Some(running) = larder_sys::wanting_to_run() else { return };
        let holders = self.ever_in_turn().filter(|token| self.holder(*token, 0).is_some()).count();
        // We run as well while we count. If a processor is free, nothing keeps the tools from it.
        // This matters in a container, which sees all that runs on its host.
        let somebody = running as usize > holders + 1 && running > larder_sys::allowed_processors();
        let (next, verdict) = cpu_contention::counted(word, now, somebody);
        let is_ours = self.word(COMPANY).compare_exchange(word, next, Relaxed, Relaxed).is_ok();
        if is_ours && verdict == Some(true) {
            self.judge_company(now);
        }
    }

    /// Checks whether the thread that was watched since the last verdict wants a processor all the
    /// time. If not, another thread is watched.
    fn judge_company(&self, now: u64) {
        let [thread, before, since] = [WATCHED, WATCHED_NS, WATCHED_SINCE].map(|at| self.word(at).load(Relaxed));
        let thread = u32::try_from(thread).ok().filter(|thread| *thread != 0);
        let wanted = thread.and_then(larder_sys::wanted_processor_ns);
        let more = wanted.and_then(|wanted| wanted.checked_sub(before));
        let is_it = more.is_some_and(|more| cpu_contention::never_rests(more, now.saturating_sub(since)));
        if is_it {
            self.word(COMPANY_UNTIL).store(now + cpu_contention::HOLDS_MS, Relaxed);
        }
        let same = thread.zip(wanted).filter(|_| is_it);
        let holders = || self.ever_in_turn().filter_map(|token| self.holder(token, 0)).collect::<Vec<_>>();
        let Some((thread, wanted)) = same.or_else(|| larder_sys::busiest_stranger(&holders())) else { return };
        let watched = [(WATCHED, u64::from(thread)), (WATCHED_NS, wanted), (WATCHED_SINCE, now)];
        watched.into_iter().for_each(|(at, value)| self.word(at).store(value, Relaxed));
    }

    // ------------------------------------------------------------ the queue's words

    fn lines(&self) -> FairQueue<'_> {
        FairQueue(&self.words.words()[LINES..HELD])
    }

    /// Returns what the running tools have used, by line, even if more tools run than `jobs`. The
    /// lock is checked as well, because a word may be stale: a holder that was killed, or that
    /// became its tool, did not clear it.
    fn running(&self) -> fair_queue::Running {
        let word = |token: u32| self.word(HELD + token as usize).load(Relaxed);
        let is_held = |token: u32| self.own == Some(token) || self.holder(token, 0).is_some();
        let held = (0..JOBS_MAX).filter(|token| word(*token) != 0 && is_held(*token));
        fair_queue::Running::of(held.map(word), now_ms())
    }

    pub(super) fn nobody_waits(&self) -> bool {
        self.lines().nobody_waits()
    }

    /// Draws a ticket in the line of this build.
    pub(super) fn draw_ticket(&self, build: u64) -> Ticket {
        self.lines().draw(fair_queue::line_of(build), || self.running())
    }

    /// Returns how many are before this ticket. It is 0 if it is this ticket's turn, and negative
    /// if it was passed over.
    pub(super) fn ahead(&self, ticket: Ticket) -> i64 {
        self.lines().ahead(ticket, || self.running())
    }

    /// Returns how many are before this ticket in the line of its build.
    pub(super) fn ahead_in_line(&self, ticket: Ticket) -> i64 {
        self.lines().ahead_in_line(ticket)
    }

    /// Returns the ticket whose turn it is, or `None` if no tool waits.
    pub(super) fn due(&self) -> Option<Ticket> {
        self.lines().due(|| self.running())
    }

    /// Removes this ticket from its line, and wakes the next one. If `passes_over` is set, it was
    /// served before others that did not come.
    pub(super) fn served(&self, ticket: Ticket, passes_over: bool) {
        self.lines().served(ticket, passes_over, || self.running());
        self.call();
    }

    /// Wakes the first in the queue, if any.
    pub(super) fn call(&self) {
        if let Some(ticket) = self.due() {
            self.words.wake(call_of(ticket));
        }
    }

    pub(super) fn calls(&self, ticket: Ticket) -> u64 {
        self.word(call_of(ticket)).load(SeqCst)
    }

    /// Waits until this ticket is called again after `seen`, or until the time is over.
    pub(super) fn wait_for_call(&self, ticket: Ticket, seen: u64, at_most: Duration) {
        self.words.wait(call_of(ticket), seen, at_most);
    }

    /// Returns a number that changes when a token is taken or given back.
    pub(super) fn moves(&self) -> u64 {
        self.word(MOVES).load(SeqCst)
    }

    pub(super) fn note_move(&self) {
        self.word(MOVES).fetch_add(1, SeqCst);
    }

    /// Notes that the first in the queue waits for memory, so that no other passes it. The first
    /// must renew the note.
    pub(super) fn note_waits_for_memory(&self, waits: bool) {
        let until = if waits { now_ms() + WAITS_FOR_MEMORY_MS } else { 0 };
        self.word(WAITS_FOR_MEMORY_UNTIL).store(until, Relaxed);
    }

    /// Returns true if the first in the queue noted lately that it waits for memory.
    pub(super) fn first_waits_for_memory(&self) -> bool {
        let (until, now) = (self.word(WAITS_FOR_MEMORY_UNTIL).load(Relaxed), now_ms());
        now < until && until <= now + WAITS_FOR_MEMORY_MS
    }

    // ------------------------------------------------------------ the bytes

    /// Takes a free token. Returns the token and its layer.
    pub(super) fn try_take(&self) -> Option<(u32, u32)> {
        self.in_turn().find(|token| self.lock(*token, 0)).map(|token| (token, 0))
    }

    /// Borrows a token, at the first layer where all holders above lend it. `lends` decides by
    /// process id.
    pub(super) fn try_borrow(&self, lends: &dyn Fn(u32) -> bool) -> Option<(u32, u32)> {
        self.ever_in_turn().find_map(|token| {
            let mut layer = 0;
            while lends(self.holder(token, layer)?) {
                layer += 1;
                if layer == LAYERS_MAX {
                    return None;
                }
                if self.lock(token, layer) {
                    return Some((token, layer));
                }
            }
            None
        })
    }

    /// Returns true if a token could be borrowed now.
    pub(super) fn has_borrowable(&self, lends: &dyn Fn(u32) -> bool) -> bool {
        self.ever_in_turn().any(|token| {
            let mut layers = (0..LAYERS_MAX).map(|layer| self.holder(token, layer));
            layers.find(|holder| !holder.is_some_and(lends)) == Some(None)
        })
    }

    /// Returns true if a token is held by a process that satisfies `is_such`.
    pub(super) fn any_holder(&self, is_such: &dyn Fn(u32) -> bool) -> bool {
        self.ever_in_turn().any(|token| (0..LAYERS_MAX).map_while(|layer| self.holder(token, layer)).any(is_such))
    }

    /// Returns the tokens that may be taken now.
    fn in_turn(&self) -> impl Iterator<Item = u32> + use<> {
        from_ours(self.jobs())
    }

    /// Returns the tokens that may be held. Some may have been taken when there were more.
    fn ever_in_turn(&self) -> impl Iterator<Item = u32> + use<> {
        from_ours(cpu_contention::more(self.jobs).min(JOBS_MAX))
    }

    fn lock(&self, token: u32, layer: u32) -> bool {
        larder_sys::try_lock_byte(&self.file, byte(token, layer)).unwrap_or(false)
    }

    /// Returns the process that holds this byte; 0 if it is in a pid namespace that is not visible
    /// from here.
    fn holder(&self, token: u32, layer: u32) -> Option<u32> {
        larder_sys::byte_locked_by(&self.file, byte(token, layer)).ok().flatten()
    }

    /// Returns true if there is a free token. Also charges the time of a holder that ended without
    /// giving its token back.
    pub(super) fn has_free(&self) -> bool {
        self.in_turn().any(|token| {
            let held = self.word(HELD + token as usize);
            let word = held.load(Relaxed);
            let is_free = self.holder(token, 0).is_none();
            if is_free && word != 0 && held.compare_exchange(word, 0, Relaxed, Relaxed).is_ok() {
                self.lines().charge(word, now_ms());
            }
            is_free
        })
    }

    /// Returns true if the file system supports locks.
    pub(super) fn has_locks(&self) -> bool {
        larder_sys::byte_locked_by(&self.file, 0).is_ok()
    }

    /// Returns true if a tool of any holder is doing something now, as far as that is visible.
    pub(super) fn any_busy(&self) -> bool {
        let holders: Vec<u32> = self.ever_in_turn().filter_map(|token| self.holder(token, 0)).collect();
        holders.contains(&0) || larder_sys::any_busy_below(&holders)
    }

    /// Returns true if no token is held.
    pub(super) fn is_idle(&self) -> bool {
        let all = u64::from(LAYERS_MAX) * u64::from(JOBS_MAX);
        matches!(larder_sys::bytes_locked_by(&self.file, 0, all), Ok(None))
    }

    /// Completes taking a token for a tool with these needs. `waited` is its ticket, if it waited.
    pub(super) fn hold(mut self, (token, layer): (u32, u32), needs: Needs, waited: Option<Ticket>) -> Held {
        if layer == 0 {
            self.word(EXPECTED + token as usize).store(needs.counted_kb(), Relaxed);
            self.note_holder(token, waited);
            self.own = Some(token);
        }
        self.note_move();
        Held { pool: self, token, layer }
    }

    /// Notes which line a token belongs to now. A token that was taken without waiting belongs to
    /// none. The previous line is charged for its time.
    fn note_holder(&self, token: u32, waited: Option<Ticket>) {
        let now = now_ms();
        let word = waited.map_or(0, |ticket| fair_queue::begun(ticket.line(), now));
        self.lines().charge(self.word(HELD + token as usize).swap(word, Relaxed), now);
    }

    // ------------------------------------------------------------ memory

    /// Returns true if there is enough memory for one more tool beside those that run. One tool can
    /// always run.
    pub(super) fn has_room(&self, needs: Needs) -> bool {
        let all = self.expected(&|_| true);
        let all = Running { expected_kb: all, has_kb: 0 };
        let enough_kb = memory::enough_kb(needs, all);
        let Some(free) = larder_sys::free_memory(enough_kb) else { return true };
        memory::has_room(needs, all, free) || self.is_idle() || self.has_room_after_all(needs, free)
    }

    /// Checks again, with the memory that the running tools really use. This is more exact, because
    /// words of killed holders are left out, and a tool that has run for a while already has what
    /// it needs.
    fn has_room_after_all(&self, needs: Needs, free: FreeMemory) -> bool {
        let tokens = (0..JOBS_MAX).filter(|token| self.expects(*token) > 0);
        let held: Vec<(u32, u32)> = tokens.filter_map(|token| Some((token, self.holder(token, 0)?))).collect();
        let expected_kb = held.iter().fold(0, |sum: u64, (token, _)| sum.saturating_add(self.expects(*token)));
        let holders: Vec<u32> = held.into_iter().map(|(_, holder)| holder).collect();
        let has_kb = larder_sys::resident_below_kb(&holders);
        memory::has_room(needs, Running { expected_kb, has_kb }, free)
    }

    fn expects(&self, token: u32) -> u64 {
        self.word(EXPECTED + token as usize).load(Relaxed)
    }

    fn expected(&self, counts: &dyn Fn(u32) -> bool) -> u64 {
        let tokens = (0..JOBS_MAX).filter(|token| self.expects(*token) > 0 && counts(*token));
        tokens.fold(0, |sum: u64, token| sum.saturating_add(self.expects(token)))
    }

    pub(super) fn status(&self) -> Status {
        let held = |token: &u32| self.holder(*token, 0).is_some();
        Status {
            jobs: self.jobs(),
            holders: (0..JOBS_MAX).filter_map(|token| self.holder(token, 0)).collect(),
            waiting: self.lines().count(),
            expected_kb: self.expected(&|token| held(&token)),
            stepped_down: starvation::is_stepped_down(self.starvation().load(Relaxed), now_ms()),
        }
    }
}

/// Returns the numbers of this many tokens. Each process starts at a different number, so that they
/// collide less.
fn from_ours(jobs: u32) -> impl Iterator<Item = u32> {
    let first = larder_sys::process_id() % jobs;
    (0..jobs).map(move |at| (first + at) % jobs)
}

fn call_of(ticket: Ticket) -> usize {
    CALLS + ticket.one_of(CALLS_COUNT)
}

fn byte(token: u32, layer: u32) -> u64 {
    u64::from(layer) * u64::from(JOBS_MAX) + u64::from(token)
}

impl Held {
    pub(super) fn file(&self) -> &File {
        &self.pool.file
    }

    pub(super) fn pool(&self) -> &Pool {
        &self.pool
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let pool = &mut self.pool;
        pool.own = None;
        if self.layer == 0 {
            pool.word(EXPECTED + self.token as usize).store(0, Relaxed);
            pool.note_holder(self.token, None);
        }
        let _ = larder_sys::unlock_byte(&pool.file, byte(self.token, self.layer));
        pool.note_move();
        pool.call();
    }
}
