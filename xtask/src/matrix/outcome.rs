//! The results of a cell, and the text in which the repository keeps them.
//!
//! A line has fields separated by tabs: `date`, `commit`, `seconds` or `untried` with a value, or a
//! check as `inside.sh` prints it.

use std::fmt;
use std::str::FromStr;

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
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Check {
    pub(super) name: String,
    pub(super) state: State,
    pub(super) text: String,
}

/// The results of a cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
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

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "date\t{}\ncommit\t{}\nseconds\t{}", self.date, self.commit, self.seconds)?;
        if let Some(why) = &self.untried {
            writeln!(f, "untried\t{}", one_line(why))?;
        }
        self.checks
            .iter()
            .try_for_each(|Check { name, state, text }| writeln!(f, "@\t{name}\t{}\t{}", state.word(), one_line(text)))
    }
}

impl FromStr for Outcome {
    type Err = String;

    /// Parses what `Display` writes. The error is the line that is not understood.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut outcome = Self::default();
        for line in text.lines() {
            match line.split_once('\t') {
                Some(("date", value)) => value.clone_into(&mut outcome.date),
                Some(("commit", value)) => value.clone_into(&mut outcome.commit),
                Some(("seconds", value)) => outcome.seconds = value.parse().map_err(|_| line.to_owned())?,
                Some(("untried", value)) => outcome.untried = Some(value.to_owned()),
                _ => outcome.checks.push(Check::parse(line).ok_or(line)?),
            }
        }
        Ok(outcome)
    }
}

fn one_line(text: &str) -> String {
    text.replace(['\n', '\r', '\t'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_read_as_they_were_written() {
        let check =
            Check { name: "gcc, auto".to_owned(), state: State::Missed, text: "12 of 13 (a reason)".to_owned() };
        let tried = Outcome {
            date: "2026-01-02".to_owned(),
            commit: "abc".to_owned(),
            seconds: 61,
            untried: None,
            checks: vec![check],
        };
        let untried = Outcome { untried: Some("no mirror".to_owned()), checks: Vec::new(), ..tried.clone() };
        for outcome in [tried, untried] {
            assert_eq!(outcome.to_string().parse(), Ok(outcome));
        }
        for line in ["gcc: error", "@\tname\tunknown\ttext", "@\tname"] {
            assert_eq!(line.parse::<Outcome>(), Err(line.to_owned()));
        }
    }
}
