//! `cargo xtask bench configure` and `cargo xtask bench whole`: packages of autotools, CMake and Meson, configured, or
//! configured and made, plainly, with the compiler through a cache, and as whole commands through larder.
//!
//! Each step runs every grain in turn at one path, the plain one first: all others are compared with what that one
//! left, and their times divided by its.

mod compare;
mod grains;
mod masks;
pub(super) mod packages;
mod pass;
mod rows;

use crate::bench::report::Report;
use crate::place::{Place, fresh};
use crate::table::Table;
use crate::{binaries, setup};
use anyhow::Result;
use grains::Grain;
use packages::{Package, Phase};
use pass::{Bench, Pass, STEPS};
use std::fs;
use std::path::PathBuf;

/// What both take.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// zlib alone, plain and through larder alone
    #[arg(long)]
    quick: bool,
    /// Build only this package; may be given several times
    #[arg(long, value_name = "PACKAGE", value_parser = packages::NAMES)]
    only: Vec<String>,
    /// Measure only this grain beside the plain one; may be given several times
    #[arg(long, alias = "cache", value_name = "GRAIN", value_parser = grains::NAMES)]
    grain: Vec<String>,
    /// Give every source the present time, as a checkout does, instead of the archive's
    #[arg(long)]
    new_sources: bool,
    /// How many compilers make runs at once [default: one a processor]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Measure this larder, with its larderd beside it, instead of building one
    #[arg(long, value_name = "PROGRAM")]
    larder: Option<PathBuf>,
}

/// `cargo xtask bench configure`.
pub(crate) fn configure(place: &Place, options: &Options) -> Result<bool> {
    measure(place, options, "configure", "Configured by autotools, CMake and Meson", &[Phase::Configure])
}

/// `cargo xtask bench whole`.
pub(crate) fn whole(place: &Place, options: &Options) -> Result<bool> {
    measure(
        place,
        options,
        "whole",
        "Configured and made by autotools, CMake and Meson",
        &[Phase::Configure, Phase::Make],
    )
}

/// Measures what was chosen and publishes the report. `false` where something of larder's differs or fails.
fn measure(
    place: &Place,
    options: &Options,
    name: &'static str,
    title: &str,
    phases: &'static [Phase],
) -> Result<bool> {
    setup::for_bench_whole(place)?;
    let larder = binaries::larder(place, options.larder.as_deref())?;
    let work = place.own(&format!("bench-{name}"))?;
    fresh(&work)?;
    for dir in ["calls", "home", "kept", "logs"] {
        fs::create_dir_all(work.join(dir))?;
    }
    let calls = work.join("calls/front");
    let jobs = options.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let grains = grains::all(place, &larder, &work, &calls, options.quick)?;
    let chosen = |grain: &&Grain| {
        options.grain.is_empty() || grain.is_plain() || options.grain.iter().any(|name| name == grain.name)
    };
    let grains: Vec<&Grain> = grains.iter().filter(chosen).collect();
    let bench = Bench { work, calls, phases, jobs, new_sources: options.new_sources };
    let mut passes = Vec::new();
    for package in packages(options) {
        let sources = package.fetch(place)?;
        grains.iter().try_for_each(|grain| grain.empty())?;
        for step in STEPS {
            passes.extend(bench.step(package, &sources, step, &grains)?);
        }
        // It takes long: what was measured stays, whatever happens to the next package.
        report(name, title, &bench, &passes).write(place)?;
    }
    report(name, title, &bench, &passes).publish(place)?;
    Ok(rows::faults(passes.iter().filter(|pass| pass.is_larder)).is_empty())
}

fn report(name: &'static str, title: &str, bench: &Bench, passes: &[Pass]) -> Report {
    let times = if bench.new_sources { "the present" } else { "those of the archive" };
    let mut notes = vec![
        format!(
            "make and ninja with {} jobs; times of sources: {times}. CPU is user and system time of all processes of \
             the phase; \
             compiler CPU that of the compiler's calls, the cache in front of them included: a program that counts \
             calls stands in \
             front of every compiler, but not within `larder run`, where only larder's log tells of calls. Ratios are \
             to the plain \
             run at the same path in the same step.",
            bench.jobs
        ),
        "Calls are hits/calls where larder's log tells of them. Compared: every file, link and directory of the tree, \
         what the \
         commands said, and what `make -n` or `ninja -n` says afterwards."
            .to_owned(),
    ];
    notes.extend(rows::notes(passes, bench.phases));
    notes.extend(rows::faults(passes.iter()));
    Report {
        name,
        title: title.to_owned(),
        notes,
        table: Table { rows: rows::table(passes, bench.phases), ..Table::new(rows::WORDS, rows::HEADER) },
        rows: passes.iter().map(|pass| rows::json_row(pass, bench.phases)).collect(),
        ..Report::default()
    }
}

fn packages(options: &Options) -> impl Iterator<Item = &'static Package> {
    let (quick, only) = (options.quick, options.only.clone());
    packages::PACKAGES.iter().filter(move |package| match only.is_empty() {
        true => !quick || package.name == "zlib",
        false => only.iter().any(|name| name == package.name),
    })
}
