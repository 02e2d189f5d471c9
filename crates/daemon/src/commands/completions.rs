//! `larder completions`: prints shell completions.

use std::io::Write;

use anyhow::Result;

use super::FINE;
use crate::cli::{Completions, Shell, description};

/// Prints the completions for a shell.
pub(crate) fn run(options: &Completions, out: &mut dyn Write) -> Result<u8> {
    let shell = match options.shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    // Into memory first: the generator panics if its writer fails, and the pipe may be closed.
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut description(), "larder", &mut text);
    out.write_all(&text)?;
    Ok(FINE)
}
