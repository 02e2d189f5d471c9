//! What can be typed about remotes.
//!
//! Unaware of: what is done then.

use clap::{Args, Subcommand};

/// What `remote` takes.
#[derive(Args)]
pub(crate) struct Remotes {
    #[command(subcommand)]
    pub(crate) word: RemotesWord,
}

/// What is to be done with them.
#[derive(Subcommand)]
pub(crate) enum RemotesWord {
    /// Ask each remote whether it can be reached, read and written, and how fast; exit code 1 when one has a problem
    Check(RemotesCheck),
    /// Send every record of the store that the remotes do not have
    Push,
    /// Fetch what builds of the commit that is checked out here used elsewhere, or of a commit before it
    Pull,
    /// Wait until larderd has sent what was recorded; exit code 1 when something is left
    Flush(RemotesFlush),
}

/// Options of `remote check`.
#[derive(Args)]
pub(crate) struct RemotesCheck {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `remote flush`.
#[derive(Args)]
pub(crate) struct RemotesFlush {
    /// Wait no longer than so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) timeout: u64,
}
