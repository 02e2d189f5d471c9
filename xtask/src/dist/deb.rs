//! The Debian package. It has no maintainer scripts: nothing is started or enabled, and removing it
//! leaves nothing but stores of users.
//!
//! Unaware of: how the programs are built.

use super::contents::{COMPLETIONS, Contents, VERSION, install};
use crate::arch::Arch;
use crate::files::{self, fresh};
use crate::place::{Place, on_path};
use crate::run;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The directories of completions, in the order of [`COMPLETIONS`].
const COMPLETION_DIRS: [&str; 3] =
    ["bash-completion/completions", "zsh/vendor-completions", "fish/vendor_completions.d"];

/// Makes the package, and checks it with lintian if that is installed.
pub(super) fn package(place: &Place, contents: &Contents, out: &Path, time: u64) -> Result<()> {
    let architecture = match contents.arch {
        Arch::X86_64 => "amd64",
        Arch::Aarch64 => "arm64",
    };
    let tree = out.join("deb");
    fresh(&tree)?;
    lay_out(place, contents, &tree, time)?;
    control(place, &tree, architecture)?;
    for path in all_below(&tree)? {
        let is_program = path.parent().is_some_and(|directory| directory.ends_with("usr/bin"));
        let mode = if path.is_dir() || is_program { 0o755 } else { 0o644 };
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
    }
    let package = out.join(format!("larder_{VERSION}_{architecture}.deb"));
    let mut build = Command::new("dpkg-deb");
    build.args(["--root-owner-group", "--build", "-Zxz"]).arg(&tree).arg(&package);
    run::output(build.env("SOURCE_DATE_EPOCH", time.to_string()))?;
    fs::remove_dir_all(&tree)?;
    if on_path("lintian").is_none() {
        println!("lintian is not installed, so it does not check {}", package.display());
        return Ok(());
    }
    run::shown_to_user(Command::new("lintian").args(["--fail-on", "error,warning", "--allow-root"]).arg(&package))
}

fn lay_out(place: &Place, contents: &Contents, tree: &Path, time: u64) -> Result<()> {
    for program in ["larder", "larderd"] {
        install(&contents.path(program), &tree.join("usr/bin").join(program), 0o755)?;
    }
    for page in contents.man_pages()? {
        let name = page.file_name().context("a file has a name")?;
        let to = tree.join("usr/share/man/man1").join(name);
        install(&page, &to, 0o644)?;
        compress(&to)?;
    }
    // larderd has no page of its own: it answers the subcommands of larder.
    symlink("larder.1.gz", tree.join("usr/share/man/man1/larderd.1.gz"))?;
    for ((_, name), directory) in COMPLETIONS.iter().zip(COMPLETION_DIRS) {
        let to = tree.join("usr/share").join(directory).join(name);
        install(&contents.path("completions").join(name), &to, 0o644)?;
    }
    let documents = tree.join("usr/share/doc/larder");
    let packaging = place.repo.join("packaging/deb");
    install(&packaging.join("copyright"), &documents.join("copyright"), 0o644)?;
    for sbom in contents.sboms() {
        let to = documents.join(sbom.file_name().context("a file has a name")?);
        install(sbom, &to, 0o644)?;
        compress(&to)?;
    }
    install(&packaging.join("lintian-overrides"), &tree.join("usr/share/lintian/overrides/larder"), 0o644)?;
    let date = run::output(Command::new("date").args(["-u", "-R", "-d", &format!("@{time}")]))?;
    let changes = format!(
        "larder ({VERSION}) unstable; urgency=medium\n\n  * See CHANGELOG.md in the sources.\n\n \
         -- The larder authors <larder@example.org>  {date}"
    );
    fs::write(documents.join("changelog"), changes)?;
    compress(&documents.join("changelog"))?;
    units(place, tree)
}

/// Writes the systemd units from the templates of larderd. `%C` is the user's cache directory, or
/// `/var/cache` for units of the system.
fn units(place: &Place, tree: &Path) -> Result<()> {
    let templates = place.repo.join("crates/daemon/units");
    let format = fs::read_to_string(place.repo.join("crates/base/model/src/lib.rs"))?;
    let version = format.lines().find_map(|line| line.strip_prefix("pub const FORMAT_VERSION: u8 = "));
    let version =
        version.context("the store's format version is not in crates/base/model/src/lib.rs")?.trim_end_matches(';');
    let socket = format!("%C/larder/v{version}/daemon.sock");
    for (unit, directory, store) in [
        ("larderd.socket", "user", "%C/larder"),
        ("larderd.service", "user", "%C/larder"),
        ("larder-broker.service", "system", "/var/lib/larder"),
    ] {
        let text = fs::read_to_string(templates.join(unit))?;
        let text = text
            .replace("@LARDERD@", "/usr/bin/larderd")
            .replace("@VARIABLE@", &format!("LARDER_DIR={store}"))
            .replace("@TARGETS@", "")
            .replace("@SOCKET@", &socket);
        ensure!(!text.contains('@'), "{unit} has a placeholder that is not filled in");
        let to = tree.join("usr/lib/systemd").join(directory).join(unit);
        files::write(&to, text)?;
    }
    Ok(())
}

/// Writes the control file and the sums.
fn control(place: &Place, tree: &Path, architecture: &str) -> Result<()> {
    let files: Vec<PathBuf> =
        all_below(tree)?.into_iter().filter(|path| path.is_file() && !path.is_symlink()).collect();
    let bytes: u64 = files.iter().filter_map(|path| fs::metadata(path).ok()).map(|look| look.len()).sum();
    let names: Vec<_> = files.iter().filter_map(|path| path.strip_prefix(tree).ok()).collect();
    let sums = run::output(Command::new("md5sum").arg("--").args(names).current_dir(tree))?;
    let template = fs::read_to_string(place.repo.join("packaging/deb/control"))?;
    let text = template
        .replace("@VERSION@", VERSION)
        .replace("@ARCHITECTURE@", architecture)
        .replace("@SIZE@", &bytes.div_ceil(1024).to_string());
    let directory = tree.join("DEBIAN");
    files::write(directory.join("control"), text)?;
    files::write(directory.join("md5sums"), sums)
}

fn compress(path: &Path) -> Result<()> {
    run::output(Command::new("gzip").arg("-9n").arg(path)).map(drop)
}

/// Returns everything below a directory, sorted.
fn all_below(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for path in files::list(directory)? {
        all.push(path.clone());
        if path.is_dir() {
            all.extend(all_below(&path)?);
        }
    }
    Ok(all)
}
