//! `rust_build_scripts`: a launcher takes the place of each compiled build script, so that its runs are
//! answered from the store. Whatever cargo and the scripts leave must be what plain cargo leaves.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use larder_testkit::{Place, Ran, Run, Tree, larder};

use super::rustc;

/// The most builds until a script's run hits: the first run of a program may teach larder how to
/// observe it, and a run that draws random numbers is made twice.
const BUILDS_MAX: usize = 5;

/// A package with a build script.
struct Package {
    place: Place,
    tools: PathBuf,
    /// The target directory.
    target: PathBuf,
    /// More arguments of `cargo build`.
    words: Vec<String>,
}

/// Holds how cargo ended, and the files that each run of a build script left.
#[derive(Debug, PartialEq, Eq)]
struct Left {
    ran: Ran,
    scripts: BTreeMap<PathBuf, Tree>,
}

impl Package {
    /// Makes a package whose script has this body.
    fn of(body: &str) -> Option<Package> {
        let rustc = rustc()?;
        let tools = Path::new(&rustc).parent().expect("has a directory").to_owned();
        if !tools.join("cargo").is_file() {
            eprintln!("skipped: the toolchain has no cargo");
            return None;
        }
        let place = Place::new();
        let target = place.path("work/target");
        place.put("Cargo.toml", "[package]\nname = \"x\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n");
        place.put("src/lib.rs", "");
        let package = Package { place, tools, target, words: Vec::new() };
        package.script(body);
        Some(package)
    }

    fn script(&self, body: &str) {
        let uses = "#![allow(unused)]\nuse std::{env, fs, path::Path, process::Command};\n";
        let out = "let out = env::var(\"OUT_DIR\").expect(\"is set\"); let out = Path::new(&out);";
        self.place.put("build.rs", format!("{uses}fn main() {{ {out}\n{body} }}\n"));
    }

    /// Returns a plain cargo with these arguments.
    fn cargo(&self, words: &[&str]) -> Run {
        let cargo = self.tools.join("cargo").to_str().expect("text").to_owned();
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", self.tools.display());
        let run = self.place.run(&[&[&cargo[..]], words].concat()).env("PATH", path);
        run.env("CARGO_HOME", self.place.path("cargo")).env("CARGO_TARGET_DIR", &self.target)
    }

    /// Makes cargo use larder, with launchers.
    fn by_larder(&self, run: Run) -> Run {
        let log = self.place.path("log");
        let _ = fs::remove_file(&log);
        run.env("RUSTC_WRAPPER", larder()).env("LARDER_RUST_BUILD_SCRIPTS", "1").env("LARDER_LOG", log)
    }

    fn build(&self, change: &dyn Fn(Run) -> Run) -> Left {
        let more = self.words.iter().map(String::as_str);
        let words: Vec<&str> = ["build", "--quiet", "--offline"].into_iter().chain(more).collect();
        let ran = change(self.cargo(&words)).run();
        let mut scripts = BTreeMap::new();
        for top in profiles(&self.target) {
            for entry in fs::read_dir(top.join("build")).into_iter().flatten().flatten() {
                if entry.path().join("out").is_dir() {
                    let name = entry.path().strip_prefix(&self.target).expect("is there").to_owned();
                    scripts.insert(name, Tree::of(&entry.path()));
                }
            }
        }
        Left { ran, scripts }
    }

    /// Returns the outcomes of the runs of build scripts in the last build.
    fn outcomes(&self) -> Vec<String> {
        let log = fs::read_to_string(self.place.path("log")).unwrap_or_default();
        let runs = log.lines().filter(|line| line.contains("/build-script-"));
        let outcome = |line: &str| {
            let (what, _) = line.splitn(3, ' ').nth(2).expect("a line of the log").split_once(": ").expect("has it");
            what.to_owned()
        };
        runs.map(outcome).collect()
    }

    fn clean(&self) {
        let _ = fs::remove_dir_all(&self.target);
    }

    /// Builds in a fresh target directory by plain cargo, then by larder until all scripts hit or the
    /// builds are used up. Compares each with the plain build. Returns the outcomes of each build.
    #[track_caller]
    fn builds(&self, builds: usize, change: &dyn Fn(Run) -> Run) -> Vec<Vec<String>> {
        self.clean();
        let plain = self.build(change);
        let mut found: Vec<Vec<String>> = Vec::new();
        while found.len() < builds && !found.last().is_some_and(|last| is_hit(last)) {
            self.clean();
            self.place.settle();
            let left = self.build(&|run| self.by_larder(change(run)));
            assert_eq!(left, plain, "left is with larder, right without; {:?}", self.outcomes());
            found.push(self.outcomes());
        }
        found
    }

