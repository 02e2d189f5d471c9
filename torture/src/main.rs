//! The suite as a program: chooses cases, runs them, says what differs.
#![forbid(unsafe_code)]

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use larder_torture::caches::{Chosen, Kind, Observer};
use larder_torture::case::Case;
use larder_torture::machine::{Machine, is_root};
use larder_torture::{cases, report, suite, table};
use regex::Regex;
use rustix::thread::CapabilitySet;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Instant;

/// Set for the copy of this program that works: whether it has a mount namespace of its own.
const INSIDE: &str = "LARDER_TORTURE_INSIDE";

#[derive(Parser)]
#[command(name = "cargo xtask torture", about = "Run tools plainly and through a cache, and compare all they leave")]
struct Options {
    /// Only cases whose name fits this regular expression, or holds this text
    #[arg(long, value_name = "PATTERN")]
    only: Vec<String>,
    /// Not the cases whose name fits
    #[arg(long, value_name = "PATTERN")]
    skip: Vec<String>,
    /// Which cache
    #[arg(long, value_enum, default_value = "larder")]
    cache: Kind,
    /// Its program [default: larder as xtask builds it; others as found on PATH]
    #[arg(long, value_name = "PATH")]
    bin: Option<PathBuf>,
    /// How larder is to observe
    #[arg(long, value_enum)]
    observer: Option<Observer>,
    /// Run everything in this locale, which must be installed: for example de_DE.UTF-8, so that gcc's messages are translated
    #[arg(long, value_name = "NAME", default_value = "C.UTF-8")]
    locale: String,
    /// How many cases run at once [default: two a processor, since each waits for half of its time]
    #[arg(long)]
    jobs: Option<usize>,
    /// Each case with one of its compilers only
    #[arg(long)]
    quick: bool,
    /// Also the slow cases
    #[arg(long)]
    full: bool,
    /// Print the names of the cases
    #[arg(long)]
    list: bool,
    /// Keep every result in this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Print each case as it ends
    #[arg(short, long)]
    verbose: bool,
    /// Where to work [default: the directory for temporary files]
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

/// `false` where something was wrong, or a hit was missed that nobody excused.
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
    let work = work.context("there is no room to work in")?;
    let start = Instant::now();
    let done = |result: &suite::CaseResult| {
        if options.verbose {
            println!("{}", report::line(result));
        }
    };
    let jobs = options.jobs.unwrap_or_else(|| 2 * std::thread::available_parallelism().map_or(1, usize::from));
    let results = suite::run(&chosen, &cache, &machine, work.path(), jobs, done)?;
    let seconds = start.elapsed().as_secs_f64();
    let verdict = report::print(&results, &cache, seconds);
    if let Some(file) = &options.json {
        let text = serde_json::to_string_pretty(&report::as_json(&results, &cache, seconds))?;
        std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(verdict.wrong == 0 && (cache.kind != Kind::Larder || verdict.missed == 0))
}

/// Fails if the C library would take another locale instead of this one without a word.
fn ensure_installed(locale: &str) -> Result<()> {
    let listed = Command::new("locale").arg("-a").output().context("the C library's `locale` is not here")?;
    // `C.UTF-8` is listed as `C.utf8`.
    let plain = |name: &str| name.to_lowercase().replace('-', "");
    let is_listed = String::from_utf8_lossy(&listed.stdout).lines().any(|name| plain(name) == plain(locale));
    ensure!(
        is_listed,
        "the locale {locale} is not installed: `localedef -i de_DE -f UTF-8 de_DE.UTF-8` makes such a one"
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
        bail!("no case has such a name");
    }
    Ok(cases)
}

/// Each as text and as regular expression.
fn patterns(texts: &[String]) -> Result<Vec<(String, Regex)>> {
    let compiled = |text: &String| Ok((text.clone(), Regex::new(text).with_context(|| text.clone())?));
    texts.iter().map(compiled).collect()
}

/// Closes whatever descriptors were inherited beside the standard three: a cache may ask what they are for.
const CLOSE_OTHERS: &str =
    r#"for d in /proc/$$/fd/*; do d=${d##*/}; [ "$d" -gt 2 ] && eval "exec $d>&-"; done; exec "$@""#;

/// Starts this program once more without descriptors that are none of its business, and, where that is possible, in a
/// mount namespace of its own. Gives whether it is in one.
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
    // It returns only where it could not be done.
    let error = command.env(INSIDE, if mounts { "mounts" } else { "no" }).exec();
    eprintln!("no mounts of one's own: {error}");
    false
}

/// The superuser may read and write whatever the modes say; what it starts here may not, so that cases with unreadable
/// files are about something.
fn leave_file_modes_in_force() {
    for right in [CapabilitySet::DAC_OVERRIDE, CapabilitySet::DAC_READ_SEARCH] {
        // Others than the superuser have it not.
        let _ = rustix::thread::remove_capability_from_bounding_set(right);
    }
}
