//! Makes many records, as wrappers make them: `store` puts them into a store by the store's own functions, and says
//! what one costs by then; `hand` hands them over to a larderd that listens, as wrappers in sandboxes do.
//!
//! `made` makes a record, `store` and `hand` are the two words. Prints one JSON object.
#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

mod hand;
mod made;
mod store;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    word: Word,
}

#[derive(Subcommand)]
enum Word {
    /// Put records into a store
    Store(store::Options),
    /// Hand records over to larderd, and wait until it has recorded them
    Hand(hand::Options),
}

fn main() -> Result<()> {
    let said = match Cli::parse().word {
        Word::Store(options) => store::store(&options)?,
        Word::Hand(options) => hand::hand(&options)?,
    };
    println!("{said}");
    Ok(())
}
