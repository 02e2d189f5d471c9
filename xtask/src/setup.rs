//! Installs what is missing: Debian packages, Rust components and targets. Silent and quick when nothing is.

use crate::arch::Arch;
use crate::place::{Place, on_path};
use crate::run;
use crate::tools;
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;

/// How to see whether a package is there.
enum Sign {
    /// A program on `PATH`.
    Program(&'static str),
    /// A file at a fixed place, or one of two where it differs.
    File(&'static [&'static str]),
}

/// What builds, tests and the demo need.
const PACKAGES: &[(Sign, &str)] = &[
    (Sign::Program("gcc"), "gcc"),
    (Sign::Program("g++"), "g++"),
    (Sign::Program("make"), "make"),
    (Sign::Program("cmake"), "cmake"),
    (Sign::Program("ninja"), "ninja-build"),
    (Sign::Program("clang"), "clang"),
    (Sign::Program("ld.lld"), "lld"),
    (Sign::Program("ld.mold"), "mold"),
    (Sign::Program("musl-gcc"), "musl-tools"),
    (Sign::Program("python3"), "python3"),
    (Sign::Program("strace"), "strace"),
    (Sign::Program("pkg-config"), "pkg-config"),
    (Sign::Program("git"), "git"),
    (Sign::File(&["/usr/include/zlib.h"]), "zlib1g-dev"),
    (Sign::File(&["/usr/include/string.h"]), "libc6-dev"),
];

/// What the checks need beside: the build systems, Bazel among them, that larder stands in front of.
const PACKAGES_FOR_TESTS: &[(Sign, &str)] = &[
    (Sign::Program("meson"), "meson"),
    (Sign::Program("autoconf"), "autoconf"),
    (Sign::Program("aclocal"), "automake"),
    (Sign::Program("unshare"), "util-linux"),
    (Sign::Program("redis-server"), "redis-server"),
    (Sign::Program("fsck.erofs"), "erofs-utils"),
    (Sign::Program("bazel"), "bazel-bootstrap"),
    (Sign::File(&["/usr/share/bazel/tools/skylib/WORKSPACE"]), "bazel-skylib"),
    (Sign::File(&["/usr/share/bazel/rules/java/WORKSPACE"]), "bazel-rules-java"),
];

/// What tests of records compare with, and the browser in which they open pages.
const PACKAGES_FOR_RECORDS: &[(Sign, &str)] = &[
    (Sign::Program("strace"), "strace"),
    (Sign::Program("chromium"), "chromium"),
    (Sign::Program("chromedriver"), "chromium-driver"),
];

/// Servers that the tests of remotes start, each on a port of its own, and what makes certificates for them.
const PACKAGES_FOR_REMOTES: &[(Sign, &str)] = &[
    (Sign::Program("redis-server"), "redis-server"),
    (Sign::Program("memcached"), "memcached"),
    (Sign::File(&["/usr/sbin/nginx"]), "nginx-light"),
    (Sign::Program("openssl"), "openssl"),
    // Reads the examples for CI.
    (Sign::File(&["/usr/lib/python3/dist-packages/yaml/__init__.py"]), "python3-yaml"),
];

/// What makes the images that the tests of mounts mount, and mounts them where nobody else may.
const PACKAGES_FOR_MOUNTS: &[(Sign, &str)] = &[
    (Sign::Program("mkfs.erofs"), "erofs-utils"),
    (Sign::Program("mksquashfs"), "squashfs-tools"),
    (Sign::Program("squashfuse"), "squashfuse"),
    (Sign::Program("setpriv"), "util-linux"),
];

/// What only the torture suite needs; it skips, and says so, what it does not find.
const PACKAGES_FOR_TORTURE: &[(Sign, &str)] = &[
    (Sign::Program("bison"), "bison"),
    (Sign::Program("flex"), "flex"),
    (Sign::Program("protoc"), "protobuf-compiler"),
    (Sign::File(&["/usr/bin/python3"]), "python3"),
];

/// The locale with translated messages in which tests run a second time.
pub(crate) const LOCALE: &str = "de_DE.UTF-8";

/// What builds the wrapper and larderd for aarch64 on another machine. The headers are for the C code of dependencies.
const PACKAGES_FOR_AARCH64: &[(Sign, &str)] = &[
    (Sign::Program("aarch64-linux-gnu-gcc"), "gcc-aarch64-linux-gnu"),
    (Sign::File(&["/usr/aarch64-linux-gnu/include/string.h"]), "libc6-dev-arm64-cross"),
];

