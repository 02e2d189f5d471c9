//! `cargo xtask bench build`: measures whole builds of the demo's projects, plain and through
//! caches, cold and warm.
//!
//! A round has one build of each kind, so a disturbance of the machine affects all kinds. The table
//! has medians over rounds.

use super::figure::Figure;
use super::measure::Series;
use super::replay::Replay;
use super::report::Report;
use super::rivals::{self, Rival};
use super::scene::Scene;
use super::server::Server;
use crate::fetch::{self, Build};
use crate::files::{self, remove};
use crate::launcher::{Counts, Launcher};
use crate::place::Place;
use crate::projects::{self, Project};
use crate::setup;
use crate::table::{NONE, Table, over, seconds, shown};
use crate::workload::{Built, Workload};
use anyhow::{Result, ensure};
use std::path::Path;
use std::time::Duration;

/// The options of `cargo xtask bench build`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The number of rounds with one build of each kind. A short build gets up to six times as many
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Build every project of the full demo instead of those of the small one
    #[arg(long)]
    full: bool,
    /// Build only this project. Can be given several times
    #[arg(long, value_name = "PROJECT")]
    only: Vec<String>,
    /// The number of compilers that run at once [default: the number of processors]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
}

/// The upper limits for CPU ÷ plain of a cold build: for C++, and for small C files.
const COLD_GOALS: [(&str, f64); 2] = [("C++", 1.03), ("C", 1.08)];
/// The upper limit for wall ÷ copies of a warm build. "Copies" is a compiler that only copies the
/// correct objects.
const COPIES_GOAL: f64 = 1.15;

/// A way to build. Each round has one build of each way.
struct Way<'a> {
    name: String,
    launcher: &'a Launcher,
    server: Option<&'a Server>,
    /// True if larder's stamps are removed before the build.
    forgets: bool,
}

/// All builds of one way.
struct Kind {
    name: String,
    series: Series,
    last: Built,
}

/// Measures every chosen project.
pub(crate) fn build(place: &Place, larder: &Path, options: &Options) -> Result<Report> {
    let projects = projects::choose(!options.full, &options.only)?;
    setup::for_builds(place)?;
    let scene = Scene::begin(place, larder, "build")?;
    files::make(scene.work.join("logs"))?;
    let store = scene.store("larder");
    let larder = Rival { launcher: Launcher::larder(larder, &store)?, store, server: None };
    let build = if options.rounds == 1 { Build::No } else { Build::Yes };
    let (mut rivals, skipped) = rivals::all(&scene, build)?;
    // kache is left out. Each round begins with an empty store, and a restarted daemon of kache
    // sometimes finds another daemon that a client has started.
    rivals.retain(|rival| rival.launcher.name != "kache");
    let mut caches: Vec<Rival> = std::iter::once(larder).chain(rivals).collect();
    let rounds = format!(
        "Medians of at least {} rounds with one build of each kind, and of more rounds for short builds. {MEASURED}",
        options.rounds
    );
    let mut report = Report::new("build", "Whole builds", 3, &[&rounds]);
    report.notes.extend(NOTES.map(str::to_owned));
    report.notes.extend(skipped);
    for project in projects {
        let kinds = measure(&scene, options, project, &mut caches)?;
        kinds.iter().for_each(|kind| add_row(&mut report.table, project, kind, &kinds));
        report.figures.extend(figures(project, &kinds));
    }
    drop(caches);
    remove(&scene.work)?;
    Ok(report)
}

/// Returns the factor for the rounds of a project whose plain build takes this long. Short builds
/// need more rounds, because their times vary more.
fn more_rounds(plain: Duration) -> u32 {
    const LONG: Duration = Duration::from_secs(6);
    (LONG.as_secs_f64() / plain.as_secs_f64().max(1e-3)).clamp(1.0, 6.0) as u32
}

