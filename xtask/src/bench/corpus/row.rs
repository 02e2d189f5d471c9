//! The result of one package, as a row of the table and as JSON.

use super::packages::Package;
use crate::launcher::Counts;
use crate::run::Usage;
use crate::table::NONE;
use crate::tree::Comparison;
use serde_json::{Value, json};

pub(super) const HEADER: &[&str] = &[
    "package",
    "build system",
    "plain CPU s",
    "cold ÷ plain",
    "warm ÷ plain",
    "hits",
    "misses",
    "again",
    "whole 1; 2; 3",
    "whole ÷ plain",
    "again",
    "files",
    "left out",
    "differ",
];

/// What became of a whole command.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Hit,
    Miss,
    /// It ran, and its run was not recorded.
    Unrecorded,
}

impl Outcome {
    fn word(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Miss => "m",
            Self::Unrecorded => "r",
        }
    }
}

/// The result of one package.
#[derive(Default)]
pub(super) struct Row {
    pub(super) plain: Usage,
    pub(super) cold: Usage,
    pub(super) warm: Usage,
    pub(super) counts: Counts,
    /// How many compilers ran, or were answered for, in a second build in the same place.
    pub(super) again: u64,
    /// For each place, the outcome of configuring and of building. `None` if there is no such step.
    pub(super) whole: Vec<[Option<Outcome>; 2]>,
    /// The whole commands in the third place.
    pub(super) whole_usage: Usage,
    /// Like `again`, after the whole commands.
    pub(super) whole_again: u64,
    /// Each comparison, and the step that it followed.
    pub(super) compared: Vec<(&'static str, Comparison)>,
}

impl Row {
    /// Returns a line for each file that differs.
    pub(super) fn different(&self) -> impl Iterator<Item = String> + '_ {
        self.compared.iter().flat_map(|(step, comparison)| {
            comparison.different.iter().map(move |(path, what)| format!("{step}: {} {what}", path.display()))
        })
    }

    pub(super) fn cells(&self, package: &Package) -> Vec<String> {
        let over = |usage: Usage| format!("{:.2}", usage.cpu.as_secs_f64() / self.plain.cpu.as_secs_f64().max(1e-9));
        let word = |outcome: &Option<Outcome>| outcome.map_or(NONE, Outcome::word);
        let place = |steps: &[Option<Outcome>; 2]| format!("{}+{}", word(&steps[0]), word(&steps[1]));
        let sum = |count: fn(&Comparison) -> u64| self.compared.iter().map(|(_, one)| count(one)).sum::<u64>();
        vec![
            package.name.to_owned(),
            package.system.to_owned(),
            format!("{:.1}", self.plain.cpu.as_secs_f64()),
            over(self.cold),
            over(self.warm),
            self.counts.hit.to_string(),
            self.counts.runs().to_string(),
            self.again.to_string(),
            self.whole.iter().map(place).collect::<Vec<_>>().join("; "),
            over(self.whole_usage),
            self.whole_again.to_string(),
            sum(|one| one.compared).to_string(),
            sum(|one| one.excluded).to_string(),
            self.different().count().to_string(),
        ]
    }

    pub(super) fn json(&self, package: &Package) -> Value {
        let seconds = |usage: Usage| json!({ "wall": usage.wall.as_secs_f64(), "cpu": usage.cpu.as_secs_f64() });
        let words = |steps: &[Option<Outcome>; 2]| steps.map(|outcome| outcome.map(Outcome::word));
        json!({
            "package": package.name,
            "plain": seconds(self.plain),
            "cold": seconds(self.cold),
            "warm": seconds(self.warm),
            "whole_third": seconds(self.whole_usage),
            "hits": self.counts.hit,
            "misses": self.counts.runs(),
            "again": self.again,
            "whole": self.whole.iter().map(words).collect::<Vec<_>>(),
            "whole_again": self.whole_again,
            "different": self.different().collect::<Vec<_>>(),
        })
    }
}
