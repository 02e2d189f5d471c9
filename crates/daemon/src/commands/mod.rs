//! The subcommands, one file each. A subcommand gets its options and the surroundings, writes its
//! output to `out`, and returns the exit code. An error becomes one line on standard error and exit
//! code 1.

mod advice;
pub(crate) mod clear;
pub(crate) mod compare;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod daemon;
pub(crate) mod doctor;
pub(crate) mod evict;
pub(crate) mod explain;
pub(crate) mod fsck;
pub(crate) mod gate;
pub(crate) mod image;
pub(crate) mod init;
mod last_build;
pub(crate) mod man;
pub(crate) mod record;
pub(crate) mod remote;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod stats;
pub(crate) mod version;

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Result;
use comfy_table::{Cell, CellAlignment, Table, presets};

use crate::surroundings::read_bounded;

/// The exit code for success.
pub(crate) const FINE: u8 = 0;
/// The exit code for a problem that was printed.
pub(crate) const PROBLEM: u8 = 1;

/// How much of a file in a project is read, in bytes.
const PROJECT_FILE_BYTES_MAX: u64 = 64 << 20;

/// Reads a text file of a project. It is empty if it cannot be read.
fn project_text(path: &Path) -> String {
    let bytes = read_bounded(path, PROJECT_FILE_BYTES_MAX).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the directory and the directories in it, in which builds are usually configured.
fn below(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let listed = std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found: Vec<_> = listed.filter(|path| path.is_dir() && !path.is_symlink()).collect();
    found.sort();
    std::iter::once(directory.to_owned()).chain(found)
}

/// Returns a table without borders.
fn plain_table() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table
}

/// Returns a cell with a number, aligned to the right.
fn number(number: impl ToString) -> Cell {
    Cell::new(number).set_alignment(CellAlignment::Right)
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
