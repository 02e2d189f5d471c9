//! Compiles that run at once.
//!
//! - Two checkouts build, for example for two agents. A crate that both need, and that neither has,
//!   is compiled once.
//! - cargo starts the compile of a crate when the metadata of those that it needs is there. Their
//!   compiles still run.
//! - It starts a program when its crates are there, maybe within one tick of the clock of file times.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use larder_testkit::{Place, larder};

use super::{Macros, RUNS_MAX, outcomes, rustc, same};

#[test]
fn a_crate_is_compiled_once() {
    // larder waits for half as long again as the crate took before, so the machine's load is to matter
    // little.
    let Some(macros) = Macros::of("std::thread::sleep(std::time::Duration::from_secs(3)); 1") else { return };
    let place = &macros.place;
    let deps = ["a", "b"].map(|checkout| {
        place.put(&format!("{checkout}/target/CACHEDIR.TAG"), "Signature: 8a477f597d28d172789f06886806bc55");
        place.put(&format!("{checkout}/target/debug/deps/.keep"), "");
        place.text(&format!("work/{checkout}/target/debug/deps"))
    });
    let argv = |which: usize| [&macros.argv()[..], &["--out-dir", &deps[which]]].concat();
    assert_eq!(outcomes(place, &argv(0), RUNS_MAX, &same).last().map(String::as_str), Some("hit"));
    place.put("x.rs", "extern crate m; pub fn w() -> String { m::m!().to_string() }\n");
    place.settle();
    let counts = || ["hit", "miss"].map(|what| place.counters().get(what));
    let before = counts();
    thread::scope(|scope| {
        for which in [0, 1] {
            let run = place.larder(&argv(which));
            scope.spawn(move || run.run().ends(0));
        }
    });
    let after = counts();
    assert_eq!([after[0] - before[0], after[1] - before[1]], [1, 1], "hits and misses");
    let library = |checkout: &str| place.read(&format!("{checkout}/target/debug/deps/libx.rlib"));
    assert!(!library("a").is_empty() && library("a") == library("b"));
}

/// Waits until a process has mapped a file.
fn wait_until_mapped(file: &Path) {
    let is_mapped = |entry: fs::DirEntry| {
        let maps = fs::read_to_string(entry.path().join("maps")).unwrap_or_default();
        maps.lines().any(|line| line.ends_with(&*file.to_string_lossy()))
    };
    while !fs::read_dir("/proc").expect("lists").flatten().any(is_mapped) {
        thread::sleep(Duration::from_millis(5));
    }
}

/// Compiles a crate and does something with the metadata of another one that it needs, after rustc
/// read it and before it ends. Returns the outcomes of this run and the next.
fn outcomes_after(during: &dyn Fn(&Path, &Path)) -> Option<[String; 2]> {
    let macros = Macros::of("std::thread::sleep(std::time::Duration::from_secs(2)); 1")?;
    let place = &macros.place;
    place.put("d.rs", "pub fn d() -> u32 { 3 }\n");
    place.put(
        "x.rs",
        "extern crate d; extern crate m; pub fn v() -> String { m::m!().to_string() + &d::d().to_string() }\n",
    );
    let metadata = ["--edition=2021", "--crate-type=lib", "--emit=metadata"];
    let make = [&[macros.rustc.as_str(), "--crate-name=d", "d.rs", "-o", "deps/libd.rmeta"], &metadata[..]].concat();
    place.put("deps/.keep", "");
    let argv = [
        &[macros.rustc.as_str(), "--crate-name=x", "x.rs", "--extern=m=libm.so", "--extern=d=deps/libd.rmeta"],
        &["-Ldependency=deps", "-o", "libx.rmeta"][..],
        &metadata[..],
    ]
    .concat();
    // larder learns about the macro.
    place.run(&make).run().ends(0);
    outcomes(place, &argv, RUNS_MAX, &same);
    let (dependency, text) = (place.path("work/deps/libd.rmeta"), "pub fn d() -> u32 { 4 }\n");
    place.put("d.rs", text);
    place.run(&make).run().ends(0);
    place.settle();
    let compile = || place.counted(place.larder(&argv)).1;
    let first = thread::scope(|scope| {
        let run = place.larder(&argv);
        let counted = scope.spawn(move || run.run().ends(0));
        wait_until_mapped(&dependency);
        during(&dependency, &place.path("work/linked"));
        counted.join().expect("ends");
        place.counters()
    });
    let recorded = if first.get("miss:input-changed") > 0 { "not recorded" } else { "recorded" };
    Some([recorded.to_owned(), compile()])
}

#[test]
fn metadata_that_is_linked_into_a_session_is_unchanged() {
    let link = |metadata: &Path, to: &Path| fs::hard_link(metadata, to).expect("links");
    let Some(outcomes) = outcomes_after(&link) else { return };
    assert_eq!(outcomes, ["recorded", "hit"]);
}

#[test]
fn metadata_that_is_written_again_may_have_changed() {
    let write = |metadata: &Path, to: &Path| {
        let bytes = fs::read(metadata).expect("reads");
        fs::hard_link(metadata, to).expect("links");
        fs::write(metadata, bytes).expect("writes");
    };
    let Some(outcomes) = outcomes_after(&write) else { return };
    assert_eq!(outcomes, ["not recorded", "miss"]);
}

#[test]
fn a_crate_that_was_just_made_where_times_are_coarse() {
    let Some(rustc) = rustc() else { return };
    let place = Place::new();
    place.put("low/d.rs", "pub fn v() -> u8 { 1 }\n");
    place.put("low/x.rs", "fn main() { println!(\"{}\", d::v()) }\n");
    place.settle();
    let larder = larder().display().to_string();
    // Times of files on overlayfs are those of the clock's ticks, and rustc has linked the crate a moment
    // ago.
    let build = format!(
        "rm -f libd.rlib x && {larder} {rustc} --crate-type=rlib d.rs && exec {larder} {rustc} --extern=d=libd.rlib x.rs"
    );
    let line = format!("for i in $(seq {RUNS_MAX}); do ({build}) || exit; done");
    let Some(run) = place.in_overlay(&line) else { return };
    let log = place.path("log");
    run.env("LARDER_LOG", &log).run().ends(0);
    let text = fs::read_to_string(&log).expect("reads");
    let last = text.lines().rfind(|line| line.contains("x.rs")).expect("was compiled");
    assert!(last.contains(" hit: "), "{text}");
}
