//! `larder init` in a project of each kind leads to hits with no further step, and `--undo` takes
//! every byte back.
#![cfg(target_os = "linux")]

use std::fs;
use std::path::Path;

use larder_testkit::{Place, Ran, Run, Tree, copy_program, has, larder, larder_text, probe_skip, workspace};

/// Runs `larder init` with these options, for a user of bash.
fn init(place: &Place, options: &[&str]) -> Run {
    let own = larder_text();
    place.run(&[&[own, "init"], options].concat()).env("SHELL", "/bin/bash")
}

/// Runs a line in a shell that was opened after `larder init`, with the user's profile.
fn in_new_shell(place: &Place, line: &str) -> Ran {
    place.settle();
    let ran = place.run(&["bash", "-i", "-e", "-o", "pipefail", "-c", line]).env("SHELL", "/bin/bash").run();
    assert_eq!(ran.code, Some(0), "{line}: {ran:#?}");
    ran
}

/// Runs a build until it has hits, at most four times: in the first runs larder learns how a tool
/// can be observed. Returns the hits of the last build.
fn hits_of(place: &Place, line: &str) -> u64 {
    let mut hits = 0;
    for _ in 0..4 {
        let before = place.counters().get("hit");
        in_new_shell(place, line);
        hits = place.counters().get("hit") - before;
        if hits > 0 {
            break;
        }
    }
    hits
}

/// Returns everything that `larder init` may change: the working directory and the home directory.
fn changeable(place: &Place) -> [Tree; 2] {
    [Tree::of(&place.path("work")), Tree::of(&place.path("home"))]
}

/// Runs `larder init --yes`, then `use_it`, then `larder init --undo`. Asserts that the second
/// `init` changes nothing, and that everything is as before in the end, apart from what the builds
/// left.
fn round(place: &Place, options: &[&str], use_it: impl FnOnce()) {
    fs::write(place.path("home/.bashrc"), "# mine\nexport MINE=1").expect("cannot write the file");
    let before = changeable(place);
    let said = init(place, &[options, &["--print"]].concat()).run().ends(0);
    assert_eq!(changeable(place), before, "--print changed something: {said:?}");
    init(place, &[options, &["--yes"]].concat()).run().ends(0);
    let after = changeable(place);
    assert_ne!(after, before, "nothing was changed");
    let again = init(place, &[options, &["--yes"]].concat()).run().ends(0);
    assert!(again.stdout.contains("nothing to change"), "{again:?}");
    assert_eq!(changeable(place), after, "the second run changed something");
    // The builds may leave files, so they are removed before the comparison.
    use_it();
    after[0].put_back(&place.path("work"));
    init(place, &["--undo"]).run().ends(0);
    let undone = changeable(place);
    assert_eq!(undone[0].difference(&before[0]), None, "not restored (now / before)");
    let journal = Path::new(".local");
    let mut home = undone[1].clone();
    home.0.retain(|path, _| !path.starts_with(journal) && !path.starts_with(".cargo") && !path.starts_with(".cache"));
    assert_eq!(home.difference(&before[1]), None, "not restored (now / before)");
    assert!(!place.path("home/.local/share/larder").exists(), "the links are still there");
}

fn c_sources(place: &Place) {
    place.put("main.c", "#include \"a.h\"\nint main(void) { return a() - A; }\n");
    place.put("a.c", "#include \"a.h\"\nint a(void) { return A; }\n");
    place.put("a.h", "#define A 3\nint a(void);\n");
}

#[test]
fn a_make_project_hits() {
    probe_skip!(has("make") && has("gcc") && has("bash"), "make, gcc or bash is not installed");
    let place = Place::new();
    c_sources(&place);
    place.put("Makefile", "main: main.o a.o\nclean:\n\trm -f *.o main\n");
    round(&place, &[], || {
        let hits = hits_of(&place, "make clean >/dev/null; make && ./main");
        assert!(hits >= 3, "{hits} hits");
    });
}

