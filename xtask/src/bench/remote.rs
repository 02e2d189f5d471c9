//! `cargo xtask bench remote`: measures a build whose records are all on a remote, beside the same
//! from the local store.
//!
//! The remote is Redis on this machine, behind a proxy that adds latency.

use super::figure::Figure;
use super::measure::Series;
use super::project::Project;
use super::report::Report;
use super::scene::Scene;
use crate::files::remove;
use crate::launcher::Launcher;
use crate::packages::packages;
use crate::place::Place;
use crate::progress::Bar;
use crate::table::{millis, over, shown};
use crate::{run, setup};
use anyhow::{Context, Result, ensure};
use larder_testkit::{Proxy, Server, Way};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

/// The options of `cargo xtask bench remote`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The number of rounds with one build of each kind
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// The number of sources of the project
    #[arg(long, default_value_t = 300, value_name = "N", value_parser = clap::value_parser!(u32).range(2..))]
    sources: u32,
    /// The added round-trip latencies, in milliseconds
    #[arg(long, default_values_t = [1, 20, 100], value_delimiter = ',', value_name = "MS")]
    latencies: Vec<u64>,
}

/// The upper limits for wall time ÷ the same from the local store, by latency in milliseconds.
const GOALS: [(u64, f64); 3] = [(1, 1.3), (20, 1.6), (100, 2.5)];
/// The time between writing an input and using it.
const SETTLING: Duration = Duration::from_millis(50);

/// One kind of build and its samples.
#[derive(Default)]
struct Kind {
    /// In milliseconds. `None` if the build is from the local store.
    latency: Option<u64>,
    series: Series,
    /// The number of tools that ran, in all rounds.
    misses: u64,
    /// The output of `larder stats --json` after the last build.
    stats: Value,
}

/// Measures from the local store and at each latency.
pub(crate) fn remote(place: &Place, larder: &Path, options: &Options) -> Result<Report> {
    setup::for_builds(place)?;
    packages("redis-server")?;
    let scene = Scene::begin(place, larder, "remote")?;
    let jobs = std::thread::available_parallelism().map_or(2, usize::from);
    let server = Server::redis(None).context("redis-server is not installed")?;
    let proxy = Proxy::before(server.address());
    let url = format!("redis://{}", proxy.address());
    let project = Project::write(scene.work.join("project"), options.sources)?;
    commit(&scene, &project.dir)?;
    sleep(SETTLING);
    let build = |launcher: &Launcher, expected: &[Vec<u8>]| project.build(launcher, &scene.home, jobs, expected);
    build(&Launcher::plain(), &[])?;
    let expected = project.objects()?;
    let local = Launcher::larder(larder, &scene.store("first"))?;
    let first = local.clone().with("LARDER_REMOTE", &url);
    let second = Launcher::larder(larder, &scene.store("second"))?.with("LARDER_REMOTE", &url);
    let larder = |launcher: &Launcher, words: &[&str]| -> Result<String> {
        let mut command = Command::new(&scene.larder);
        launcher.apply(&mut command, &scene.home);
        run::output(command.args(words))
    };
    // In its first runs larder learns how to observe a compiler.
    for _ in 0..2 {
        build(&first, &expected)?;
    }
    larder(&first, &["remote", "flush"])?;
    let latencies = std::iter::once(None).chain(options.latencies.iter().map(|ms| Some(*ms)));
    let mut kinds: Vec<Kind> = latencies.map(|latency| Kind { latency, ..Kind::default() }).collect();
    let bar = Bar::new("from a remote", options.rounds.into());
    for round in 1..=options.rounds {
        for kind in &mut kinds {
            let launcher = if kind.latency.is_some() { &second } else { &local };
            if let Some(ms) = kind.latency {
                proxy.set(Way::Late(Duration::from_millis(ms)));
                remove(scene.store("second"))?;
            }
            let (usage, counts) = build(launcher, &expected)?;
            let counts = counts.context("larder counts")?;
            // The tool may win a race against the remote, which counts as a miss.
            ensure!(counts.hit + counts.miss == u64::from(options.sources), "{:?}: {counts:?}", kind.latency);
            kind.series.samples.push(usage);
            kind.misses += counts.miss;
            if kind.latency.is_some() {
                kind.stats = serde_json::from_str(&larder(&second, &["stats", "--json"])?)?;
                larder(&second, &["daemon", "stop"])?;
            }
        }
        bar.at(round.into());
    }
    bar.end(&format!("from a remote: {} rounds", options.rounds));
    proxy.set(Way::Late(Duration::ZERO));
    larder(&first, &["daemon", "stop"])?;
    let note = format!(
        "A build of {} C files with `make -j{jobs}`, all hits. The remote is Redis on this machine behind a proxy that \
         adds the round-trip latency. Each build from the remote begins with an empty store, no stamps, and no larderd. \
         The local store has its stamps. Medians of {} interleaved rounds.",
        options.sources, options.rounds
    );
    let mut report = Report::new("remote", "From a remote", 1, &[&note]);
    kinds.iter().for_each(|kind| kind.add_to(&mut report, &kinds[0].series));
    remove(&scene.work)?;
    Ok(report)
}

impl Kind {
    fn add_to(&self, report: &mut Report, local: &Series) {
        let what = self.latency.map_or("from the local store".to_owned(), |ms| format!("from the remote, {ms} ms"));
        let count = |number: &Value| shown(number.as_u64());
        report.table.add([
            ("what", what.clone()),
            ("wall ms", millis(self.series.wall_median())),
            ("CPU ms", millis(self.series.cpu_median())),
            ("wall ÷ local store", over(self.series.wall_median(), local.wall_median())),
            ("asked", count(&self.stats["remote_hit"])),
            ("ahead", count(&self.stats["remote"]["prefetched"])),
            ("races", count(&self.stats["remote"]["races"])),
            ("tool runs", self.misses.to_string()),
        ]);
        if let Some(ms) = self.latency {
            let goal = GOALS.iter().find(|(latency, _)| *latency == ms).map(|(_, goal)| *goal);
            let name = format!("{what}, wall ÷ local store");
            report.figures.extend(Figure::ratio(name, &self.series.wall_s(), &local.wall_s(), goal));
        }
    }
}

/// Makes a checkout of the directory, because prefetching is by commits.
fn commit(scene: &Scene, dir: &Path) -> Result<()> {
    remove(dir.join(".git"))?;
    for words in [&["init", "-q"][..], &["add", "--all"], &["commit", "-q", "-m", "all"]] {
        let mut git = Command::new("git");
        git.current_dir(dir).env("HOME", &scene.home);
        git.args(["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "init.defaultBranch=main"]).args(words);
        run::output(&mut git)?;
    }
    Ok(())
}
