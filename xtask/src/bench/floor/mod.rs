//! The floor of a hit: a program that makes the looks and the outputs of larder's own hit and does nothing else.
//!
//! `trace` reads what larder did, `plan` writes it down for the program in `benches/floor`. That the program then did
//! as much is compared, look by look and byte by byte, and larder's own account of the hit is compared with what its
//! trace shows.

mod plan;
mod trace;

use super::inputs::OUTPUTS;
use super::measure::{Subject, behind};
use super::subjects::Compile;
use crate::launcher::Launcher;
use crate::place::Place;
use crate::{binaries, run, setup};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use trace::{Call, Work};

/// The floor of one case, ready to run.
pub(crate) struct Floor<'a> {
    program: &'a Path,
    hit: &'a Compile<'a>,
    plan: PathBuf,
    /// What it does, for the report's notes.
    pub(crate) note: String,
}

/// The system calls that say what a hit looked at, took from its store, and left.
const TRACED: &str =
    "trace=open,openat,openat2,creat,statx,readlinkat,read,write,copy_file_range,sendfile,fallocate,ioctl,close";

/// Builds the program as the wrapper is built.
pub(crate) fn program(place: &Place) -> Result<PathBuf> {
    binaries::bench(place, "larder-floor", "floor", Some(setup::STATIC_TARGET))
}

impl<'a> Floor<'a> {
    /// Writes the plan of what `hit`, a warm one, does, into `scratch`. Blobs that it copies are copied to there as
    /// well.
    pub(crate) fn of(program: &'a Path, hit: &'a Compile<'a>, scratch: &Path) -> Result<Self> {
        fs::create_dir_all(scratch).with_context(|| format!("cannot make {}", scratch.display()))?;
        let before = hit.hits()?;
        let calls = traced(hit, scratch)?;
        ensure!(hit.hits()? != before, "larder does not hit under strace");
        let store = hit.launcher.store().context("larder has a store")?;
        let outputs: Vec<PathBuf> = OUTPUTS.iter().map(|name| hit.case.dir.join(name)).collect();
        let steps = trace::steps(&calls, &store, &outputs)?;
        let written = plan::write(&steps, &hit.case.dir, scratch)?;
        let work = Work::of(&steps);
        agrees_with_larder(hit, &work)?;
        let note = format!(
            "{}: {work}; a record of {} bytes, the floor's of {}",
            hit.case.name, steps.record_bytes, written.bytes
        );
        let floor = Self { program, hit, plan: written.path, note };
        floor.does(&work, &outputs, scratch)?;
        Ok(floor)
    }

    /// Whether the program does as much as the hit.
    fn does(&self, expected: &Work, outputs: &[PathBuf], scratch: &Path) -> Result<()> {
        let calls = traced(self, scratch)?;
        let found = Work::of(&trace::steps(&calls, scratch, outputs)?);
        ensure!(found == *expected, "the floor does not do what larder does: {found}; larder: {expected}");
        self.check()
    }
}

impl Subject for Floor<'_> {
    fn name(&self) -> &str {
        "floor"
    }

    fn command(&self) -> Command {
        let mut command = Command::new(self.program);
        Launcher::plain().apply(&mut command, self.hit.home);
        command.arg(&self.plan).current_dir(&self.hit.case.dir);
        command
    }

    fn prepare(&self) -> Result<()> {
        self.hit.prepare()
    }

    fn check(&self) -> Result<()> {
        self.hit.check()
    }
}

fn traced(subject: &dyn Subject, scratch: &Path) -> Result<Vec<Call>> {
    subject.prepare()?;
    let log = scratch.join("trace.txt");
    let words = ["-f", "-q", "-s", "8", "-e", TRACED, "-o"].map(OsStr::new);
    let words: Vec<&OsStr> = words.into_iter().chain([log.as_os_str()]).collect();
    let mut command = behind("strace".as_ref(), &words, subject);
    let status = command.status().context("cannot start strace")?;
    ensure!(status.success(), "strace could not run {}: it ended with {status}", subject.name());
    trace::calls(&fs::read_to_string(&log).with_context(|| format!("cannot read {}", log.display()))?)
}

/// What `larder explain` says that a hit checks is what the trace shows.
fn agrees_with_larder(hit: &Compile<'_>, work: &Work) -> Result<()> {
    let command = hit.command();
    let words: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
    let mut explain = Command::new(command.get_program());
    explain.args(["explain", "--json", "--"]).args(words).current_dir(&hit.case.dir);
    hit.launcher.apply(&mut explain, hit.home);
    hit.prepare()?;
    let text = run::output(&mut explain).with_context(|| format!("cannot explain {}", run::shown(&command)))?;
    let said: Value = serde_json::from_str(&text).context("`larder explain --json` prints no JSON")?;
    let number = |group: &str, name: &str| {
        said[group][name].as_u64().with_context(|| format!("`larder explain --json` has no integer {group}.{name}"))
    };
    let claimed = [
        ("directories", number("relies_on", "in_directories")?, work.directories),
        ("files", number("relies_on", "files")?, work.files),
        ("links", number("relies_on", "links")?, work.links),
        ("names looked for that are missing", number("effort", "absences_looked")?, work.missing),
    ];
    for (what, claimed, seen) in claimed {
        ensure!(claimed == seen, "larder explains {claimed} {what}, and its trace shows {seen}");
    }
    Ok(())
}
