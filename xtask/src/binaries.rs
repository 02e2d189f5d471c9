//! Builds larder's static release binaries into `target/larder`, or for another architecture into
//! `target/larder-aarch64`.

use crate::arch::Arch;
use crate::files::{self, fresh, remove};
use crate::place::Place;
use crate::{run, setup};
use anyhow::{Context, Result, ensure};
use memchr::memmem::find;
use semver::Version;
use serde::Deserialize;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program of a release.
pub(crate) struct Program {
    pub(crate) name: &'static str,
    package: &'static str,
    /// The features of the package that it needs.
    features: &'static str,
}

/// The programs that every machine needs. The wrapper comes first.
pub(crate) const BINARIES: &[Program] = &[
    Program { name: "larder", package: "larder", features: "" },
    Program { name: "larderd", package: "larder", features: "larderd" },
];
/// The CSI plugin, which only nodes of Kubernetes need.
pub(crate) const PLUGIN: Program = Program { name: "larder-csi", package: "larder-csi", features: "" };

/// The options of `cargo xtask build`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The architecture. The programs for another one than this machine's have a directory of their
    /// own in target/
    #[arg(long, value_enum, default_value_t = Arch::HOST)]
    arch: Arch,
    /// Build them a second time, from a copy of the sources in another directory, and compare every
    /// byte. Takes about 10 minutes
    #[arg(long)]
    twice: bool,
}

/// Runs `cargo xtask build`.
pub(crate) fn build_as_asked(place: &Place, options: &Options) -> Result<()> {
    build_for(place, options.arch)?;
    if options.twice {
        build_plugin_for(place, options.arch)?;
        same_again(place, options.arch)?;
    }
    Ok(())
}

/// Builds the programs again from a copy in `target/xtask/twice`, and compares them.
fn same_again(place: &Place, arch: Arch) -> Result<()> {
    let repo = place.own("twice")?.join("sources-elsewhere");
    fresh(&repo)?;
    let listed = Command::new("git").args(["ls-files", "-z"]).current_dir(&place.repo).output()?;
    ensure!(listed.status.success(), "git ls-files: {}", String::from_utf8_lossy(&listed.stderr));
    for path in listed.stdout.split(|&byte| byte == 0).filter(|path| !path.is_empty()) {
        let path = Path::new(OsStr::from_bytes(path));
        files::copy(place.repo.join(path), repo.join(path))?;
    }
    let other = Place { target: repo.join("target"), repo };
    build_for(&other, arch)?;
    build_plugin_for(&other, arch)?;
    for Program { name, .. } in BINARIES.iter().chain([&PLUGIN]) {
        let [one, two] = [place, &other].map(|place| place.target.join(arch.directory()).join(name));
        ensure!(fs::read(&one)? == fs::read(&two)?, "{} and {} differ", one.display(), two.display());
        println!("{name}: the same bytes from two directories");
    }
    remove(&other.repo)
}

/// Builds the programs for this machine.
pub(crate) fn build(place: &Place) -> Result<()> {
    build_for(place, Arch::HOST)
}

/// Builds the programs that every machine needs for `arch`.
pub(crate) fn build_for(place: &Place, arch: Arch) -> Result<()> {
    build_these(place, arch, BINARIES)
}

/// Builds the CSI plugin for `arch`, beside the other programs.
pub(crate) fn build_plugin_for(place: &Place, arch: Arch) -> Result<()> {
    build_these(place, arch, &[PLUGIN])
}

fn build_these(place: &Place, arch: Arch, programs: &[Program]) -> Result<()> {
    setup::for_builds_of(place, arch)?;
    let target = arch.static_target();
    let dir = place.target.join(arch.directory());
    files::make(&dir)?;
    let paths = own_paths(place)?;
    // Paths of this machine would make the programs differ from those of other machines.
    let flags: Vec<String> = paths.iter().map(|(path, name)| format!("'--remap-path-prefix={path}={name}'")).collect();
    let flags = format!("target.{target}.rustflags=[{}]", flags.join(", "));
    for Program { name, package, features } in programs {
        let words = ["--config", &flags, "build", "--release", "--locked", "--package", package, "--target", target];
        let only = ["--bin", name, "--no-default-features", "--features", features];
        run::shown_to_user(place.cargo().args(words).args(only)).with_context(|| format!("cannot build {name}"))?;
        let built = place.target.join(target).join("release").join(name);
        let placed = dir.join(name);
        // The file is not overwritten in place, so a running larder keeps its program.
        let _ = fs::remove_file(&placed);
        let size_bytes = files::copy(&built, &placed)?;
        println!("{} {:.0} kB", placed.display(), size_bytes as f64 / 1000.0);
        let bytes = fs::read(&placed)?;
        for (path, _) in &paths {
            ensure!(
                find(&bytes, path.as_bytes()).is_none(),
                "{} contains a path of this machine: {path}",
                placed.display()
            );
        }
    }
    Ok(())
}

/// Returns the directories of sources, and the names that replace them in the programs.
fn own_paths(place: &Place) -> Result<Vec<(String, &'static str)>> {
    let mut paths = vec![(place.repo.display().to_string(), "larder")];
    for package in packages(place)?.iter().filter(|package| package.source.is_some()) {
        // `…/registry/src/NAME/CRATE-VERSION/Cargo.toml`
        let source = package.manifest_path.ancestors().nth(2).context("a package without a directory")?;
        let source = (source.display().to_string(), "crates");
        if !paths.contains(&source) {
            paths.push(source);
        }
    }
    Ok(paths)
}

/// A crate of the lock file, or of the workspace.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: Version,
    pub(crate) license: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) readme: Option<PathBuf>,
    /// `None` for the workspace's own crates.
    pub(crate) source: Option<String>,
    /// Its `Cargo.toml`.
    pub(crate) manifest_path: PathBuf,
    /// The registries to which it may be published: none, or any (`None`).
    pub(crate) publish: Option<Vec<String>>,
}

/// Returns all packages of the lock file that some target needs, and those of the workspace.
pub(crate) fn packages(place: &Place) -> Result<Vec<Package>> {
    #[derive(Deserialize)]
    struct Metadata {
        packages: Vec<Package>,
    }
    let text = run::output(place.cargo().args(["metadata", "--format-version", "1", "--locked"]))?;
    Ok(serde_json::from_str::<Metadata>(&text)?.packages)
}

/// Builds a program of `benches/`.
pub(crate) fn bench(place: &Place, package: &str, program: &str) -> Result<PathBuf> {
    let mut command = place.cargo();
    command.args(["build", "--quiet", "--release", "--locked", "--package", package, "--bin", program]);
    run::shown_to_user(&mut command).with_context(|| format!("cannot build {program}"))?;
    Ok(place.target.join("release").join(program))
}

/// Returns the larder to use: `given`, or one that is built now.
pub(crate) fn larder(place: &Place, given: Option<&Path>) -> Result<PathBuf> {
    match given {
        None => build(place).map(|()| place.larder()),
        Some(program) => program.canonicalize().with_context(|| format!("cannot find {}", program.display())),
    }
}
