//! Outside of Linux on x86-64: how long it takes to put a file in place by what the system has for it, by larder's function, and
//! by reading and writing; and to hash one. By wall time. Nobody has run it so far.

use anyhow::{Context, Result, ensure};
use larder_model::{Digest, DigestWriter};
use larder_samples::{Drawn, mixed};
use serde_json::json;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// What `measure` takes.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Where files are read and written: made there, and removed at the end
    #[arg(long)]
    dir: PathBuf,
    /// Sizes of the files, in bytes
    #[arg(long, value_delimiter = ',', default_values_t = [5_000, 50_000, 1_000_000, 20_000_000])]
    sizes: Vec<usize>,
    /// How often each way is run
    #[arg(long, default_value_t = 45, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
}

const BUFFERS_BYTES: &[usize] = &[4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];

/// One way.
#[derive(Clone, Copy)]
enum Way {
    /// `larder_sys::copy_bytes`.
    Larder,
    /// By name: `fclonefileat`, else `fcopyfile`, on macOS, `CopyFileEx` on Windows.
    ByName,
    ReadWrite(usize),
    Hash(usize),
}

/// Measures every size and prints a line for each way.
pub(crate) fn measure(options: &Options) -> Result<()> {
    fs::create_dir_all(&options.dir).with_context(|| format!("cannot make {}", options.dir.display()))?;
    let (from, to) = (options.dir.join("stored"), options.dir.join("made"));
    for &size_bytes in &options.sizes {
        let words = (0..size_bytes.div_ceil(8) as u64).flat_map(|at| mixed(at).to_le_bytes());
        let bytes: Vec<u8> = words.take(size_bytes).collect();
        fs::write(&from, &bytes).with_context(|| format!("cannot write {}", from.display()))?;
        let ways = ways();
        let mut samples = vec![Vec::new(); ways.len()];
        let (mut drawn, mut order) = (Drawn::from(1), (0..ways.len()).collect::<Vec<_>>());
        // The first round checks what is made and does not count.
        for round in 0..=options.rounds {
            drawn.shuffle(&mut order);
            for &at in &order {
                let began = Instant::now();
                let hashed = ways[at].run(&from, &to)?;
                let took = began.elapsed();
                match hashed {
                    Some(digest) => ensure!(round > 0 || digest == Digest::of(&bytes), "another digest"),
                    None => {
                        ensure!(round > 0 || fs::read(&to)? == bytes, "{}: other bytes", ways[at].name());
                        fs::remove_file(&to)?;
                    }
                }
                if round > 0 {
                    samples[at].push(took.as_nanos() as u64);
                }
            }
        }
        for (way, samples) in ways.iter().zip(samples) {
            println!("{}", json!({ "way": way.name(), "size_bytes": size_bytes, "wall_ns": samples }));
        }
    }
    Ok(fs::remove_file(from)?)
}

fn ways() -> Vec<Way> {
    let each = |way: fn(usize) -> Way| BUFFERS_BYTES.iter().map(move |&bytes| way(bytes));
    [Way::Larder, Way::ByName].into_iter().chain(each(Way::ReadWrite)).chain(each(Way::Hash)).collect()
}

impl Way {
    fn name(self) -> String {
        match self {
            Self::Larder => "larder".to_owned(),
            Self::ByName if cfg!(windows) => "CopyFile".to_owned(),
            Self::ByName => "copyfile".to_owned(),
            Self::ReadWrite(bytes) => format!("read, write {} KB", bytes >> 10),
            Self::Hash(bytes) => format!("hash, read {} KB", bytes >> 10),
        }
    }

    /// Puts the file in place, or gives its digest.
    fn run(self, from: &Path, to: &Path) -> Result<Option<Digest>> {
        if let Self::ByName = self {
            fs::copy(from, to)?;
            return Ok(None);
        }
        let mut file = File::open(from)?;
        if let Self::Hash(buffer_bytes) = self {
            let mut digest = DigestWriter::default();
            pieces(&mut file, buffer_bytes, |piece| {
                digest.update(piece);
                Ok(())
            })?;
            return Ok(Some(digest.finish()));
        }
        let mut made = File::create_new(to)?;
        match self {
            Self::ReadWrite(buffer_bytes) => pieces(&mut file, buffer_bytes, |piece| made.write_all(piece))?,
            _ => {
                let size_bytes = file.metadata()?.len();
                let copied = larder_sys::copy_bytes(&file, &made, size_bytes)?;
                ensure!(copied == size_bytes, "{copied} of {size_bytes} bytes were copied");
            }
        }
        Ok(None)
    }
}

fn pieces(file: &mut File, buffer_bytes: usize, mut to: impl FnMut(&[u8]) -> std::io::Result<()>) -> Result<()> {
    let mut buffer = vec![0; buffer_bytes];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(()),
            count => to(&buffer[..count])?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_gives_the_same_bytes() {
        let dir = std::env::temp_dir().join(format!("larder-elsewhere-{}", std::process::id()));
        measure(&Options { dir: dir.clone(), sizes: vec![5_000, 300_000], rounds: 1 }).expect("measures");
        fs::remove_dir_all(&dir).expect("removable");
    }
}
