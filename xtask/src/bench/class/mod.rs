//! `cargo xtask bench class`: what a build does to what runs beside it, and what that does to the build: plainly, with
//! `nice make`, and through larder with and without tokens and in each class; one build and two.
//!
//! As few processors as asked for, one by default, and sixteen jobs: a machine that is asked for too much. Everything
//! is in one session, and so in one scheduling group, unless `--sessions` is given. `service` is `benches/beside`,
//! `project` what is built, `others` who else had the processors meanwhile, `rows` the table.

mod others;
mod project;
mod rows;
mod service;

use super::report::Report;
use crate::binaries;
use crate::place::{Place, fresh};
use crate::progress::Bar;
use crate::setup;
use anyhow::{Context, Result, ensure};
use others::Others;
use project::Project;
pub(super) use project::source as c_source;
use rows::{Beside, Cell, Ran};
use service::Service;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What `cargo xtask bench class` takes.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// How often each build is run [default: 2; with --full 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Sources of a project, about 0.4 s each [default: 12; with --full 32]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..))]
    sources: Option<u32>,
    /// Longer builds and more of them: an hour instead of ten minutes
    #[arg(long)]
    full: bool,
    /// Processors that everything runs on
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    processors: u32,
    /// Jobs of each build
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    jobs: u32,
    /// Each build in a session of its own, as in a terminal of its own: where the kernel groups by sessions
    /// (`sched_autogroup_enabled`), it is no longer in one scheduling group with what runs beside it
    #[arg(long)]
    sessions: bool,
    /// Only settings whose name holds this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Measure this larder instead of building one
    #[arg(long, value_name = "PROGRAM")]
    larder: Option<PathBuf>,
}

/// One way to build.
pub(crate) struct Setting {
    pub(crate) name: &'static str,
    nice: bool,
    /// Variables of larder's; `None` is no larder.
    larder: Option<&'static [(&'static str, &'static str)]>,
}

pub(crate) const PLAIN: &str = "plain";
pub(crate) const NO_TOKENS: &str = "larder, LARDER_TOKENS=0";

pub(crate) const SETTINGS: &[Setting] = &[
    Setting { name: PLAIN, nice: false, larder: None },
    Setting { name: "nice make", nice: true, larder: None },
    Setting { name: NO_TOKENS, nice: false, larder: Some(&[("LARDER_TOKENS", "0")]) },
    Setting { name: "larder", nice: false, larder: Some(&[]) },
    Setting {
        name: "larder, utility, LARDER_TOKENS=0",
        nice: false,
        larder: Some(&[("LARDER_TOKENS", "0"), ("LARDER_CLASS", "utility")]),
    },
    Setting { name: "larder, utility", nice: false, larder: Some(&[("LARDER_CLASS", "utility")]) },
    Setting { name: "larder, background", nice: false, larder: Some(&[("LARDER_CLASS", "background")]) },
];

/// Between two runs, so that none begins with what another left to do.
const PAUSE: Duration = Duration::from_millis(500);
/// The service alone.
const ALONE: Duration = Duration::from_secs(5);
/// A run during which others had more of the processors than this share is repeated, but not for ever.
const OTHERS_MAX: f64 = 0.05;
const ATTEMPTS: usize = 3;

impl Options {
    fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(if self.full { 5 } else { 2 })
    }

    fn sources(&self) -> u32 {
        self.sources.unwrap_or(if self.full { 32 } else { 12 })
    }
}

/// What all runs share.
struct Bench<'a> {
    work: PathBuf,
    larder: PathBuf,
    beside: PathBuf,
    processors: String,
    options: &'a Options,
}

/// Measures every setting alone, beside the service, and beside a hog.
pub(crate) fn class(place: &Place, options: &Options) -> Result<Report> {
    setup::for_builds(place)?;
    let larder = binaries::larder(place, options.larder.as_deref())?;
    let beside = binaries::bench(place, "larder-beside", "beside", None)?;
    let work = place.own("bench-class")?;
    fresh(&work)?;
    let processors = (0..options.processors).map(|number| number.to_string()).collect::<Vec<_>>().join(",");
    let bench = Bench { work, larder, beside, processors, options };
    let projects = ["one", "two"].map(|name| Project::write(&bench.work.join(name), options.sources()));
    let [one, two] = projects;
    let projects = [one?, two?];
    std::thread::sleep(super::measure::SETTLING);
    let cells = bench.cells(&projects)?;
    Ok(rows::report(&cells, options.processors, options.jobs, options.sources()))
}

