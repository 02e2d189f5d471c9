//! The place for what a pod writes: a directory, or a file system of limited size in a sparse file.
//!
//! ```text
//! DIR/writes.img   an ext4 file system; only if there is a limit
//! DIR/writes       where it is mounted until the volume is; without a limit a plain directory
//! ```
//!
//! The volume's own mount keeps the file system and its loop device. So both end with it, even if the
//! plugin is killed, and nothing but the file is left to remove.
//!
//! Unaware of: the image, which is mounted below what the pod writes.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use larder_mount::{HARMLESS, Mount, Placed};
use larder_sys::{MountValue, new_mount, writable_loop_device};

const FILE: &str = "writes.img";
const DIRECTORY: &str = "writes";
const PROGRAM: &str = "mkfs.ext4";
/// The file system has no journal, because it ends with its mount and is never used after a crash.
/// Tables of inodes are written when they are used.
const OPTIONS: [&str; 10] =
    ["-q", "-F", "-m", "0", "-O", "^has_journal", "-E", "lazy_itable_init=1,nodiscard", "-T", "default"];

/// The place for what a pod writes. When it is dropped, only the mounts that use it keep it.
pub(crate) struct Writes {
    directory: PathBuf,
    _mounted: Option<Placed>,
}

/// Checks that a limit can be enforced on this machine.
pub(crate) fn check(bytes_max: u64) -> Result<()> {
    if bytes_max == 0 {
        return Ok(());
    }
    let asked = Command::new(PROGRAM).arg("-V").stdin(Stdio::null()).output();
    asked.with_context(|| format!("{PROGRAM} cannot be started: install e2fsprogs, or use --writes-max 0"))?;
    let there = Path::new("/dev/loop-control").exists();
    ensure!(there, "/dev/loop-control does not exist: load the kernel's module `loop`, or use --writes-max 0");
    Ok(())
}

impl Writes {
    /// Makes the place in the directory of a volume. A limit of 0 means that there is none.
    pub(crate) fn make(volume: &Path, bytes_max: u64) -> Result<Writes> {
        let directory = volume.join(DIRECTORY);
        let shown = || format!("{}: no place for what the pod writes can be made", volume.display());
        fs::create_dir(&directory).with_context(shown)?;
        let mounted = (bytes_max > 0).then(|| file_system(&volume.join(FILE), bytes_max, &directory)).transpose();
        Ok(Writes { directory, _mounted: mounted.with_context(shown)? })
    }

    /// Returns a path at which a directory can be made.
    pub(crate) fn path(&self) -> PathBuf {
        self.directory.join("volume")
    }
}

/// Unmounts the file system if a plugin that was killed left it mounted in the directory of a volume.
/// The volume's own mount keeps it.
pub(crate) fn let_go(volume: &Path) -> io::Result<()> {
    match larder_sys::open_place(&volume.join(DIRECTORY)) {
        Ok(place) if larder_sys::is_mount_root(&place)? => larder_sys::unmount(place),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes what [`Writes::make`] made in the directory of a volume.
pub(crate) fn remove(volume: &Path) -> io::Result<()> {
    let_go(volume)?;
    [DIRECTORY, FILE].iter().try_for_each(|name| larder_sys::remove_tree(&volume.join(name)))
}

/// Makes a file system in a sparse file and mounts it.
fn file_system(path: &Path, bytes_max: u64, on: &Path) -> Result<Placed> {
    let file = File::options().read(true).write(true).create_new(true).open(path)?;
    file.set_len(bytes_max)?;
    let made = Command::new(PROGRAM).args(OPTIONS).arg(path).stdin(Stdio::null()).output();
    let made = made.with_context(|| format!("{PROGRAM} cannot be started: install e2fsprogs"))?;
    ensure!(made.status.success(), "{PROGRAM}: {}", String::from_utf8_lossy(&made.stderr).trim());
    let (_open, device) = writable_loop_device(&file).context("no loop device can be set up")?;
    let source = device.to_string_lossy().into_owned();
    // `discard`: the file gives up the space of what is deleted.
    let options = [("source", MountValue::Text(source.as_bytes())), ("discard", MountValue::Flag)];
    let mount = new_mount("ext4", &options, HARMLESS);
    let mount =
        mount.map_err(|refused| anyhow::anyhow!("ext4 ({}): {} {}", refused.step, refused.error, refused.said))?;
    Ok(Mount::passed(mount).place(on)?)
}
