//! `cargo xtask bench build`: whole builds of the demo's projects, plain and through caches, cold and warm.
//!
//! A round holds one build of each kind, so that what disturbs the machine disturbs all; the table has medians over rounds.

use super::measure::Series;
use super::report::Report;
use crate::launcher::{Counts, Launcher};
use crate::place::{Place, fresh, remove};
use crate::projects::{self, Project};
use crate::table::{NONE, Table};
use crate::workload::{Built, Workload};
use crate::{binaries, fetch, setup};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// What `cargo xtask bench build` takes.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Rounds: one build of each kind in each
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Every project of the full demo instead of the small one's
    #[arg(long)]
    full: bool,
    /// Build only this project; may be given several times
    #[arg(long, value_name = "PROJECT")]
    only: Vec<String>,
    /// How many compilers run at once [default: one a processor]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Measure this larder, with its larderd beside it, instead of building one
    #[arg(long, value_name = "PROGRAM")]
    larder: Option<PathBuf>,
}

const HEADER: &[&str] = &[
    "project",
    "language",
    "build",
    "wall s",
    "CPU s",
    "wall ÷ plain",
    "CPU ÷ plain",
    "compiles",
    "hits",
    "misses",
    "rounds",
];

/// All builds of one kind.
struct Kind {
    name: String,
    series: Series,
    last: Built,
}

/// Measures every chosen project and publishes the report.
pub(crate) fn build(place: &Place, options: &Options) -> Result<()> {
    let projects = projects::choose(!options.full, &options.only)?;
    setup::for_bench(place)?;
    let larder = binaries::larder(place, options.larder.as_deref())?;
    let work = place.own("bench-build")?;
    fresh(&work)?;
    let launchers = launchers(place, &larder, &work)?;
    let mut report = Report {
        title: "Whole builds".to_owned(),
        notes: vec![format!(
            "Medians of {} rounds with one build of each kind; CPU is user and system time of all processes. Without \
             configuring. Cold begins with an empty store; every build runs at the same path, from fresh sources.",
            options.rounds
        )],
        table: Table::new(3, HEADER),
        rows: Vec::new(),
    };
    for project in projects {
        let kinds = measure(place, options, project, &work, &launchers)?;
        let plain = kinds.first().map(|kind| kind.series.clone()).unwrap_or_default();
        report.table.rows.extend(kinds.iter().map(|kind| row(project, kind, &plain)));
        report.rows.extend(kinds.iter().map(|kind| json_row(project, kind)));
    }
    remove(&work)?;
    report.publish(place, "build")
}

fn launchers(place: &Place, larder: &Path, work: &Path) -> Result<Vec<(Launcher, PathBuf)>> {
    let ccache = fetch::ccache(place)?;
    let store = |name: &str| work.join("store").join(name);
    Ok(vec![
        (Launcher::larder(larder, &store("larder"))?, store("larder")),
        (Launcher::ccache(&ccache, &store("ccache"))?, store("ccache")),
        (Launcher::ccache_loosened(&ccache, &store("loosened"))?, store("loosened")),
    ])
}

/// Plain first, then every launcher cold, then every launcher warm, round by round.
fn measure(
    place: &Place,
    options: &Options,
    project: &'static Project,
    work: &Path,
    launchers: &[(Launcher, PathBuf)],
) -> Result<Vec<Kind>> {
    let sources = fetch::sources(place, project)?;
    let (logs, home) = (work.join("logs"), work.join("home"));
    for dir in [&logs, &home] {
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    }
    let jobs = options.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(2, usize::from));
    let workload = Workload { project, sources: &sources, tree: work.join("tree"), logs, home, jobs };
    let mut kinds = vec![Kind::new("plain".to_owned())];
    for word in ["cold", "warm"] {
        kinds.extend(launchers.iter().map(|(launcher, _)| Kind::new(format!("{} {word}", launcher.name))));
    }
    for _ in 0..options.rounds {
        launchers.iter().try_for_each(|(_, store)| fresh(store))?;
        let plain = Launcher::plain();
        let steps = std::iter::once(&plain).chain(launchers.iter().chain(launchers).map(|(launcher, _)| launcher));
        for (index, launcher) in steps.enumerate() {
            let kind = &mut kinds[index];
            kind.last = workload.build(&kind.name, launcher, project.objects)?;
            kind.series.samples.push(kind.last.build);
        }
    }
    remove(&workload.tree)?;
    Ok(kinds)
}

impl Kind {
    fn new(name: String) -> Self {
        Self { name, series: Series::default(), last: Built::default() }
    }
}

fn row(project: &Project, kind: &Kind, plain: &Series) -> Vec<String> {
    let (wall, cpu) = (kind.series.wall_median().as_secs_f64(), kind.series.cpu_median().as_secs_f64());
    let counted = |number: fn(&Counts) -> u64| {
        kind.last.counts.as_ref().map_or(NONE.to_owned(), |counts| number(counts).to_string())
    };
    vec![
        project.name.to_owned(),
        project.language.to_owned(),
        kind.name.clone(),
        format!("{wall:.2}"),
        format!("{cpu:.2}"),
        format!("{:.3}", wall / plain.wall_median().as_secs_f64()),
        format!("{:.3}", cpu / plain.cpu_median().as_secs_f64()),
        kind.last.objects.to_string(),
        counted(|counts| counts.hit),
        counted(|counts| counts.miss),
        kind.series.samples.len().to_string(),
    ]
}

fn json_row(project: &Project, kind: &Kind) -> Value {
    let seconds = |pick: fn(&crate::run::Usage) -> f64| -> Vec<f64> { kind.series.samples.iter().map(pick).collect() };
    json!({
        "project": project.name,
        "language": project.language,
        "build": kind.name,
        "compiles": kind.last.objects,
        "hits": kind.last.counts.as_ref().map(|counts| counts.hit),
        "misses": kind.last.counts.as_ref().map(|counts| counts.miss),
        "wall_s": seconds(|usage| usage.wall.as_secs_f64()),
        "cpu_s": seconds(|usage| usage.cpu.as_secs_f64()),
    })
}
