//! `cargo xtask demo`: builds real projects plainly, then through larder cold, warm and in another
//! place, and compares the results.
//!
//! Every build of a project runs at one path, `work/tree`, because objects may contain paths. The
//! built tree is moved away before the next build. The other place has a plain build of its own for
//! comparison.

mod report;

use crate::fetch::{self, Sources};
use crate::files::{self, fresh, remove};
use crate::launcher::Launcher;
use crate::place::Place;
use crate::projects::{self, Project};
use crate::tree::{self, Comparison, Exclusion, Exclusions};
use crate::workload::{Built, Workload};
use crate::{binaries, setup};
use anyhow::{Context, Result};
use report::Row;
use std::path::{Path, PathBuf};

/// The options of `cargo xtask demo`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Build only the quick projects, each three times. Takes less than two minutes on two cores
    #[arg(long)]
    small: bool,
    /// Keep every built tree and the stores, and print the directory
    #[arg(long)]
    keep: bool,
    /// Also build with LARDER_VERIFY=1, which runs the compiler on each hit and compares
    #[arg(long)]
    verify: bool,
    /// The number of compilers that run at once [default: the number of processors]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Build only this project. Can be given several times
    #[arg(long, value_name = "PROJECT")]
    only: Vec<String>,
    /// Build in another place as well, with --small
    #[arg(long)]
    elsewhere: bool,
    /// Use this larder, with the larderd beside it, instead of building one
    #[arg(long, value_name = "PROGRAM")]
    larder: Option<PathBuf>,
}

/// Files that may differ between a plain build and one through a cache, or between any two builds,
/// with the reason.
const EXCLUDED: &[Exclusion] = &[
    ("*.log", "written for people, with times and process ids"),
    ("config.status", "names the compiler command"),
    ("Makefile", "names the compiler command if configure wrote it"),
    ("jemalloc-config", "names the compiler command"),
    ("CMakeCache.txt", "names the compiler launcher"),
    ("build.ninja", "names the compiler launcher"),
    ("rules.ninja", "names the compiler launcher"),
    ("build.make", "names the compiler launcher"),
    ("CMakeConfigureLog.yaml", "written for people"),
    (".ninja_log", "times of this build"),
    (".ninja_deps", "times of this build, in the order in which compilers ended"),
    ("CMakeScratch/", "configure's leftovers under random names"),
    (".git/", "marks the tree as a checkout"),
];

/// Runs the demo as in `cargo xtask test --full`.
pub(crate) fn small(place: &Place) -> Result<bool> {
    let small = Options {
        small: true,
        keep: false,
        verify: true,
        jobs: None,
        only: Vec::new(),
        elsewhere: false,
        larder: None,
    };
    demo(place, &small)
}

/// Returns `true` if nothing differed and the warm builds hit.
pub(crate) fn demo(place: &Place, options: &Options) -> Result<bool> {
    let projects = projects::choose(options.small, &options.only)?;
    setup::for_builds(place)?;
    let larder = binaries::larder(place, options.larder.as_deref())?;
    let work = place.own("demo")?;
    fresh(&work)?;
    for project in &projects {
        println!("{:<9} {:<4} {} {}", project.name, project.language, project.package, project.version);
    }
    let mut rows = Vec::new();
    for project in projects {
        let sources = fetch::sources(place, project)?;
        let demo = ProjectDemo { larder: &larder, options, project, sources: &sources, work: &work };
        rows.extend(demo.steps().with_context(|| format!("the demo of {} stopped", project.name))?);
    }
    println!("{}", report::table(&rows));
    let problems = report::problems(&rows);
    match problems.as_slice() {
        [] => println!("\n{}", report::verdict(&rows)),
        problems => println!("\n{}", problems.join("\n")),
    }
    match options.keep {
        true => println!("kept: {}", work.display()),
        false => remove(&work)?,
    }
    Ok(problems.is_empty())
}

struct ProjectDemo<'a> {
    larder: &'a Path,
    options: &'a Options,
    project: &'static Project,
    sources: &'a Sources,
    work: &'a Path,
}

impl ProjectDemo<'_> {
    fn steps(&self) -> Result<Vec<Row>> {
        let plain = Launcher::plain();
        let larder = Launcher::larder(self.larder, &self.work.join("store").join(self.project.name))?;
        let here = self.workload(&self.work.join("work/tree"))?;
        let expected = here.build("plain", &plain, self.project.objects)?;
        let kept = self.kept("plain");
        here.move_to(&kept)?;
        let mut rows = vec![self.row("plain", expected.clone(), None, &expected)];
        if !self.options.small {
            rows.push(self.compared(&here, "plain again", &plain, &expected, &kept)?);
        }
        rows.push(self.compared(&here, "cold", &larder, &expected, &kept)?);
        rows.push(self.compared(&here, "warm", &larder, &expected, &kept)?);
        if self.options.verify {
            let store = self.work.join("store").join(self.project.name);
            let verifying = Launcher::larder(self.larder, &store)?.verifying();
            rows.push(self.compared(&here, "verified", &verifying, &expected, &kept)?);
        }
        self.drop_tree(&kept)?;
        if !self.options.small || self.options.elsewhere {
            rows.extend(self.elsewhere(&plain, &larder, &expected)?);
        }
        Ok(rows)
    }

    /// Builds the project at a path of another length and depth.
    fn elsewhere(&self, plain: &Launcher, larder: &Launcher, expected: &Built) -> Result<Vec<Row>> {
        let there = self.workload(&self.work.join("another/place/further/down/tree"))?;
        let reference = there.build("plain elsewhere", plain, expected.objects)?;
        let kept = self.kept("plain-elsewhere");
        there.move_to(&kept)?;
        let row = self.compared(&there, "elsewhere", larder, &reference, &kept)?;
        self.drop_tree(&kept)?;
        Ok(vec![self.row("plain elsewhere", reference.clone(), None, &reference), row])
    }

    /// Builds, compares with the plain tree in `kept`, and moves or removes the built tree.
    fn compared(
        &self,
        at: &Workload,
        step: &'static str,
        launcher: &Launcher,
        plain: &Built,
        kept: &Path,
    ) -> Result<Row> {
        let built = at.build(step, launcher, plain.objects)?;
        let comparison = tree::compare(kept, &at.tree, &self.sources.root, &Exclusions::known(EXCLUDED))?;
        let moved = self.kept(&step.replace(' ', "-"));
        at.move_to(&moved)?;
        if comparison.different.is_empty() {
            self.drop_tree(&moved)?;
        }
        Ok(self.row(step, built, Some(comparison), plain))
    }

    fn row(&self, step: &'static str, built: Built, compared: Option<Comparison>, plain: &Built) -> Row {
        Row { project: self.project.name, step, built, compared, plain: plain.clone() }
    }

    fn workload(&self, tree: &Path) -> Result<Workload<'_>> {
        let (logs, home) = (self.work.join("logs"), self.work.join("home"));
        for dir in [&logs, &home] {
            files::make(dir)?;
        }
        let jobs = self.options.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(2, usize::from));
        Ok(Workload { project: self.project, sources: self.sources, tree: tree.into(), logs, home, jobs })
    }

    fn kept(&self, step: &str) -> PathBuf {
        self.work.join("built").join(format!("{}-{step}", self.project.name))
    }

    fn drop_tree(&self, tree: &Path) -> Result<()> {
        if self.options.keep { Ok(()) } else { remove(tree) }
    }
}
