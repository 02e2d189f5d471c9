//! The trees that are measured. They are installed once and kept for the next run.

use crate::files::{self, fresh};
use crate::place::Place;
use crate::run::{self, Usage};
use anyhow::{Context, Result};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The packages of a web application of ordinary size.
const PACKAGES: &str = include_str!("package.json");
/// npm installs the newest versions of this moment, so a later run installs the same tree.
const BEFORE: &str = "2026-11-21T00:00:00Z";
/// The packages that node loads from a restored tree, and their versions in it. The small tree has
/// only them and their dependencies.
const LOADED: [(&str, &str); 9] = [
    ("typescript", "4.6.3"),
    ("webpack", "4.44.2"),
    ("express", "4.17.3"),
    ("aws-sdk", "2.1116.0"),
    ("lodash", "4.18.1"),
    ("graphql", "16.4.0"),
    ("prettier", "2.6.2"),
    ("@babel/core", "7.29.13"),
    ("react-dom", "17.0.2"),
];
/// The name of the file beside the tree that says what it was installed from.
const MARK: &str = "installed-from";

/// A tree, and counts of its content.
pub(super) struct Tree {
    pub(super) path: PathBuf,
    pub(super) files: u64,
    pub(super) directories: u64,
    pub(super) bytes: u64,
    /// True for one of several trees of which only the size matters.
    pub(super) is_sized: bool,
}

impl Tree {
    fn at(path: PathBuf, is_sized: bool) -> Result<Tree> {
        let (files, directories, bytes) = (count(&path, "f")?, count(&path, "d")?, bytes_of(&path)?);
        Ok(Tree { path, files, directories, bytes, is_sized })
    }

    /// Returns the last part of its path, which is the same everywhere.
    pub(super) fn name(&self) -> &OsStr {
        self.path.file_name().unwrap_or_default()
    }

    /// Returns a description of its content for people.
    pub(super) fn shown(&self) -> String {
        format!("{} files in {} directories, {:.0} MB", self.files, self.directories, self.bytes as f64 / 1e6)
    }

    /// Returns the `node_modules` of all packages, or of those that are loaded.
    pub(super) fn installed(place: &Place, small: bool) -> Result<Tree> {
        let dir = place.own(if small { "bench-image-tree-small" } else { "bench-image-tree" })?;
        let path = dir.join("node_modules");
        let mark = format!("{BEFORE} {LOADED:?} {PACKAGES}");
        if fs::read_to_string(dir.join(MARK)).ok().as_ref() != Some(&mark) {
            fresh(&dir)?;
            println!("installing packages with npm, scripts off, in {}", dir.display());
            let mut npm = Command::new("npm");
            npm.args(["install", "--ignore-scripts", "--legacy-peer-deps", "--no-audit", "--no-fund"]);
            npm.args(["--no-package-lock", "--no-save", "--before", BEFORE]).current_dir(&dir);
            if small {
                npm.args(
                    LOADED.iter().chain(&[("react", "17.0.2")]).map(|(name, version)| format!("{name}@{version}")),
                );
            }
            fs::write(dir.join("package.json"), if small { "{ \"private\": true }\n" } else { PACKAGES })?;
            run::shown_to_user(&mut npm).context("npm could not install them")?;
            fs::write(dir.join(MARK), mark)?;
        }
        Tree::at(path, false)
    }

    /// Copies packages of this tree with a tenth of its files.
    pub(super) fn tenth(&self, dir: &Path) -> Result<Tree> {
        let (path, wanted) = (dir.join(self.name()), self.files / 10);
        files::make(&path)?;
        let mut files = 0;
        for package in files::list(&self.path)? {
            let more = count(&package, "f")?;
            // Some packages have more than a tenth of all files.
            if files + more <= wanted {
                copy(&package, &path)?;
                files += more;
            }
        }
        Tree::at(path, true)
    }

    /// Copies this tree twice.
    pub(super) fn twice(&self, dir: &Path) -> Result<Tree> {
        let path = dir.join(self.name());
        for name in ["one", "two"] {
            files::make(path.join(name))?;
            copy(&self.path, &path.join(name))?;
        }
        Tree::at(path, true)
    }

    /// Loads packages from a copy of the tree at `place` with node.
    pub(super) fn load(&self, place: &Path) -> Result<Usage> {
        let script: String = LOADED.iter().map(|(package, _)| format!("require({package:?});")).collect();
        let mut node = Command::new("node");
        node.args(["-e", &script]).current_dir(place.parent().context("has one")?);
        run::silent(&mut node).with_context(|| format!("node cannot load packages from {}", place.display()))
    }

    /// Copies the tree and appends a line to each source of five packages, as new versions of them
    /// would change it.
    pub(super) fn changed(&self, copy: &Path) -> Result<()> {
        self::copy(&self.path, copy)?;
        let packages = ["express", "lodash", "prettier", "react-dom", "graphql"].map(|package| copy.join(package));
        let script = "find \"$@\" -name '*.js' -type f -exec sed -i '$a // changed' {} +";
        run::output(Command::new("sh").args(["-c", script, "sh"]).args(packages.iter().filter(|path| path.exists())))
            .map(drop)
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    run::output(Command::new("cp").args(["-a", "--"]).arg(from).arg(to)).map(drop)
}

/// Returns the number of files (`f`) or directories (`d`) below `path`.
fn count(path: &Path, kind: &str) -> Result<u64> {
    let found = run::output(Command::new("find").arg(path).args(["-type", kind, "-printf", "x"]))?;
    Ok(found.len() as u64)
}

/// Returns the size of a file, or of all files below a directory, in bytes.
pub(super) fn bytes_of(path: &Path) -> Result<u64> {
    let found = run::output(Command::new("du").args(["-sb", "--"]).arg(path))?;
    found.split_whitespace().next().and_then(|number| number.parse().ok()).context("du says how much")
}
