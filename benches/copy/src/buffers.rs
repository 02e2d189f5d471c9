//! Runs all tasks in turn, again and again, and prints what each run cost.

use crate::measure::{middle, ns};
use crate::tasks::{Kind, Task, tasks};
use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use larder_samples::{Drawn, cpu_of_thread, wall};
use serde_json::json;
use std::fs::{self, File};
use std::hint::black_box;
use std::io::Write;
use std::path::{Path, PathBuf};

/// What `buffers` takes.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Where files are read and written: made there, and removed at the end
    #[arg(long)]
    dir: PathBuf,
    /// A file whose bytes are taken: from its middle, so many as are wanted
    #[arg(long)]
    sample: PathBuf,
    /// What is done with them
    #[arg(long, value_delimiter = ',', required = true)]
    tasks: Vec<Kind>,
    /// Sizes of the files, in bytes
    #[arg(long, value_delimiter = ',', required = true)]
    sizes: Vec<usize>,
    /// How often each task is run
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// What the order of each round is drawn from
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// One task with what its runs cost: CPU and wall time in ns.
struct Lane {
    task: Task,
    stored: PathBuf,
    samples: Vec<(u64, u64)>,
}

/// Measures every size and prints a line for each task.
pub(crate) fn buffers(options: &Options) -> Result<()> {
    fs::create_dir_all(&options.dir).with_context(|| format!("cannot make {}", options.dir.display()))?;
    for (&kind, &size_bytes) in options.tasks.iter().flat_map(|kind| options.sizes.iter().map(move |size| (kind, size)))
    {
        let bytes = middle(&options.sample, size_bytes)?;
        let mut lanes = Vec::new();
        for (at, task) in tasks(kind, size_bytes).into_iter().enumerate() {
            let stored = options.dir.join(format!("read-{at}"));
            keep(&stored, task.stored(&bytes)?.as_deref().unwrap_or(&bytes))?;
            lanes.push(Lane { task, stored, samples: Vec::new() });
        }
        let target = options.dir.join("written");
        let mut drawn = Drawn::from(options.seed);
        let mut order: Vec<usize> = (0..lanes.len()).collect();
        // The first round checks what comes of it and does not count.
        for round in 0..=options.rounds {
            drawn.shuffle(&mut order);
            for &at in &order {
                let lane = &mut lanes[at];
                lane.run(&target, &bytes, round == 0)
                    .with_context(|| format!("{} of {size_bytes} bytes, {}", kind.word(), lane.task.name()))?;
            }
        }
        for lane in &lanes {
            lane.print(size_bytes);
            fs::remove_file(&lane.stored)?;
        }
    }
    Ok(())
}

/// On disk and in memory.
fn keep(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::read(path)?;
    Ok(())
}

impl Lane {
    fn run(&mut self, target: &Path, bytes: &[u8], check: bool) -> Result<()> {
        if check {
            let mut came = Vec::new();
            self.task.run(&self.stored, target, bytes.len(), &mut |piece| came.extend_from_slice(piece))?;
            ensure!(self.task.is_right(&came, target, bytes)?, "something else came of it");
        } else {
            let (cpu_before, before) = (cpu_of_thread(), wall());
            self.task.run(&self.stored, target, bytes.len(), &mut |piece| {
                black_box(piece);
            })?;
            self.samples.push((ns(cpu_of_thread() - cpu_before), ns(wall() - before)));
        }
        if self.task.kind == Kind::Keep {
            fs::remove_file(target)?;
        }
        Ok(())
    }

    fn print(&self, size_bytes: usize) {
        // Its place among all tasks that there are, also those that make no difference for this size.
        let mut all = Kind::value_variants().iter().flat_map(|kind| tasks(*kind, usize::MAX));
        let order = all.position(|task| task == self.task);
        let (cpu_ns, wall_ns): (Vec<u64>, Vec<u64>) = self.samples.iter().copied().unzip();
        let line = json!({
            "way": self.task.name(),
            "order": order,
            "size_bytes": size_bytes,
            "task": self.task.kind.word(),
            "cpu_ns": cpu_ns,
            "wall_ns": wall_ns,
        });
        println!("{line}");
    }
}
