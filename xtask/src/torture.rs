//! `cargo xtask torture`: builds larder and the torture suite, and runs the suite with the given
//! options.
//!
//! The suite is a separate program that runs larder as a program. Its `--help` lists the options.

use crate::place::Place;
use crate::{binaries, run, setup, skips};
use anyhow::{Context, Result};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// The options of `cargo xtask torture`.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Options {
    /// Options of the suite; `--help` lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// Options that name another program than the larder of this workspace, or run nothing.
const WITHOUT_LARDER: &[&str] = &["--bin", "--list", "--table", "--help", "-h"];

/// Returns `false` if a result is wrong, or if a hit was missed that the suite does not list as
/// known.
pub(crate) fn torture(place: &Place, options: &Options) -> Result<bool> {
    let mut words = options.words.clone();
    if wants_larder(&words) {
        binaries::build(place)?;
        words.splice(0..0, larder_words(place)?);
    }
    suite(place, &words)
}

/// Runs the stage of `cargo xtask test`, with the larder that an earlier stage built.
pub(crate) fn stage(place: &Place, full: bool) -> Result<()> {
    let mut words = larder_words(place)?;
    words.push(if full { "--full" } else { "--quick" }.to_owned());
    anyhow::ensure!(suite(place, &words)?, "the torture suite failed; the failures are listed above");
    if let Err(error) = setup::for_translated_messages() {
        anyhow::ensure!(!skips::is_ci(), "the torture suite cannot run with translated messages: {error:#}");
        println!("skipped: the torture suite with translated messages: {error:#}");
        return Ok(());
    }
    words.extend(["--locale", setup::LOCALE].map(str::to_owned));
    if !full {
        words.extend(SHARE_TRANSLATED.iter().flat_map(|pattern| ["--only", pattern]).map(str::to_owned));
    }
    anyhow::ensure!(suite(place, &words)?, "the torture suite failed with translated messages");
    Ok(())
}

/// The cases that run in a second locale as well, without `--full`: those whose results depend on
/// messages, and some of each kind.
const SHARE_TRANSLATED: &[&str] = &["/error-", "/dies-", "/env-", "^A/shadow"];

/// Runs every n-th case of the quick suite through a cache. Returns the results as the suite's JSON.
pub(crate) fn results(place: &Place, cache: &str, program: &Path, every: u16) -> Result<Value> {
    let file = place.results()?.join(format!("torture-{cache}.json"));
    let mut words = ["--quick", "--every", &every.to_string(), "--cache", cache].map(str::to_owned).to_vec();
    for (option, path) in [("--bin", program), ("--json", &file)] {
        words.extend([option.to_owned(), path.display().to_string()]);
    }
    // It fails if a result is wrong, which the results say as well.
    if file.exists() {
        fs::remove_file(&file).with_context(|| format!("cannot remove {}", file.display()))?;
    }
    suite(place, &words)?;
    let text = fs::read_to_string(&file).with_context(|| format!("the suite did not write {}", file.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is not JSON", file.display()))
}

fn larder_words(place: &Place) -> Result<Vec<String>> {
    let larder = place.larder();
    let larder = larder.to_str().with_context(|| format!("{} is not UTF-8", larder.display()))?;
    Ok(vec!["--bin".to_owned(), larder.to_owned()])
}

/// Builds the suite and starts it directly, because it must not see cargo's variables.
fn suite(place: &Place, words: &[String]) -> Result<bool> {
    if let Err(error) = setup::for_torture() {
        eprintln!("{error:#}; cases that need missing tools are skipped");
    }
    let build = ["build", "--quiet", "--locked", "--package", "larder-torture"];
    run::shown_to_user(place.cargo().args(build)).context("cannot build the suite")?;
    let program = place.target.join("debug/larder-torture");
    let (status, _) = run::measured(std::process::Command::new(program).args(words))?;
    Ok(status.success())
}

fn wants_larder(words: &[String]) -> bool {
    let is = |word: &String, option: &&str| word == option || word.starts_with(&format!("{option}="));
    if words.iter().any(|word| WITHOUT_LARDER.iter().any(|option| is(word, option))) {
        return false;
    }
    let after = words.iter().position(|word| word == "--cache").and_then(|at| words.get(at + 1));
    let joined = words.iter().find_map(|word| word.strip_prefix("--cache="));
    after.map(String::as_str).or(joined).is_none_or(|cache| cache == "larder")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn larder_is_built_only_where_it_is_used() {
        let wants = |line: &str| wants_larder(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        assert!(wants("") && wants("--cache larder -v") && wants("--cache=larder"));
        assert!(!wants("--cache ccache") && !wants("--cache=none") && !wants("--bin /x/larder") && !wants("--list"));
    }
}
