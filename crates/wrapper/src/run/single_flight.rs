//! Single-flight: if another wrapper runs the same action, waits for it so that the result can be
//! looked up again.
//!
//! Waiting cannot deadlock, for these reasons:
//!
//! - A process that waits holds no lock. So a cycle needs a tool that starts larder again.
//! - A compile never starts larder again.
//! - Any other command waits only if no larder is among its ancestors.
//! - No process waits much longer than the tool ran before. A holder that is stopped, starved or on
//!   another host costs that time once.
//!
//! Signals act on us as on the tool, because no handler is installed before the tool is started.
//!
//! Unaware of: what makes two actions the same, how the lock is kept.

use std::thread::sleep;
use std::time::{Duration, Instant};

use larder_lookup::{EarlierRecords, Request, is_compile};
use larder_store::{Asked, Counters, Running, StatCache, Store, Turn};

use super::parent_run;
use crate::own_file::OWN_FILE;
use crate::request_context::RequestContext;

/// The longest wait if no record says how long the tool runs. The holder began earlier, so it
/// normally ends earlier. This bounds the cost if the holder gets less processor time than we
/// would. Nearly all compiles take less.
const UNKNOWN: Duration = Duration::from_secs(10);
/// Extra time for observing and recording. The wait is the recorded run time, half as much again,
/// and this.
const RECORDING: Duration = Duration::from_millis(100);
/// The least and the longest time between two checks of the holder. In between it is a sixteenth of
/// the time waited.
const STEPS: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(25)];
/// The holder counts as stopped after this many checks in a row, because a process that is traced
/// stops for moments.
const LOOKS: u32 = 3;
/// A process with more ancestors counts as one inside a larder.
const ANCESTORS_MAX: usize = 128;

/// What comes next for an action that no record answers.
pub(crate) enum Next {
    /// Run the tool. If the lock is ours, other processes can wait for us.
    Run(Option<Turn>),
    /// Another process ran it, so look up again.
    LookAgain(Waited),
}

/// We have waited once, and will not wait again.
#[derive(Clone, Copy)]
pub(crate) struct Waited(Duration);

impl Waited {
    /// Returns the text for the log.
    pub(crate) fn message(&self) -> String {
        format!("after waiting {:.3} s for another process that ran it", self.0.as_secs_f64())
    }

    /// Counts a hit that came from waiting.
    pub(crate) fn count(&self, store: &Store) {
        if let Ok(counters) = Counters::open(store) {
            counters.count_waited();
        }
    }
}

/// Takes the single-flight lock, or waits for its holder.
pub(crate) fn take(cx: RequestContext, known: &EarlierRecords, waited: Option<Waited>) -> Next {
    let RequestContext { context, store, stat_cache, request } = cx;
    let settings = &context.loaded.settings;
    if !settings.wait || settings.read_only || settings.recache {
        return Next::Run(None);
    }
    let running = match store.ask_turn(&known.turn(request, &context.place, stat_cache)) {
        Asked::Ours(turn) => return Next::Run(Some(turn)),
        Asked::Others(running) => running,
        Asked::Nobodys => return Next::Run(None),
    };
    if waited.is_some() || !is_compile(request) && is_inside() {
        return Next::Run(None);
    }
    let bound = known.run_time_us(request, store).map_or(UNKNOWN, bound);
    let waited = wait(&running, bound);
    if is_as_it_was(request, stat_cache) { Next::LookAgain(Waited(waited)) } else { Next::Run(None) }
}

/// Returns the longest wait for a tool that took `run_time_us` before.
fn bound(run_time_us: u64) -> Duration {
    let run_time = Duration::from_micros(run_time_us);
    run_time.saturating_add(run_time / 2).saturating_add(RECORDING)
}

/// Waits until the holder has ended or is stopped, or until `bound` is over. Returns how long it
/// waited.
fn wait(running: &Running, bound: Duration) -> Duration {
    let (began, mut stopped) = (Instant::now(), 0);
    loop {
        let state = larder_sys::process_state(running.pid);
        let is_stopped = state.is_some_and(|(stopped, _)| stopped || larder_sys::is_frozen(running.pid));
        stopped = if is_stopped { stopped + 1 } else { 0 };
        let waited = began.elapsed();
        if waited >= bound || !running.goes_on() || stopped >= LOOKS {
            return waited;
        }
        sleep((waited / 16).clamp(STEPS[0], STEPS[1]).min(bound - waited));
    }
}

/// Returns true if we run inside another larder's command. That process may hold the lock, or wait
/// for the holder, so waiting could deadlock. Returns true if `/proc` is unreadable, because then
/// we cannot tell.
fn is_inside() -> bool {
    parent_run::is_there() || is_below_larder().unwrap_or(true)
}

fn is_below_larder() -> Option<bool> {
    let own = larder_sys::link_target(OWN_FILE.as_bytes()).ok()?;
    let mut pid = larder_sys::process_id();
    for _ in 0..ANCESTORS_MAX {
        pid = larder_sys::process_state(pid)?.1;
        if pid == 0 {
            return Some(false);
        }
        // The link of another user's process cannot be read, but such a process has another store.
        let program = larder_sys::link_target(format!("/proc/{pid}/exe").as_bytes()).unwrap_or_default();
        if program == own || program.ends_with(b"/larder") {
            return Some(true);
        }
    }
    None
}

/// Returns true if the tool and the first source still have the digests that are in the key.
fn is_as_it_was(request: &Request, stat_cache: &StatCache) -> bool {
    stat_cache.content_of(&request.action.tool_path) == Some(request.action.tool)
        && request.first_source(stat_cache) == request.action.source
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds() {
        assert_eq!(bound(1_000_000), Duration::from_millis(1600));
        assert_eq!(bound(0), RECORDING);
        bound(u64::MAX);
    }

    #[test]
    fn a_test_is_no_part_of_a_larder() {
        assert_eq!(is_below_larder(), Some(false));
    }
}
