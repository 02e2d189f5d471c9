//! Tables and figures of the image benchmark.

use super::jobs;
use super::measured::{All, Measured};
use super::tree::{Kind, Tree};
use super::ways::{
    AGAIN, FIVE_CHANGED, LAZY, LAZY_FAR, LAZY_FAR_ONE, MOUNTED, SAVED, TAR, UNPACKED, UNPACKED_FAR, UNPACKED_FAR_ONE,
    UNTAR,
};
use crate::bench::figure::{self, Figure};
use crate::bench::report::Report;
use crate::run::Usage;
use crate::table::Table;
use anyhow::{Context, Result};
use larder_samples::{median, quantile};
use serde_json::json;

/// The upper limit for the wall time until a tree from a remote can be used, in seconds, for any
/// size.
const GOAL_USABLE_S: f64 = 0.5;
/// The upper limit for the CPU time of the same, in seconds.
const GOAL_USABLE_CPU_S: f64 = 0.1;
/// The upper limit for the time until nine packages were loaded from it, as a share of the time
/// with tar and zstd.
const GOAL_USED: f64 = 1.0 / 8.0;
/// The upper limit for the CPU time of reading a whole mounted tree ÷ reading plain files.
const GOAL_READ: f64 = 2.0;
/// The upper limit for the memory of saving, in MB.
const GOAL_SAVE_MB: f64 = 300.0;
/// The upper limit for the CPU time of saving again without changes ÷ tar and zstd.
const GOAL_WARM: f64 = 1.0;
/// The upper limit for the CPU time of unpacking ÷ tar and zstd.
const GOAL_UNPACK: f64 = 1.0 / 1.5;
/// The upper limit for the new bytes after five packages changed, as a share of all bytes.
const GOAL_AGAIN: f64 = 0.05;
/// The upper limit for the wall time of twenty times as many files from a remote ÷ the smaller
/// tree.
const GOAL_TWENTYFOLD: f64 = 2.0;

const HEADER: &[&str] =
    &["what", "MB", "wall s", "MB/s", "CPU s", "CPU ÷ tar + zstd", "written MB", "used, wall s", "used, CPU s"];

/// Returns the report of all ways to save and restore a tree.
pub(super) fn of_ways(tree: &Tree, all: &All, rounds: u32, about: &str) -> Result<Report> {
    let left_out = match &*all.left_out {
        [] => String::new(),
        names => format!("Left out, because it failed: {}. ", names.join("; ")),
    };
    let used = match tree.kind {
        Kind::Packages => "\"Used\" is `require()` of nine packages in node directly afterwards.",
        _ => "",
    };
    let (name, title) = match tree.kind {
        Kind::Repository => ("image-maven", "Images of few large files: a Maven repository"),
        _ => ("image", "Images of directories"),
    };
    let mut report = Report {
        name,
        title: title.to_owned(),
        notes: vec![format!(
            "{}. Medians of {rounds} rounds, interleaved; the page cache is warm. far: 20 ms round trip, 200 MB/s \
             per connection. {about} {left_out}{used}",
            tree.shown()
        )],
        table: Table::new(1, HEADER),
        ..Report::default()
    };
    for one in &all.measured {
        let base = all.needed(if one.way.saves { TAR } else { UNTAR })?;
        let (wall, cpu) = (one.wall(), one.cpu());
        let used = |of: fn(&Usage) -> f64| match one.used.is_empty() {
            true => "–".to_owned(),
            false => format!("{:.2}", quantile(one.used.iter().map(of).collect(), 1, 2)),
        };
        let speed = if wall > 0.0 { tree.bytes as f64 / 1e6 / wall } else { 0.0 };
        report.table.rows.push(vec![
            one.way.name.to_owned(),
            one.bytes.map_or("–".to_owned(), |bytes| format!("{:.2}", bytes as f64 / 1e6)),
            format!("{wall:.2}"),
            format!("{speed:.0}"),
            format!("{cpu:.2}"),
            format!("{:.2}", cpu / base.cpu()),
            format!("{:.0}", quantile(one.written.clone(), 1, 2) as f64 / 1e6),
            used(|usage| usage.wall.as_secs_f64()),
            used(|usage| usage.cpu.as_secs_f64()),
        ]);
        report.rows.push(row(tree, one));
    }
    report.figures = figures(tree, all)?;
    Ok(report)
}

