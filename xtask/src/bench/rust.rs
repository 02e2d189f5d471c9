//! `cargo xtask bench rust`: measures builds of Rust programs by cargo, plain and through caches:
//! cold, in a fresh target directory, in another target directory, in another checkout, and after
//! edits of the program and of a crate that all others depend on.
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
    // About 240 crates, of which 16 are procedural macros.
    Project { name: "mdbook", version: "0.4.52", leaf: "src/main.rs" },
    // Build scripts compile libgit2, zlib and other libraries of C.
    Project { name: "bat", version: "0.25.0", leaf: "src/bin/bat/main.rs" },
];
/// A crate on which many of the others depend, in each project. It lies in the checkout, as a crate
/// of the workspace, and is edited there.
const ROOT: &str = "memchr";

const HEADER: &[&str] = &[
    "project",
    "cache",
    "build",
    "wall s",
    "CPU s",
    "CPU ÷ plain",
    "hits",
    "misses",
    "cargo rebuilds",
    "artifacts",
    "that differ",
];
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
    project: &'a Project,
    sources: PathBuf,
    /// The sources of the crate [`ROOT`], of the version that the project uses.
    root: PathBuf,
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
        let root = root(&sources)?;
        let bench = Bench { project, sources, root, work: &work, home, adds_options };
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
    let sources = unpacked(project.name, project.version)?;
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

/// Returns the directory in which cargo unpacked a crate.
fn unpacked(name: &str, version: &str) -> Result<PathBuf> {
    let registries = cargo_home()?.join("registry/src");
    let name = format!("{name}-{version}");
    let all = fs::read_dir(&registries).with_context(|| format!("cannot list {}", registries.display()))?;
    let found = all.flatten().map(|registry| registry.path().join(&name)).find(|path| path.is_dir());
    found.with_context(|| format!("cargo has no sources of {name}"))
}

/// Returns the sources of the crate [`ROOT`] of the version in a project's lock file.
fn root(sources: &Path) -> Result<PathBuf> {
    let lock = fs::read_to_string(sources.join("Cargo.lock")).context("cannot read the lock file")?;
    let name = format!("name = \"{ROOT}\"\nversion = \"");
    let (_, behind) = lock.split_once(&name).with_context(|| format!("{ROOT} is not in the lock file"))?;
    unpacked(ROOT, behind.split('"').next().unwrap_or_default())
}

/// Adds text to the end of a file.
fn append(path: &Path, more: &str) -> Result<()> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    fs::write(path, text + more).with_context(|| format!("cannot write {}", path.display()))
}

fn cargo_home() -> Result<PathBuf> {
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo"));
    std::env::var_os("CARGO_HOME").map(PathBuf::from).or_else(home).context("neither CARGO_HOME nor HOME is set")
}

