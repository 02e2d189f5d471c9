//! Two checkouts that build at once, for example for two agents. A crate that both need, and that
//! neither has, is compiled once.

use std::thread;

use super::{Macros, RUNS_MAX, outcomes, same};

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
