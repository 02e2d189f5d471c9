//! `larder record`: records a build, and lists, shows and exports records. The format of records is
//! in `larder_record`.
//!
//! `begin` makes a session from the options, `place` finds records, `progress` shows the progress,
//! and `show` prints a record.

mod begin;
pub(super) mod duration;
pub(super) mod place;
mod progress;
mod show;

use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};
use larder_record::{Record, RecordError, Recorded, export};

use super::{FINE, PROBLEM};
use crate::cli::{Form, RecordExport, RecordOptions, RecordWord, Records};
use crate::say;
use crate::surroundings::Surroundings;

/// The exit code of shells for a command that is not found.
const NOT_FOUND: u8 = 127;

/// Records a build, or runs a subcommand on existing records.
pub(crate) fn run(around: &Surroundings, typed: Records, out: &mut dyn Write) -> Result<u8> {
    match typed.word {
        None => record(around, &typed.options),
        Some(RecordWord::List) => show::list(&place::records(around)?, out),
        Some(RecordWord::Show(options)) => show::show(&place::open(around, &options.record)?, options.json, out),
        Some(RecordWord::Export(options)) => export(around, &options, out),
    }
}

fn record(around: &Surroundings, options: &RecordOptions) -> Result<u8> {
    if options.command.is_empty() && options.ab_commands.is_none() {
        bail!("record: the command is missing: write it after two dashes, as in `larder record -- make -j8`");
    }
    let records = match &options.dir {
        Some(dir) => std::path::absolute(dir)?,
        None => place::records(around)?,
    };
    let session = match begin::session(around, options, &records) {
        Err(error) if error.is::<begin::NotFound>() => {
            say::ended(Err(error));
            return Ok(NOT_FOUND);
        }
        session => session?,
    };
    let mut progress = progress::Progress::new(session.output, session.runs);
    let recorded = larder_record::record(&session, &mut progress);
    progress.finish();
    let recorded = recorded?;
    // The exit code is the command's, no matter what happens to the records.
    for path in &recorded.paths {
        if let Err(error) = finished(path, options.pack) {
            say::ended(Err(error));
        }
    }
    if let Some(problem) = &recorded.problem {
        say::tell(&say::one_line(&format!("the record is incomplete: {problem}")));
        if recorded.exit_code == 0 && !matches!(problem, RecordError::Io { .. }) {
            return Ok(PROBLEM);
        }
    }
    if let [a, b] = &recorded.paths[..] {
        // In the default directory, records are found by their name alone.
        let called = |path: &Path| match (&options.dir, path.file_name()) {
            (None, Some(name)) => name.to_string_lossy().into_owned(),
            _ => path.display().to_string(),
        };
        say::tell(&say::one_line(&format!("`larder compare {} {}` compares the two", called(a), called(b))));
    }
    if recorded.left_out > 0 {
        say::tell(&format!("{} were left out", say::count(recorded.left_out as u64, "run", "runs")));
    }
    Ok(exit_code(&recorded))
}

/// Returns the exit code of the command, as a shell passes it on.
fn exit_code(recorded: &Recorded) -> u8 {
    u8::try_from(recorded.exit_code).unwrap_or(u8::MAX)
}

/// Packs the record if requested, and prints what was recorded.
fn finished(path: &Path, packed: bool) -> Result<()> {
    let record = Record::open(path)?;
    let line = show::line(&record);
    let kept = if packed {
        let file = place::packed_beside(path);
        larder_record::pack(path, &file)?;
        larder_sys::remove_tree(path).with_context(|| path.display().to_string())?;
        file
    } else {
        path.to_owned()
    };
    say::tell(&format!("{line}: {}", say::one_line(&kept.display().to_string())));
    show::unlike_runs(&record).into_iter().for_each(|unlike| say::tell(&format!("{}: {unlike}", record.header.name)));
    Ok(())
}

fn export(around: &Surroundings, options: &RecordExport, out: &mut dyn Write) -> Result<u8> {
    let path = place::find(around, &options.record)?;
    if options.form == Form::Archive {
        let Some(to) = &options.output else { bail!("record export: an archive needs a file: add -o FILE.tar.zst") };
        if path.is_file() {
            std::fs::copy(&path, to).with_context(|| to.display().to_string())?;
        } else {
            larder_record::pack(&path, to)?;
        }
        return Ok(FINE);
    }
    let record = Record::open(&path)?;
    let of_run = || record.explaining().context("the record has no run");
    let bytes = match options.form {
        Form::Perfetto => export::perfetto(of_run()?),
        Form::Chrome => export::chrome(of_run()?).to_string().into_bytes(),
        Form::Markdown => export::markdown(&record).into_bytes(),
        Form::Json | Form::Archive => format!("{:#}\n", export::json(&record)).into_bytes(),
    };
    match &options.output {
        Some(to) => {
            File::create(to).and_then(|mut file| file.write_all(&bytes)).with_context(|| to.display().to_string())?
        }
        None if options.form == Form::Perfetto && std::io::stdout().is_terminal() => {
            bail!("record export: this format is binary and not for a terminal: add -o FILE")
        }
        None => out.write_all(&bytes)?,
    }
    Ok(FINE)
}
