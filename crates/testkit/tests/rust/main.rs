//! Crates compiled by rustc through larder. Each result must be what rustc leaves without larder, and
//! must not be used once something that the compile relied on has changed. Much of it is about
//! procedural macros, which run in rustc's process and may do anything.
#![cfg(target_os = "linux")]

mod build_scripts;
mod proxy;
mod remapped;
mod searched;
mod sessions;
mod targets;
mod together;

use std::process::Command;

use larder_testkit::{Place, Ran, Run, Tree};

/// The most runs until a hit: some teach larder how a program can be observed.
const RUNS_MAX: usize = 6;

/// Returns the path of rustc in the toolchain, not of rustup's proxy. Prints that the test is
/// skipped if there is none.
fn rustc() -> Option<String> {
    let output = Command::new("rustc").args(["--print", "sysroot"]).output().ok();
    let sysroot = output.and_then(|output| String::from_utf8(output.stdout).ok());
    let path = sysroot.map(|sysroot| format!("{}/bin/rustc", sysroot.trim()));
    let path = path.filter(|path| std::path::Path::new(path).is_file());
    if path.is_none() {
        eprintln!("skipped: rustc is not installed");
    }
    path
}

/// A place with a procedural macro in `libm.so`, which expands to a literal that `body` computes, and
/// a crate `x.rs` that uses it.
struct Macros {
    place: Place,
    rustc: String,
}

impl Macros {
    fn of(body: &str) -> Option<Macros> {
        let macros = Macros { place: Place::new(), rustc: rustc()? };
        macros.make(body);
        let user = "extern crate m; pub fn v() -> String { m::m!().to_string() }\n";
        macros.place.put("x.rs", user);
        Some(macros)
    }

    fn make(&self, body: &str) {
        let text = format!(
            "use proc_macro::TokenStream;\n#[proc_macro]\npub fn m(_: TokenStream) -> TokenStream {{\n\
             let v = {{ {body} }}; format!(\"{{:?}}\", v.to_string()).parse().expect(\"a literal\") }}\n"
        );
        self.place.put("m.rs", text);
        let argv = [
            &self.rustc,
            "--edition=2021",
            "--extern=proc_macro",
            "--crate-type=proc-macro",
            "--crate-name=m",
            "m.rs",
            "-o",
            "libm.so",
        ];
        self.place.run(&argv).run().ends(0);
        let age = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
        let made = std::fs::File::open(self.place.path("work/libm.so")).expect("is made");
        made.set_modified(age).expect("is changed");
        self.place.settle();
    }

    fn argv(&self) -> [&str; 7] {
        [&self.rustc, "--crate-type=lib", "--crate-name=x", "x.rs", "--extern", "m=libm.so", "--emit=metadata,link"]
    }

    /// Compiles the crate until it hits or the runs are used up, and compares each run with one
    /// without larder. Returns the outcomes.
    #[track_caller]
    fn outcomes(&self, runs: usize, change: &dyn Fn(Run) -> Run) -> Vec<String> {
        outcomes(&self.place, &self.argv(), runs, change)
    }

    /// Checks that the crate hits as long as nothing changes, and does not once `after` applies.
    #[track_caller]
    fn check(&self, before: &dyn Fn(Run) -> Run, after: &dyn Fn(Run) -> Run, change: &dyn Fn()) {
        let first = self.outcomes(RUNS_MAX, before);
        assert_eq!(first.last().map(String::as_str), Some("hit"), "{first:?}");
        change();
        self.place.settle();
        let second = self.outcomes(1, after);
        assert_eq!(second, ["miss"], "after the change");
    }
}

#[track_caller]
fn outcomes(place: &Place, argv: &[&str], runs: usize, change: &dyn Fn(Run) -> Run) -> Vec<String> {
    compared(place, argv, argv, runs, change)
}

