//! `cargo xtask bench rust`: measures builds of Rust programs by cargo, plain and through caches:
//! cold, in a fresh target directory, in another target directory, in another checkout, and after
//! edits of the program and of a crate that all others depend on.
//!
//! Each artifact of a cached build is compared with that of a plain build at the same path. For
//! `rust_paths = "remap"`, the plain build gets the same options by a wrapper.

use super::figure::Figure;
use super::report::Report;
use super::rivals::{self, Rival};
use super::scene::Scene;
use super::server::Server;
use crate::fetch::{self, Build, cargo_home};
use crate::files::{self, remove};
use crate::launcher::{Counts, Launcher};
use crate::place::Place;
use crate::run::{self, Usage};
use crate::table::{Table, over, shown};
use crate::tree;
use anyhow::{Context, Result, ensure};
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
}

/// A program from the registry, with its lock file.
struct Project {
    name: &'static str,
    version: &'static str,
    /// A source of the program itself, to which a function is added.
    leaf: &'static str,
}

const PROJECTS: [Project; 3] = [
    Project { name: "ripgrep", version: "14.1.1", leaf: "crates/core/main.rs" },
    // About 240 crates, of which 16 are procedural macros.
    Project { name: "mdbook", version: "0.4.52", leaf: "src/main.rs" },
    // Build scripts compile libgit2, zlib and other libraries of C.
    Project { name: "bat", version: "0.25.0", leaf: "src/bin/bat/main.rs" },
];
/// A crate on which many of the others depend, in each project. It lies in the checkout, as a crate
/// of the workspace, and is edited there.
const ROOT: &str = "memchr";

/// The upper limits for CPU ÷ plain of larder: for a cold build, and for one in a fresh target
/// directory.
const GOALS: [(&str, f64); 2] = [("cold", 1.03), ("fresh target", 0.05)];

/// A build of a series. Each begins with a fresh target directory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The store is empty.
    Cold,
    /// A second build in a fresh target directory, in which larder may compile crates again that draw
    /// random numbers.
    Second,
    Fresh,
    /// The target directory is at another path.
    OtherTarget,
    /// The first checkout is gone.
    Elsewhere,
    LeafEdited,
    RootEdited,
}

const STEPS: [(Step, &str); 7] = [
    (Step::Cold, "cold"),
    (Step::Second, "second"),
    (Step::Fresh, "fresh target"),
    (Step::OtherTarget, "other target directory"),
    (Step::Elsewhere, "other checkout"),
    (Step::LeafEdited, "leaf edited"),
    (Step::RootEdited, "root edited"),
];
/// The steps whose plain builds differ from each other.
const PLAIN_STEPS: [Step; 5] = [Step::Cold, Step::OtherTarget, Step::Elsewhere, Step::LeafEdited, Step::RootEdited];

/// The cost of a plain build, and the number of crates that plain cargo rebuilds after each edit.
struct Plain {
    usage: Usage,
    rebuilt: [(Step, usize); 2],
}

/// A cache, and the plain build that it is compared with.
struct Way<'a> {
    name: String,
    launcher: Launcher,
    server: Option<&'a Server>,
    is_remapped: bool,
}

struct Bench<'a> {
    scene: &'a Scene<'a>,
    project: &'a Project,
    sources: PathBuf,
    /// The sources of the crate [`ROOT`], of the version that the project uses.
    root: PathBuf,
    /// Adds the options of `rust_paths = "remap"`.
    adds_options: &'a Path,
}

