//! Tokens are job slots. All builds of a user on a machine together run at most as many tools as
//! there are processors. A tool also waits until there is enough memory for it.
//!
//! | file | is | unaware of |
//! |---|---|---|
//! | `place.rs` | finds the one file that all wrappers of a user share | what is in it |
//! | `pool.rs` | the locked bytes, and the words that all wrappers share | how long a tool waits |
//! | `lines.rs` | the waiting lines, one per build, and which ticket is next | files, locks |
//! | `queue.rs` | how a tool waits, and for how long | bytes, files |
//! | `memory.rs` | whether there is memory for one more tool; pure | where the numbers come from |
//! | `company.rs` | whether other programs compete for processors; pure | how threads are counted |
//!
//! A token is a lock on one byte. The kernel releases it however its holder ends, and says which
//! process holds it. The words only say which tools wait and what for. If they are damaged, that
//! costs order and time, never a token.
//!
//! Waiting is bounded. A descendant of a holder borrows the holder's token. The first in the queue
//! borrows the tokens of stopped holders. After 30 s without any change, one tool runs without a
//! token. `docs/scheduling.md` lists the cases.
//!
//! Unaware of: what a tool is, and which tools take a token.

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

/// The tokens of a user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    /// The file; `None` stands for the user's own file on this machine.
    pub file: Option<PathBuf>,
    /// The number of tokens. 0 stands for the number of processors, and more while other programs
    /// want these all the time.
    pub jobs: u32,
}

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
    held: Option<Held>,
    waited: Duration,
    for_memory: bool,
    gave_up: bool,
    start: Option<Start>,
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
    pub fn manner(&mut self, class: Class, cgroup: Option<&Path>) -> Manner {
        if let (Some(held), true) = (&self.held, class != Class::Inherit) {
            let fare = held.pool().fare();
            let word = fare.load(Relaxed);
            let (start, next) = fare::next(word, now_ms());
            // If several wrappers want to try, one does.
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

    /// Reports the resources that the tool used, and how long it ran.
    pub fn fared(&self, used: Use, took: Duration) {
        if let (Some(held), Some(start), Some(starved)) = (&self.held, self.start, fare::seen(used, took)) {
            note(held.pool().fare(), start, starved);
        }
    }

    /// Returns true if the tool is started without its class because other tools starved in it.
    pub fn is_stepped_down(&self) -> bool {
        self.start == Some(Start::AsInherited)
    }
}

fn note(fare: &AtomicU64, start: Start, starved: bool) {
    let _ = fare.fetch_update(Relaxed, Relaxed, |word| Some(fare::after(word, now_ms(), start, starved)));
}

impl Tokens {
    /// Asks for a token, and waits for it. `wanted` is called now and then; if it returns false,
    /// waiting ends. If there is no file that can be locked, the tool runs at once.
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

    /// Returns the current state of the tokens. Returns an error if there is no file that can be
    /// locked.
    pub fn status(&self) -> std::io::Result<Status> {
        Ok(pool::Pool::new(place::open(self.file.as_deref())?, self.jobs)?.status())
    }
}