impl Bench<'_> {
    fn measure(&self, larder: &Path, stores: &Path, rivals: &[Rival], report: &mut Report) -> Result<()> {
        let plain = Plain { usage: self.references(false)?, rebuilt: self.rebuilt()? };
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
        report.table.rows.push(self.row(("plain", "cold"), plain.usage, &plain, None));
        for way in &ways {
            for (step, word) in STEPS {
                let (usage, counts) = self.build(way, step)?;
                let compared = self.compare(step, way.is_remapped)?;
                let outcome = Some((step, counts.as_ref(), compared));
                report.table.rows.push(self.row((&way.name, word), usage, &plain, outcome));
                let (cpu, of_plain) = (usage.cpu.as_secs_f64(), plain.usage.cpu.as_secs_f64());
                let goal = GOALS.iter().find(|(name, _)| way.name.starts_with("larder") && *name == word);
                let name = format!("{}, {} {word}, CPU ÷ plain", self.project.name, way.name);
                report.figures.extend(Figure::ratio(name, &[cpu], &[of_plain], goal.map(|(_, goal)| *goal)));
                report.rows.push(json!({
                    "project": self.project.name, "cache": way.name, "build": word, "cpu_s": cpu,
                    "plain_cpu_s": of_plain, "hits": counts.as_ref().map(|counts| counts.hit),
                    "misses": counts.as_ref().map(|counts| counts.miss),
                    "cargo_rebuilds": plain.rebuilt.iter().find(|(of, _)| *of == step).map(|(_, count)| count),
                    "artifacts": compared.0, "differ": compared.1,
                }));
            }
        }
        remove(&self.work.join("reference"))
    }

    /// Returns the checkout of a step. The two have paths of different lengths.
    fn checkout(&self, step: Step) -> PathBuf {
        let is_other = matches!(step, Step::Elsewhere | Step::LeafEdited | Step::RootEdited);
        self.work.join(if is_other { "other-checkout" } else { "a" }).join(self.project.name)
    }

    /// Makes the checkout of a step, with a fresh target directory, and removes the other one.
    fn prepare(&self, step: Step) -> Result<PathBuf> {
        let checkout = self.checkout(step);
        for step in [Step::Cold, Step::Elsewhere] {
            remove(&self.checkout(step))?;
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
        let mut command = cargo_build(launcher, wrapper, &self.home);
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
            let wrapper = Some(self.adds_options.as_path()).filter(|_| is_remapped);
            let usage = self.run(&mut self.cargo(&Launcher::plain(), wrapper, step))?;
            first.get_or_insert(usage);
            let kept = self.reference(step, is_remapped);
            fs::create_dir_all(kept.parent().unwrap_or(self.work)).context("cannot make a directory")?;
            fs::rename(self.target(step).join("debug/deps"), &kept).context("cannot keep the artifacts")?;
        }
        first.context("there was a build")
    }

    /// Returns how many crates plain cargo compiles after each edit.
    fn rebuilt(&self) -> Result<[(Step, usize); 2]> {
        let checkout = self.prepare(Step::Elsewhere)?;
        let build = || -> Result<usize> {
            self.run(&mut self.cargo(&Launcher::plain(), None, Step::Elsewhere))?;
            let said = fs::read_to_string(self.log()).context("cannot read cargo's messages")?;
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
        self.work.join("reference").join(format!("{name}-{setting}"))
    }

    fn run(&self, command: &mut Command) -> Result<Usage> {
        run::logged(command, &self.log(), || {})
    }

    fn log(&self) -> PathBuf {
        self.work.join("log")
    }

    /// Makes the build of a step. Returns its cost, and what the cache counted in it.
    fn build(&self, way: &Way, step: Step) -> Result<(Usage, Option<Counts>)> {
        self.prepare(step)?;
        let counted = || way.launcher.counting().counts(&self.home);
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
        (way, build): (&str, &str),
        usage: Usage,
        plain: &Plain,
        outcome: Option<(Step, Option<&Counts>, (usize, usize))>,
    ) -> Vec<String> {
        let counts = outcome.and_then(|(_, counts, _)| counts);
        let compared = outcome.map(|(_, _, compared)| compared);
        let is_it = |of: Step| outcome.is_some_and(|(step, _, _)| step == of);
        let rebuilt = plain.rebuilt.iter().find(|(of, _)| is_it(*of)).map(|(_, count)| *count);
        let counted = |number: fn(&Counts) -> u64| counts.map_or(NONE.to_owned(), |counts| number(counts).to_string());
        let number = |number: Option<usize>| number.map_or(NONE.to_owned(), |number| number.to_string());
        let cpu = usage.cpu.as_secs_f64();
        vec![
            format!("{} {}", self.project.name, self.project.version),
            way.to_owned(),
            build.to_owned(),
            format!("{:.1}", usage.wall.as_secs_f64()),
            format!("{cpu:.2}"),
            format!("{:.3}", cpu / plain.usage.cpu.as_secs_f64().max(f64::EPSILON)),
            counted(|counts| counts.hit),
            counted(|counts| counts.miss),
            number(rebuilt),
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
         is gone. leaf edited: there, with one more function in the program itself; root edited: with one more in the crate \
         memchr instead, which lies in the workspace. cargo rebuilds: how many crates plain cargo compiles after that edit."
            .to_owned(),
        "CC and CXX name the cache as well, so hits and misses include what build scripts compile.".to_owned(),
        "artifacts: the files in `target/debug/deps`, each compared with that of a plain build at the same path, for \
         `remap` with the same options."
            .to_owned(),
    ]
}
