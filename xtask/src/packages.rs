//! Installs Debian packages.
//!
//! Unaware of: which packages a command needs.

use crate::place::on_path;
use crate::run;
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;

/// Installs pip.
pub(crate) fn pip() -> Result<()> {
    if run::output(Command::new("python3").args(["-m", "pip", "--version"])).is_err() {
        install(&["python3-pip"])?;
    }
    Ok(())
}

/// Installs the packages of this list that are missing.
///
/// The list has `SIGN=PACKAGE` for each package, with spaces between them. The sign shows that the
/// package is installed: it is a file, or a program on `PATH`. Without `SIGN=` it is a program with
/// the name of the package.
pub(crate) fn packages(wanted: &'static str) -> Result<()> {
    let is_missing =
        |sign: &str| if sign.starts_with('/') { !Path::new(sign).exists() } else { on_path(sign).is_none() };
    let words = wanted.split_whitespace().map(|word| word.split_once('=').unwrap_or((word, word)));
    let missing: Vec<&str> = words.filter(|(sign, _)| is_missing(sign)).map(|(_, package)| package).collect();
    if missing.is_empty() { Ok(()) } else { install(&missing) }
}

/// Installs these packages with apt-get.
pub(crate) fn install(missing: &[&str]) -> Result<()> {
    let list = missing.join(" ");
    if on_path("apt-get").is_none() {
        bail!(
            "missing: {list}. They are installed with apt-get, which is not available here: install the equivalent packages by hand"
        );
    }
    println!("installing with apt-get: {list}");
    apt_get(&["-qq", "update"])?;
    let mut words = vec!["-qq", "install", "-y", "--no-install-recommends"];
    words.extend(missing);
    apt_get(&words)
}

/// Returns a command that runs as root.
pub(crate) fn as_root(program: &str) -> Result<Command> {
    if nix::unistd::geteuid().is_root() {
        return Ok(Command::new(program));
    }
    if on_path("sudo").is_none() {
        bail!("cannot run {program}, because this user is not root and sudo is not installed");
    }
    let mut sudo = Command::new("sudo");
    sudo.args(["--preserve-env=DEBIAN_FRONTEND", program]);
    Ok(sudo)
}

fn apt_get(words: &[&str]) -> Result<()> {
    let command = as_root("apt-get").with_context(|| format!("as root, run apt-get {}", words.join(" ")));
    let mut command = command.context("packages are missing")?;
    let command = command.args(words).env("DEBIAN_FRONTEND", "noninteractive");
    run::shown_to_user(command).context("apt-get could not install the missing packages")
}
