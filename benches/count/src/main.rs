//! Counts what no other tool counts here: the instructions that a program executes outside the kernel, by stepping
//! through it, for machines that give no processor counters away and for programs whose system calls valgrind does not
//! know; and the memory and CPU time of the program itself apart from those of what it starts, which `wait4` adds up.
//!
//! `steps`: a million instructions take some ten seconds. A repeated instruction (`rep movsq`) counts once, as
//! processors count it. Only the program's first thread is counted. `own`: the program runs as fast as ever, and is
//! stopped once, when it ends. `hot`: which functions a program executes, as a linker script lists them.

mod hot;
mod traced;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

/// What executes more is not worth waiting for: this takes ten minutes.
const INSTRUCTIONS_MAX: u64 = 30_000_000;

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    word: Word,
}

#[derive(Subcommand)]
enum Word {
    /// Run a program step by step and write down how many instructions it executed
    Steps(Command),
    /// Run a program and write down, as JSON, its own peak memory in kB, its own CPU time in ns, and the peak memory in
    /// kB of the largest process among it and all that it waited for
    Own(Command),
    /// Run a program that has its names step by step, and write down the sections of the functions that it executed,
    /// as `crates/wrapper/hot.ld` lists them: first those of which most was executed
    Hot(Command),
}

#[derive(clap::Args)]
struct Command {
    /// Where the numbers go
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
            let program = command.words.first().context("no program is named")?;
            let mut hot = hot::Hot::of(program.as_ref())?;
            let (_, code) = traced::steps(&command.words, INSTRUCTIONS_MAX, |at| hot.executed(at))?;
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
