//! The trees that are measured. They are installed once and kept for the next run.

use crate::place::{Place, fresh};
use crate::run::{self, Usage};
use anyhow::{Context, Result, ensure};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The name of the file beside the tree that says from which lock file it was installed.
const MARK: &str = "installed-by";
/// The packages that node loads from a restored tree.
const REQUIRED: [&str; 9] =
    ["typescript", "webpack", "express", "aws-sdk", "lodash", "graphql", "prettier", "@babel/core", "react-dom/server"];

/// A tree, and counts of its content.
pub(super) struct Tree {
    pub(super) kind: Kind,
    pub(super) path: PathBuf,
    pub(super) files: u64,
    pub(super) directories: u64,
    pub(super) bytes: u64,
}

/// The kind of a tree. It determines what is done with the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A `node_modules`, from which node loads packages.
    Packages,
    /// A repository that Maven downloaded.
    Repository,
    /// One of several trees of which only the size matters.
    Sized,
}

impl Kind {
    /// Returns the label of its progress bar.
    pub(super) fn word(self) -> &'static str {
        match self {
            Kind::Packages => "image",
            Kind::Repository => "image, Maven",
            Kind::Sized => "image, sizes",
        }
    }

    pub(super) fn has_jobs(self) -> bool {
        self != Kind::Sized
    }
}

impl Tree {
    fn at(path: PathBuf, kind: Kind) -> Result<Tree> {
        let (files, directories, bytes) = (count(&path, "f")?, count(&path, "d")?, bytes_of(&path)?);
        Ok(Tree { kind, path, files, directories, bytes })
    }

    /// Returns the last part of its path, which is the same everywhere.
    pub(super) fn name(&self) -> &OsStr {
        self.path.file_name().unwrap_or_default()
    }

    /// Returns a description of its content for people.
    pub(super) fn shown(&self) -> String {
        format!("{} files in {} directories, {:.0} MB", self.files, self.directories, self.bytes as f64 / 1e6)
    }

    /// Returns the repository that Maven downloads for the committed project.
    pub(super) fn of_maven(place: &Place) -> Result<Tree> {
        let dir = place.own("bench-image-tree-maven")?;
        let (path, project) = (dir.join("repository"), fs::read_to_string(app(place).join("pom.xml"))?);
        if fs::read_to_string(dir.join(MARK)).ok().as_ref() != Some(&project) {
            fresh(&path)?;
            fs::write(dir.join("pom.xml"), &project)?;
            println!("fetching the packages of {} with Maven", dir.join("pom.xml").display());
            let mut maven = Command::new("mvn");
            maven.args(["--batch-mode", "--quiet", "dependency:resolve"]).current_dir(&dir);
            maven.arg(format!("-Dmaven.repo.local={}", path.display()));
            run::shown_to_user(&mut maven).context("Maven could not fetch them")?;
            fs::write(dir.join(MARK), project)?;
        }
        Tree::at(path, Kind::Repository)
    }

    /// Copies packages of this tree with a tenth of its files.
    pub(super) fn tenth(&self, dir: &Path) -> Result<Tree> {
        let (path, wanted) = (dir.join(self.name()), self.files / 10);
        fs::create_dir_all(&path)?;
        let mut packages = fs::read_dir(&self.path)?.collect::<Result<Vec<_>, _>>()?;
        packages.sort_by_key(fs::DirEntry::file_name);
        let mut files = 0;
        for package in packages {
            let more = count(&package.path(), "f")?;
            // Some packages have more than a tenth of all files.
            if files + more <= wanted {
                copy(&package.path(), &path)?;
                files += more;
            }
        }
        Tree::at(path, Kind::Sized)
    }

    /// Copies this tree twice.
    pub(super) fn twice(&self, dir: &Path) -> Result<Tree> {
        let path = dir.join(self.name());
        for name in ["one", "two"] {
            fs::create_dir_all(path.join(name))?;
            copy(&self.path, &path.join(name))?;
        }
        Tree::at(path, Kind::Sized)
    }

    /// Returns this tree as one of which only the size matters.
    pub(super) fn into_sized(self) -> Tree {
        Tree { kind: Kind::Sized, ..self }
    }

    /// Returns the `node_modules` of the committed lock file, or a copy of the `given` directory.
    pub(super) fn installed(place: &Place, given: Option<&Path>, small: bool) -> Result<Tree> {
        let dir = place.own(if small { "bench-image-tree-small" } else { "bench-image-tree" })?;
        fs::create_dir_all(&dir)?;
        let path = dir.join("node_modules");
        let app = app(place);
        let mark = match given {
            Some(given) => given.display().to_string(),
            None => fs::read_to_string(app.join("package-lock.json"))?,
        };
        if fs::read_to_string(dir.join(MARK)).ok().as_ref() != Some(&mark) {
            let _ = fs::remove_dir_all(&path);
            match given {
                Some(given) => {
                    copy(given, &path)?;
                }
                None if small => install_few(&mark, &dir)?,
                None => install(&app, &dir)?,
            }
            fs::write(dir.join(MARK), mark)?;
        }
        Tree::at(path, Kind::Packages)
    }

    /// Loads packages from a copy of the tree at `place` with node. Returns `None` if it has none
    /// of these packages.
    pub(super) fn used(&self, place: &Path) -> Result<Option<Usage>> {
        if self.kind != Kind::Packages {
            return Ok(None);
        }
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

    /// Copies the tree and appends a line to each source of five packages, as new versions of them
    /// would change it.
    pub(super) fn changed(&self, copy: &Path) -> Result<()> {
        self::copy(&self.path, copy)?;
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

fn app(place: &Place) -> PathBuf {
    place.repo.join("xtask/src/bench/image/app")
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

fn install(app: &Path, dir: &Path) -> Result<()> {
    println!("installing the packages of {} with npm, scripts off", app.display());
    for name in ["package.json", "package-lock.json"] {
        fs::copy(app.join(name), dir.join(name))?;
    }
    let words = ["ci", "--ignore-scripts", "--legacy-peer-deps", "--no-audit", "--no-fund"];
    run::shown_to_user(Command::new("npm").args(words).current_dir(dir)).context("npm could not install them")
}

/// Installs the packages that are loaded, in the versions of the lock file, and their dependencies.
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
