//! Two checkouts that build at once, for example for two agents. A crate that both need, and that
//! neither has, is compiled once.

use std::thread;

use larder_testkit::Place;

use super::{RUNS_MAX, outcomes, rustc, same};

/// Enough functions that both compiles run at the same time.
const FUNCTIONS: usize = 2000;

#[test]
fn a_crate_is_compiled_once() {
    let Some(rustc) = rustc() else { return };
    let place = Place::new();
    let source = |value: usize| -> String {
        (0..FUNCTIONS).map(|n| format!("pub fn f{n}(a: u64) -> u64 {{ a * {n} + {value} }}\n")).collect()
    };
    place.put("x.rs", &source(1));
    let deps = ["a", "b"].map(|checkout| {
        place.put(&format!("{checkout}/target/CACHEDIR.TAG"), "Signature: 8a477f597d28d172789f06886806bc55");
        place.put(&format!("{checkout}/target/debug/deps/.keep"), "");
        place.text(&format!("work/{checkout}/target/debug/deps"))
    });
    let argv = |deps: &str| {
        let words = [&rustc[..], "--crate-type=lib", "x.rs", "--emit=dep-info,metadata,link", "--out-dir", deps];
        words.map(str::to_owned)
    };
    let first = argv(&deps[0]);
    let first: Vec<&str> = first.iter().map(String::as_str).collect();
    assert_eq!(outcomes(&place, &first, RUNS_MAX, &same).last().map(String::as_str), Some("hit"));
    place.put("x.rs", &source(2));
    place.settle();
    let counts = || ["hit", "miss"].map(|what| place.counters().get(what));
    let before = counts();
    thread::scope(|scope| {
        for deps in &deps {
            let argv = argv(deps);
            let run = place.larder(&argv.iter().map(String::as_str).collect::<Vec<_>>());
            scope.spawn(move || run.run().ends(0));
        }
    });
    let after = counts();
    assert_eq!([after[0] - before[0], after[1] - before[1]], [1, 1], "hits and misses");
    let library = |checkout: &str| place.read(&format!("{checkout}/target/debug/deps/libx.rlib"));
    assert!(!library("a").is_empty() && library("a") == library("b"));
}
