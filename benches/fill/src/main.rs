//! Puts many records into a store by the store's own functions, and prints what one costs, as a
//! JSON object.
//!
//! `made` makes a record, `store` writes it. `cargo xtask bench scale` runs this program.
#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

mod made;
mod store;

use anyhow::Result;
use clap::Parser;

fn main() -> Result<()> {
    println!("{}", store::store(&store::Options::parse())?);
    Ok(())
}
