//! `cargo xtask bench scale`: measures parallel builds and large stores.
//!
//! | file | part |
//! |---|---|
//! | `jobs.rs` | `make` with more and more jobs: plain, all misses, all hits, half and half |
//! | `pair.rs` | two builds of one project at once, from an empty store |
//! | `records.rs` | one hit and one record, in stores with more and more records |
//! | `project.rs` | the project that is built |
//! | `rows.rs` | the table |
//! | `options.rs` | the options, and what all parts share |

mod jobs;
mod options;
mod pair;
pub(super) mod project;
mod records;
mod rows;

use crate::bench::report::Report;
use crate::place::{Place, fresh, remove};
use crate::table::Table;
use crate::{binaries, setup};
use anyhow::{Context, Result};
use std::fs;

pub(crate) use options::Options;
use options::{Bench, Part};

/// Measures the chosen parts.
pub(crate) fn scale(place: &Place, options: &Options) -> Result<Report> {
    setup::for_bench(place)?;
    let larder = binaries::larder(place, options.larder.as_deref())?;
    let work = place.own("bench-scale")?;
    fresh(&work)?;
    let home = work.join("home");
    fs::create_dir_all(&home).with_context(|| format!("cannot make {}", home.display()))?;
    let bench = Bench { larder, work, home, place, options };
    let mut report = Report {
        name: "scale",
        title: "Many at once, and much in the store".to_owned(),
        notes: rows::notes(options),
        table: Table::new(2, rows::HEADER),
        ..Report::default()
    };
    let chosen = |part| options.only.is_empty() || options.only.contains(&part);
    if chosen(Part::Jobs) {
        jobs::jobs(&bench, &mut report).context("builds with many jobs")?;
    }
    if chosen(Part::Pair) {
        pair::pair(&bench, &mut report).context("two builds at once")?;
    }
    if chosen(Part::Records) {
        records::records(&bench, &mut report).context("stores of many records")?;
    }
    remove(&bench.work)?;
    Ok(report)
}