#[test]
fn a_cmake_project_hits() {
    probe_skip!(has("cmake") && has("gcc") && has("bash"), "cmake, gcc or bash is not installed");
    let place = Place::new();
    c_sources(&place);
    place
        .put("CMakeLists.txt", "cmake_minimum_required(VERSION 3.10)\nproject(p C)\nadd_executable(main main.c a.c)\n");
    place.put("CMakeUserPresets.json", "{\n    \"version\": 3,\n    \"configurePresets\": []\n}\n");
    round(&place, &[], || {
        let hits = hits_of(&place, "rm -rf build; cmake -B build && cmake --build build && build/main");
        assert!(hits >= 3, "{hits} hits");
        // The preset needs no new shell.
        let line = "cmake --preset larder && cmake --build build/larder --clean-first && build/larder/main";
        let before = place.counters().get("hit");
        for _ in 0..2 {
            place.settle();
            place.run(&["sh", "-e", "-c", line]).run().ends(0);
        }
        assert!(place.counters().get("hit") - before >= 2, "the preset does not call larder");
    });
}

#[test]
fn a_meson_project_hits() {
    probe_skip!(
        has("meson") && has("ninja") && has("gcc") && has("bash"),
        "meson, ninja, gcc or bash is not installed"
    );
    let place = Place::new();
    c_sources(&place);
    place.put("meson.build", "project('p', 'c')\nexecutable('main', 'main.c', 'a.c')\n");
    round(&place, &[], || {
        let hits = hits_of(&place, "rm -rf build; meson setup build && ninja -C build && build/main");
        assert!(hits >= 3, "{hits} hits");
        let line = "rm -rf build; meson setup --native-file larder build && ninja -C build && build/main";
        let before = place.counters();
        for _ in 0..2 {
            place.settle();
            place.run(&["sh", "-e", "-c", line]).run().ends(0);
        }
        assert!(place.counters().get("hit") > before.get("hit"), "the native file does not call larder");
    });
}

#[test]
fn a_cargo_project_is_built_through_larder() {
    let place = Place::new();
    let cargo = |words: &[&str]| place.with_cargo(place.run(&[&["cargo"], words].concat()));
    if !larder_testkit::has("cargo") && cargo(&["--version"]).run().code != Some(0) {
        eprintln!("skipped: cargo is not installed");
        return;
    }
    place.put("Cargo.toml", "[package]\nname = \"p\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n");
    place.put("src/main.rs", "fn main() { println!(\"built\"); }\n");
    place.put(".cargo/config.toml", "# ours\n[build]\njobs = 2 # few\n\n[net]\nretry = 1\n");
    round(&place, &["cargo"], || {
        let text = String::from_utf8(place.read(".cargo/config.toml")).expect("not UTF-8");
        let own = larder().display();
        let expected = format!("# ours\n[build]\njobs = 2 # few\nrustc-wrapper = \"{own}\"\n\n[net]\nretry = 1\n");
        assert_eq!(text, expected);
        let ran = cargo(&["run", "--offline", "--quiet"]).run().ends(0);
        assert_eq!(ran.stdout, "built\n");
        assert!(place.counters().total() > 0, "cargo did not call larder");
    });
    // A build script that compiles C calls the compiler by its name.
    place.put("Cargo.lock", "version = 4\n\n[[package]]\nname = \"cc\"\nversion = \"1.2.0\"\n");
    if larder_testkit::has("gcc") {
        let said = init(&place, &["cargo", "--print"]).run().ends(0);
        assert!(said.stdout.contains(" gcc ") && said.stdout.contains("PATH="), "{said:?}");
    }
    // The user's own configuration serves directories without a project.
    init(&place, &["cargo", "--user", "--yes"])
        .env("CARGO_HOME", place.path("cargo"))
        .cwd(place.path("tmp"))
        .run()
        .ends(0);
    assert!(fs::read_to_string(place.path("cargo/config.toml")).expect("is there").contains("rustc-wrapper"));
}

