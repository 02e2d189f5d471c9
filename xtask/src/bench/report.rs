//! The report of a benchmark: printed as a table, and written as Markdown to `target/bench`.

use super::figure::{self, Figure, number};
use crate::place::Place;
use crate::table::{Table, shown};
use crate::{files, machine};
use anyhow::Result;
use std::fmt::Write;

/// The report of a benchmark.
#[derive(Default)]
pub(crate) struct Report {
    /// One word, which is the name of its file.
    pub(crate) name: &'static str,
    /// The title, one line.
    pub(crate) title: &'static str,
    /// How it was measured, for readers of the table.
    pub(crate) notes: Vec<String>,
    pub(crate) table: Table,
    /// The numbers by which two reports are compared.
    pub(crate) figures: Vec<Figure>,
}

impl Report {
    /// Returns a report without rows. The first `words` columns of its table will be text.
    pub(crate) fn new(name: &'static str, title: &'static str, words: usize, notes: &[&str]) -> Self {
        let notes = notes.iter().map(|&note| note.to_owned()).collect();
        Self { name, title, notes, table: Table::new(words), figures: Vec::new() }
    }

    /// Prints the report and writes it.
    pub(crate) fn publish(self, place: &Place) -> Result<()> {
        self.show();
        let (name, command) = (self.name, typed(std::env::args().skip(1)));
        write(place, name, &command, &[Part::ended(&command, self)], &[])
    }

    /// Prints the table and the notes.
    pub(crate) fn show(&self) {
        println!("{}\n\n{}\n", self.title, self.table);
        self.notes.iter().for_each(|note| println!("{note}"));
    }
}

/// The report of a benchmark that has just ended.
pub(super) struct Part {
    command: String,
    load: Option<f64>,
    pub(super) report: Report,
}

impl Part {
    pub(super) fn ended(command: &str, report: Report) -> Self {
        Self { command: command.to_owned(), load: machine::load(), report }
    }
}

/// Begins the line of a benchmark that failed.
pub(super) const NOT_MEASURED: &str = "**Not measured:**";

/// Writes `target/bench/NAME.md`: the machine, all figures, and the table of each part.
pub(super) fn write(place: &Place, name: &str, command: &str, parts: &[Part], failed: &[String]) -> Result<()> {
    let machine = machine::facts(place);
    let mut text = format!("# `{command}`\n\n");
    for (name, value) in machine.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null()) {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        writeln!(text, "- {}: {value}", name.replace('_', " "))?;
    }
    for why in failed {
        writeln!(text, "\n{NOT_MEASURED} {why}")?;
    }
    let figures = figures_table(parts);
    if !figures.rows.is_empty() {
        writeln!(text, "\n{}\n\n{}", figure::HEADING, figures.markdown())?;
    }
    let commit = machine["commit"].as_str().unwrap_or("unknown");
    for Part { command, load, report } in parts {
        let load = shown(load.map(number));
        write!(text, "\n## {}\n\n`{command}`; commit {commit}; load at its end: {load}\n\n", report.title)?;
        writeln!(text, "{}\n\n{}", report.table.markdown(), report.notes.join("\n\n"))?;
    }
    let path = place.results()?.join(format!("{name}.md"));
    files::write(&path, text)?;
    println!("written: {}", path.display());
    Ok(())
}

/// Returns all figures as a table.
pub(super) fn figures_table(parts: &[Part]) -> Table {
    let reports = parts.iter().map(|part| &part.report);
    figure::table(reports.flat_map(|report| report.figures.iter().map(|figure| (report.name, figure))))
}

/// Returns the arguments after `cargo xtask` without paths of this machine.
fn typed(words: impl Iterator<Item = String>) -> String {
    let mut shown = vec!["cargo xtask".to_owned()];
    for word in words {
        let is_place = word.contains('/') || shown.last().is_some_and(|last| last == "--larder");
        shown.push(if is_place { "…".to_owned() } else { word });
    }
    shown.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_typed_names_no_places() {
        let words = ["bench", "hit", "--runs", "3", "--larder", "larder", "--x=/a/b"].map(str::to_owned);
        assert_eq!(typed(words.into_iter()), "cargo xtask bench hit --runs 3 --larder … …");
    }
}
