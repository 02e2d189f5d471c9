//! Paths in what rustc makes, in two checkouts: as rustc writes them (`rust_paths = "exact"`), and
//! replaced (`remap`). Plain runs get the options that larder adds.

use super::rust::{RUSTC, crate_case, macro_of};
use crate::case::Case;
use crate::change::{Change, all, dir, nothing, put};

/// The checkouts, with paths of different lengths.
const CHECKOUTS: [&str; 2] = ["a", "checkout"];

/// The setting, and whether a crate hits in another checkout.
#[derive(Clone, Copy, PartialEq)]
enum Paths {
    Exact,
    Remap,
}

/// A crate, and how it is compiled.
struct Crate {
    name: &'static str,
    /// `src/lib.rs`.
    source: &'static str,
    arguments: &'static str,
    /// Run after the compile.
    then: &'static str,
    /// The crate may be reused in another checkout at once if paths are replaced.
    hits: bool,
}

const LIB: Crate = Crate { name: "", source: "", arguments: "--crate-type lib -g", then: "true", hits: true };
const PROGRAM: Crate = Crate {
    arguments: "--crate-type bin -g",
    then: "RUST_BACKTRACE=0 ./t/debug/deps/x 2>&1 | grep -v '^thread'",
    ..LIB
};

#[rustfmt::skip]
const CRATES: [Crate; 16] = [
    Crate { name: "file-macro", source: "pub const F: &str = file!();", ..LIB },
    Crate { name: "panic", source: "pub fn p(o: Option<u8>) -> u8 { o.unwrap() }\npub fn g<T: std::fmt::Debug>(t: T) { panic!(\"{t:?}\") }", ..LIB },
    Crate { name: "program", source: "fn main() { println!(\"{} {}\", file!(), std::panic::Location::caller()); None::<u8>.unwrap(); }", ..PROGRAM },
    Crate { name: "optimised", source: "fn main() { println!(\"{}\", file!()); }", arguments: "--crate-type bin -O -C lto=fat -g", ..PROGRAM },
    Crate { name: "split-debuginfo", source: "fn main() {}", arguments: "--crate-type bin -g -C split-debuginfo=packed", ..PROGRAM },
    Crate { name: "unpacked-debuginfo", source: "pub fn f() {}", arguments: "--crate-type lib -g -C split-debuginfo=unpacked", ..LIB },
    Crate { name: "manifest-dir", source: "pub const D: &str = env!(\"CARGO_MANIFEST_DIR\");", hits: false, ..LIB },
    Crate { name: "length-of-it", source: "pub const D: usize = env!(\"CARGO_MANIFEST_DIR\").len();", hits: false, ..LIB },
    Crate { name: "included", source: "include!(concat!(env!(\"OUT_DIR\"), \"/g.rs\"));", ..LIB },
    Crate { name: "included-and-shown", source: "include!(concat!(env!(\"OUT_DIR\"), \"/g.rs\"));\npub const O: usize = env!(\"OUT_DIR\").len();", hits: false, ..LIB },
    Crate { name: "warning-there", source: "include!(concat!(env!(\"OUT_DIR\"), \"/w.rs\"));", ..LIB },
    Crate { name: "error", source: "include!(concat!(env!(\"OUT_DIR\"), \"/e.rs\"));", ..LIB },
    Crate { name: "own-options", source: "pub const F: &str = file!();", arguments: "--crate-type lib -g --remap-path-prefix=$PWD/src=/mine", ..LIB },
    Crate { name: "options-above", source: "pub const F: &str = file!();", arguments: "--crate-type lib -g --remap-path-prefix=${PWD%/*}=/above", hits: false, ..LIB },
    Crate { name: "cfg", source: "#[cfg(at = \"/nowhere\")] pub fn f() {}", arguments: "--crate-type lib --cfg at=\\\"$PWD\\\"", hits: false, ..LIB },
    Crate { name: "rpath", source: "fn main() {}", arguments: "--crate-type bin -C link-arg=-Wl,-rpath,$PWD", hits: false, ..PROGRAM },
];

impl Crate {
    fn script(&self, at: &str, paths: Paths) -> String {
        let (options, setting) = match paths {
            Paths::Exact => ("", "exact"),
            Paths::Remap => ("--remap-path-prefix=$PWD=. --remap-path-prefix=$PWD/t=/cargo/build-dir", "remap"),
        };
        format!(
            "cd {at}\nexport OUT_DIR=$PWD/t/out CARGO_MANIFEST_DIR=$PWD\n\
             case \"$WRAP\" in *larder) export LARDER_RUST_PATHS={setting}; options=;; *) options=\"{options}\";; esac\n\
             $WRAP {} $options --crate-name x --edition 2021 src/lib.rs {} --emit dep-info,metadata,link \
             --error-format=json --json=artifacts --out-dir $PWD/t/debug/deps -L dependency=$PWD/t/debug/deps || exit\n{}",
            *RUSTC, self.arguments, self.then
        )
    }

    fn case(&self, paths: Paths) -> Case {
        let setting = if paths == Paths::Exact { "exact" } else { "remap" };
        let [first, second] = CHECKOUTS;
        let case = crate_case(&format!("paths-{setting}-{}", self.name)).setup(made(self.source));
        let case = case.sh(self.script(first, paths)).twice();
        let case = case.sh(self.script(second, paths)).then("another checkout", nothing());
        let case = if self.hits && paths == Paths::Remap { case.hits() } else { case };
        case.then("again", nothing()).sh(self.script(first, paths)).then("the first", nothing())
    }
}

fn made(source: &str) -> Change {
    all(CHECKOUTS
        .iter()
        .flat_map(|at| {
            let put = |path: &str, text: &str| put(format!("{at}/{path}"), text);
            [
                put("t/CACHEDIR.TAG", ""),
                dir(format!("{at}/t/debug/deps")),
                put("t/out/g.rs", "pub const G: &str = file!();\n"),
                put("t/out/w.rs", "pub fn w() { let unused = 1; }\n"),
                put("t/out/e.rs", "pub fn e() -> u8 { \"\" }\n"),
                put("src/lib.rs", &format!("{source}\n")),
            ]
        })
        .collect::<Vec<_>>())
}

/// A procedural macro, which sees the paths as they are.
fn of_macros(paths: Paths) -> Vec<Case> {
    let bodies = [
        ("directory", "std::env::current_dir().unwrap().display().to_string()"),
        ("length", "std::env::current_dir().unwrap().as_os_str().len()"),
        ("variable", "std::env::var(\"CARGO_MANIFEST_DIR\").unwrap()"),
        ("resolved", "std::fs::canonicalize(\"src\").unwrap().as_os_str().len()"),
    ];
    let of = |(name, body): (&str, &str)| {
        let user = Crate {
            name: "macro",
            source: "pub fn v() -> String { m::m!().to_string() }",
            arguments: "--crate-type lib --extern m=../libm.so",
            hits: false,
            ..LIB
        };
        let mut case = user.case(paths).setup(macro_of(body));
        case.name = format!("{}-{name}", case.name);
        case
    };
    bodies.into_iter().map(of).collect()
}

pub(super) fn cases() -> Vec<Case> {
    let of = |paths: Paths| {
        let plain = CRATES.iter().map(move |of| of.case(paths));
        plain.chain(of_macros(paths)).collect::<Vec<_>>()
    };
    [Paths::Exact, Paths::Remap].into_iter().flat_map(of).collect()
}