impl Bench<'_> {
    fn cells(&self, projects: &[Project; 2]) -> Result<Vec<Cell>> {
        let wanted = |name: &str| self.options.only.as_ref().is_none_or(|text| name.contains(text.as_str()));
        let mut cells = vec![Cell::new("no build", 0, Beside::Service)];
        for builds in [1, 2] {
            for beside in [Beside::Nothing, Beside::Service, Beside::Hog] {
                // Two builds and a hog say nothing that one does not.
                let settings =
                    SETTINGS.iter().filter(|setting| wanted(setting.name) && !(builds == 2 && beside == Beside::Hog));
                cells.extend(settings.map(|setting| Cell::new(setting.name, builds, beside)));
            }
        }
        let count = cells.len() as u64;
        let bar = Bar::new("class", cells.len() as u64 * u64::from(self.options.rounds()));
        for round in 0..self.options.rounds() {
            // Every other round backwards: a machine that grows slower favours none.
            let forward = round % 2 == 0;
            for turn in 0..cells.len() {
                let cell = &mut cells[if forward { turn } else { count as usize - 1 - turn }];
                let mut best: Option<Ran> = None;
                for _ in 0..ATTEMPTS {
                    std::thread::sleep(PAUSE);
                    let ran = self.run(cell, projects)?;
                    best = Some(best.filter(|best| best.others <= ran.others).unwrap_or(ran));
                    if best.as_ref().is_some_and(|best| best.others <= OTHERS_MAX) {
                        break;
                    }
                }
                best.into_iter().for_each(|ran| cell.add(ran));
                bar.at(u64::from(round) * count + turn as u64 + 1);
            }
        }
        bar.end(&format!("class: {} rounds", self.options.rounds()));
        Ok(cells)
    }

    fn run(&self, cell: &Cell, projects: &[Project; 2]) -> Result<Ran> {
        let service = match cell.beside {
            Beside::Nothing => None,
            beside => Some(Service::start(&self.beside, &self.processors, beside == Beside::Hog)?),
        };
        let (others, began) = (Others::begin(self.options.processors)?, Instant::now());
        match SETTINGS.iter().find(|setting| setting.name == cell.setting) {
            None => std::thread::sleep(ALONE),
            Some(setting) => {
                fresh(&self.work.join("store"))?;
                projects.iter().try_for_each(Project::clean)?;
                self.build(setting, &projects[..cell.builds])?;
            }
        }
        let wall_s = began.elapsed().as_secs_f64();
        let fared = service.map(Service::end).transpose()?.flatten();
        Ok(Ran { wall_s, fared, others: others.share()? })
    }

    /// All of them at once.
    fn build(&self, setting: &Setting, projects: &[Project]) -> Result<()> {
        let start = |project: &Project| {
            let log = fs::File::create(project.dir.join("log"))?;
            self.command(setting, project)
                .stdout(log.try_clone()?)
                .stderr(log)
                .spawn()
                .context("make cannot be started")
        };
        let children = projects.iter().map(start).collect::<Result<Vec<_>>>()?;
        for (mut child, project) in children.into_iter().zip(projects) {
            ensure!(
                child.wait()?.success(),
                "{}: the build failed, see {}",
                setting.name,
                project.dir.join("log").display()
            );
        }
        projects.iter().try_for_each(Project::check)
    }

    fn command(&self, setting: &Setting, project: &Project) -> Command {
        let mut command = Command::new("taskset");
        command.args(["-c", &self.processors]);
        if self.options.sessions {
            command.args(["setsid", "-w"]);
        }
        if setting.nice {
            command.arg("nice");
        }
        command.args(["make", "-s", &format!("-j{}", self.options.jobs)]).current_dir(&project.dir);
        command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", &self.work).env("LC_ALL", "C");
        if let Some(variables) = setting.larder {
            command.arg(format!("CC={} gcc", self.larder.display()));
            command.env("LARDER_DIR", self.work.join("store")).env("LARDER_TOKENS_FILE", self.work.join("tokens"));
            command.envs(variables.iter().copied());
        }
        command.stdin(Stdio::null());
        command
    }
}

/// The path as a word for a shell's `make`.
pub(crate) fn text(path: &Path) -> String {
    path.display().to_string()
}
