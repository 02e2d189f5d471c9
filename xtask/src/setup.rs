//! Installs what is missing: Debian packages, Rust components and targets. Prints nothing if
//! nothing is missing.

use crate::arch::Arch;
use crate::packages::{as_root, install, packages};
use crate::place::{Place, on_path};
use crate::{run, tools};
use anyhow::{Context, Result};
use std::path::Path;
use std::process::Command;

/// For builds, tests and the demo.
const PACKAGES: &str = "\
    gcc g++ make cmake ninja=ninja-build clang ld.lld=lld ld.mold=mold musl-gcc=musl-tools python3 \
    strace pkg-config git /usr/include/zlib.h=zlib1g-dev /usr/include/string.h=libc6-dev";

/// For the checks as well: the build systems and package managers that larder works with, and tools
/// to try the packages of a release in a clean root.
const PACKAGES_FOR_TESTS: &str = "\
    meson autoconf aclocal=automake unshare=util-linux redis-server fsck.erofs=erofs-utils \
    /usr/sbin/debootstrap=debootstrap lintian gawk zsh bazel=bazel-bootstrap \
    /usr/share/bazel/tools/skylib/WORKSPACE=bazel-skylib \
    /usr/share/bazel/rules/java/WORKSPACE=bazel-rules-java bundle=bundler composer mvn=maven gradle";

/// For the tests of records: strace to compare with, and a browser to open pages.
const PACKAGES_FOR_RECORDS: &str = "strace chromium chromedriver=chromium-driver";

/// For the tests of remotes: servers, and openssl for certificates.
const PACKAGES_FOR_REMOTES: &str = "\
    redis-server memcached /usr/sbin/nginx=nginx-light openssl \
    /usr/lib/python3/dist-packages/yaml/__init__.py=python3-yaml";

/// For the tests of mounts: tools that make images, and tools that mount them.
const PACKAGES_FOR_MOUNTS: &str =
    "mkfs.erofs=erofs-utils mksquashfs=squashfs-tools squashfuse fuse-overlayfs setpriv=util-linux";

/// For the torture suite. It skips cases whose tools are missing, and says so.
const PACKAGES_FOR_TORTURE: &str = "bison flex protoc=protobuf-compiler /usr/bin/python3=python3";

/// The locale with translated messages in which tests run a second time.
pub(crate) const LOCALE: &str = "de_DE.UTF-8";

/// For building the wrapper and larderd for aarch64 on another machine. The headers are for the C
/// code of dependencies.
const PACKAGES_FOR_AARCH64: &str = "\
    aarch64-linux-gnu-gcc=gcc-aarch64-linux-gnu \
    /usr/aarch64-linux-gnu/include/string.h=libc6-dev-arm64-cross";

/// For the tests in a virtual machine: emulators, and tools to make its disk.
const PACKAGES_FOR_MACHINES: &str = "\
    qemu-system-aarch64=qemu-system-arm qemu-aarch64-static=qemu-user-static \
    /usr/sbin/debootstrap=debootstrap \
    /usr/share/keyrings/debian-archive-keyring.gpg=debian-archive-keyring \
    /usr/sbin/mkfs.ext4=e2fsprogs /usr/sbin/depmod=kmod cpio xz=xz-utils";

/// For the benchmark of images: an archiver, npm, a web server, and tools to make and mount a file
/// system.
pub(crate) const PACKAGES_FOR_IMAGES: &str =
    "curl /usr/sbin/nginx=nginx-light npm zstd mksquashfs=squashfs-tools /usr/sbin/mkfs.ext4=e2fsprogs mount";

/// For the examples in the documents.
pub(crate) const PACKAGES_FOR_DOCS: &str = "node=nodejs npm";

/// For the matrix of distributions and kernels: tools to make roots and to boot kernels in them.
pub(crate) const PACKAGES_FOR_MATRIX: &str = "\
    /usr/sbin/debootstrap=debootstrap \
    /usr/share/keyrings/debian-archive-keyring.gpg=debian-archive-keyring \
    qemu-system-x86_64=qemu-system-x86 cpio xz=xz-utils zstd /usr/sbin/depmod=kmod \
    /usr/sbin/mke2fs=e2fsprogs unshare=util-linux";

/// For building libX11 from Debian's sources.
pub(crate) const PACKAGES_FOR_SOURCES: &str = "\
    /usr/include/X11/Xproto.h=x11proto-dev /usr/include/xcb/xcb.h=libxcb1-dev \
    /usr/include/X11/Xtrans/Xtrans.h=xtrans-dev bzip2 xz=xz-utils";

/// Parts of the pinned toolchain besides the compiler.
const COMPONENTS: &[&str] = &["rustfmt", "clippy"];

/// The target of the wrapper.
pub(crate) const STATIC_TARGET: &str = Arch::HOST.static_target();