    /// Builds until all scripts hit.
    #[track_caller]
    fn hits(&self, change: &dyn Fn(Run) -> Run) {
        let found = self.builds(BUILDS_MAX, change);
        assert!(is_hit(found.last().expect("one")), "{found:?}");
    }

    /// Checks that the script does not hit in the next build.
    #[track_caller]
    fn misses(&self, change: &dyn Fn(Run) -> Run) {
        let found = self.builds(1, change);
        assert!(!found[0].is_empty() && !is_hit(&found[0]), "{found:?}");
    }

    /// Returns the files of build scripts in the target directory: launchers and programs.
    fn files_of_scripts(&self) -> Vec<PathBuf> {
        let build = self.target.join("debug/build");
        let directories = fs::read_dir(build).expect("lists").flatten();
        let files = directories.flat_map(|directory| fs::read_dir(directory.path()).expect("lists").flatten());
        let is_one = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            (name.starts_with("build_script_") || name.starts_with("build-script-")) && !name.ends_with(".d")
        };
        files.map(|file| file.path()).filter(is_one).collect()
    }
}

fn profiles(target: &Path) -> Vec<PathBuf> {
    let entries = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let all = entries(target).flat_map(|one| entries(&one).chain([one.clone()]).collect::<Vec<_>>());
    all.filter(|path| path.join("build").is_dir()).collect()
}

fn is_hit(outcomes: &[String]) -> bool {
    !outcomes.is_empty() && outcomes.iter().all(|outcome| outcome == "hit")
}

/// Starts processes until the next ones get ids of at least four digits for a while. Smaller ids are not
/// looked for (`PRINTED_MIN`), and the kernel begins anew at 300 after its highest id.
fn let_large_ids_come() {
    const BUILDS_NEED: u32 = 5000;
    let highest =
        fs::read_to_string("/proc/sys/kernel/pid_max").expect("reads").trim().parse::<u32>().expect("a number");
    let is_large = |id: u32| id >= 1000 && id < highest - BUILDS_NEED;
    let next = || {
        let mut child = std::process::Command::new("true").spawn().expect("starts");
        child.wait().expect("ends");
        child.id()
    };
    while !is_large(next()) {}
}

fn is_launcher(path: &Path) -> bool {
    fs::read(path).expect("reads").starts_with(b"#!")
}

fn same(run: Run) -> Run {
    run
}

/// Writes files, prints directives, and passes variables on.
const TYPICAL: &str = r#"
    fs::create_dir_all(out.join("a/b")).expect("makes");
    fs::write(out.join("a/b/g.rs"), env::var("TARGET").expect("is set")).expect("writes");
    let _ = fs::remove_file(out.join("link"));
    std::os::unix::fs::symlink("a/b/g.rs", out.join("link")).expect("links");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-env=ZEROTH={}", env::args().next().expect("is there"));
    println!("cargo::warning=a warning");
    eprintln!("on standard error");
"#;

#[test]
fn a_run_hits() {
    let Some(package) = Package::of(TYPICAL) else { return };
    package.hits(&same);
    // cargo finds everything fresh, with or without larder, and whatever the setting says.
    let verbose = || package.cargo(&["build", "--offline", "-v"]);
    let larder = |run: Run| package.by_larder(run);
    for again in [larder(verbose()), larder(verbose()).env("LARDER_RUST_BUILD_SCRIPTS", "0"), verbose()] {
        let ran = again.run().ends(0);
        assert!(ran.stderr.contains("Fresh x") && !ran.stderr.contains("Running"), "{}", ran.stderr);
    }
    let files = package.files_of_scripts();
    assert_eq!(files.len(), 3, "{files:?}");
    for file in &files {
        assert_eq!(is_launcher(file), file.extension().is_none(), "{}", file.display());
    }
    // The output of the script is shown, also if it comes from the store.
    let touch = || drop(package.place.put("build.rs", fs::read(package.place.path("work/build.rs")).expect("reads")));
    let shown = |run: Run| {
        package.clean();
        touch();
        let ran = run.run().ends(0);
        ran.stdout + &ran.stderr
    };
    let very_verbose = || package.cargo(&["build", "--offline", "-vv"]);
    let of_script = |text: String| -> Vec<String> {
        text.lines().filter(|line| line.starts_with("[x 0.1.0]")).map(str::to_owned).collect()
    };
    let (plain, ours) = (of_script(shown(very_verbose())), of_script(shown(larder(very_verbose()))));
    assert!(plain.len() > 3 && plain == ours, "{plain:#?} {ours:#?}");
    assert_eq!(package.outcomes(), ["hit"]);
    package.cargo(&["clean", "--offline", "-p", "x"]).run().ends(0);
    assert!(package.files_of_scripts().is_empty(), "{:?}", package.files_of_scripts());
}

