//! Where the programs under test are: `LARDER_BIN`, else the workspace's release build, else one that is made now.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The repository.
pub fn workspace() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("this crate is two levels below the workspace")
}

/// The wrapper, with `larderd` beside it.
pub fn larder() -> &'static Path {
    static LARDER: OnceLock<PathBuf> = OnceLock::new();
    LARDER.get_or_init(|| {
        let named = std::env::var_os("LARDER_BIN").map(PathBuf::from);
        let path = named.or_else(placed).unwrap_or_else(build);
        path.canonicalize().unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    })
}

/// What `cargo xtask build` left.
fn placed() -> Option<PathBuf> {
    let path = workspace().join("target/larder/larder");
    path.is_file().then_some(path)
}

fn build() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from);
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let words = ["build", "--quiet", "-p", "larder-wrapper", "-p", "larder-daemon", "--target-dir"];
    let status = Command::new(cargo).args(words).arg(&target).current_dir(workspace()).status().expect("cargo starts");
    assert!(status.success(), "larder does not build");
    target.join("debug/larder")
}
