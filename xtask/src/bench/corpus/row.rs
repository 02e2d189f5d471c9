//! The result of one package, as a row of the table.

use super::packages::Package;
use crate::launcher::Counts;
use crate::run::Usage;
use crate::table::{NONE, Table, over};
use crate::tree::Comparison;

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

    pub(super) fn add_to(&self, table: &mut Table, package: &Package) {
        let over = |usage: Usage| over(usage.cpu, self.plain.cpu);
        let word = |outcome: &Option<Outcome>| outcome.map_or(NONE, Outcome::word);
        let place = |steps: &[Option<Outcome>; 2]| format!("{}+{}", word(&steps[0]), word(&steps[1]));
        let sum = |count: fn(&Comparison) -> u64| self.compared.iter().map(|(_, one)| count(one)).sum::<u64>();
        table.add([
            ("package", package.name.to_owned()),
            ("build system", package.system.to_owned()),
            ("plain CPU s", format!("{:.1}", self.plain.cpu.as_secs_f64())),
            ("cold ÷ plain", over(self.cold)),
            ("warm ÷ plain", over(self.warm)),
            ("hits", self.counts.hit.to_string()),
            ("misses", self.counts.runs().to_string()),
            ("again", self.again.to_string()),
            ("whole 1; 2; 3", self.whole.iter().map(place).collect::<Vec<_>>().join("; ")),
            ("whole ÷ plain", over(self.whole_usage)),
            ("whole again", self.whole_again.to_string()),
            ("files", sum(|one| one.compared).to_string()),
            ("left out", sum(|one| one.excluded).to_string()),
            ("differ", self.different().count().to_string()),
        ]);
    }
}
