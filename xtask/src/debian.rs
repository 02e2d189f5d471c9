//! Downloads and unpacks Debian's packages of several releases and architectures, without
//! installing them: kernels and single programs.
//!
//! apt-get downloads and verifies them, with its own package lists below `target`, so the machine's
//! lists and packages do not change. The mirror is the one that this machine's apt uses for its own
//! release, if it is Debian. Otherwise the environment variable `DEBIAN_MIRROR` names it.

use crate::files::{self, fresh, remove};
use crate::run;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Names the mirror if this machine's apt has none of Debian.
const MIRROR_VARIABLE: &str = "DEBIAN_MIRROR";
/// The keys of the releases, from the package `debian-archive-keyring`.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// The suites with kernels. A suite that the mirror does not have is left out.
const SUITES: &str = "bullseye bullseye-security bookworm bookworm-security bookworm-backports trixie trixie-security \
     trixie-backports sid";

/// A kernel that can be booted.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    /// The file that boot loaders load.
    pub(crate) image: PathBuf,
    /// The directory with its `modules.dep`.
    pub(crate) modules: PathBuf,
}

/// The packages of one architecture, by Debian's name: `amd64`, `arm64`.
#[derive(Debug)]
pub(crate) struct Archive {
    architecture: &'static str,
    dir: PathBuf,
}

/// Returns the mirror of this machine, for example for debootstrap.
pub(crate) fn mirror() -> Result<String> {
    let mut command = Command::new("apt-get");
    command.args(["indextargets", "--format", "$(ORIGIN) $(SITE)", "Created-By: Packages"]);
    let listed = run::output(&mut command).unwrap_or_default();
    let ours = listed.lines().find_map(|line| line.strip_prefix("Debian "));
    let ours = ours.filter(|site| !site.ends_with("-security")).map(str::to_owned);
    ours.or_else(|| std::env::var(MIRROR_VARIABLE).ok()).with_context(|| {
        format!("apt has no mirror of Debian on this machine: set {MIRROR_VARIABLE} to the address of one")
    })
}

impl Archive {
    /// Opens the archive. `dir` keeps its lists and unpacked packages. Nothing is downloaded yet.
    pub(crate) fn new(architecture: &'static str, dir: &Path) -> Self {
        Self { architecture, dir: dir.join(architecture) }
    }

    /// Returns the newest kernel whose version begins with `series`, for example `6.1`. The empty
    /// text means the newest of all. A kernel that was unpacked before is used without asking the
    /// mirror.
    pub(crate) fn kernel(&self, series: &str) -> Result<Kernel> {
        let dir = self.dir.join("kernels").join(if series.is_empty() { "newest" } else { series });
        if !dir.is_dir() {
            let package = self.newest_kernel(series)?;
            eprintln!("downloading {package}");
            let parts =
                [package.clone(), package.replacen("image", "binary", 1), package.replacen("image", "modules", 1)];
            // Since Linux 7.2 this package only depends on the two others, which earlier versions
            // do not have.
            let split = self.has(&parts[1])?;
            let names: Vec<&str> = if split { &parts[1..] } else { &parts[..1] }.iter().map(String::as_str).collect();
            self.unpacked(&names, &dir, |tree| self.arranged(tree))?;
        }
        let release =
            fs::read_to_string(dir.join("release")).with_context(|| format!("{} is damaged", dir.display()))?;
        Ok(Kernel { image: dir.join("vmlinuz"), modules: dir.join("lib/modules").join(release) })
    }

    /// Returns a file of a package, for example `bin/busybox` of `busybox-static`.
    pub(crate) fn file(&self, package: &str, file: &str) -> Result<PathBuf> {
        let dir = self.dir.join("packages").join(package);
        if !dir.is_dir() {
            self.updated()?;
            eprintln!("downloading {package}");
            self.unpacked(&[package], &dir, |_| Ok(()))?;
        }
        let places = [dir.join(file), dir.join("usr").join(file)];
        places.into_iter().find(|file| file.exists()).with_context(|| format!("{package} has no {file}"))
    }

    /// Moves the kernel and modules to the paths that `kernel` expects. Newer packages have both in
    /// `/usr/lib/modules`.
    fn arranged(&self, tree: &Path) -> Result<()> {
        let below_usr = tree.join("usr/lib/modules");
        let listed = if below_usr.is_dir() { below_usr } else { tree.join("lib/modules") };
        let entry = fs::read_dir(&listed).with_context(|| format!("cannot list {}", listed.display()))?.next();
        let modules = entry.context("the package has no modules")??;
        let release = modules.file_name().to_string_lossy().into_owned();
        let moved = tree.join("lib/modules").join(&release);
        if modules.path() != moved {
            files::rename(modules.path(), &moved)?;
        }
        let images = [tree.join(format!("boot/vmlinuz-{release}")), moved.join("vmlinuz")];
        let image = images.iter().find(|image| image.exists()).context("the package has no kernel")?;
        files::rename(image, tree.join("vmlinuz"))?;
        // Newer depmods look in /usr/lib/modules.
        let other = tree.join("usr/lib/modules");
        if fs::remove_dir(&other).is_ok() || !other.exists() {
            files::make(tree.join("usr/lib"))?;
            std::os::unix::fs::symlink("../../lib/modules", &other)
                .with_context(|| format!("cannot make {}", other.display()))?;
        }
        run::output(Command::new("depmod").arg("-b").arg(tree).arg(&release))?;
        files::write(tree.join("release"), &release)
    }

