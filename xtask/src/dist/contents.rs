//! Collects the files of every package: programs, man pages, completions, licences, bills of materials.
//!
//! Unaware of: the form of a package.

use crate::arch::Arch;
use crate::binaries::{BINARIES, PLUGIN, Program};
use crate::files::{self, fresh};
use crate::place::Place;
use crate::{run, supply};
use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The version of the release: that of this workspace.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The files of a package, gathered in one directory.
pub(super) struct Contents {
    pub(super) arch: Arch,
    dir: PathBuf,
    sboms: Vec<PathBuf>,
    documents: Vec<PathBuf>,
}

/// The shells, and the names that their completions need.
pub(super) const COMPLETIONS: [(&str, &str); 3] = [("bash", "larder"), ("zsh", "_larder"), ("fish", "larder.fish")];

impl Contents {
    /// Gathers everything. `host` has programs that run here, to print man pages and completions.
    pub(super) fn gather(place: &Place, arch: Arch, programs: &Path, host: &Path, sbom: bool) -> Result<Contents> {
        let dir = place.own("dist")?.join(arch.directory());
        fresh(&dir)?;
        for Program { name, .. } in BINARIES {
            install(&programs.join(name), &dir.join(name), 0o755)?;
        }
        if programs.join(PLUGIN.name).is_file() {
            install(&programs.join(PLUGIN.name), &dir.join(PLUGIN.name), 0o755)?;
        }
        let larder = host.join("larder");
        run::output(Command::new(&larder).args(["man", "--dir"]).arg(dir.join("man")))?;
        for (shell, name) in COMPLETIONS {
            let text = run::output(Command::new(&larder).args(["completions", shell]))?;
            files::write(dir.join("completions").join(name), text)?;
        }
        let documents = ["CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT", "README.md"];
        let sboms = if sbom { sboms(place)? } else { Vec::new() };
        Ok(Contents { arch, dir, sboms, documents: documents.map(|name| place.repo.join(name)).to_vec() })
    }

    /// Returns the architecture as `uname -m` prints it.
    pub(super) fn arch_name(&self) -> &'static str {
        match self.arch {
            Arch::X86_64 => "x86_64",
            Arch::Aarch64 => "aarch64",
        }
    }

    /// Returns the path of a gathered file.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Returns the man pages.
    pub(super) fn man_pages(&self) -> Result<Vec<PathBuf>> {
        files::list(self.dir.join("man"))
    }

    /// Lays out the directory that the archive holds.
    pub(super) fn lay_out_archive(&self, to: &Path) -> Result<()> {
        for Program { name, .. } in BINARIES {
            install(&self.path(name), &to.join(name), 0o755)?;
        }
        for page in self.man_pages()? {
            install(&page, &to.join("man").join(page.file_name().context("a file has a name")?), 0o644)?;
        }
        for (_, name) in COMPLETIONS {
            install(&self.path("completions").join(name), &to.join("completions").join(name), 0o644)?;
        }
        for file in self.documents.iter().chain(&self.sboms) {
            install(file, &to.join(file.file_name().context("a file has a name")?), 0o644)?;
        }
        let recipe = self.documents[0].with_file_name("packaging").join("Containerfile");
        install(&recipe, &to.join("Containerfile"), 0o644)
    }

    /// Returns true if there is the CSI plugin.
    pub(super) fn has_plugin(&self) -> bool {
        self.path(PLUGIN.name).is_file()
    }

    /// Lays out the directory that the archive for Kubernetes holds. A container image can be built
    /// there.
    pub(super) fn lay_out_plugin(&self, place: &Place, to: &Path) -> Result<()> {
        for Program { name, .. } in BINARIES.iter().chain([&PLUGIN]) {
            install(&self.path(name), &to.join(name), 0o755)?;
        }
        let manifests = place.repo.join("packaging/kubernetes");
        for from in [manifests.clone(), manifests.join("examples")] {
            for file in files::list(&from)?.iter().filter(|file| file.is_file()) {
                let below = file.strip_prefix(&manifests)?;
                let is_recipe = below == Path::new("Containerfile");
                install(file, &if is_recipe { to.join(below) } else { to.join("kubernetes").join(below) }, 0o644)?;
            }
        }
        let licences = self.documents.iter().filter(|file| !file.ends_with("README.md"));
        licences
            .into_iter()
            .try_for_each(|file| install(file, &to.join(file.file_name().context("a file has a name")?), 0o644))
    }

    /// Returns the bills of materials.
    pub(super) fn sboms(&self) -> &[PathBuf] {
        &self.sboms
    }
}

/// Copies a file, with its directory and mode.
pub(super) fn install(from: &Path, to: &Path, mode: u32) -> Result<()> {
    files::copy(from, to)?;
    Ok(fs::set_permissions(to, fs::Permissions::from_mode(mode))?)
}

/// Writes the bills of materials beside the programs, and returns their paths.
fn sboms(place: &Place) -> Result<Vec<PathBuf>> {
    supply::write_sboms(place)?;
    let dir = place.target.join("larder");
    Ok(files::list(&dir)?.into_iter().filter(|path| path.to_string_lossy().ends_with(".cdx.json")).collect())
}