/// Targets for which larder must be type-correct, although it does not run there yet.
pub(crate) const CHECKED_TARGETS: &[&str] = &["aarch64-apple-darwin", "x86_64-pc-windows-gnu"];

/// `cargo xtask setup`: installs what any command needs.
pub(crate) fn everything(place: &Place) -> Result<()> {
    for_checks(place)?;
    for_tests(place)?;
    for_torture()?;
    for_translated_messages()?;
    [PACKAGES_FOR_SOURCES, PACKAGES_FOR_IMAGES, PACKAGES_FOR_MATRIX].into_iter().try_for_each(packages)?;
    for_machines(place)
}

/// Installs the compilers, the build tools, and the wrapper's target.
pub(crate) fn for_builds(place: &Place) -> Result<()> {
    packages(PACKAGES)?;
    targets(place, &[STATIC_TARGET])
}

/// Installs what builds for `arch` need.
pub(crate) fn for_builds_of(place: &Place, arch: Arch) -> Result<()> {
    arch.check_buildable()?;
    for_builds(place)?;
    if arch == Arch::Aarch64 && Arch::HOST != Arch::Aarch64 {
        packages(PACKAGES_FOR_AARCH64)?;
    }
    targets(place, &[arch.static_target()])
}

/// Installs what builds for aarch64, emulates it, and makes disks for it.
pub(crate) fn for_machines(place: &Place) -> Result<()> {
    for_builds_of(place, Arch::Aarch64)?;
    packages(PACKAGES_FOR_MACHINES)
}

/// Installs what is needed to compile everything, also for other systems, and to check its style.
pub(crate) fn for_checks(place: &Place) -> Result<()> {
    for_builds_of(place, Arch::Aarch64)?;
    components(place)?;
    targets(place, CHECKED_TARGETS)
}

/// Installs what tests need besides [`for_checks`].
pub(crate) fn for_tests(place: &Place) -> Result<()> {
    let lists = [PACKAGES_FOR_TESTS, PACKAGES_FOR_RECORDS, PACKAGES_FOR_REMOTES, PACKAGES_FOR_MOUNTS];
    lists.into_iter().try_for_each(packages)?;
    tools::for_tests(place);
    // The torture suite skips cases whose tools are missing, and says so.
    if let Err(error) = for_torture().and_then(|()| for_translated_messages()) {
        eprintln!("{error:#}");
    }
    Ok(())
}

/// Installs the tools, besides compilers, that the torture suite runs.
pub(crate) fn for_torture() -> Result<()> {
    packages(PACKAGES_FOR_TORTURE)
}

/// Installs the locale [`LOCALE`], and gcc's messages in its language. The name of their package
/// contains gcc's version.
pub(crate) fn for_translated_messages() -> Result<()> {
    let version = run::output(Command::new("gcc").arg("-dumpversion"))?;
    let major = version.trim().split('.').next().unwrap_or_default().to_owned();
    let messages = format!("/usr/share/locale/de/LC_MESSAGES/gcc-{major}.mo");
    if !Path::new(&messages).exists() || on_path("localedef").is_none() || !Path::new("/usr/share/i18n").exists() {
        install(&["locales", &format!("gcc-{major}-locales")])?;
    }
    let is_made = || {
        let listed = run::output(Command::new("locale").arg("-a"));
        listed.is_ok_and(|names| names.to_lowercase().lines().any(|name| name == "de_de.utf8"))
    };
    if !is_made() {
        let mut command = as_root("localedef")?;
        run::shown_to_user(command.args(["-i", "de_DE", "-f", "UTF-8", LOCALE]))?;
    }
    anyhow::ensure!(is_made(), "the locale {LOCALE} does not exist");
    Ok(())
}

fn targets(place: &Place, wanted: &[&str]) -> Result<()> {
    let installed = rustup(place, &["target", "list", "--installed"])?;
    let missing: Vec<&str> =
        wanted.iter().copied().filter(|target| !installed.lines().any(|line| line == *target)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    println!("adding Rust targets with rustup: {}", missing.join(" "));
    let mut words = vec!["target", "add"];
    words.extend(missing);
    rustup(place, &words).map(drop).context("a Rust target is missing and could not be added")
}

fn components(place: &Place) -> Result<()> {
    let installed = rustup(place, &["component", "list", "--installed"])?;
    for component in COMPONENTS {
        if !installed.lines().any(|line| line.starts_with(component)) {
            println!("adding with rustup: {component}");
            rustup(place, &["component", "add", component])?;
        }
    }
    Ok(())
}

/// Runs rustup in the repository, where rust-toolchain.toml selects the toolchain.
fn rustup(place: &Place, words: &[&str]) -> Result<String> {
    run::output(Command::new("rustup").args(words).current_dir(&place.repo))
        .context("rustup manages the pinned toolchain")
}
