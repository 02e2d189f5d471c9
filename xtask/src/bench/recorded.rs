//! `cargo xtask bench … --record`: the benchmark is run below `larder record`, which keeps what its numbers have to be
//! believed with, beside its report; and the small form of that which is kept with an accepted report.
//!
//! The record is in `target/bench/records`. Processes are not followed: that would be measured too.

use crate::place::{Place, remove};
use crate::{binaries, run};
use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Others may use so much of the processors, as `larder compare` has it.
const FOREIGN_MAX: f64 = 0.05;
/// Of a machine, what says nothing about who owns it.
const MACHINE: &[&str] = &[
    "kernel",
    "system",
    "processor",
    "processors",
    "hypervisor",
    "governor",
    "boost",
    "memory_bytes",
    "swap_bytes",
    "huge_pages",
    "limits",
];

/// Run what was typed, `word` in front, once more below larder. `false` where it fails.
pub(super) fn again(place: &Place, word: Option<&str>) -> Result<bool> {
    let words: Vec<String> = std::env::args().skip(1).filter(|typed| typed != "--record").collect();
    let name = word.unwrap_or(super::compare::REPORT);
    let larder = binaries::larder(place, given(&words).as_deref())?;
    let results = place.results()?;
    let records = results.join("records");
    remove(&records.join(name))?;
    let mut command = Command::new(&larder);
    command.args(["record", "--trace", "never", "--name", name, "--dir"]).arg(&records);
    // What wrappers within would say costs them time.
    command.args(["--", "env", "-u", "LARDER_RECORD"]).arg(std::env::current_exe()?).args(words);
    let (status, _) = run::measured(&mut command)?;
    let mut export = Command::new(&larder);
    export.args(["record", "export", "--as", "json"]).arg(records.join(name)).stderr(Stdio::piped());
    let text = run::output(&mut export)?;
    let full: Value = serde_json::from_str(&text).context("an exported record is JSON")?;
    let path = beside(&results.join(format!("{name}.json")));
    std::fs::write(&path, format!("{:#}\n", small(&full)))
        .with_context(|| format!("cannot write {}", path.display()))?;
    println!("written: {}", path.display());
    Ok(status.success())
}

/// The larder that was named.
fn given(words: &[String]) -> Option<PathBuf> {
    let after = words.iter().position(|word| word == "--larder").and_then(|at| words.get(at + 1));
    let within = || words.iter().find_map(|word| word.strip_prefix("--larder="));
    after.map(String::as_str).or_else(within).map(PathBuf::from)
}

/// Where the small form of a report's record is.
pub(super) fn beside(report: &Path) -> PathBuf {
    report.with_extension("record.json")
}

