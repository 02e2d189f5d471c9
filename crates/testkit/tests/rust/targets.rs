//! Crates of a workspace in several target directories, some of them inside of the workspace. The
//! working directory is in the key, so a result may hold it, but nothing that was derived from the
//! path of the target directory.

use larder_testkit::{Place, Run};

use super::{RUNS_MAX, compared, rustc};

/// The target directories, relative to the working directory `ws`.
const TARGETS: [&str; 3] = ["target", "other/place/target", "../elsewhere"];

struct Targets {
    place: Place,
    rustc: String,
}

impl Targets {
    fn new() -> Option<Targets> {
        let targets = Targets { place: Place::new(), rustc: rustc()? };
        for target in TARGETS {
            targets.put(&format!("{target}/CACHEDIR.TAG"), "Signature: 8a477f597d28d172789f06886806bc55");
            targets.put(&format!("{target}/debug/deps/.keep"), "");
            targets.put(&format!("{target}/debug/build/x/out/.keep"), "");
        }
        Some(targets)
    }

    fn put(&self, path: &str, text: &str) {
        self.place.put(&format!("ws/{path}"), text);
        self.place.settle();
    }

    /// Returns the absolute path of a target directory, as cargo passes it.
    fn full(&self, target: &str) -> String {
        match target.strip_prefix("../") {
            Some(name) => self.place.text(&format!("work/{name}")),
            None => self.place.text(&format!("work/ws/{target}")),
        }
    }

    fn argv(&self, target: &str, arguments: &[&str]) -> Vec<String> {
        self.argv_in(&format!("{}/debug/deps", self.full(target)), arguments)
    }

    fn argv_in(&self, deps: &str, arguments: &[&str]) -> Vec<String> {
        let named = ["--edition=2021", "--emit=dep-info,metadata,link", "-g", "-Cextra-filename=-0123456789abcdef"];
        let words = [&self.rustc, "--out-dir", deps, "-L", &format!("dependency={deps}")].map(str::to_owned);
        let arguments = arguments.iter().map(|word| word.replace("DEPS", deps));
        words.into_iter().chain(named.map(str::to_owned)).chain(arguments).collect()
    }

    /// Compiles until a hit, and compares each run with one without larder. Returns the outcomes.
    #[track_caller]
    fn compile(&self, target: &str, arguments: &[&str]) -> Vec<String> {
        self.compile_as(target, &self.argv(target, arguments))
    }

    #[track_caller]
    fn compile_as(&self, target: &str, argv: &[String]) -> Vec<String> {
        let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
        compared(&self.place, &argv, &argv, RUNS_MAX, &|run| self.environment(target, run))
    }

    fn environment(&self, target: &str, run: Run) -> Run {
        run.cwd(self.place.path("work/ws")).env("OUT_DIR", format!("{}/debug/build/x/out", self.full(target)))
    }

    fn explain(&self, target: &str, arguments: &[&str]) -> String {
        let argv = self.argv(target, arguments);
        let argv: Vec<&str> = ["explain", "--verbose"].into_iter().chain(argv.iter().map(String::as_str)).collect();
        self.environment(target, self.place.larder(&argv)).run().stdout
    }

    /// Leaves the outputs of a compile, which `compile` removes.
    fn keep(&self, target: &str, arguments: &[&str]) {
        let argv = self.argv(target, arguments);
        let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
        self.place.run(&argv).cwd(self.place.path("work/ws")).run().ends(0);
    }

    /// Checks that the crate hits in the first target directory, and that its result is not used in
    /// the others. In all of them it must be as without larder.
    #[track_caller]
    fn check_bound(&self, what: &str, arguments: &[&str]) {
        let [first, others @ ..] = TARGETS;
        assert_eq!(self.compile(first, arguments).last().map(String::as_str), Some("hit"), "{what}");
        let said = self.explain(others[0], arguments);
        assert!(said.contains("rust_paths = \"remap\"") && !said.contains("-ffile-prefix-map"), "{what}: {said}");
        for target in others {
            assert_ne!(self.compile(target, arguments)[0], "hit", "{what} in {target}");
        }
    }

    /// Makes the procedural macro `m!()` in each target directory. It expands to a literal that `body`
    /// computes.
    fn make_macro(&self, body: &str) {
        self.put(
            "m.rs",
            &format!(
                "use proc_macro::TokenStream;\n#[proc_macro] pub fn m(_: TokenStream) -> TokenStream {{\n\
                 let v = {{ {body} }}; format!(\"{{:?}}\", v.to_string()).parse().unwrap() }}\n"
            ),
        );
        let [first, others @ ..] = TARGETS;
        let made = |target: &str| format!("{}/debug/deps/libm-0123456789abcdef.so", self.full(target));
        let argv = ["--edition=2021", "--extern=proc_macro", "--crate-type=proc-macro", "--crate-name=m", "m.rs", "-o"];
        let output = made(first);
        let argv = [&[&self.rustc[..]], &argv[..], &[&output]].concat();
        self.place.run(&argv).cwd(self.place.path("work/ws")).run().ends(0);
        for target in others {
            larder_testkit::copy_program(made(first), made(target));
        }
        let age = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
        for target in TARGETS {
            std::fs::File::open(made(target)).and_then(|file| file.set_modified(age)).expect("is changed");
        }
        self.place.settle();
    }
}

