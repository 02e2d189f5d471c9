//! rustup's proxy as rustc. It chooses a toolchain by a variable, by files above the working
//! directory and by rustup's settings, and then becomes the rustc of that toolchain.

use std::path::Path;

use larder_testkit::{Place, Run};

use super::{RUNS_MAX, outcomes, rustc};

/// Returns the path of the proxy. Prints that the test is skipped if there is none.
fn proxy() -> Option<String> {
    let searched = std::env::var_os("PATH")?;
    let mut found = std::env::split_paths(&searched).map(|directory| directory.join("rustc"));
    let is_proxy = |path: &Path| path.canonicalize().is_ok_and(|real| real.ends_with("rustup"));
    let path = found.find(|path| is_proxy(path));
    if path.is_none() {
        eprintln!("skipped: rustc on PATH is not rustup's proxy");
    }
    Some(path?.to_str()?.to_owned())
}

#[test]
fn another_toolchain_is_chosen() {
    let (Some(proxy), Some(rustc)) = (proxy(), rustc()) else { return };
    let place = Place::new();
    place.put("x.rs", "pub const T: Option<&str> = option_env!(\"RUSTUP_TOOLCHAIN\");\n");
    let home = place.path("home/.rustup");
    std::fs::create_dir_all(home.join("toolchains")).expect("makes");
    let toolchain = Path::new(&rustc).ancestors().nth(2).expect("has a directory");
    for name in ["one", "two"] {
        std::os::unix::fs::symlink(toolchain, home.join("toolchains").join(name)).expect("links");
    }
    let choose = |name: &str| {
        let text = format!("version = \"12\"\nprofile = \"default\"\ndefault_toolchain = \"{name}\"\n\n[overrides]\n");
        std::fs::write(home.join("settings.toml"), text).expect("writes");
        place.settle();
    };
    choose("one");
    let usual = |run: Run| run.env("RUSTUP_HOME", &home).env("CARGO_HOME", place.path("home/.cargo"));
    let argv = [&proxy[..], "--crate-type=lib", "x.rs"];
    let found = outcomes(&place, &argv, RUNS_MAX, &usual);
    assert_eq!(found.last().map(String::as_str), Some("hit"), "{found:?}");
    let one = |argv: &[&str], change: &dyn Fn(Run) -> Run| outcomes(&place, argv, 1, change).join(" ");
    assert_ne!(one(&argv, &|run| usual(run).env("RUSTUP_TOOLCHAIN", "two")), "hit");
    assert_ne!(one(&[&proxy, "+two", "--crate-type=lib", "x.rs"], &usual), "hit");
    place.put("rust-toolchain.toml", "[toolchain]\nchannel = \"two\"\n");
    assert_ne!(one(&argv, &usual), "hit");
    place.remove(&["rust-toolchain.toml"]);
    assert_eq!(one(&argv, &usual), "hit");
    choose("two");
    assert_ne!(one(&argv, &usual), "hit");
    choose("one");
    assert_eq!(one(&argv, &usual), "hit");
}
