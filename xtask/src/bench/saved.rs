//! Reports as files: JSON for programs, Markdown for people. The JSON can be read again.
//!
//! ```text
//! { "format": 1, "command": …, "quick": …, "machine": { … }, "failed": [ … ],
//!   "parts": [ { "bench", "title", "command", "commit", "load", "notes",
//!                "table": { "words", "header", "rows" }, "figures": [ figure … ], "rows": [ … ] } ] }
//! figure = { "name", "kind": "ratio" | "count" | "megabytes", "value", "low", "high",
//!            "goal": number | null }
//! ```

use super::figure::{Figure, Kind, number};
use crate::table::{NONE, Table};
use anyhow::{Context, Result, bail, ensure};
use larder_samples::Interval;
use serde_json::{Value, json};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

const FORMAT: u64 = 1;

/// A report of one or more benchmarks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Saved {
    /// The command line.
    pub(crate) command: String,
    /// True if it has too few runs to be accepted.
    pub(crate) quick: bool,
    pub(crate) machine: Value,
    /// The benchmarks that failed, with the errors.
    pub(crate) failed: Vec<String>,
    pub(crate) parts: Vec<Value>,
}

impl Saved {
    /// Writes `DIR/NAME.json` and `DIR/NAME.md`.
    pub(crate) fn write(&self, dir: &Path, name: &str) -> Result<[PathBuf; 2]> {
        let paths = ["json", "md"].map(|end| dir.join(format!("{name}.{end}")));
        for (path, text) in paths.iter().zip([format!("{:#}\n", self.json()), self.markdown()?]) {
            fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(paths)
    }

    /// Reads the JSON file.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read the report {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("{} is not a report of `cargo xtask bench`", path.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        let json: Value = serde_json::from_str(text).context("it is not JSON")?;
        match json["format"].as_u64() {
            Some(FORMAT) => {}
            Some(other) => bail!("its format is {other}, and {FORMAT} is understood"),
            None => bail!("it has no `format`"),
        }
        let list = |name: &str| json[name].as_array().cloned().with_context(|| format!("it has no list `{name}`"));
        let saved = Self {
            command: json["command"].as_str().unwrap_or_default().to_owned(),
            quick: json["quick"].as_bool().unwrap_or(false),
            machine: json["machine"].clone(),
            failed: list("failed")?.iter().filter_map(|why| why.as_str().map(str::to_owned)).collect(),
            parts: list("parts")?,
        };
        saved.figures()?;
        Ok(saved)
    }

    /// Removes the samples, because they are large.
    pub(crate) fn without_samples(mut self) -> Self {
        self.parts.iter_mut().filter_map(Value::as_object_mut).for_each(|part| {
            part.remove("rows");
        });
        self
    }

    /// Returns every figure, with the benchmark's name in front.
    pub(crate) fn figures(&self) -> Result<Vec<Figure>> {
        let mut all = Vec::new();
        for part in &self.parts {
            let bench = part["bench"].as_str().context("a part has no `bench`")?;
            let figures = part["figures"].as_array().with_context(|| format!("{bench} has no list `figures`"))?;
            for json in figures {
                all.push(figure(bench, json).with_context(|| format!("{bench}: this is not a figure: {json}"))?);
            }
        }
        Ok(all)
    }

    fn json(&self) -> Value {
        json!({
            "format": FORMAT,
            "command": self.command,
            "quick": self.quick,
            "machine": self.machine,
            "failed": self.failed,
            "parts": self.parts,
        })
    }

    fn markdown(&self) -> Result<String> {
        let mut text = format!("# `{}`\n\n", self.command);
        for (name, value) in self.machine.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null()) {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            writeln!(text, "- {}: {value}", name.replace('_', " "))?;
        }
        for why in &self.failed {
            writeln!(text, "\n**Not measured:** {why}")?;
        }
        let figures = self.figures()?;
        if !figures.is_empty() {
            writeln!(text, "\n## Figures\n\n{}", figures_table(&figures).markdown())?;
        }
        for part in &self.parts {
            let words = |list: &Value| -> Vec<String> {
                list.as_array().into_iter().flatten().map(|cell| cell.as_str().unwrap_or(NONE).to_owned()).collect()
            };
            let table = Table {
                header: words(&part["table"]["header"]),
                words: part["table"]["words"].as_u64().unwrap_or(1) as usize,
                rows: part["table"]["rows"].as_array().into_iter().flatten().map(words).collect(),
            };
            let title = part["title"].as_str().unwrap_or_default();
            writeln!(text, "\n## {title}\n")?;
            if let Some(command) = part["command"].as_str() {
                let load = part["load"].as_f64().map_or(NONE.to_owned(), number);
                let commit = part["commit"].as_str().unwrap_or(NONE);
                writeln!(text, "`{command}`; commit {commit}; load at its end: {load}\n")?;
            }
            writeln!(text, "{}\n\n{}", table.markdown(), words(&part["notes"]).join("\n\n"))?;
        }
        Ok(text)
    }
}

