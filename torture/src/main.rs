//! The suite as a program: chooses cases, runs them, and prints the differences.
#![forbid(unsafe_code)]

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use larder_torture::caches::{CacheKind, Chosen, Observer};
use larder_torture::case::Case;
use larder_torture::machine::{Machine, is_root};
use larder_torture::{cases, report, suite, table};
use regex::Regex;
use rustix::thread::CapabilitySet;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Instant;

/// This variable is set in the copy of this program that does the work. Its value says whether that
/// copy has a mount namespace of its own.
const INSIDE: &str = "LARDER_TORTURE_INSIDE";

#[derive(Parser)]
#[command(name = "cargo xtask torture", about = "Run tools plainly and through a cache, and compare all they leave")]
struct Options {
    /// Only cases whose name matches this regular expression or contains this text
    #[arg(long, value_name = "PATTERN")]
    only: Vec<String>,
    /// Not the cases whose name matches
    #[arg(long, value_name = "PATTERN")]
    skip: Vec<String>,
    /// The cache to test
    #[arg(long, value_enum, default_value = "larder")]
    cache: CacheKind,
    /// The cache's program [default: larder as xtask builds it; other caches as found on PATH]
    #[arg(long, value_name = "PATH")]
    bin: Option<PathBuf>,
    /// The observer that larder uses
    #[arg(long, value_enum)]
    observer: Option<Observer>,
    /// Run everything in this locale, which must be installed: de_DE.UTF-8 makes gcc translate its
    /// messages
    #[arg(long, value_name = "NAME", default_value = "C.UTF-8")]
    locale: String,
    /// How many cases run at once [default: two per processor, since each waits for half of its
    /// time]
    #[arg(long)]
    jobs: Option<usize>,
    /// Run each case with only one of its compilers
    #[arg(long)]
    quick: bool,
    /// Run the slow cases, too
    #[arg(long)]
    full: bool,
    /// Run only every N-th of the chosen cases
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    every: u16,
    /// Print the names of the cases, and run nothing
    #[arg(long)]
    list: bool,
    /// Write all results to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Print each case as it ends
    #[arg(short, long)]
    verbose: bool,
    /// The directory to work in [default: the directory for temporary files]
    #[arg(long, value_name = "DIR")]
    work: Option<PathBuf>,
    /// Run nothing: print Markdown from the JSON files of several runs
    #[arg(long, value_name = "FILE", num_args = 1..)]
    table: Vec<PathBuf>,
}

