//! Puts files in place in every way there is, and says what each way costs; and what buffers cost that are not for
//! copying: for hashing, compressing and decompressing. `cargo xtask bench copy` runs it once for each file system.
//!
//! `ways` are the ways, `measure` runs them in turn; `tasks` is what is done with bytes beside, `buffers` runs that;
//! `memory` is what both need that is as new as in a process that was just started. All that is for Linux on x86-64, where its C code is built; `elsewhere`
//! is what can be measured on other systems.

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod buffers;
// Its test runs on Linux.
#[cfg(any(test, not(all(target_os = "linux", target_arch = "x86_64"))))]
mod elsewhere;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod measure;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod memory;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod tasks;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
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
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    Measure(measure::Options),
    /// Measure what this system has for it; one JSON object a line for each way and size
    #[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
    Measure(elsewhere::Options),
    /// Measure buffers for hashing, compressing and decompressing; one JSON object a line for each task and size
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    Buffers(buffers::Options),
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
        #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
        Word::Measure(options) => measure::measure(&options),
        #[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
        Word::Measure(options) => elsewhere::measure(&options),
        #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
        Word::Buffers(options) => buffers::buffers(&options),
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
