//! The table. Each part fills the columns for which it has numbers.

use super::options::Options;
use crate::bench::figure::{Figure, millis};
use crate::bench::measure::Series;
use crate::bench::report::Report;
use crate::launcher::Counts;
use crate::table::NONE;
use serde_json::json;
use std::time::Duration;

pub(super) const HEADER: &[&str] = &[
    "part",
    "what",
    "wall ms",
    "CPU ms",
    "wall ÷ plain",
    "CPU ÷ plain",
    "wall ÷ base",
    "CPU ÷ base",
    "system calls",
    "instructions k",
    "tool runs",
    "hits",
    "of them waited",
    "rounds",
];

/// A row. It is divided by `plain` and `base`, which each part chooses.
#[derive(Default)]
pub(super) struct Row<'a> {
    pub(super) part: &'static str,
    pub(super) what: String,
    pub(super) series: Series,
    pub(super) plain: Option<&'a Series>,
    pub(super) base: Option<&'a Series>,
    pub(super) calls: Option<u64>,
    pub(super) instructions: Option<u64>,
    /// The counters of the last round.
    pub(super) counts: Option<Counts>,
    /// True if CPU ÷ base, or else CPU ÷ plain, is a figure.
    pub(super) figure: bool,
}

impl Row<'_> {
    pub(super) fn add_to(&self, report: &mut Report) {
        let (wall, cpu) = (self.series.wall_median(), self.series.cpu_median());
        let over = |base: Option<&Series>, mine: Duration, of: fn(&Series) -> Duration| {
            base.map_or(NONE.to_owned(), |base| format!("{:.3}", mine.as_secs_f64() / of(base).as_secs_f64().max(1e-9)))
        };
        let number = |number: Option<u64>| number.map_or(NONE.to_owned(), |number| number.to_string());
        let counted = |of: fn(&Counts) -> u64| number(self.counts.as_ref().map(of));
        report.table.rows.push(vec![
            self.part.to_owned(),
            self.what.clone(),
            millis(wall),
            millis(cpu),
            over(self.plain, wall, Series::wall_median),
            over(self.plain, cpu, Series::cpu_median),
            over(self.base, wall, Series::wall_median),
            over(self.base, cpu, Series::cpu_median),
            number(self.calls),
            number(self.instructions.map(|count| count / 1000)),
            counted(Counts::runs),
            counted(|counts| counts.hit),
            counted(|counts| counts.waited),
            self.series.samples.len().to_string(),
        ]);
        let base = self.base.map(|base| ("base", base)).or(self.plain.map(|plain| ("plain", plain)));
        if let Some((word, base)) = base.filter(|_| self.figure) {
            let name = format!("{}, {}, CPU ÷ {word}", self.part, self.what);
            report.figures.extend(Figure::ratio(name, &self.series.cpu_s(), &base.cpu_s(), None));
        }
        report.rows.push(json!({
            "part": self.part,
            "what": self.what,
            "samples": self.series.json(),
            "system_calls": self.calls,
            "instructions": self.instructions,
            "tool_runs": self.counts.as_ref().map(Counts::runs),
            "hits": self.counts.as_ref().map(|counts| counts.hit),
            "waited": self.counts.as_ref().map(|counts| counts.waited),
        }));
    }
}

pub(super) fn notes(options: &Options) -> Vec<String> {
    vec![
        format!(
            "Medians of interleaved rounds; CPU is user and system time of all processes. The project has {} sources. \
             Every object is compared with the plain build's, and larder's counters with the expected ones.",
            options.sources
        ),
        "jobs: plain is the plain build with as many jobs, base is the same build through larder with one job. Before \
         each cold build one source was compiled, so that larder knows the compiler."
            .to_owned(),
        "two at once: two checkouts of the project, one make each with as many jobs as there are processors; base is \
         one such build alone."
            .to_owned(),
        "records: one hit of a C file with 220 headers, and one record of a command that does nothing; base is the \
         first store. by the store's functions: CPU time of one record, of a hundred made by one process. Stores of GB \
         have blobs of 1 MB. Stores of more than 4 GB are sparse."
            .to_owned(),
    ]
}
