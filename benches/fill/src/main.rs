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
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    word: Word,
}

/// Which records are made, and for which store.
#[derive(Args)]
struct Which {
    /// The store's directory
    #[arg(long, value_name = "DIR")]
    store: PathBuf,
    /// The number of the first record: another call with other numbers adds others
    #[arg(long, default_value_t = 0, value_name = "N")]
    first: u64,
    /// How many
    #[arg(long, value_name = "N")]
    records: u64,
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
