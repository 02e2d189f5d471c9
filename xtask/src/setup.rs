//! Installs what is missing: Debian packages, Rust components and targets. Prints nothing if
//! nothing is missing.

use crate::arch::Arch;
use crate::packages::{Sign, as_root, install, packages, pip};
use crate::place::{Place, on_path};
use crate::run;
use crate::tools;
use anyhow::{Context, Result};
use std::path::Path;
use std::process::Command;

/// For builds, tests and the demo.
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

/// For the checks as well: the build systems that larder works with, Bazel among them.
const PACKAGES_FOR_TESTS: &[(Sign, &str)] = &[
    (Sign::Program("meson"), "meson"),
    (Sign::Program("autoconf"), "autoconf"),
    (Sign::Program("aclocal"), "automake"),
    (Sign::Program("unshare"), "util-linux"),
    (Sign::Program("redis-server"), "redis-server"),
    (Sign::Program("fsck.erofs"), "erofs-utils"),
    // The packages of a release are tried in a clean root.
    (Sign::File(&["/usr/sbin/debootstrap"]), "debootstrap"),
    (Sign::Program("lintian"), "lintian"),
    (Sign::Program("bazel"), "bazel-bootstrap"),
    (Sign::File(&["/usr/share/bazel/tools/skylib/WORKSPACE"]), "bazel-skylib"),
    (Sign::File(&["/usr/share/bazel/rules/java/WORKSPACE"]), "bazel-rules-java"),
    // The package managers that Debian has and `tools` does not install.
    (Sign::Program("bundle"), "bundler"),
    (Sign::Program("composer"), "composer"),
    (Sign::Program("mvn"), "maven"),
    (Sign::Program("gradle"), "gradle"),
];

/// For the tests of records: strace to compare with, and a browser to open pages.
const PACKAGES_FOR_RECORDS: &[(Sign, &str)] = &[
    (Sign::Program("strace"), "strace"),
    (Sign::Program("chromium"), "chromium"),
    (Sign::Program("chromedriver"), "chromium-driver"),
];

/// For the tests of remotes: servers, and openssl for certificates.
const PACKAGES_FOR_REMOTES: &[(Sign, &str)] = &[
    (Sign::Program("redis-server"), "redis-server"),
    (Sign::Program("memcached"), "memcached"),
    (Sign::File(&["/usr/sbin/nginx"]), "nginx-light"),
    (Sign::Program("openssl"), "openssl"),
    // Parses the examples for CI.
    (Sign::File(&["/usr/lib/python3/dist-packages/yaml/__init__.py"]), "python3-yaml"),
];

/// For the tests of mounts: tools that make images, and tools that mount them.
const PACKAGES_FOR_MOUNTS: &[(Sign, &str)] = &[
    (Sign::Program("mkfs.erofs"), "erofs-utils"),
    (Sign::Program("mksquashfs"), "squashfs-tools"),
    (Sign::Program("squashfuse"), "squashfuse"),
    (Sign::Program("fuse-overlayfs"), "fuse-overlayfs"),
    (Sign::Program("setpriv"), "util-linux"),
];

/// For the torture suite. It skips cases whose tools are missing, and says so.
const PACKAGES_FOR_TORTURE: &[(Sign, &str)] = &[
    (Sign::Program("bison"), "bison"),
    (Sign::Program("flex"), "flex"),
    (Sign::Program("protoc"), "protobuf-compiler"),
    (Sign::File(&["/usr/bin/python3"]), "python3"),
];

/// The locale with translated messages in which tests run a second time.
pub(crate) const LOCALE: &str = "de_DE.UTF-8";

/// For building the wrapper and larderd for aarch64 on another machine. The headers are for the C
/// code of dependencies.
const PACKAGES_FOR_AARCH64: &[(Sign, &str)] = &[
    (Sign::Program("aarch64-linux-gnu-gcc"), "gcc-aarch64-linux-gnu"),
    (Sign::File(&["/usr/aarch64-linux-gnu/include/string.h"]), "libc6-dev-arm64-cross"),
];

