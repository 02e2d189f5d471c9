//! A request for a token, and the token itself: permission to run one tool.
//!
//! Unaware of: the queue, and which tokens are free.

use std::fs::File;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use larder_sys::{Class, SchedPolicy, Use, now_ms};

use super::memory::Needs;
use super::pool::Held;
use crate::starvation::{self, Start};

/// A request for a token.
#[derive(Clone, Copy, Debug)]
pub struct Asker {
    /// The resources that the tool is expected to need.
    pub needs: Needs,
    /// The tool may run below another tool that holds a token, so that token is tried first. If
    /// this is false, it is tried when there is no free token.
    pub is_inside: bool,
    /// False if the process that writes the tool's input may itself wait for a token. Then the tool
    /// takes a free token or none.
    pub may_wait: bool,
    /// True if this process becomes the tool, which then holds the token.
    pub is_handed_on: bool,
}

/// Permission to run one tool, until this is dropped. It may be empty: then the tool runs without a
/// token.
#[derive(Default)]
pub struct Token {
    pub(super) held: Option<Held>,
    pub(super) waited: Duration,
    pub(super) for_memory: bool,
    pub(super) gave_up: bool,
    pub(super) start: Option<Start>,
}

/// The answer to a request.
pub enum Taken {
    /// Run the tool.
    Token(Token),
    /// The result of the tool is no longer wanted.
    NotWanted,
}

impl Token {
    /// Returns how long the request waited.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// Returns true if it waited for memory at any time.
    pub fn waited_for_memory(&self) -> bool {
        self.for_memory
    }

    /// Returns true if the tool runs without a token because nothing had changed for too long.
    pub fn gave_up(&self) -> bool {
        self.gave_up
    }

    /// Returns the file with the lock, if a token is held. A program that inherits its descriptor
    /// holds the token.
    pub fn file(&self) -> Option<&File> {
        self.held.as_ref().map(Held::file)
    }

    /// Returns how to start the tool if it should be in this class. If tools in the class starve,
    /// it is started without it. Nothing is known about that if tokens are not used.
    pub fn sched_policy(&mut self, class: Class, cgroup: Option<&Path>) -> SchedPolicy {
        if let (Some(held), true) = (&self.held, class != Class::Inherit) {
            let starvation = held.pool().starvation();
            let word = starvation.load(Relaxed);
            let (start, next) = starvation::next(word, now_ms());
            // If several wrappers want to try, one does.
            let changed = next == word || starvation.compare_exchange(word, next, Relaxed, Relaxed).is_ok();
            let mut start = if changed { start } else { Start::AsInherited };
            if matches!(start, Start::Try | Start::Unknown) {
                let starves = larder_sys::would_starve();
                if starves || start == Start::Unknown {
                    note(starvation, start, starves);
                }
                start = match start {
                    _ if starves => Start::AsInherited,
                    Start::Unknown => Start::Lowered,
                    start => start,
                };
            }
            self.start = Some(start);
            if start == Start::AsInherited {
                return SchedPolicy::default();
            }
        }
        SchedPolicy::of(class, cgroup)
    }

    /// Reports the resources that the tool used, and how long it ran.
    pub fn note_usage(&self, used: Use, took: Duration) {
        if let (Some(held), Some(start), Some(starved)) = (&self.held, self.start, starvation::seen(used, took)) {
            note(held.pool().starvation(), start, starved);
        }
    }

    /// Returns true if the tool is started without its class because other tools starved in it.
    pub fn is_stepped_down(&self) -> bool {
        self.start == Some(Start::AsInherited)
    }
}

fn note(starvation: &AtomicU64, start: Start, starved: bool) {
    let _ = starvation.fetch_update(Relaxed, Relaxed, |word| Some(starvation::after(word, now_ms(), start, starved)));
}
