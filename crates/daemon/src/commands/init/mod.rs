//! `larder init`: puts larder in front of the build tools that are used in the working directory.
//!
//! It recognises them by their files, shows all changes as a diff, asks once, and applies them. The
//! journal has what was changed, so that `--undo` can take it back.
//!
//! | file | holds |
//! |---|---|
//! | `projects.rs` | what each build tool needs |
//! | `compilers.rs` | links with compilers' names, and the shell's profile |
//! | `plan.rs` | the changes to be made |
//! | `change.rs` | one change: shown, applied, taken back |
//! | `journal.rs` | what was changed, for which directory |
//! | `json_text.rs` | insertions into JSON text |

mod change;
mod compilers;
mod journal;
mod json_text;
mod plan;
mod projects;

use std::io::{IsTerminal, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use self::change::{Change, Undone};
use self::journal::Journal;
use self::plan::{Places, Plan};
use super::{FINE, PROBLEM};
use crate::cli::{BuildTool, Init};
use crate::say;
use crate::surroundings::Surroundings;

/// Plans, shows, asks and applies, or takes back.
pub(crate) fn run(around: &Surroundings, options: &Init, out: &mut dyn Write) -> Result<u8> {
    let places = Places::new(around)?;
    let mut journal = Journal::read(&places.state)?;
    if options.undo {
        return undo(&places, &mut journal, out);
    }
    let tools = tools(&places.cwd, &options.tools, out)?;
    let mut plan = Plan::new(&journal);
    let shows = match tools[..] {
        [BuildTool::Npm] => "the second run prints `exact: …` and installs nothing",
        [BuildTool::Bazel] => {
            "hits come from the second `bazel clean` and build on; a sandbox cannot write, so `larder stats` counts only \
             its misses, which stay the same"
        }
        _ => "`larder stats` shows hits from the second build on",
    };
    for tool in tools {
        let name = tool.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
        projects::plan(tool, options.user, around, &places, &mut plan).with_context(|| format!("init: {name}"))?;
    }
    show(&places, &plan, out)?;
    let Plan { changes, shared, next, needs_daemon, is_blocked, .. } = plan;
    if options.print {
        return Ok(FINE);
    }
    if changes.is_empty() {
        let why = if is_blocked { "see the note above" } else { "everything is in place" };
        writeln!(out, "nothing to change: {why}")?;
    } else if !options.yes && !is_agreed(out)? {
        writeln!(out, "nothing was changed")?;
        return Ok(PROBLEM);
    }
    apply(&places, &mut journal, &changes, shared)?;
    for change in changes.iter().filter(|change| matches!(change, Change::Text { .. })) {
        writeln!(out, "changed: {}", places.shown(change.path()))?;
    }
    if needs_daemon {
        super::daemon::begin(around, &around.store()?)?;
    }
    for line in next {
        writeln!(out, "next: {line}")?;
    }
    if !changes.is_empty() {
        writeln!(out, "next: {shows}; `larder init --undo` takes this back")?;
    }
    Ok(FINE)
}

/// Returns the tools to set up: those that were named, or those that are found. Prints the latter.
fn tools(cwd: &Path, named: &[BuildTool], out: &mut dyn Write) -> Result<Vec<BuildTool>> {
    if !named.is_empty() {
        let mut named = named.to_vec();
        named.sort();
        named.dedup();
        return Ok(named);
    }
    let mut found = Vec::new();
    for tool in BuildTool::value_variants() {
        let sign = projects::signs(*tool).iter().find(|sign| cwd.join(sign).exists());
        if let (Some(sign), Some(value)) = (sign, tool.to_possible_value()) {
            writeln!(out, "found: {}, by {sign}", value.get_name())?;
            found.push(*tool);
        }
    }
    if found.is_empty() {
        let signs: Vec<&str> = BuildTool::value_variants().iter().map(|tool| projects::signs(*tool)[0]).collect();
        bail!(
            "init: {} has no {} and so on: change to the top of a project, or name a tool, as in `larder init make`",
            cwd.display(),
            signs.join(", ")
        );
    }
    Ok(found)
}

/// Prints the changes as a diff, and the notes.
fn show(places: &Places, plan: &Plan, out: &mut dyn Write) -> Result<()> {
    for diff in plan.changes.iter().filter_map(Change::diff) {
        write!(out, "\n{}", say::printable(&diff))?;
    }
    let links = plan.changes.iter().filter_map(|change| match change {
        Change::Link { path, .. } => path.file_name().and_then(|name| name.to_str()),
        Change::Text { .. } | Change::Directory { .. } => None,
    });
    let links: Vec<&str> = links.collect();
    if !links.is_empty() {
        let (directory, larder) = (places.shown(&places.links()), places.larder.display());
        writeln!(out, "\nlinks in {directory} to {larder}: {}", links.join(" "))?;
    }
    if !plan.changes.is_empty() || !plan.notes.is_empty() {
        writeln!(out)?;
    }
    for note in &plan.notes {
        writeln!(out, "note: {}", say::one_line(note))?;
    }
    Ok(())
}

/// Asks once. Fails if there is no terminal to ask on.
fn is_agreed(out: &mut dyn Write) -> Result<bool> {
    if !std::io::stdin().is_terminal() {
        out.flush()?;
        bail!("init: nothing was changed, because standard input is not a terminal to ask on: add --yes, or --print");
    }
    write!(out, "Apply these changes? [y/N] ")?;
    out.flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

/// Applies all changes, or none: if one fails, those before it are taken back. The journal is
/// written first, so that nothing is changed without being listed.
fn apply(places: &Places, journal: &mut Journal, changes: &[Change], shared: Vec<Change>) -> Result<()> {
    let mut all = journal.of(&places.cwd).to_vec();
    let known = all.clone();
    all.extend(shared.into_iter().chain(changes.iter().cloned()).filter(|change| !known.contains(change)));
    if all == known {
        return Ok(());
    }
    journal.set(&places.cwd, all)?;
    for (number, change) in changes.iter().enumerate() {
        let Err(error) = change.apply() else { continue };
        for done in changes[..number].iter().rev() {
            // What cannot be taken back stays in place, which is said by the error's second part.
            if let Ok(Undone::Kept(why)) = done.take_back() {
                say::tell(&format!("init: {} stays changed: {why}", done.path().display()));
            }
        }
        journal.set(&places.cwd, known)?;
        return Err(error.context("init: nothing was changed"));
    }
    Ok(())
}

/// Takes back what was changed for this directory, the last change first.
fn undo(places: &Places, journal: &mut Journal, out: &mut dyn Write) -> Result<u8> {
    let changes = journal.of(&places.cwd).to_vec();
    if changes.is_empty() {
        let elsewhere: Vec<String> = journal.directories().map(|path| path.display().to_string()).collect();
        let elsewhere = if elsewhere.is_empty() { "nothing elsewhere".to_owned() } else { elsewhere.join(", ") };
        bail!("init: nothing to undo for {}: larder init changed {elsewhere}", places.cwd.display());
    }
    let mut kept = Vec::new();
    for change in changes.iter().rev() {
        let shown = places.shown(change.path());
        let is_listed = matches!(change, Change::Text { .. });
        if let Some(other) = journal.shared(change, &places.cwd) {
            if is_listed {
                writeln!(out, "kept: {shown}, because {} needs it as well", other.display())?;
            }
            continue;
        }
        match change.take_back().context("init: --undo stopped: correct this, then repeat it")? {
            Undone::Done if is_listed => writeln!(out, "restored: {shown}")?,
            Undone::Kept(why) if !matches!(change, Change::Directory { .. }) => {
                say::tell(&format!("init: {shown} is not restored: {why}"));
                kept.push(change.clone());
            }
            Undone::Done | Undone::AlreadyGone | Undone::Kept(_) => {}
        }
    }
    let is_done = kept.is_empty();
    kept.reverse();
    journal.set(&places.cwd, kept)?;
    if is_done {
        writeln!(out, "larder is switched off for {}", places.cwd.display())?;
    }
    Ok(if is_done { FINE } else { PROBLEM })
}
