//! `cargo xtask matrix`: runs larder in other distributions and on other kernels, and writes the
//! table of the results.
//!
//! A cell is a root (a Debian release) on a kernel: this machine's, in namespaces, or another one
//! in QEMU. `inside.sh` runs in the cell and prints a line for each check. The rest of its output
//! goes to a log. Roots and kernels are kept in `target/matrix` and used again: remove that directory
//! to make them again. Results are kept in `results`, in the repository.

mod cells;
mod outcome;
mod programs;
mod roots;
mod table;

use crate::debian::Archive;
use crate::files::{self, fresh, remove};
use crate::packages::packages;
use crate::place::Place;
use crate::run::{self, Streamed};
use crate::setup::{self, STATIC_TARGET};
use crate::{binaries, machine, qemu};
use anyhow::{Context, Result, anyhow, ensure};
use cells::{CELLS, Cell, SHORT, TARGETS_EMULATED, Where};
use outcome::{Check, Outcome, State};
use roots::Extent;
use std::fs::{self, File, FileTimes};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};
use table::Column;

/// The options of `cargo xtask matrix`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The names of the cells to run [default: all]. The table keeps earlier results of the others
    cells: Vec<String>,
    /// Print the names of the cells with descriptions
    #[arg(long)]
    list: bool,
    /// Run only the short project and a few torture cases, in one root with an old glibc. Takes at
    /// most 2 minutes and writes no table
    #[arg(long, conflicts_with = "cells")]
    short: bool,
    /// Run nothing, and write the table from the kept results
    #[arg(long, conflicts_with_all = ["cells", "short"])]
    table: bool,
    /// Use this larder, with the larderd beside it, instead of building one
    #[arg(long, value_name = "PROGRAM")]
    larder: Option<PathBuf>,
    /// Run the slow torture cases as well, in roots on this machine's kernel
    #[arg(long)]
    full: bool,
    /// Run only these parts of `inside.sh`. Can be given several times. Writes no table
    #[arg(long, value_name = "PART")]
    part: Vec<String>,
    /// The number of files in the image that is mounted, for example 100000. Writes no table
    #[arg(long, value_name = "NUMBER")]
    files: Option<u32>,
}

/// The files beside the programs in each cell.
const FILES: &[(&str, &str)] = &[
    ("inside.sh", include_str!("inside.sh")),
    ("program.c", include_str!("programs/program.c")),
    ("refuse.c", include_str!("../../../crates/testkit/tests/refused/refuse.c")),
    ("project/Makefile", include_str!("project/Makefile")),
    ("project/include/config.h", include_str!("project/include/config.h")),
    ("project/include/shapes.h", include_str!("project/include/shapes.h")),
    ("project/include/text.h", include_str!("project/include/text.h")),
    ("project/list.c", include_str!("project/list.c")),
    ("project/main.cc", include_str!("project/main.cc")),
    ("project/names.cc", include_str!("project/names.cc")),
    ("project/shapes.cc", include_str!("project/shapes.cc")),
    ("project/start.S", include_str!("project/start.S")),
    ("project/sum.c", include_str!("project/sum.c")),
    ("project/table.c", include_str!("project/table.c")),
    ("project/text.c", include_str!("project/text.c")),
];
const ENTER: &str = include_str!("enter.sh");

/// 2020-01-01. Sources are older than every build of them.
const SOURCE_TIME: Duration = Duration::from_secs(1_577_836_800);
/// The time limits on this machine's kernel, and in an emulated machine.
const LIMITS: Limits = Limits { step_s: 600, torture_s: 3 * 3600, cell: Duration::from_secs(8 * 3600) };
const LIMITS_EMULATED: Limits = Limits { step_s: 3000, torture_s: 2 * 3600, cell: Duration::from_secs(6 * 3600) };

/// The number of files in the image that is mounted, without `--files`.
const FILES_IN_IMAGE: u32 = 3000;

struct Limits {
    /// For one step of a check, for example one build of the project.
    step_s: u32,
    /// For one run of the torture suite.
    torture_s: u32,
    /// For a whole cell.
    cell: Duration,
}

