//! What buffers cost that are not for copying: for hashing, for hashing what is written on, for compressing and for
//! decompressing.

use super::mounts::Spot;
use super::rows::{self, Cost};
use super::{LARGE_BYTES, LARGE_EVERY, PASSES, SIZES_BYTES};
use crate::bench::report::{Figure, Report};
use crate::progress::Bar;
use crate::run;
use anyhow::{Context, Result};
use std::path::Path;
use std::process::Command;

/// Where bytes are read from matters to these.
const EVERYWHERE: &str = "hash,keep";
/// And to these nothing but the processor.
const ONCE: &str = "compress,decompress";
/// What larder's way to hash is divided by.
const BASE: &str = "read 64 KB";

/// Measures in every place of which files are read and written.
pub(super) fn report(program: &Path, spots: &[Spot], sample: &Path, runs: u32) -> Result<Report> {
    let places: Vec<&Spot> = spots.iter().filter(|spot| spot.is_one()).collect();
    let mut costs = Vec::new();
    let bar = Bar::new("buffers", u64::from(PASSES) * places.len() as u64);
    for pass in 0..PASSES {
        for (at, spot) in places.iter().enumerate() {
            for tasks in if at == 0 { &[EVERYWHERE, ONCE][..] } else { &[EVERYWHERE] } {
                let text = measured(program, spot, sample, tasks, (runs, pass))?;
                rows::add(&mut costs, &spot.name, &text)?;
            }
            bar.at(u64::from(pass) * places.len() as u64 + at as u64 + 1);
        }
    }
    bar.end(&format!("buffers: {} places", places.len()));
    Ok(Report {
        name: "copy-buffers",
        title: "Buffers for hashing, compressing and decompressing".to_owned(),
        notes: notes(),
        table: rows::all(&costs, SIZES_BYTES, "task"),
        figures: figures(&costs),
        rows: costs.iter().map(Cost::json).collect(),
    })
}

fn measured(program: &Path, spot: &Spot, sample: &Path, tasks: &str, (runs, pass): (u32, u32)) -> Result<String> {
    let mut text = String::new();
    for large in [false, true] {
        let sizes = SIZES_BYTES.iter().filter(|&&bytes| (bytes >= LARGE_BYTES) == large);
        let sizes: Vec<String> = sizes.map(ToString::to_string).collect();
        let runs = if large { runs.div_ceil(LARGE_EVERY) } else { runs };
        let mut command = Command::new(program);
        command.args(["buffers", "--tasks", tasks, "--sizes", &sizes.join(","), "--sample"]).arg(sample);
        command.args(["--rounds", &runs.div_ceil(PASSES).to_string(), "--seed", &(pass + 1).to_string()]);
        text += &run::output(command.arg("--dir").arg(&spot.to)).with_context(|| format!("in {}", spot.name))?;
    }
    Ok(text)
}

fn figures(costs: &[Cost]) -> Vec<Figure> {
    let larders = costs.iter().filter(|cost| cost.way() == rows::LARDER);
    let figure = |larder: &Cost| {
        let base = costs.iter().find(|cost| cost.is_beside(larder) && cost.way() == BASE)?;
        let name = format!("{}, hash, {}, CPU ÷ {BASE}", larder.spot(), rows::shown(larder.size_bytes()));
        Figure::ratio(name, &larder.cpu_s(), &base.cpu_s(), None)
    };
    larders.filter_map(figure).collect()
}

fn notes() -> Vec<String> {
    vec![
        "In each cell: CPU time of the median run, of the lower quartile, and wall time of the median run, in µs, of \
         opening the file, which is in memory, doing it, and closing. Buffers are as new as in a process just \
         started; tasks are run in turn, in another order each round; what comes of them is checked once."
            .to_owned(),
        "hash: BLAKE3; larder: `Stamps::hash` in `crates/store`. hash and write: as an output becomes a blob. copied, \
         then read: by `copy_bytes` of `crates/sys`, and then the copy is hashed. compress: blocks, each for itself. \
         a stream: the file is read, and its content handed on, through buffers of this size. zstd: level 1."
            .to_owned(),
    ]
}
