//! cargo with the cache as its wrapper: what it builds, what it says, and what it finds fresh.
//!
//! Each step compares the messages, and all that is left in the directories of crates: libraries,
//! programs, dependency files, and what build scripts wrote and said.

use std::sync::LazyLock;

use super::rust::{BIN, LIB, LIB2, crate_case};
use crate::case::Case;
use crate::change::{nothing, put, sh};
use crate::machine::Need;

/// Succeeds if the toolchain can compile for musl, for as long as the suite runs.
static MUSL: LazyLock<&'static str> =
    LazyLock::new(|| Box::leak(format!("test -d {}/../lib/rustlib/x86_64-unknown-linux-musl", *BIN).into_boxed_str()));

const MANIFEST: &str = "[package]\nname = \"p\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[features]\na = []\nb = []\n";
const DEPENDENCY: &str = "[dependencies]\nd = { path = \"d\" }\n";
const MAIN: &str = "fn main() { println!(\"{}\", d::f()); }\n";
const WARNS: &str = "pub fn f() -> u32 { let unused = 1; 4 }\n#[cfg(feature = \"a\")] pub fn a() {}\n#[test] fn t() { assert_eq!(f(), 4); }\n";
/// Shows what cargo finds fresh, without the paths.
const SHOWN: &str = "2>&1 | grep -E '^ *(Fresh|Compiling|Checking|Dirty)' | sed 's/ (.*//' | sort";

/// Returns a script that runs `commands` in a fresh target directory and keeps what they made.
fn script(commands: &str) -> String {
    format!(
        "export PATH={}:$PATH CARGO_HOME=$PWD/h RUSTC_WRAPPER=$WRAP CARGO_TERM_QUIET=true CARGO_NET_OFFLINE=true\n\
         export CARGO_INCREMENTAL=${{CARGO_INCREMENTAL:-0}}; rm -rf target made; mkdir made\n\
         fresh() {{ cargo \"$@\" -v --config term.quiet=false {SHOWN}; }}\n\
         {commands}\n\
         end=$?; [ -d target ] && (cd target && find . -type f \\( -path '*/deps/*' -o -path '*/build/*/out/*' \
         -o -path '*/build/*/output' \\) ! -path '*incremental*' -exec cp --parents {{}} ../made \\;); rm -rf target h; exit $end",
        *BIN
    )
}

fn package(name: &str) -> Case {
    crate_case(&format!("cargo-{name}"))
        .file("Cargo.toml", format!("{MANIFEST}{DEPENDENCY}"))
        .file("d/Cargo.toml", MANIFEST.replace("\"p\"", "\"d\""))
        .file("d/src/lib.rs", WARNS)
        .file("src/main.rs", MAIN)
}

/// A package whose crate `m` is a procedural macro with this body.
fn with_macro(name: &str, body: &str) -> Case {
    package(name)
        .file("Cargo.toml", format!("{MANIFEST}{DEPENDENCY}m = {{ path = \"m\" }}\n"))
        .file("m/Cargo.toml", format!("{}[lib]\nproc-macro = true\n", MANIFEST.replace("\"p\"", "\"m\"")))
        .file(
            "m/src/lib.rs",
            format!(
                "use proc_macro::TokenStream;\n#[proc_macro] pub fn m(_: TokenStream) -> TokenStream {{\n\
                 let v = {{ {body} }}; format!(\"{{:?}}\", v.to_string()).parse().unwrap() }}\n"
            ),
        )
        .file("src/main.rs", "fn main() { println!(\"{} {}\", m::m!(), d::f()); }\n")
}