#[test]
fn a_bazel_workspace_hits() {
    let rules = ["/usr/share/bazel/tools/skylib/WORKSPACE", "/usr/share/bazel/rules/java/WORKSPACE"];
    probe_skip!(has("bazel") && rules.iter().all(|file| Path::new(file).exists()), "Debian's Bazel is not installed");
    let place = Place::new();
    let copied = ["cp", "-r"].map(str::to_owned).into_iter();
    let parts = [".bazelrc", "BUILD", "WORKSPACE", "cc", "no_coverage", "rules_cc"];
    let parts = parts.map(|part| workspace().join("examples/bazel").join(part).to_str().expect("not UTF-8").to_owned());
    let words: Vec<String> = copied.chain(parts).chain([".".to_owned()]).collect();
    place.run(&words).run().ends(0);
    // Actions have no variables, so larder finds its store by the file beside it.
    fs::create_dir(place.path("opt")).expect("cannot create the directory");
    for name in ["larder", "larderd"] {
        copy_program(larder().with_file_name(name), place.path("opt").join(name));
    }
    fs::write(place.path("opt/larder.toml"), format!("dir = \"{}\"\n", place.text("store"))).expect("cannot write");
    let own = |words: &[&str]| place.run(&[&[&*place.text("opt/larder")], words].concat()).without("LARDER_DIR");
    let said = own(&["init", "bazel", "--yes"]).run().ends(0);
    assert!(said.stdout.contains("counts only its misses"), "{said:?}");
    let bazel = |words: &[&str]| {
        let root = format!("--output_user_root={}", place.text("bazel"));
        let run = place.run(&[&["bazel", &root], words].concat());
        run.env("USER", "larder").without("LARDER_DIR").without("TMPDIR").run()
    };
    let mut hits = 0;
    for _ in 0..4 {
        let before = place.counters().get("hit");
        bazel(&["clean"]).ends(0);
        let ran = bazel(&["build", "//cc/..."]);
        assert_eq!(ran.code, Some(0), "{ran:#?}");
        hits = place.counters().get("hit") - before;
        if hits > 0 {
            break;
        }
    }
    bazel(&["shutdown"]);
    own(&["daemon", "stop"]).run();
    assert!(hits >= 4, "{hits} hits");
    own(&["init", "--undo"]).run().ends(0);
    assert!(!place.path("work/user.bazelrc").exists());
}

