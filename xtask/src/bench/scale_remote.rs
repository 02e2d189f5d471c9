//! `cargo xtask bench scale-remote`: what teams of several sizes cost at a remote, by simulation (docs/scale.md).
//!
//! The program is `benches/scale`; here it is built and run. Nothing is measured, so there is no report of it.

use crate::place::Place;
use crate::{binaries, run};
use anyhow::Result;
use std::process::Command;

/// What `cargo xtask bench scale-remote` takes.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Passed on: --machines, --builds, --days, --units, sizes and prices; --help lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
    options: Vec<String>,
}

/// Prints the tables.
pub(crate) fn scale_remote(place: &Place, options: &Options) -> Result<()> {
    let program = binaries::bench(place, "larder-scale", "scale", None)?;
    run::shown_to_user(Command::new(program).args(&options.options))
}
