//! `cargo xtask fuzz`: runs the targets of `fuzz/`. cargo-fuzz guides them by coverage if it is
//! installed. Otherwise they use the mutations of `fuzz/tests/short.rs` until the time is over.

use crate::place::{Place, on_path};
use crate::{files, run};
use anyhow::{Result, ensure};

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
    let all = run::output(example(place)?.arg("names"))?;
    let is_chosen = |name: &&str| options.target.as_deref().is_none_or(|chosen| chosen == *name);
    let chosen: Vec<&str> = all.lines().filter(is_chosen).collect();
    ensure!(!chosen.is_empty(), "there is no such target; the targets are:\n{all}");
    let guided = on_path("cargo-fuzz").is_some();
    if !guided {
        println!(
            "cargo-fuzz is not installed (cargo install cargo-fuzz --locked): inputs are mutated without guidance"
        );
    }
    for target in chosen {
        println!("── {target}");
        if guided {
            guide(place, target, options.seconds)?;
        } else {
            run::shown_to_user(example(place)?.args([target, "run", &options.seconds.to_string()]))?;
        }
    }
    Ok(())
}

/// Runs cargo-fuzz. New inputs go to the target directory, not to the seeds.
fn guide(place: &Place, target: &str, seconds: u64) -> Result<()> {
    let found = place.own("fuzz")?.join(target);
    files::make(&found)?;
    run::shown_to_user(example(place)?.args([target, "seeds"]).arg(&found))?;
    let mut command = own_target(place)?;
    // The pinned toolchain has no sanitizers. The crates with decoders have no unsafe code that they could check.
    command.args(["fuzz", "run", "--sanitizer", "none", "--features", "engine", "decoder"]).arg(found).arg("--");
    command.args([format!("-max_total_time={seconds}"), format!("-max_len={INPUT_BYTES_MAX}"), "-timeout=10".into()]);
    run::shown_to_user(command.env("LARDER_FUZZ_TARGET", target))
}

/// Returns the command of `fuzz/examples/on_and_on.rs`.
fn example(place: &Place) -> Result<std::process::Command> {
    let mut command = own_target(place)?;
    command.args(["run", "--quiet", "--release", "--locked", "--package", "larder-fuzz"]);
    command.args(["--example", "on_and_on", "--"]);
    Ok(command)
}

/// Returns cargo with a target directory of its own, because the flags differ: an overflow is a
/// finding, and linking must not take longer than the runs.
fn own_target(place: &Place) -> Result<std::process::Command> {
    let mut command = place.cargo();
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
