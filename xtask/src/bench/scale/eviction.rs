//! Hits and builds while `larder evict` runs again and again.

use super::project::Project;
use super::rows::Row;
use super::{Bench, records};
use crate::bench::inputs;
use crate::bench::measure::{SETTLING, Series, interleaved};
use crate::bench::report::Report;
use crate::bench::subjects::Compile;
use crate::launcher::{Counts, Launcher};
use crate::place::fresh;
use crate::progress::Bar;
use crate::run;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;

/// Records in the store whose hits are measured.
const RECORDS: u64 = 5000;
/// What that store is evicted to: a part of it goes at once, and the rest is read each time.
const LIMIT: &str = "25MB";
/// Of what the project's objects and manifests take, in percent, so that something goes each time.
const SMALL_LIMIT_PERCENT: u64 = 60;
/// So many times more rounds than of other commands, so that there are some evictions meanwhile.
const MORE_ROUNDS: usize = 10;
/// One process, waited for at the end only, so that what it and its children cost is not in what is measured meanwhile.
const AGAIN: &str = "n=0; while [ -e \"$1\" ]; do \"$2\" evict --max-size \"$3\" >/dev/null || exit 1; n=$((n + 1)); \
     done; echo $n >\"$4\"";

/// Evicts until it is stopped.
struct Evictor {
    child: Child,
    flag: PathBuf,
    rounds: PathBuf,
}

impl Evictor {
    fn start(bench: &Bench, launcher: &Launcher, limit: &str) -> Result<Self> {
        let (flag, rounds) = (bench.work.join("evict-on"), bench.work.join("evict-rounds"));
        fs::write(&flag, "").with_context(|| format!("cannot write {}", flag.display()))?;
        let mut command = Command::new("sh");
        command.args(["-c", AGAIN, "sh"]).arg(&flag).arg(&bench.larder).arg(limit).arg(&rounds);
        launcher.apply(&mut command, &bench.home);
        let child = command.stdin(Stdio::null()).spawn().context("sh cannot be started")?;
        Ok(Self { child, flag, rounds })
    }

    /// How often it evicted.
    fn stop(mut self) -> Result<u64> {
        fs::remove_file(&self.flag).with_context(|| format!("cannot remove {}", self.flag.display()))?;
        let status = self.child.wait().context("sh cannot be waited for")?;
        ensure!(status.success(), "an eviction failed: {status}");
        let text =
            fs::read_to_string(&self.rounds).with_context(|| format!("cannot read {}", self.rounds.display()))?;
        text.trim().parse().context("the evictions were not counted")
    }
}

impl Drop for Evictor {
    fn drop(&mut self) {
        // Without its flag it ends by itself.
        let _ = fs::remove_file(&self.flag);
    }
}

pub(super) fn eviction(bench: &Bench, report: &mut Report) -> Result<()> {
    hits(bench, report)?;
    builds(bench, report)
}

/// Hits in a store that is read through by evictions.
fn hits(bench: &Bench, report: &mut Report) -> Result<()> {
    let store = records::store(bench, RECORDS)?;
    let launcher = Launcher::larder(&bench.larder, &store)?;
    let case = inputs::c(&bench.work.join("evicted"))?;
    thread::sleep(SETTLING);
    let hit = Compile { launcher: launcher.clone(), ..Compile::plain(&case, &bench.home) };
    hit.warm_up()?;
    thread::sleep(SETTLING);
    hit.once()?;
    let runs = bench.options.runs as usize * MORE_ROUNDS;
    let measure = |label: &str| -> Result<(Series, Counts)> {
        let before = hit.counts()?;
        let series = interleaved(label, &[&hit], runs)?.pop().unwrap_or_default();
        Ok((series, hit.counts()? - before))
    };
    let calm = measure("hits, calm")?;
    let evictor = Evictor::start(bench, &launcher, LIMIT)?;
    let evicted = measure("hits, evicted")?;
    let rounds = evictor.stop()?;
    let base = calm.0.clone();
    for (what, (series, counts)) in
        [("hits, calm".to_owned(), calm), (format!("hits during {rounds} evictions"), evicted)]
    {
        ensure!(counts.hit == runs as u64, "{what}: {runs} hits were to be: {counts:?}");
        Row { part: "eviction", what, series, base: Some(&base), counts: Some(counts), ..Row::default() }
            .add_to(report);
    }
    Ok(())
}

/// Builds whose records are evicted as they are made: hits, misses, and objects that are right whatever is gone.
fn builds(bench: &Bench, report: &mut Report) -> Result<()> {
    let project = Project::write(bench.work.join("evicted-builds"), bench.options.sources)?;
    let store = bench.work.join("store/evicted-builds");
    let larder = Launcher::larder(&bench.larder, &store)?;
    thread::sleep(SETTLING);
    let jobs = thread::available_parallelism().map_or(2, usize::from);
    project.build(&Launcher::plain(), &bench.home, (jobs, "all"), &[])?;
    let expected = project.objects()?;
    let rounds = bench.options.rounds.max(2);
    let build = |label: &str| -> Result<(Series, Counts)> {
        let (mut series, mut all) = (Series::default(), Counts::default());
        let bar = Bar::new(label, u64::from(rounds));
        for round in 0..rounds {
            let (usage, counts) = project.build(&larder, &bench.home, (jobs, "all"), &expected)?;
            series.samples.push(usage);
            all.add(&counts.unwrap_or_default());
            bar.at(u64::from(round) + 1);
        }
        bar.end(&format!("{label}: {rounds} rounds"));
        Ok((series, all))
    };
    fresh(&store)?;
    let calm = build("builds, calm")?;
    let limit_kb = store_bytes(bench, &larder)? * SMALL_LIMIT_PERCENT / 100 / 1000;
    let evictor = Evictor::start(bench, &larder, &format!("{limit_kb}kB"))?;
    let evicted = build("builds, evicted")?;
    let evictions = evictor.stop()?;
    let base = calm.0.clone();
    let all = u64::from(bench.options.sources * rounds);
    for (what, (series, counts)) in [
        (format!("{rounds} builds, the first cold, calm"), calm),
        (format!("{rounds} builds during {evictions} evictions"), evicted),
    ] {
        ensure!(counts.hit + counts.runs() == all, "{what}: each of {all} is counted once: {counts:?}");
        Row { part: "eviction", what, series, base: Some(&base), counts: Some(counts), ..Row::default() }
            .add_to(report);
    }
    sound(bench, &larder)
}

/// What is left is sound.
fn sound(bench: &Bench, larder: &Launcher) -> Result<()> {
    word(bench, larder, &["fsck"]).map(|_| ()).context("the store is not sound after evictions")
}

fn store_bytes(bench: &Bench, larder: &Launcher) -> Result<u64> {
    let json: Value = serde_json::from_str(&word(bench, larder, &["stats", "--json"])?).context("no JSON")?;
    json["store_bytes"].as_u64().context("`larder stats --json` does not say how large the store is")
}

fn word(bench: &Bench, larder: &Launcher, words: &[&str]) -> Result<String> {
    let mut command = Command::new(&bench.larder);
    larder.apply(&mut command, &bench.home);
    run::output(command.args(words))
}
