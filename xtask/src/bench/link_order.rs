//! `cargo xtask bench link-order`: writes the lists of `src/hot.ld`, which name the functions that a
//! hit executes, and those that only a miss executes.
//!
//! docs/performance.md says what they are worth. `tests/layout.rs` says when they are out of date.

use super::inputs::{self, Case};
use super::scene::Scene;
use super::subjects::Compile;
use super::{count, measure};
use crate::arch::Arch;
use crate::launcher::Launcher;
use crate::place::Place;
use crate::{files, run, setup};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

/// In the linker script, the list for a hit stands between these two texts.
const HIT: [&str; 2] = ["  .hot :\n  {\n", "    /* Code in assembly"];
/// The list for a miss stands between these.
const MISS: [&str; 2] = ["  .warm :\n  {\n", "  }\n"];
/// The version of rustc stands between these.
const TOOLCHAIN: [&str; 2] = ["Made with rustc ", ".\n"];

/// Builds larder with symbols, steps through hits and a miss, and writes the lists. `larder` is a
/// release program with its `larderd` beside it.
pub(crate) fn link_order(place: &Place, larder: &Path) -> Result<()> {
    setup::for_builds(place)?;
    let mut scene = Scene::begin(place, larder, "link-order")?;
    scene.larder = with_symbols(&scene)?;
    let counting = count::program(place)?;
    let launcher = Launcher::larder(&scene.larder, &scene.store("larder"))?;
    let mut hit = Vec::new();
    for case in [inputs::c(&scene.work)?, inputs::cpp(&scene.work)?] {
        let compile = Compile { launcher: launcher.clone(), ..Compile::plain(&case, &scene.home) };
        warm_up(&compile)?;
        // A hit in a directory that just changed does more than one in a directory that did not.
        files::write(case.dir.join("new"), "")?;
        add(&mut hit, count::functions(&compile, true, &counting, &scene.work)?);
    }
    let mut miss = Vec::new();
    for case in inputs::of_sizes(&scene.work, true)?.into_iter().take(2) {
        let case = Case { arguments: [case.arguments, vec!["-DRUN=1".to_owned()]].concat(), ..case };
        let mut compile = Compile { launcher: launcher.clone(), ..Compile::plain(&case, &scene.home) };
        warm_up(&compile)?;
        compile.launcher = compile.launcher.with("LARDER_RECACHE", "1");
        add(&mut miss, count::functions(&compile, false, &counting, &scene.work)?);
    }
    miss.retain(|section| !hit.contains(section));
    println!("{} functions of a hit, {} of a miss", hit.len(), miss.len());
    let script = place.repo.join("src/hot.ld");
    let version = run::output(Command::new("rustc").arg("--version").current_dir(&place.repo))?;
    let version = version.split(' ').nth(1).context("rustc does not say its version")?;
    let mut text = files::read(&script)?;
    let list = |sections: &[String]| sections.iter().map(|section| format!("    {section}\n")).collect::<String>();
    for (ends, new) in [(HIT, list(&hit)), (MISS, list(&miss)), (TOOLCHAIN, version.to_owned())] {
        text = replaced(&text, ends, &new).with_context(|| format!("{} has no {:?}", script.display(), ends[0]))?;
    }
    files::write(script, text)
}

/// Builds the wrapper as in a release, but with symbols. Returns a copy beside a copy of `larderd`.
fn with_symbols(scene: &Scene) -> Result<PathBuf> {
    let (place, target) = (scene.place, Arch::HOST.static_target());
    let words = ["build", "--locked", "--profile", "profiling", "--target", target, "--package", "larder"];
    run::shown_to_user(place.cargo().args(words).args(["--bin", "larder", "--no-default-features"]))?;
    let larder = scene.work.join("larder");
    files::copy(place.target.join(target).join("profiling/larder"), &larder)?;
    files::copy(scene.larder.with_file_name("larderd"), scene.work.join("larderd"))?;
    Ok(larder)
}

fn warm_up(compile: &Compile) -> Result<()> {
    compile.warm_up()?;
    // New records are too young for a stamp.
    thread::sleep(measure::SETTLING);
    compile.once()?;
    compile.once()
}

fn add(sections: &mut Vec<String>, more: Vec<String>) {
    for section in more {
        if !sections.contains(&section) {
            sections.push(section);
        }
    }
}

/// Returns the text with what lies between the two ends replaced.
fn replaced(text: &str, [begin, end]: [&str; 2], new: &str) -> Option<String> {
    let (before, rest) = text.split_once(begin)?;
    let (_, after) = rest.split_once(end)?;
    Some([before, begin, new, end, after].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_has_the_lists() {
        let text = include_str!("../../../src/hot.ld");
        for ends in [HIT, MISS, TOOLCHAIN] {
            let new = replaced(text, ends, "new").expect("both ends are there");
            assert!(new.contains(&[ends[0], "new", ends[1]].concat()));
            assert_eq!(replaced(&new, ends, ""), replaced(text, ends, ""));
        }
    }
}
