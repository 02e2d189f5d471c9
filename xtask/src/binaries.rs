//! Builds larder's static release binaries and puts them side by side into `target/larder`, those for another machine into
//! `target/larder-aarch64`.

use crate::arch::Arch;
use crate::place::Place;
use crate::run;
use crate::setup;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Package and program, the wrapper first.
const BINARIES: &[(&str, &str)] = &[("larder-wrapper", "larder"), ("larder-daemon", "larderd")];

/// What `cargo xtask build` takes.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// For which machine; each has a directory of its own in target/ if it is not this one
    #[arg(long, value_enum, default_value_t = Arch::HOST)]
    arch: Arch,
}

/// `cargo xtask build`.
pub(crate) fn build_as_asked(place: &Place, options: &Options) -> Result<()> {
    build_for(place, options.arch)
}

/// Builds the programs for this machine.
pub(crate) fn build(place: &Place) -> Result<()> {
    build_for(place, Arch::HOST)
}

/// Builds the programs for `arch`.
pub(crate) fn build_for(place: &Place, arch: Arch) -> Result<()> {
    setup::for_builds_of(place, arch)?;
    let target = arch.static_target();
    let dir = place.target.join(arch.directory());
    fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    for (package, program) in BINARIES {
        let words = ["build", "--release", "--locked", "--package", package, "--target", target];
        run::shown_to_user(cargo(place).args(words)).with_context(|| format!("{program} does not build"))?;
        let built = place.target.join(target).join("release").join(program);
        let placed = dir.join(program);
        // Not overwritten in place: a running larder keeps the file that it was started from.
        let _ = fs::remove_file(&placed);
        let size_bytes = fs::copy(&built, &placed)
            .with_context(|| format!("cannot copy {} to {}", built.display(), placed.display()))?;
        println!("{} {:.0} kB", placed.display(), size_bytes as f64 / 1000.0);
    }
    Ok(())
}

/// Builds a program of `benches/` that a benchmark runs: for `target`, or where there is none for this machine as it
/// is.
pub(crate) fn bench(place: &Place, package: &str, program: &str, target: Option<&str>) -> Result<PathBuf> {
    let mut command = cargo(place);
    command.args(["build", "--quiet", "--release", "--locked", "--package", package, "--bin", program]);
    let mut dir = place.target.clone();
    if let Some(target) = target {
        command.args(["--target", target]);
        dir.push(target);
    }
    run::shown_to_user(&mut command).with_context(|| format!("{program} does not build"))?;
    Ok(dir.join("release").join(program))
}

/// The larder to work with: `given`, or one built now.
pub(crate) fn larder(place: &Place, given: Option<&Path>) -> Result<PathBuf> {
    match given {
        None => build(place).map(|()| place.larder()),
        Some(program) => program.canonicalize().with_context(|| format!("there is no {}", program.display())),
    }
}

/// The cargo that started xtask, in the repository.
pub(crate) fn cargo(place: &Place) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(&place.repo).env("CARGO_TARGET_DIR", &place.target);
    cargo
}
