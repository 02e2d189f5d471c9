//! `larder fsck`: verifies every record and every blob.

use std::io::Write;

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};

use super::{FINE, PROBLEM};
use crate::cli::Fsck;
use crate::say;
use crate::surroundings::Surroundings;

/// Verifies the store and lists problems.
pub(crate) fn run(around: &Surroundings, options: &Fsck, out: &mut dyn Write) -> Result<u8> {
    let store = around.store()?;
    let shown = store.directory().display();
    if !store.directory().exists() {
        writeln!(out, "{shown}: there is no store yet, so nothing to verify")?;
        return Ok(FINE);
    }
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} files, {eta} left")?;
    let bar = ProgressBar::new(0).with_style(style);
    let report = store.fsck(options.repair, &mut |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let report = report.context("not everything could be verified: check the owner and permissions of the files")?;
    for problem in &report.problems {
        writeln!(out, "{}", say::one_line(problem))?;
    }
    let what = format!(
        "{} with {}, {}, {}",
        say::count(report.manifests, "manifest", "manifests"),
        say::count(report.entries, "record", "records"),
        say::count(report.blobs, "blob", "blobs"),
        say::bytes(report.size_bytes)
    );
    let verdict = match (report.problems.len() as u64, options.repair) {
        (0, _) => "all sound".to_owned(),
        (count, true) => format!("{} repaired, as listed above", say::count(count, "problem", "problems")),
        (count, false) => {
            format!("{}; `larder fsck --repair` removes what is damaged", say::count(count, "problem", "problems"))
        }
    };
    writeln!(out, "{shown}: {what}: {verdict}")?;
    Ok(if report.problems.is_empty() { FINE } else { PROBLEM })
}
