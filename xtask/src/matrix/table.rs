//! The page `docs/matrix.md`: a row for each check, a column for each cell, and notes for long
//! texts.

use super::cells::NOT_TRIED;
use super::outcome::{Check, Outcome, State};
use crate::table::wrapped;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The cell with which the hits of other cells are compared.
const REFERENCE: &str = "bookworm";

/// The results of one cell, as a column.
pub(super) struct Column<'a> {
    pub(super) name: &'a str,
    /// `None` if no result of the cell was ever kept.
    pub(super) outcome: Option<&'a Outcome>,
}

const HEAD: &str = "# Matrix: distributions and kernels

What `cargo xtask matrix` found: larder's own programs, static as they are released, in roots of
other distributions and on other kernels in QEMU. This page is written by that command; do not edit
it.

```
cargo xtask matrix                      # every cell: hours
cargo xtask matrix bullseye linux-6.1   # these; the other columns keep what they had
cargo xtask matrix --list               # the cells
cargo xtask matrix --short              # one root with an old glibc, in 2 minutes; writes no table
cargo xtask matrix sid --part images    # one part of a cell again; writes no table
```

It needs root, Debian's packages and about 15 GB below `target/matrix`, where roots, kernels and
logs are kept. A cell is a row of `xtask/src/matrix/cells.rs`, a check a function of
`xtask/src/matrix/inside.sh`, and a cell's results a file of `xtask/src/matrix/results`.

| word | means |
|---|---|
| a number of hits | right: outputs, messages and exit codes were those without larder, byte for byte; the second build had so many hits |
| **wrong** | something differed from what happens without larder, or failed |
| **hung** | a step did not end within its time |
| no | not possible in this cell, and larder said so and did the right thing instead |
| – | not tried, for the reason in the note |

(root) and (u) say which user did it. The project has 13 commands: C, C++, assembler, `ar`, a
program, a shared library, `ld -r`, `-E`; in QEMU 9 of them are built. `refused` rows build 7 of
them with system calls refused by seccomp, as an older kernel or a container's profile refuses them.
The torture suite is described in [torture.md](torture.md); its cases that need what a cell lacks
are skipped. Numbers in brackets are notes below the table.
";

