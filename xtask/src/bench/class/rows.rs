//! The table: a row for each setting, and what the figures are.

use super::service::Fared;
use super::{NO_TOKENS, PLAIN};
use crate::bench::report::{Figure, Report};
use crate::table::Table;
use larder_samples::{median, quantile};
use serde_json::{Value, json};

/// What else runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beside {
    Nothing,
    Service,
    Hog,
}

impl Beside {
    fn word(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Service => "service",
            Self::Hog => "hog",
        }
    }
}

/// What the runs of a setting gave.
pub(crate) struct Cell {
    pub(crate) setting: &'static str,
    pub(crate) builds: usize,
    pub(crate) beside: Beside,
    pub(crate) wall_s: Vec<f64>,
    pub(crate) fared: Vec<Fared>,
    /// The share of the processors that others had.
    pub(crate) others: Vec<f64>,
}

/// What one of them gave.
pub(crate) struct Ran {
    pub(crate) wall_s: f64,
    pub(crate) fared: Option<Fared>,
    pub(crate) others: f64,
}

const HEADER: &[&str] = &[
    "builds",
    "beside",
    "setting",
    "build s",
    "÷ plain",
    "÷ larder without tokens",
    "ping p50 ms",
    "ping p99 ms",
    "p99 ÷ no build",
    "frames missed",
    "download MB/s",
    "others",
];

/// What is asked of larder: setting, builds, beside what, what is compared, and how much more it may be at most.
const GOALS: &[(&str, usize, Beside, Compared, f64)] = &[
    ("larder, utility", 1, Beside::Service, Compared::Ping, 1.5),
    ("larder, utility", 2, Beside::Service, Compared::Ping, 1.5),
    ("larder", 1, Beside::Service, Compared::Ping, 2.0),
    ("larder", 2, Beside::Service, Compared::Ping, 2.0),
    ("larder", 1, Beside::Nothing, Compared::Build(PLAIN), 1.02),
    ("larder", 1, Beside::Nothing, Compared::Build(NO_TOKENS), 1.02),
    ("larder, utility", 1, Beside::Hog, Compared::Build(PLAIN), 1.1),
    ("larder, background", 1, Beside::Hog, Compared::Build(PLAIN), 1.1),
];

#[derive(Clone, Copy)]
enum Compared {
    /// With no build.
    Ping,
    /// With the same build in this setting.
    Build(&'static str),
}

impl Cell {
    pub(crate) fn new(setting: &'static str, builds: usize, beside: Beside) -> Self {
        Self { setting, builds, beside, wall_s: Vec::new(), fared: Vec::new(), others: Vec::new() }
    }

    pub(crate) fn add(&mut self, ran: Ran) {
        self.wall_s.push(ran.wall_s);
        self.fared.extend(ran.fared);
        self.others.push(ran.others);
    }

    /// Of each round.
    fn p99_ms(&self) -> Vec<f64> {
        self.fared.iter().map(|fared| quantile(fared.pings_ms.clone(), 99, 100)).collect()
    }

    fn middle(&self, of: impl Fn(&Fared) -> f64) -> Option<f64> {
        Some(median(&self.fared.iter().map(of).collect::<Vec<_>>())?.value)
    }
}

pub(crate) fn report(cells: &[Cell], processors: u32, jobs: u32, sources: u32) -> Report {
    let mut report = Report {
        name: "class",
        title: "Builds beside what people do, and beside a hog".to_owned(),
        notes: notes(processors, jobs, sources),
        table: Table::new(3, HEADER),
        ..Report::default()
    };
    for cell in cells {
        report.table.rows.push(row(cells, cell));
        report.rows.push(sample(cell));
    }
    report.figures = GOALS.iter().filter_map(|goal| figure(cells, goal)).collect();
    report
}

fn find<'a>(cells: &'a [Cell], setting: &str, builds: usize, beside: Beside) -> Option<&'a Cell> {
    cells.iter().find(|cell| cell.setting == setting && cell.builds == builds && cell.beside == beside)
}