#[test]
fn an_npm_project_restores() {
    probe_skip!(has("npm"), "npm is not installed");
    let place = Place::new();
    place.put("dep/package.json", r#"{ "name": "dep", "version": "1.0.0", "main": "index.js" }"#);
    place.put("dep/index.js", "module.exports = 42;\n");
    place.put(
        "package.json",
        "{\n\t\"name\": \"app\",\n\t\"version\": \"1.0.0\",\n\t\"dependencies\": { \"dep\": \"file:dep-1.0.0.tgz\" }\n}\n",
    );
    let prepare = "npm pack ./dep && npm install --package-lock-only --no-audit --no-fund";
    place.run(&["sh", "-e", "-c", prepare]).env("HOME", place.path("tmp")).run().ends(0);
    round(&place, &["npm"], || {
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", larder().parent().expect("has one").display());
        for expected in ["miss", "exact"] {
            let _ = fs::remove_dir_all(place.path("work/node_modules"));
            place.settle();
            let run = place.run(&["npm", "run", "larder:install"]).env("PATH", &path).env("HOME", place.path("tmp"));
            let ran = run.run().ends(0);
            assert!(ran.stdout.contains(expected), "{ran:?}");
            assert!(place.path("work/node_modules/dep/index.js").exists());
        }
        let _ = fs::remove_dir_all(place.path("work/node_modules"));
    });
}

#[test]
fn it_asks_on_a_terminal_and_only_there() {
    probe_skip!(has("script") && has("gcc"), "script or gcc is not installed");
    let place = Place::new();
    place.put("Makefile", "all:\n");
    let before = changeable(&place);
    let ran = init(&place, &[]).run().ends(1);
    assert!(ran.stderr.contains("--yes") && ran.stdout.contains("+++"), "{ran:?}");
    assert_eq!(changeable(&place), before);
    let answered = |answer: &[u8]| {
        let line = format!("{} init", larder().display());
        place.run(&["script", "-qec", &line, "/dev/null"]).env("SHELL", "/bin/bash").stdin(answer).run()
    };
    assert!(answered(b"n\n").stdout.contains("nothing was changed"));
    assert_eq!(changeable(&place), before);
    let ran = answered(b"y\n");
    assert_eq!((ran.code, ran.stdout.matches("[y/N]").count()), (Some(0), 1), "{ran:?}");
    assert!(place.path("home/.bashrc").exists());
}

/// Bad input is an error that names the path, and nothing is changed.
#[test]
fn bad_input_loses_nothing() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let place = Place::new();
    let refused = |options: &[&str], piece: &str| {
        let before = changeable(&place);
        let ran = init(&place, &[options, &["--yes"]].concat()).run().ends(1);
        assert!(ran.stderr.contains(piece) && ran.stderr.lines().count() == 1, "{ran:?}");
        assert_eq!(changeable(&place), before, "{options:?}");
    };
    refused(&[], "larder init make");
    refused(&["cargo"], "no Cargo.toml");
    refused(&["npm"], "package-lock.json");
    place.put("Cargo.toml", "[package]\n");
    for text in ["[build\n", "build = 1\n"] {
        place.put(".cargo/config.toml", text);
        refused(&["cargo"], "config.toml cannot be changed");
        refused(&["cargo"], "to its table `[build]` by hand");
    }
    place.put(".cargo/config.toml", b"\xff\n");
    refused(&["cargo"], "UTF-8");
    place.remove(&[".cargo/config.toml"]);
    fs::create_dir(place.path("work/.cargo/config.toml")).expect("cannot create the directory");
    refused(&["cargo"], "is not a file");
    // The links come first in the plan, and must not be made if the preset cannot be.
    for text in ["{ // comment\n}", "[]", "{ \"configurePresets\": 1 }"] {
        place.put("CMakeUserPresets.json", text);
        refused(&["cmake"], "CMakeUserPresets.json cannot be changed");
    }
    place.put("package-lock.json", "{}");
    refused(&["npm"], "package.json");
    // A script of that name that is not larder's stays.
    place.put("package.json", "{ \"scripts\": { \"larder:install\": \"mine\" } }");
    let ran = init(&place, &["npm", "--yes"]).run().ends(0);
    assert!(ran.stdout.contains("has another script") && !ran.stdout.contains("npm run"), "{ran:?}");
    place.remove(&["package.json", "package-lock.json"]);
    let link = place.path("home/.local/share/larder/masquerade/gcc");
    fs::create_dir_all(link.parent().expect("has one")).expect("cannot create the directory");
    fs::write(&link, "mine").expect("cannot write the file");
    refused(&["make"], "something else than a link");
    let ran = init(&place, &["--undo"]).run().ends(1);
    assert!(ran.stderr.contains("nothing to undo"), "{ran:?}");
}

/// A checkout may have links in it. Only files of the project are changed.
#[test]
fn a_link_out_of_the_project_is_not_written_through() {
    let place = Place::new();
    let refused = |tool: &str| {
        let before = changeable(&place);
        let ran = init(&place, &[tool, "--yes"]).run().ends(1);
        assert!(ran.stderr.contains("leads out of the project"), "{ran:?}");
        assert_eq!(changeable(&place), before, "{tool}");
    };
    let link = |to: &str, at: &str| std::os::unix::fs::symlink(place.path(to), place.path(at)).expect("makes");
    place.put("Cargo.toml", "[package]\n");
    place.put("package-lock.json", "{}");
    fs::create_dir_all(place.path("home/.cargo")).expect("cannot create the directory");
    link("home/.cargo", "work/.cargo");
    refused("cargo");
    fs::write(place.path("home/.cargo/config.toml"), "").expect("cannot write the file");
    refused("cargo");
    fs::write(place.path("home/package.json"), "{\n  \"scripts\": {}\n}\n").expect("cannot write the file");
    link("home/package.json", "work/package.json");
    refused("npm");
    fs::create_dir(place.path("work/.git")).expect("cannot create the directory");
    fs::rename(place.path("home/package.json"), place.path("work/.git/package.json")).expect("cannot rename");
    fs::remove_file(place.path("work/package.json")).expect("removable");
    link("work/.git/package.json", "work/package.json");
    refused("npm");
    // A link within the project is followed.
    place.put("real.json", "{\n  \"scripts\": {}\n}\n");
    fs::remove_file(place.path("work/package.json")).expect("removable");
    link("work/real.json", "work/package.json");
    init(&place, &["npm", "--yes"]).run().ends(0);
    let real = String::from_utf8(place.read("real.json")).expect("not UTF-8");
    assert!(real.contains("larder:install") && place.path("work/package.json").is_symlink(), "{real}");
}

