//! The results of a cell, and their JSON.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The result of a check. `inside.sh` describes each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    Ok,
    Missed,
    No,
    Wrong,
    Hung,
    Untried,
}

impl State {
    pub(super) fn word(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

/// A check: one line of `inside.sh`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Check {
    pub(super) name: String,
    pub(super) state: State,
    pub(super) text: String,
}

/// The results of a cell.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Outcome {
    pub(super) cell: String,
    pub(super) date: String,
    pub(super) commit: String,
    pub(super) seconds: u64,
    /// The reason why the cell could not run.
    pub(super) untried: Option<String>,
    pub(super) checks: Vec<Check>,
}

impl Check {
    /// Parses a line of `inside.sh`: `@`, name, state and text, separated by tabs.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let mut parts = line.strip_prefix("@\t")?.splitn(3, '\t');
        let (name, word, text) = (parts.next()?, parts.next()?, parts.next()?);
        let state = serde_json::from_value(Value::from(word)).ok()?;
        Some(Self { name: name.to_owned(), state, text: text.to_owned() })
    }
}
