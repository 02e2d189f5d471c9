//! Crates with sessions of incremental compilation (`-C incremental`).

use larder_testkit::Place;

use crate::{Macros, RUNS_MAX, rustc};

/// Removes the sessions, and what was compiled.
fn forget(place: &Place) {
    for directory in ["inc", "out"] {
        let _ = std::fs::remove_dir_all(place.path("work").join(directory));
    }
    std::fs::create_dir(place.path("work/out")).expect("makes");
}

#[test]
fn sessions_are_left_to_rustc() {
    let Some(rustc) = rustc() else { return };
    let place = Place::new();
    place.put("x.rs", "pub fn f() -> u32 { 4 }\n");
    let argv = [
        &rustc[..],
        "--crate-type=lib",
        "--crate-name=x",
        "x.rs",
        "--emit=dep-info,metadata",
        "-Cincremental=inc",
        "--out-dir",
        "out",
    ];
    let compile = || place.counted(place.larder(&argv)).1;
    for _ in 0..RUNS_MAX {
        forget(&place);
        if compile() == "hit" {
            break;
        }
    }
    // A fresh directory is answered from the store, without a session. Then rustc makes one.
    assert!(!place.path("work/inc").exists() && place.path("work/out/x.d").exists());
    place.put("x.rs", "pub fn f() -> u32 { 5 }\n");
    assert_eq!(compile(), "miss");
    assert!(place.path("work/inc").exists());
    place.put("x.rs", "pub fn f() -> u32 { 6 }\n");
    assert_eq!(compile(), "bypass:session");
    forget(&place);
    assert_eq!(compile(), "miss");
}

/// rustc gives the objects in a library random names then. Two runs are the same if all else is.
#[test]
fn a_macro_that_draws_random_numbers() {
    let Some(macros) = Macros::of("std::collections::HashMap::from([(1, 2)]).len()") else { return };
    let place = &macros.place;
    let argv = [&macros.argv()[..], &["-Cincremental=inc", "--out-dir", "out"]].concat();
    let mut libraries = Vec::new();
    let mut compile = || {
        forget(place);
        let (ran, outcome) = place.counted(place.larder(&argv));
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let library = place.read("out/libx.rlib");
        let is_known = libraries.contains(&library);
        libraries.push(library);
        (outcome, is_known)
    };
    let found: Vec<(String, bool)> = (0..RUNS_MAX).map(|_| compile()).collect();
    let hits = found.iter().position(|(outcome, _)| outcome == "hit");
    assert!(hits.is_some_and(|first| (2..RUNS_MAX - 1).contains(&first)), "{found:?}");
    assert!(found.iter().all(|(outcome, is_known)| (outcome == "hit") == *is_known), "{found:?}");
    macros.make("use std::hash::*; std::collections::hash_map::RandomState::new().build_hasher().finish()");
    let found: Vec<(String, bool)> = (0..3).map(|_| compile()).collect();
    assert!(found.iter().all(|(outcome, is_known)| outcome.starts_with("miss") && !is_known), "{found:?}");
}