/// Runs `plain` without larder, then `argv` through it until it hits or the runs are used up, and
/// compares each run with the one without larder. Returns the outcomes.
#[track_caller]
fn compared(place: &Place, plain: &[&str], argv: &[&str], runs: usize, change: &dyn Fn(Run) -> Run) -> Vec<String> {
    let work = place.path("work");
    let before = Tree::of(&work);
    let expect = change(place.run(plain)).run();
    let expect_tree = Tree::of(&work);
    before.put_back(&work);
    let mut found: Vec<String> = Vec::new();
    while found.len() < runs && found.last().is_none_or(|last| last != "hit") {
        let (ran, outcome) = place.counted(change(place.larder(argv)));
        assert_eq!(ran, expect, "{argv:?} ({outcome}): left is with larder, right without");
        if let Some(difference) = Tree::of(&work).difference(&expect_tree) {
            panic!("{argv:?} ({outcome}): files differ (with larder / without): {difference}");
        }
        found.push(outcome);
        before.put_back(&work);
    }
    found
}

fn same(run: Run) -> Run {
    run
}

#[test]
fn each_kind_of_crate_hits() {
    let Some(rustc) = rustc() else { return };
    let place = Place::new();
    place.put("x.rs", "pub fn f() -> u32 { 4 }\nfn main() { println!(\"{}\", f()); }\n#[test] fn t() {}\n");
    place.put("m.rs", "use proc_macro::TokenStream;\n#[proc_macro] pub fn m(t: TokenStream) -> TokenStream { t }\n");
    let kinds: [&[&str]; 9] = [
        &["--crate-type=lib", "x.rs", "--emit=dep-info,metadata,link"],
        &["--crate-type=rlib", "x.rs", "-Cdebuginfo=2"],
        &["--crate-type=bin", "x.rs"],
        &["--crate-type=cdylib", "x.rs"],
        &["--crate-type=dylib", "x.rs", "-Cprefer-dynamic"],
        &["--crate-type=staticlib", "x.rs"],
        &["--crate-type=proc-macro", "m.rs"],
        &["--test", "x.rs", "-o", "tests"],
        &["--crate-type=lib", "x.rs", "--emit=obj,asm,llvm-ir,mir"],
    ];
    for kind in kinds {
        let argv: Vec<&str> = [&rustc[..]].into_iter().chain(kind.iter().copied()).collect();
        let found = outcomes(&place, &argv, RUNS_MAX, &same);
        assert_eq!(found.last().map(String::as_str), Some("hit"), "{kind:?}: {found:?}");
    }
    let stats = place.larder(&["stats", "--json"]).run().quiet();
    let (_, crates) = stats.split_once("\"crates\": {").expect("has them");
    for kind in ["lib", "bin", "test", "proc-macro", "dylib"] {
        assert!(crates.contains(&format!("\"{kind}\": {{")), "{kind}: {stats}");
    }
    assert!(place.larder(&["stats"]).run().quiet().contains("by crate type"));
}

#[test]
fn warnings_and_errors_are_replayed() {
    let Some(rustc) = rustc() else { return };
    let place = Place::new();
    place.put("w.rs", "pub fn f() { let unused = 4; }\n");
    place.put("e.rs", "pub fn f() -> u32 { \"no\" }\n");
    let json = ["--error-format=json", "--json=artifacts,diagnostic-rendered-ansi", "--diagnostic-width=80"];
    for (source, more) in [("w.rs", ""), ("w.rs", "--deny=warnings"), ("w.rs", "--cap-lints=allow"), ("e.rs", "-g")] {
        let mut argv = vec![&rustc[..], "--crate-type=lib", source, "--emit=metadata,link"];
        argv.extend(json.iter().copied().chain([more]).filter(|word| !word.is_empty()));
        let found = outcomes(&place, &argv, RUNS_MAX, &same);
        assert_eq!(found.last().map(String::as_str), Some("hit"), "{source} {more}: {found:?}");
    }
}

