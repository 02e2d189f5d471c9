//! Installs Debian packages.
//!
//! Unaware of: which packages a command needs.

use crate::place::on_path;
use crate::run;
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;

/// How to detect that a package is installed.
pub(crate) enum Sign {
    /// A program on `PATH`.
    Program(&'static str),
    /// A file at a fixed path, or at one of several.
    File(&'static [&'static str]),
}

/// Installs pip.
pub(crate) fn pip() -> Result<()> {
    if run::output(Command::new("python3").args(["-m", "pip", "--version"])).is_err() {
        install(&["python3-pip"])?;
    }
    Ok(())
}

/// Installs the packages of this list that are missing.
pub(crate) fn packages(wanted: &[(Sign, &'static str)]) -> Result<()> {
    let missing: Vec<&str> = wanted.iter().filter(|(sign, _)| !is_there(sign)).map(|&(_, package)| package).collect();
    if missing.is_empty() { Ok(()) } else { install(&missing) }
}

fn is_there(sign: &Sign) -> bool {
    match sign {
        Sign::Program(name) => on_path(name).is_some(),
        Sign::File(files) => files.iter().any(|file| Path::new(file).exists()),
    }
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
