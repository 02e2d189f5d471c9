//! `cargo xtask bench remote`: measures a build whose records are all on a remote, beside the same
//! from the local store; builds with a remote that does not answer; and the memory of `larderd`.
//!
//! The remote is Redis on this machine, behind a proxy that adds latency.

use super::figure::millis;
use super::report::Report;
use super::scale::project::{Project, measured};
use crate::launcher::Launcher;
use crate::place::{Place, fresh, remove};
use crate::progress::Bar;
use crate::run::{self, Usage};
use crate::table::Table;
use crate::{binaries, setup};
use anyhow::{Context, Result, ensure};
use larder_testkit::{Proxy, Server, Way};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

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
    /// Measure this larder, with the larderd beside it, instead of building one
    #[arg(long, value_name = "PROGRAM")]
    larder: Option<PathBuf>,
}

/// The upper limits for wall time ÷ the same from the local store, by latency in milliseconds.
const GOALS: [(u64, f64); 3] = [(1, 1.3), (20, 1.6), (100, 2.5)];
/// The time between writing an input and using it.
const SETTLING: Duration = Duration::from_millis(50);
/// The number of files with large outputs, and their size, to measure the memory of many transfers.
const LARGE_FILES: u32 = 64;
const LARGE_BYTES: usize = 4 << 20;

/// The name of a build without larder.
const PLAIN: &str = "plain";
/// The upper limit for wall time ÷ plain with a remote that does not answer.
const GOAL_SILENT: f64 = 1.1;
/// The upper limit for the time that a dead remote adds to a build.
const GOAL_DEAD: Duration = Duration::from_secs(1);
/// The upper limits for the resident memory of `larderd`, in kB: idle, and during many transfers.
const GOAL_IDLE_KB: u64 = 20_000;
const GOAL_BUSY_KB: u64 = 150_000;

struct Bench {
    larder: PathBuf,
    work: PathBuf,
    home: PathBuf,
    jobs: usize,
}

/// One kind of build and its samples.
struct Kind {
    what: String,
    latency: Option<u64>,
    samples: Vec<Usage>,
    /// The number of tools that ran, in all rounds.
    misses: u64,
}

/// Measures and publishes. Returns `false` if a goal is not met.
pub(crate) fn remote(place: &Place, options: &Options) -> Result<bool> {
    setup::for_bench(place)?;
    let larder = binaries::larder(place, options.larder.as_deref())?;
    let work = place.own("bench-remote")?;
    fresh(&work)?;
    let home = work.join("home");
    fs::create_dir_all(&home)?;
    let jobs = std::thread::available_parallelism().map_or(2, usize::from);
    let bench = Bench { larder, work, home, jobs };
    let server = Server::redis(None).context("redis-server is not installed")?;
    let proxy = Proxy::before(server.address());
    let url = format!("redis://{}", proxy.address());
    let mut report = Report {
        name: "remote",
        title: "From a remote".to_owned(),
        notes: vec![format!(
            "A build of {} C files with `make -j{}`, all hits. The remote is Redis on this machine behind a proxy that \
             adds the round-trip latency. Each build from the remote begins with an empty store, no stamps, and no \
             larderd. The local store has its stamps. Medians of {} interleaved rounds.",
            options.sources, bench.jobs, options.rounds
        )],
        table: Table::new(
            1,
            &["what", "wall ms", "CPU ms", "wall ÷ local store", "goal", "asked", "ahead", "races", "tool runs"],
        ),
        figures: Vec::new(),
        rows: Vec::new(),
    };
    let met = bench.builds(options, &url, &proxy, &mut report)?;
    let met = bench.troubles(options, &url, &proxy, &mut report)? && met;
    let met = bench.memory(&url, &proxy, &mut report)? && met;
    bench.stop("first")?;
    bench.stop("second")?;
    remove(&bench.work)?;
    report.publish(place)?;
    Ok(met)
}

impl Bench {
    fn launcher(&self, store: &str, url: Option<&str>) -> Result<Launcher> {
        let launcher = Launcher::larder(&self.larder, &self.work.join(store))?;
        Ok(url.map_or(launcher.clone(), |url| launcher.with("LARDER_REMOTE", url)))
    }

