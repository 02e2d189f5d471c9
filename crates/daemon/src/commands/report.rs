//! `larder report`: writes an HTML page about a record.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};
use larder_record::compare::compare;
use larder_record::page;

use super::FINE;
use super::compare::wanted;
use super::record::place::open;
use crate::cli::Report;
use crate::say;
use crate::surroundings::Surroundings;

/// Writes the page, and prints its path.
pub(crate) fn run(around: &Surroundings, options: &Report, out: &mut dyn Write) -> Result<u8> {
    let record = open(around, &options.record)?;
    let comparison = match &options.against {
        None => None,
        Some(other) => Some(compare(&open(around, other)?, &record, &wanted(&options.judging)?)),
    };
    // Uses the file name of the record, because the name inside a record from elsewhere can be any
    // text.
    let file = std::path::absolute(&record.path)?;
    let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let name = name.strip_suffix(larder_record::PACKED).unwrap_or(&name).to_owned();
    let to = options.output.clone().unwrap_or_else(|| PathBuf::from(format!("{name}.html")));
    std::fs::write(&to, page(&record, comparison.as_ref())).with_context(|| to.display().to_string())?;
    writeln!(out, "{}", say::one_line(&to.display().to_string()))?;
    Ok(FINE)
}