/// Returns the whole page.
pub(super) fn page(columns: &[Column<'_>]) -> String {
    let mut notes = Notes::default();
    let mut page = HEAD.to_owned();
    let _ = write!(page, "\n| |");
    columns.iter().for_each(|column| {
        let _ = write!(page, " {} |", column.name);
    });
    let _ = write!(page, "\n|---|{}\n", "---|".repeat(columns.len()));
    let mut row = |name: &str, cell: &mut dyn FnMut(&Column<'_>) -> String| {
        let cells: Vec<String> = columns.iter().map(cell).collect();
        let _ = writeln!(page, "| {name} | {} |", cells.join(" | "));
    };
    row("date", &mut |column| column.outcome.map_or(String::new(), |outcome| outcome.date.clone()));
    row("commit", &mut |column| column.outcome.map_or(String::new(), |outcome| outcome.commit.clone()));
    row("took", &mut |column| match column.outcome {
        Some(outcome) if outcome.untried.is_none() => format!("{} min", outcome.seconds.div_ceil(60)),
        _ => String::new(),
    });
    row("checks; wrong, hung", &mut |column| column.outcome.map_or(String::new(), counted));
    let reference = columns.iter().find(|column| column.name == REFERENCE).and_then(|column| column.outcome);
    row(&format!("hits, beside those in {REFERENCE}"), &mut |column| {
        let share = column.outcome.zip(reference).and_then(|(outcome, other)| hits_beside(outcome, other));
        share.map_or(String::new(), |share| format!("{share:.1} %"))
    });
    for name in order(columns) {
        row(&name, &mut |column| cell(column, &name, &mut notes));
    }
    if !notes.texts.is_empty() {
        page += "\n## Notes\n\n";
        for (at, text) in notes.texts.iter().enumerate() {
            page += &item(&format!("{}.", at + 1), text);
        }
    }
    page += "\n## What was not tried\n\n";
    for text in NOT_TRIED {
        page += &item("-", text);
    }
    for column in columns {
        let why = match column.outcome {
            None => Some("this cell has not been run"),
            Some(outcome) => outcome.untried.as_deref(),
        };
        if let Some(why) = why {
            page += &item("-", &format!("{}: {}.", column.name, escaped(why)));
        }
    }
    page
}

/// Returns the number of checks, and how many were wrong or hung.
fn counted(outcome: &Outcome) -> String {
    if outcome.untried.is_some() {
        return "not tried".to_owned();
    }
    let count = |state| outcome.checks.iter().filter(|check| check.state == state).count();
    let made = outcome.checks.len() - count(State::Untried);
    format!("{made}; {}, {}", count(State::Wrong), count(State::Hung))
}

/// Returns the share of expected hits, in percent of the share that `other` had in the same checks.
fn hits_beside(outcome: &Outcome, other: &Outcome) -> Option<f64> {
    let (mut hits, mut expected) = ([0, 0], [0, 0]);
    for check in &outcome.checks {
        let same = other.checks.iter().find(|known| known.name == check.name);
        if let Some((one, two)) = hits_in(&check.text).zip(same.and_then(|same| hits_in(&same.text))) {
            hits = [hits[0] + one.0, hits[1] + two.0];
            expected = [expected[0] + one.1, expected[1] + two.1];
        }
    }
    let share = |at: usize| f64::from(hits[at]) / f64::from(expected[at]);
    (expected[0] > 0 && expected[1] > 0 && hits[1] > 0).then(|| 100.0 * share(0) / share(1))
}

/// Finds the last `N of M` in a text, for example `12, then 13 of 13`, or
/// `0 wrong, 498 of 501 hits`.
fn hits_in(text: &str) -> Option<(u32, u32)> {
    let words: Vec<&str> =
        text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let pair = |at: usize| match words.get(at..at + 3)? {
        [hits, "of", expected] => Some((hits.parse().ok()?, expected.parse().ok()?)),
        _ => None,
    };
    (0..words.len()).rev().find_map(pair)
}

/// Returns the text of a column in the row of a check.
fn cell(column: &Column<'_>, name: &str, notes: &mut Notes) -> String {
    let Some(outcome) = column.outcome else { return "–".to_owned() };
    let Some(check) = outcome.checks.iter().find(|check| check.name == name) else {
        return if outcome.untried.is_some() { "–".to_owned() } else { String::new() };
    };
    let text = escaped(&check.text);
    let split = |at: &str| match text.split_once(at) {
        Some((short, note)) => (short.to_owned(), Some(note.trim_end_matches(')').to_owned())),
        None => (text.clone(), None),
    };
    let (short, note) = match check.state {
        State::Ok => split("; "),
        State::Missed if text.contains(" (") => split(" ("),
        State::Missed => split("; "),
        State::No => ("no".to_owned(), Some(text)),
        State::Wrong => ("**wrong**".to_owned(), Some(text)),
        State::Hung => ("**hung**".to_owned(), Some(text)),
        State::Untried => ("–".to_owned(), Some(text)),
    };
    match note {
        Some(note) => format!("{short} [{}]", notes.number(&note)),
        None => short,
    }
}

/// The notes below the table. Each text appears once.
#[derive(Default)]
struct Notes {
    texts: Vec<String>,
    numbers: BTreeMap<String, usize>,
}

impl Notes {
    fn number(&mut self, text: &str) -> usize {
        *self.numbers.entry(text.to_owned()).or_insert_with(|| {
            self.texts.push(text.to_owned());
            self.texts.len()
        })
    }
}

/// Returns the names of all checks in order. A check that only a later column has comes after the
/// check before it in that column.
fn order(columns: &[Column<'_>]) -> Vec<String> {
    let mut order: Vec<String> = Vec::new();
    for checks in columns.iter().filter_map(|column| column.outcome).map(|outcome| &outcome.checks) {
        let mut after = 0;
        for Check { name, .. } in checks {
            after = match order.iter().position(|known| known == name) {
                Some(at) => at + 1,
                None => {
                    order.insert(after, name.clone());
                    after + 1
                }
            };
        }
    }
    order
}

/// Returns an item of a list.
fn item(mark: &str, text: &str) -> String {
    wrapped(&format!("{mark} {text}"), &" ".repeat(mark.len() + 1)) + "\n"
}

/// Escapes `|`, which ends a cell, and replaces line breaks, which end a row.
fn escaped(text: &str) -> String {
    text.replace('|', "\\|").replace(['\n', '\r'], " ").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(checks: &[(&str, State, &str)]) -> Outcome {
        let check =
            |&(name, state, text): &(&str, State, &str)| Check { name: name.to_owned(), state, text: text.to_owned() };
        Outcome {
            date: "2026-01-02".to_owned(),
            commit: "abc".to_owned(),
            seconds: 61,
            untried: None,
            checks: checks.iter().map(check).collect(),
        }
    }

    #[test]
    fn rows_of_all_columns_in_one_order() {
        let left = outcome(&[("one", State::Ok, ""), ("three", State::Ok, "")]);
        let right = outcome(&[("one", State::Ok, ""), ("two", State::Ok, ""), ("three", State::Ok, "")]);
        let columns = [Column { name: "l", outcome: Some(&left) }, Column { name: "r", outcome: Some(&right) }];
        assert_eq!(order(&columns), ["one", "two", "three"]);
    }

    #[test]
    fn hits_are_compared_with_those_of_the_reference() {
        for (text, expected) in [
            ("13 of 13", Some((13, 13))),
            ("12, then 13 of 13 (a reason)", Some((13, 13))),
            ("74 cases, 0 wrong, 498 of 501 hits, 3 skipped", Some((498, 501))),
            ("cold: exit code 2", None),
        ] {
            assert_eq!(hits_in(text), expected, "{text}");
        }
        let half = outcome(&[("a", State::Missed, "5 of 10"), ("only here", State::Ok, "9 of 9")]);
        let whole = outcome(&[("a", State::Ok, "10 of 10")]);
        assert_eq!(hits_beside(&half, &whole), Some(50.0));
        assert_eq!(hits_beside(&whole, &outcome(&[])), None);
    }

    #[test]
    fn what_is_wrong_stands_in_a_note_and_what_is_absent_is_said() {
        let found = outcome(&[
            ("gcc", State::Wrong, "cold: a|b"),
            ("clang", State::Wrong, "cold: a|b"),
            ("hits", State::Missed, "12 of 13 (1 × reason)"),
        ]);
        let columns = [Column { name: "x", outcome: Some(&found) }, Column { name: "y", outcome: None }];
        let page = page(&columns);
        for line in [
            "| gcc | **wrong** [1] | – |",
            "| clang | **wrong** [1] | – |",
            "| hits | 12 of 13 [2] | – |",
            "| took | 2 min |  |",
            "1. cold: a\\|b",
            "2. 1 × reason",
            "- y: this cell has not been run.",
        ] {
            assert!(page.lines().any(|have| have == line), "{line}\n{page}");
        }
    }
}
