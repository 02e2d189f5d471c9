//! The numbers by which two reports are compared, and their table in a report.

use super::statistics::{self, Interval};
use crate::table::{Table, shown};

/// A number of larder's that should be small and means the same on another day: a ratio within one
/// run, a count, or a peak of memory. The name says which: it has `÷`, or `MB`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) found: Interval,
    /// The upper limit.
    pub(crate) goal: Option<f64>,
}

impl Figure {
    /// Returns a ratio of medians, or `None` if one side has no samples.
    pub(crate) fn ratio(name: impl Into<String>, these: &[f64], those: &[f64], goal: Option<f64>) -> Option<Self> {
        Some(Self { name: name.into(), found: statistics::ratio(these, those)?, goal })
    }

    /// Returns a count.
    pub(crate) fn count(name: impl Into<String>, count: f64, goal: Option<f64>) -> Self {
        Self { name: name.into(), found: Interval::exact(count), goal }
    }

    /// Returns the median of all runs, or `None` if there are none.
    pub(crate) fn median(name: impl Into<String>, samples: &[f64], goal: Option<f64>) -> Option<Self> {
        Some(Self { name: name.into(), found: statistics::median(samples)?, goal })
    }

    /// Returns a peak memory, given in kB.
    pub(crate) fn peak(name: impl Into<String>, peak_kb: u64, goal_mb: Option<f64>) -> Self {
        Self::count(name, peak_kb as f64 / 1000.0, goal_mb)
    }

    /// Returns the factor that a difference must exceed, whatever the intervals say. Ratios of
    /// times differ by up to a tenth from run to run on a machine with other work
    /// (docs/performance.md, "Reports"). Counts differ because of a larger store or another length
    /// of a path.
    pub(crate) fn drift(&self) -> f64 {
        match &self.name {
            ratio if ratio.contains('÷') => 1.10,
            memory if memory.contains("MB") => 1.05,
            _ => 1.02,
        }
    }

    /// Returns the value with its interval as text.
    pub(crate) fn shown(&self) -> String {
        let Interval { value, low, high } = self.found;
        if low == high { number(value) } else { format!("{} ({} to {})", number(value), number(low), number(high)) }
    }
}

/// Returns the figures of benchmarks as a table, with the benchmark's name in front of each.
pub(super) fn table<'a>(figures: impl Iterator<Item = (&'a str, &'a Figure)>) -> Table {
    let mut table = Table::new(1);
    for (bench, figure) in figures {
        let met = figure.goal.map(|goal| if figure.found.value <= goal { "yes" } else { "no" });
        table.add([
            ("figure", format!("{bench}: {}", figure.name)),
            ("found", figure.shown()),
            ("goal", shown(figure.goal.map(number))),
            ("met", shown(met)),
        ]);
    }
    table
}

/// Reads the figures in the Markdown of a report.
pub(super) fn read(markdown: &str) -> Vec<Figure> {
    let rows = markdown.lines().skip_while(|line| *line != HEADING).skip(1).take_while(|line| !line.starts_with("## "));
    rows.filter_map(row).collect()
}

/// The heading of the figures in a report.
pub(super) const HEADING: &str = "## Figures";

/// Reads `| NAME | VALUE (LOW to HIGH) | GOAL | MET |`.
fn row(line: &str) -> Option<Figure> {
    let [_, name, found, goal, ..] = line.split('|').map(str::trim).collect::<Vec<_>>()[..] else { return None };
    let found = match found.split_once(" (") {
        None => Interval::exact(found.parse().ok()?),
        Some((value, ends)) => {
            let (low, high) = ends.strip_suffix(')')?.split_once(" to ")?;
            Interval { value: value.parse().ok()?, low: low.parse().ok()?, high: high.parse().ok()? }
        }
    };
    Some(Figure { name: name.to_owned(), found, goal: goal.parse().ok() })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_as_they_were_written() {
        let figure = |name: &str, [value, low, high]: [f64; 3], goal| Figure {
            name: name.to_owned(),
            found: Interval { value, low, high },
            goal,
        };
        let figures = [figure("a ÷ b", [1.25, 1.125, 1.5], Some(2.0)), figure("calls", [390.0; 3], None)];
        let table = table(figures.iter().map(|figure| ("hit", figure))).markdown();
        let read =
            read(&format!("# x\n\n| not | 1 | 2 | 3 |\n\n{HEADING}\n\n{table}\n\n## y\n\n| not | 1 | 2 | 3 |\n"));
        let named = figures.map(|figure| Figure { name: format!("hit: {}", figure.name), ..figure });
        assert_eq!(read, named);
        assert_eq!(named.map(|figure| figure.drift()), [1.10, 1.02]);
    }
}