/// A checkout chooses the names of its directories, and what its files are.
#[test]
fn names_and_files_of_a_checkout_do_no_harm() {
    let place = Place::new();
    let said = |tool: &str| {
        let larder = larder_text();
        place.run(&["timeout", "60", larder, "init", tool, "--print"]).run().ends(0).stdout
    };
    place.put("meson.build", "");
    place.put("$(touch forged)\u{1b}[31m/meson-info/x", "");
    let notes = said("meson");
    assert!(notes.contains("`meson setup --wipe '$(touch forged)\\u{1b}[31m'` configures"), "{notes:?}");
    assert!(!notes.contains('\u{1b}'), "{notes:?}");
    // No process writes to this FIFO.
    place.put("Cargo.toml", "[package]\n");
    place.run(&["mkfifo", "Cargo.lock"]).run().ends(0);
    assert!(said("cargo").contains("rustc-wrapper"));
}

#[test]
fn another_wrapper_is_left_alone() {
    let place = Place::new();
    place.put("Cargo.toml", "[package]\n");
    place.put(".cargo/config.toml", "[build]\nrustc-wrapper = \"sccache\"\n");
    let before = changeable(&place);
    let ran = init(&place, &["cargo", "--yes"]).run().ends(0);
    assert!(ran.stdout.contains("sccache") && ran.stdout.contains("remove that line"), "{ran:?}");
    assert!(!ran.stdout.contains("everything is in place"), "{ran:?}");
    assert_eq!(changeable(&place), before);
}

#[test]
fn edits_since_then_survive_undo() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let place = Place::new();
    place.put("Makefile", "all:\n");
    place.put("Cargo.toml", "[package]\n");
    let profile = place.path("home/.bashrc");
    fs::write(&profile, "# mine\n").expect("cannot write the file");
    init(&place, &["make", "cargo", "--yes"]).run().ends(0);
    let text = fs::read_to_string(&profile).expect("is there");
    fs::write(&profile, format!("# added\n{text}# more\n")).expect("cannot write the file");
    let edited = String::from_utf8(place.read(".cargo/config.toml")).expect("not UTF-8").replace("\"\n", "\" # mine\n");
    place.put(".cargo/config.toml", &edited);
    let ran = init(&place, &["--undo"]).run().ends(1);
    assert!(ran.stderr.contains(".cargo/config.toml") && ran.stderr.contains("edited since"), "{ran:?}");
    assert_eq!(fs::read_to_string(&profile).expect("is there"), "# added\n# mine\n# more\n");
    assert_eq!(place.read(".cargo/config.toml"), edited.as_bytes());
    // Once the lines were removed by hand, as the message says, the project is done with.
    place.put(".cargo/config.toml", "[build]\nrustc-wrapper = \"mine\"\n");
    init(&place, &["--undo"]).run().ends(0);
    assert_eq!(place.read(".cargo/config.toml"), b"[build]\nrustc-wrapper = \"mine\"\n");
    assert!(!place.path("home/.local/state/larder").exists(), "something of larder stays");
}

