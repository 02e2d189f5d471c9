//! `cargo xtask bench corpus`: builds Debian's source packages of several build systems plainly,
//! through larder, and as whole commands, each time in another place from which the earlier one is
//! gone. Every file is compared with a plain build in the very same place.
//!
//! The compilers are called by the same names in every build: `gcc` on `PATH` is a link to larder, or
//! in a plain build a link to the compiler in the same directory. So makefiles and other files that
//! name the compiler must be equal too.
//!
//! Unaware of: why a command missed. `larder explain` says that.

mod packages;
mod row;
mod site;

use super::figure::Figure;
use super::report::Report;
use crate::files::{self, fresh};
use crate::packages::packages;
use crate::place::Place;
use crate::{binaries, fetch, run, setup, tree};
use anyhow::{Result, ensure};
use packages::{NEEDED, PACKAGES, Package};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The options of `cargo xtask bench corpus`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Build only this package. Can be given several times
    #[arg(long, value_name = "PACKAGE")]
    only: Vec<String>,
    /// Build the small packages only
    #[arg(long)]
    short: bool,
    /// Keep the stores, the logs and the last place of each package
    #[arg(long)]
    keep: bool,
}

/// Measures all packages and returns the report. Fails if a file differs.
pub(crate) fn corpus(place: &Place, larder: &Path, options: &Options) -> Result<Report> {
    setup::for_builds(place)?;
    packages(NEEDED)?;
    let wanted = |package: &&Package| {
        (options.only.is_empty() || options.only.iter().any(|name| name == package.name))
            && (!options.short || package.is_small)
    };
    let title = "Debian's source packages, in places from which the earlier one is gone";
    let mut report = Report::new("corpus", title, 2, &NOTES);
    // Not in the target directory: a repository above a package would be a part of its place.
    let work = place.lasting()?.join("corpus");
    let mut differ = Vec::new();
    for package in PACKAGES.iter().filter(wanted) {
        let sources = match fetched(place, package) {
            Ok(dir) => dir,
            Err(error) => {
                report.notes.push(format!("{} is left out: {error:#}", package.name));
                continue;
            }
        };
        eprintln!("{}", package.name);
        let row = site::measure(&work.join(package.name), larder, package, sources, options.keep)?;
        row.add_to(&mut report.table, package);
        let ratio = Figure::ratio(
            format!("{}, larder warm elsewhere, CPU ÷ plain", package.name),
            &[row.warm.cpu.as_secs_f64()],
            &[row.plain.cpu.as_secs_f64()],
            None,
        );
        report.figures.extend(ratio);
        differ.extend(row.different().map(|what| format!("{}: {what}", package.name)));
    }
    if !differ.is_empty() {
        report.show();
    }
    ensure!(differ.is_empty(), "these files differ from a plain build's:\n{}", differ.join("\n"));
    Ok(report)
}

/// Returns the directory of a package's sources, ready to be configured.
fn fetched(place: &Place, package: &Package) -> Result<PathBuf> {
    let dir = fetch::debian(place, "corpus-sources", &[package.name])?;
    let sources = dir.join(package.name);
    let prepared = dir.join(format!("{}.prepared", package.name));
    if package.prepare.is_empty() || prepared.exists() {
        return Ok(if package.prepare.is_empty() { sources } else { prepared });
    }
    let part = dir.join(format!("{}.part", package.name));
    fresh(&part)?;
    tree::copy(&sources, &part)?;
    let log = dir.join(format!("{}.log", package.name));
    run::logged(Command::new("sh").args(["-c", package.prepare]).current_dir(&part), &log, || ())?;
    files::rename(&part, &prepared)?;
    Ok(prepared)
}

/// Runs the short form, for `cargo xtask test --full`.
pub(crate) fn short(place: &Place) -> Result<()> {
    let options = Options { only: Vec::new(), short: true, keep: false };
    corpus(place, &binaries::larder(place, None)?, &options).map(drop)
}

/// The notes below the table.
const NOTES: [&str; 4] = [
    "plain, cold, warm: configure and make together. CPU is user and system time of all processes; one build of \
     each kind. cold: larder in front of the compilers, an empty store. warm: in a second place; the first one was \
     removed.",
    "again: commands that reach larder if the build is repeated after the warm one. After a plain build it is done \
     as well, so 0 or the same number is right.",
    "whole: `larder run` for configure and for make, in three places of which only one exists at a time, with a \
     store of its own. whole again: commands that reach larder if make is repeated after that, without `larder run`.",
    "files: all that the build made, compared by bytes, modes and links with a plain build in the same place: after \
     the warm build, after a source was touched, edited and changed back, and after the whole commands. Left out: \
     logs, and files that differ between two plain builds.",
];
