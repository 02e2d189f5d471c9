//! The packages for a registry of Rust: one for each crate that the package `larder` needs.
//!
//! Unaware of: registries. Nothing is published.

use crate::binaries::{Package, packages};
use crate::files::{self, fresh};
use crate::place::Place;
use crate::run;
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::Path;
use std::process::Command;

use super::contents::{VERSION, install};

/// Writes the packages. Fails if one of them lacks what a registry asks for.
pub(super) fn package(place: &Place, out: &Path) -> Result<()> {
    let mut command = place.cargo();
    // `--no-verify`, because `check` builds all of them at once. `--allow-dirty`, because the other
    // kinds of packages can be made from a dirty checkout as well.
    command.args(["package", "--quiet", "--locked", "--workspace", "--no-verify", "--allow-dirty"]);
    let own = packages(place)?.into_iter().filter(|package| package.source.is_none());
    let (published, others): (Vec<_>, Vec<_>) = own.partition(|package| package.publish != Some(Vec::new()));
    for package in &others {
        command.args(["--exclude", &package.name]);
    }
    run::output(&mut command)?;
    fresh(out)?;
    for Package { name, description, license, readme, .. } in &published {
        let is_complete = description.is_some() && license.is_some() && readme.is_some();
        ensure!(is_complete, "{name} lacks a description, license or readme in its Cargo.toml");
        let file = format!("{name}-{VERSION}.crate");
        install(&place.target.join("package").join(&file), &out.join(&file), 0o644)?;
    }
    println!("{}: {} packages for a registry of Rust", out.display(), published.len());
    Ok(())
}

/// Installs `larder` from the packages in an empty directory, and caches a compile with it.
pub(super) fn check(place: &Place, packages: &Path) -> Result<()> {
    // Not below the workspace, because cargo would find its configuration.
    let dir = std::env::temp_dir().join(format!("larder-crates-{}", std::process::id()));
    fresh(&dir)?;
    let result = install_and_use(place, packages, &dir);
    fs::remove_dir_all(&dir)?;
    result
}

fn install_and_use(place: &Place, packages: &Path, dir: &Path) -> Result<()> {
    let mut patches = "[patch.crates-io]\n".to_owned();
    for package in files::list(packages)? {
        run::output(Command::new("tar").arg("xzf").arg(&package).arg("-C").arg(dir))?;
        let stem = package.file_stem().and_then(|stem| stem.to_str()).context("a package has a name")?;
        let crate_name = stem.trim_end_matches(&format!("-{VERSION}"));
        // The other packages are used from here, in place of a registry that has them.
        if crate_name != "larder" {
            patches += &format!("{crate_name} = {{ path = {:?} }}\n", dir.join(stem));
        }
    }
    files::write(dir.join(".cargo/config.toml"), patches)?;
    let mut command = place.cargo();
    command.current_dir(dir).env("CARGO_TARGET_DIR", place.own("crates")?);
    command.args(["install", "--debug", "--root", "installed", "--path"]).arg(format!("larder-{VERSION}"));
    run::shown_to_user(&mut command)?;
    let script = "echo 'int x;' >x.c; touch -d '1 hour ago' x.c
        for number in 1 2 3; do installed/bin/larder cc -c x.c -o x.o; sleep 0.1; done
        installed/bin/larder stats --json; installed/bin/larder doctor || true";
    let mut used = Command::new("sh");
    used.args(["-euc", script]).current_dir(dir).env("HOME", dir).env("LARDER_DIR", dir.join("store"));
    let said = run::output(&mut used)?;
    if !said.contains("\"hit\": 2") {
        bail!("the installed larder had no hit:\n{said}");
    }
    // This wrapper was built for the host's target, so it is not static. `larder doctor` must say so.
    let is_told = said.lines().any(|line| line.starts_with("note     wrapper ") && line.contains("cargo install"));
    ensure!(is_told, "`larder doctor` does not say that this wrapper is not the static one:\n{said}");
    println!("cargo install: `larder` can be built from its packages alone, and used");
    Ok(())
}