/// Measures every chosen project.
pub(crate) fn rust(place: &Place, larder: &Path, options: &Options) -> Result<Report> {
    let is_chosen =
        |project: &&Project| options.only.is_empty() || options.only.iter().any(|name| name == project.name);
    let projects: Vec<&Project> = PROJECTS.iter().filter(is_chosen).collect();
    ensure!(!projects.is_empty(), "no such project: choose among {}", PROJECTS.map(|project| project.name).join(", "));
    let scene = Scene::begin(place, larder, "rust")?;
    let build = if options.rivals { Build::Yes } else { Build::No };
    let (rivals, skipped) = rivals::of_rust(&scene, build);
    let mut report = Report::new("rust", "Rust programs", 3, &NOTES);
    report.notes.extend(skipped);
    let adds_options = scene.work.join("adds-options");
    files::write(&adds_options, ADDS_OPTIONS)?;
    run::output(Command::new("chmod").arg("755").arg(&adds_options))?;
    for project in projects {
        let sources = fetch::unpacked(place, project.name, project.version)?;
        run::output(Command::new("cargo").args(["fetch", "--locked"]).current_dir(&sources))?;
        let root = root(place, &sources)?;
        let bench = Bench { scene: &scene, project, sources, root, adds_options: &adds_options };
        bench.measure(&rivals, &mut report)?;
    }
    drop(rivals);
    remove(&scene.work)?;
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

/// Returns the sources of the crate [`ROOT`] of the version in a project's lock file.
fn root(place: &Place, sources: &Path) -> Result<PathBuf> {
    let lock = files::read(sources.join("Cargo.lock"))?;
    let name = format!("name = \"{ROOT}\"\nversion = \"");
    let (_, behind) = lock.split_once(&name).with_context(|| format!("{ROOT} is not in the lock file"))?;
    fetch::unpacked(place, ROOT, behind.split('"').next().unwrap_or_default())
}

/// Adds text to the end of a file.
fn append(path: &Path, more: &str) -> Result<()> {
    let text = files::read(path)?;
    files::write(path, text + more)
}

impl Bench<'_> {
    fn measure(&self, rivals: &[Rival], report: &mut Report) -> Result<()> {
        let plain = Plain { usage: self.references(false)?, rebuilt: self.rebuilt()? };
        self.references(true)?;
        let larder = |name: &str| {
            let store = self.scene.store(&format!("{name}-{}", self.project.name));
            Launcher::larder(&self.scene.larder, &store)
        };
        let (exact, remap) = (larder("exact")?, larder("remap")?.with("LARDER_RUST_PATHS", "remap"));
        let own =
            |name: &str, launcher, is_remapped| Way { name: name.to_owned(), launcher, server: None, is_remapped };
        let mut ways = vec![own("larder", exact, false), own("larder, remap", remap, true)];
        ways.extend(rivals.iter().map(|rival| Way {
            server: rival.server.as_ref(),
            ..own(rival.launcher.name, rival.launcher.clone(), false)
        }));
        self.add(&mut report.table, ("plain", "cold"), plain.usage, &plain, None);
        for way in &ways {
            for (step, word) in STEPS {
                let (usage, counts) = self.build(way, step)?;
                let compared = self.compare(step, way.is_remapped)?;
                let outcome = Some((step, counts.as_ref(), compared));
                self.add(&mut report.table, (&way.name, word), usage, &plain, outcome);
                let (cpu, of_plain) = (usage.cpu.as_secs_f64(), plain.usage.cpu.as_secs_f64());
                let goal = GOALS.iter().find(|(name, _)| way.name.starts_with("larder") && *name == word);
                let name = format!("{}, {} {word}, CPU ÷ plain", self.project.name, way.name);
                report.figures.extend(Figure::ratio(name, &[cpu], &[of_plain], goal.map(|(_, goal)| *goal)));
            }
        }
        remove(self.scene.work.join("reference"))
    }

    /// Returns the checkout of a step. The two have paths of different lengths.
    fn checkout(&self, step: Step) -> PathBuf {
        let is_other = matches!(step, Step::Elsewhere | Step::LeafEdited | Step::RootEdited);
        self.scene.work.join(if is_other { "other-checkout" } else { "a" }).join(self.project.name)
    }

    /// Makes the checkout of a step, with a fresh target directory, and removes the other one.
    fn prepare(&self, step: Step) -> Result<PathBuf> {
        let checkout = self.checkout(step);
        for step in [Step::Cold, Step::Elsewhere] {
            remove(self.checkout(step))?;
        }
        tree::copy(&self.sources, &checkout)?;
        tree::copy(&self.root, &checkout.join("root"))?;
        // Otherwise cargo takes the package for one of the workspace around it.
        let workspace = format!("\n[workspace]\n\n[patch.crates-io]\n{ROOT} = {{ path = \"root\" }}\n");
        append(&checkout.join("Cargo.toml"), &workspace)?;
        self.edit(step, &checkout)?;
        // larder does not rely on files that are as new as the run.
        std::thread::sleep(super::measure::SETTLING);
        Ok(checkout)
    }

    /// Makes the edit of a step, if it has one.
    fn edit(&self, step: Step, checkout: &Path) -> Result<()> {
        let source = match step {
            Step::LeafEdited => self.project.leaf,
            Step::RootEdited => "root/src/lib.rs",
            _ => return Ok(()),
        };
        append(&checkout.join(source), "\n#[allow(dead_code)]\nfn added_by_the_benchmark() {}\n")
    }

    /// Returns the target directory of a step.
    fn target(&self, step: Step) -> PathBuf {
        self.checkout(step).join(if step == Step::OtherTarget { "other/place/target" } else { "target" })
    }

    fn cargo(&self, launcher: &Launcher, wrapper: Option<&Path>, step: Step) -> Command {
        let mut command = cargo_build(launcher, wrapper, &self.scene.home);
        if let Some(program) = &launcher.program {
            // The crate `cc` must know that the first word of `CC` is no compiler.
            let name = program.file_stem().unwrap_or_default();
            command.env("CC", launcher.compiler("cc")).env("CXX", launcher.compiler("c++"));
            command.env("CC_KNOWN_WRAPPER_CUSTOM", name);
        }
        let target = self.target(step);
        command.env("CARGO_TARGET_DIR", &target).env("BENCH_TARGET", target);
        command.arg("--verbose").current_dir(self.checkout(step));
        command
    }

    /// Builds plainly in each checkout and keeps the artifacts. Returns the cost of the first build.
    fn references(&self, is_remapped: bool) -> Result<Usage> {
        let mut first = None;
        for step in PLAIN_STEPS {
            self.prepare(step)?;
            let wrapper = Some(self.adds_options).filter(|_| is_remapped);
            let usage = self.run(&mut self.cargo(&Launcher::plain(), wrapper, step))?;
            first.get_or_insert(usage);
            let kept = self.reference(step, is_remapped);
            files::rename(self.target(step).join("debug/deps"), &kept)?;
        }
        first.context("there was a build")
    }

    /// Returns how many crates plain cargo compiles after each edit.
    fn rebuilt(&self) -> Result<[(Step, usize); 2]> {
        let checkout = self.prepare(Step::Elsewhere)?;
        let build = || -> Result<usize> {
            self.run(&mut self.cargo(&Launcher::plain(), None, Step::Elsewhere))?;
            let said = files::read(self.log())?;
            Ok(said.lines().filter(|line| line.contains("Running `") && line.contains("--crate-name")).count())
        };
        build()?;
        let count = |step| -> Result<(Step, usize)> {
            self.edit(step, &checkout)?;
            Ok((step, build()?))
        };
        Ok([count(Step::LeafEdited)?, count(Step::RootEdited)?])
    }

    fn reference(&self, step: Step, is_remapped: bool) -> PathBuf {
        let name = match step {
            Step::Cold | Step::Second | Step::Fresh => "first",
            Step::OtherTarget => "target",
            Step::Elsewhere => "other",
            Step::LeafEdited => "leaf",
            Step::RootEdited => "root",
        };
        let setting = if is_remapped { "remap" } else { "exact" };
        self.scene.work.join("reference").join(format!("{name}-{setting}"))
    }

    fn run(&self, command: &mut Command) -> Result<Usage> {
        run::logged(command, &self.log(), || {})
    }

    fn log(&self) -> PathBuf {
        self.scene.work.join("log")
    }

    /// Makes the build of a step. Returns its cost, and what the cache counted in it.
    fn build(&self, way: &Way, step: Step) -> Result<(Usage, Option<Counts>)> {
        self.prepare(step)?;
        let counted = || way.launcher.counts(&self.scene.home);
        let server = || way.server.map_or(Ok(std::time::Duration::ZERO), Server::cpu);
        let (before, of_server) = (counted()?, server()?);
        let mut usage = self.run(&mut self.cargo(&way.launcher, way.launcher.program.as_deref(), step))?;
        usage.cpu += server()?.saturating_sub(of_server);
        Ok((usage, counted()?.zip(before).map(|(after, before)| after - before)))
    }

    /// Compares the artifacts of a build with those of the plain build. Returns how many there are,
    /// and how many of them differ.
    fn compare(&self, step: Step, is_remapped: bool) -> Result<(usize, usize)> {
        let (made, expected) = (self.target(step).join("debug/deps"), self.reference(step, is_remapped));
        let (mut count, mut differ) = (0, 0);
        for path in files::list(&expected)? {
            // cargo writes no dependency files into this directory that rustc did not write.
            let name = path.file_name().unwrap_or_default();
            count += 1;
            differ += usize::from(fs::read(&path)? != fs::read(made.join(name)).unwrap_or_default());
        }
        ensure!(count > 0, "the plain build of {} made nothing", self.project.name);
        Ok((count, differ))
    }

    fn add(
        &self,
        table: &mut Table,
        (way, build): (&str, &str),
        usage: Usage,
        plain: &Plain,
        outcome: Option<(Step, Option<&Counts>, (usize, usize))>,
    ) {
        let counts = outcome.and_then(|(_, counts, _)| counts);
        let compared = outcome.map(|(_, _, compared)| compared);
        let is_it = |of: Step| outcome.is_some_and(|(step, _, _)| step == of);
        let rebuilt = plain.rebuilt.iter().find(|(of, _)| is_it(*of)).map(|(_, count)| *count);
        table.add([
            ("project", format!("{} {}", self.project.name, self.project.version)),
            ("cache", way.to_owned()),
            ("build", build.to_owned()),
            ("wall s", format!("{:.1}", usage.wall.as_secs_f64())),
            ("CPU s", format!("{:.2}", usage.cpu.as_secs_f64())),
            ("CPU ÷ plain", over(usage.cpu, plain.usage.cpu)),
            ("hits", shown(counts.map(|counts| counts.hit))),
            ("misses", shown(counts.map(|counts| counts.miss))),
            ("cargo rebuilds", shown(rebuilt)),
            ("artifacts", shown(compared.map(|(count, _)| count))),
            ("that differ", shown(compared.map(|(_, differ)| differ))),
        ]);
    }
}

/// The notes below the table.
const NOTES: [&str; 4] = [
    "`cargo build` of the `dev` profile with CARGO_INCREMENTAL=0, one build of each kind. CPU is user and system time \
     of all processes. Each build has a fresh target directory.",
    "second: larder compiles crates once more whose procedural macros draw random numbers. other checkout: the first \
     is gone. leaf edited: there, with one more function in the program itself; root edited: with one more in the crate \
     memchr instead, which lies in the workspace. cargo rebuilds: how many crates plain cargo compiles after that edit.",
    "CC and CXX name the cache as well, so hits and misses include what build scripts compile.",
    "artifacts: the files in `target/debug/deps`, each compared with that of a plain build at the same path, for \
     `remap` with the same options.",
];