/// Builds all ways in each round: plain, copies of what the plain build made, every cache cold,
/// every cache warm.
fn measure(scene: &Scene, options: &Options, project: &'static Project, caches: &mut [Rival]) -> Result<Vec<Kind>> {
    let (sources, work) = (fetch::sources(scene.place, project)?, &scene.work);
    let jobs = options.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(2, usize::from));
    let (logs, home) = (work.join("logs"), scene.home.clone());
    let workload = Workload { project, sources: &sources, tree: work.join("tree"), logs, home, jobs };
    let (plain, replay) = (Launcher::plain(), Replay::of(&workload.tree, work)?);
    let mut kinds: Vec<Kind> = Vec::new();
    let mut rounds = options.rounds;
    let mut round = 0;
    while round < rounds {
        caches.iter_mut().try_for_each(|cache| cache.empty(&workload.home))?;
        for (index, way) in ways(&plain, &replay.launcher, caches).iter().enumerate() {
            if way.forgets {
                way.launcher.forget_stamps()?;
            }
            let server = || way.server.map_or(Ok(Duration::ZERO), Server::cpu);
            let before = server()?;
            let mut built = workload.build(&way.name, way.launcher, project.objects)?;
            built.build.cpu += server()?.saturating_sub(before);
            if index == 0 {
                replay.keep()?;
            }
            if round == 0 {
                kinds.push(Kind { name: way.name.clone(), series: Series::default(), last: Built::default() });
            }
            ensure!(
                built.objects == kinds[0].last.objects || index == 0,
                "{}: the number of objects differs from the plain build's",
                way.name
            );
            kinds[index].series.samples.push(built.build);
            kinds[index].last = built;
        }
        if round == 0 && rounds > 1 {
            rounds *= more_rounds(kinds[0].series.samples[0].wall);
        }
        round += 1;
    }
    remove(&workload.tree)?;
    Ok(kinds)
}

fn ways<'a>(plain: &'a Launcher, replay: &'a Launcher, caches: &'a [Rival]) -> Vec<Way<'a>> {
    let bare = |launcher: &'a Launcher| Way { name: launcher.name.to_owned(), launcher, server: None, forgets: false };
    let mut ways = vec![bare(plain), bare(replay)];
    for word in ["cold", "warm"] {
        ways.extend(caches.iter().map(|cache| Way {
            name: format!("{} {word}", cache.launcher.name),
            launcher: &cache.launcher,
            server: cache.server.as_ref(),
            forgets: false,
        }));
    }
    // The first cache is larder.
    let larder = &caches[0].launcher;
    ways.push(Way { name: "larder warm, empty stamps".to_owned(), launcher: larder, server: None, forgets: true });
    ways
}

fn find<'a>(kinds: &'a [Kind], name: &str) -> Option<&'a Series> {
    kinds.iter().find(|kind| kind.name == name).map(|kind| &kind.series)
}

fn figures(project: &Project, kinds: &[Kind]) -> Vec<Figure> {
    let of = |name: &str, pick: fn(&Series) -> Vec<f64>| find(kinds, name).map(pick).unwrap_or_default();
    let cold_goal = COLD_GOALS.iter().find(|(language, _)| *language == project.language).map(|(_, goal)| *goal);
    let ratio = |these: &str, those: &str, what: &str, pick: fn(&Series) -> Vec<f64>, goal: Option<f64>| {
        let name = format!("{}, {these}, {what} ÷ {those}", project.name);
        Figure::ratio(name, &of(these, pick), &of(those, pick), goal)
    };
    let all = [
        ratio("larder cold", "plain", "CPU", Series::cpu_s, cold_goal),
        ratio("larder warm", "plain", "CPU", Series::cpu_s, None),
        ratio("larder warm", "copies", "wall", Series::wall_s, Some(COPIES_GOAL)),
        ratio("larder warm, empty stamps", "plain", "CPU", Series::cpu_s, None),
    ];
    all.into_iter().flatten().collect()
}

fn add_row(table: &mut Table, project: &Project, kind: &Kind, kinds: &[Kind]) {
    let counted = |number: fn(&Counts) -> u64| shown(kind.last.counts.as_ref().map(number));
    let over = |base: &str, of: fn(&Series) -> Duration| {
        find(kinds, base).map_or(NONE.to_owned(), |base| over(of(&kind.series), of(base)))
    };
    table.add([
        ("project", project.name.to_owned()),
        ("language", project.language.to_owned()),
        ("build", kind.name.clone()),
        ("wall s", seconds(kind.series.wall_median())),
        ("CPU s", seconds(kind.series.cpu_median())),
        ("wall ÷ plain", over("plain", Series::wall_median)),
        ("CPU ÷ plain", over("plain", Series::cpu_median)),
        ("wall ÷ copies", over("copies", Series::wall_median)),
        ("compiles", kind.last.objects.to_string()),
        ("hits", counted(|counts| counts.hit)),
        ("misses", counted(|counts| counts.miss)),
        ("rounds", kind.series.samples.len().to_string()),
    ]);
}

/// How the builds are measured.
const MEASURED: &str = "CPU is user and system time of all processes, without configuring. Cold builds begin with an \
     empty store. Every build runs at the same path, from fresh sources.";

/// The notes below the table.
const NOTES: [&str; 4] = [
    "copies: a static program in front of the compiler that copies the object and the depfile of the plain build, and \
     checks no input. It runs the tool for links and archives, which larder answers as well.",
    "larder warm, empty stamps: as in a container that was just started with a store from another machine.",
    rivals::NOTE,
    "kache is measured by `bench hit` and `bench miss` only, because its daemon cannot be restarted with an empty store \
     in each round.",
];
