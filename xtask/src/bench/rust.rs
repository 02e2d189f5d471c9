//! `cargo xtask bench rust`: measures builds of Rust programs by cargo, plain and through caches:
//! cold, in a fresh target directory, in another checkout, and after one edit.
//!
//! Each artifact of a cached build is compared with that of a plain build at the same path. For
//! `rust_paths = "remap"`, the plain build gets the same options by a wrapper.

use super::figure::Figure;
use super::report::Report;
use super::rivals::{self, Rival};
use super::server::Server;
use crate::binaries;
use crate::fetch::Build;
use crate::launcher::{Counts, Launcher};
use crate::place::{Place, fresh, remove};
use crate::run::{self, Usage};
use crate::table::{NONE, Table};
use crate::tree;
use anyhow::{Context, Result, bail, ensure};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The options of `cargo xtask bench rust`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Build only this project. Can be given several times
    #[arg(long, value_name = "PROJECT")]
    only: Vec<String>,
    /// Build sccache and kache if they are not installed, which takes many minutes
    #[arg(long)]
    rivals: bool,
    /// Measure this larder, with the larderd beside it, instead of building one
    #[arg(long, value_name = "PROGRAM")]
    larder: Option<PathBuf>,
}

/// A program from the registry, with its lock file.
struct Project {
    name: &'static str,
    version: &'static str,
    /// A source of the program itself, to which a function is added.
    leaf: &'static str,
}

const PROJECTS: &[Project] = &[
    Project { name: "ripgrep", version: "14.1.1", leaf: "crates/core/main.rs" },
    Project { name: "mdbook", version: "0.4.52", leaf: "src/main.rs" },
];

const HEADER: &[&str] =
    &["project", "cache", "build", "wall s", "CPU s", "CPU ÷ plain", "hits", "misses", "artifacts", "that differ"];
/// The upper limits for CPU ÷ plain of larder: for a cold build, and for one in a fresh target
/// directory.
const GOALS: [(&str, f64); 2] = [("cold", 1.03), ("fresh target", 0.05)];

/// A build of a series. Each begins with a fresh target directory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The store is empty.
    Cold,
    /// A second build in a fresh target directory, in which larder may compile crates again that draw random numbers.
    Second,
    Fresh,
    /// The first checkout is gone.
    Elsewhere,
    Edited,
}

const STEPS: [(Step, &str); 5] = [
    (Step::Cold, "cold"),
    (Step::Second, "second"),
    (Step::Fresh, "fresh target"),
    (Step::Elsewhere, "other checkout"),
    (Step::Edited, "leaf edited"),
];

/// A cache, and the plain build that it is compared with.
struct Way<'a> {
    name: String,
    launcher: Launcher,
    server: Option<&'a Server>,
    is_remapped: bool,
}

struct Bench<'a> {
    project: &'a Project,
    sources: PathBuf,
    work: &'a Path,
    home: PathBuf,
    /// Adds the options of `rust_paths = "remap"`.
    adds_options: PathBuf,
}

/// Measures every chosen project.
pub(crate) fn rust(place: &Place, options: &Options) -> Result<Report> {
    let is_chosen =
        |project: &&Project| options.only.is_empty() || options.only.iter().any(|name| name == project.name);
    let projects: Vec<&Project> = PROJECTS.iter().filter(is_chosen).collect();
    ensure!(!projects.is_empty(), "no such project: choose among {}", names());
    let larder = binaries::larder(place, options.larder.as_deref())?;
    let work = place.own("bench-rust")?;
    fresh(&work)?;
    let (home, stores) = (work.join("home"), work.join("store"));
    fs::create_dir_all(&home).with_context(|| format!("cannot make {}", home.display()))?;
    let build = if options.rivals { Build::Yes } else { Build::No };
    let (rivals, skipped) = rivals::of_rust(place, &stores, &home, build);
    let mut report = Report {
        name: "rust",
        title: "Rust programs".to_owned(),
        notes: notes(),
        table: Table::new(3, HEADER),
        ..Report::default()
    };
    report.notes.extend(skipped);
    let adds_options = work.join("adds-options");
    fs::write(&adds_options, ADDS_OPTIONS).context("cannot write the wrapper")?;
    run::output(Command::new("chmod").arg("755").arg(&adds_options))?;
    for project in projects {
        let sources = sources(project, &work)?;
        let (home, adds_options) = (home.clone(), adds_options.clone());
        let bench = Bench { project, sources, work: &work, home, adds_options };
        bench.measure(&larder, &stores, &rivals, &mut report)?;
    }
    drop(rivals);
    remove(&work)?;
    Ok(report)
}

