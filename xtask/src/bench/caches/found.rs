//! Holds the results of the measurements, and reads those of the torture suite.

use super::rust;
use crate::bench::image;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::BTreeMap;

/// The results that the table shows. Each map leads from the name of a cache to its result.
pub(super) struct Found {
    pub(super) every: u16,
    pub(super) torture: BTreeMap<&'static str, Torture>,
    /// The median CPU time of a hit in ms as the benchmark prints it, for the case C and C++. The
    /// plain compile is called `plain`.
    pub(super) hits: [BTreeMap<String, String>; 2],
    pub(super) image: image::Usable,
    pub(super) rust: rust::Found,
    /// The caches that could not be measured, with the reasons.
    pub(super) missing: Vec<String>,
    pub(super) machine: Value,
    pub(super) date: String,
    pub(super) minutes: u64,
}

/// The results of the torture suite.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Torture {
    pub(super) wrong: usize,
    pub(super) ran: usize,
    /// From the class of a case to the hits that came and the hits that were expected.
    pub(super) hits: BTreeMap<String, (usize, usize)>,
}

impl Torture {
    /// Reads the JSON of the suite.
    pub(super) fn read(json: &Value) -> Result<Self> {
        let mut found = Self::default();
        for case in json["cases"].as_array().context("the suite's JSON has no list `cases`")? {
            if !case["skipped"].is_null() {
                continue;
            }
            let class = case["name"].as_str().and_then(|name| name.split('/').next()).context("a case has a name")?;
            let steps = case["steps"].as_array().context("a case has steps")?;
            let is_wrong = |step: &Value| step["wrong"].as_array().is_some_and(|wrong| !wrong.is_empty());
            found.ran += 1;
            found.wrong += usize::from(steps.iter().any(is_wrong));
            let (came, expected) = found.hits.entry(class.to_owned()).or_default();
            for step in steps.iter().filter(|step| step["expected"] == true) {
                *expected += 1;
                *came += usize::from(step["got"] == true);
            }
        }
        ensure!(found.ran > 0, "the torture suite ran no case");
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn cases_are_counted_by_class() {
        let step =
            |expected: bool, got: bool, wrong: &[&str]| json!({"expected": expected, "got": got, "wrong": wrong});
        let case = |name: &str, steps: &[Value]| json!({"name": name, "skipped": null, "steps": steps});
        let cases = [
            case("B/x", &[step(false, false, &[]), step(true, true, &[]), step(true, false, &["x.o"])]),
            case("B/y", &[step(true, true, &[])]),
            case("E/z", &[step(true, true, &["x.o"]), step(true, true, &["x.o"])]),
            json!({"name": "F/skipped", "skipped": "no clang", "steps": []}),
        ];
        let found = Torture::read(&json!({"cases": cases})).expect("is the suite's");
        let hits = [("B".to_owned(), (2, 3)), ("E".to_owned(), (2, 2))].into();
        assert_eq!(found, Torture { wrong: 2, ran: 3, hits });
        assert!(Torture::read(&json!({"cases": []})).is_err() && Torture::read(&json!({})).is_err());
    }
}