#[test]
fn variables_and_included_files() {
    let Some(rustc) = rustc() else { return };
    let place = Place::new();
    place.put("a.txt", "one");
    place
        .put("x.rs", "pub const V: Option<&str> = option_env!(\"V\");\npub const A: &str = include_str!(\"a.txt\");\n");
    let argv = [&rustc[..], "--crate-type=lib", "x.rs", "--emit=dep-info,metadata,link"];
    let with = |value: &'static str| move |run: Run| run.env("V", value);
    let last = |change: &dyn Fn(Run) -> Run| outcomes(&place, &argv, RUNS_MAX, change).len();
    assert!(last(&same) > 1 && last(&same) == 1);
    assert_eq!(outcomes(&place, &argv, 1, &with("1")), ["miss"]);
    assert_eq!(outcomes(&place, &argv, 1, &with("2")), ["miss"]);
    assert_eq!(outcomes(&place, &argv, 1, &with("1")), ["hit"]);
    assert_eq!(outcomes(&place, &argv, 1, &same), ["hit"]);
    place.put("a.txt", "two");
    assert_eq!(outcomes(&place, &argv, 1, &same), ["miss"]);
    // A variable that no crate asks for does not matter.
    assert_eq!(outcomes(&place, &argv, 1, &|run| run.env("OTHER", "x")), ["hit"]);
}

#[test]
fn what_a_macro_reads_is_seen() {
    let Some(macros) = Macros::of("std::env::var(\"V\").unwrap_or_default()") else { return };
    macros.check(&same, &|run| run.env("V", "1"), &|| {});
    // rustc asks for this one as well, and its own question does not count.
    macros.make("std::env::var(\"TMPDIR\").unwrap_or_default()");
    let other = macros.place.text("home");
    macros.check(&same, &|run| run.env("TMPDIR", &other), &|| {});
    macros.make("std::env::vars().count()");
    macros.check(&same, &|run| run.env("UNHEARD_OF", "1"), &|| {});
    macros.make("std::fs::read_to_string(\"data\").unwrap_or_default()");
    macros.check(&same, &same, &|| drop(macros.place.put("data", "new")));
    macros.make("std::fs::read_dir(\"files\").map_or(0, |names| names.count())");
    macros.check(&same, &same, &|| drop(macros.place.put("files/a", "")));
    // rustc uses neither times nor sizes, but a macro may.
    macros.place.put("sized", "1");
    macros.make("std::fs::metadata(\"sized\").unwrap().len()");
    macros.check(&same, &same, &|| drop(macros.place.put("sized", "22")));
    macros.make("std::fs::metadata(\"sized\").unwrap().modified().is_ok()");
    let touched = std::time::SystemTime::now() - std::time::Duration::from_secs(7200);
    let touch = || std::fs::File::open(macros.place.path("work/sized")).and_then(|file| file.set_modified(touched));
    macros.check(&same, &same, &|| touch().expect("is changed"));
    macros.make("std::os::unix::fs::MetadataExt::nlink(&std::fs::metadata(\"sized\").unwrap())");
    let [sized, linked] = ["work/sized", "linked"].map(|name| macros.place.path(name));
    macros.check(&same, &same, &|| std::fs::hard_link(&sized, &linked).expect("is made"));
}

/// `cargo` names the target directory in the arguments.
#[test]
fn a_macro_that_reads_the_arguments() {
    let body = "std::env::args().map(|word| word.len()).sum::<usize>()";
    let Some(macros) = Macros::of(body) else { return };
    let place = &macros.place;
    for target in ["t", "another"] {
        place.put(&format!("{target}/CACHEDIR.TAG"), "Signature: 8a477f597d28d172789f06886806bc55");
        place.put(&format!("{target}/debug/deps/.keep"), "");
    }
    let compile = |target: &str| {
        let deps = place.text(&format!("work/{target}/debug/deps"));
        let argv = [&macros.argv()[..], &["--out-dir", &deps]].concat();
        outcomes(place, &argv, RUNS_MAX, &same)
    };
    assert_eq!(compile("t").last().map(String::as_str), Some("hit"));
    assert_eq!(compile("another")[0], "miss");
    macros.make("1");
    assert_eq!(compile("t").last().map(String::as_str), Some("hit"));
    assert_eq!(compile("another"), ["hit"]);
}