    fn larder(&self, store: &str, url: Option<&str>, words: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.larder);
        self.launcher(store, url)?.apply(&mut command, &self.home);
        run::output(command.args(words))
    }

    fn stop(&self, store: &str) -> Result<()> {
        self.larder(store, None, &["daemon", "stop"]).map(drop)
    }

    fn builds(&self, options: &Options, url: &str, proxy: &Proxy, report: &mut Report) -> Result<bool> {
        let project = Project::write(self.work.join("project"), options.sources)?;
        self.commit(&project.dir)?;
        sleep(SETTLING);
        let build = |launcher: &Launcher, expected: &[Vec<u8>]| {
            project.build(launcher, &self.home, (self.jobs, "all"), expected)
        };
        build(&Launcher::plain(), &[])?;
        let expected = project.objects()?;
        // In its first runs larder learns how to observe a compiler.
        for _ in 0..2 {
            build(&self.launcher("first", Some(url))?, &expected)?;
        }
        self.larder("first", Some(url), &["remote", "flush"])?;
        let local = Kind { what: "from the local store".to_owned(), latency: None, samples: Vec::new(), misses: 0 };
        let late = options.latencies.iter().map(|ms| Kind {
            what: format!("from the remote, {ms} ms"),
            latency: Some(*ms),
            samples: Vec::new(),
            misses: 0,
        });
        let mut kinds: Vec<Kind> = [local].into_iter().chain(late).collect();
        let mut stats = vec![String::new(); kinds.len()];
        let bar = Bar::new("from a remote", kinds.len() as u64 * u64::from(options.rounds));
        let mut done = 0;
        for _ in 0..options.rounds {
            for (kind, stats) in kinds.iter_mut().zip(&mut stats) {
                let launcher = match kind.latency {
                    None => self.launcher("first", None)?,
                    Some(ms) => {
                        proxy.set(Way::Late(Duration::from_millis(ms)));
                        fresh(&self.work.join("second"))?;
                        fs::remove_dir(self.work.join("second"))?;
                        self.launcher("second", Some(url))?
                    }
                };
                let (usage, counts) = build(&launcher, &expected)?;
                let counts = counts.context("larder counts")?;
                // The tool may win a race against the remote, which counts as a miss.
                ensure!(counts.hit + counts.miss == u64::from(options.sources), "{}: {counts:?}", kind.what);
                kind.samples.push(usage);
                kind.misses += counts.miss;
                if kind.latency.is_some() {
                    *stats = self.larder("second", Some(url), &["stats", "--json"])?;
                    self.stop("second")?;
                }
                done += 1;
                bar.at(done);
            }
        }
        bar.end(&format!("from a remote: {} rounds", options.rounds));
        proxy.set(Way::Late(Duration::ZERO));
        let base = median(&kinds[0].samples, |usage| usage.wall);
        let mut met = true;
        for (kind, stats) in kinds.iter().zip(&stats) {
            let wall = median(&kind.samples, |usage| usage.wall);
            let ratio = wall.as_secs_f64() / base.as_secs_f64();
            let goal = GOALS.iter().find(|(ms, _)| kind.latency == Some(*ms)).map(|(_, goal)| *goal);
            met &= goal.is_none_or(|goal| ratio <= goal);
            let stats: serde_json::Value = serde_json::from_str(stats).unwrap_or_default();
            let count = |number: &serde_json::Value| number.as_u64().map_or("-".to_owned(), |count| count.to_string());
            report.table.rows.push(vec![
                kind.what.clone(),
                millis(wall),
                millis(median(&kind.samples, |usage| usage.cpu)),
                format!("{ratio:.2}"),
                goal.map_or("-".to_owned(), |goal| format!("{goal:.1}")),
                count(&stats["remote_hit"]),
                count(&stats["remote"]["prefetched"]),
                count(&stats["remote"]["races"]),
                kind.misses.to_string(),
            ]);
            let walls: Vec<f64> = kind.samples.iter().map(|usage| usage.wall.as_secs_f64()).collect();
            report
                .rows
                .push(json!({ "what": kind.what, "wall_s": walls, "ratio": ratio, "goal": goal, "stats": stats }));
        }
        Ok(met)
    }

    /// Measures builds without any records: plain, without a remote, with a remote that stops
    /// answering at the start or after some bytes, and with a dead remote.
    fn troubles(&self, options: &Options, url: &str, proxy: &Proxy, report: &mut Report) -> Result<bool> {
        let project = Project::write(self.work.join("project"), options.sources)?;
        sleep(SETTLING);
        let kinds: [(&str, Option<Way>); 5] = [
            (PLAIN, None),
            ("cold, no remote", None),
            ("cold, a remote that is silent", Some(Way::Stalled)),
            ("cold, a remote silent after 20 kB", Some(Way::StalledAfter(20_000))),
            ("cold, a dead remote", Some(Way::Cut)),
        ];
        let mut samples: Vec<Vec<Usage>> = vec![Vec::new(); kinds.len()];
        let bar = Bar::new("remotes in trouble", kinds.len() as u64 * u64::from(options.rounds));
        let mut done = 0;
        for _ in 0..options.rounds {
            for ((what, way), samples) in kinds.iter().zip(&mut samples) {
                fresh(&self.work.join("second"))?;
                fs::remove_dir(self.work.join("second"))?;
                way.iter().for_each(|way| proxy.set(*way));
                let launcher = match what {
                    &PLAIN => Launcher::plain(),
                    _ => self.launcher("second", way.map(|_| url))?,
                };
                samples.push(project.build(&launcher, &self.home, (self.jobs, "all"), &[])?.0);
                way.map_or(Ok(()), |_| self.stop("second"))?;
                done += 1;
                bar.at(done);
            }
        }
        bar.end(&format!("remotes in trouble: {} rounds", options.rounds));
        proxy.set(Way::Late(Duration::ZERO));
        let walls: Vec<Duration> = samples.iter().map(|samples| median(samples, |usage| usage.wall)).collect();
        let mut met = true;
        for ((what, way), (wall, samples)) in kinds.iter().zip(walls.iter().zip(&samples)) {
            let ratio = wall.as_secs_f64() / walls[0].as_secs_f64();
            let more = wall.saturating_sub(walls[1]);
            let (goal, fine) = match way {
                None => ("-".to_owned(), true),
                Some(Way::Cut) => (format!("+{} s", GOAL_DEAD.as_secs()), more <= GOAL_DEAD),
                Some(_) => (format!("{GOAL_SILENT:.1} × plain"), ratio <= GOAL_SILENT),
            };
            met &= fine;
            report.notes.push(format!(
                "{what}: {} ms, {ratio:.2} times plain, {} ms more than without a remote (goal {goal}).",
                millis(*wall),
                more.as_millis()
            ));
            let walls: Vec<f64> = samples.iter().map(|usage| usage.wall.as_secs_f64()).collect();
            report.rows.push(json!({ "what": what, "wall_s": walls, "times_plain": ratio, "goal": goal }));
        }
        Ok(met)
    }

    /// Measures the resident memory of `larderd`, idle and during many transfers of large objects.
    fn memory(&self, url: &str, proxy: &Proxy, report: &mut Report) -> Result<bool> {
        let dir = self.work.join("large");
        fs::create_dir_all(&dir)?;
        for file in 0..LARGE_FILES {
            let mut state = u64::from(file) + 1;
            let next = std::iter::repeat_with(|| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state.to_le_bytes()
            });
            let bytes: Vec<u8> = next.take(LARGE_BYTES / 8).flatten().collect();
            fs::write(dir.join(format!("{file}.bin")), bytes)?;
            fs::write(dir.join(format!("{file}.c")), format!("__asm__(\".incbin \\\"{file}.bin\\\"\");\n"))?;
        }
        self.commit(&dir)?;
        sleep(SETTLING);
        let compile = |store: &str, file: u32| {
            let mut command = Command::new(&self.larder);
            self.launcher(store, Some(url))?.apply(&mut command, &self.home);
            command.current_dir(&dir).args(["gcc", "-c", &format!("{file}.c"), "-o", &format!("{file}.o")]);
            measured(&mut command).map(drop)
        };
        for _ in 0..2 {
            (0..LARGE_FILES).try_for_each(|file| compile("first", file))?;
        }
        self.larder("first", Some(url), &["remote", "flush"])?;
        fresh(&self.work.join("second"))?;
        fs::remove_dir(self.work.join("second"))?;
        self.larder("second", Some(url), &["daemon", "start"])?;
        let status: serde_json::Value =
            serde_json::from_str(&self.larder("second", Some(url), &["daemon", "status", "--json"])?)?;
        let pid = status["pid"].as_u64().context("larderd runs")?;
        sleep(Duration::from_millis(300));
        let idle = memory_kb(pid, "VmRSS:")?;
        // The latency is high enough for all transfers to run at once.
        proxy.set(Way::Late(Duration::from_millis(20)));
        compile("second", 0)?;
        let until = Instant::now() + Duration::from_secs(60);
        let ahead = || -> Result<u64> {
            let stats: serde_json::Value =
                serde_json::from_str(&self.larder("second", Some(url), &["stats", "--json"])?)?;
            Ok(stats["remote"]["prefetched"].as_u64().unwrap_or(0))
        };
        while ahead()? < u64::from(LARGE_FILES) - 4 && Instant::now() < until {
            sleep(Duration::from_millis(100));
        }
        let came = ahead()?;
        let most = memory_kb(pid, "VmHWM:")?;
        report.notes.push(format!(
            "larderd: {:.1} MB resident when idle (goal 20), {:.1} MB at most (goal 150) while {came} objects of {} MB came at once.",
            idle as f64 / 1000.0,
            most as f64 / 1000.0,
            LARGE_BYTES >> 20
        ));
        report.rows.push(json!({ "what": "memory", "idle_kb": idle, "most_kb": most, "objects": came }));
        Ok(idle <= GOAL_IDLE_KB && most <= GOAL_BUSY_KB)
    }

    /// Makes a checkout of the directory, because prefetching is by commits.
    fn commit(&self, dir: &Path) -> Result<()> {
        let _ = fs::remove_dir_all(dir.join(".git"));
        for words in [&["init", "-q"][..], &["add", "--all"], &["commit", "-q", "-m", "all"]] {
            let mut git = Command::new("git");
            git.current_dir(dir).env("HOME", &self.home);
            git.args(["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "init.defaultBranch=main"])
                .args(words);
            run::output(&mut git)?;
        }
        Ok(())
    }
}

fn median(samples: &[Usage], of: impl Fn(&Usage) -> Duration) -> Duration {
    larder_samples::quantile(samples.iter().map(of).collect(), 1, 2)
}

/// Returns the value of a line in `/proc/PID/status`, in kB.
fn memory_kb(pid: u64, name: &str) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).context("larderd is gone")?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)).context("the kernel does not say")?;
    line.trim().trim_end_matches(" kB").parse().context("no number")
}