/// Two projects share the links and the profile. They stay until neither needs them.
#[test]
fn a_shared_change_stays_for_the_other_project() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let place = Place::new();
    let [one, two] = [place.path("work/one"), place.path("work/two")];
    for project in [&one, &two] {
        fs::create_dir(project).expect("cannot create the directory");
        fs::write(project.join("Makefile"), "all:\n").expect("cannot write the file");
        init(&place, &["--yes"]).cwd(project).run().ends(0);
    }
    let link = place.path("home/.local/share/larder/masquerade/gcc");
    let ran = init(&place, &["--undo"]).cwd(&one).run().ends(0);
    assert!(ran.stdout.contains("work/two needs it"), "{ran:?}");
    assert!(link.is_symlink() && place.path("home/.bashrc").exists());
    init(&place, &["--undo"]).cwd(&two).run().ends(0);
    assert!(!link.is_symlink() && !place.path("home/.bashrc").exists());
}

/// Files from Windows keep their line ends, and undo removes only what was added.
#[test]
fn line_ends_stay() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let place = Place::new();
    place.put("Cargo.toml", "[package]\n");
    place.put(".bazelrc", "try-import %workspace%/user.bazelrc\r\n");
    place.put("package-lock.json", "{}");
    let [config, package, bazel] = [
        (".cargo/config.toml", "[build]\r\njobs = 2\r\n[net]\r\nretry = 1"),
        ("package.json", "\u{feff}{\r\n  \"name\": \"app\"\r\n}\r\n"),
        ("user.bazelrc", "build --jobs=2\r\n"),
    ];
    for (path, text) in [config, package, bazel] {
        place.put(path, text);
    }
    for tool in ["cargo", "npm", "bazel"] {
        init(&place, &[tool, "--yes"]).run().ends(0);
    }
    place.larder(&["daemon", "stop"]).run().ends(0);
    let read = |path: &str| String::from_utf8(place.read(path)).expect("not UTF-8");
    for (path, text) in [config, package, bazel] {
        let now = read(path);
        assert!(now.contains("larder") && now.matches('\n').count() == now.matches("\r\n").count(), "{path}: {now:?}");
        place.put(path, format!("{now}\r\n"));
        assert!(!text.contains("larder"));
    }
    init(&place, &["--undo"]).run().ends(0);
    for (path, text) in [config, package, bazel] {
        assert_eq!(read(path), format!("{text}\r\n"), "{path}");
    }
    // Lines that end in both ways cannot be kept by the editor of TOML, so nothing is changed.
    place.put(".cargo/config.toml", "[build]\r\njobs = 2\n");
    let ran = init(&place, &["cargo", "--yes"]).run().ends(1);
    assert!(ran.stderr.contains("config.toml cannot be changed") && ran.stderr.contains("by hand"), "{ran:?}");
}

/// cargo reads the configuration of the working directory and of those above it, not of members.
#[test]
fn a_member_of_a_workspace_is_pointed_at_its_top() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let place = Place::new();
    place.put("Cargo.toml", "[workspace]\nmembers = [\"app\"]\n");
    place.put("Cargo.lock", "version = 4\n\n[[package]]\nname = \"cc\"\nversion = \"1.2.0\"\n");
    place.put("app/Cargo.toml", "[package]\n");
    let member = init(&place, &["cargo", "--print"]).cwd(place.path("work/app")).run().ends(0);
    assert!(member.stdout.contains("is the top of a workspace"), "{member:?}");
    assert!(member.stdout.contains("PATH="), "C code in a build script was not expected: {member:?}");
    let top = init(&place, &["cargo", "--print"]).run().ends(0);
    assert!(!top.stdout.contains("is the top of a workspace"), "{top:?}");
}

