//! Paths: the repository, the target directory, and the directories that xtask makes in it.

use crate::files;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The directories that every command shares.
pub(crate) struct Place {
    /// The workspace's root.
    pub(crate) repo: PathBuf,
    /// `CARGO_TARGET_DIR`, or else `target` in the workspace.
    pub(crate) target: PathBuf,
}

impl Place {
    /// Finds the workspace that this program was built in.
    pub(crate) fn find() -> Result<Self> {
        let manifest = env::var_os("CARGO_MANIFEST_DIR").context("cargo must start xtask: run `cargo xtask …`")?;
        let Some(repo) = Path::new(&manifest).parent().map(Path::to_path_buf) else {
            bail!("{} has no parent directory", Path::new(&manifest).display());
        };
        let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| repo.join("target"), |dir| repo.join(dir));
        Ok(Self { repo, target })
    }

    /// Returns the cargo that started xtask, to run in the repository.
    pub(crate) fn cargo(&self) -> Command {
        let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.current_dir(&self.repo).env("CARGO_TARGET_DIR", &self.target);
        cargo
    }

    /// Returns the wrapper that `cargo xtask build` made. `larderd` is beside it.
    pub(crate) fn larder(&self) -> PathBuf {
        self.target.join("larder/larder")
    }

    /// Returns a directory for xtask's own files, and makes it if necessary.
    pub(crate) fn own(&self, name: &str) -> Result<PathBuf> {
        let dir = self.target.join("xtask").join(name);
        files::make(&dir)?;
        Ok(dir)
    }

    /// Returns a directory for files that take long to make and are the same for all checkouts:
    /// `$XDG_CACHE_HOME/larder-xtask`.
    pub(crate) fn lasting(&self) -> Result<PathBuf> {
        let named = |name: &str| env::var_os(name).map(PathBuf::from).filter(|dir| dir.is_absolute());
        let caches = named("XDG_CACHE_HOME").or_else(|| named("HOME").map(|home| home.join(".cache")));
        let Some(caches) = caches else { return self.own("downloads") };
        let dir = caches.join("larder-xtask");
        files::make(&dir)?;
        Ok(dir)
    }

    /// Returns the directory for the JSON and Markdown of benchmarks.
    pub(crate) fn results(&self) -> Result<PathBuf> {
        let dir = self.target.join("bench");
        files::make(&dir)?;
        Ok(dir)
    }

    /// Returns the directory of the accepted report.
    pub(crate) fn accepted(&self) -> PathBuf {
        self.repo.join("benches/results")
    }
}

/// Returns the first executable file of that name on `PATH`.
pub(crate) fn on_path(name: &str) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let runs =
        |file: &PathBuf| fs::metadata(file).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0);
    env::split_paths(&env::var_os("PATH")?).map(|dir| dir.join(name)).find(runs)
}
