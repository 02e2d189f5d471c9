//! Counts instructions by stepping through a program, and separates a program's memory and CPU time
//! from those of its children, which `wait4` adds up.
//!
//! - `steps` counts the instructions outside the kernel, for machines without processor counters
//!   and for programs whose system calls valgrind does not know. A million instructions take about
//!   ten seconds. A repeated instruction (`rep movsq`) counts once, as processors count it. Only
//!   the first thread is counted.
//! - `own` runs the program at full speed and stops it once, at its end.
//! - `hot` lists the functions that a program executes, for a linker script.

mod hot;
mod traced;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

/// The limit for stepping, which takes about ten minutes.
const INSTRUCTIONS_MAX: u64 = 30_000_000;

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    word: Word,
}

#[derive(Subcommand)]
enum Word {
    /// Run a program step by step and write how many instructions it executed
    Steps(Command),
    /// Run a program and write as JSON its own peak memory in kB, its own CPU time in ns, and the
    /// peak memory in kB of the largest process among it and its descendants
    Own(Command),
    /// Run a program with symbols step by step, and write the sections of the functions that it
    /// executed, as in `src/hot.ld`. A function of which a larger share was executed
    /// comes first
    Hot(Command),
}

#[derive(clap::Args)]
struct Command {
    /// The file that receives the result
    #[arg(long)]
    to: PathBuf,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

fn main() -> Result<ExitCode> {
    let (to, text, code) = match Cli::parse().word {
        Word::Steps(command) => {
            let (count, code) = traced::steps(&command.words, INSTRUCTIONS_MAX, |_| {})?;
            (command.to, count.to_string(), code)
        }
        Word::Hot(command) => {
            let program = command.words.first().context("no program is given")?;
            let mut hot = hot::Hot::of(program.as_ref())?;
            let (_, code) = traced::steps(&command.words, INSTRUCTIONS_MAX, |at| hot.executed(at))?;
            let (lines, functions) = hot.executed_of();
            eprintln!("executed {} kB of functions of {} kB", lines / 1000, functions / 1000);
            (command.to, hot.sections().join("\n"), code)
        }
        Word::Own(command) => {
            let (own, code) = traced::own(&command.words)?;
            let text = format!(
                "{{ \"peak_kb\": {}, \"cpu_ns\": {}, \"largest_kb\": {} }}",
                own.peak_kb, own.cpu_ns, own.largest_kb
            );
            (command.to, text, code)
        }
    };
    fs::write(&to, format!("{text}\n")).with_context(|| format!("cannot write {}", to.display()))?;
    match u8::try_from(code) {
        Ok(code) => Ok(ExitCode::from(code)),
        Err(_) => bail!("the program ended with {code}"),
    }
}
