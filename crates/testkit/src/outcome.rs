//! The counters of larder, as `larder stats --json` prints them.

use std::collections::BTreeMap;

use serde_json::Value;

/// All counters at one moment, by name. Names are outcomes such as `hit` and `miss`, and outcomes
/// with a reason such as `miss:clock` or `bypass:no-compile`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters(BTreeMap<String, u64>);

impl Counters {
    /// Parses the output of `larder stats --json`.
    pub fn parse(text: &str) -> Counters {
        let json: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
        let mut counters = BTreeMap::new();
        for outcome in ["hit", "miss", "bypass", "fallback"] {
            counters
                .insert(outcome.to_owned(), json[outcome].as_u64().expect("the counter of an outcome is not a number"));
        }
        for (outcome, table) in
            [("miss", "unrecorded_reasons"), ("bypass", "bypass_reasons"), ("fallback", "fallback_reasons")]
        {
            for (reason, count) in json[table].as_object().expect("the reasons of an outcome are not an object") {
                counters.insert(
                    format!("{outcome}:{reason}"),
                    count.as_u64().expect("the counter of a reason is not a number"),
                );
            }
        }
        Counters(counters)
    }

    /// Returns the counter `name`, or 0 if it does not exist.
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Returns how many commands were counted.
    pub fn total(&self) -> u64 {
        ["hit", "miss", "bypass", "fallback"].into_iter().map(|outcome| self.get(outcome)).sum()
    }

    /// Returns the outcomes counted since `before`, joined by `+`, or `nothing`. An outcome with a
    /// reason is given as `OUTCOME:REASON`. For example, `hit`, `miss+miss` or `bypass:no-compile`.
    pub fn since(&self, before: &Counters) -> String {
        let grown: Vec<_> = self.0.iter().filter(|(name, count)| **count > before.get(name)).collect();
        let has_reason = |outcome: &str| grown.iter().any(|(name, _)| name.starts_with(&format!("{outcome}:")));
        let mut words = Vec::new();
        for (name, count) in &grown {
            if !has_reason(name) {
                words.extend(std::iter::repeat_n(name.as_str(), (**count - before.get(name)) as usize));
            }
        }
        if words.is_empty() { "nothing".to_owned() } else { words.join("+") }
    }
}
