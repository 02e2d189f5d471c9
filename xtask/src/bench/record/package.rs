//! libX11: where its sources are, and the commands that configure and build it.

use crate::fetch;
use crate::place::{Place, fresh, remove};
use crate::run;
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::process::Command;

const CONFIGURE: &str = "../src/configure --disable-shared --enable-static --disable-specs --without-xmlto --without-fop \
     --without-xsltproc";

/// A checkout of the package, and the shell commands that work in it.
pub(super) struct Package {
    pub(super) dir: PathBuf,
    /// Empties the build directory.
    pub(super) prepare: String,
    /// Configures and builds with gcc, without output.
    pub(super) script: String,
}

/// Fetches the sources and copies them into a checkout of their own below `work`.
pub(super) fn libx11(place: &Place, work: &Path) -> Result<Package> {
    let dir = work.join("libx11");
    fresh(&dir.join("build"))?;
    remove(&dir.join("src"))?;
    run::output(Command::new("git").args(["init", "--quiet", "--template="]).arg(&dir))?;
    let sources = fetch::debian(place, "bazel-sources", &["libx11"])?.join("libx11");
    run::output(Command::new("cp").arg("-a").arg(sources).arg(dir.join("src")))?;
    let prefix = dir.join("installed");
    let script =
        format!("cd build && CC=gcc {CONFIGURE} --prefix={} >/dev/null && make -s -j2 >/dev/null", prefix.display());
    Ok(Package { dir, prepare: "rm -rf build && mkdir build".to_owned(), script })
}
