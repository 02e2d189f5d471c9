//! Finds the programs under test. In this order: the path in `LARDER_BIN`, the release build at
//! `target/larder/larder` (made by `cargo xtask build`), or a debug build that is made now.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Returns the root directory of the repository.
pub fn workspace() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("this crate is not two levels below the workspace")
}

/// Runs cargo with these arguments in the workspace and returns its standard output.
pub fn cargo(words: &[&str]) -> String {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo).args(words).current_dir(workspace()).output().expect("cannot start cargo");
    assert!(output.status.success(), "cargo {words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("cargo did not print UTF-8")
}

/// Returns the canonical path of the wrapper, `larder`. `larderd` lies in the same directory.
pub fn larder() -> &'static Path {
    static LARDER: OnceLock<PathBuf> = OnceLock::new();
    LARDER.get_or_init(|| {
        let named = std::env::var_os("LARDER_BIN").map(PathBuf::from);
        let path = named.or_else(placed).unwrap_or_else(build);
        path.canonicalize()
            .unwrap_or_else(|error| panic!("{}: cannot resolve the path of larder: {error}", path.display()))
    })
}

/// Returns the path of `larder` as a word of a command line.
pub fn larder_text() -> &'static str {
    larder().to_str().expect("the path of larder is not UTF-8")
}

/// Returns the path of the release build that `cargo xtask build` made, if there is one.
fn placed() -> Option<PathBuf> {
    let path = workspace().join("target/larder/larder");
    path.is_file().then_some(path)
}

fn build() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from);
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let words = ["build", "--quiet", "--package", "larder", "--target-dir"];
    let status =
        Command::new(cargo).args(words).arg(&target).current_dir(workspace()).status().expect("cannot start cargo");
    assert!(status.success(), "cargo build --package larder failed");
    target.join("debug/larder")
}