/// The small form that is beside a report; `None` where it was not recorded.
pub(super) fn of(report: &Path) -> Result<Option<Value>> {
    let path = beside(report);
    match std::fs::read(&path) {
        Ok(bytes) => {
            let json = serde_json::from_slice(&bytes).with_context(|| format!("{} is no JSON", path.display()))?;
            Ok(Some(json))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => bail!("{}: {error}", path.display()),
    }
}

/// What the numbers have to be believed with, without places and names of this machine.
fn small(full: &Value) -> Value {
    let pick = |from: &Value, names: &[&str]| -> Map<String, Value> {
        names
            .iter()
            .map(|name| ((*name).to_owned(), from[*name].clone()))
            .filter(|(_, value)| !value.is_null())
            .collect()
    };
    let (record, context) = (&full["record"], &full["context"]);
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let tools: Vec<_> = list(&context["tools"]).iter().map(|tool| pick(tool, &["name", "version", "digest"])).collect();
    let digests: Vec<Value> =
        context["binaries"].as_object().into_iter().flatten().map(|(_, digest)| digest.clone()).collect();
    let runs: Vec<Value> = list(&full["runs"])
        .iter()
        .map(|run| {
            let mut end = pick(&run["end"], &["wall_ns", "exit_code", "usage", "foreign_share", "busy_share"]);
            let busiest: Vec<_> =
                list(&run["end"]["busiest"]).iter().map(|one| pick(one, &["name", "cpu_ms"])).collect();
            end.insert("busiest".to_owned(), json!(busiest));
            json!({ "before": run["before"], "end": end, "after": run["end"]["after"] })
        })
        .collect();
    json!({
        "larder": record["larder"],
        "began_s": record["began_s"],
        "machine": pick(&context["machine"], MACHINE),
        "project": pick(&context["project"], &["head", "diff_digest"]),
        "programs": digests,
        "tools": tools,
        "runs": runs,
    })
}

/// What of two small forms keeps their reports from being compared as they are: a line for each.
pub(super) fn doubts(a: Option<&Value>, b: Option<&Value>) -> Vec<String> {
    let mut lines = Vec::new();
    for (side, record) in [("A", a), ("B", b)] {
        let Some(record) = record else { continue };
        let shares =
            record["runs"].as_array().into_iter().flatten().filter_map(|run| run["end"]["foreign_share"].as_f64());
        let most = shares.fold(0.0, f64::max);
        if most > FOREIGN_MAX {
            lines.push(format!("{side}: others used {:.0} % of the processors while it was measured", most * 100.0));
        }
    }
    if let (Some(a), Some(b)) = (a, b) {
        let differ = MACHINE.iter().filter(|fact| a["machine"][**fact] != b["machine"][**fact]);
        lines.extend(differ.map(|fact| format!("not the same machine: {fact}")));
        let named = |record: &Value| -> std::collections::BTreeMap<String, Value> {
            let tools = record["tools"].as_array().cloned().unwrap_or_default();
            tools
                .iter()
                .map(|tool| (tool["name"].as_str().unwrap_or_default().to_owned(), tool["digest"].clone()))
                .collect()
        };
        let (one, other) = (named(a), named(b));
        let changed = one.iter().filter(|(name, digest)| other.get(*name).is_some_and(|its| its != *digest));
        lines.extend(changed.map(|(name, _)| format!("not the same tool: {name}")));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full(share: f64, gcc: &str) -> Value {
        json!({
            "record": { "larder": "0.1.0", "began_s": 1, "cwd": "/home/me", "environment": { "HOME": "/home/me" } },
            "context": {
                "machine": { "host": "mine", "boot": "b", "processor": "p", "file_systems": { "x": "/home" } },
                "project": { "top": "/home/me/x", "head": "abc" },
                "binaries": { "/home/me/larder": "d1" },
                "tools": [{ "name": "gcc", "path": "/home/me/gcc", "version": "12", "digest": gcc }],
            },
            "runs": [{ "end": { "wall_ns": 1, "foreign_share": share, "busiest": [{ "name": "x", "pid": 1, "cpu_ms": 2 }] } }],
            "explained": { "processes": [{ "argv": ["/home/me"] }] },
        })
    }

    #[test]
    fn the_small_form_names_no_places() {
        let small = small(&full(0.0, "d"));
        let text = small.to_string();
        assert!(!text.contains("/home") && !text.contains("mine"), "{text}");
        assert_eq!((&small["tools"][0]["digest"], &small["runs"][0]["end"]["wall_ns"]), (&json!("d"), &json!(1)));
        assert_eq!(small["project"]["head"], "abc");
    }

    #[test]
    fn what_is_to_be_doubted() {
        let (quiet, busy) = (small(&full(0.01, "d")), small(&full(0.2, "e")));
        assert!(doubts(Some(&quiet), Some(&quiet)).is_empty() && doubts(None, None).is_empty());
        let said = doubts(Some(&quiet), Some(&busy));
        assert_eq!(said, ["B: others used 20 % of the processors while it was measured", "not the same tool: gcc"]);
    }

    #[test]
    fn the_larder_that_was_named() {
        let words = |all: &[&str]| all.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        assert_eq!(given(&words(&["bench", "--larder", "x"])), Some("x".into()));
        assert_eq!(given(&words(&["bench", "--larder=y"])), Some("y".into()));
        assert_eq!(given(&words(&["bench", "hit"])), None);
    }
}
