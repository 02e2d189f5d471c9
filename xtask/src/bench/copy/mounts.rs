//! The file systems to measure on: images in files, mounted where only this process and its children see them.

use crate::run;
use anyhow::{Context, Result};
use nix::sched::{CloneFlags, unshare};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where files are stored and where they are put in place.
pub(crate) struct Spot {
    pub(crate) name: String,
    pub(crate) from: PathBuf,
    pub(crate) to: PathBuf,
}

impl Spot {
    /// Files are stored and put in place on one file system.
    pub(crate) fn is_one(&self) -> bool {
        self.from.parent() == self.to.parent()
    }
}

/// File systems in images, with what makes them quietly.
const IMAGES: &[(&str, &[&str])] =
    &[("ext4", &["mkfs.ext4", "-q"]), ("xfs", &["mkfs.xfs", "-q"]), ("btrfs", &["mkfs.btrfs", "-q"])];
/// Sparse, so it takes what is written only.
const IMAGE_BYTES: u64 = 2 << 30;

/// Makes and mounts what can be; the rest as reasons why not. The mounts go away with this process.
pub(crate) fn spots(scratch: &Path) -> Result<(Vec<Spot>, Vec<String>)> {
    let here = run::output(Command::new("findmnt").args(["-n", "-o", "FSTYPE", "-T"]).arg(scratch))?;
    let mut spots = vec![spot(&format!("target directory ({})", here.trim()), scratch, scratch)];
    if let Err(error) = alone() {
        return Ok((spots, vec![format!("ext4, xfs, btrfs, tmpfs, overlayfs: root has to mount them: {error:#}")]));
    }
    let mut skipped = Vec::new();
    let mut keep = |name: &str, mounted: Result<PathBuf>| match mounted {
        Ok(dir) => {
            spots.push(spot(name, &dir, &dir));
            Some(dir)
        }
        Err(error) => {
            skipped.push(format!("{name}: {error:#}"));
            None
        }
    };
    let images: Vec<_> = IMAGES.iter().map(|(name, mkfs)| keep(name, image(scratch, name, mkfs))).collect();
    let tmpfs = keep("tmpfs", memory(scratch));
    let lower = images.into_iter().flatten().next();
    let overlay = lower.as_ref().and_then(|lower| keep("overlayfs", overlay(scratch, lower)));
    for (name, to) in [("tmpfs", tmpfs), ("overlayfs", overlay)] {
        if let (Some(from), Some(to)) = (&lower, to) {
            spots.push(spot(&format!("ext4 → {name}"), from, &to));
        }
    }
    Ok((spots, skipped))
}

fn spot(name: &str, from: &Path, to: &Path) -> Spot {
    Spot { name: name.to_owned(), from: from.join("stored"), to: to.join("made") }
}

/// A mount namespace of our own, whose mounts nobody else gets.
fn alone() -> Result<()> {
    unshare(CloneFlags::CLONE_NEWNS).context("no mount namespace of our own")?;
    run::output(Command::new("mount").args(["--make-rprivate", "/"])).map(drop)
}

fn image(scratch: &Path, name: &str, mkfs: &[&str]) -> Result<PathBuf> {
    let file = scratch.join(format!("{name}.img"));
    File::create(&file)?.set_len(IMAGE_BYTES)?;
    run::output(Command::new(mkfs[0]).args(&mkfs[1..]).arg(&file))?;
    let dir = mount_point(scratch, name)?;
    run::output(Command::new("mount").args(["-o", "loop", "-t", name]).arg(&file).arg(&dir))?;
    // The mount keeps it until it ends.
    fs::remove_file(&file)?;
    Ok(dir)
}

fn memory(scratch: &Path) -> Result<PathBuf> {
    let dir = mount_point(scratch, "tmpfs")?;
    run::output(Command::new("mount").args(["-t", "tmpfs", "larder-bench"]).arg(&dir))?;
    Ok(dir)
}

fn overlay(scratch: &Path, lower: &Path) -> Result<PathBuf> {
    let parts = ["lower", "upper", "work"].map(|part| lower.join(format!("overlay-{part}")));
    parts.iter().try_for_each(fs::create_dir_all)?;
    let dir = mount_point(scratch, "overlayfs")?;
    let [lower, upper, work] = parts.map(|part| part.display().to_string());
    let options = format!("lowerdir={lower},upperdir={upper},workdir={work}");
    run::output(Command::new("mount").args(["-t", "overlay", "larder-bench", "-o", &options]).arg(&dir))?;
    Ok(dir)
}

fn mount_point(scratch: &Path, name: &str) -> Result<PathBuf> {
    let dir = scratch.join("mounted").join(name);
    fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    Ok(dir)
}
