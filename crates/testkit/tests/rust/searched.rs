//! The directories in which rustc searches crates, and links that fail.

use larder_testkit::Place;

use super::{RUNS_MAX, outcomes, rustc, same};

/// A crate `x` that needs the crate `b`, which needs `a`. rustc finds `a` in a directory.
struct Chain {
    place: Place,
    rustc: String,
}

impl Chain {
    fn new() -> Option<Chain> {
        let chain = Chain { place: Place::new(), rustc: rustc()? };
        chain.place.put("a.rs", "pub fn a() -> u32 { 4 }\n");
        chain.place.put("b.rs", "pub fn b() -> u32 { a::a() }\n");
        chain.place.put("x.rs", "pub fn x() -> u32 { b::b() }\n");
        chain.place.put("d/.keep", "");
        chain.place.put("e/.keep", "");
        Some(chain)
    }

    /// Compiles `a` and `b` into the directory `d`, with this text behind their names.
    fn make(&self, behind: &str) {
        let (a, b) = (format!("d/liba{behind}.rlib"), format!("d/libb{behind}.rlib"));
        let (extra, to_a) = (format!("-Cextra-filename={behind}"), format!("a={a}"));
        let base = [&self.rustc[..], "--edition=2021", "--crate-type=lib", &extra];
        self.place.run(&[&base[..], &["a.rs", "-o", &a]].concat()).run().ends(0);
        self.place.run(&[&base[..], &["b.rs", "-o", &b, "--extern", &to_a]].concat()).run().ends(0);
        self.place.settle();
    }

    #[track_caller]
    fn last(&self, more: &[&str]) -> String {
        let argv = [&[&self.rustc[..], "--edition=2021", "--crate-type=lib", "x.rs", "-Ldependency=d"], more].concat();
        outcomes(&self.place, &argv, RUNS_MAX, &same).join(" ")
    }

    fn copy(&self, from: &str, to: &str) {
        std::fs::copy(self.place.path("work").join(from), self.place.path("work").join(to)).expect("copies");
        self.place.settle();
    }
}

#[test]
fn crates_that_cargo_names() {
    let Some(chain) = Chain::new() else { return };
    chain.make("-0123456789abcdef");
    let named = ["--extern", "b=d/libb-0123456789abcdef.rlib", "-Ldependency=e"];
    assert!(chain.last(&named).ends_with("hit"));
    // Another build leaves its crates there all the time.
    chain.copy("d/liba-0123456789abcdef.rlib", "d/libz-0123456789abcdef.rlib");
    assert_eq!(chain.last(&named), "hit");
    // This one is a candidate as well.
    chain.copy("d/libb-0123456789abcdef.rlib", "e/liba-0123456789abcdef.rlib");
    assert!(chain.last(&named).starts_with("miss"));
}

#[test]
fn crates_with_other_names() {
    let Some(chain) = Chain::new() else { return };
    chain.make("");
    let named = ["--extern", "b=d/libb.rlib"];
    assert!(chain.last(&named).ends_with("hit"));
    chain.copy("d/libb.rlib", "d/liba-2.rlib");
    assert!(chain.last(&named).starts_with("miss"));
    assert_eq!(chain.last(&named), "hit");
}

/// A directory that is searched for the crate itself, because its path is not given.
#[test]
fn a_crate_without_a_path() {
    let Some(chain) = Chain::new() else { return };
    chain.make("-0123456789abcdef");
    let named = ["--extern", "b", "-L", "d"];
    assert!(chain.last(&named).ends_with("hit"));
    chain.copy("d/liba-0123456789abcdef.rlib", "d/libb-2.rlib");
    assert!(chain.last(&named).starts_with("miss"));
}

/// The message names a temporary directory, which has another name in each run.
#[test]
fn a_link_that_fails() {
    let Some(rustc) = rustc() else { return };
    let place = Place::new();
    place.put("x.rs", "unsafe extern \"C\" { fn is_nowhere(); }\nfn main() { unsafe { is_nowhere() } }\n");
    for _ in 0..RUNS_MAX {
        let (ran, outcome) = place.counted(place.larder(&[&rustc, "--edition=2024", "x.rs"]));
        assert_eq!((ran.code, outcome.as_str()), (Some(1), "miss:random"));
    }
}