fn row(cells: &[Cell], cell: &Cell) -> Vec<String> {
    let shown = |value: Option<f64>, digits: usize| value.map_or(String::new(), |value| format!("{value:.digits$}"));
    let middle = |samples: &[f64]| median(samples).map(|found| found.value);
    let wall = if cell.builds == 0 { None } else { middle(&cell.wall_s) };
    let of = |setting| find(cells, setting, cell.builds, cell.beside).and_then(|base| middle(&base.wall_s));
    let over = |base: Option<f64>| Some(wall? / base?);
    let alone = cells.first().and_then(|alone| middle(&alone.p99_ms()));
    let p99 = middle(&cell.p99_ms());
    vec![
        cell.builds.to_string(),
        cell.beside.word().to_owned(),
        cell.setting.to_owned(),
        shown(wall, 2),
        shown(over(of(PLAIN)), 3),
        shown(over(of(NO_TOKENS)), 3),
        shown(cell.middle(|fared| quantile(fared.pings_ms.clone(), 1, 2)), 2),
        shown(p99, 2),
        shown(p99.zip(alone).map(|(these, those)| these / those), 2),
        cell.middle(|fared| fared.missed).map_or(String::new(), |share| format!("{:.1} %", share * 100.0)),
        shown(cell.middle(|fared| fared.mb_per_s), 0),
        middle(&cell.others).map_or(String::new(), |share| format!("{:.0} %", share * 100.0)),
    ]
}

fn sample(cell: &Cell) -> Value {
    let quantiles =
        |fared: &Fared| [50, 90, 99].map(|hundredths| quantile(fared.pings_ms.clone(), hundredths, 100)).to_vec();
    json!({
        "setting": cell.setting,
        "builds": cell.builds,
        "beside": cell.beside.word(),
        "wall_s": cell.wall_s,
        "others_share": cell.others,
        "ping_ms_p50_p90_p99": cell.fared.iter().map(quantiles).collect::<Vec<_>>(),
        "frames_missed": cell.fared.iter().map(|fared| fared.missed).collect::<Vec<_>>(),
        "download_mb_per_s": cell.fared.iter().map(|fared| fared.mb_per_s).collect::<Vec<_>>(),
    })
}

fn figure(
    cells: &[Cell],
    (setting, builds, beside, compared, goal): &(&str, usize, Beside, Compared, f64),
) -> Option<Figure> {
    let these = find(cells, setting, *builds, *beside)?;
    let what = format!("{setting}, {builds} at once, beside {}", beside.word());
    match compared {
        Compared::Ping => Figure::ratio(
            format!("{what}: ping p99 ÷ no build"),
            &these.p99_ms(),
            &cells.first()?.p99_ms(),
            Some(*goal),
        ),
        Compared::Build(base) => {
            let those = find(cells, base, *builds, *beside)?;
            Figure::ratio(format!("{what}: build ÷ {base}"), &these.wall_s, &those.wall_s, Some(*goal))
        }
    }
}

fn notes(processors: u32, jobs: u32, sources: u32) -> Vec<String> {
    vec![
        format!(
            "Everything is pinned to {processors} of the machine's processors, in one scheduling group. A build is `make -j{jobs}` over {sources} \
             C files of about 0.4 s with gcc -O2, each compile a miss. build: wall time until all have ended; medians of rounds in turn."
        ),
        "ping: 64 bytes over the loopback and back, every 2 ms, from when it was due. frames: 4 ms of a processor every 16.7 ms; missed \
         when it is not ready before the next. download: over the loopback, paced to 200 MB/s. hog: a program that wants a processor for good. \
         others: the share of these processors that programs had which are no part of this; a run beside more than 5 % is repeated, \
         twice at most, and the quietest counts."
            .to_owned(),
    ]
}
