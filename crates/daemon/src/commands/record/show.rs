//! Prints records as text.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use anyhow::Result;
use comfy_table::Cell;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use larder_record::schema::{Run, RunEnd};
use larder_record::summary::{Counts, causes, unlike};
use larder_record::{Listed, Record, export, list as all, processes};

use super::duration::{middle, took};
use crate::commands::last_build;
use crate::commands::{FINE, number, plain_table, print_json, print_table};
use crate::say;

/// The number of causes that are shown. `explain --last-build` and the report show all.
const CAUSES_MAX: usize = 5;
/// The number of characters of a command that are shown. `--json` shows all.
const COMMAND_CHARS_MAX: usize = 2000;

/// Formats a time, in seconds since 1970, in the local time zone.
pub(super) fn date(seconds: i64, form: &str) -> String {
    let moment = Timestamp::from_second(seconds).unwrap_or_default().to_zoned(TimeZone::system());
    moment.strftime(form).to_string()
}

/// `larder record list`: lists all records.
pub(super) fn list(records: &Path, out: &mut dyn Write) -> Result<u8> {
    let found = all(records);
    if found.is_empty() {
        writeln!(out, " {}: no record; make one with `larder record -- COMMAND`", records.display())?;
        return Ok(FINE);
    }
    let mut table = plain_table();
    for Listed { path, header, runs } in found {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let command = say::one_line(&header.command.join(" "));
        let short: String = command.chars().take(70).collect();
        let date = date(header.began_s, "%Y-%m-%d %H:%M");
        table.add_row(vec![say::one_line(&name), date, how_ended(&runs), short]);
    }
    print_table(&table, out)?;
    writeln!(out, " in {}", records.display())?;
    Ok(FINE)
}

/// Returns the first problem of the runs if there is one, else how long a run took.
fn how_ended(runs: &[Run]) -> String {
    let ends: Option<Vec<&RunEnd>> = runs.iter().map(|run| run.end.as_ref()).collect();
    let Some(ends) = ends.filter(|ends| !ends.is_empty()) else { return "cut off".to_owned() };
    if ends.iter().any(|end| end.interrupted) {
        return "interrupted".to_owned();
    }
    if let Some(failed) = ends.iter().find(|end| end.exit_code != 0) {
        return format!("exit code {}", failed.exit_code);
    }
    let timed: Vec<u64> = runs.iter().zip(&ends).filter(|(run, _)| !run.traced).map(|(_, end)| end.wall_ns).collect();
    let walls = if timed.is_empty() { ends.iter().map(|end| end.wall_ns).collect() } else { timed };
    middle(&walls).1
}

/// Returns one line about a record that was just made.
pub(super) fn line(record: &Record) -> String {
    let mut parts = Vec::new();
    if let Some(run) = record.explaining() {
        parts.extend(took(record).map(|(_, words)| words));
        let count = processes(run).all.len() as u64;
        if count > 0 {
            parts.push(say::count(count, "process", "processes"));
        }
        let counts = Counts::of(&run.actions);
        if counts.all() > 0 {
            parts.push(format!(
                "{} hit, {} miss, {} bypass, {} fallback",
                counts.hit, counts.miss, counts.bypass, counts.fallback
            ));
        }
        if let Some(why) = run.run.end.as_ref().and_then(|end| end.not_traced.as_ref()) {
            parts.push(say::one_line(why));
        }
    }
    format!("{}: {}", say::one_line(&record.header.name), parts.join(" · "))
}