/// For the tests in a virtual machine: emulators, and tools to make its disk.
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

/// For all benchmarks.
const PACKAGES_FOR_BENCH: &[(Sign, &str)] =
    &[(Sign::Program("valgrind"), "valgrind"), (Sign::Program("redis-server"), "redis-server")];

/// For the benchmark of images: other archivers, package managers, and tools to make and mount a
/// file system.
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

/// For the examples in the documents.
const PACKAGES_FOR_DOCS: &[(Sign, &str)] = &[(Sign::Program("node"), "nodejs"), (Sign::Program("npm"), "npm")];

/// For the matrix of distributions and kernels: tools to make roots and to boot kernels in them.
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

/// For building libX11 from Debian's sources.
const PACKAGES_FOR_SOURCES: &[(Sign, &str)] = &[
    (Sign::File(&["/usr/include/X11/Xproto.h"]), "x11proto-dev"),
    (Sign::File(&["/usr/include/xcb/xcb.h"]), "libxcb1-dev"),
    (Sign::File(&["/usr/include/X11/Xtrans/Xtrans.h"]), "xtrans-dev"),
    (Sign::Program("bzip2"), "bzip2"),
    (Sign::Program("xz"), "xz-utils"),
];

/// Parts of the pinned toolchain besides the compiler.
const COMPONENTS: &[&str] = &["rustfmt", "clippy"];

/// The target of the wrapper.
pub(crate) const STATIC_TARGET: &str = Arch::HOST.static_target();

/// Targets for which larder must be type-correct, although it does not run there yet.
pub(crate) const CHECKED_TARGETS: &[&str] = &["aarch64-apple-darwin", "x86_64-pc-windows-gnu"];

/// `cargo xtask setup`: installs what any command needs.
pub(crate) fn everything(place: &Place) -> Result<()> {
    for_tests(place)?;
    for_torture()?;
    for_translated_messages()?;
    for_bench_package(place)?;
    for_bench_image(place)?;
    for_matrix(place)?;
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

/// Installs what builds and checks need.
pub(crate) fn for_tests(place: &Place) -> Result<()> {
    for_builds_of(place, Arch::Aarch64)?;
    packages(PACKAGES_FOR_TESTS)?;
    packages(PACKAGES_FOR_RECORDS)?;
    packages(PACKAGES_FOR_REMOTES)?;
    packages(PACKAGES_FOR_MOUNTS)?;
    tools::for_tests(place);
    components(place)?;
    targets(place, CHECKED_TARGETS)?;
    // The torture suite skips cases whose tools are missing, and says so.
    if let Err(error) = for_torture().and_then(|()| for_translated_messages()) {
        eprintln!("{error:#}");
    }
    Ok(())
}

/// Installs the programs that the examples in the documents run.
pub(crate) fn for_docs() -> Result<()> {
    packages(PACKAGES)?;
    packages(PACKAGES_FOR_DOCS)
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

/// Installs what builds need, and the measuring tools.
pub(crate) fn for_bench(place: &Place) -> Result<()> {
    for_builds(place)?;
    packages(PACKAGES_FOR_BENCH)?;
    pip()
}

/// Installs what builds and the benchmark of images need.
pub(crate) fn for_bench_image(place: &Place) -> Result<()> {
    for_builds(place)?;
    packages(PACKAGES_FOR_IMAGES)
}

/// Installs what builds need, and tools to make roots of other distributions and to boot other
/// kernels.
pub(crate) fn for_matrix(place: &Place) -> Result<()> {
    for_builds(place)?;
    packages(PACKAGES_FOR_MATRIX)
}

/// Installs what benchmarks need, and what builds libX11.
pub(crate) fn for_bench_package(place: &Place) -> Result<()> {
    for_bench(place)?;
    packages(PACKAGES_FOR_SOURCES)
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
