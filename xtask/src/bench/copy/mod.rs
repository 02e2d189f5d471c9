//! `cargo xtask bench copy`: what it costs to put a file in place, by every way, size and file system, and what buffers
//! cost for hashing, compressing and decompressing.
//!
//! The program in `benches/copy` knows the ways and measures them; `mounts` makes the file systems, `buffers` asks for
//! what is not copying, `rows` makes the tables.

mod buffers;
mod mounts;
mod rows;

use super::report::{Figure, Report};
use crate::place::{Place, fresh};
use crate::progress::Bar;
use crate::{binaries, run, setup};
use anyhow::{Context, Result, ensure};
use mounts::Spot;
use rows::{Cost, Did};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What `cargo xtask bench copy` takes.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// How often each way is run with files of up to 1 MB; with larger ones a fifth as often
    #[arg(long, default_value_t = 45, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Only these places, by their names in the table
    #[arg(long, value_name = "PLACE")]
    only: Vec<String>,
    /// Buffers alone
    #[arg(long)]
    buffers: bool,
}

/// Files of these sizes: a small object, an ordinary one, one of C++ with much in it, a program.
const SIZES_BYTES: &[usize] = &[5_000, 50_000, 1_000_000, 20_000_000];
/// From here on a way is run less often: it takes milliseconds.
const LARGE_BYTES: usize = 10_000_000;
const LARGE_EVERY: u32 = 5;
/// What larder's way is divided by.
const BASE: &str = "copy_file_range";
/// All places are gone through so often, so that what disturbs for a while disturbs more than one.
const PASSES: u32 = 3;

/// Measures everywhere: all ways, and the cheapest beside larder's.
pub(crate) fn copy(place: &Place, options: &Options) -> Result<Vec<Report>> {
    setup::for_bench_copy(place)?;
    let program = binaries::bench(place, "larder-copy", "copy", None)?;
    let scratch = place.own("bench-copy")?;
    fresh(&scratch)?;
    let (mut spots, skipped) = mounts::spots(&scratch)?;
    let names = spots.iter().map(|spot| spot.name.as_str()).collect::<Vec<_>>().join(", ");
    let unknown = options.only.iter().find(|only| spots.iter().all(|spot| spot.name != **only));
    ensure!(unknown.is_none(), "no place has the name {}; there are: {names}", unknown.map_or("", String::as_str));
    spots.retain(|spot| options.only.is_empty() || options.only.contains(&spot.name));
    skipped.iter().for_each(|reason| println!("skipped: {reason}"));
    let sample = sample()?;
    let by_buffers = buffers::report(&program, &spots, &sample, options.runs)?;
    if options.buffers {
        return Ok(vec![by_buffers]);
    }
    let mut costs = Vec::new();
    let bar = Bar::new("copy", u64::from(PASSES) * spots.len() as u64);
    for pass in 0..PASSES {
        for (number, spot) in spots.iter().enumerate() {
            for large in [false, true] {
                let runs = if large { options.runs.div_ceil(LARGE_EVERY) } else { options.runs };
                let text = measured(&program, spot, &sample, large, (runs.div_ceil(PASSES), pass))?;
                rows::add(&mut costs, &spot.name, &text)?;
            }
            bar.at(u64::from(pass) * spots.len() as u64 + number as u64 + 1);
        }
    }
    bar.end(&format!("copy: {} places", spots.len()));
    let did = spots.iter().map(|spot| done_by_larder(&program, spot, &sample, &scratch)).collect::<Result<Vec<_>>>()?;
    Ok(reports(&costs, &did.concat(), &skipped).into_iter().chain([by_buffers]).collect())
}

fn measured(program: &Path, spot: &Spot, sample: &Path, large: bool, (rounds, pass): (u32, u32)) -> Result<String> {
    let sizes = SIZES_BYTES.iter().filter(|&&bytes| (bytes >= LARGE_BYTES) == large);
    let sizes: Vec<String> = sizes.map(ToString::to_string).collect();
    let mut command = Command::new(program);
    command.args(["measure", "--sizes", &sizes.join(","), "--rounds", &rounds.to_string(), "--sample"]).arg(sample);
    command.args(["--seed", &(pass + 1).to_string()]);
    command.arg("--from").arg(&spot.from).arg("--to").arg(&spot.to);
    run::output(&mut command).with_context(|| format!("in {}", spot.name))
}