/// `larder record show`: prints one record.
pub(super) fn show(record: &Record, as_json: bool, out: &mut dyn Write) -> Result<u8> {
    if as_json {
        print_json(&export::json(record), out)?;
        return Ok(FINE);
    }
    let header = &record.header;
    writeln!(out, " {} · {}", say::one_line(&header.name), date(header.began_s, "%Y-%m-%d %H:%M:%S"))?;
    writeln!(
        out,
        " {}\n in {}",
        say::shortened(&header.command.join(" "), COMMAND_CHARS_MAX),
        say::one_line(&header.cwd)
    )?;
    let context = &record.context;
    if let Some(git) = &context.project {
        let changed = if git.diff_digest.is_empty() { "" } else { ", with uncommitted changes" };
        writeln!(
            out,
            " commit {} {}{changed}",
            say::one_line(git.head.get(..12).unwrap_or(&git.head)),
            say::one_line(&git.branch)
        )?;
    }
    let machine = &context.machine;
    writeln!(
        out,
        " {} × {}, {}, {}\n",
        machine.processors,
        say::one_line(&machine.processor),
        say::bytes(machine.memory_bytes),
        say::one_line(&machine.system)
    )?;
    for missing in &context.missing {
        writeln!(out, " ! not known: {}", say::one_line(missing))?;
    }
    runs(record, out)?;
    if let Some(run) = record.explaining() {
        reports(run.run.end.as_ref(), out)?;
        let groups = causes(&run.actions);
        writeln!(out)?;
        last_build::show(&header.name, &groups[..groups.len().min(CAUSES_MAX)], run.actions.len(), out)?;
        if groups.len() > CAUSES_MAX {
            writeln!(out, "\n {} more causes: see `larder report`", groups.len() - CAUSES_MAX)?;
        }
    }
    writeln!(out, "\n {}", record.path.display())?;
    Ok(FINE)
}

/// Prints what build tools reported, one line for each form, and each problem.
fn reports(end: Option<&RunEnd>, out: &mut dyn Write) -> Result<()> {
    let Some(end) = end else { return Ok(()) };
    let mut forms: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for report in &end.reports {
        let form = forms.entry(if report.form.is_empty() { "attached" } else { &report.form }).or_default();
        (form.0, form.1) = (form.0 + 1, form.1 + report.spans);
    }
    for (form, (files, spans)) in forms {
        let (files, spans) = (say::count(files, "file", "files"), say::count(spans, "span", "spans"));
        writeln!(out, " {}: {files}, {spans}", say::one_line(form))?;
    }
    for report in end.reports.iter().filter(|report| !report.problem.is_empty()) {
        writeln!(out, " ! {}: {}", say::one_line(&report.path), say::one_line(&report.problem))?;
    }
    Ok(())
}

/// Returns a warning and what to do about it if the runs of a record had different hits.
pub(super) fn unlike_runs(record: &Record) -> Option<String> {
    let [(a, of_a), (b, of_b)] = unlike(&record.timed())?;
    let remedy = if record.header.prepare.is_some() {
        "for example, the first run may have filled the store: run the command once before"
    } else {
        "use `--prepare COMMAND` to undo what a run changed"
    };
    Some(format!("its runs did different work: {a} of {of_a} were hits in one, {b} of {of_b} in another; {remedy}"))
}

fn runs(record: &Record, out: &mut dyn Write) -> Result<()> {
    let mut table = plain_table();
    table.add_row(["run", "", "wall", "CPU", "kernel", "peak", "other CPU", "exit"]);
    for run in record.runs.iter().map(|run| &run.run) {
        let kind = if run.traced { "traced" } else { "timed" };
        let mut row = vec![Cell::new(run.number), Cell::new(kind)];
        match &run.end {
            None => row.push(Cell::new("cut off")),
            Some(end) => {
                let texts = [
                    say::duration_us(end.wall_ns / 1000),
                    say::duration_us(end.usage.cpu_us()),
                    say::duration_us(end.usage.system_us),
                    say::bytes(end.usage.peak_bytes),
                    format!("{:.1} %", end.foreign_share * 100.0),
                    end.exit_code.to_string(),
                ];
                row.extend(texts.map(number));
            }
        }
        table.add_row(row);
    }
    print_table(&table, out)?;
    if let Some(unlike) = unlike_runs(record) {
        writeln!(out, " ! {unlike}")?;
    }
    for run in record.runs.iter().map(|run| &run.run) {
        let Some(end) = &run.end else { continue };
        if end.left > 0 {
            let processes = say::count(end.left, "process", "processes");
            writeln!(out, " ! run {}: {processes} still ran after the command ended", run.number)?;
        }
        if end.interrupted {
            writeln!(out, " ! run {} was interrupted, so it is not compared", run.number)?;
        }
    }
    Ok(())
}