#[test]
fn what_differs_in_each_run_is_not_recorded() {
    let clock = "std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_secs() >> 40)";
    let Some(macros) = Macros::of(clock) else { return };
    let runs = 3;
    assert_eq!(macros.outcomes(runs, &same), ["miss:clock"; 3]);
    macros.make("std::time::Instant::now().elapsed().as_secs() >> 40");
    assert_eq!(macros.outcomes(runs, &same), ["miss:clock"; 3]);
    macros.make("std::net::TcpStream::connect(\"127.0.0.1:1\").is_ok()");
    assert_eq!(macros.outcomes(runs, &same), ["miss:network"; 3]);
    // These are rustc's own reads if it makes them.
    for body in [
        "std::fs::read(\"/proc/self/maps\").is_ok()",
        "std::fs::read(\"/proc/self/cmdline\").is_ok()",
        "std::fs::File::open(\"/dev/tty\").is_ok()",
        "std::fs::read_link(\"/proc/self/fd/0\").is_ok()",
        "std::io::stdin().lines().count()",
    ] {
        macros.make(body);
        assert_eq!(macros.outcomes(runs, &same), ["miss:device"; 3], "{body}");
    }
    // It reads the limits of the control group as well, and either is a reason.
    macros.make("std::thread::available_parallelism().map_or(0, |n| n.get() >> 20)");
    let found = macros.outcomes(runs, &same);
    assert!(found.iter().all(|one| ["miss:device", "miss:not-observed"].contains(&&one[..])), "{found:?}");
    // A result with random numbers is used after a second run with other numbers gave the same.
    macros.make("std::collections::HashMap::from([(1, 2)]).len()");
    let found = macros.outcomes(RUNS_MAX, &same);
    assert!(found.last().is_some_and(|last| last == "hit") && found.len() > 2, "{found:?}");
    macros.make("use std::hash::*; std::collections::hash_map::RandomState::new().build_hasher().finish()");
    for _ in 0..3 {
        let (ran, outcome): (Ran, String) = macros.place.counted(macros.place.larder(&macros.argv()));
        assert_eq!((ran.code, &outcome[..4]), (Some(0), "miss"), "{outcome}");
    }
}

/// A macro that makes system calls by itself is not believed. Other crates are, with other macros or
/// without any.
#[test]
fn a_macro_that_no_observer_follows() {
    let open = if cfg!(target_arch = "x86_64") { 257 } else { 56 };
    let body = format!(
        "unsafe extern \"C\" {{ fn syscall(number: i64, ...) -> i64; }}\n\
         unsafe {{ syscall({open}i64, -100i64, c\"data\".as_ptr(), 0i64, 0i64) > 0 }}"
    );
    let Some(macros) = Macros::of(&body) else { return };
    macros.place.put("data", "1");
    for found in macros.outcomes(RUNS_MAX, &same) {
        assert!(found.starts_with("miss:"), "{found}");
    }
    macros.place.put("y.rs", "pub fn f() {}\n");
    let argv = [&macros.rustc[..], "--crate-type=lib", "y.rs", "--emit=metadata"];
    assert_eq!(outcomes(&macros.place, &argv, RUNS_MAX, &same).last().map(String::as_str), Some("hit"));
    macros.make("1");
    assert_eq!(macros.outcomes(RUNS_MAX, &same).last().map(String::as_str), Some("hit"));
}

#[test]
fn another_target_directory() {
    let Some(rustc) = rustc() else { return };
    let place = Place::new();
    place.put("x.rs", "pub fn f() -> u32 { 4 }\n");
    place.put("o.rs", "include!(concat!(env!(\"OUT_DIR\"), \"/g.rs\"));\n");
    for target in ["t1", "t2"] {
        place.put(&format!("{target}/CACHEDIR.TAG"), "Signature: 8a477f597d28d172789f06886806bc55");
        place.put(&format!("{target}/debug/deps/.keep"), "");
        place.put(&format!("{target}/debug/build/o/out/g.rs"), "pub fn g() {}\n");
    }
    let compile_with = |more: &[&str], source: &'static str, target: &str| {
        let deps = place.text(&format!("work/{target}/debug/deps"));
        let out = place.text(&format!("work/{target}/debug/build/o/out"));
        let search = format!("dependency={deps}");
        let argv = [
            &rustc[..],
            "--crate-type=lib",
            source,
            "--emit=dep-info,metadata,link",
            "--out-dir",
            &deps,
            "-L",
            &search,
        ];
        let argv = [&argv[..], &["--error-format=json", "--json=artifacts"], more].concat();
        outcomes(&place, &argv, RUNS_MAX, &|run| run.env("OUT_DIR", &out))
    };
    let compile = |source: &'static str, target: &str| compile_with(&[], source, target);
    assert!(compile("x.rs", "t1").len() > 1);
    assert_eq!(compile("x.rs", "t2"), ["hit"]);
    // The path of the included file is in the crate's hash.
    assert!(compile("o.rs", "t1").len() > 1);
    assert_eq!(compile("o.rs", "t2")[0], "miss");
    assert_eq!(compile("o.rs", "t1"), ["hit"]);
    // The path is still in it if only the beginning is replaced.
    let replaced = format!("--remap-path-prefix={}=.", place.text("work"));
    assert!(compile_with(&[&replaced], "o.rs", "t1").len() > 1);
    assert_eq!(compile_with(&[&replaced], "o.rs", "t2")[0], "miss");
}

