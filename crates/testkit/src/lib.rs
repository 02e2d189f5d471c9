//! What black-box tests stand on: a fresh place per test, commands run plainly and through larder, counters, fake
//! tools.
//!
//! | file | holds |
//! |---|---|
//! | `binaries.rs` | where `larder` is |
//! | `place.rs` | a directory with its own store, home and temporary files |
//! | `run.rs` | a command and what came of it |
//! | `tree.rs` | the files of a directory, to compare and to put back |
//! | `outcome.rs` | what larder counted |
//! | `terminal.rs` | a command on a pseudo-terminal |
//! | `golden.rs` | exact bytes of a format, as text |
//! | `server.rs`, `proxy.rs` | real servers, and what makes them late, silent or gone |
//! | `older.rs` | this kernel as an older one, as far as mounting goes |
//! | `probe.rs` | is it installed, may we; if not, the test says so and ends |
//!
//! Unaware of: larder's insides. All of it goes through the programs that a user has.
#![forbid(unsafe_code)]

mod binaries;
mod golden;
mod older;
mod outcome;
mod place;
mod probe;
mod proxy;
mod run;
mod server;
mod terminal;
mod tree;

pub use binaries::{larder, workspace};
pub use golden::{golden, golden_bytes};
pub use older::older;
pub use outcome::Counters;
pub use place::Place;
pub use probe::{can_mount, has, is_full, is_ignored, is_root};
pub use proxy::{Proxy, Way};
pub use run::{Ran, Run};
pub use server::{AZURE_KEYS, NGINX_PUT, S3_KEYS, Server, free_port, program};
pub use terminal::{on_terminal, wholly_on_terminal};
pub use tree::{Entry, Kind, Tree};

/// End the test here, with a printed reason, unless the probe holds.
#[macro_export]
macro_rules! probe_skip {
    ($probe:expr, $($why:tt)+) => {
        if !$probe {
            eprintln!("skipped: {}", format_args!($($why)+));
            return;
        }
    };
}
