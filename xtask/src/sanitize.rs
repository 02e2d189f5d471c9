//! Runs the tests of `larder-sys`, the only library with unsafe code, under AddressSanitizer, and
//! those that make no system calls under Miri.
//!
//! Unaware of: the preloaded C library, whose own tests compile it with sanitizers.

use crate::arch::Arch;
use crate::place::Place;
use crate::run;
use anyhow::Result;
use std::process::Command;

/// Tests that do not run under the sanitizer: one limits memory to less than the sanitizer takes,
/// and those of a module without unsafe code wait for the disk.
const NOT_SANITIZED: [&str; 2] = ["memory_has_a_limit", "linux::remove::"];
/// The tests whose unsafe code makes no system call.
const PURE: &str = "arena::";

/// Runs the unit tests of `larder-sys` under AddressSanitizer.
///
/// The pinned compiler has the sanitizer, but takes the option only if it is told to be a nightly
/// one. That is for these tests alone. What else is built does not see the variable.
pub(crate) fn address(place: &Place) -> Result<()> {
    let target = match Arch::HOST {
        Arch::X86_64 => "x86_64-unknown-linux-gnu",
        Arch::Aarch64 => "aarch64-unknown-linux-gnu",
    };
    let mut command = place.cargo();
    command
        .args(["test", "--quiet", "--locked", "--package", "larder-sys", "--lib", "--target", target])
        .arg("--")
        .args(NOT_SANITIZED.iter().flat_map(|test| ["--skip", test]))
        .env("CARGO_TARGET_DIR", place.own("sanitized")?)
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTFLAGS", "-Zsanitizer=address");
    run::shown_to_user(&mut command)
}

/// Runs tests of `larder-sys` under Miri, if a nightly toolchain has it.
pub(crate) fn miri(place: &Place) -> Result<()> {
    let miri = |words: &[&str]| {
        let mut command = Command::new("rustup");
        command.args(["run", "nightly", "cargo", "miri"]).args(words).current_dir(&place.repo);
        command
    };
    if run::output(&mut miri(&["--version"])).is_err() {
        println!("skipped: there is no Miri (rustup toolchain install nightly --component miri rust-src)");
        return Ok(());
    }
    let mut command = miri(&["test", "--quiet", "--locked", "--package", "larder-sys", "--lib", "--"]);
    run::shown_to_user(command.arg(PURE).env("CARGO_TARGET_DIR", place.own("miri")?))
}