/// Returns `false` if a check was wrong or hung.
pub(crate) fn matrix(place: &Place, options: &Options) -> Result<bool> {
    if options.list {
        CELLS.iter().for_each(|cell| println!("{:<14} {}", cell.name, described(cell)));
        return Ok(true);
    }
    if options.table {
        write_page(&place.repo)?;
        return Ok(true);
    }
    let chosen = chosen(options)?;
    setup::for_builds(place)?;
    packages(setup::PACKAGES_FOR_MATRIX)?;
    let larder = binaries::larder(place, options.larder.as_deref())?;
    let torture = torture_program(place)?;
    let dir = place.target.join("matrix");
    for inner in ["logs", "work"] {
        files::make(dir.join(inner))?;
    }
    let commit = machine::commit(place).unwrap_or("unknown".to_owned());
    let date = machine::date("%Y-%m-%d")?;
    let run = Run { dir: &dir, options, larder: &larder, torture: &torture, commit, date };
    let mut outcomes = Vec::new();
    for cell in chosen {
        let outcome = run.cell(cell)?;
        if run.is_kept() {
            let file = result_file(&place.repo, cell);
            files::write(&file, outcome.to_string())?;
            write_page(&place.repo)?;
        }
        outcomes.push((cell.name, outcome));
    }
    Ok(summed_up(&outcomes))
}

fn chosen(options: &Options) -> Result<Vec<&'static Cell>> {
    if options.short {
        return Ok(vec![&SHORT]);
    }
    for name in &options.cells {
        ensure!(CELLS.iter().any(|cell| cell.name == name), "there is no cell {name}: `cargo xtask matrix --list`");
    }
    let wanted = |cell: &&Cell| options.cells.is_empty() || options.cells.iter().any(|name| name == cell.name);
    Ok(CELLS.iter().filter(wanted).collect())
}

fn described(cell: &Cell) -> String {
    match cell.place {
        Where::Here => format!("Debian's {} on this machine's kernel", cell.root.suite),
        Where::Kernel("") => format!("Debian's {} on the newest of Debian's kernels, in QEMU", cell.root.suite),
        Where::Kernel(series) => format!("Debian's {} on Linux {series}, in QEMU", cell.root.suite),
    }
}

/// Prints all wrong and hung checks and a summary. Returns true if there are none.
fn summed_up(outcomes: &[(&str, Outcome)]) -> bool {
    let mut bad = 0;
    for (cell, outcome) in outcomes {
        for check in outcome.checks.iter().filter(|check| matches!(check.state, State::Wrong | State::Hung)) {
            eprintln!("{cell}: {}, {}: {}", check.name, check.state.word(), check.text);
            bad += 1;
        }
    }
    let (untried, tried): (Vec<_>, Vec<_>) =
        outcomes.iter().map(|(_, outcome)| outcome).partition(|outcome| outcome.untried.is_some());
    let checks: usize = tried.iter().map(|outcome| outcome.checks.len()).sum();
    eprintln!("{} cells, {checks} checks, {bad} wrong or hung; {} cells not tried", tried.len(), untried.len());
    bad == 0
}

/// Writes `docs/matrix.md` from all kept results, including those of earlier runs.
fn write_page(repo: &Path) -> Result<()> {
    let page = repo.join("docs/matrix.md");
    files::write(&page, page_of_results(repo)?)
}

fn page_of_results(repo: &Path) -> Result<String> {
    let kept: Vec<Option<Outcome>> = CELLS.iter().map(|cell| kept(repo, cell)).collect::<Result<_>>()?;
    let columns: Vec<Column<'_>> =
        CELLS.iter().zip(&kept).map(|(cell, outcome)| Column { name: cell.name, outcome: outcome.as_ref() }).collect();
    Ok(table::page(&columns))
}

/// Returns the results of a cell's last run, or `None` if it was never run.
fn kept(repo: &Path, cell: &Cell) -> Result<Option<Outcome>> {
    let file = result_file(repo, cell);
    match fs::read_to_string(&file) {
        Ok(text) => text.parse().map(Some).map_err(|line: String| anyhow!("{}: {line}", file.display())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", file.display())),
    }
}

fn result_file(repo: &Path, cell: &Cell) -> PathBuf {
    repo.join("xtask/src/matrix/results").join(format!("{}.tsv", cell.name))
}

/// Values that all cells of a run share.
struct Run<'a> {
    dir: &'a Path,
    options: &'a Options,
    larder: &'a Path,
    torture: &'a Path,
    commit: String,
    date: String,
}

