//! Command-line options of `remote`.
//!
//! Unaware of: what the subcommands do.

use clap::{Args, Subcommand};

use super::as_json::AsJson;

/// Arguments of `remote`.
#[derive(Args)]
pub(crate) struct Remotes {
    #[command(subcommand)]
    pub(crate) word: RemotesWord,
}

/// Subcommands of `remote`.
#[derive(Subcommand)]
pub(crate) enum RemotesWord {
    /// Check whether each remote can be reached, read and written, and how fast; exit code 1 if one
    /// has a problem
    Check(AsJson),
    /// Upload every record of the store that the remotes do not have
    Push,
    /// Download what builds of the checked-out commit, or of an earlier one, used on other machines
    Pull,
    /// Wait until larderd has uploaded everything; exit code 1 if something is left
    Flush(RemotesFlush),
}

/// Options of `remote flush`.
#[derive(Args)]
pub(crate) struct RemotesFlush {
    /// The longest time to wait, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) timeout: u64,
}