const LIBRARY: [&str; 3] = ["--crate-name=x", "--crate-type=lib", "x.rs"];
const USER: [&str; 5] = ["--crate-name=u", "--crate-type=lib", "u.rs", "--extern", "m=DEPS/libm-0123456789abcdef.so"];

#[test]
fn each_target_directory_hits() {
    let Some(targets) = Targets::new() else { return };
    targets.put("x.rs", "pub fn f<T: std::fmt::Debug>(t: T) -> String { format!(\"{t:?}\") }\n");
    targets.put("y.rs", "pub fn g() -> String { x::f(1) }\n");
    targets.put("p.rs", "fn main() { println!(\"{} {}\", x::f(2), file!()); }\n");
    let dependency = ["--extern", "x=DEPS/libx-0123456789abcdef.rlib"];
    let user = [&["--crate-name=y", "--crate-type=lib", "y.rs"], &dependency[..]].concat();
    let program = [&["--crate-name=p", "--crate-type=bin", "p.rs"], &dependency[..]].concat();
    for (index, target) in TARGETS.into_iter().enumerate() {
        for crate_of in [&LIBRARY[..], &user, &program] {
            let found = targets.compile(target, crate_of);
            assert_eq!(found.last().map(String::as_str), Some("hit"), "{target} {crate_of:?}: {found:?}");
            assert!(index == 0 || found.len() == 1, "{target} {crate_of:?}: {found:?}");
            targets.keep(target, crate_of);
            targets.place.settle();
        }
        // A crate from elsewhere that has code of one of the workspace in it.
        targets.put("../registry/z.rs", "pub fn h() -> String { x::f(3) }\n");
        let mut argv = targets.argv(target, &["--crate-name=z", "--crate-type=lib", "z.rs"]);
        let dependency = format!("x={}/debug/deps/libx-0123456789abcdef.rlib", targets.full(target));
        argv.extend(["--extern".to_owned(), dependency]);
        let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
        let registry = targets.place.path("work/registry");
        let found = compared(&targets.place, &argv, &argv, RUNS_MAX, &|run| run.cwd(&registry));
        assert_eq!(found.last().map(String::as_str), Some("hit"), "{target}: {found:?}");
        assert!(index == 0 || found.len() == 1, "{target}: {found:?}");
    }
}

/// Debug information may name a file by the working directory and a path relative to it.
#[test]
fn a_path_in_debug_information() {
    let Some(targets) = Targets::new() else { return };
    for target in TARGETS {
        targets.put(&format!("{target}/debug/build/x/out/g.rs"), "pub fn g() { println!(\"g\") }\n");
    }
    targets.put("x.rs", "include!(concat!(env!(\"OUT_DIR\"), \"/g.rs\"));\n");
    targets.check_bound("a source", &LIBRARY);
    targets.put("x.rs", "pub fn f() { println!(\"f\") }\n");
    let unpacked = [&LIBRARY[..], &["-Csplit-debuginfo=unpacked"]].concat();
    targets.check_bound("debug information in a file of its own", &unpacked);
}

/// A procedural macro can find the directory above the target directory, which may be the working
/// directory.
#[test]
fn what_a_macro_derives_from_the_path() {
    let Some(targets) = Targets::new() else { return };
    targets.put("u.rs", "pub fn v() -> String { m::m!().to_string() }\n");
    let own_path = "use std::ffi::*; #[repr(C)] struct Info { name: *const c_char, rest: [usize; 3] }\n\
         unsafe extern \"C\" { fn dladdr(address: *const c_void, info: *mut Info) -> c_int; }\n\
         static HERE: u8 = 0; let mut info = Info { name: std::ptr::null(), rest: [0; 3] };\n\
         unsafe { dladdr(&raw const HERE as *const c_void, &mut info); }\n\
         let path = unsafe { CStr::from_ptr(info.name) }.to_str().unwrap().to_owned();";
    let above = |path: &str| format!("std::path::Path::new({path}).ancestors().nth(3).unwrap().display().to_string()");
    for (what, body) in [
        ("a variable", above("&(std::env::var(\"OUT_DIR\").unwrap() + \"/../..\")")),
        ("an argument", above("&std::env::args().find(|word| word.ends_with(\"/deps\")).unwrap()")),
        ("its length", "std::env::args().map(|word| word.len()).sum::<usize>()".to_owned()),
        ("the length of its own path", format!("{own_path} path.len()")),
        ("its own path", format!("{own_path} {}", above("&path"))),
    ] {
        targets.make_macro(&body);
        targets.check_bound(what, &USER);
    }
}