/// What only the tests in a virtual machine need: emulators, and what makes the machine's disk.
const PACKAGES_FOR_MACHINES: &[(Sign, &str)] = &[
    (Sign::Program("qemu-system-aarch64"), "qemu-system-arm"),
    (Sign::Program("qemu-aarch64-static"), "qemu-user-static"),
    (Sign::File(&["/usr/sbin/debootstrap"]), "debootstrap"),
    (Sign::File(&["/usr/share/keyrings/debian-archive-keyring.gpg"]), "debian-archive-keyring"),
    (Sign::File(&["/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4"]), "e2fsprogs"),
    (Sign::File(&["/usr/sbin/depmod", "/sbin/depmod"]), "kmod"),
    (Sign::Program("cpio"), "cpio"),
    (Sign::Program("xz"), "xz-utils"),
];

/// What only the benchmarks need.
const PACKAGES_FOR_BENCH: &[(Sign, &str)] =
    &[(Sign::Program("valgrind"), "valgrind"), (Sign::Program("redis-server"), "redis-server")];

/// What only the benchmark of images needs: the archives that images stand beside, what installs its trees, and what it is put on.
const PACKAGES_FOR_IMAGES: &[(Sign, &str)] = &[
    (Sign::Program("curl"), "curl"),
    (Sign::File(&["/usr/sbin/nginx"]), "nginx-light"),
    (Sign::Program("npm"), "npm"),
    (Sign::Program("mvn"), "maven"),
    (Sign::Program("zstd"), "zstd"),
    (Sign::Program("lz4"), "lz4"),
    (Sign::Program("zip"), "zip"),
    (Sign::Program("unzip"), "unzip"),
    (Sign::Program("mksquashfs"), "squashfs-tools"),
    (Sign::File(&["/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4"]), "e2fsprogs"),
    (Sign::Program("mount"), "mount"),
];

/// What only the matrix of distributions and kernels needs: what makes roots, and what boots kernels in them.
const PACKAGES_FOR_MATRIX: &[(Sign, &str)] = &[
    (Sign::File(&["/usr/sbin/debootstrap"]), "debootstrap"),
    (Sign::File(&["/usr/share/keyrings/debian-archive-keyring.gpg"]), "debian-archive-keyring"),
    (Sign::Program("qemu-system-x86_64"), "qemu-system-x86"),
    (Sign::Program("cpio"), "cpio"),
    (Sign::Program("xz"), "xz-utils"),
    (Sign::Program("zstd"), "zstd"),
    (Sign::File(&["/usr/sbin/depmod", "/sbin/depmod"]), "kmod"),
    (Sign::File(&["/usr/sbin/mke2fs", "/sbin/mke2fs"]), "e2fsprogs"),
    (Sign::Program("unshare"), "util-linux"),
];

/// What only the benchmarks that build Debian's sources need: what libX11 is built with, and what unpacks sources.
const PACKAGES_FOR_SOURCES: &[(Sign, &str)] = &[
    (Sign::File(&["/usr/include/X11/Xproto.h"]), "x11proto-dev"),
    (Sign::File(&["/usr/include/xcb/xcb.h"]), "libxcb1-dev"),
    (Sign::File(&["/usr/include/X11/Xtrans/Xtrans.h"]), "xtrans-dev"),
    (Sign::Program("bzip2"), "bzip2"),
    (Sign::Program("xz"), "xz-utils"),
];

/// Parts of the pinned toolchain beside the compiler.
const COMPONENTS: &[&str] = &["rustfmt", "clippy"];

/// The wrapper's own target.
pub(crate) const STATIC_TARGET: &str = Arch::HOST.static_target();

/// Where larder must be type-correct, though it does not run there yet.
pub(crate) const CHECKED_TARGETS: &[&str] = &["aarch64-apple-darwin", "x86_64-pc-windows-gnu"];

/// `cargo xtask setup`: all that any command needs.
pub(crate) fn everything(place: &Place) -> Result<()> {
    for_tests(place)?;
    for_torture()?;
    for_translated_messages()?;
    for_bench_package(place)?;
    for_bench_image(place)?;
    for_matrix(place)?;
    for_machines(place)
}

/// The compilers, the build tools, and the wrapper's target.
pub(crate) fn for_builds(place: &Place) -> Result<()> {
    packages(PACKAGES)?;
    targets(place, &[STATIC_TARGET])
}

