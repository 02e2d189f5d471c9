//! A package configured and made: a record of it plainly, one through ccache and one through larder, both warm, compared.
//!
//! `target/bench` then has the page of larder's record compared with the plain one, and the summary that CI would show.

use super::{Bench, done};
use crate::bench::measure::SETTLING;
use crate::bench::report::Report;
use crate::bench::whole::packages;
use crate::fetch;
use crate::launcher::Launcher;
use crate::run;
use crate::table::{NONE, Table};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::process::{Command, Stdio};

/// What is compared with what.
const COMPARED: [[&str; 2]; 3] = [["plain", "ccache"], ["plain", "larder"], ["ccache", "larder"]];
/// Rows of where a difference went.
const WENT: usize = 6;
const HEADER: &[&str] = &[
    "record",
    "wall s",
    "CPU s",
    "kernel s",
    "faults",
    "peak MiB",
    "processes",
    "others' CPU %",
    "hits",
    "misses",
    "bypasses",
    "recorder s",
];
const COMPARED_HEADER: &[&str] = &["A", "B", "what", "verdict", "A", "B", "B ÷ A"];

/// The packages that can be recorded, and what their reports are called.
const PACKAGES: [[&str; 3]; 2] =
    [["libx11", "record-libx11", "record-libx11-compared"], ["zlib", "record-zlib", "record-zlib-compared"]];
/// Their names, for the command line.
pub(super) const NAMES: [&str; 2] = [PACKAGES[0][0], PACKAGES[1][0]];

/// Records all three, and compares them.
pub(super) fn package(bench: &Bench, package: &str) -> Result<Vec<Report>> {
    let names = PACKAGES.into_iter().find(|names| names[0] == package).context("a package is named as listed")?;
    let stores = bench.work.join("package-stores");
    let ccache = Launcher::ccache(&fetch::ccache(bench.place)?, &stores.join("ccache"))?;
    let larder = Launcher::larder(&bench.larder, &stores.join("larder"))?;
    let mut records = Report {
        name: names[1],
        title: format!("Records of {package}, configured and made"),
        notes: vec![
            "One followed run each, in turn: configure and make -j2, compilers plain, behind ccache and behind larder, \
             whose stores hold the same build already. Hits, misses and bypasses are larder's."
                .to_owned(),
        ],
        table: Table::new(1, HEADER),
        ..Report::default()
    };
    for launcher in [&Launcher::plain(), &ccache, &larder] {
        let shown = record(bench, package, launcher)?;
        records.table.rows.push(row(launcher.name, &shown));
        records
            .rows
            .push(json!({ "record": launcher.name, "run": shown["runs"][0], "tools": shown["context"]["tools"] }));
    }
    let mut compared = Report {
        name: names[2],
        title: format!("Records of {package} compared: what `larder compare` says"),
        notes: vec![
            "Of one run a side it cannot tell, and says so; the pairs are of actions and processes.".to_owned(),
        ],
        table: Table::new(4, COMPARED_HEADER),
        ..Report::default()
    };
    for [a, b] in COMPARED {
        let said = bench.said(&["compare", &name(package, a), &name(package, b), "--json"])?;
        compared.table.rows.extend(comparison_rows(a, b, &said));
        compared.rows.push(said);
    }
    pages(bench, names)?;
    Ok(vec![records, compared])
}

fn name(package: &str, of: &str) -> String {
    format!("{package}-{of}")
}

/// Once without a record where there is a store to be filled, then with one; what `larder record show` says.
fn record(bench: &Bench, package: &str, launcher: &Launcher) -> Result<Value> {
    let (dir, prepare, script) = packages::again(bench.place, &bench.work, package, &launcher.compiler("gcc"))?;
    let ready = || done(Command::new("sh").args(["-c", &prepare]).current_dir(&dir)).map(drop);
    if launcher.program.is_some() {
        ready()?;
        let mut filling = Command::new("sh");
        bench.silently(filling.args(["-c", &script]), launcher, &dir);
        done(&mut filling)?;
        std::thread::sleep(SETTLING);
    }
    let mut command = bench.larder(launcher, &dir);
    command.args(["record", "--name", &name(package, launcher.name), "--output", "dropped", "--prepare", &prepare]);
    done(command.args(["--", "sh", "-c", &script]))?;
    bench.said(&["record", "show", &name(package, launcher.name), "--json"])
}

