//! Puts files in place in every way there is, and says what each way costs. `cargo xtask bench copy` runs it once for
//! each file system.
//!
//! `ways` are the ways, `memory` what they need that is as new as in a process that was just started, `measure` runs
//! them in turn.

mod measure;
mod memory;
mod ways;

use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand};
use std::fs::File;
use std::path::PathBuf;

/// Put files in place in every way, and say what each costs.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    word: Word,
}

#[derive(Subcommand)]
enum Word {
    /// Measure all ways; one JSON object a line for each way, size and state of the destination
    Measure(measure::Options),
    /// Put one file in place as larder does, so that its system calls can be looked at
    Once {
        /// The file that is there
        from: PathBuf,
        /// The file to make
        to: PathBuf,
    },
}

fn main() -> Result<()> {
    match Cli::parse().word {
        Word::Measure(options) => measure::measure(&options),
        Word::Once { from, to } => {
            let source = File::open(&from).with_context(|| format!("cannot open {}", from.display()))?;
            let size_bytes = source.metadata()?.len();
            let made = File::create_new(&to).with_context(|| format!("cannot make {}", to.display()))?;
            let copied = larder_sys::copy_bytes(&source, &made, size_bytes)?;
            ensure!(copied == size_bytes, "{copied} of {size_bytes} bytes were copied");
            Ok(())
        }
    }
}
