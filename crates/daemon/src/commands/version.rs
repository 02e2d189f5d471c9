//! `larder version`: prints the version.

use std::io::Write;

use anyhow::Result;

use super::FINE;

/// Prints the name and the version.
pub(crate) fn run(out: &mut dyn Write) -> Result<u8> {
    writeln!(out, "larder {}", env!("CARGO_PKG_VERSION"))?;
    Ok(FINE)
}