impl Run<'_> {
    /// Returns true if the table takes the results of this run. It takes results of complete cells
    /// only.
    fn is_kept(&self) -> bool {
        !self.options.short && self.options.part.is_empty() && self.options.files.is_none()
    }

    fn cell(&self, cell: &Cell) -> Result<Outcome> {
        eprintln!("── {}: {}", cell.name, described(cell));
        let start = Instant::now();
        let mut checks = Vec::new();
        let result = self.tried(cell, &mut |check: Check| {
            let minutes = start.elapsed().as_secs() / 60;
            let seconds = start.elapsed().as_secs() % 60;
            let word = check.state.word();
            eprintln!("{:<14} {minutes:>3}:{seconds:02}  {word:<7} {}: {}", cell.name, check.name, check.text);
            checks.push(check);
        });
        // A cell that stopped in the middle keeps its results.
        let untried = match result {
            Err(error) if checks.is_empty() => Some(format!("{error:#}")),
            Err(error) => {
                checks.push(Check {
                    name: "all checks were made".to_owned(),
                    state: State::Wrong,
                    text: format!("{error:#}"),
                });
                None
            }
            Ok(()) => None,
        };
        if let Some(why) = &untried {
            eprintln!("{:<14} not tried: {why}", cell.name);
        }
        Ok(Outcome {
            date: self.date.clone(),
            commit: self.commit.clone(),
            seconds: start.elapsed().as_secs(),
            untried,
            checks,
        })
    }

    fn tried(&self, cell: &Cell, found: &mut dyn FnMut(Check)) -> Result<()> {
        let logs = self.dir.join("logs");
        let extent = if self.options.short { Extent::Short } else { Extent::Whole };
        let root = roots::root(self.dir, cell.root, extent, &logs)?;
        let work = self.dir.join("work").join(cell.name);
        self.lay_out(&work)?;
        let log = logs.join(format!("{}.log", cell.name));
        let mut line = |line: &str| {
            if let Some(check) = Check::parse(line) {
                found(check);
            }
        };
        match cell.place {
            Where::Here => self.here(cell, &root, &work, &log, &mut line)?,
            Where::Kernel(series) => self.in_qemu(cell, series, &root, &work, &log, &mut line)?,
        }
        remove(&work)
    }

    /// Makes the cell's directory as `inside.sh` expects it.
    fn lay_out(&self, work: &Path) -> Result<()> {
        fresh(work)?;
        for inner in ["bin", "tmp", "root", "project/include"] {
            files::make(work.join(inner))?;
        }
        fs::set_permissions(work.join("tmp"), fs::Permissions::from_mode(0o1777))?;
        let times = FileTimes::new().set_modified(SystemTime::UNIX_EPOCH + SOURCE_TIME);
        for (name, text) in FILES {
            let path = work.join(name);
            files::write(&path, text)?;
            File::options().write(true).open(&path)?.set_times(times)?;
        }
        programs::build(&work.join("programs"))?;
        let larderd = self.larder.with_file_name("larderd");
        for (from, name) in [(self.larder, "larder"), (&larderd, "larderd"), (self.torture, "larder-torture")] {
            files::copy(from, work.join("bin").join(name))?;
        }
        Ok(())
    }

    /// Runs the cell in its own namespaces, which end with it.
    fn here(&self, cell: &Cell, root: &Path, work: &Path, log: &Path, line: &mut dyn FnMut(&str)) -> Result<()> {
        ensure!(nix::unistd::geteuid().is_root(), "another root is entered as root only: `sudo -E cargo xtask matrix`");
        let enter = work.join("enter.sh");
        files::write(&enter, ENTER)?;
        let mut command = Command::new("unshare");
        command.args(["-m", "-p", "-f", "--kill-child", "sh"]).arg(&enter).arg(root).arg(work);
        command.args(["sh", "-c", &self.script(cell, &LIMITS)]).stdin(std::process::Stdio::null());
        match run::streamed(&mut command, log, LIMITS.cell, line)? {
            Streamed::TimeIsOver => anyhow::bail!("did not end within {} s", LIMITS.cell.as_secs()),
            Streamed::Ended(status) => {
                ensure!(status.success(), "ended with {status}; see {} of the logs", roots::file_name(log))
            }
        }
        Ok(())
    }

    fn in_qemu(
        &self,
        cell: &Cell,
        series: &str,
        root: &Path,
        work: &Path,
        log: &Path,
        line: &mut dyn FnMut(&str),
    ) -> Result<()> {
        let archive = Archive::new("amd64", &self.dir.join("debian"));
        let kernel = archive.kernel(series)?;
        let busybox = archive.file("busybox-static", "bin/busybox")?;
        let image = roots::image(self.dir, cell.root, root)?;
        // The files are copied to the machine's own file system, because 9p handles times and
        // inodes differently.
        let script = format!("mkdir -p /cell && cp -a /host/. /cell/ && {}", self.script(cell, &LIMITS_EMULATED));
        let boot = qemu::Boot {
            machine: &qemu::X86_64,
            kernel: &kernel,
            busybox: &busybox,
            root: &image,
            shared: work,
            script: &script,
            memory_mib: 2048,
            processors: 2,
            limit: LIMITS_EMULATED.cell,
            work: &self.dir.join("work").join(format!("{}-machine", cell.name)),
            log,
        };
        match qemu::boot(&boot, line)?.code {
            Ok(0) => Ok(()),
            Ok(code) => anyhow::bail!("ended with exit code {code}; see {} of the logs", roots::file_name(log)),
            Err(why) => anyhow::bail!("{why}"),
        }
    }

    /// Returns the shell command that runs the cell's parts.
    fn script(&self, cell: &Cell, limits: &Limits) -> String {
        let extra = if self.options.full && cell.place == Where::Here { " --full" } else { "" };
        let targets = if cell.place == Where::Here { "" } else { TARGETS_EMULATED };
        let torture: Vec<String> = cell.torture.iter().map(|words| format!("{words}{extra}")).collect();
        let parts = match self.options.part.as_slice() {
            [] => cell.parts.to_owned(),
            parts => parts.join(" "),
        };
        format!(
            "CELL=/cell WORK=/cell/root LIMIT={} TARGETS='{targets}' FILES={} TORTURE_LIMIT={} \
             TORTURE='{}' sh /cell/inside.sh {parts}",
            limits.step_s,
            self.options.files.unwrap_or(FILES_IN_IMAGE),
            limits.torture_s,
            torture.join(";"),
        )
    }
}

