//! Tokens: at most as many tools at once as there are processors, over all builds of a user on a machine, and none that
//! the memory is not there for.
//!
//! | file | is | unaware of |
//! |---|---|---|
//! | `place.rs` | the one file that all wrappers of a user find | what is in it |
//! | `pool.rs` | which bytes of it are locked, and the words in it that all see | who waits how long |
//! | `lines.rs` | the lines of those who wait, one for each build, and which is next | files, locks |
//! | `queue.rs` | what one does who waits, and for how long | bytes, files |
//! | `memory.rs` | whether there is memory for one more; pure | who is asked for numbers |
//! | `company.rs` | whether others want the processors all the time, so that more tools may run; pure | who counts them |
//!
//! A token is the lock of one byte: the kernel takes it back however its holder ends, and says who holds it. The words
//! only say who waits and what for: whatever becomes of them costs order and time, never a token.
//!
//! Nobody waits for ever. Who waits below a holder uses that one's token, who waits for somebody that is stopped passes
//! over him, and where nothing has moved for a while one runs without. `docs/scheduling.md` has the cases.
//!
//! Unaware of: what a tool is, which tools take a token.

mod company;
mod lines;
mod memory;
mod place;
mod pool;
mod queue;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use larder_sys::{Class, Manner, Use, now_ms};

pub use memory::Needs;
pub use pool::{JOBS_MAX, Status};

use crate::fare::{self, Start};
use pool::Held;

/// Which tokens there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    /// The file; `None` is the user's own of this machine.
    pub file: Option<PathBuf>,
    /// How many; 0 is as many as processors, and more beside programs that want these all the time.
    pub jobs: u32,
}

/// Who asks for one.
#[derive(Clone, Copy, Debug)]
pub struct Asker {
    /// What the tool is expected to need.
    pub needs: Needs,
    /// It may be below a tool that has a token: then that one's is looked for first. Where this is not known it is
    /// looked for once there is no other.
    pub is_inside: bool,
    /// Whoever writes what it reads may wait for a token himself: it takes one that is free or none.
    pub may_wait: bool,
    /// The process becomes the tool, and keeps it for that one.
    pub is_handed_on: bool,
}

/// Leave to run one tool, until it is dropped.
#[derive(Default)]
pub struct Token {
    held: Option<Held>,
    waited: Duration,
    for_memory: bool,
    gave_up: bool,
    start: Option<Start>,
}

/// What came of asking.
pub enum Taken {
    /// Run the tool.
    Token(Token),
    /// What the tool was for is no longer wanted.
    NotWanted,
}

impl Token {
    /// How long it was waited for.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// Whether that was for memory, at least for a while.
    pub fn waited_for_memory(&self) -> bool {
        self.for_memory
    }

    /// Whether the tool runs without one, since nothing had moved for long.
    pub fn gave_up(&self) -> bool {
        self.gave_up
    }

    /// The file by whose descriptor it is held, where it is: a program that inherits that holds the token.
    pub fn file(&self) -> Option<&File> {
        self.held.as_ref().map(Held::file)
    }

    /// How its tool is started that is to be of this class, as tools fare in it now. Where tokens are not used nothing
    /// is known of that.
    pub fn manner(&mut self, class: Class, cgroup: Option<&Path>) -> Manner {
        if let (Some(held), true) = (&self.held, class != Class::Inherit) {
            let fare = held.pool().fare();
            let word = fare.load(Relaxed);
            let (start, next) = fare::next(word, now_ms());
            // Of several who would try, one does.
            let changed = next == word || fare.compare_exchange(word, next, Relaxed, Relaxed).is_ok();
            let mut start = if changed { start } else { Start::AsInherited };
            if matches!(start, Start::Try | Start::Unknown) {
                let starves = larder_sys::would_starve();
                if starves || start == Start::Unknown {
                    note(fare, start, starves);
                }
                start = match start {
                    _ if starves => Start::AsInherited,
                    Start::Unknown => Start::Lowered,
                    start => start,
                };
            }
            self.start = Some(start);
            if start == Start::AsInherited {
                return Manner::default();
            }
        }
        Manner::of(class, cgroup)
    }

    /// Its tool used this and took so long.
    pub fn fared(&self, used: Use, took: Duration) {
        if let (Some(held), Some(start), Some(starved)) = (&self.held, self.start, fare::seen(used, took)) {
            note(held.pool().fare(), start, starved);
        }
    }

    /// Whether its tool is not started in its class, since others starved in it.
    pub fn is_stepped_down(&self) -> bool {
        self.start == Some(Start::AsInherited)
    }
}

fn note(fare: &AtomicU64, start: Start, starved: bool) {
    let _ = fare.fetch_update(Relaxed, Relaxed, |word| Some(fare::after(word, now_ms(), start, starved)));
}

impl Tokens {
    /// Ask for one, and wait for it. `wanted` is asked now and then whether the tool is still to run. Where there is no
    /// file that can be locked a tool runs at once.
    pub fn take(&self, asker: Asker, wanted: &mut dyn FnMut() -> bool) -> Taken {
        let open = || {
            let (file, size_bytes) = place::open(self.file.as_deref())?;
            let file = if asker.is_handed_on { larder_sys::out_of_the_way(file)? } else { file };
            pool::Pool::new((file, size_bytes), self.jobs)
        };
        match open() {
            Ok(pool) => queue::take(pool, asker, wanted),
            Err(_) => Taken::Token(Token::default()),
        }
    }

    /// What the tokens are doing now; an error where there is no file that can be locked.
    pub fn status(&self) -> std::io::Result<Status> {
        Ok(pool::Pool::new(place::open(self.file.as_deref())?, self.jobs)?.status())
    }
}
