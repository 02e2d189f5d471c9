//! The option of subcommands that only print something.

use clap::Args;

/// The option of subcommands that have no other.
#[derive(Args)]
pub(crate) struct AsJson {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
