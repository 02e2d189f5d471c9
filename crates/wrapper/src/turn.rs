//! A turn at running an action: where another wrapper runs the same one, wait for it and look up again.
//!
//! Who waits holds no turn, so that nobody waits in a circle but through a tool that starts larder again. A compile's
//! tool does not; all else waits only where no larder is above it. And nobody waits longer than about the tool ran
//! before: a holder that is stopped, starved or far away costs that time, once.
//!
//! Signals do what they do to the tool: nothing of ours is installed while it has not been started.
//!
//! Unaware of: what makes two actions the same, how a turn is kept.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use larder_lookup::{Known, Request, is_compile};
use larder_model::Digest;
use larder_store::{Asked, Counters, Running, Stamps, Store, Turn};

use crate::context::{Context, OWN_FILE};
use crate::outer;

/// Where no record says how long the tool runs. Who runs it began earlier and so ends earlier, if it gets as much of
/// the machine; this bounds what one costs that does not. Longer than nearly all compiles take, short enough for a
/// person.
const UNKNOWN: Duration = Duration::from_secs(10);
/// Observing and recording come on top of a recorded run time: half as much again, and this.
const RECORDING: Duration = Duration::from_millis(100);
/// Between two looks at who has the turn: a sixteenth of the time waited so far, within these.
const STEPS: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(25)];
/// Found stopped in so many looks, one after the other, a process is stopped: one that is recorded or debugged stops
/// for moments.
const LOOKS: u32 = 3;
/// A process with more ancestors is taken for one inside of a larder.
const ANCESTORS_MAX: usize = 128;

/// What comes next for an action that no record answers.
pub(crate) enum Next {
    /// Run it. With a turn others can wait for us.
    Run(Option<Turn>),
    /// Somebody else ran it: look up again.
    LookAgain(Waited),
}

/// We have waited, and do not wait again.
#[derive(Clone, Copy)]
pub(crate) struct Waited(Duration);

impl Waited {
    /// For the log.
    pub(crate) fn words(&self) -> String {
        format!("after waiting {:.3} s for another that ran it", self.0.as_secs_f64())
    }

    /// Count a hit that came of it.
    pub(crate) fn count(&self, store: &Store) {
        if let Ok(counters) = Counters::open(store) {
            counters.count_waited();
        }
    }
}

/// Take the turn, or wait for who has it.
pub(crate) fn take(
    context: &Context,
    store: &Store,
    stamps: &Stamps,
    request: &Request,
    known: &Known,
    waited: Option<Waited>,
) -> Next {
    let settings = &context.loaded.settings;
    if !settings.wait || settings.read_only || settings.recache {
        return Next::Run(None);
    }
    let running = match store.ask_turn(&known.turn(request, &context.place, stamps)) {
        Asked::Ours(turn) => return Next::Run(Some(turn)),
        Asked::Others(running) => running,
        Asked::Nobodys => return Next::Run(None),
    };
    if waited.is_some() || !is_compile(request) && is_inside() {
        return Next::Run(None);
    }
    let bound = known.run_time_us(request, store).map_or(UNKNOWN, bound);
    let waited = wait(&running, bound);
    if is_as_it_was(request, stamps) { Next::LookAgain(Waited(waited)) } else { Next::Run(None) }
}

/// How long to wait for a tool that ran so long before.
fn bound(run_time_us: u64) -> Duration {
    let run_time = Duration::from_micros(run_time_us);
    run_time.saturating_add(run_time / 2).saturating_add(RECORDING)
}

/// Until it has ended, is stopped, or `bound` is over.
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

/// Whether a larder above us runs a command that we are part of: it may have the turn, or another that waits for it.
/// Where that cannot be told, it may be.
fn is_inside() -> bool {
    outer::is_there() || is_below_larder().unwrap_or(true)
}

fn is_below_larder() -> Option<bool> {
    let own = larder_sys::link_target(OWN_FILE.as_bytes()).ok()?;
    let mut pid = larder_sys::process_id();
    for _ in 0..ANCESTORS_MAX {
        pid = larder_sys::process_state(pid)?.1;
        if pid == 0 {
            return Some(false);
        }
        // Another user's cannot be seen, and has another store.
        let program = larder_sys::link_target(format!("/proc/{pid}/exe").as_bytes()).unwrap_or_default();
        if program == own || program.ends_with(b"/larder") {
            return Some(true);
        }
    }
    None
}

/// Whether what is in the key, and was read before we waited, is still so.
fn is_as_it_was(request: &Request, stamps: &Stamps) -> bool {
    content(&request.action.tool_path, stamps) == Some(request.action.tool)
        && request.first_source(stamps) == request.action.source
}

fn content(path: &[u8], stamps: &Stamps) -> Option<Digest> {
    let look = larder_sys::look_through(path).ok()?;
    let read = || stamps.hash(&mut File::open(Path::new(OsStr::from_bytes(path))).ok()?).ok();
    stamps.content(&look).or_else(read)
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