fn row(name: &str, shown: &Value) -> Vec<String> {
    let (end, explained) = (&shown["runs"][0]["end"], &shown["explained"]);
    let usage = |of: &str| end["usage"][of].as_f64().unwrap_or_default();
    let counts = |of: &str| match explained["actions"].as_array().is_some_and(|actions| !actions.is_empty()) {
        true => explained["counts"][of].to_string(),
        false => NONE.to_owned(),
    };
    vec![
        name.to_owned(),
        format!("{:.2}", end["wall_ns"].as_f64().unwrap_or_default() / 1e9),
        format!("{:.2}", (usage("user_us") + usage("system_us")) / 1e6),
        format!("{:.2}", usage("system_us") / 1e6),
        format!("{:.0}", usage("minor_faults") + usage("major_faults")),
        format!("{:.0}", usage("peak_bytes") / f64::from(1 << 20)),
        explained["processes"].as_array().map_or(0, Vec::len).to_string(),
        format!("{:.1}", end["foreign_share"].as_f64().unwrap_or_default() * 100.0),
        counts("hit"),
        counts("miss"),
        counts("bypass"),
        format!("{:.2}", end["recorder_us"].as_f64().unwrap_or_default() / 1e6),
    ]
}

/// What it says of each measure, of pairs, and where most of the difference went.
fn comparison_rows(a: &str, b: &str, said: &Value) -> Vec<Vec<String>> {
    let number = |value: &Value| value.as_f64().map_or_else(|| NONE.to_owned(), |number| format!("{number:.3}"));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |of: &str| said[of].as_array().cloned().unwrap_or_default();
    let mut rows = Vec::new();
    let mut push = |what: String, verdict: String, [one, other]: [String; 2], ratio: String| {
        rows.push(vec![a.to_owned(), b.to_owned(), what, verdict, one, other, ratio]);
    };
    for measure in list("measures") {
        let what = format!("{} {}", text(&measure["name"]), text(&measure["unit"]));
        let [one, other] = [0, 1].map(|side| number(&measure["medians"][side]));
        push(what.trim().to_owned(), text(&measure["verdict"]), [one, other], number(&measure["ratio"][0]));
    }
    for of in ["actions", "processes"] {
        let pairs = &said[of];
        if let Some(count) = pairs["count"].as_u64() {
            let alone = [0, 1].map(|side| format!("{} alone", pairs["alone"][side]));
            push(format!("{count} pairs of {of}"), text(&pairs["verdict"]), alone, number(&pairs["ratio"][0]));
        }
    }
    for went in list("by_kind").iter().take(WENT) {
        let ms = [0, 1].map(|side| format!("{:.0} ms", went["ms"][side].as_f64().unwrap_or_default()));
        push(format!("CPU of {}", text(&went["name"])), String::new(), ms, NONE.to_owned());
    }
    rows
}

/// The page of larder's record compared with the plain one, and the summaries.
fn pages(bench: &Bench, [package, report_name, _]: [&str; 3]) -> Result<()> {
    let results = bench.place.results()?;
    let mut report = bench.larder(&bench.launcher, &bench.work);
    let page = results.join(format!("{report_name}.html"));
    done(report.args(["report", &name(package, "larder"), "--against", &name(package, "plain"), "-o"]).arg(&page))?;
    println!("written: {}", page.display());
    let path = results.join(format!("{report_name}-summary.md"));
    let mut export = bench.larder(&bench.launcher, &bench.work);
    let text = run::output(
        export
            .args(["record", "export", &name(package, "larder"), "--as", "markdown"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped()),
    )?;
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    println!("written: {}", path.display());
    Ok(())
}