#[rustfmt::skip]
pub(super) fn cases() -> Vec<Case> {
    let build = || script("cargo build && fresh build && ./target/debug/p");
    let lib = |kinds: &str| format!("{MANIFEST}{DEPENDENCY}[lib]\npath = \"src/lib.rs\"\ncrate-type = [{kinds}]\n");
    let mut cases = vec![
        package("edited").sh(build()).repeats()
            .then("leaf edited", put("src/main.rs", "fn main() { println!(\"{}\", d::f() + 1); }\n"))
            .then("root edited", put("d/src/lib.rs", LIB2)).then("root as it was", put("d/src/lib.rs", WARNS)),
        package("touched").sh(script("cargo build && ./target/debug/p; touch d/src/lib.rs; fresh build")).repeats(),
        package("build-script").file("build.rs", "fn main() { let out = std::env::var(\"OUT_DIR\").unwrap(); std::fs::copy(\"data\", out + \"/g.txt\").unwrap(); println!(\"cargo:rustc-env=V=1\"); }\n")
            .file("src/main.rs", "fn main() { println!(\"{} {} {}\", d::f(), env!(\"V\"), include_str!(concat!(env!(\"OUT_DIR\"), \"/g.txt\"))); }\n")
            .file("data", "1").sh(build()).repeats().then("edited", put("data", "2"))
            .then("another variable", sh("sed -i s/V=1/V=2/ build.rs")),
        package("package-variables").file("src/main.rs", "fn main() { println!(\"{} {}\", env!(\"CARGO_PKG_VERSION\"), d::f()); }\n")
            .sh(build()).cold().then("version", sh("sed -i 's/0.1.0/0.2.0/' Cargo.toml")),
        package("rustflags").sh(build()).cold().env("RUSTFLAGS", "-Copt-level=3").then("other flags", nothing())
            .without("RUSTFLAGS").env("CARGO_ENCODED_RUSTFLAGS", "-Copt-level=1\x1f-Cdebuginfo=0").then("encoded", nothing()),
        package("flags-in-configuration").file(".cargo/config.toml", "[build]\nrustflags = [\"--cfg\", \"a\"]\n").sh(build()).repeats()
            .then("changed", put(".cargo/config.toml", "[build]\nrustflags = [\"--cfg\", \"b\", \"--remap-path-prefix=src=/s\"]\n")),
        package("check-build-clippy").sh(script("cargo check && cargo build && cargo clippy && fresh build && fresh clippy && ./target/debug/p")).repeats()
            .then("root edited", put("d/src/lib.rs", LIB)),
        package("tests").mask(r"thread 't' \(\d+\)", "the thread's number").sh(script("cargo test --workspace --no-run && for t in target/debug/deps/?-????????????????; do $t | grep -v finished; done")).repeats()
            .then("fails", put("src/main.rs", "fn main() { d::f(); }\n#[test] fn t() { assert!(false); }\n")),
        package("kinds").file("src/lib.rs", "#[no_mangle] pub extern \"C\" fn x() -> u32 { d::f() }\n").file("src/main.rs", "fn main() {}\n")
            .file("Cargo.toml", lib("\"rlib\", \"cdylib\", \"staticlib\"")).sh(script("cargo build && fresh build")).repeats(),
        package("features").sh(script("cargo build --features a && cargo build --features b && fresh build --features a && ./target/debug/p")).repeats(),
        package("renamed").sh(build()).cold().then("renamed", sh("sed -i 's/^d = .*/e = { package = \"d\", path = \"d\" }/' Cargo.toml; sed -i 's/d::f/e::f/' src/main.rs"))
            .then("another edition", sh("sed -i 's/2021/2018/' Cargo.toml")),
        package("same-version").sh(build()).cold().then("other content", sh("mv d e; cp -r e d; echo 'pub fn f() -> u32 { 7 }' > d/src/lib.rs"))
            .then("another directory", sh("rm -r d; sed -i 's/path = \"d\"/path = \"e\"/' Cargo.toml")),
        package("messages").sh(script("cargo build --message-format=json-diagnostic-rendered-ansi | grep compiler-message; cargo build --color always")).repeats(),
        package("fails").file("src/main.rs", "fn main() { d::nothing(); }\n").sh(script("cargo build; cargo build; cargo check")).repeats()
            .then("mended", put("src/main.rs", MAIN)),
        package("profiles").sh(script("cargo build --release && ./target/release/p")).cold()
            .env("CARGO_PROFILE_RELEASE_LTO", "thin").then("thin", nothing()).env("CARGO_PROFILE_RELEASE_LTO", "fat").then("fat", nothing())
            .env("CARGO_PROFILE_RELEASE_DEBUG", "2").env("CARGO_PROFILE_RELEASE_SPLIT_DEBUGINFO", "packed").then("packed", nothing())
            .env("CARGO_PROFILE_RELEASE_STRIP", "true").then("stripped", nothing()),
        package("native-library").sh(script("cargo build && ./target/debug/p; echo $?"))
            .file("build.rs", "fn main() { let out = std::env::var(\"OUT_DIR\").unwrap();\n\
                let run = |line: &str| assert!(std::process::Command::new(\"sh\").arg(\"-c\").arg(line).current_dir(&out).status().unwrap().success());\n\
                std::fs::copy(\"n.c\", format!(\"{out}/n.c\")).unwrap(); run(\"gcc -c n.c && ar rcsD libn.a n.o\");\n\
                println!(\"cargo:rustc-link-search=native={out}\\ncargo:rustc-link-lib=static=n\"); }\n")
            .file("n.c", "int n(void) { return 1; }\n").file("src/main.rs", "extern \"C\" { fn n() -> i32; }\nfn main() { std::process::exit(unsafe { n() }) }\n")
            .repeats().then("changed", put("n.c", "int n(void) { return 2; }\n")),
        package("workspace-wrapper").file("w.sh", "#!/bin/sh\nexec \"$@\" --cfg wrapped\n").setup(sh("chmod 755 w.sh"))
            .file("src/main.rs", "fn main() { println!(\"{} {}\", d::f(), cfg!(wrapped)); }\n")
            .sh(script("export RUSTC_WORKSPACE_WRAPPER=$PWD/w.sh; cargo build && ./target/debug/p")).repeats()
            .then("changed", sh("sed -i s/wrapped/other/ w.sh")),
        package("fix").sh(script("cargo fix --allow-no-vcs --workspace; cat d/src/lib.rs")).repeats(),
        package("rust-analyzer").sh(script("cargo check; export CARGO_TARGET_DIR=$PWD/target/rust-analyzer; cargo check && fresh check")).repeats()
            .then("edited", put("src/main.rs", "fn main() { println!(\"{}\", d::f() + 1); }\n")),
        package("emits").sh(script("cargo rustc -- --emit=asm,llvm-ir && cargo rustc --profile check")).repeats(),
        package("linked-directory").setup(sh("mkdir real; mv Cargo.toml d src real; ln -s real link"))
            .sh(format!("cd link\n{}", script("cargo build && ./target/debug/p"))).repeats()
            .sh(format!("cd real\n{}", script("cargo build && ./target/debug/p"))).then("by the other name", nothing()),
        package("space in the name").setup(sh("mkdir 'a b'; mv Cargo.toml d src 'a b'")).sh(format!("cd 'a b'\n{}", script("cargo build && ./target/debug/p")))
            .repeats().then("edited", put("a b/d/src/lib.rs", LIB2)),
        package("incremental").mask(r"\.[0-9a-z]{7}\.rcgu\.o", "rustc's own random names of members").loose("*.rlib", "rustc's own random names of members")
            .env("CARGO_INCREMENTAL", "1").sh(script("cargo build && ./target/debug/p && touch src/main.rs && cargo build && fresh build")).repeats()
            .then("edited", put("src/main.rs", "fn main() { println!(\"{}\", d::f() + 1); }\n")),
        package("several-targets").needs(Need::Works(*MUSL, "musl target of Rust")).sh(script("cargo build --target x86_64-unknown-linux-musl && cargo build && ./target/debug/p")).repeats(),
    ];
    cases.extend(macros());
    cases
}

