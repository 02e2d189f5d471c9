//! Runs all ways in turn, again and again, and prints what each run cost.

use crate::ways::{Mover, Way, compress, ways};
use anyhow::{Context, Result, ensure};
use larder_samples::{Drawn, cpu_of_thread, wall};
use serde_json::json;
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What `measure` takes.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Where stored files are: made there, and removed at the end
    #[arg(long)]
    from: PathBuf,
    /// Where files are put in place
    #[arg(long)]
    to: PathBuf,
    /// A file whose bytes are taken: from its middle, so many as are wanted
    #[arg(long)]
    sample: PathBuf,
    /// Sizes of the files that are put in place, in bytes
    #[arg(long, value_delimiter = ',', required = true)]
    sizes: Vec<usize>,
    /// How often each way is run
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// What the order of each round is drawn from
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// What is at the destination before: nothing, or a file of that name, which is unlinked first, as larder does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    Fresh,
    Replaced,
}

/// One way with what its runs cost.
struct Lane {
    way: Way,
    stored: PathBuf,
    /// CPU and wall time in ns; by what was there before.
    samples: [Vec<(u64, u64)>; 2],
    /// Why the file system cannot do that.
    refused: Option<String>,
}

/// Measures every size and prints a line for each way and each state of the destination.
pub(crate) fn measure(options: &Options) -> Result<()> {
    for dir in [&options.from, &options.to] {
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    }
    for &size_bytes in &options.sizes {
        let bytes = middle(&options.sample, size_bytes)?;
        let mut stored = Stored { dir: &options.from, bytes: &bytes, files: HashMap::new() };
        let mut lanes = Vec::new();
        for way in ways(size_bytes) {
            lanes.push(Lane { way, stored: stored.file(way.mover)?, samples: Default::default(), refused: None });
        }
        let target = options.to.join("made");
        let mut drawn = Drawn::from(options.seed);
        let mut order: Vec<usize> = (0..lanes.len()).collect();
        // The first round compares what is made and does not count: whoever comes first pays for what is new to all.
        for round in 0..=options.rounds {
            // What ran before decides what is in the processor's caches, so each must follow every other one.
            drawn.shuffle(&mut order);
            for &at in &order {
                let lane = &mut lanes[at];
                lane.run(&target, &bytes, round == 0)
                    .with_context(|| format!("{} of {size_bytes} bytes", lane.way.name()))?;
            }
        }
        lanes.iter().for_each(|lane| lane.print(size_bytes));
        stored.remove()?;
    }
    Ok(())
}

impl Lane {
    /// Once where nothing is, once where that left a file.
    fn run(&mut self, target: &Path, bytes: &[u8], compare: bool) -> Result<()> {
        if self.refused.is_some() {
            return Ok(());
        }
        for before in [Before::Fresh, Before::Replaced] {
            match self.once(target, bytes.len(), before) {
                Ok(_) if compare => ensure!(fs::read(target)? == bytes, "other bytes were put in place"),
                Ok(cost) => self.samples[before as usize].push(cost),
                Err(error) if compare && is_unsupported(&error) => {
                    self.refused = Some(format!("{error:#}"));
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(fs::remove_file(target)?)
    }

    /// CPU and wall time in ns.
    fn once(&self, target: &Path, size_bytes: usize, before: Before) -> Result<(u64, u64)> {
        let (cpu_before, before_wall) = (cpu_of_thread(), wall());
        let from = File::open(&self.stored)?;
        if before == Before::Replaced {
            fs::remove_file(target)?;
        }
        let to = OpenOptions::new().write(true).create_new(true).open(target)?;
        self.way.put(&from, &to, size_bytes)?;
        drop((from, to));
        Ok((ns(cpu_of_thread() - cpu_before), ns(wall() - before_wall)))
    }

    fn print(&self, size_bytes: usize) {
        // Its place among all ways that there are, also those that make no difference for this size.
        let order = ways(usize::MAX).iter().position(|way| *way == self.way);
        for (before, samples) in ["fresh", "replaced"].into_iter().zip(&self.samples) {
            let (cpu_ns, wall_ns): (Vec<u64>, Vec<u64>) = samples.iter().copied().unzip();
            let line = json!({
                "way": self.way.name(),
                "order": order,
                "size_bytes": size_bytes,
                "destination": before,
                "refused": self.refused,
                "cpu_ns": cpu_ns,
                "wall_ns": wall_ns,
            });
            println!("{line}");
        }
    }
}

/// The files that ways start from: plain, and compressed by each format and block size.
struct Stored<'a> {
    dir: &'a Path,
    bytes: &'a [u8],
    files: HashMap<String, PathBuf>,
}

impl Stored<'_> {
    fn file(&mut self, mover: Mover) -> Result<PathBuf> {
        let (name, content) = match mover {
            Mover::Compressed(format, block_bytes) => {
                (format!("{format:?}-{block_bytes}"), Some(compress(self.bytes, format, block_bytes)?))
            }
            _ => ("plain".to_owned(), None),
        };
        if let Some(path) = self.files.get(&name) {
            return Ok(path.clone());
        }
        let path = self.dir.join(format!("stored-{name}"));
        let mut file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        file.write_all(content.as_deref().unwrap_or(self.bytes))?;
        // On disk, since what is not is written first where it is to be shared; and then in memory again.
        file.sync_all()?;
        fs::read(&path)?;
        self.files.insert(name, path.clone());
        Ok(path)
    }

    fn remove(self) -> Result<()> {
        Ok(self.files.values().try_for_each(fs::remove_file)?)
    }
}

/// A time as programs read it.
pub(crate) fn ns(time: Duration) -> u64 {
    time.as_nanos() as u64
}

/// So many bytes from the middle of a file.
pub(crate) fn middle(sample: &Path, size_bytes: usize) -> Result<Vec<u8>> {
    use std::io::{Seek, SeekFrom};
    let mut file = File::open(sample).with_context(|| format!("cannot open {}", sample.display()))?;
    let there = file.metadata()?.len();
    ensure!(there >= size_bytes as u64, "{} has {there} bytes only", sample.display());
    file.seek(SeekFrom::Start((there - size_bytes as u64) / 2))?;
    let mut bytes = vec![0; size_bytes];
    file.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn is_unsupported(error: &anyhow::Error) -> bool {
    use rustix::io::Errno;
    let refusals = [Errno::OPNOTSUPP, Errno::XDEV, Errno::INVAL, Errno::NOSYS, Errno::NOTTY];
    let by_system = error.downcast_ref::<std::io::Error>().and_then(Errno::from_io_error);
    error.downcast_ref::<Errno>().copied().or(by_system).is_some_and(|errno| refusals.contains(&errno))
}