/// What the plain builds get in front of rustc.
const ADDS_OPTIONS: &str = r#"#!/bin/sh
rustc=$1; shift
case " $* " in *" -vV "*|*" - "*) exec "$rustc" "$@";; esac
to=.
for word; do case $word in /*.rs) to=$CARGO_PKG_NAME-$CARGO_PKG_VERSION;; esac; done
exec "$rustc" "--remap-path-prefix=$(pwd -P)=$to" "--remap-path-prefix=$BENCH_TARGET=/cargo/build-dir" "$@"
"#;

fn names() -> String {
    PROJECTS.iter().map(|project| project.name).collect::<Vec<_>>().join(", ")
}

/// Returns the sources of a project, which cargo downloads as a dependency of an empty package.
fn sources(project: &Project, work: &Path) -> Result<PathBuf> {
    let package = work.join("download");
    fs::create_dir_all(package.join("src")).context("cannot make a package")?;
    let text = format!(
        "[package]\nname = \"download\"\nversion = \"0.0.0\"\nedition = \"2021\"\n[workspace]\n[dependencies]\n{} = \"={}\"\n",
        project.name, project.version
    );
    fs::write(package.join("Cargo.toml"), text).context("cannot write a manifest")?;
    fs::write(package.join("src/lib.rs"), "").context("cannot write a source")?;
    run::output(Command::new("cargo").arg("fetch").current_dir(&package))?;
    // `cargo metadata` does not name a dependency without a library.
    let registries = cargo_home()?.join("registry/src");
    let name = format!("{}-{}", project.name, project.version);
    let all = fs::read_dir(&registries).with_context(|| format!("cannot list {}", registries.display()))?;
    let found = all.flatten().map(|registry| registry.path().join(&name)).find(|path| path.is_dir());
    let sources = found.with_context(|| format!("cargo has no sources of {name}"))?;
    ensure!(sources.join("Cargo.lock").is_file(), "{} has no lock file", project.name);
    run::output(Command::new("cargo").args(["fetch", "--locked"]).current_dir(&sources))?;
    Ok(sources)
}

/// Returns `cargo build --offline` through a launcher, with `wrapper` in front of rustc.
pub(super) fn cargo_build(launcher: &Launcher, wrapper: Option<&Path>, home: &Path) -> Command {
    let mut command = Command::new("cargo");
    launcher.apply(&mut command, home);
    let rustup = std::env::var_os("HOME").map(|home| ("RUSTUP_HOME", PathBuf::from(home).join(".rustup")));
    command.envs(cargo_home().map(|home| ("CARGO_HOME", home))).envs(rustup);
    command.envs(["RUSTUP_HOME", "RUSTUP_TOOLCHAIN"].iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    command.envs(wrapper.map(|wrapper| ("RUSTC_WRAPPER", wrapper)));
    command.env("CARGO_INCREMENTAL", "0").args(["build", "--offline"]);
    command
}

fn cargo_home() -> Result<PathBuf> {
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo"));
    std::env::var_os("CARGO_HOME").map(PathBuf::from).or_else(home).context("neither CARGO_HOME nor HOME is set")
}

impl Bench<'_> {
    fn measure(&self, larder: &Path, stores: &Path, rivals: &[Rival], report: &mut Report) -> Result<()> {
        let plain = self.references(false)?;
        self.references(true)?;
        let store = |name: &str| stores.join(format!("{name}-{}", self.project.name));
        let exact = Launcher::larder(larder, &store("exact"))?;
        let remap = Launcher::larder(larder, &store("remap"))?.with("LARDER_RUST_PATHS", "remap");
        let own =
            |name: &str, launcher, is_remapped| Way { name: name.to_owned(), launcher, server: None, is_remapped };
        let mut ways = vec![own("larder", exact, false), own("larder, remap", remap, true)];
        ways.extend(rivals.iter().map(|rival| Way {
            server: rival.server.as_ref(),
            ..own(rival.launcher.name, rival.launcher.clone(), false)
        }));
        report.table.rows.push(self.row("plain", "", plain, plain, None, None));
        for way in &ways {
            for (step, word) in STEPS {
                let (usage, counts) = self.build(way, step)?;
                let compared = self.compare(step, way.is_remapped)?;
                report.table.rows.push(self.row(&way.name, word, usage, plain, counts.as_ref(), Some(compared)));
                let (cpu, of_plain) = (usage.cpu.as_secs_f64(), plain.cpu.as_secs_f64());
                let goal = GOALS.iter().find(|(name, _)| way.name.starts_with("larder") && *name == word);
                let name = format!("{}, {} {word}, CPU ÷ plain", self.project.name, way.name);
                report.figures.extend(Figure::ratio(name, &[cpu], &[of_plain], goal.map(|(_, goal)| *goal)));
                report.rows.push(json!({
                    "project": self.project.name, "cache": way.name, "build": word, "cpu_s": cpu,
                    "plain_cpu_s": of_plain, "hits": counts.as_ref().map(|counts| counts.hit),
                    "misses": counts.as_ref().map(|counts| counts.miss),
                    "artifacts": compared.0, "differ": compared.1,
                }));
            }
        }
        remove(&self.work.join("reference"))
    }

    /// Returns the checkout of a step. The two have paths of different lengths.
    fn checkout(&self, step: Step) -> PathBuf {
        let is_other = matches!(step, Step::Elsewhere | Step::Edited);
        self.work.join(if is_other { "other-checkout" } else { "a" }).join(self.project.name)
    }

    /// Makes the checkout of a step, with a fresh target directory, and removes the other one.
    fn prepare(&self, step: Step) -> Result<PathBuf> {
        let checkout = self.checkout(step);
        for step in [Step::Cold, Step::Elsewhere] {
            remove(&self.checkout(step))?;
        }
        tree::copy(&self.sources, &checkout)?;
        // Otherwise cargo takes the package for one of the workspace around it.
        let manifest = checkout.join("Cargo.toml");
        let text = fs::read_to_string(&manifest).with_context(|| format!("cannot read {}", manifest.display()))?;
        if !text.contains("[workspace") {
            fs::write(&manifest, format!("{text}\n[workspace]\n")).context("cannot write a manifest")?;
        }
        if step == Step::Edited {
            let leaf = checkout.join(self.project.leaf);
            let text = fs::read_to_string(&leaf).with_context(|| format!("cannot read {}", leaf.display()))?;
            fs::write(&leaf, format!("{text}\n#[allow(dead_code)]\nfn added_by_the_benchmark() {{}}\n"))?;
        }
        // larder does not rely on files that are as new as the run.
        std::thread::sleep(super::measure::SETTLING);
        Ok(checkout)
    }

    fn cargo(&self, launcher: &Launcher, wrapper: Option<&Path>, checkout: &Path) -> Command {
        let mut command = cargo_build(launcher, wrapper, &self.home);
        command.env("BENCH_TARGET", checkout.join("target")).args(["--locked", "--quiet"]).current_dir(checkout);
        command
    }

    /// Builds plainly in each checkout and keeps the artifacts. Returns the cost of the first build.
    fn references(&self, is_remapped: bool) -> Result<Usage> {
        let mut first = None;
        for step in [Step::Cold, Step::Elsewhere, Step::Edited] {
            let checkout = self.prepare(step)?;
            let wrapper = Some(self.adds_options.as_path()).filter(|_| is_remapped);
            let usage = self.run(&mut self.cargo(&Launcher::plain(), wrapper, &checkout))?;
            first.get_or_insert(usage);
            let kept = self.reference(step, is_remapped);
            fs::create_dir_all(kept.parent().unwrap_or(self.work)).context("cannot make a directory")?;
            fs::rename(checkout.join("target/debug/deps"), &kept).context("cannot keep the artifacts")?;
        }
        first.context("there was a build")
    }

    fn reference(&self, step: Step, is_remapped: bool) -> PathBuf {
        let name = match step {
            Step::Cold | Step::Second | Step::Fresh => "first",
            Step::Elsewhere => "other",
            Step::Edited => "edited",
        };
        let setting = if is_remapped { "remap" } else { "exact" };
        self.work.join("reference").join(format!("{name}-{setting}"))
    }

    fn run(&self, command: &mut Command) -> Result<Usage> {
        let log = self.work.join("log");
        run::logged(command, &log, || {})
    }

    /// Makes the build of a step. Returns its cost, and what the cache counted in it.
    fn build(&self, way: &Way, step: Step) -> Result<(Usage, Option<Counts>)> {
        let checkout = self.prepare(step)?;
        let counted = || way.launcher.counting().counts(&self.home);
        let server = || way.server.map_or(Ok(std::time::Duration::ZERO), Server::cpu);
        let (before, of_server) = (counted()?, server()?);
        let mut usage = self.run(&mut self.cargo(&way.launcher, way.launcher.program.as_deref(), &checkout))?;
        usage.cpu += server()?.saturating_sub(of_server);
        Ok((usage, counted()?.zip(before).map(|(after, before)| after - before)))
    }

    /// Compares the artifacts of a build with those of the plain build. Returns how many there are,
    /// and how many of them differ.
    fn compare(&self, step: Step, is_remapped: bool) -> Result<(usize, usize)> {
        let (made, expected) = (self.checkout(step).join("target/debug/deps"), self.reference(step, is_remapped));
        let (mut count, mut differ) = (0, 0);
        for entry in fs::read_dir(&expected).with_context(|| format!("cannot list {}", expected.display()))? {
            let path = entry?.path();
            // cargo writes no dependency files into this directory that rustc did not write.
            let name = path.file_name().unwrap_or_default();
            count += 1;
            differ += usize::from(fs::read(&path)? != fs::read(made.join(name)).unwrap_or_default());
        }
        if count == 0 {
            bail!("the plain build of {} made nothing", self.project.name);
        }
        Ok((count, differ))
    }

    fn row(
        &self,
        way: &str,
        build: &str,
        usage: Usage,
        plain: Usage,
        counts: Option<&Counts>,
        compared: Option<(usize, usize)>,
    ) -> Vec<String> {
        let counted = |number: fn(&Counts) -> u64| counts.map_or(NONE.to_owned(), |counts| number(counts).to_string());
        let number = |number: Option<usize>| number.map_or(NONE.to_owned(), |number| number.to_string());
        let cpu = usage.cpu.as_secs_f64();
        vec![
            format!("{} {}", self.project.name, self.project.version),
            way.to_owned(),
            build.to_owned(),
            format!("{:.1}", usage.wall.as_secs_f64()),
            format!("{cpu:.2}"),
            format!("{:.3}", cpu / plain.cpu.as_secs_f64().max(f64::EPSILON)),
            counted(|counts| counts.hit),
            counted(|counts| counts.miss),
            number(compared.map(|(count, _)| count)),
            number(compared.map(|(_, differ)| differ)),
        ]
    }
}

fn notes() -> Vec<String> {
    vec![
        "`cargo build` of the `dev` profile with CARGO_INCREMENTAL=0, one build of each kind. CPU is user and system time \
         of all processes. Each build has a fresh target directory."
            .to_owned(),
        "second: larder compiles crates once more whose procedural macros draw random numbers. other checkout: the first \
         is gone. leaf edited: there, with one more function in the program itself."
            .to_owned(),
        "artifacts: the files in `target/debug/deps`, each compared with that of a plain build at the same path, for \
         `remap` with the same options."
            .to_owned(),
    ]
}
