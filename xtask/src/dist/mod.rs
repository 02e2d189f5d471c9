//! `cargo xtask dist`: makes the files of a release in `target/dist`, and tries them in a clean
//! root.
//!
//! | file | made from |
//! |---|---|
//! | `larder-VERSION-ARCH-linux.tar.gz` | the two static programs, man pages, completions, bills of materials |
//! | `larder-csi-VERSION-ARCH-linux.tar.gz` | these two and the CSI plugin, the recipe of its container image, the manifests for Kubernetes |
//! | `larder_VERSION_ARCH.deb` | the same, and systemd units |
//! | `crates/` | the packages for a registry of Rust, for `cargo install larder` |
//! | `install.sh`, `Containerfile` | `packaging/` |
//! | `SHA256SUMS`, `SHA256SUMS.sig` | all of these; signed with an SSH key |
//!
//! The same sources give the same bytes: files get the time of the commit, or `SOURCE_DATE_EPOCH`.

mod contents;
mod crates;
mod deb;
mod root;

use crate::arch::Arch;
use crate::files::{self, fresh};
use crate::place::{Place, on_path};
use crate::{binaries, run};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use self::contents::{Contents, VERSION};

/// The options of `cargo xtask dist`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The architectures; without this, all that can be built here
    #[arg(long, value_enum)]
    arch: Vec<Arch>,
    /// Take this machine's programs from this directory, and build nothing
    #[arg(long, value_name = "DIR", conflicts_with = "arch")]
    binaries: Option<PathBuf>,
    /// The URL of the directory where the release will be, for install.sh
    #[arg(long, value_name = "URL")]
    releases: Option<String>,
    /// Sign SHA256SUMS with this SSH key
    #[arg(long, value_name = "FILE")]
    sign_with: Option<PathBuf>,
    /// Leave out the bills of materials, whose tool takes minutes to build
    #[arg(long)]
    no_sbom: bool,
    /// The directory for the files, instead of target/dist. It is emptied first
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Also install the packages in a clean root, and build something there; and `larder` from the packages for a
    /// registry of Rust, which takes minutes
    #[arg(long = "try")]
    tried: bool,
    /// Also type the quick starts of README.md in the clean root, and write docs/transcripts.md
    #[arg(long, requires = "tried")]
    transcripts: bool,
}

/// Runs `cargo xtask dist`.
pub(crate) fn dist(place: &Place, options: &Options) -> Result<()> {
    let out = make(place, options)?;
    if options.tried {
        root::check(place, &out)?;
        crates::check(place, &out.join("crates"))?;
    }
    if options.transcripts {
        root::transcripts(place, &out)?;
    }
    Ok(())
}

/// Makes packages from the programs in `target/larder` and tries them, as a stage of `cargo xtask
/// test`.
pub(crate) fn stage(place: &Place) -> Result<()> {
    let programs = place.target.join(Arch::HOST.directory());
    let options = Options {
        arch: Vec::new(),
        binaries: Some(programs),
        releases: None,
        sign_with: None,
        no_sbom: true,
        out: Some(place.own("dist-tried")?),
        tried: false,
        transcripts: false,
    };
    let out = make(place, &options)?;
    root::check(place, &out)
}

fn make(place: &Place, options: &Options) -> Result<PathBuf> {
    let out = options.out.clone().unwrap_or_else(|| place.target.join("dist"));
    fresh(&out)?;
    let time = time(place)?;
    let archs = if options.arch.is_empty() { default_archs(options) } else { options.arch.clone() };
    for arch in archs {
        let programs = match &options.binaries {
            Some(dir) => dir.canonicalize().with_context(|| format!("cannot find {}", dir.display()))?,
            None => {
                binaries::build_for(place, arch)?;
                binaries::build_plugin_for(place, arch)?;
                place.target.join(arch.directory())
            }
        };
        // A program of another architecture cannot print its man pages.
        let host = if arch == Arch::HOST { programs.clone() } else { place.target.join(Arch::HOST.directory()) };
        let contents = Contents::gather(place, arch, &programs, &host, !options.no_sbom)?;
        let name = |program: &str| format!("{program}-{VERSION}-{}-linux", contents.arch_name());
        archive(&name("larder"), &out, time, |to| contents.lay_out_archive(to))?;
        if contents.has_plugin() {
            archive(&name(binaries::PLUGIN.name), &out, time, |to| contents.lay_out_plugin(place, to))?;
        } else {
            println!("no archive for Kubernetes: {} has no {}", programs.display(), binaries::PLUGIN.name);
        }
        deb::package(place, &contents, &out, time)?;
    }
    let releases = options.releases.as_deref().unwrap_or("@RELEASES@");
    let script = fs::read_to_string(place.repo.join("packaging/install.sh"))?;
    fs::write(out.join("install.sh"), script.replace("@VERSION@", VERSION).replace("@RELEASES@", releases))?;
    fs::copy(place.repo.join("packaging/Containerfile"), out.join("Containerfile"))?;
    sums(&out, options.sign_with.as_deref())?;
    crates::package(place, &out.join("crates"))?;
    for entry in files::list(&out)? {
        println!("{} {:.0} kB", entry.display(), fs::metadata(&entry)?.len() as f64 / 1000.0);
    }
    Ok(out)
}

/// Returns this machine's architecture, and aarch64 if its cross compiler is installed.
fn default_archs(options: &Options) -> Vec<Arch> {
    let crosses = options.binaries.is_none() && Arch::HOST == Arch::X86_64;
    match crosses && on_path("aarch64-linux-gnu-gcc").is_some() {
        true => vec![Arch::HOST, Arch::Aarch64],
        false => vec![Arch::HOST],
    }
}

/// Returns the time that all files get, in seconds since 1970.
fn time(place: &Place) -> Result<u64> {
    let text = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(time) => time,
        Err(_) => run::output(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(&place.repo))?,
    };
    text.trim().parse().with_context(|| format!("{text:?} is no time in seconds since 1970"))
}

/// Writes `NAME.tar.gz` with a directory of that name, which `lay_out` fills.
fn archive(name: &str, out: &Path, time: u64, lay_out: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let tree = out.join("tree");
    fresh(&tree)?;
    lay_out(&tree.join(name))?;
    let archive = out.join(format!("{name}.tar.gz"));
    let line = "tar --sort=name --mtime=@\"$1\" --owner=0 --group=0 --numeric-owner --format=ustar -cf - -C \"$2\" \"$3\" | gzip -9n >\"$4\"";
    let mut command = Command::new("sh");
    command.args(["-euc", line, "sh", &time.to_string()]).arg(&tree).arg(name).arg(&archive);
    run::shown_to_user(&mut command)?;
    fs::remove_dir_all(&tree)?;
    Ok(())
}

/// Writes the sums of all files, and the signature.
fn sums(out: &Path, sign_with: Option<&Path>) -> Result<()> {
    let files = files::list(out)?;
    let names: Vec<_> = files.iter().filter_map(|path| path.file_name()).collect();
    let sums = run::output(Command::new("sha256sum").arg("--").args(names).current_dir(out))?;
    fs::write(out.join("SHA256SUMS"), sums)?;
    if let Some(key) = sign_with {
        let mut sign = Command::new("ssh-keygen");
        sign.args(["-q", "-Y", "sign", "-n", "larder", "-f"]).arg(key).arg(out.join("SHA256SUMS"));
        run::shown_to_user(&mut sign)?;
        ensure!(out.join("SHA256SUMS.sig").exists(), "ssh-keygen wrote no signature");
    }
    Ok(())
}
