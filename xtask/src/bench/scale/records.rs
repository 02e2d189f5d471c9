//! Measures one hit and one record in stores of 1,000 records and more, and in a store with many
//! records of the same compile.

use super::options::Bench;
use super::rows::Row;
use crate::bench::figure::Figure;
use crate::bench::inputs::Case;
use crate::bench::measure::{SETTLING, Series, Subject, interleaved};
use crate::bench::report::Report;
use crate::bench::subjects::Compile;
use crate::bench::{count, inputs};
use crate::binaries;
use crate::launcher::Launcher;
use crate::place::remove;
use crate::progress::Bar;
use crate::run::{self, Usage};
use anyhow::{Context, Result, ensure};
use larder_samples::quantile;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

/// The disk space of a manifest, a note and their directories, without the blob.
const KB_A_RECORD: u64 = 12;
const SMALL_BYTES: u64 = 6000;
const MB: u64 = 1_000_000;
/// Larger stores are sparse, because few disks have that much space.
const SPARSE_FROM_GB: u64 = 4;
/// The disk space that must stay free.
const SPARE_MB: u64 = 15_000;
/// The number of records that one process makes.
const STEP: u64 = 1000;
/// The upper limit for the instructions of a hit ÷ those in the first store.
const INSTRUCTIONS_GOAL: f64 = 1.05;
/// How often instructions and system calls are counted.
const COUNTS: usize = 3;
/// The number of records that are made and timed in each store in turn after it was filled, and the
/// number of rounds.
const TIMED: u64 = 100;
const TIMED_ROUNDS: u64 = 20;
/// The number of records that are kept for one fingerprint (`MANIFEST_ENTRIES_MAX` in
/// `crates/base/model`).
const HISTORY: usize = 32;
/// The header that changes between these records.
const CHANGING: &str = "include/core_include/h3.h";

/// A store to be made.
struct Wanted {
    name: String,
    records: u64,
    blob_bytes: u64,
    /// True if its blobs take less disk space than their size.
    sparse: bool,
}

/// A store that was made.
struct Filled {
    wanted: Wanted,
    store: PathBuf,
}

/// A command that does nothing and is recorded in each run.
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
    let all = bench.options.records.iter().map(|&records| Wanted::of_records(records));
    for wanted in all.chain(bench.options.gigabytes.iter().map(|&gigabytes| Wanted::of_gigabytes(gigabytes))) {
        match wanted.lacks(bench, &program)? {
            Some(reason) => {
                println!("{reason}");
                report.notes.push(reason);
            }
            None => stores.push(wanted.fill(bench, &program)?),
        }
    }
    let case = inputs::c(&bench.work)?;
    stores.push(history(bench, &case)?);
    thread::sleep(SETTLING);
    let launchers = stores.iter().map(|filled| Launcher::larder(&bench.larder, &filled.store));
    let launchers = launchers.collect::<Result<Vec<_>>>()?;
    let compile = |launcher| Compile { launcher, ..Compile::plain(&case, &bench.home) };
    let hits: Vec<Compile> = launchers.iter().map(|launcher| compile(launcher.clone())).collect();
    hits.iter().try_for_each(Compile::warm_up)?;
    let record = |launcher: &Launcher| Record {
        launcher: launcher.clone().with("LARDER_RECACHE", "1"),
        home: bench.home.clone(),
    };
    let records: Vec<Record> = launchers.iter().map(record).collect();
    // On the first run of a program, the kernel's observer judges it as well.
    for record in &records {
        for _ in 0..3 {
            run::measured(&mut record.command())?;
        }
    }
    thread::sleep(SETTLING);
    hits.iter().try_for_each(Compile::once)?;
    let counting = count::program(bench.place)?;
    let mut rows = |what: &str, subjects: Vec<&dyn Subject>, steps: bool| -> Result<()> {
        let all = interleaved(what, &subjects, bench.options.runs as usize)?;
        let mut first = None;
        for ((subject, series), filled) in subjects.iter().zip(&all).zip(&stores) {
            let instructions = || count::instructions(*subject, &counting, &bench.work).context("not counted");
            let instructions = if steps { least(instructions).ok() } else { None };
            let name = &filled.wanted.name;
            let row = Row {
                part: "records",
                what: format!("{what}, {name}"),
                series: series.clone(),
                base: all.first(),
                calls: Some(least(|| count::system_calls(*subject, &bench.work))?),
                instructions,
                figure: first.is_some(),
                ..Row::default()
            };
            row.add_to(report);
            let base = *first.get_or_insert(instructions);
            if let Some((found, base)) = instructions.zip(base).filter(|_| filled.wanted.name != stores[0].wanted.name)
            {
                let name = format!("records, {what}, {name}, instructions ÷ {}", stores[0].wanted.name);
                report.figures.push(Figure::count(name, found as f64 / base as f64, Some(INSTRUCTIONS_GOAL)));
            }
        }
        Ok(())
    };
    rows("one hit", hits.iter().map(|hit| hit as &dyn Subject).collect(), true)?;
    rows("one record", records.iter().map(|record| record as &dyn Subject).collect(), false)?;
    // Writing larger blobs would dominate the time.
    stores.retain(|filled| filled.wanted.blob_bytes == SMALL_BYTES);
    let mut all = vec![Series::default(); stores.len()];
    for round in 0..TIMED_ROUNDS {
        for (filled, series) in stores.iter().zip(&mut all) {
            let first = filled.wanted.records + round * TIMED;
            let cpu = filled.wanted.add(&program, &filled.store, first, TIMED)?;
            series.samples.push(Usage { wall: cpu, cpu });
        }
    }
    for (at, (filled, series)) in stores.iter().zip(&all).enumerate() {
        let what = format!("one record by the store's functions, {}", filled.wanted.name);
        let series = series.clone();
        Row { part: "records", what, series, base: all.first(), figure: at > 0, ..Row::default() }.add_to(report);
    }
    Ok(())
}