/// The same, and what builds for `arch`.
pub(crate) fn for_builds_of(place: &Place, arch: Arch) -> Result<()> {
    arch.check_buildable()?;
    for_builds(place)?;
    if arch == Arch::Aarch64 && Arch::HOST != Arch::Aarch64 {
        packages(PACKAGES_FOR_AARCH64)?;
    }
    targets(place, &[arch.static_target()])
}

/// What builds for aarch64, emulates it, and makes disks for it.
pub(crate) fn for_machines(place: &Place) -> Result<()> {
    for_builds_of(place, Arch::Aarch64)?;
    packages(PACKAGES_FOR_MACHINES)
}

/// The same, and what the checks need.
pub(crate) fn for_tests(place: &Place) -> Result<()> {
    for_builds_of(place, Arch::Aarch64)?;
    packages(PACKAGES_FOR_TESTS)?;
    packages(PACKAGES_FOR_RECORDS)?;
    packages(PACKAGES_FOR_REMOTES)?;
    packages(PACKAGES_FOR_MOUNTS)?;
    tools::for_remotes(place);
    components(place)?;
    targets(place, CHECKED_TARGETS)
}

/// The programs that the torture suite puts larder in front of, beside compilers.
pub(crate) fn for_torture() -> Result<()> {
    packages(PACKAGES_FOR_TORTURE)
}

/// The locale [`LOCALE`], and gcc's messages in its language. The package of these is named after gcc's version.
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
    anyhow::ensure!(is_made(), "the locale {LOCALE} is not there");
    Ok(())
}

/// The same as for builds, and the measuring tools.
pub(crate) fn for_bench(place: &Place) -> Result<()> {
    for_builds(place)?;
    packages(PACKAGES_FOR_BENCH)?;
    pip()
}

/// Python's installer.
pub(crate) fn pip() -> Result<()> {
    if run::output(Command::new("python3").args(["-m", "pip", "--version"])).is_err() {
        install(&["python3-pip"])?;
    }
    Ok(())
}

/// The same as for builds, and what makes other archives.
pub(crate) fn for_bench_image(place: &Place) -> Result<()> {
    for_builds(place)?;
    packages(PACKAGES_FOR_IMAGES)
}

/// The same as for builds, and what makes roots of other distributions and boots other kernels.
pub(crate) fn for_matrix(place: &Place) -> Result<()> {
    for_builds(place)?;
    packages(PACKAGES_FOR_MATRIX)
}

/// Installs what benchmarks need, and what builds libX11.
pub(crate) fn for_bench_package(place: &Place) -> Result<()> {
    for_bench(place)?;
    packages(PACKAGES_FOR_SOURCES)
}

fn packages(wanted: &[(Sign, &'static str)]) -> Result<()> {
    let missing: Vec<&str> = wanted.iter().filter(|(sign, _)| !is_there(sign)).map(|&(_, package)| package).collect();
    if missing.is_empty() { Ok(()) } else { install(&missing) }
}

fn is_there(sign: &Sign) -> bool {
    match sign {
        Sign::Program(name) => on_path(name).is_some(),
        Sign::File(files) => files.iter().any(|file| Path::new(file).exists()),
    }
}

fn install(missing: &[&str]) -> Result<()> {
    let list = missing.join(" ");
    if on_path("apt-get").is_none() {
        bail!("missing: {list}. They are installed with apt-get, which is not here: install their likes by hand");
    }
    println!("installing with apt-get: {list}");
    apt_get(&["-qq", "update"])?;
    let mut words = vec!["-qq", "install", "-y", "--no-install-recommends"];
    words.extend(missing);
    apt_get(&words)
}

/// A command that changes the system.
fn as_root(program: &str) -> Result<Command> {
    if nix::unistd::geteuid().is_root() {
        return Ok(Command::new(program));
    }
    if on_path("sudo").is_none() {
        bail!("this user is neither root nor has sudo, so {program} cannot be run");
    }
    let mut sudo = Command::new("sudo");
    sudo.args(["--preserve-env=DEBIAN_FRONTEND", program]);
    Ok(sudo)
}

fn apt_get(words: &[&str]) -> Result<()> {
    let command = as_root("apt-get").with_context(|| format!("as root, run apt-get {}", words.join(" ")));
    let mut command = command.context("packages are missing")?;
    let command = command.args(words).env("DEBIAN_FRONTEND", "noninteractive");
    run::shown_to_user(command).context("apt-get could not install what is missing")
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

/// Runs in the repository, where rust-toolchain.toml says which toolchain is meant.
fn rustup(place: &Place, words: &[&str]) -> Result<String> {
    run::output(Command::new("rustup").args(words).current_dir(&place.repo))
        .context("rustup manages the pinned toolchain")
}
