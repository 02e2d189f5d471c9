//! `cargo xtask bench caches`: measures everything that README.md's table compares with other
//! caches, and writes the table there, between two markers.
//!
//! | file | holds |
//! |---|---|
//! | `found.rs` | the results, before they are put into a table |
//! | `rust.rs` | a workspace with a crate of each kind, built by cargo through each cache |
//! | `shown.rs` | the table and its notes as Markdown |
//!
//! The other rows come from the torture suite and from the benchmarks `hit` and `image`.

mod found;
mod rust;
mod shown;

use super::{hit, image};
use crate::place::Place;
use crate::{fetch, files, machine, torture};
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use self::found::{Found, Torture};

/// The options of `cargo xtask bench caches`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Run only every N-th case of the torture suite. 1 runs all of them, which takes half an hour
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    every: u16,
    /// The number of rounds in which a hit is measured
    #[arg(long, default_value_t = 40, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Print the table, and do not change README.md
    #[arg(long)]
    print: bool,
}

/// How many rounds the images are measured.
const IMAGE_ROUNDS: u32 = 3;

/// The lines around the table in README.md.
const MARKERS: [&str; 2] = ["<!-- `cargo xtask bench caches` replaces what follows -->", "<!-- until here -->"];

/// Measures, and writes the table. Returns `false` if a result of larder was wrong.
pub(crate) fn caches(place: &Place, larder: &Path, options: &Options) -> Result<bool> {
    let began = Instant::now();
    // The caches are installed first, because that may take many minutes and may fail.
    let caches = rust::Caches::all(place, larder)?;
    let missing = caches.missing.clone();
    let found = Found {
        rust: caches.measure()?,
        hits: hits(place, options, larder)?,
        image: image::usable(place, larder, IMAGE_ROUNDS)?,
        torture: torture_of_all(place, options.every, larder)?,
        every: options.every,
        missing,
        machine: machine::facts(place),
        date: machine::date("%-d %B %Y")?,
        minutes: began.elapsed().as_secs().div_ceil(60),
    };
    let text = shown::table(&found)?;
    println!("\n{text}");
    if !options.print {
        let readme = place.repo.join("README.md");
        let old = files::read(&readme)?;
        files::write(&readme, replaced(&old, &text)?)?;
        println!("written: {}", readme.display());
    }
    Ok(found.torture.get("larder").is_some_and(|larder| larder.wrong == 0))
}

/// Returns the document with `text` between the markers.
fn replaced(document: &str, text: &str) -> Result<String> {
    let [begin, end] = MARKERS;
    let (before, rest) = document.split_once(begin).with_context(|| format!("README.md has no line {begin}"))?;
    let (_, after) = rest.split_once(end).with_context(|| format!("README.md has no line {end}"))?;
    Ok(format!("{before}{begin}\n\n{text}\n{end}{after}"))
}

/// Runs the torture suite with each cache that it knows.
fn torture_of_all(place: &Place, every: u16, larder: &Path) -> Result<BTreeMap<&'static str, Torture>> {
    let mut programs = vec![("larder", larder.to_owned()), ("ccache", fetch::ccache(place)?)];
    for (name, version) in super::rivals::OF_RUST {
        // If one is missing, the builds by cargo have noted it.
        let program = fetch::installed(place, name, version, fetch::Build::No);
        programs.extend(program.ok().map(|program| (name, program)));
    }
    let mut found = BTreeMap::new();
    for (name, program) in programs {
        println!("── the torture suite with {name}");
        found.insert(name, Torture::read(&torture::results(place, name, &program, every)?)?);
    }
    Ok(found)
}

/// Runs the benchmark of a hit, and returns the CPU times of the cases C and C++.
fn hits(place: &Place, options: &Options, larder: &Path) -> Result<[BTreeMap<String, String>; 2]> {
    let table = hit::hit(place, larder, &hit::Options { runs: options.runs })?.table;
    let column = table.header.iter().position(|name| name == "CPU ms").context("it has no column `CPU ms`")?;
    let case = |case: &str| -> BTreeMap<String, String> {
        let rows = table.rows.iter().filter(|row| row[0] == case);
        rows.map(|row| (row[1].clone(), row[column].clone())).collect()
    };
    let both = ["C", "C++"].map(case);
    ensure!(both.iter().all(|case| case.contains_key("larder")), "the benchmark of a hit has no row for larder");
    Ok(both)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_put_between_the_markers() {
        let [begin, end] = MARKERS;
        let document = format!("# a\n\n{begin}\n\nold\n\n{end}\n\n# b\n");
        let new = replaced(&document, "new\n").expect("has markers");
        assert_eq!(new, format!("# a\n\n{begin}\n\nnew\n\n{end}\n\n# b\n"));
        assert_eq!(replaced(&new, "new\n").expect("has markers"), new);
        assert!(replaced("# a\n", "new\n").is_err() && replaced(begin, "new\n").is_err());
    }

    #[test]
    fn the_readme_has_the_markers() {
        let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
        replaced(&files::read(readme).expect("is there"), "").expect("has markers");
    }
}
