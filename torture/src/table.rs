//! Markdown from the JSON of several runs: which cache is wrong in which cases.
//!
//! Unaware of: how cases are run.

use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// The classes and their subjects.
pub const CLASSES: &[(&str, &str)] = &[
    ("A", "inputs that appear, vanish or change"),
    ("B", "another place, another directory"),
    ("C", "outputs, and what the caller sees"),
    ("D", "trouble"),
    ("E", "configure and build tools"),
    ("F", "links, archives and other commands"),
    ("R", "rustc and cargo"),
    ("W", "classes A and B as part of a whole command"),
    ("N", "the same, with the cache inside as well"),
    ("G", "time, host, randomness, processor, limits"),
];

/// The results of one run.
struct Kept {
    name: String,
    cases: BTreeMap<String, Fate>,
}

#[derive(Clone, Copy, Default)]
struct Fate {
    ran: bool,
    wrong: bool,
    expected: usize,
    got: usize,
}

/// Returns a table of counts for each class and run, and the names of all cases that a cache gets
/// wrong.
pub fn markdown(files: &[PathBuf]) -> Result<String> {
    let runs: Vec<Kept> = files.iter().map(|file| load(file)).collect::<Result<_>>()?;
    let mut text = String::new();
    counts(&mut text, &runs)?;
    names(&mut text, &runs)?;
    Ok(text)
}

fn load(file: &Path) -> Result<Kept> {
    let bytes = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let json: Value = serde_json::from_slice(&bytes).with_context(|| format!("{} is no JSON", file.display()))?;
    let mut name = json["cache"].as_str().context("a run names its cache")?.to_owned();
    if let Some(observer) = json["observer"].as_str() {
        name = format!("{name} ({observer})");
    }
    let mut cases = BTreeMap::new();
    for case in json["cases"].as_array().into_iter().flatten() {
        let name = case["name"].as_str().context("a case has a name")?.to_owned();
        cases.insert(name, fate(case));
    }
    Ok(Kept { name, cases })
}

fn fate(case: &Value) -> Fate {
    let mut fate = Fate { ran: case["skipped"].is_null(), ..Fate::default() };
    for step in case["steps"].as_array().into_iter().flatten() {
        fate.wrong |= step["wrong"].as_array().is_some_and(|wrong| !wrong.is_empty());
        let expected = step["expected"] == true;
        fate.expected += usize::from(expected);
        fate.got += usize::from(expected && step["got"] == true);
    }
    fate
}

fn counts(text: &mut String, runs: &[Kept]) -> Result<()> {
    write!(text, "| class | cases |")?;
    for run in runs {
        write!(text, " {}: wrong | expected hits |", run.name)?;
    }
    writeln!(text, "\n|---|---:|{}", "---:|---:|".repeat(runs.len()))?;
    let all = ("", "all");
    for (class, about) in CLASSES.iter().chain([&all]) {
        let own = |name: &&String| class.is_empty() || name.split('/').next() == Some(class);
        let cases = runs.iter().flat_map(|run| run.cases.keys()).filter(own).collect::<BTreeSet<_>>();
        write!(text, "| {} | {} |", format!("{class} {about}").trim(), cases.len())?;
        for run in runs {
            let fates: Vec<Fate> = cases.iter().filter_map(|name| run.cases.get(*name)).copied().collect();
            let ran = fates.iter().filter(|fate| fate.ran).count();
            let wrong = fates.iter().filter(|fate| fate.wrong).count();
            let sum = |field: fn(&Fate) -> usize| fates.iter().map(field).sum::<usize>();
            let of = if ran == cases.len() { String::new() } else { format!(" of {ran}") };
            write!(text, " {wrong}{of} | {} of {} |", sum(|fate| fate.got), sum(|fate| fate.expected))?;
        }
        writeln!(text)?;
    }
    Ok(())
}

fn names(text: &mut String, runs: &[Kept]) -> Result<()> {
    for run in runs {
        writeln!(text, "\n### What {} gets wrong\n", run.name)?;
        let mut any = false;
        for (class, about) in CLASSES {
            let own = |name: &&String| name.split('/').next() == Some(class);
            let wrong = run.cases.iter().filter(|(_, fate)| fate.wrong).map(|(name, _)| name).filter(own);
            let wrong: Vec<String> = wrong.map(|name| format!("`{name}`")).collect();
            if !wrong.is_empty() {
                any = true;
                writeln!(text, "- {class}, {about} ({}): {}", wrong.len(), wrong.join(", "))?;
            }
        }
        if !any {
            writeln!(text, "Nothing.")?;
        }
    }
    Ok(())
}