/// A relative path in a source or in a macro leads to one target directory, whichever is used.
#[test]
fn a_relative_path_to_a_target_directory() {
    let Some(targets) = Targets::new() else { return };
    let [first, second, _] = TARGETS;
    targets.put("u.rs", "pub fn v() -> String { m::m!().to_string() }\n");
    targets.make_macro("std::path::Path::new(\"target/flag\").exists()");
    assert_eq!(targets.compile(first, &USER).last().map(String::as_str), Some("hit"));
    targets.put("target/flag", "");
    assert_ne!(targets.compile(second, &USER)[0], "hit", "a file that a macro looks for");
    targets.make_macro("std::fs::read_dir(\"target/debug/build\").unwrap().count()");
    assert_eq!(targets.compile(first, &USER).last().map(String::as_str), Some("hit"));
    targets.put("target/debug/build/y/.keep", "");
    assert_ne!(targets.compile(second, &USER)[0], "hit", "a directory that a macro lists");
    for target in TARGETS {
        targets.put(&format!("{target}/debug/libn.so"), "1");
    }
    targets.put("x.rs", "pub const N: &[u8] = include_bytes!(\"target/debug/libn.so\");\n");
    assert_eq!(targets.compile(first, &LIBRARY).last().map(String::as_str), Some("hit"));
    targets.put("target/debug/libn.so", "2");
    assert_ne!(targets.compile(second, &LIBRARY)[0], "hit", "a file that a source includes");
}

/// `CARGO_TARGET_DIR=../elsewhere`. rustc uses the real path of such a directory as well.
#[test]
fn a_target_directory_with_parents_in_its_path() {
    let Some(targets) = Targets::new() else { return };
    for target in ["../more", "../far/t"] {
        targets.put(&format!("{target}/CACHEDIR.TAG"), "Signature: 8a477f597d28d172789f06886806bc55");
        targets.put(&format!("{target}/debug/deps/.keep"), "");
    }
    targets.put("sub/.keep", "");
    targets.put("../far/sub/.keep", "");
    targets.put("../more/sub/.keep", "");
    let link = targets.place.path("work/ws/link");
    std::os::unix::fs::symlink("../far/sub", &link).expect("is made");
    targets.put("x.rs", "pub fn f() -> String { format!(\"{:?}\", file!()) }\n");
    let ws = targets.place.text("work/ws");
    let compile = |target: &str| {
        let deps = format!("{target}/debug/deps");
        targets.compile_as("target", &targets.argv_in(&deps, &LIBRARY))
    };
    let hits = |found: &[String]| found.last().is_some_and(|last| last == "hit");
    for target in ["../elsewhere", "sub/../../more", "link/../t"] {
        let found = compile(target);
        assert!(hits(&found), "{target}: {found:?}");
    }
    let found = compile(&format!("{ws}/../elsewhere"));
    assert!(hits(&found), "{found:?}");
    for target in ["../more", "sub/../../elsewhere"] {
        assert_eq!(compile(&format!("{ws}/{target}")), ["hit"], "{target}");
    }
    // The link leads elsewhere.
    std::fs::remove_file(&link).expect("is removed");
    std::os::unix::fs::symlink("../more/sub", &link).expect("is made");
    targets.put("../more/t/CACHEDIR.TAG", "");
    targets.put("../more/t/debug/deps/.keep", "");
    for target in ["link/../t".to_owned(), format!("{ws}/link/../t")] {
        let found = compile(&target);
        assert!(hits(&found), "{target}: {found:?}");
    }
    let climbing = ["-o", "sub/../x.rlib"];
    let argv: Vec<String> =
        [&targets.rustc[..]].iter().chain(&LIBRARY).chain(&climbing).map(|word| (*word).to_owned()).collect();
    let found = targets.compile_as("target", &argv);
    assert!(hits(&found), "{found:?}");
}

/// The real path of the target directory differs as well.
#[test]
fn what_is_derived_from_a_path_with_parents() {
    let Some(targets) = Targets::new() else { return };
    targets.put("u.rs", "pub fn v() -> String { m::m!().to_string() }\n");
    targets.put("../more/CACHEDIR.TAG", "Signature: 8a477f597d28d172789f06886806bc55");
    let macros = |target: &str| format!("work/{target}/debug/deps/libm-0123456789abcdef.so");
    targets.put("../more/debug/deps/.keep", "");
    targets.make_macro(
        "std::fs::canonicalize(std::env::args().find(|word| word.ends_with(\"/deps\")).unwrap()).unwrap().display().to_string()",
    );
    larder_testkit::copy_program(targets.place.path(macros("elsewhere")), targets.place.path(macros("more")));
    targets.place.settle();
    let ws = targets.place.text("work/ws");
    let compile = |target: &str| {
        let deps = format!("{ws}/../{target}/debug/deps");
        targets.compile_as("target", &targets.argv_in(&deps, &USER))
    };
    assert_eq!(compile("elsewhere").last().map(String::as_str), Some("hit"));
    assert_ne!(compile("more")[0], "hit");
}
