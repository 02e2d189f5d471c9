//! The counters of each cache, translated into larder's terms.

use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::ops::Sub;

/// The counters of a cache in larder's terms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) hit: u64,
    pub(crate) miss: u64,
    pub(crate) bypass: u64,
    pub(crate) fallback: u64,
    /// From a reason to its count. The kind of the reason comes first, for example `unrecorded `.
    pub(crate) reasons: BTreeMap<String, u64>,
}

/// The reasons in larder's statistics, and the prefix of each kind.
const LARDER_REASONS: &[(&str, &str)] =
    &[("bypass_reasons", "bypass "), ("fallback_reasons", "fallback "), ("unrecorded_reasons", UNRECORDED)];
const UNRECORDED: &str = "unrecorded ";

impl Counts {
    /// Returns the number of commands that ran the tool.
    pub(crate) fn runs(&self) -> u64 {
        self.miss + self.bypass + self.fallback
    }

    /// Returns the number of runs that larder did not record, with a reason.
    pub(crate) fn unrecorded(&self) -> u64 {
        self.reasons.iter().filter(|(code, _)| code.starts_with(UNRECORDED)).map(|(_, count)| count).sum()
    }
}

impl Sub for Counts {
    type Output = Self;
    fn sub(self, before: Self) -> Self {
        let less = |code: &String, count: u64| count.saturating_sub(before.reasons.get(code).copied().unwrap_or(0));
        let reasons = self.reasons.iter().map(|(code, &count)| (code.clone(), less(code, count)));
        Self {
            hit: self.hit.saturating_sub(before.hit),
            miss: self.miss.saturating_sub(before.miss),
            bypass: self.bypass.saturating_sub(before.bypass),
            fallback: self.fallback.saturating_sub(before.fallback),
            reasons: reasons.filter(|&(_, count)| count > 0).collect(),
        }
    }
}

/// Reads the output of `larder stats --json`.
pub(super) fn larder(text: &str) -> Result<Counts> {
    let json: serde_json::Value = serde_json::from_str(text).context("`larder stats --json` did not print JSON")?;
    let field =
        |name: &str| json[name].as_u64().with_context(|| format!("`larder stats --json` has no integer `{name}`"));
    let mut reasons = BTreeMap::new();
    for (name, kind) in LARDER_REASONS {
        for (code, count) in json[name].as_object().into_iter().flatten() {
            reasons.insert(format!("{kind}{code}"), count.as_u64().unwrap_or(0));
        }
    }
    Ok(Counts {
        hit: field("hit")?,
        miss: field("miss")?,
        bypass: field("bypass")?,
        fallback: field("fallback")?,
        reasons,
    })
}

/// Reads the output of `ccache --print-stats`.
pub(super) fn ccache(text: &str) -> Counts {
    let sum = |names: &[&str]| -> u64 {
        let lines = text.lines().filter_map(|line| line.split_once('\t')).filter(|(name, _)| names.contains(name));
        lines.filter_map(|(_, value)| value.trim().parse::<u64>().ok()).sum()
    };
    let hit = sum(&["direct_cache_hit", "preprocessed_cache_hit"]);
    Counts { hit, miss: sum(&["cache_miss"]), ..Counts::default() }
}

/// Reads the output of `sccache --show-stats --stats-format json`.
pub(super) fn sccache(text: &str) -> Result<Counts> {
    let json: serde_json::Value = serde_json::from_str(text).context("sccache did not print JSON")?;
    let sum = |name: &str| -> u64 {
        let counts = json["stats"][name]["counts"].as_object();
        counts.into_iter().flatten().filter_map(|(_, count)| count.as_u64()).sum()
    };
    Ok(Counts { hit: sum("cache_hits"), miss: sum("cache_misses"), ..Counts::default() })
}

/// Reads the output of `kache stats --json`.
pub(super) fn kache(text: &str) -> Result<Counts> {
    let json: serde_json::Value = serde_json::from_str(text).context("kache did not print JSON")?;
    let number = |name: &str| field(&json, name).with_context(|| format!("`kache stats --json` has no integer {name}"));
    Ok(Counts { hit: number("local_hits")?, miss: number("misses")?, ..Counts::default() })
}

/// Returns the first number with this name at any depth.
fn field(json: &serde_json::Value, name: &str) -> Option<u64> {
    json[name].as_u64().or_else(|| json.as_object()?.values().find_map(|inner| field(inner, name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_larders_statistics() {
        let text = r#"{"hit":3,"miss":2,"bypass":1,"fallback":0,"bypass_reasons":{"link":1},"unrecorded_reasons":{"clock":2}}"#;
        let counts = larder(text).expect("well-formed");
        assert_eq!((counts.hit, counts.miss, counts.unrecorded()), (3, 2, 2));
        assert!(larder(r#"{"hit":3}"#).is_err());
    }

    #[test]
    fn reads_ccaches_counters() {
        let text = "direct_cache_hit\t5\npreprocessed_cache_hit\t1\ncache_miss\t2\ncalled_for_link\t1\n";
        assert_eq!(ccache(text), Counts { hit: 6, miss: 2, ..Counts::default() });
    }

    #[test]
    fn reads_kaches_statistics() {
        let counts = kache(r#"{"data":{"events":{"local_hits":4,"misses":1}}}"#).expect("well-formed");
        assert_eq!((counts.hit, counts.miss), (4, 1));
        assert!(kache(r#"{"data":{}}"#).is_err());
    }

    #[test]
    fn a_difference_drops_reasons_that_did_not_grow() {
        let counts = |miss, clock| Counts {
            miss,
            reasons: [("unrecorded clock".to_owned(), clock)].into(),
            ..Counts::default()
        };
        assert_eq!(counts(5, 2) - counts(3, 2), Counts { miss: 2, ..Counts::default() });
    }
}
