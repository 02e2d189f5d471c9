//! The tree that is measured: installed once, kept for the next time.

use super::bytes_of;
use crate::place::Place;
use crate::run::{self, Usage};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What was installed, and by which lock file: both beside it.
const MARK: &str = "installed-by";
/// Packages that a program of ordinary size loads.
const REQUIRED: [&str; 9] =
    ["typescript", "webpack", "express", "aws-sdk", "lodash", "graphql", "prettier", "@babel/core", "react-dom/server"];

/// A tree, and what is in it.
pub(crate) struct Tree {
    pub(crate) path: PathBuf,
    pub(crate) files: u64,
    pub(crate) directories: u64,
    pub(crate) bytes: u64,
}

impl Tree {
    /// The `node_modules` of the committed lock file, or a copy of another directory.
    pub(crate) fn installed(place: &Place, given: Option<&Path>, small: bool) -> Result<Tree> {
        let dir = place.own(if small { "bench-image-tree-small" } else { "bench-image-tree" })?;
        fs::create_dir_all(&dir)?;
        let path = dir.join("node_modules");
        let app = place.repo.join("xtask/src/bench/image/app");
        let mark = match given {
            Some(given) => given.display().to_string(),
            None => fs::read_to_string(app.join("package-lock.json"))?,
        };
        if fs::read_to_string(dir.join(MARK)).ok().as_ref() != Some(&mark) {
            let _ = fs::remove_dir_all(&path);
            match given {
                Some(given) => {
                    run::output(Command::new("cp").args(["-a", "--"]).arg(given).arg(&path))?;
                }
                None if small => install_few(&mark, &dir)?,
                None => install(&app, &dir)?,
            }
            fs::write(dir.join(MARK), mark)?;
        }
        let count = |kind: &str| -> Result<u64> {
            let found = run::output(Command::new("find").arg(&path).args(["-type", kind, "-printf", "x"]))?;
            Ok(found.len() as u64)
        };
        let bytes = bytes_of(&path)?;
        Ok(Tree { files: count("f")?, directories: count("d")?, bytes, path })
    }

    /// Have node load packages from a copy of the tree at `place`; none where it has none of them.
    pub(crate) fn used(&self, place: &Path) -> Result<Option<Usage>> {
        let is_there = |package: &&&str| self.path.join(package.trim_end_matches("/server")).exists();
        let script: String = REQUIRED.iter().filter(is_there).map(|package| format!("require({package:?});")).collect();
        if script.is_empty() {
            return Ok(None);
        }
        let parent = place.parent().context("has one")?;
        let mut node = Command::new("node");
        node.args(["-e", &script]).current_dir(parent).stdout(Stdio::null()).stderr(Stdio::null());
        let (status, usage) = run::measured(&mut node)?;
        ensure!(status.success(), "node cannot load packages from {}", place.display());
        Ok(Some(usage))
    }

    /// Change five packages in a copy of the tree, as new versions of them would: a line more in each of their sources.
    pub(crate) fn changed(&self, copy: &Path) -> Result<()> {
        run::output(Command::new("cp").args(["-a", "--"]).arg(&self.path).arg(copy))?;
        for package in ["express", "lodash", "prettier", "react-dom", "graphql"] {
            if !copy.join(package).exists() {
                continue;
            }
            let mut find = Command::new("find");
            find.arg(copy.join(package)).args([
                "-name",
                "*.js",
                "-type",
                "f",
                "-exec",
                "sed",
                "-i",
                "$a // changed",
                "{}",
                "+",
            ]);
            run::output(&mut find)?;
        }
        Ok(())
    }
}

fn install(app: &Path, dir: &Path) -> Result<()> {
    println!("installing the packages of {} with npm, scripts off", app.display());
    for name in ["package.json", "package-lock.json"] {
        fs::copy(app.join(name), dir.join(name))?;
    }
    let words = ["ci", "--ignore-scripts", "--legacy-peer-deps", "--no-audit", "--no-fund"];
    run::shown_to_user(Command::new("npm").args(words).current_dir(dir)).context("npm could not install them")
}

/// The packages that are loaded, of the versions in the lock file, and what they need.
fn install_few(lock: &str, dir: &Path) -> Result<()> {
    println!("installing nine packages with npm, scripts off");
    let lock: serde_json::Value = serde_json::from_str(lock)?;
    let mut npm = Command::new("npm");
    npm.args(["install", "--ignore-scripts", "--legacy-peer-deps", "--no-audit", "--no-fund", "--no-save"]);
    npm.arg("--no-package-lock").current_dir(dir);
    for package in REQUIRED.map(|package| package.trim_end_matches("/server")).into_iter().chain(["react"]) {
        let version = lock["packages"][format!("node_modules/{package}")]["version"].as_str();
        npm.arg(format!("{package}@{}", version.with_context(|| format!("{package} is not in the lock file"))?));
    }
    fs::write(dir.join("package.json"), "{ \"private\": true }\n")?;
    run::shown_to_user(&mut npm).context("npm could not install them")
}