/// cargo puts the directory of the crates into `LD_LIBRARY_PATH`. A macro that is known in one target
/// directory is known in others, also if the command line names only a crate that uses it.
#[test]
fn a_macro_in_another_target_directory() {
    let Some(macros) = Macros::of("1") else { return };
    let Macros { place, rustc } = &macros;
    place.put("a.rs", "pub use m::m;\n");
    let deps = |target: &str| place.text(&format!("work/{target}/debug/deps"));
    let compile = |target: &str, name: &str, dependency: &str| {
        let deps = deps(target);
        let (source, search) = (format!("{name}.rs"), format!("dependency={deps}"));
        let dependency = format!("{}={deps}/lib{}", &dependency[..1], dependency);
        let argv = [
            rustc,
            "--edition=2021",
            "--crate-type=lib",
            &source,
            "--emit=metadata",
            "--out-dir",
            &deps,
            "-L",
            &search,
        ];
        outcomes(place, &[&argv[..], &["--extern", &dependency]].concat(), RUNS_MAX, &|run| {
            run.env("LD_LIBRARY_PATH", &deps)
        })
    };
    let made = |target: &str, name: &str| {
        let file = place.path(format!("work/{target}/debug/deps/{name}"));
        place.settle();
        std::fs::File::open(file).and_then(|file| file.set_modified(std::time::UNIX_EPOCH)).expect("is changed");
    };
    for (target, source) in [("t1", "x"), ("t2", "y")] {
        place.put(&format!("{target}/CACHEDIR.TAG"), "Signature: 8a477f597d28d172789f06886806bc55");
        place.put(&format!("{target}/debug/deps/.keep"), "");
        place.put(&format!("{source}.rs"), format!("pub fn {source}() -> String {{ a::m!().to_string() }}\n"));
        larder_testkit::copy_program(place.path("work/libm.so"), format!("{}/libm.so", deps(target)));
        made(target, "libm.so");
        let first = compile(target, "a", "m.so");
        assert_eq!(first.last().map(String::as_str), Some("hit"), "{first:?}");
        assert!(target == "t1" || first == ["hit"], "{first:?}");
        let argv = [rustc, "--edition=2021", "--crate-type=lib", "a.rs", "--emit=metadata", "--extern"];
        let (named, to) = (format!("m={}/libm.so", deps(target)), format!("{}/liba.rmeta", deps(target)));
        place.run(&[&argv[..], &[&named, "-o", &to]].concat()).run().ends(0);
        made(target, "liba.rmeta");
        let second = compile(target, source, "a.rmeta");
        assert_eq!(second.last().map(String::as_str), Some("hit"), "{second:?}");
        assert!(target == "t1" || second == ["miss", "hit"], "{second:?}");
    }
}

/// A procedural macro that starts cargo to find the manifest of the workspace, as `proc-macro-crate`
/// does.
struct AsksCargo {
    macros: Macros,
    cargo: String,
}

impl AsksCargo {
    const MANIFEST: &str = "[package]\nname = \"x\"\nversion = \"0.1.0\"\n[lib]\npath = \"x.rs\"\n";