/// The store has the program and never the launcher, and nothing is written through a launcher.
#[test]
fn a_script_is_compiled_over_a_launcher() {
    let Some(package) = Package::of(TYPICAL) else { return };
    // With a session of incremental compilation, rustc would compile the script without larder.
    let compiles = |run: Run| run.env("CARGO_INCREMENTAL", "0");
    package.hits(&compiles);
    let program = || {
        let files = package.files_of_scripts();
        let path = files.iter().find(|path| path.extension().is_some()).expect("has a second name").clone();
        (fs::read(&path).expect("reads"), path)
    };
    let prints = |body: &str, change: &dyn Fn(Run) -> Run| {
        package.script(body);
        // cargo compares mtimes.
        let script = fs::File::open(package.place.path("work/build.rs")).expect("opens");
        script.set_modified(std::time::SystemTime::now()).expect("is set");
        package.place.settle();
        let left = package.build(&|run| change(compiles(run)));
        assert_eq!((left.ran.code, left.scripts.len()), (Some(0), 1), "{left:?}");
        let tree = left.scripts.values().next().expect("is one");
        String::from_utf8_lossy(tree.bytes("output")).into_owned()
    };
    let (first, path) = program();
    assert!(first.starts_with(b"\x7fELF"));
    for warning in ["another warning", "a warning", "another warning"] {
        let printed = prints(&TYPICAL.replace("a warning", warning), &|run| package.by_larder(run));
        assert!(printed.contains(&format!("={warning}\n")), "{printed}");
        let (bytes, same_path) = program();
        assert_eq!((same_path, bytes == first), (path.clone(), warning == "a warning"));
        assert!(package.files_of_scripts().iter().all(|file| is_launcher(file) == file.extension().is_none()));
    }
    // Plain cargo compiles over the launchers as well.
    let printed = prints(&TYPICAL.replace("a warning", "a third warning"), &same);
    assert!(printed.contains("=a third warning\n"), "{printed}");
    assert!(package.files_of_scripts().iter().all(|file| !is_launcher(file)));
}

#[test]
fn what_a_script_relies_on() {
    let body =
        |reads: &str| format!("fs::write(out.join(\"r\"), format!(\"{{:?}}\", {{ {reads} }})).expect(\"writes\");");
    let Some(package) = Package::of(&body("fs::read_to_string(\"data\").ok()")) else { return };
    let Package { place, .. } = &package;
    package.hits(&same);
    place.put("data", "1");
    package.misses(&same);
    package.hits(&same);
    place.put("data", "2");
    package.misses(&same);
    package.script(&body("fs::read_dir(\"files\").map_or(0, |names| names.count())"));
    package.hits(&same);
    place.put("files/a", "");
    package.misses(&same);
    package.script(&body("env::var(\"V\").ok()"));
    package.hits(&same);
    package.misses(&|run| run.env("V", "1"));
    package.script(&body("let mut all: Vec<_> = env::vars().map(|(name, _)| name).filter(|name| name.starts_with(\"V\")).collect(); all.sort(); all"));
    package.hits(&same);
    package.misses(&|run| run.env("VARIABLE", "1"));
}