/// Presets of a version before 3 need a generator, and no two presets may have one name.
#[test]
fn presets_of_a_project_are_respected() {
    probe_skip!(has("cmake") && has("gcc"), "cmake or gcc is not installed");
    let place = Place::new();
    c_sources(&place);
    place
        .put("CMakeLists.txt", "cmake_minimum_required(VERSION 3.10)\nproject(p C)\nadd_executable(main main.c a.c)\n");
    let line = "cmake --preset larder";
    for version in [1, 2, 3] {
        place.put("CMakeUserPresets.json", format!("{{\n  \"version\": {version},\n  \"configurePresets\": []\n}}\n"));
        init(&place, &["cmake", "--yes"]).run().ends(0);
        place.run(&["sh", "-c", line]).run().ends(0);
        init(&place, &["--undo"]).run().ends(0);
        fs::remove_dir_all(place.path("work/build")).expect("was configured");
    }
    place.remove(&["CMakeUserPresets.json"]);
    let own = "{\"name\": \"larder\", \"generator\": \"Unix Makefiles\", \"binaryDir\": \"build\"}";
    place.put("CMakePresets.json", format!("{{\"version\": 2, \"configurePresets\": [{own}]}}\n"));
    let ran = init(&place, &["cmake", "--yes"]).run().ends(0);
    assert!(ran.stdout.contains("has a preset `larder` already"), "{ran:?}");
    assert!(!place.path("work/CMakeUserPresets.json").exists());
    place.run(&["sh", "-c", line]).run().ends(0);
}

/// In a container `SHELL` is often not set. Then the password database names the shell.
#[test]
fn the_profile_is_that_of_the_users_shell() {
    probe_skip!(has("gcc") && has("getent"), "gcc or getent is not installed");
    let place = Place::new();
    place.put("Makefile", "all:\n");
    let entry = place.run(&["sh", "-c", "getent passwd \"$(id -u)\""]).run().quiet();
    let expected = match entry.trim().rsplit('/').next() {
        Some("bash") => ".bashrc",
        Some("zsh") => ".zshrc",
        Some("fish") => "conf.d/larder.fish",
        _ => ".profile",
    };
    let ran = place.run(&[larder_text(), "init", "--print"]).without("SHELL").run().ends(0);
    assert!(ran.stdout.contains(&format!("{expected}\n")), "{ran:?}");
    // Only a login shell reads ~/.profile.
    let ran = init(&place, &["--print"]).env("SHELL", "/bin/dash").run().ends(0);
    assert!(ran.stdout.contains("home/.profile\n"), "{ran:?}");
    let ran = init(&place, &["--yes"]).env("SHELL", "/bin/dash").run().ends(0);
    assert!(ran.stdout.contains("after the next login, or after `. ~/.profile`: `make`"), "{ran:?}");
    place.remove(&["Makefile"]);
    place.put("configure", "");
    let ran = init(&place, &["--yes"]).run().ends(0);
    assert!(ran.stdout.contains(": `./configure && make`"), "{ran:?}");
    place.put("Makefile", "all:\n");
    // Once the links are in PATH, nothing is to be waited for.
    let path = format!("{}:{}", place.text("home/.local/share/larder/masquerade"), std::env::var("PATH").expect("set"));
    let ran = init(&place, &["--yes"]).env("PATH", path).run().ends(0);
    assert!(ran.stdout.contains("next: now: `make`"), "{ran:?}");
}

/// Links of a larder that was installed elsewhere are taken back by `--undo`, and not by hand.
#[test]
fn a_larder_that_moved_says_what_to_undo() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let place = Place::new();
    place.put("Makefile", "all:\n");
    init(&place, &["--yes"]).run().ends(0);
    fs::create_dir(place.path("opt")).expect("cannot create the directory");
    for name in ["larder", "larderd"] {
        copy_program(larder().with_file_name(name), place.path("opt").join(name));
    }
    let moved = |option: &str| {
        let own = place.text("opt/larder");
        place.run(&[&own, "init", option]).env("SHELL", "/bin/bash").env("PATH", "/usr/bin:/bin").run()
    };
    let ran = moved("--yes").ends(1);
    let directory = place.text("work");
    assert!(ran.stderr.contains(&format!("run `larder init --undo` in {directory}, then")), "{ran:?}");
    moved("--undo").ends(0);
    moved("--yes").ends(0);
}
