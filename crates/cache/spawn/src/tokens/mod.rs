//! Tokens are job slots. All builds of a user on a machine together run at most as many tools as
//! there are processors. A tool also waits until there is enough memory for it.
//!
//! | file | is | unaware of |
//! |---|---|---|
//! | `place.rs` | finds the one file that all wrappers of a user share | what is in it |
//! | `pool.rs` | the locked bytes, and the words that all wrappers share | how long a tool waits |
//! | `fair_queue.rs` | the waiting lines, one per build, and which ticket is next | files, locks |
//! | `token.rs` | a request, and the token that answers it | the queue |
//! | `queue.rs` | how a tool waits, and for how long | bytes, files |
//! | `memory.rs` | whether there is memory for one more tool; pure | where the numbers come from |
//! | `cpu_contention.rs` | whether other programs compete for processors; pure | how threads are counted |
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

mod cpu_contention;
mod fair_queue;
mod memory;
mod place;
mod pool;
mod queue;
mod token;

use std::path::PathBuf;

pub use memory::Needs;
pub use pool::{JOBS_MAX, Status};
pub use token::{Asker, Taken, Token};

/// The tokens of a user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    /// The file; `None` stands for the user's own file on this machine.
    pub file: Option<PathBuf>,
    /// The number of tokens. 0 stands for the number of processors, and more while other programs
    /// want these all the time.
    pub jobs: u32,
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
