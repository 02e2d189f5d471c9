//! `cargo xtask test`: runs every check and test as a list of stages, and prints a line for each
//! and the counts.

use crate::aarch64;
use crate::arch::Arch;
use crate::bench::corpus;
use crate::binaries::{self, cargo};
use crate::demo;
use crate::dist;
use crate::docs;
use crate::place::Place;
use crate::run;
use crate::sanitize;
use crate::setup::{self, CHECKED_TARGETS};
use crate::skips::{self, Skips};
use crate::supply;
use crate::tools;
use crate::torture;
use anyhow::Result;
use std::cell::RefCell;
use std::time::Instant;

/// The options of `cargo xtask test`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Also run the slow torture cases, every fault and every damaged byte instead of a selection,
    /// and the small demo, which builds real projects plainly and through larder
    #[arg(long)]
    full: bool,
    /// Run a share of the tests on another architecture, emulated by QEMU
    #[arg(long, value_enum, default_value_t = Arch::HOST, conflicts_with = "full")]
    arch: Arch,
    /// With `--arch`, run only the test programs whose names contain this, for example `larder-sys`
    /// or `torture`
    #[arg(long, value_name = "PART", requires = "arch")]
    only: Vec<String>,
}

/// The packages that need not be type-correct on the systems in `CHECKED_TARGETS`. All others must
/// be.
const UNCHECKED_PACKAGES: &[&str] =
    &["larder-count", "larder-fill", "larder-fuzz", "larder-testkit", "larder-torture", "xtask"];

struct Stage<'a> {
    name: String,
    work: Box<dyn Fn() -> Result<()> + 'a>,
}

/// Runs all stages, even if one fails. Returns `true` if every one passed.
pub(crate) fn test(place: &Place, options: &Options) -> Result<bool> {
    if options.arch != Arch::HOST {
        anyhow::ensure!(options.arch == Arch::Aarch64, "only aarch64 is emulated");
        return aarch64::test(place, &options.only);
    }
    setup::for_tests(place)?;
    let skips = RefCell::new(Skips::default());
    let mut lines = Vec::new();
    let mut failed = 0;
    for stage in stages(place, options, &skips) {
        println!("── {}", stage.name);
        let start = Instant::now();
        let result = (stage.work)();
        let seconds = start.elapsed().as_secs_f64();
        if let Err(error) = &result {
            failed += 1;
            println!("{error:#}");
        }
        let word = if result.is_ok() { "passed" } else { "FAILED" };
        lines.push(format!("{word}  {seconds:7.1} s  {}", stage.name));
    }
    println!("\n{}\n", lines.join("\n"));
    println!("{}", skips.borrow());
    println!("{} passed, {failed} failed", lines.len() - failed);
    Ok(failed == 0)
}

fn stages<'a>(place: &'a Place, options: &Options, skips: &'a RefCell<Skips>) -> Vec<Stage<'a>> {
    let mut stages = vec![
        stage("static release binaries", || binaries::build(place)),
        stage("format", || run::shown_to_user(cargo(place).args(["fmt", "--all", "--check"]))),
        stage("lints", || {
            let words = ["clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"];
            run::shown_to_user(cargo(place).args(words))
        }),
        stage("supply chain", || supply::check(place)),
        stage("documents: links and examples", || docs::stage(place)),
        stage("packages in a clean root", || dist::stage(place)),
    ];
    for target in CHECKED_TARGETS {
        stages.push(stage(&format!("type check for {target}"), move || type_check(place, target)));
    }
    stages.push(stage("type check for aarch64, and a wrapper for it", || aarch64_stage(place)));
    stages.push(stage("unsafe code under AddressSanitizer", || sanitize::address(place)));
    if options.full {
        stages.push(stage("unsafe code under Miri", || sanitize::miri(place)));
    }
    // The longest stages come last, so their failures are at the end of the output.
    let full = options.full;
    stages.push(stage("tests", move || tests(place, full, &mut skips.borrow_mut())));
    stages.push(stage("torture", move || torture::stage(place, full)));
    if options.full {
        stages.push(stage("small demo", || match demo::small(place)? {
            true => Ok(()),
            false => anyhow::bail!("the demo failed; its table is above"),
        }));
        stages.push(stage("small packages of Debian's in several places", || corpus::short(place)));
    }
    stages
}

fn stage<'a>(name: &str, work: impl Fn() -> Result<()> + 'a) -> Stage<'a> {
    Stage { name: name.to_owned(), work: Box::new(work) }
}

/// Runs all tests and notes which of them were skipped. Their output is shown as without `--show-output`, which makes
/// the reasons known: without it nothing is printed of tests that passed.
fn tests(place: &Place, full: bool, skips: &mut Skips) -> Result<()> {
    let mut command = cargo(place);
    command
        .args(["test", "--locked", "--workspace", "--no-fail-fast", "--", "--show-output"])
        .env_remove("LARDER_CI")
        .env("LARDER_BIN", place.larder())
        .env("LARDER_TOOLS", tools::directory(place));
    if std::env::var_os("RUST_TEST_THREADS").is_none() {
        // Tests wait for half of their time: for programs, servers, and the clock of a file system.
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        command.env("RUST_TEST_THREADS", (2 * processors).to_string());
    }
    if full {
        command.env("LARDER_TEST_FULL", "1");
    }
    run::filtered(&mut command, &place.own("tests")?.join("log"), |line| skips.read(line))?;
    if skips::is_ci() { skips.check() } else { Ok(()) }
}

fn type_check(place: &Place, target: &str) -> Result<()> {
    let mut command = cargo(place);
    command.args(["check", "--locked", "--target", target, "--workspace"]);
    for package in UNCHECKED_PACKAGES {
        command.args(["--exclude", package]);
    }
    run::shown_to_user(&mut command)
}

/// Checks the types of everything for aarch64, and links the wrapper. A type check does not find a
/// wrong linker, a missing cross compiler, or an undefined symbol in the preloaded library.
fn aarch64_stage(place: &Place) -> Result<()> {
    let target = Arch::Aarch64.static_target();
    type_check(place, target)?;
    let words = ["build", "--locked", "--target", target, "--package", "larder", "--no-default-features"];
    run::shown_to_user(cargo(place).args(words))
}
