//! The roots of other distributions. debootstrap makes each once. They are kept in `target/matrix`,
//! and used as directories or as images for QEMU.

use super::cells::{ESSENTIAL, Root, WANTED};
use crate::files::{self, remove};
use crate::{debian, run};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The size of an image, which is sparse.
const IMAGE_SIZE: &str = "8G";

/// How many packages a root needs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// All compilers and tools.
    Whole,
    /// What gcc needs. A whole root is used if there is one.
    Short,
}

/// Returns the directory of the root, and makes it if necessary.
pub(super) fn root(matrix: &Path, root: &Root, extent: Extent, logs: &Path) -> Result<PathBuf> {
    let whole = matrix.join("roots").join(root.suite);
    if whole.is_dir() {
        return Ok(whole);
    }
    let dir = match extent {
        Extent::Whole => whole,
        Extent::Short => matrix.join("roots").join(format!("{}-short", root.suite)),
    };
    if dir.is_dir() {
        return Ok(dir);
    }
    ensure!(nix::unistd::geteuid().is_root(), "debootstrap makes a root as root only: `sudo -E cargo xtask matrix`");
    let unfinished = dir.with_extension("unfinished");
    remove(&unfinished)?;
    files::make(matrix.join("roots"))?;
    eprintln!("making the root of {} with debootstrap, once: this takes some minutes", root.suite);
    debootstrap(root.suite, &unfinished, &logs.join(format!("{}.debootstrap.log", root.suite)))?;
    if extent == Extent::Whole {
        install(root, &unfinished, &logs.join(format!("{}.install.log", root.suite)))?;
    }
    inside(&unfinished, &["useradd", "-m", "-u", "1000", "-s", "/bin/bash", "u"])?;
    // Cells mount on these directories, so that nothing needs to be created in the root later.
    for place in ["cell", "host"] {
        files::make(unfinished.join(place))?;
    }
    let _ = fs::remove_file(unfinished.join("etc/mtab"));
    std::os::unix::fs::symlink("/proc/self/mounts", unfinished.join("etc/mtab")).context("cannot make /etc/mtab")?;
    files::rename(&unfinished, &dir)?;
    Ok(dir)
}

/// Returns an ext4 image of the root, and makes it if necessary.
pub(super) fn image(matrix: &Path, root: &Root, dir: &Path) -> Result<PathBuf> {
    let image = matrix.join("roots").join(format!("{}.ext4", root.suite));
    if image.exists() {
        return Ok(image);
    }
    eprintln!("making an image of the root of {}", root.suite);
    let unfinished = image.with_extension("unfinished");
    let _ = fs::remove_file(&unfinished);
    run::output(Command::new("truncate").args(["-s", IMAGE_SIZE]).arg(&unfinished))?;
    run::output(Command::new("mke2fs").args(["-q", "-t", "ext4", "-d"]).arg(dir).arg(&unfinished))?;
    files::rename(&unfinished, &image)?;
    Ok(image)
}

fn debootstrap(suite: &str, dir: &Path, log: &Path) -> Result<()> {
    let include = format!("--include={ESSENTIAL}");
    let mut command = Command::new("debootstrap");
    command.args(["--variant=minbase", &include, suite]).arg(dir).arg(debian::mirror()?);
    if run::logged(&mut command, log, || ()).is_ok() {
        return Ok(());
    }
    remove(dir)?;
    let said = fs::read_to_string(log).unwrap_or_default();
    let lines = || said.lines().filter_map(|line| line.strip_prefix("E: "));
    // The message leaves out the name of the mirror, which belongs to this machine.
    if lines().any(|line| line.contains("Release")) {
        bail!("Debian's mirror does not have the release {suite} (any more)");
    }
    match lines().next() {
        Some(line) => bail!("debootstrap: {line}"),
        None => bail!("debootstrap failed; see {} of the logs", file_name(log)),
    }
}

/// Installs the packages: all at once, or if that fails, one after the other. A package that cannot
/// be installed is left out, and the checks that need it say so.
fn install(root: &Root, dir: &Path, log: &Path) -> Result<()> {
    // The names of hosts are resolved as on this machine.
    for file in ["etc/resolv.conf", "etc/hosts"] {
        let _ = fs::copy(Path::new("/").join(file), dir.join(file));
    }
    let settings = apt_settings();
    let apt = |words: &[&str]| {
        let mut command = Command::new("chroot");
        command.arg(dir).args(["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-y"]);
        settings.iter().for_each(|setting| {
            command.args(["-o", setting]);
        });
        command.args(words);
        let logged = run::logged(&mut command, log, || ());
        ensure!(logged.is_ok(), "packages of {}: apt-get failed; see {} of the logs", root.suite, file_name(log));
        Ok(())
    };
    apt(&["update"])?;
    let packages: Vec<&str> = WANTED.split_whitespace().chain(root.compilers.split_whitespace()).collect();
    let install = |packages: &[&str]| apt(&[&["install", "--no-install-recommends"], packages].concat());
    if install(&packages).is_err() {
        for package in packages {
            if install(&[package]).is_err() {
                eprintln!("{}: cannot install {package}, so the checks that need it are skipped", root.suite);
            }
        }
    }
    apt(&["clean"])
}

/// Returns the apt settings of this machine for its mirror: proxies, and whether an old copy of a
/// release is accepted.
fn apt_settings() -> Vec<String> {
    let listed = run::output(Command::new("apt-config").args(["dump", "--format", "%f=%v%n", "Acquire"]));
    let listed = listed.unwrap_or_default();
    let is_wanted = |line: &&str| {
        ["Acquire::Check-", "Acquire::http::", "Acquire::https::"].iter().any(|begin| line.starts_with(begin))
            && !line.ends_with('=')
    };
    listed.lines().filter(is_wanted).map(str::to_owned).collect()
}

/// Returns the last part of a path, for messages in the table, where paths of this machine mean
/// nothing.
pub(super) fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn inside(dir: &Path, words: &[&str]) -> Result<String> {
    run::output(Command::new("chroot").arg(dir).args(words))
}