    fn newest_kernel(&self, series: &str) -> Result<String> {
        self.updated()?;
        let listed = run::output(self.apt("apt-cache").args(["pkgnames", &format!("linux-image-{series}")]))?;
        let end = format!("-{}", self.architecture);
        let newest = listed.lines().filter(|name| is_kernel(name, series, &end)).max_by_key(|name| numbers(name));
        let wanted = if series.is_empty() { "kernel" } else { series };
        newest.map(str::to_owned).with_context(|| format!("the mirror's releases have no Linux {wanted}"))
    }

    fn has(&self, package: &str) -> Result<bool> {
        let listed = run::output(self.apt("apt-cache").args(["pkgnames", package]))?;
        Ok(listed.lines().any(|name| name == package))
    }

    /// Downloads packages and unpacks them into one directory, which appears when it is complete.
    fn unpacked(&self, packages: &[&str], to: &Path, arrange: impl Fn(&Path) -> Result<()>) -> Result<()> {
        let downloads = self.dir.join("downloads");
        fresh(&downloads)?;
        run::output(self.apt("apt-get").args(["-q", "download"]).args(packages).current_dir(&downloads))
            .with_context(|| format!("{} cannot be downloaded", packages.join(", ")))?;
        let unfinished = to.with_extension("unfinished");
        fresh(&unfinished)?;
        for package in files::list(&downloads)? {
            run::output(Command::new("dpkg-deb").arg("-x").arg(package).arg(&unfinished))?;
        }
        arrange(&unfinished)?;
        remove(&downloads)?;
        files::rename(&unfinished, to)
    }

    /// Downloads the package lists, once for each directory.
    fn updated(&self) -> Result<()> {
        let sources = self.dir.join("sources.list");
        if sources.exists() {
            return Ok(());
        }
        ensure!(Path::new(KEYRING).exists(), "{KEYRING} is missing; it is in the package debian-archive-keyring");
        for dir in ["lists/partial", "cache/archives/partial", "kernels", "packages"] {
            files::make(self.dir.join(dir))?;
        }
        files::write(self.dir.join("status"), "")?;
        let mirror = mirror()?;
        let line = |suite: &str| {
            let mirror = if suite.ends_with("-security") { format!("{mirror}-security") } else { mirror.clone() };
            format!("deb [signed-by={KEYRING}] {mirror} {suite} main\n")
        };
        let unfinished = self.dir.join("sources.unfinished");
        files::write(&unfinished, SUITES.split(' ').map(line).collect::<String>())?;
        eprintln!("fetching the lists of Debian's packages for {}", self.architecture);
        let setting = format!("Dir::Etc::sourcelist={}", unfinished.display());
        // apt-get only warns about suites that do not exist.
        run::output(self.apt("apt-get").args(["-o", &setting, "-q", "update"]))?;
        files::rename(&unfinished, &sources)
    }

    fn apt(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let dir = self.dir.display();
        for setting in [
            format!("APT::Architecture={}", self.architecture),
            format!("APT::Architectures={}", self.architecture),
            // Otherwise apt-get warns about each download into a directory of root.
            "APT::Sandbox::User=root".to_owned(),
            format!("Dir::Etc::sourcelist={dir}/sources.list"),
            // Descriptions of packages are not needed.
            "Acquire::Languages=none".to_owned(),
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false".to_owned(),
            "Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled=false".to_owned(),
            "Dir::Etc::sourceparts=/dev/null".to_owned(),
            "Dir::Etc::preferencesparts=/dev/null".to_owned(),
            format!("Dir::State::lists={dir}/lists"),
            format!("Dir::State::status={dir}/status"),
            format!("Dir::Cache={dir}/cache"),
        ] {
            command.args(["-o", &setting]);
        }
        command
    }
}

/// Returns true if a package is a kernel of the series for ordinary machines, not for clouds or
/// real time.
fn is_kernel(name: &str, series: &str, end: &str) -> bool {
    let Some(version) = name.strip_prefix("linux-image-").and_then(|rest| rest.strip_suffix(end)) else { return false };
    let Some(rest) = version.strip_prefix(series) else { return false };
    // `5.10.0-46` matches, but not the package that depends on the newest (`6.12`), and not 6.12 if
    // 6.1 is wanted.
    let is_series = series.is_empty() || rest.starts_with('.');
    let letters = ["cloud", "rt", "uki", "dbg", "16k"];
    let is_version = version.starts_with(|first: char| first.is_ascii_digit()) && version.matches('.').count() >= 2;
    is_series && is_version && !letters.iter().any(|word| version.contains(word))
}

/// Returns the numbers in a name, by which kernel versions are ordered.
fn numbers(name: &str) -> Vec<u64> {
    name.split(|part: char| !part.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_by_name() {
        let is = |name, series| is_kernel(name, series, "-amd64");
        assert!(is("linux-image-5.10.0-46-amd64", "5.10") && is("linux-image-7.3.4+deb13-amd64", ""));
        assert!(!is("linux-image-6.12.43+deb12-amd64", "6.1") && !is("linux-image-6.1-amd64", "6.1"));
        assert!(!is("linux-image-6.1.0-47-cloud-amd64", "6.1") && !is("linux-image-6.1.0-47-amd64-unsigned", "6.1"));
        assert!(!is("linux-image-rt-amd64", "") && !is("linux-image-amd64", ""));
    }

    #[test]
    fn newer_kernels_have_greater_numbers() {
        assert!(numbers("linux-image-6.12.118+deb13-amd64") > numbers("linux-image-6.12.95+deb12-amd64"));
        assert!(numbers("linux-image-6.1.0-56-amd64") > numbers("linux-image-6.1.0-0.deb11.52-amd64"));
    }
}