#[test]
fn what_differs_in_each_run_is_not_used() {
    let Some(package) = Package::of("") else { return };
    let write = |of: &str| format!("fs::write(out.join(\"r\"), {of}.to_string()).expect(\"writes\");");
    let never = |body: &str| {
        package.script(body);
        package.clean();
        for _ in 0..3 {
            package.clean();
            package.place.settle();
            let left = package.build(&|run| package.by_larder(run));
            assert_eq!(left.ran.code, Some(0), "{left:?}");
            assert!(!is_hit(&package.outcomes()), "{body}");
        }
    };
    never(&write("std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos()"));
    never(
        "use std::hash::*; let seed = std::collections::hash_map::RandomState::new().build_hasher().finish();
           fs::write(out.join(\"r\"), seed.to_string()).expect(\"writes\");",
    );
    never("let _ = std::net::TcpStream::connect(\"127.0.0.1:1\");");
    let_large_ids_come();
    never(&write("std::process::id()"));
    // Two runs with other random numbers gave the same.
    package.script(&write("std::collections::HashMap::from([(1, 2)]).len()"));
    package.hits(&same);
}

#[test]
fn scripts_that_fail() {
    for body in ["panic!(\"at data\");", "eprintln!(\"no\"); println!(\"yes\"); std::process::exit(7);"] {
        let condition = format!("if fs::read(\"data\").is_err() {{ {body} }}");
        let Some(package) = Package::of(&condition) else { return };
        // A panic shows the id of the thread, so only the exit code is compared.
        for _ in 0..3 {
            package.clean();
            let left = package.build(&|run| package.by_larder(run));
            assert_eq!(left.ran.code, Some(101), "{left:?}");
            let expect = if body.starts_with("panic") { "at data" } else { "exit status: 7" };
            assert!(left.ran.stderr.contains(expect), "{left:?}");
        }
        package.place.put("data", "");
        package.misses(&same);
        package.hits(&same);
    }
}

/// cargo leaves the directory as it is when it runs a script again.
#[test]
fn what_an_earlier_run_left() {
    let body = "let of = |name: &str| fs::read_to_string(name).unwrap_or_default();
                let count = fs::read_dir(out).expect(\"lists\").count();
                let before = fs::read_to_string(out.join(\"r\")).unwrap_or_default();
                fs::write(out.join(\"r\"), format!(\"{before} {count} {}\", of(\"data\"))).expect(\"writes\");
                fs::write(out.join(of(\"data\") + \".x\"), \"\").expect(\"writes\");
                println!(\"cargo::rerun-if-changed=data\");";
    let Some(package) = Package::of(body) else { return };
    let steps = |change: &dyn Fn(Run) -> Run| -> Vec<Left> {
        package.clean();
        let step = |data: &str| {
            package.place.put("data", data);
            let now = std::time::SystemTime::now();
            let file = fs::File::open(package.place.path("work/data")).expect("opens");
            file.set_modified(now).expect("is set");
            package.place.settle();
            package.build(change)
        };
        ["1", "2", "1"].map(step).into()
    };
    let plain = steps(&same);
    for _ in 0..3 {
        assert_eq!(steps(&|run| package.by_larder(run)), plain);
    }
}

/// Variables whose names are no identifiers reach the script, and so does the metadata of a package
/// that links a library.
#[test]
fn variables_with_odd_names() {
    let body = "let mut all: Vec<_> = env::vars().filter(|(name, _)| name.starts_with(\"DEP_\")).collect();
                all.sort(); fs::write(out.join(\"r\"), format!(\"{all:?}\")).expect(\"writes\");
                assert!(!all.is_empty());";
    let Some(package) = Package::of(body) else { return };
    let manifest = String::from_utf8(package.place.read("Cargo.toml")).expect("text");
    package.place.put("Cargo.toml", format!("{manifest}[dependencies]\nd = {{ path = \"d\" }}\n"));
    let dependency = "[package]\nname = \"d\"\nversion = \"0.1.0\"\nedition = \"2021\"\nlinks = \"core:window\"\n";
    package.place.put("d/Cargo.toml", dependency);
    package.place.put("d/src/lib.rs", "");
    package.place.put("d/build.rs", "fn main() { println!(\"cargo::metadata=a-b.c=1\"); }\n");
    package.hits(&|run| run.env("DEP_x:y__z", "odd"));
    package.misses(&|run| run.env("DEP_x:y__z", "other"));
}

/// The compiles inside are answered by themselves. cargo puts the directory of the crates into
/// `LD_LIBRARY_PATH`, and another crate is compiled at the same time.
#[test]
fn a_script_that_compiles() {
    let body = r#"
        let run = |command: &mut Command| assert!(command.status().expect("starts").success());
        fs::write(out.join("c.c"), "int f(void) { return 1; }\n").expect("writes");
        run(Command::new("cc").args(["-O2", "-c", "-o"]).arg(out.join("c.o")).arg(out.join("c.c")));
        run(Command::new("ar").arg("crsD").arg(out.join("libc.a")).arg(out.join("c.o")));
        let probe = out.join("probe");
        fs::create_dir(&probe).expect("makes");
        let rustc = env::var("RUSTC").expect("is set");
        let mut words: Vec<String> = env::var("RUSTC_WRAPPER").into_iter().chain([rustc]).collect();
        let words = ["--crate-type=lib", "--emit=metadata", "--out-dir"].iter().fold(words, |mut all, word| {
            all.push(word.to_string());
            all
        });
        run(Command::new(&words[0]).args(&words[1..]).arg(&probe).arg("src/lib.rs"));
        fs::remove_dir_all(&probe).expect("removes");
        assert_eq!(env::var("DATA").ok(), None);
    "#;
    let Some(package) = Package::of(body) else { return };
    let manifest = String::from_utf8(package.place.read("Cargo.toml")).expect("text");
    package.place.put("Cargo.toml", format!("{manifest}[dependencies]\nd = {{ path = \"d\" }}\n"));
    package.place.put("d/Cargo.toml", "[package]\nname = \"d\"\nversion = \"0.1.0\"\nedition = \"2021\"\n");
    package.place.put("d/src/lib.rs", "pub fn d() {}\n");
    package.place.link("masquerade/cc");
    let path = format!("{}:{}:/usr/bin:/bin", package.place.text("masquerade"), package.tools.display());
    package.hits(&|run| run.env("PATH", &path));
    // In another place, the run of the script misses and what it compiles hits.
    let mut elsewhere = package;
    elsewhere.target = elsewhere.place.path("work/t");
    elsewhere.hits(&|run| run.env("PATH", &path));
}

/// `build-script-gcc` is no compiler. The directory's path has a space, and there are two profiles and
/// a target.
#[test]
fn names_and_places() {
    let Some(mut package) = Package::of(TYPICAL) else { return };
    let manifest = String::from_utf8(package.place.read("Cargo.toml")).expect("text");
    package.place.put("Cargo.toml", manifest.replace("edition", "build = \"gcc.rs\"\nedition"));
    let script = package.place.read("build.rs");
    package.place.put("gcc.rs", script);
    package.hits(&same);
    let target = format!("--target={}-unknown-linux-gnu", std::env::consts::ARCH);
    package.words = vec!["--release".to_owned(), target];
    package.hits(&same);
    package.target = package.place.path("work/with space/target");
    package.hits(&same);
}

/// Other programs may have the names of build scripts.
#[test]
fn programs_that_are_no_build_scripts() {
    let Some(mut package) = Package::of("") else { return };
    let manifest = String::from_utf8(package.place.read("Cargo.toml")).expect("text");
    let tests = "[[test]]\nname = \"build_script_t\"\nharness = false\npath = \"t.rs\"\n";
    package.place.put("Cargo.toml", format!("{manifest}{tests}"));
    for path in ["src/bin/build_script_b.rs", "examples/build_script_e.rs", "t.rs"] {
        package.place.put(path, "fn main() {}\n");
    }
    package.target = package.place.path("work/build/x-1");
    package.words = vec!["--all-targets".to_owned()];
    assert_eq!(package.build(&|run| package.by_larder(run)).ran.code, Some(0));
    let programs = fs::read_dir(package.target.join("debug/deps")).expect("lists").flatten();
    let programs = programs.chain(fs::read_dir(package.target.join("debug/examples")).expect("lists").flatten());
    let programs: Vec<PathBuf> = programs.map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    assert!(programs.len() > 4 && !programs.iter().any(|path| is_launcher(path)), "{programs:?}");
    assert!(package.files_of_scripts().iter().any(|path| is_launcher(path)));
}

/// The launcher runs the program if larder is switched off, and says what is wrong if it cannot.
#[test]
fn a_launcher_by_itself() {
    let Some(package) = Package::of("println!(\"{:?}\", env::args().collect::<Vec<_>>()); std::process::exit(3);")
    else {
        return;
    };
    package.build(&|run| package.by_larder(run));
    let files = package.files_of_scripts();
    let named = |end: &str| files.iter().find(|path| path.to_string_lossy().ends_with(end)).expect("is there").clone();
    let (launcher, program) = (named("/build-script-build"), named(".larder"));
    let start = || {
        let run = package.place.run(&[launcher.to_str().expect("text"), "a b", ""]);
        run.env("OUT_DIR", package.place.path("work"))
    };
    let expect = format!("[{launcher:?}, \"a b\", \"\"]\n");
    for run in [start(), start().env("LARDER_DISABLE", "1"), start().env("LARDER_RUST_BUILD_SCRIPTS", "1")] {
        assert_eq!(run.run().ends(3).stdout, expect);
    }
    // A run that contains the script observes the program.
    let whole = [larder().to_str().expect("text"), "run", "--", launcher.to_str().expect("text")];
    let ran = package.place.run(&whole).env("OUT_DIR", package.place.path("work")).run();
    assert_eq!(ran.code, Some(3), "{ran:?}");
    fs::remove_file(&program).expect("is removed");
    let ran = start().run().ends(127);
    assert!(ran.stderr.contains("cargo clean") && ran.stderr.contains(".larder"), "{ran:?}");
    fs::write(&launcher, fs::read_to_string(&launcher).expect("reads").replace("program", "other")).expect("writes");
    assert!(start().run().ends(126).stderr.contains("is no launcher"));
}