fn row(tree: &Tree, one: &Measured) -> serde_json::Value {
    let samples: Vec<_> = one.samples.iter().map(|u| json!([u.wall.as_secs_f64(), u.cpu.as_secs_f64()])).collect();
    json!({
        "files": tree.files, "way": one.way.name, "bytes": one.bytes, "wall_cpu_s": samples,
        "written_bytes": one.written, "until_used_s": one.until_used(), "peak_kb": one.peak_kb,
    })
}

/// Returns the figures that are compared between reports. The goals are for a tree of many small
/// files.
fn figures(tree: &Tree, all: &All) -> Result<Vec<Figure>> {
    let goal = |goal: f64| (tree.kind == Kind::Packages).then_some(goal);
    let mut figures = Vec::new();
    for (over, under, most) in [(AGAIN, TAR, GOAL_WARM), (UNPACKED, UNTAR, GOAL_UNPACK)] {
        let (these, those) = (all.needed(over)?.cpus(), all.needed(under)?.cpus());
        figures.extend(Figure::ratio(format!("{over}: CPU ÷ tar"), &these, &those, goal(most)));
    }
    if let Some(changed) = all.find(FIVE_CHANGED).and_then(|one| one.bytes) {
        let whole = all.needed(SAVED)?.bytes.context("it says how much it saved")?;
        let name = "larder, five packages changed: new ÷ all";
        figures.extend(Figure::ratio(name, &[changed as f64], &[whole as f64], goal(GOAL_AGAIN)));
    }
    if let Some(lazy) = all.find(LAZY) {
        figures.extend(usable(lazy, LAZY));
        if !lazy.used.is_empty() {
            let name = format!("{LAZY}, nine packages loaded: wall ÷ tar");
            let tar = all.needed(UNTAR)?.until_used();
            figures.extend(Figure::ratio(name, &lazy.until_used(), &tar, goal(GOAL_USED)));
        }
    }
    for (one_stream, several) in [(UNPACKED_FAR_ONE, UNPACKED_FAR), (LAZY_FAR_ONE, LAZY_FAR)] {
        if let (Some(one), Some(all)) = (all.find(one_stream), all.find(several)) {
            figures.extend(Figure::ratio(format!("{several}: wall ÷ one stream"), &all.walls(), &one.walls(), None));
        }
    }
    figures.push(Figure::peak("larder, saved: peak MB", all.needed(SAVED)?.peak_kb, goal(GOAL_SAVE_MB)));
    Ok(figures)
}

/// Returns the figures of the time until a tree from a remote can be used.
fn usable(lazy: &Measured, name: &str) -> Vec<Figure> {
    let [wall, cpu] =
        [(lazy.walls(), "s", GOAL_USABLE_S), (lazy.cpus(), "CPU s", GOAL_USABLE_CPU_S)].map(|(samples, unit, goal)| {
            let found = median(&samples)?;
            Some(Figure { name: format!("{name}: usable, {unit}"), kind: figure::Kind::Count, found, goal: Some(goal) })
        });
    wall.into_iter().chain(cpu).collect()
}

