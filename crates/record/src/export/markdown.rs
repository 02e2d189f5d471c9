//! A Markdown summary of a record, for a CI job.

use std::fmt::Write;

use crate::directory::Record;
use crate::processes::processes;
use crate::summary::{Counts, Group, ROWS_MAX, causes as grouped, slowest};

/// The number of rows of each table, which keeps the summary short.
const ROWS: usize = 10;

/// Returns the summary of a record: what it recorded, how it ended, and why commands were not hits.
pub fn markdown(record: &Record) -> String {
    let mut text = String::new();
    let header = &record.header;
    let _ = writeln!(text, "## {}\n", escaped(&header.name));
    let command = header.command.join(" ").replace('`', "'").replace(char::is_control, " ");
    let _ = writeln!(text, "`{}`\n", shortened(&command));
    let ended: Vec<_> = record.runs.iter().filter_map(|run| Some((run, run.run.end.as_ref()?))).collect();
    if !ended.is_empty() {
        text += "| run | wall s | CPU s | in the kernel s | peak MiB | other CPU | exit |\n";
        text += "|---|---:|---:|---:|---:|---:|---:|\n";
        for (run, end) in &ended {
            let _ = writeln!(
                text,
                "| {}{} | {:.2} | {:.2} | {:.2} | {:.0} | {:.1} % | {} |",
                run.run.number,
                if run.run.traced { " (traced)" } else { "" },
                end.wall_ns as f64 / 1e9,
                end.usage.cpu_us() as f64 / 1e6,
                end.usage.system_us as f64 / 1e6,
                end.usage.peak_bytes as f64 / f64::from(1 << 20),
                end.foreign_share * 100.0,
                end.exit_code
            );
        }
    }
    if ended.len() < record.runs.len() {
        text += "\n**Cut off:** a run was not finished.\n";
    }
    let Some(run) = record.explaining() else { return text };
    let counts = Counts::of(&run.actions);
    if counts.all() > 0 {
        let asked = (counts.hit + counts.miss).max(1);
        let _ = writeln!(
            text,
            "\n**{} hits, {} misses, {} bypasses, {} fallbacks** ({:.1} % of lookups)\n",
            counts.hit,
            counts.miss,
            counts.bypass,
            counts.fallback,
            counts.hit as f64 * 100.0 / asked as f64
        );
        text += &causes(&grouped(&run.actions));
    }
    let found = processes(run);
    if !found.all.is_empty() {
        let _ = writeln!(text, "\n{} processes; those with the most CPU time:\n", found.all.len());
        text += "| CPU s | wall s | process | outcome |\n|---:|---:|---|---|\n";
        for at in slowest(&found).into_iter().take(ROWS.min(ROWS_MAX)) {
            let process = &found.all[at];
            let (cpu, wall) = (process.own.cpu_us() as f64 / 1e6, process.wall_ns() as f64 / 1e9);
            let outcome = if process.outcome.name() == "none" { "" } else { process.outcome.name() };
            let _ =
                writeln!(text, "| {cpu:.2} | {wall:.2} | {} | {outcome} |", escaped(&shortened(&process.command())));
        }
    }
    text
}

/// Returns the causes as a table, or nothing if there are none.
pub fn causes(groups: &[Group]) -> String {
    let mut text = String::new();
    if !groups.is_empty() {
        text += "| | count | s | first cause | of |\n|---|---:|---:|---|---|\n";
    }
    for group in groups.iter().take(ROWS) {
        let unrecorded = if group.unrecorded.is_empty() { "" } else { "; not recorded: " };
        let _ = writeln!(
            text,
            "| {} | {} | {:.2} | {}{unrecorded}{} | {} |",
            group.outcome,
            group.count,
            group.took_ns as f64 / 1e9,
            escaped(&group.cause),
            escaped(&group.unrecorded),
            escaped(&group.examples.join(", ")),
        );
    }
    if groups.len() > ROWS {
        let _ = writeln!(text, "\n{} more causes: see `larder explain --last-build`.", groups.len() - ROWS);
    }
    text
}

fn shortened(text: &str) -> String {
    const CHARS_MAX: usize = 100;
    if text.chars().count() <= CHARS_MAX {
        text.to_owned()
    } else {
        text.chars().take(CHARS_MAX).collect::<String>() + "…"
    }
}

/// Escapes text for a table cell.
fn escaped(text: &str) -> String {
    let mut shown = String::new();
    for c in text.chars() {
        match c {
            '|' | '\\' | '`' | '*' | '_' | '<' | '[' | ']' => shown.extend(['\\', c]),
            c if c.is_control() => shown.push(' '),
            c => shown.push(c),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::tests::a_run;

    #[test]
    fn a_summary() {
        let mut record = Record { runs: vec![a_run()], ..Record::default() };
        record.header.name = "a|b".into();
        let text = markdown(&record);
        assert!(text.starts_with("## a\\|b\n") && text.contains("**1 hits, 1 misses, 1 bypasses"), "{text}");
        assert!(text.contains("x.h changed") && text.contains("4 processes"), "{text}");
        let rows = text.lines().filter(|line| line.starts_with('|'));
        assert!(rows.into_iter().all(|row| row.ends_with('|')), "{text}");
        record.runs[0].run.end = None;
        assert!(markdown(&record).contains("Cut off"));
    }
}
