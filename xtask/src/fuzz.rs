//! `cargo xtask fuzz`: runs the targets of `fuzz/`. cargo-fuzz guides them by coverage if it is
//! installed. Otherwise they use the mutations of `fuzz/tests/short.rs` until the time is over.

use crate::binaries::cargo;
use crate::place::{Place, on_path};
use crate::run;
use anyhow::{Context, Result, bail};
use std::fs;

/// The options of `cargo xtask fuzz`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The decoder [default: all, one after the other]
    target: Option<String>,
    /// The time for each target
    #[arg(long, default_value_t = 60)]
    seconds: u64,
}

/// The upper limit for the size of an input.
const INPUT_BYTES_MAX: usize = 16 << 10;

/// Runs one target or all. Stops at the first that fails.
pub(crate) fn fuzz(place: &Place, options: &Options) -> Result<()> {
    let all = targets(place)?;
    let chosen = match &options.target {
        None => all,
        Some(name) if all.contains(name) => vec![name.clone()],
        Some(name) => bail!("there is no target {name}; the targets are: {}", all.join(", ")),
    };
    let guided = on_path("cargo-fuzz").is_some();
    if !guided {
        println!(
            "cargo-fuzz is not installed (cargo install cargo-fuzz --locked): inputs are mutated without guidance"
        );
    }
    for target in chosen {
        println!("── {target}");
        if guided { guide(place, &target, options.seconds)? } else { mutate(place, &target, options.seconds)? }
    }
    Ok(())
}

/// Returns the names of the targets, which are the files of `fuzz/fuzz_targets`.
fn targets(place: &Place) -> Result<Vec<String>> {
    let dir = place.repo.join("fuzz/fuzz_targets");
    let list = fs::read_dir(&dir).with_context(|| format!("cannot list {}", dir.display()))?;
    let name = |entry: fs::DirEntry| Some(entry.path().file_stem()?.to_str()?.to_owned());
    let mut names: Vec<String> = list.flatten().filter_map(name).collect();
    names.sort();
    Ok(names)
}

/// Runs cargo-fuzz. New inputs go to the target directory, not to the seeds.
fn guide(place: &Place, target: &str, seconds: u64) -> Result<()> {
    let found = place.own("fuzz")?.join(target);
    fs::create_dir_all(&found).with_context(|| format!("cannot make {}", found.display()))?;
    mutate_with(place, &[target, "seeds", &found.to_string_lossy()])?;
    let limits =
        [format!("-max_total_time={seconds}"), format!("-max_len={INPUT_BYTES_MAX}"), "-timeout=10".to_owned()];
    let mut command = own_target(place)?;
    // The pinned toolchain has no sanitizers. The crates with decoders have no unsafe code that they could check.
    command
        .args(["fuzz", "run", "--sanitizer", "none", "--features", "engine", target])
        .arg(found)
        .arg("--")
        .args(limits);
    run::shown_to_user(&mut command)
}

fn mutate(place: &Place, target: &str, seconds: u64) -> Result<()> {
    mutate_with(place, &[target, "run", &seconds.to_string()])
}

fn mutate_with(place: &Place, words: &[&str]) -> Result<()> {
    let mut command = own_target(place)?;
    command.args(["run", "--quiet", "--release", "--locked", "--package", "larder-fuzz"]);
    run::shown_to_user(command.args(["--example", "on_and_on", "--"]).args(words))
}

/// Returns cargo with a target directory of its own, because the flags differ: an overflow is a
/// finding, and linking must not take longer than the runs.
fn own_target(place: &Place) -> Result<std::process::Command> {
    let mut command = cargo(place);
    command.env("CARGO_TARGET_DIR", place.own("fuzz-target")?);
    let settings = [
        ("LTO", "off"),
        ("CODEGEN_UNITS", "16"),
        ("OPT_LEVEL", "1"),
        ("STRIP", "none"),
        ("DEBUG", "line-tables-only"),
        ("DEBUG_ASSERTIONS", "true"),
        ("OVERFLOW_CHECKS", "true"),
        ("PANIC", "unwind"),
    ];
    command.envs(settings.map(|(name, value)| (format!("CARGO_PROFILE_RELEASE_{name}"), value)));
    Ok(command)
}