fn main() -> ExitCode {
    match act(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("torture: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Returns false if a result was wrong, or if larder missed an expected hit that `known` does not
/// list.
fn act(options: &Options) -> Result<bool> {
    if !options.table.is_empty() {
        print!("{}", table::markdown(&options.table)?);
        return Ok(true);
    }
    let chosen = chosen(options)?;
    if options.list {
        chosen.iter().for_each(|case| println!("{}", case.name));
        return Ok(true);
    }
    let cache = Chosen::find(options.cache, options.bin.as_deref(), options.observer, &options.locale)?;
    ensure_installed(&options.locale)?;
    let machine = Machine::new(enter_namespace());
    leave_file_modes_in_force();
    let mut builder = tempfile::Builder::new();
    builder.prefix("larder-torture-");
    let work = match &options.work {
        Some(dir) => builder.tempdir_in(dir),
        None => builder.tempdir(),
    };
    let work = work.context("cannot make a directory to work in")?;
    let start = Instant::now();
    let done = |result: &suite::CaseResult| {
        if options.verbose {
            println!("{}", report::line(result));
        }
    };
    let jobs = options.jobs.unwrap_or_else(|| 2 * std::thread::available_parallelism().map_or(1, usize::from));
    let results = suite::run(&chosen, &cache, &machine, work.path(), jobs, done)?;
    let counted = |case: &suite::CaseResult| case.steps.iter().any(|step| step.counted.is_some());
    ensure!(
        cache.kind == CacheKind::None || results.iter().any(counted),
        "the hits cannot be counted: the output of the cache's command for statistics was not understood"
    );
    let seconds = start.elapsed().as_secs_f64();
    let verdict = report::print(&results, &cache, seconds);
    if let Some(file) = &options.json {
        let text = serde_json::to_string_pretty(&report::as_json(&results, &cache, seconds))?;
        std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(verdict.wrong == 0 && (cache.kind != CacheKind::Larder || verdict.missed == 0))
}

/// Fails if the locale is not installed, because the C library would silently use another one.
fn ensure_installed(locale: &str) -> Result<()> {
    let listed = Command::new("locale").arg("-a").output().context("the program `locale` cannot be run")?;
    // `C.UTF-8` is listed as `C.utf8`.
    let plain = |name: &str| name.to_lowercase().replace('-', "");
    let is_listed = String::from_utf8_lossy(&listed.stdout).lines().any(|name| plain(name) == plain(locale));
    ensure!(
        is_listed,
        "the locale {locale} is not installed: `localedef -i de_DE -f UTF-8 de_DE.UTF-8` installs one, for example"
    );
    Ok(())
}

fn chosen(options: &Options) -> Result<Vec<Case>> {
    let only = patterns(&options.only)?;
    let skip = patterns(&options.skip)?;
    let fits = |(text, regex): &(String, Regex), name: &str| name.contains(text) || regex.is_match(name);
    let mut cases = if options.quick { cases::one_compiler_each() } else { cases::all() };
    cases.retain(|case| only.is_empty() || only.iter().any(|pattern| fits(pattern, &case.name)));
    cases.retain(|case| !skip.iter().any(|pattern| fits(pattern, &case.name)));
    cases.retain(|case| options.full || !case.slow);
    if cases.is_empty() {
        bail!("no case matches --only and --skip");
    }
    Ok(cases.into_iter().step_by(options.every.into()).collect())
}

/// Reads each pattern as text and as a regular expression.
fn patterns(texts: &[String]) -> Result<Vec<(String, Regex)>> {
    let compiled = |text: &String| Ok((text.clone(), Regex::new(text).with_context(|| text.clone())?));
    texts.iter().map(compiled).collect()
}

/// A bash command that closes all inherited descriptors but the standard three, because a case may
/// look at them.
const CLOSE_OTHERS: &str =
    r#"for d in /proc/$$/fd/*; do d=${d##*/}; [ "$d" -gt 2 ] && eval "exec $d>&-"; done; exec "$@""#;

/// Restarts this program without inherited descriptors and, if possible, in a mount namespace of
/// its own. In the restarted program, returns whether it has such a namespace.
fn enter_namespace() -> bool {
    if let Some(inside) = std::env::var_os(INSIDE) {
        return inside == "mounts";
    }
    let may = || Command::new("unshare").args(["-m", "true"]).status().is_ok_and(|status| status.success());
    let mounts = is_root() && may();
    let Ok(this) = std::env::current_exe() else { return false };
    let bash = ["bash", "-c", CLOSE_OTHERS, "bash"];
    let unshare = ["unshare", "-m", "--propagation", "private"];
    let before: Vec<&str> = unshare.into_iter().filter(|_| mounts).chain(bash).collect();
    let mut command = Command::new(before[0]);
    command.args(&before[1..]).arg(this).args(std::env::args_os().skip(1));
    // `exec` only returns if it failed.
    let error = command.env(INSIDE, if mounts { "mounts" } else { "no" }).exec();
    eprintln!("cannot restart in a mount namespace: {error}");
    false
}

/// Takes the right to ignore file modes from all programs that the suite starts. Root has that
/// right, and with it the cases with unreadable files would test nothing.
fn leave_file_modes_in_force() {
    for right in [CapabilitySet::DAC_OVERRIDE, CapabilitySet::DAC_READ_SEARCH] {
        // Other users do not have the right, so an error is ignored.
        let _ = rustix::thread::remove_capability_from_bounding_set(right);
    }
}
