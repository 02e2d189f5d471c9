//! One hit and one record in stores of 1,000 records and more.

use super::Bench;
use super::rows::Row;
use crate::bench::measure::{SETTLING, Series, Subject, interleaved};
use crate::bench::report::Report;
use crate::bench::subjects::Compile;
use crate::bench::{count, inputs};
use crate::binaries;
use crate::launcher::Launcher;
use crate::progress::Bar;
use crate::run::{self, Usage};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

const KB_A_RECORD: u64 = 12;
const MB: u64 = 1_000_000;
/// Made in each store in turn, and timed, once they are as large as they are to be; and how often.
const TIMED: u64 = 100;
const TIMED_ROUNDS: u64 = 20;

/// A store and what it is called.
struct Filled {
    name: String,
    store: PathBuf,
    records: u64,
    blob_bytes: u64,
}

/// A command that does nothing, recorded anew each time.
struct Record {
    launcher: Launcher,
    home: PathBuf,
}

impl Subject for Record {
    fn name(&self) -> &str {
        "record"
    }

    fn command(&self) -> Command {
        let mut command = Command::new(self.launcher.program.as_deref().unwrap_or(Path::new("/bin/false")));
        self.launcher.apply(&mut command, &self.home);
        command.args(["run", "--", "/bin/true"]).current_dir(&self.home);
        command
    }

    fn prepare(&self) -> Result<()> {
        Ok(())
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }
}

pub(super) fn records(bench: &Bench, report: &mut Report) -> Result<()> {
    let program = binaries::bench(bench.place, "larder-fill", "fill", None)?;
    let mut stores = Vec::new();
    for &records in &bench.options.records {
        stores.push(filled(bench, &program, format!("{records} records"), records, 6000)?);
    }
    if let Some(gigabytes) = bench.options.gigabytes {
        stores.push(filled(bench, &program, format!("{gigabytes} GB"), gigabytes * 1000, MB)?);
    }
    let case = inputs::c(&bench.work)?;
    thread::sleep(SETTLING);
    let launchers = stores.iter().map(|filled| Launcher::larder(&bench.larder, &filled.store));
    let launchers = launchers.collect::<Result<Vec<_>>>()?;
    let compile =
        |launcher| Compile { case: &case, launcher, home: &bench.home, expected: &[], server: None, every: 1 };
    let hits: Vec<Compile> = launchers.iter().map(|launcher| compile(launcher.clone())).collect();
    hits.iter().try_for_each(Compile::warm_up)?;
    let record = |launcher: &Launcher| Record {
        launcher: launcher.clone().with("LARDER_RECACHE", "1"),
        home: bench.home.clone(),
    };
    let records: Vec<Record> = launchers.iter().map(record).collect();
    // The first run of a program is judged by the kernel's observer as well.
    for record in &records {
        for _ in 0..3 {
            run::measured(&mut record.command())?;
        }
    }
    thread::sleep(SETTLING);
    hits.iter().try_for_each(Compile::once)?;
    let stepping = count::stepping(bench.place)?;
    let mut rows = |what: &str, subjects: Vec<&dyn Subject>, steps: bool| -> Result<()> {
        let all = interleaved(what, &subjects, bench.options.runs as usize)?;
        for ((subject, series), filled) in subjects.iter().zip(&all).zip(&stores) {
            let instructions = || count::instructions(*subject, &stepping, &bench.work).context("not counted");
            let row = Row {
                part: "records",
                what: format!("{what}, {}", filled.name),
                series: series.clone(),
                base: all.first(),
                calls: Some(twice(|| count::system_calls(*subject, &bench.work))?),
                instructions: if steps { twice(instructions).ok() } else { None },
                ..Row::default()
            };
            row.add_to(report);
        }
        Ok(())
    };
    rows("one hit", hits.iter().map(|hit| hit as &dyn Subject).collect(), true)?;
    rows("one record", records.iter().map(|record| record as &dyn Subject).collect(), false)?;
    let mut all = vec![Series::default(); stores.len()];
    for round in 0..TIMED_ROUNDS {
        for (filled, series) in stores.iter().zip(&mut all) {
            let first = filled.records + round * TIMED;
            let cpu = fill(&program, &filled.store, first, TIMED, filled.blob_bytes)?;
            series.samples.push(Usage { wall: cpu, cpu });
        }
    }
    for (filled, series) in stores.iter().zip(&all) {
        let (what, series) = (format!("one record by the store's functions, {}", filled.name), series.clone());
        Row { part: "records", what, series, base: all.first(), ..Row::default() }.add_to(report);
    }
    Ok(())
}

/// The less of two counts: one may have come upon a file that had no stamp yet.
fn twice(count: impl Fn() -> Result<u64>) -> Result<u64> {
    Ok(count()?.min(count()?))
}

/// A store with so many records, made by the store's own functions.
fn filled(bench: &Bench, program: &Path, name: String, records: u64, blob_bytes: u64) -> Result<Filled> {
    let store = bench.work.join("store").join(name.replace(' ', "-"));
    let needed_mb = records * (KB_A_RECORD * 1000 + blob_bytes) / MB;
    let bar = Bar::new(&format!("a store of {name}, {needed_mb} MB"), records);
    let mut done = 0;
    while done < records {
        let step = (records - done).min(1000);
        fill(program, &store, done, step, blob_bytes)?;
        done += step;
        bar.at(done);
    }
    bar.end(&format!("a store of {name}"));
    Ok(Filled { name, store, records, blob_bytes })
}

/// CPU time of a record, the lower quartile of groups.
fn fill(program: &Path, store: &Path, first: u64, records: u64, blob_bytes: u64) -> Result<Duration> {
    let numbers = [("--first", first), ("--records", records), ("--blob-bytes", blob_bytes)];
    let mut command = Command::new(program);
    command.arg("--store").arg(store);
    command.args(numbers.iter().flat_map(|(name, number)| [(*name).to_owned(), number.to_string()]));
    let text = run::output(&mut command)?;
    let micros: f64 = text.trim().rsplit('\t').next().and_then(|last| last.parse().ok()).context("no time is said")?;
    Ok(Duration::from_secs_f64(micros / 1e6))
}

/// For the eviction part: a store of its own.
pub(super) fn store(bench: &Bench, records: u64) -> Result<PathBuf> {
    let program = binaries::bench(bench.place, "larder-fill", "fill", None)?;
    let filled = filled(bench, &program, format!("{records} records to evict"), records, 6000)?;
    Ok(filled.store)
}