/// Builds the torture suite as a static program, because cells have other C libraries. It is not
/// optimised, because it mostly waits for programs.
fn torture_program(place: &Place) -> Result<PathBuf> {
    let words = ["build", "--quiet", "--locked", "--package", "larder-torture", "--target", STATIC_TARGET];
    run::shown_to_user(place.cargo().args(words)).context("the torture suite does not build")?;
    Ok(place.target.join(STATIC_TARGET).join("debug/larder-torture"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_shows_the_kept_results() {
        let repo = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is in the repository");
        let page = fs::read_to_string(repo.join("docs/matrix.md")).expect("the page is in the repository");
        let is_current = page_of_results(repo).expect("all results can be read") == page;
        assert!(is_current, "`cargo xtask matrix --table` writes the page from the results");
    }

    #[test]
    fn every_file_of_the_project_is_laid_out() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/matrix");
        for inner in ["project", "project/include"] {
            for entry in fs::read_dir(dir.join(inner)).expect("the project is there").flatten() {
                let name = format!("{inner}/{}", entry.file_name().to_string_lossy());
                let known = FILES.iter().any(|(file, _)| *file == name);
                assert!(known || entry.path().is_dir(), "{name} is not in FILES");
            }
        }
    }

    #[test]
    fn every_part_is_a_function_of_the_script() {
        let (_, script) = FILES[0];
        for part in CELLS.iter().chain([&SHORT]).flat_map(|cell| cell.parts.split(' ')) {
            let function = part.strip_prefix("u:").unwrap_or(part).split(':').next().unwrap_or_default();
            assert!(script.lines().any(|line| line == format!("{function}() {{")), "{part}");
        }
    }
}