/// Returns a store of one compile as after a day of work: it has as many records as are kept, and
/// the newest one matches.
fn history(bench: &Bench, case: &Case) -> Result<Filled> {
    let store = bench.work.join("store/history");
    let launcher = Launcher::larder(&bench.larder, &store)?;
    let compile = Compile { launcher, ..Compile::plain(case, &bench.home) };
    let header = case.dir.join(CHANGING);
    let text = fs::read_to_string(&header).with_context(|| format!("cannot read {}", header.display()))?;
    for version in 1..=HISTORY {
        let changed = if version < HISTORY { format!("{text}// version {version}\n") } else { text.clone() };
        fs::write(&header, changed).with_context(|| format!("cannot write {}", header.display()))?;
        compile.once()?;
    }
    let name = format!("{HISTORY} records of it");
    Ok(Filled { wanted: Wanted { name, records: 0, blob_bytes: 0, sparse: false }, store })
}

/// Returns the least of several counts, because a run may find a file without a stamp.
fn least(count: impl Fn() -> Result<u64>) -> Result<u64> {
    (0..COUNTS).map(|_| count()).try_fold(u64::MAX, |least, counted| Ok(least.min(counted?)))
}

impl Wanted {
    fn of_records(records: u64) -> Self {
        Self { name: format!("{records} records"), records, blob_bytes: SMALL_BYTES, sparse: false }
    }

    fn of_gigabytes(gigabytes: u64) -> Self {
        let sparse = gigabytes > SPARSE_FROM_GB;
        Self { name: format!("{gigabytes} GB"), records: gigabytes * 1000, blob_bytes: MB, sparse }
    }

    fn needed_mb(&self) -> u64 {
        let blob_bytes = if self.sparse { SMALL_BYTES } else { self.blob_bytes };
        self.records * (KB_A_RECORD * 1000 + blob_bytes) / MB
    }

    /// Returns why this store cannot be made here: there is too little space, or the file system
    /// has no sparse files.
    fn lacks(&self, bench: &Bench, program: &Path) -> Result<Option<String>> {
        let dir = &bench.work;
        let tried = dir.join("store/tried");
        if let Err(error) = if self.sparse { self.add(program, &tried, 0, 1).map(drop) } else { Ok(()) } {
            println!("{error:#}");
            return Ok(Some(format!("Skipped: a store of {}: this file system has no sparse files.", self.name)));
        }
        remove(&tried)?;
        let stat = nix::sys::statvfs::statvfs(dir)
            .with_context(|| format!("cannot read the free space of {}", dir.display()))?;
        let free_mb = stat.blocks_available() * stat.fragment_size() / MB;
        let needed_mb = self.needed_mb();
        let is_enough = free_mb >= needed_mb + SPARE_MB;
        Ok((!is_enough).then(|| {
            format!(
                "Skipped: a store of {}: it needs {needed_mb} MB, {free_mb} MB are free, and {SPARE_MB} MB must stay \
                 free.",
                self.name
            )
        }))
    }

    /// Makes the store by the store's own functions.
    fn fill(self, bench: &Bench, program: &Path) -> Result<Filled> {
        let store = bench.work.join("store").join(self.name.replace(' ', "-"));
        let bar = Bar::new(&format!("a store of {}, {} MB", self.name, self.needed_mb()), self.records);
        let mut done = 0;
        while done < self.records {
            let step = (self.records - done).min(STEP);
            self.add(program, &store, done, step)?;
            done += step;
            bar.at(done);
        }
        bar.end(&format!("a store of {}", self.name));
        Ok(Filled { wanted: self, store })
    }

    /// Adds records. Returns the CPU time of one record, as the lower quartile of groups.
    fn add(&self, program: &Path, store: &Path, first: u64, records: u64) -> Result<Duration> {
        let numbers = [("--first", first), ("--records", records), ("--blob-bytes", self.blob_bytes)];
        let mut command = Command::new(program);
        command.arg("--store").arg(store);
        command.args(numbers.iter().flat_map(|(name, number)| [(*name).to_owned(), number.to_string()]));
        if self.sparse {
            command.arg("--sparse");
        }
        let text = run::output(&mut command)?;
        let json: serde_json::Value = serde_json::from_str(&text).with_context(|| format!("`fill` printed: {text}"))?;
        let groups_us: Vec<f64> =
            json["record_us"].as_array().into_iter().flatten().filter_map(serde_json::Value::as_f64).collect();
        ensure!(!groups_us.is_empty(), "`fill` printed no times");
        Ok(Duration::from_secs_f64(quantile(groups_us, 1, 4) / 1e6))
    }
}