/// Returns a table of figures with their goals.
pub(crate) fn figures_table(figures: &[Figure]) -> Table {
    let mut table = Table::new(1, &["figure", "found", "goal", "met"]);
    let row = |figure: &Figure| {
        let met = figure.is_met().map_or(NONE, |met| if met { "yes" } else { "no" });
        vec![figure.name.clone(), figure.shown(), figure.goal.map_or(NONE.to_owned(), number), met.to_owned()]
    };
    table.rows = figures.iter().map(row).collect();
    table
}

fn figure(bench: &str, json: &Value) -> Result<Figure> {
    let number = |name: &str| json[name].as_f64().with_context(|| format!("`{name}` is not a number"));
    let name = json["name"].as_str().context("it has no `name`")?;
    let word = json["kind"].as_str().context("it has no `kind`")?;
    let kind = Kind::named(word).with_context(|| format!("there is no kind `{word}`"))?;
    let found = Interval { value: number("value")?, low: number("low")?, high: number("high")? };
    ensure!(found.low <= found.value && found.value <= found.high, "its value is not in its interval");
    ensure!(found.low >= 0.0, "it is below zero");
    Ok(Figure { name: format!("{bench}: {name}"), kind, found, goal: json["goal"].as_f64() })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::bench::report::Report;

    /// Returns a report with these ratios. The third value is the half width of the interval in
    /// percent.
    pub(in crate::bench) fn saved(figures: &[(&str, f64, f64)]) -> Saved {
        let figure = |&(name, value, percent): &(&str, f64, f64)| Figure {
            name: name.to_owned(),
            kind: Kind::Ratio,
            found: Interval { value, low: value * (1.0 - percent / 100.0), high: value * (1.0 + percent / 100.0) },
            goal: Some(1.0),
        };
        let report = Report {
            name: "hit",
            title: "One".to_owned(),
            figures: figures.iter().map(figure).collect(),
            rows: vec![json!({ "cpu_us": [1, 2] })],
            ..Report::default()
        };
        Saved { command: "cargo xtask bench".to_owned(), parts: vec![report.json()], ..Saved::default() }
    }

    #[test]
    fn a_report_is_read_as_it_was_written() {
        let dir = std::env::temp_dir().join(format!("xtask-saved-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("can be made");
        let saved = saved(&[("C, ÷ true", 1.5, 2.0)]);
        let [json, markdown] = saved.write(&dir, "report").expect("can be written");
        let read = Saved::read(&json).expect("is a report");
        assert_eq!(read.figures().expect("figures"), saved.figures().expect("figures"));
        assert_eq!(read.figures().expect("figures")[0].name, "hit: C, ÷ true");
        let text = fs::read_to_string(markdown).expect("is there");
        assert!(text.contains("1.500 (1.470 to 1.530)"), "{text}");
        assert!(read.parts[0].get("rows").is_some() && read.without_samples().parts[0].get("rows").is_none());
        fs::remove_dir_all(&dir).expect("removable");
    }

    #[test]
    fn what_is_no_report_is_refused_with_a_reason() {
        let check = |text: &str, why: &str| {
            let error = format!("{:#}", Saved::parse(text).expect_err("is not a report"));
            assert!(error.contains(why), "{text}: {error}");
        };
        check("", "not JSON");
        check("{}", "no `format`");
        check(r#"{"format":9}"#, "its format is 9");
        check(r#"{"format":1,"failed":[]}"#, "no list `parts`");
        check(r#"{"format":1,"failed":[],"parts":[{}]}"#, "no `bench`");
        check(r#"{"format":1,"failed":[],"parts":[{"bench":"hit"}]}"#, "no list `figures`");
        let figure =
            |figure: &str| format!(r#"{{"format":1,"failed":[],"parts":[{{"bench":"hit","figures":[{figure}]}}]}}"#);
        check(&figure(r#"{"name":"x","kind":"wish","value":1,"low":1,"high":1}"#), "no kind `wish`");
        check(&figure(r#"{"name":"x","kind":"count","value":"1","low":1,"high":1}"#), "`value` is not a number");
        check(&figure(r#"{"name":"x","kind":"count","value":3,"low":1,"high":2}"#), "not in its interval");
        let missing = Saved::read(Path::new("/nonexistent/report.json")).expect_err("is not there");
        assert!(format!("{missing:#}").contains("/nonexistent/report.json"));
    }
}
