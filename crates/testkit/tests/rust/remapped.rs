//! `rust_paths = "remap"`: what rustc makes has no path of the checkout, so each crate hits in every
//! checkout. It must be what rustc makes with the same options and without larder.

use larder_testkit::{Place, Run};

use super::{RUNS_MAX, compared, rustc};

/// Two checkouts of one workspace. Their paths have different lengths.
const CHECKOUTS: [&str; 2] = ["a", "deeper/checkout"];

const LIB: &str = "\
include!(concat!(env!(\"OUT_DIR\"), \"/g.rs\"));
pub const FILE: &str = file!();
pub const DATA: &str = include_str!(concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/src/data\"));
pub fn panics(of: Option<u8>) -> u8 { of.unwrap() }
pub fn generic<T: std::fmt::Debug>(of: T) -> String { panic!(\"{of:?}\") }
";
const MAIN: &str = "\
fn main() {
    println!(\"{} {} {}\", x::FILE, x::GENERATED, file!());
    let location = std::panic::Location::caller();
    println!(\"{location}\");
    x::panics(None);
}
";

struct Checkouts {
    place: Place,
    rustc: String,
}

impl Checkouts {
    fn new() -> Option<Checkouts> {
        let checkouts = Checkouts { place: Place::new(), rustc: rustc()? };
        for at in CHECKOUTS {
            let put = |path: &str, text: &str| drop(checkouts.place.put(&format!("{at}/{path}"), text));
            put("target/CACHEDIR.TAG", "Signature: 8a477f597d28d172789f06886806bc55");
            put("target/debug/deps/.keep", "");
            put("target/debug/build/o/out/g.rs", "pub const GENERATED: &str = file!();\n");
            put("src/lib.rs", LIB);
            put("src/data", "data");
            put("src/main.rs", MAIN);
        }
        checkouts.place.settle();
        Some(checkouts)
    }

    fn put(&self, path: &str, text: &str) {
        CHECKOUTS.iter().for_each(|at| drop(self.place.put(&format!("{at}/{path}"), text)));
        self.place.settle();
    }

    /// Compiles in a checkout with `rust_paths` set to `setting`, and returns the outcomes.
    #[track_caller]
    fn compile(&self, at: &str, setting: &str, arguments: &[&str]) -> Vec<String> {
        let top = self.place.text(&format!("work/{at}"));
        let deps = format!("{top}/target/debug/deps");
        let search = format!("dependency={deps}");
        let named = ["--edition=2021", "--out-dir", &deps, "-L", &search, "--error-format=json", "--json=artifacts"];
        let argv = [&[&self.rustc[..]], &named[..], arguments].concat();
        let options =
            [format!("--remap-path-prefix={top}=."), format!("--remap-path-prefix={top}/target=/cargo/build-dir")];
        let options: Vec<&str> = options.iter().map(String::as_str).filter(|_| setting == "remap").collect();
        let plain = [&argv[..1], &options, &argv[1..]].concat();
        compared(&self.place, &plain, &argv, RUNS_MAX, &|run| self.environment(run, &top, setting))
    }

    fn environment(&self, run: Run, top: &str, setting: &str) -> Run {
        run.cwd(top)
            .env("OUT_DIR", format!("{top}/target/debug/build/o/out"))
            .env("CARGO_MANIFEST_DIR", top)
            .env("LARDER_RUST_PATHS", setting)
    }

    /// Leaves the outputs of a compile, which `compile` removes.
    fn keep(&self, at: &str, setting: &str, arguments: &[&str]) {
        let top = self.place.text(&format!("work/{at}"));
        let deps = format!("{top}/target/debug/deps");
        let argv = [&[&self.rustc[..], "--edition=2021", "--out-dir", &deps], arguments].concat();
        self.environment(self.place.larder(&argv), &top, setting).run().ends(0);
    }
}

const CRATE: [&str; 6] = [
    "--crate-name=x",
    "--crate-type=lib",
    "src/lib.rs",
    "-g",
    "--emit=dep-info,metadata,link",
    "-Cextra-filename=-0123456789abcdef",
];

#[test]
fn libraries_and_programs_hit_in_another_checkout() {
    let Some(checkouts) = Checkouts::new() else { return };
    let [first, second] = CHECKOUTS;
    assert!(checkouts.compile(first, "remap", &CRATE).len() > 1);
    assert_eq!(checkouts.compile(second, "remap", &CRATE), ["hit"]);
    for at in CHECKOUTS {
        checkouts.keep(at, "remap", &CRATE);
    }
    let library = "x=target/debug/deps/libx-0123456789abcdef.rlib";
    let program = ["--crate-name=p", "src/main.rs", "-g", "--emit=dep-info,link", "--extern", library];
    assert!(checkouts.compile(first, "remap", &program).len() > 1);
    assert_eq!(checkouts.compile(second, "remap", &program), ["hit"]);
    // Without the setting, each checkout has its own result.
    assert!(checkouts.compile(first, "exact", &CRATE).len() > 1);
    assert_eq!(checkouts.compile(second, "exact", &CRATE)[0], "miss");
}

/// rustc puts the value of `env!` into the hash of the crate.
#[test]
fn a_path_that_reaches_a_crate() {
    let Some(checkouts) = Checkouts::new() else { return };
    let [first, second] = CHECKOUTS;
    for value in ["&str = env!(\"CARGO_MANIFEST_DIR\")", "usize = env!(\"CARGO_MANIFEST_DIR\").len()"] {
        checkouts.put("src/lib.rs", &format!("pub const VALUE: {value};\n"));
        assert!(checkouts.compile(first, "remap", &CRATE).len() > 1);
        assert_eq!(checkouts.compile(second, "remap", &CRATE), ["miss", "hit"], "{value}");
    }
}

/// With `-C rpath`, a program holds a relative path from its directory to the toolchain's libraries. It
/// is another one in a checkout that lies deeper.
#[test]
fn a_relative_path_to_libraries() {
    let Some(checkouts) = Checkouts::new() else { return };
    let [first, second] = CHECKOUTS;
    checkouts.put("src/main.rs", "fn main() {}\n");
    let program = ["--crate-name=p", "src/main.rs", "--emit=dep-info,link", "-Crpath"];
    assert!(checkouts.compile(first, "remap", &program).len() > 1);
    assert_eq!(checkouts.compile(second, "remap", &program), ["miss", "hit"]);
    let library = [&CRATE[..], &["-Crpath"]].concat();
    assert!(checkouts.compile(first, "remap", &library).len() > 1);
    assert_eq!(checkouts.compile(second, "remap", &library), ["hit"]);
}

/// A procedural macro sees the real paths. The result is reused elsewhere once a second checkout has
/// shown that it does not depend on them.
#[test]
fn a_macro_that_learns_the_path() {
    let Some(checkouts) = Checkouts::new() else { return };
    let [first, second] = CHECKOUTS;
    let library = "target/debug/deps/libm-0123456789abcdef.so";
    let to_library = format!("m={library}");
    for (body, is_reused) in [
        ("std::env::current_dir().unwrap().as_os_str().len()", false),
        ("std::fs::canonicalize(\"src\").unwrap().as_os_str().len()", false),
        ("std::env::var(\"CARGO_MANIFEST_DIR\").is_ok() as usize", true),
    ] {
        checkouts.put(
            "m.rs",
            &format!(
                "use proc_macro::TokenStream;\n#[proc_macro] pub fn m(_: TokenStream) -> TokenStream {{\n\
                 format!(\"{{}}_usize\", {body}).parse().unwrap() }}\n"
            ),
        );
        let named = ["--edition=2021", "--extern=proc_macro", "--crate-type=proc-macro", "--crate-name=m"];
        let argv = [&[&checkouts.rustc[..]], &named[..], &["m.rs", "-o", library]].concat();
        checkouts.place.run(&argv).cwd(checkouts.place.path("work/a")).run().ends(0);
        let made = |at: &str| checkouts.place.path("work").join(at).join(library);
        std::fs::copy(made(first), made(second)).expect("copies");
        checkouts.put("src/lib.rs", "pub const VALUE: usize = m::m!();\n");
        let user = [&CRATE[..], &["--extern", &to_library]].concat();
        assert!(checkouts.compile(first, "remap", &user).len() > 1);
        assert_eq!(checkouts.compile(second, "remap", &user)[0], "miss", "{body}");
        std::fs::rename(checkouts.place.path("work/a"), checkouts.place.path("work/third")).expect("moves");
        let found = checkouts.compile("third", "remap", &user);
        std::fs::rename(checkouts.place.path("work/third"), checkouts.place.path("work/a")).expect("moves");
        assert_eq!(found[0] == "hit", is_reused, "{body}");
    }
}

#[test]
fn explain_names_the_setting() {
    let Some(checkouts) = Checkouts::new() else { return };
    let [first, second] = CHECKOUTS;
    let explain = |at: &str, setting: &str| {
        let top = checkouts.place.text(&format!("work/{at}"));
        let deps = format!("{top}/target/debug/deps");
        let argv = ["explain", &checkouts.rustc, "--edition=2021", "--out-dir", &deps];
        let run = checkouts.place.larder(&[&argv[..], &CRATE].concat());
        checkouts.environment(run, &top, setting).run().ends(0).stdout
    };
    checkouts.keep(first, "exact", &CRATE);
    checkouts.keep(first, "exact", &CRATE);
    let said = explain(second, "exact");
    assert!(said.contains("rust_paths = \"remap\""), "{said}");
    assert!(said.starts_with("Miss: the command is not as in the last build: working directory"), "{said}");
    assert!(!explain(first, "exact").contains("rust_paths"));
}