/// Returns the report of the jobs on restored and mounted trees.
pub(super) fn of_jobs(tree: &Tree, all: &All) -> Result<Report> {
    let (name, title) = match tree.kind {
        Kind::Repository => ("image-maven-jobs", "Jobs over a Maven repository that was had"),
        _ => ("image-jobs", "Jobs over a tree that was had"),
    };
    let mut report = Report {
        name,
        title: title.to_owned(),
        notes: vec![
            "Of the last round, one after the other, directly after the tree was restored; with the CPU time of brokers."
                .to_owned(),
        ],
        table: Table::new(2, &["tree", "job", "wall s", "CPU s", "wall ÷ plain files", "CPU ÷ plain files"]),
        ..Report::default()
    };
    let with_jobs: Vec<&Measured> = all.measured.iter().filter(|one| !one.jobs.is_empty()).collect();
    let plain = all.needed(UNTAR)?;
    for one in &with_jobs {
        for (job, (usage, base)) in jobs::JOBS.iter().zip(one.jobs.iter().zip(&plain.jobs)) {
            let (Some(usage), Some(base)) = (usage, base) else { continue };
            let [wall, cpu] = [usage.wall, usage.cpu].map(|time| time.as_secs_f64());
            let [base_wall, base_cpu] = [base.wall, base.cpu].map(|time| time.as_secs_f64());
            let mut row = vec![one.way.name.to_owned(), job.name.to_owned()];
            row.extend([wall, cpu, wall / base_wall, cpu / base_cpu].map(|number| format!("{number:.2}")));
            report.table.rows.push(row);
            report.rows.push(json!({ "way": one.way.name, "job": job.name, "wall_s": wall, "cpu_s": cpu }));
            if one.way.name == MOUNTED && job.name == jobs::READ_ALL {
                let name = format!("{MOUNTED}, all read: CPU ÷ plain files");
                report.figures.extend(Figure::ratio(name, &[cpu], &[base_cpu], Some(GOAL_READ)));
            }
        }
    }
    Ok(report)
}

/// Returns the report of one tree in several sizes. The smallest comes first.
pub(super) fn of_sizes(sizes: &[(Tree, All)], rounds: u32) -> Result<Report> {
    let mut report = Report {
        name: "image-sizes",
        title: "Images of trees of several sizes".to_owned(),
        notes: vec![format!(
            "Packages of the tree, all of it, and two copies of it. Medians of {rounds} rounds; the page cache is warm."
        )],
        table: Table::new(2, &["files", "what", "wall s", "CPU s", "CPU ÷ tar + zstd", "peak MB"]),
        ..Report::default()
    };
    for (tree, all) in sizes {
        for one in &all.measured {
            let base = all.needed(if one.way.saves { TAR } else { UNTAR })?;
            report.table.rows.push(vec![
                tree.files.to_string(),
                one.way.name.to_owned(),
                format!("{:.3}", one.wall()),
                format!("{:.3}", one.cpu()),
                format!("{:.2}", one.cpu() / base.cpu()),
                format!("{:.0}", one.peak_kb as f64 / 1e3),
            ]);
            report.rows.push(row(tree, one));
        }
    }
    let ((few, of_few), (many, of_many)) = sizes.first().zip(sizes.last()).context("there are several")?;
    if let (Some(few_lazy), Some(many_lazy)) = (of_few.find(LAZY), of_many.find(LAZY)) {
        report.figures.extend(usable(many_lazy, &format!("{LAZY}, {} files", many.files)));
        let name = format!("{LAZY}: wall, {} ÷ {} files", many.files, few.files);
        report.figures.extend(Figure::ratio(name, &many_lazy.walls(), &few_lazy.walls(), Some(GOAL_TWENTYFOLD)));
    }
    let peak = of_many.needed(SAVED)?.peak_kb;
    report.figures.push(Figure::peak(format!("larder, {} files saved: peak MB", many.files), peak, Some(GOAL_SAVE_MB)));
    let (again, tar) = (of_many.needed(AGAIN)?.cpus(), of_many.needed(TAR)?.cpus());
    report.figures.extend(Figure::ratio(
        format!("{AGAIN}, {} files: CPU ÷ tar", many.files),
        &again,
        &tar,
        Some(GOAL_WARM),
    ));
    Ok(report)
}
