//! The report of a benchmark: printed as a table, written as JSON and Markdown.

use super::figure::Figure;
use super::machine;
use super::saved::Saved;
use crate::place::Place;
use crate::table::Table;
use anyhow::Result;
use larder_samples::Interval;
use serde_json::{Value, json};

/// The report of a benchmark.
#[derive(Default)]
pub(crate) struct Report {
    /// One word, which is the name of its files.
    pub(crate) name: &'static str,
    /// The title, one line.
    pub(crate) title: String,
    /// How it was measured, for readers of the table.
    pub(crate) notes: Vec<String>,
    pub(crate) table: Table,
    /// The numbers by which two reports are compared.
    pub(crate) figures: Vec<Figure>,
    /// The rows of the table with every sample, as JSON.
    pub(crate) rows: Vec<Value>,
}

impl Report {
    /// Prints the report and writes it.
    pub(crate) fn publish(&self, place: &Place) -> Result<()> {
        self.show();
        for path in self.write(place)? {
            println!("written: {}", path.display());
        }
        Ok(())
    }

    /// Prints the table and the notes.
    pub(crate) fn show(&self) {
        println!("{}\n\n{}\n", self.title, self.table);
        self.notes.iter().for_each(|note| println!("{note}"));
    }

    /// Writes `target/bench/NAME.json` and `NAME.md`.
    pub(crate) fn write(&self, place: &Place) -> Result<[std::path::PathBuf; 2]> {
        let (command, machine) = (typed(std::env::args().skip(1)), machine::facts(place));
        let parts = vec![self.part(&command, &machine)];
        Saved { command, machine, parts, ..Saved::default() }.write(&place.results()?, self.name)
    }

    /// Returns the report as JSON, with its command and the commit of larder.
    pub(crate) fn part(&self, command: &str, machine: &Value) -> Value {
        let mut part = self.json();
        part["command"] = json!(command);
        part["commit"] = machine["commit"].clone();
        part["load"] = json!(machine::load());
        part
    }

    /// Returns the report as JSON.
    pub(super) fn json(&self) -> Value {
        let figure = |figure: &Figure| {
            let Interval { value, low, high } = figure.found;
            json!({ "name": figure.name, "kind": figure.kind.word(), "value": value, "low": low, "high": high, "goal": figure.goal })
        };
        json!({
            "bench": self.name,
            "title": self.title,
            "notes": self.notes,
            "table": { "words": self.table.words, "header": self.table.header, "rows": self.table.rows },
            "figures": self.figures.iter().map(figure).collect::<Vec<_>>(),
            "rows": self.rows,
        })
    }
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