#[rustfmt::skip]
fn macros() -> Vec<Case> {
    let build = || script("cargo build && fresh build && ./target/debug/p");
    vec![
        with_macro("macro-file", "std::fs::read_to_string(\"data\").unwrap_or_default()").sh(build()).repeats()
            .then("appears", put("data", "1")).then("edited", put("data", "2")),
        with_macro("macro-size", "std::fs::metadata(\"data\").map_or(0, |d| d.len())").sh(build()).repeats()
            .then("appears", put("data", "1")).then("longer", put("data", "22")),
        with_macro("macro-hash", "let m: std::collections::HashMap<_, _> = (0..9).map(|n| (n, n)).collect(); m.len()").sh(build()).repeats()
            .then("once more", nothing()),
        with_macro("macro-arguments", "std::env::args().map(|word| word.len()).sum::<usize>()").sh(build()).repeats()
            .sh(script("export CARGO_TARGET_DIR=$PWD/target/longer; cargo build && ./target/longer/debug/p")).then("another target directory", nothing()).then("again", nothing()),
        with_macro("macro-edited", "1").sh(build()).repeats()
            .then("edited", sh("sed -i 's/{ 1 }/{ 2 }/' m/src/lib.rs")),
        with_macro("macro-coverage", "1").env("RUSTFLAGS", "-Cinstrument-coverage").loose("*.profraw", "addresses")
            .sh(script("cargo build && ./target/debug/p; rm -f *.profraw */*.profraw")).repeats(),
    ]
}
