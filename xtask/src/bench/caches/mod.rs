//! `cargo xtask bench caches`: measures everything that README.md's table compares with other
//! caches, and writes the table there, between two markers.
//!
//! | file | holds |
//! |---|---|
//! | `rust.rs` | a workspace with a crate of each kind, built by cargo through each cache |
//! | `shown.rs` | the table and its notes as Markdown |
//!
//! The other rows come from the torture suite and from the benchmarks `hit` and `image`.

mod rust;
mod shown;

use super::{all, image, machine};
use crate::place::Place;
use crate::{binaries, fetch, run, torture};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

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
    /// Measure this larder, with the larderd beside it, instead of building one
    #[arg(long, value_name = "PROGRAM")]
    larder: Option<PathBuf>,
}

/// How many rounds the images are measured.
const IMAGE_ROUNDS: u32 = 3;

/// The lines around the table in README.md.
const MARKERS: [&str; 2] = ["<!-- written by `cargo xtask bench caches`: -->", "<!-- until here -->"];

/// What was measured, from the name of a cache to its result.
pub(super) struct Found {
    pub(super) every: u16,
    pub(super) torture: BTreeMap<&'static str, Torture>,
    /// The median CPU time of a hit in ms as the benchmark prints it, for the case C and C++. The
    /// plain compile is called `plain`.
    pub(super) hits: [BTreeMap<String, String>; 2],
    pub(super) image: image::Usable,
    pub(super) rust: rust::Found,
    /// The caches that could not be measured, with the reasons.
    pub(super) missing: Vec<String>,
    pub(super) machine: Value,
    pub(super) date: String,
    pub(super) minutes: u64,
}

/// The results of the torture suite.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Torture {
    pub(super) wrong: usize,
    pub(super) ran: usize,
    /// From the class of a case to the hits that came and the hits that were expected.
    pub(super) hits: BTreeMap<String, (usize, usize)>,
}

/// Measures, and writes the table. Returns `false` if a result of larder was wrong.
pub(crate) fn caches(place: &Place, options: &Options) -> Result<bool> {
    let began = Instant::now();
    let larder = binaries::larder(place, options.larder.as_deref())?;
    // The caches are installed first, because that may take many minutes and may fail.
    let mut rust = rust::Caches::all(place, &larder)?;
    let found = Found {
        rust: rust.measure(place)?,
        hits: hits(place, options, &larder)?,
        image: image::usable(place, larder.clone(), IMAGE_ROUNDS)?,
        torture: torture_of_all(place, options.every, &larder, &mut rust.missing)?,
        every: options.every,
        missing: rust.missing,
        machine: machine::facts(place),
        date: run::output(Command::new("date").args(["-u", "+%-d %B %Y"]))?.trim().to_owned(),
        minutes: began.elapsed().as_secs().div_ceil(60),
    };
    let text = shown::table(&found)?;
    println!("\n{text}");
    if !options.print {
        let readme = place.repo.join("README.md");
        let old = fs::read_to_string(&readme).with_context(|| format!("cannot read {}", readme.display()))?;
        fs::write(&readme, replaced(&old, &text)?).with_context(|| format!("cannot write {}", readme.display()))?;
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
fn torture_of_all(
    place: &Place,
    every: u16,
    larder: &Path,
    missing: &mut Vec<String>,
) -> Result<BTreeMap<&'static str, Torture>> {
    let mut programs = vec![("larder", larder.to_owned()), ("ccache", fetch::ccache(place)?)];
    match fetch::installed(place, "sccache", super::rivals::SCCACHE, fetch::Build::No) {
        Ok(program) => programs.push(("sccache", program)),
        Err(error) => missing.push(format!("sccache: {error}")),
    }
    let mut found = BTreeMap::new();
    for (name, program) in programs {
        println!("── the torture suite with {name}");
        found.insert(name, Torture::read(&torture::results(place, name, &program, every)?)?);
    }
    Ok(found)
}

impl Torture {
    /// Reads the JSON of the suite.
    fn read(json: &Value) -> Result<Self> {
        let mut found = Self::default();
        for case in json["cases"].as_array().context("the suite's JSON has no list `cases`")? {
            if !case["skipped"].is_null() {
                continue;
            }
            let class = case["name"].as_str().and_then(|name| name.split('/').next()).context("a case has a name")?;
            let steps = case["steps"].as_array().context("a case has steps")?;
            let is_wrong = |step: &Value| step["wrong"].as_array().is_some_and(|wrong| !wrong.is_empty());
            found.ran += 1;
            found.wrong += usize::from(steps.iter().any(is_wrong));
            let (came, expected) = found.hits.entry(class.to_owned()).or_default();
            for step in steps.iter().filter(|step| step["expected"] == true) {
                *expected += 1;
                *came += usize::from(step["got"] == true);
            }
        }
        ensure!(found.ran > 0, "the torture suite ran no case");
        Ok(found)
    }
}

/// Runs the benchmark of a hit, and returns the CPU times of the cases C and C++.
fn hits(place: &Place, options: &Options, larder: &Path) -> Result<[BTreeMap<String, String>; 2]> {
    let line = format!("hit --runs {}", options.runs);
    let reports = all::one(place, &line, Some(larder))?;
    let table = &reports.first().context("the benchmark of a hit returned no report")?.table;
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
    use serde_json::json;

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
        replaced(&fs::read_to_string(readme).expect("is there"), "").expect("has markers");
    }

    #[test]
    fn cases_are_counted_by_class() {
        let step =
            |expected: bool, got: bool, wrong: &[&str]| json!({"expected": expected, "got": got, "wrong": wrong});
        let case = |name: &str, steps: &[Value]| json!({"name": name, "skipped": null, "steps": steps});
        let cases = [
            case("B/x", &[step(false, false, &[]), step(true, true, &[]), step(true, false, &["x.o"])]),
            case("B/y", &[step(true, true, &[])]),
            case("E/z", &[step(true, true, &["x.o"]), step(true, true, &["x.o"])]),
            json!({"name": "F/skipped", "skipped": "no clang", "steps": []}),
        ];
        let found = Torture::read(&json!({"cases": cases})).expect("is the suite's");
        let hits = [("B".to_owned(), (2, 3)), ("E".to_owned(), (2, 2))].into();
        assert_eq!(found, Torture { wrong: 2, ran: 3, hits });
        assert!(Torture::read(&json!({"cases": []})).is_err() && Torture::read(&json!({})).is_err());
    }
}
