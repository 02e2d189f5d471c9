//! What larder counted, from `larder stats --json`.

use std::collections::BTreeMap;

use serde_json::Value;

/// All counters at one moment: `hit`, `miss`, … and, as `miss:clock` or `bypass:no-compile`, their reasons.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters(BTreeMap<String, u64>);

impl Counters {
    /// Of the JSON that larder prints.
    pub fn parse(text: &str) -> Counters {
        let json: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
        let mut counters = BTreeMap::new();
        for outcome in ["hit", "miss", "bypass", "fallback"] {
            counters.insert(outcome.to_owned(), json[outcome].as_u64().expect("is a number"));
        }
        for (outcome, table) in
            [("miss", "unrecorded_reasons"), ("bypass", "bypass_reasons"), ("fallback", "fallback_reasons")]
        {
            for (reason, count) in json[table].as_object().expect("is an object") {
                counters.insert(format!("{outcome}:{reason}"), count.as_u64().expect("is a number"));
            }
        }
        Counters(counters)
    }

    /// One counter; 0 where it is not there.
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// How many commands were counted.
    pub fn total(&self) -> u64 {
        ["hit", "miss", "bypass", "fallback"].into_iter().map(|outcome| self.get(outcome)).sum()
    }

    /// What was counted since `before`, with its reason where it has one: `hit`, `miss`, `bypass:no-compile`;
    /// `nothing`; several are joined by `+`.
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
