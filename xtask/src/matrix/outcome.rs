//! The results of a cell, and their JSON.

use serde_json::{Value, json};

/// The result of a check. `inside.sh` describes each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Ok,
    Missed,
    No,
    Wrong,
    Hung,
    Untried,
}

const STATES: &[(State, &str)] = &[
    (State::Ok, "ok"),
    (State::Missed, "missed"),
    (State::No, "no"),
    (State::Wrong, "wrong"),
    (State::Hung, "hung"),
    (State::Untried, "untried"),
];

impl State {
    pub(super) fn word(self) -> &'static str {
        STATES.iter().find(|(state, _)| *state == self).map_or("", |(_, word)| word)
    }
}

/// A check: one line of `inside.sh`.
#[derive(Clone, Debug)]
pub(super) struct Check {
    pub(super) name: String,
    pub(super) state: State,
    pub(super) text: String,
}

/// The results of a cell.
#[derive(Clone, Debug)]
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
        let (state, _) = STATES.iter().find(|(_, known)| *known == word)?;
        Some(Self { name: name.to_owned(), state: *state, text: text.to_owned() })
    }
}

impl Outcome {
    pub(super) fn as_json(&self) -> Value {
        let check = |check: &Check| json!({"name": check.name, "state": check.state.word(), "text": check.text});
        json!({
            "cell": self.cell,
            "date": self.date,
            "commit": self.commit,
            "seconds": self.seconds,
            "untried": self.untried,
            "checks": self.checks.iter().map(check).collect::<Vec<_>>(),
        })
    }

    pub(super) fn from_json(json: &Value) -> Option<Self> {
        let text = |name: &str| json[name].as_str().map(str::to_owned);
        let check = |json: &Value| {
            let (state, _) = STATES.iter().find(|(_, word)| json["state"] == *word)?;
            Some(Check {
                name: json["name"].as_str()?.to_owned(),
                state: *state,
                text: json["text"].as_str()?.to_owned(),
            })
        };
        Some(Self {
            cell: text("cell")?,
            date: text("date")?,
            commit: text("commit")?,
            seconds: json["seconds"].as_u64()?,
            untried: text("untried"),
            checks: json["checks"].as_array()?.iter().map(check).collect::<Option<_>>()?,
        })
    }
}