/// A large program: bytes as compilers make them.
fn sample() -> Result<PathBuf> {
    let text = run::output(Command::new("gcc").arg("-print-prog-name=cc1"))?;
    Ok(PathBuf::from(text.trim()))
}

/// The system calls by which larder puts a file of each size in place there.
fn done_by_larder(program: &Path, spot: &Spot, sample: &Path, scratch: &Path) -> Result<Vec<Did>> {
    let bytes = fs::read(sample).with_context(|| format!("cannot read {}", sample.display()))?;
    let (from, to, log) = (spot.from.join("stored"), spot.to.join("made"), scratch.join("strace.txt"));
    let one = |&size_bytes: &usize| {
        fs::write(&from, &bytes[..size_bytes]).with_context(|| format!("cannot write {}", from.display()))?;
        let mut command = Command::new("strace");
        command.args(["-q", "-s", "0", "-e", "trace=ioctl,copy_file_range,sendfile,splice,read,write", "-o"]).arg(&log);
        run::output(command.arg(program).arg("once").arg(&from).arg(&to))?;
        fs::remove_file(&to)?;
        let calls = rows::movers(&fs::read_to_string(&log)?);
        Ok(Did { place: spot.name.clone(), size_bytes, calls })
    };
    SIZES_BYTES.iter().map(one).collect()
}

fn reports(costs: &[Cost], did: &[Did], skipped: &[String]) -> Vec<Report> {
    let mut notes = vec![
        "In each cell: CPU time of the median run, of the lower quartile, and wall time of the median run, in µs, of \
         opening \
         the stored file, making the new one, filling it and closing both; replaced: of unlinking the one that is \
         there as \
         well. What the kernel does later or in its own threads is not in it. The stored file is in memory and on \
         disk, the \
         buffers are as new as in a process just started, ways are run in turn, in another order each round. A → B: \
         stored in A, put in place in B."
            .to_owned(),
        "larder: its own function, `copy_bytes` in `crates/sys/src/linux/copy.rs`.".to_owned(),
    ];
    notes.extend(skipped.iter().map(|reason| format!("skipped: {reason}")));
    let all = Report {
        name: "copy",
        title: "Putting a file in place".to_owned(),
        notes,
        table: rows::all(costs, SIZES_BYTES, "destination"),
        rows: costs.iter().map(Cost::json).collect(),
        ..Report::default()
    };
    let (table, rows) = rows::best(costs, did, SIZES_BYTES);
    let notes = vec![
        "CPU µs, medians, where nothing is at the destination. The cheapest of some thirty ways is partly luck: what \
         is within \
         a tenth of it is as good."
            .to_owned(),
        "larder does: the calls that moved its bytes, by strace. copy_file_range shares them by itself where the file \
         system \
         can."
            .to_owned(),
    ];
    let best = Report {
        name: "copy-best",
        title: "The cheapest way to put a file in place, and larder's".to_owned(),
        notes,
        table,
        figures: figures(costs),
        rows,
    };
    vec![all, best]
}

/// larder's function ÷ the one system call that it makes where nothing better is known: the cheapest of thirty is
/// partly luck.
fn figures(costs: &[Cost]) -> Vec<Figure> {
    let larders = costs.iter().filter(|cost| cost.is_fresh() && cost.way() == rows::LARDER);
    let figure = |larder: &Cost| {
        let base = costs.iter().find(|cost| cost.is_fresh() && cost.is_beside(larder) && cost.way() == BASE)?;
        let name = format!("{}, {}, CPU ÷ {BASE}", larder.spot(), rows::shown(larder.size_bytes()));
        Figure::ratio(name, &larder.cpu_s(), &base.cpu_s(), None)
    };
    larders.filter_map(figure).collect()
}
