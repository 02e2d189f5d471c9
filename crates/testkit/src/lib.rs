//! Support for black-box tests: a fresh directory per test, commands run directly and through
//! larder, counters, and fake tools.
//!
//! | file | holds |
//! |---|---|
//! | `binaries.rs` | the path of `larder`; cargo in this workspace |
//! | `place.rs` | a directory with its own store, home and temporary files |
//! | `programs.rs` | makes programs that a test runs |
//! | `run.rs` | a command, and its exit code, signal and output |
//! | `tree.rs` | a snapshot of a directory, to compare and to restore |
//! | `outcome.rs` | the counters of larder |
//! | `terminal.rs` | runs a command on a pseudo-terminal |
//! | `golden.rs` | compares an encoding with golden bytes that are kept as text |
//! | `server.rs`, `proxy.rs` | real servers, and a proxy that delays, stalls or cuts connections |
//! | `older.rs` | makes the mount calls of this kernel answer as those of an older kernel |
//! | `probe.rs` | what is installed and permitted here; a test that needs more is skipped |
//!
//! Unaware of: the internals of larder. Tests use only the programs that a user has.
#![forbid(unsafe_code)]

mod binaries;
mod golden;
mod older;
mod outcome;
mod place;
mod probe;
mod programs;
mod proxy;
mod run;
mod server;
mod terminal;
mod tree;

pub use binaries::{cargo, larder, larder_text, workspace};
pub use golden::{golden, golden_bytes};
pub use older::older;
pub use outcome::Counters;
pub use place::{Place, STORE_VERSION, files_below, set_mode};
pub use probe::{can_mount, has, is_full, is_ignored, is_root};
pub use programs::{copy_program, write_program};
pub use proxy::{Proxy, Way};
pub use run::{Ran, Run};
pub use server::{AZURE_KEYS, NGINX_PUT, S3_KEYS, Server, free_port, make_certificates, program};
pub use terminal::{on_terminal, typed_on_terminal, wholly_on_terminal};
pub use tree::{Tree, TreeEntry, TreeKind};

/// Ends the test here and prints why it is skipped, unless the probe is true.
#[macro_export]
macro_rules! probe_skip {
    ($probe:expr, $($why:tt)+) => {
        if !$probe {
            eprintln!("skipped: {}", format_args!($($why)+));
            return;
        }
    };
}
