//! A benchmark's result: shown as a table, written as JSON and Markdown.

use crate::place::Place;
use crate::table::Table;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;

/// What a benchmark found.
pub(crate) struct Report {
    /// One line.
    pub(crate) title: String,
    /// How it was measured: what a reader needs to believe the table or to doubt it.
    pub(crate) notes: Vec<String>,
    pub(crate) table: Table,
    /// The same for programs, with every sample.
    pub(crate) rows: Vec<Value>,
}

impl Report {
    /// Shows the report and writes it.
    pub(crate) fn publish(&self, place: &Place, name: &str) -> Result<()> {
        println!("{}\n\n{}\n", self.title, self.table);
        self.notes.iter().for_each(|note| println!("{note}"));
        for path in self.write(place, name)? {
            println!("written: {}", path.display());
        }
        Ok(())
    }

    /// Writes `target/bench/NAME.json` and `NAME.md`.
    pub(crate) fn write(&self, place: &Place, name: &str) -> Result<[PathBuf; 2]> {
        let dir = place.results()?;
        let json = json!({ "title": self.title, "notes": self.notes, "machine": machine(), "rows": self.rows });
        let markdown = format!("# {}\n\n{}\n\n{}\n", self.title, self.table.markdown(), self.notes.join("\n\n"));
        let paths = ["json", "md"].map(|end| dir.join(format!("{name}.{end}")));
        for (path, text) in paths.iter().zip([format!("{json:#}\n"), markdown]) {
            fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(paths)
    }
}

/// What the numbers depend on and a reader cannot see.
fn machine() -> Value {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let processor = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("unknown");
    json!({
        "processor": processor.trim_start_matches([' ', '\t', ':']),
        "processors": std::thread::available_parallelism().map_or(0, usize::from),
        "kernel": read("/proc/sys/kernel/osrelease").trim(),
    })
}

/// Milliseconds with three decimals.
pub(crate) fn millis(time: std::time::Duration) -> String {
    format!("{:.3}", time.as_secs_f64() * 1000.0)
}