    fn new() -> Option<AsksCargo> {
        let ask = "let cargo = std::env::var(\"CARGO\").expect(\"is set\"); let asks = [\"locate-project\", \"--workspace\", \
                   \"--message-format=plain\"]; std::process::Command::new(cargo).args(asks).output().expect(\"runs\").stdout.len()";
        let macros = Macros::of(ask)?;
        macros.place.put("Cargo.toml", Self::MANIFEST);
        let cargo = macros.rustc.replace("bin/rustc", "bin/cargo");
        if !std::path::Path::new(&cargo).is_file() {
            eprintln!("skipped: the toolchain has no cargo");
            return None;
        }
        Some(AsksCargo { macros, cargo })
    }
}

#[test]
fn a_macro_that_asks_cargo() {
    let Some(AsksCargo { macros, cargo }) = AsksCargo::new() else { return };
    let manifest = AsksCargo::MANIFEST;
    let served = |run: Run| run.env("CARGO", &cargo);
    macros.check(&served, &served, &|| drop(macros.place.put("Cargo.toml", format!("{manifest}[workspace]\n"))));
}

/// The crate `a` passes the macro on and does not expand it. So its compile, which both observers
/// watch, tells nothing about cargo. Only `x` starts cargo, and other crates are compiled in between.
#[test]
fn a_program_that_one_crate_alone_starts() {
    let Some(AsksCargo { macros, cargo }) = AsksCargo::new() else { return };
    let Macros { place, rustc } = &macros;
    let served = |run: Run| run.env("CARGO", &cargo);
    place.put("a.rs", "pub use m::m;\n");
    place.put("x.rs", "pub fn x() -> String { a::m!().to_string() }\n");
    let compile = |name: &str, dependency: &str, runs: usize| {
        let source = format!("{name}.rs");
        let argv = [rustc, "--edition=2021", "--crate-type=lib", &source, "--emit=metadata", "-L", "dependency=."];
        outcomes(place, &[&argv[..], &["--extern", dependency]].concat(), runs, &served)
    };
    let first = compile("a", "m=libm.so", RUNS_MAX);
    assert_eq!(first.last().map(String::as_str), Some("hit"), "{first:?}");
    let argv = [rustc, "--edition=2021", "--crate-type=lib", "a.rs", "--emit=metadata", "--extern", "m=libm.so"];
    place.run(&argv).run().ends(0);
    let found: Vec<String> = (0..5)
        .flat_map(|round| {
            let x = compile("x", "a=liba.rmeta", 1);
            for other in ["o", "p"] {
                place.put(&format!("{other}.rs"), format!("pub fn f() -> u32 {{ {round} }}\n"));
                place.settle();
                assert_eq!(compile(other, "m=libm.so", 1), ["miss"], "{other}");
            }
            x
        })
        .collect();
    // The third compile shows that cargo's random numbers do not reach the result.
    assert_eq!(found, ["miss:unjudged", "miss", "miss", "hit", "hit"]);
}

/// A build script may compile something, as a probe. cargo puts the directory of the crates into its
/// `LD_LIBRARY_PATH`.
#[test]
fn a_probe_of_a_build_script() {
    let Some(rustc) = rustc() else { return };
    let place = Place::new();
    place.put("x.rs", "pub fn f() -> u32 { 4 }\n");
    place.put("t/CACHEDIR.TAG", "Signature: 8a477f597d28d172789f06886806bc55");
    place.put("t/debug/deps/.keep", "");
    place.put("t/debug/build/p/out/.keep", "");
    let (deps, out) = (place.text("work/t/debug/deps"), place.text("work/t/debug/build/p/out"));
    let argv = [&rustc[..], "--crate-type=lib", "x.rs", "--emit=metadata", "--out-dir", &out];
    let with = |run: Run| run.env("LD_LIBRARY_PATH", &deps);
    assert_eq!(outcomes(&place, &argv, RUNS_MAX, &with).last().map(String::as_str), Some("hit"));
    place.put("t/debug/deps/liby-0123456789abcdef.rlib", "");
    assert_eq!(outcomes(&place, &argv, 1, &with), ["hit"]);
    // The loader would take this one.
    place.put("t/debug/deps/libz.so.1", "");
    assert_ne!(place.counted(with(place.larder(&argv))).1, "hit");
}
