//! Tries the packages in a clean root of Debian, which debootstrap makes once.
//!
//! Unaware of: how the packages are made. `packaging/clean-root.sh` has the steps, and
//! `packaging/quick-starts.sh` types the quick starts.

use crate::files::{self, fresh, remove};
use crate::place::{Place, on_path};
use crate::{debian, fetch, machine, projects, run};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

const SUITE: &str = "bookworm";
/// The packages that the project built there needs.
const INCLUDED: &str = "--include=gcc,make,libc6-dev";

/// Installs, uses and removes each package of this machine's architecture. Prints the reason if
/// that is not possible here.
pub(super) fn check(place: &Place, packages: &Path) -> Result<()> {
    if let Some(why) = impossible() {
        println!("skipped: {why}");
        return Ok(());
    }
    let root = match root(place) {
        Ok(root) => root,
        Err(error) => {
            println!("skipped: no clean root can be made: {error:#}");
            return Ok(());
        }
    };
    let own = place.own("clean-root")?;
    let result = run::shown_to_user(script(place, "clean-root.sh").arg(&root).arg(packages).arg(&own));
    remove(own.join("layer"))?;
    result
}

/// Types the quick starts in the clean root, and writes what they print into docs/transcripts.md.
pub(super) fn transcripts(place: &Place, packages: &Path) -> Result<()> {
    if let Some(why) = impossible() {
        bail!("the quick starts cannot be tried: {why}");
    }
    let (root, own) = (root(place)?, place.own("clean-root")?);
    let bzip2 = projects::choose(false, &["bzip2".to_owned()])?;
    let sources = fetch::sources(place, bzip2.first().context("there is such a project")?)?;
    let facts = machine::facts(place);
    let date = machine::date("%-d %B %Y")?;
    let fact = |name: &str| facts[name].as_str().unwrap_or("unknown").to_owned();
    let heading = format!("\n{}, commit {}, {} processors.", date, fact("commit"), facts["processors"]);
    let mut typed = script(place, "quick-starts.sh");
    let said = run::output(typed.arg(&root).arg(packages).arg(&own).arg(&sources.root).arg(heading));
    remove(own.join("layer"))?;
    let page = place.repo.join("docs/transcripts.md");
    files::write(&page, said?)?;
    println!("written: {}", page.display());
    Ok(())
}

/// Returns a script of `packaging/`, to run in a mount namespace of its own.
fn script(place: &Place, name: &str) -> Command {
    let mut script = Command::new("unshare");
    script.args(["--mount", "--propagation", "private", "sh"]).arg(place.repo.join("packaging").join(name));
    script
}

fn impossible() -> Option<String> {
    if !nix::unistd::geteuid().is_root() {
        return Some("a clean root can be made and entered by root only".to_owned());
    }
    let programs = ["debootstrap", "unshare", "chroot"];
    let missing = programs.into_iter().find(|program| on_path(program).is_none());
    missing.map(|program| format!("{program} is not installed"))
}

/// Returns the root. It is made once for all checkouts.
fn root(place: &Place) -> Result<PathBuf> {
    let root = place.lasting()?.join(format!("clean-{SUITE}"));
    if root.is_dir() {
        return Ok(root);
    }
    println!("making a root of {SUITE} with debootstrap, once: this takes some minutes");
    let unfinished = root.with_extension("unfinished");
    fresh(&unfinished)?;
    let mut debootstrap = Command::new("debootstrap");
    debootstrap.args(["--variant=minbase", INCLUDED, SUITE]).arg(&unfinished).arg(debian::mirror()?);
    run::logged(&mut debootstrap, &place.own("clean-root")?.join("debootstrap.log"), || {})?;
    files::rename(&unfinished, &root)?;
    Ok(root)
}
