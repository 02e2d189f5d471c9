//! The numbers by which two reports are compared.

use larder_samples::Interval;

/// A number of larder's that should be small and means the same on another day: a ratio within one
/// run, or a count.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) found: Interval,
    /// The upper limit.
    pub(crate) goal: Option<f64>,
}

/// The kind of a figure. It determines how much the figure may differ between two runs of the same
/// program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A ratio of times that were measured in the same rounds.
    Ratio,
    /// A count.
    Count,
    /// Peak memory in megabytes.
    Memory,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Ratio, Self::Count, Self::Memory];

    /// Returns its word in JSON.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Ratio => "ratio",
            Self::Count => "count",
            Self::Memory => "megabytes",
        }
    }

    /// Returns the kind with that word.
    pub(crate) fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }

    /// Returns the factor that a difference must exceed, whatever the intervals say. Ratios of
    /// times differ by up to a tenth from run to run on a machine with other work
    /// (docs/performance.md, "Reports"). Counts differ because of a larger store or another length
    /// of a path.
    pub(crate) fn drift(self) -> f64 {
        match self {
            Self::Ratio => 1.10,
            Self::Count => 1.02,
            Self::Memory => 1.05,
        }
    }
}

impl Figure {
    /// Returns a ratio of medians, or `None` if one side has no samples.
    pub(crate) fn ratio(name: impl Into<String>, these: &[f64], those: &[f64], goal: Option<f64>) -> Option<Self> {
        let found = larder_samples::ratio(these, those)?;
        Some(Self { name: name.into(), kind: Kind::Ratio, found, goal })
    }

    /// Returns a count.
    pub(crate) fn count(name: impl Into<String>, count: f64, goal: Option<f64>) -> Self {
        Self { name: name.into(), kind: Kind::Count, found: Interval::exact(count), goal }
    }

    /// Returns the median of the counts of all runs, or `None` if there are none.
    pub(crate) fn counts(name: impl Into<String>, counts: &[u64], goal: Option<f64>) -> Option<Self> {
        let counts: Vec<f64> = counts.iter().map(|&count| count as f64).collect();
        let found = larder_samples::median(&counts)?;
        Some(Self { name: name.into(), kind: Kind::Count, found, goal })
    }

    /// Returns a peak memory, given in kB.
    pub(crate) fn peak(name: impl Into<String>, peak_kb: u64, goal_mb: Option<f64>) -> Self {
        let found = Interval::exact(peak_kb as f64 / 1000.0);
        Self { name: name.into(), kind: Kind::Memory, found, goal: goal_mb }
    }

    /// Returns the value with its interval as text.
    pub(crate) fn shown(&self) -> String {
        let Interval { value, low, high } = self.found;
        if low == high { number(value) } else { format!("{} ({} to {})", number(value), number(low), number(high)) }
    }

    /// Returns whether the goal is met, or `None` if there is no goal.
    pub(crate) fn is_met(&self) -> Option<bool> {
        self.goal.map(|goal| self.found.value <= goal)
    }
}

/// Formats with three significant digits, and whole numbers as they are.
pub(crate) fn number(value: f64) -> String {
    match value {
        value if value.fract() == 0.0 || value.abs() >= 1000.0 => format!("{value:.0}"),
        value if value.abs() >= 100.0 => format!("{value:.1}"),
        value if value.abs() >= 10.0 => format!("{value:.2}"),
        value => format!("{value:.3}"),
    }
}

/// Formats milliseconds with three decimals.
pub(crate) fn millis(time: std::time::Duration) -> String {
    format!("{:.3}", time.as_secs_f64() * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_in_each_run_has_an_interval() {
        let figure = Figure::counts("page faults", &[60, 57, 56, 57, 58], None).expect("there are counts");
        assert_eq!((figure.kind, figure.found.value), (Kind::Count, 57.0));
        assert!(figure.found.low >= 56.0 && figure.found.high <= 60.0, "{figure:?}");
        assert_eq!(Figure::counts("page faults", &[], None), None);
    }
}
