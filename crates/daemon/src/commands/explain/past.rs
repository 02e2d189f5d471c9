//! `larder explain --last` and `larder explain FILE.o`: why a command that has ended was a hit or
//! not. The command need not be typed again, because the store keeps the most recent ones.
//!
//! Unaware of: what would happen now.

use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use jiff::{SignedDuration, Timestamp};
use larder_lookup::find;
use larder_model::{Manifest, Outcome, Roots};
use larder_store::{Counters, FoundCommand, Recent, Store, Wanted};
use serde_json::json;

use super::{facts, sentence};
use crate::cli::Explain;
use crate::commands::advice::advice;
use crate::commands::{FINE, print_json};
use crate::say;
use crate::surroundings::{Surroundings, nobody};

/// Explains the last command in this directory, or the one that made the file that is the only
/// argument. Returns `None` if a command is to be explained.
pub(super) fn run(around: &Surroundings, options: &Explain, out: &mut dyn Write) -> Result<Option<u8>> {
    let cwd = around.cwd()?;
    let file = match options.command.as_slice() {
        [file] if !options.last => Some(Path::new(file)),
        _ if !options.last => return Ok(None),
        _ => None,
    };
    let store = around.store()?;
    let Some(file) = file else {
        let Some(found) = Counters::recent(&store, Wanted::In(cwd.as_os_str().as_bytes())) else {
            bail!(
                "explain: larder knows no command that ran in {}: run one through larder, or give the command",
                cwd.display()
            );
        };
        return show(&store, &found, options, out).map(Some);
    };
    let path = cwd.join(file);
    let known = |path: &Path| Counters::recent(&store, Wanted::Output(path.as_os_str().as_bytes()));
    match known(&path).or_else(|| known(&without_links(&path)?)) {
        Some(found) => show(&store, &found, options, out).map(Some),
        None if is_command(around, file) || !path.exists() => Ok(None),
        None => bail!(
            "explain: larder knows no command that wrote {}: it ran without larder, more than 4096 commands ago, or wrote \
             several files: give the command, as in `larder explain gcc -c x.c`",
            path.display()
        ),
    }
}

/// Returns the path with the links of its directory resolved, because a command may have run below
/// another name of the directory.
fn without_links(path: &Path) -> Option<PathBuf> {
    Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?))
}

fn is_command(around: &Surroundings, word: &Path) -> bool {
    find(word.as_os_str().as_bytes(), around.variable(b"PATH"), &nobody(), false).is_some()
}

fn show(store: &Store, found: &FoundCommand, options: &Explain, out: &mut dyn Write) -> Result<u8> {
    let recent = found.recent();
    let (source, cause) = (say::clean(recent.source), say::clean(recent.cause));
    let summary = sentence::of_outcome(recent.outcome, &cause, &source, recent.run_time_us);
    let unrecorded = match recent.outcome {
        Outcome::Miss(why) => why,
        Outcome::Hit | Outcome::Bypass(_) | Outcome::Fallback(_) => None,
    };
    if options.json {
        let object = json!({
            "outcome": kind(recent.outcome), "summary": summary, "source": source, "cause": cause,
            "run_time_us": recent.run_time_us, "at_ns": recent.at_ns, "fingerprint": recent.weak.map(|weak| weak.hex()),
            "unrecorded": unrecorded.map(|why| why.code()),
        });
        print_json(&object, out)?;
        return Ok(FINE);
    }
    writeln!(out, "{summary}")?;
    let mut line = |name: &str, text: &str| writeln!(out, "  {name:<12} {text}");
    if let Some(why) = unrecorded {
        line("not recorded", &format!("{} ({})", why.sentence(), why.code()))?;
    }
    let code = match recent.outcome {
        Outcome::Bypass(why) => Some(why.code()),
        Outcome::Fallback(why) => Some(why.code()),
        Outcome::Hit | Outcome::Miss(_) => unrecorded.map(|why| why.code()),
    };
    if let Some(code) = code {
        line("what to do", advice(code))?;
    }
    line("source", &source)?;
    line("when", &when(&recent, Timestamp::now()))?;
    if options.verbose
        && let Some(weak) = recent.weak
    {
        line("fingerprint", &format!("{} (weak)", weak.hex()))?;
        let file = store.read_manifest(&weak, false).ok().flatten();
        let manifest = file.as_ref().and_then(|file| Manifest::decode(&file.bytes).ok());
        let entry = manifest.as_ref().and_then(|manifest| manifest.entries.first()?.open().ok());
        for fact in entry.map(|(set, _)| facts::lines(&set, &Roots::default())).unwrap_or_default() {
            writeln!(out, "    {fact}")?;
        }
    }
    Ok(FINE)
}

fn kind(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Hit => "hit",
        Outcome::Miss(_) => "miss",
        Outcome::Bypass(_) => "bypass",
        Outcome::Fallback(_) => "fallback",
    }
}

/// Returns how long ago it was, and for a miss how long the tool ran.
fn when(recent: &Recent, now: Timestamp) -> String {
    let then = Timestamp::UNIX_EPOCH + SignedDuration::from_nanos(recent.at_ns);
    let ago_us = now.duration_since(then).as_micros().max(0);
    let ago = say::span_us(i64::try_from(ago_us).unwrap_or(i64::MAX));
    match recent.outcome {
        Outcome::Miss(_) => format!("{ago} ago; the tool ran for {}", say::duration_us(recent.run_time_us)),
        Outcome::Hit | Outcome::Bypass(_) | Outcome::Fallback(_) => format!("{ago} ago"),
    }
}
