//! The packages: where their sources are, and the commands that configure and make them.

use crate::fetch;
use crate::place::Place;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// One package. Its commands run in `build` beside `src`, or in `src`.
pub(super) struct Package {
    pub(super) name: &'static str,
    /// The folder of the downloads, and the source package in it.
    sources: (&'static str, &'static str),
    pub(super) in_place: bool,
    /// `PREFIX` in it stands for a directory of the place.
    configure: &'static [&'static str],
    /// What makes it, and says by `-n` what there is left to do.
    pub(super) tool: &'static str,
    /// A source that only one unit consists of.
    pub(super) source: &'static str,
}

/// In the order that they are measured in.
pub(super) const PACKAGES: &[Package] = &[
    Package {
        name: "zlib",
        sources: ("bazel-sources", "zlib"),
        in_place: true,
        configure: &["./configure", "--prefix=PREFIX"],
        tool: "make",
        source: "crc32.c",
    },
    Package {
        name: "libx11",
        sources: ("bazel-sources", "libx11"),
        in_place: false,
        configure: &[
            "../src/configure",
            "--prefix=PREFIX",
            "--disable-shared",
            "--enable-static",
            "--disable-specs",
            "--without-xmlto",
            "--without-fop",
            "--without-xsltproc",
        ],
        tool: "make",
        source: "src/OpenDis.c",
    },
    Package {
        name: "curl",
        sources: ("bazel-sources", "curl"),
        in_place: false,
        configure: &[
            "../src/configure",
            "--prefix=PREFIX",
            "--disable-shared",
            "--enable-static",
            "--without-ssl",
            "--with-zlib",
            "--disable-ldap",
            "--disable-manual",
            "--without-brotli",
            "--without-zstd",
            "--without-libpsl",
            "--without-libidn2",
            "--without-nghttp2",
            "--without-librtmp",
        ],
        tool: "make",
        source: "lib/url.c",
    },
    Package {
        name: "curl-cmake",
        sources: ("bazel-sources", "curl"),
        in_place: false,
        configure: &[
            "cmake",
            "-S",
            "../src",
            "-B",
            ".",
            "-G",
            "Ninja",
            "-DCMAKE_INSTALL_PREFIX=PREFIX",
            "-DCMAKE_BUILD_TYPE=Release",
            "-DBUILD_SHARED_LIBS=OFF",
            "-DBUILD_TESTING=OFF",
            "-DENABLE_MANUAL=OFF",
            "-DCURL_ENABLE_SSL=OFF",
            "-DCURL_DISABLE_LDAP=ON",
            "-DCURL_USE_LIBSSH2=OFF",
            "-DCURL_USE_LIBPSL=OFF",
            "-DCURL_BROTLI=OFF",
            "-DCURL_ZSTD=OFF",
            "-DUSE_LIBIDN2=OFF",
            "-DUSE_NGHTTP2=OFF",
        ],
        tool: "ninja",
        source: "lib/url.c",
    },
    Package {
        name: "glib",
        sources: ("meson-sources", "glib2.0"),
        in_place: false,
        configure: &[
            "meson",
            "setup",
            ".",
            "../src",
            "--prefix=PREFIX",
            "--wrap-mode=nodownload",
            "-Dtests=false",
            "-Dnls=disabled",
            "-Dselinux=disabled",
            "-Dlibmount=disabled",
            "-Dlibelf=disabled",
            "-Dxattr=false",
        ],
        tool: "ninja",
        source: "gio/gfile.c",
    },
];

/// Their names, for the command line.
pub(super) const NAMES: [&str; 5] = ["zlib", "libx11", "curl", "curl-cmake", "glib"];

impl Package {
    /// The sources as they were fetched, with their own times.
    pub(super) fn fetch(&self, place: &Place) -> Result<PathBuf> {
        let (folder, name) = self.sources;
        Ok(fetch::debian(place, folder, &[name])?.join(name))
    }

    /// The words of one phase's command.
    pub(super) fn words(&self, phase: Phase, prefix: &Path, jobs: usize) -> Vec<String> {
        match phase {
            Phase::Configure => {
                let prefix = prefix.to_string_lossy();
                self.configure.iter().map(|word| word.replace("PREFIX", &prefix)).collect()
            }
            Phase::Make => vec![self.tool.to_owned(), format!("-j{jobs}")],
        }
    }
}

/// What is measured apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Configure,
    Make,
}

impl Phase {
    /// In tables and names of files.
    pub(super) fn name(self) -> &'static str {
        match self {
            Phase::Configure => "configure",
            Phase::Make => "make",
        }
    }
}

/// A package as something that is built again and again: below `work` a checkout of its own with the sources, what makes
/// that ready in a shell, and what then configures and makes it there, silently, with `compiler`.
pub(in crate::bench) fn again(
    place: &Place,
    work: &Path,
    name: &str,
    compiler: &str,
) -> Result<(PathBuf, String, String)> {
    let package = PACKAGES.iter().find(|package| package.name == name).context("a package is named as listed")?;
    let tree = work.join(name);
    if !tree.exists() {
        super::pass::lay_out(&package.fetch(place)?, &tree)?;
    }
    let configure = package.words(Phase::Configure, &tree.join("installed"), 2).join(" ");
    let (build, prepare) = match package.in_place {
        true => ("src", "[ -d pristine ] || cp -a src pristine; rm -rf src && cp -a pristine src"),
        false => ("build", "rm -rf build && mkdir build"),
    };
    let script = format!("cd {build} && CC='{compiler}' {configure} >/dev/null && {} -s -j2 >/dev/null", package.tool);
    Ok((tree, prepare.to_owned(), script))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_package_can_be_named() {
        assert_eq!(PACKAGES.iter().map(|package| package.name).collect::<Vec<_>>(), NAMES);
    }
}
