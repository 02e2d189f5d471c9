//! A file a word. Each reads its options and the surroundings, writes what it has to say to `out`, and returns the exit
//! code; an error becomes one line and exit code 1.

pub(crate) mod clear;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod daemon;
pub(crate) mod doctor;
pub(crate) mod evict;
pub(crate) mod explain;
pub(crate) mod fsck;
pub(crate) mod gate;
pub(crate) mod image;
pub(crate) mod man;
pub(crate) mod remote;
pub(crate) mod run;
pub(crate) mod stats;
pub(crate) mod version;

use std::io::Write;

use anyhow::Result;
use comfy_table::{Table, presets};

/// All is well.
pub(crate) const FINE: u8 = 0;
/// There is a problem, and it was said.
pub(crate) const PROBLEM: u8 = 1;

/// A table without lines around anything.
fn plain_table() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table
}

fn print_table(table: &Table, out: &mut dyn Write) -> Result<()> {
    for line in table.lines() {
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

fn print_json(value: &serde_json::Value, out: &mut dyn Write) -> Result<()> {
    writeln!(out, "{value:#}")?;
    Ok(())
}
