//! What larder shows of what it did: the time saved, why the last command was no hit, a view of a
//! running build, and a hint for a mistyped subcommand.
#![cfg(target_os = "linux")]

use larder_testkit::{Place, Ran, has, on_terminal, probe_skip};
use serde_json::Value;

fn place() -> Place {
    let place = Place::new();
    place.put("inc/b.h", "#define B 1\n");
    place.put("x.c", "#include \"inc/b.h\"\nint x = B;\n");
    place
}

fn compile(place: &Place) {
    place.remove(&["x.o"]);
    place.larder(&["gcc", "-c", "x.c"]).run().ends(0);
}

/// Compiles until the compile is a hit. In the first runs larder learns how the compiler can be
/// observed.
fn until_it_hits(place: &Place) {
    for _ in 0..4 {
        let before = place.counters().get("hit");
        compile(place);
        if place.counters().get("hit") > before {
            return;
        }
    }
    panic!("no hit in four runs");
}

fn explained(place: &Place, words: &[&str]) -> Ran {
    place.larder(&[&["explain"], words].concat()).run()
}

#[test]
fn time_saved_is_counted_by_family_and_day() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let place = place();
    until_it_hits(&place);
    let stats: Value = serde_json::from_str(&place.larder(&["stats", "--json"]).run().quiet()).expect("is JSON");
    let gcc = &stats["families"]["gcc"];
    assert_eq!((gcc["hit"].as_u64(), stats["today"]["hit"].as_u64()), (Some(1), Some(1)), "{stats:#}");
    assert_eq!(gcc["miss"], stats["miss"]);
    assert!(gcc["bytes"].as_u64().is_some_and(|bytes| bytes as usize >= place.read("x.o").len()), "{stats:#}");
    assert!(stats["saved_us"].as_i64().is_some(), "{stats:#}");
    let shown = place.larder(&["stats"]).run().quiet();
    for piece in ["saved", "by tool", "gcc", "nothing was recorded for it"] {
        assert!(shown.contains(piece), "{piece}: {shown}");
    }
    place.larder(&["stats", "--zero"]).run().ends(0);
    let stats: Value = serde_json::from_str(&place.larder(&["stats", "--json"]).run().quiet()).expect("is JSON");
    assert_eq!((&stats["saved_us"], &stats["today"]["hit"]), (&0.into(), &0.into()));
}

#[test]
fn each_frequent_reason_has_advice() {
    let place = place();
    place.tool("work/frobnicate", "true");
    place.larder(&["./frobnicate"]).run().ends(0);
    let shown = place.larder(&["stats"]).run().quiet();
    assert!(shown.contains("unknown-tool") && shown.contains("put `larder run --` before the command"), "{shown}");
}

#[test]
fn the_last_command_is_explained_without_repeating_it() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let place = place();
    until_it_hits(&place);
    std::os::unix::fs::symlink(place.path("work"), place.path("tmp/link")).expect("makes the link");
    for words in [&["--last"][..], &["x.o"], &["./x.o"], &["inc/../x.o"], &["../tmp/link/x.o"]] {
        let said = explained(&place, words).quiet();
        assert!(said.starts_with("Hit: everything it relied on was unchanged; saved "), "{words:?}: {said}");
    }
    place.put("inc/b.h", "#define B 2\n");
    compile(&place);
    let said = explained(&place, &["x.o"]).quiet();
    assert!(said.starts_with("Miss: `inc/b.h` changed since the last build\n"), "{said}");
    place.put("x.c", "#include \"inc/b.h\"\nint y = B;\n");
    compile(&place);
    let said = explained(&place, &["--last"]).quiet();
    assert!(said.starts_with("Miss: `x.c` changed since the last build\n"), "{said}");
    let said = explained(&place, &["--last", "--verbose"]).quiet();
    assert!(said.contains("fingerprint") && said.contains("inc/b.h"), "{said}");
    let json: Value = serde_json::from_str(&explained(&place, &["--last", "--json"]).quiet()).expect("is JSON");
    assert_eq!((json["outcome"].as_str(), json["source"].as_str()), (Some("miss"), Some("x.c")));
    // Another directory, and a file that no command wrote.
    let elsewhere = place.larder(&["explain", "--last"]).cwd(place.path("tmp")).run().ends(1);
    assert!(elsewhere.stderr.contains("knows no command that ran in"), "{elsewhere:?}");
    let unknown = explained(&place, &["x.c"]).ends(1);
    assert!(unknown.stderr.contains("knows no command that wrote"), "{unknown:?}");
}

#[test]
fn a_bypass_is_explained_afterwards() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let place = place();
    place.larder(&["gcc", "-ftime-report", "-c", "x.c"]).run().ends(0);
    let said = explained(&place, &["--last"]).quiet();
    assert!(said.starts_with("Bypass: ") && said.contains("(too-hard)") && said.contains("what to do"), "{said}");
}

#[test]
fn a_mistyped_subcommand_is_pointed_out() {
    let place = place();
    // The program exists and fails: its own message and exit code come first.
    let plain = on_terminal(place.run(&["stat"]), 80);
    let (code, said) = on_terminal(place.larder(&["stat"]), 80);
    assert_eq!(code, plain.0);
    assert!(said.starts_with(&plain.1) && said.contains("did you mean `larder stats`?"), "{said}");
    // It exists and succeeds, or no person reads the message: nothing is added.
    let (code, said) = on_terminal(place.larder(&["stat", "x.c"]), 80);
    assert!(code == Some(0) && !said.contains("did you mean"), "{said}");
    assert_eq!(place.larder(&["stat"]).run(), place.run(&["stat"]).run());
    // It does not exist.
    let ran = place.larder(&["docter"]).run().ends(127);
    assert!(ran.stderr.contains("did you mean `larder doctor`?"), "{ran:?}");
    let ran = place.larder(&["frobnicate"]).run().ends(127);
    assert!(!ran.stderr.contains("did you mean"), "{ran:?}");
}

#[test]
fn a_running_build_is_shown_within_80_columns() {
    probe_skip!(has("gcc") && has("timeout"), "gcc or timeout is not installed");
    let place = place();
    until_it_hits(&place);
    // Not to the terminal, which would be another key.
    let line = "timeout 3 \"$0\" stats --watch & sleep 1; \"$0\" gcc -c x.c >../tmp/out 2>../tmp/err; wait";
    let larder = larder_testkit::larder_text();
    let mut seen = Vec::new();
    let names = ["hit", "miss", "bypass", "fallback", "saved", "last"];
    // On a busy machine the build may be over before it is watched, or after.
    let is_shown = (0..10).any(|_| {
        let (_, received) = on_terminal(place.run(&["sh", "-c", line, larder]).env("TERM", "xterm"), 80);
        let rows = rows(&received, 80);
        // A row that is too long for the terminal would continue on the next one.
        for row in &rows {
            assert!(names.iter().any(|name| row.starts_with(name)), "{row:?} of {rows:#?}");
        }
        let has = |start, end| rows.iter().any(|row| row.starts_with(start) && row.ends_with(end));
        let is_whole = has("hit", "100.0 %") && has("saved", "of tool time");
        seen.push(rows);
        is_whole
    });
    assert!(is_shown, "{seen:#?}");
    // On a narrow terminal the bars are shorter, and each row still fits.
    let run = place.run(&["timeout", "1", larder, "stats", "--watch"]).env("TERM", "xterm");
    for row in rows(&on_terminal(run, 40).1, 40) {
        assert!(names.iter().any(|name| row.starts_with(name)), "{row:?}");
    }
    let ran = place.larder(&["stats", "--watch"]).run().ends(1);
    assert!(ran.stderr.contains("needs a terminal"), "{ran:?}");
}

/// Returns the rows that a terminal of this width showed, without empty ones.
fn rows(received: &str, columns: usize) -> Vec<String> {
    let mut text = String::new();
    let mut chars = received.chars();
    while let Some(char) = chars.next() {
        match char {
            '\x1b' => drop(chars.by_ref().find(char::is_ascii_alphabetic)),
            '\r' => text.push('\n'),
            char => text.push(char),
        }
    }
    let chars: Vec<Vec<char>> = text.lines().map(|line| line.chars().collect()).collect();
    let rows = chars.iter().flat_map(|line| line.chunks(columns)).map(|row| row.iter().collect::<String>());
    rows.map(|row| row.trim_end().to_owned()).filter(|row| !row.is_empty()).collect()
}

#[test]
fn doctor_names_what_calls_another_cache() {
    let place = Place::new();
    place.put(".cargo/config.toml", "[build]\nrustc-wrapper = \"/usr/bin/sccache\"\n");
    place.put("build/CMakeCache.txt", "//Help\nCMAKE_CXX_COMPILER_LAUNCHER:STRING=ccache\nX:BOOL=ON\n");
    let preset = "{ \"configurePresets\": [{ \"cacheVariables\": { \"CMAKE_C_COMPILER_LAUNCHER\": \"sccache\" } }] }";
    place.put("CMakePresets.json", preset);
    let run = place.larder(&["doctor"]).env("PATH", place.path("bin")).env("CC", "ccache gcc").env("CXX", "g++");
    let run = run.env("CC_x86_64_unknown_linux_gnu", "ccache clang").env("CC_KNOWN_WRAPPER_CUSTOM", "ccache");
    let ran = run.env("RUSTC_WRAPPER", "kache").run();
    let named: Vec<&str> = ran.stdout.lines().filter(|line| line.contains("other cache")).collect();
    assert_eq!(named.len(), 6, "{ran:#?}");
    for piece in [
        "CC_x86_64_unknown_linux_gnu calls ccache: set CC_x86_64_unknown_linux_gnu=\"larder clang\"",
        "build/CMakeCache.txt calls ccache: configure again",
        "CMakePresets.json calls sccache: use another preset",
    ] {
        assert!(named.iter().any(|line| line.contains(piece)), "{piece}: {named:#?}");
    }
    let named = [named[0], named[1], named[3]];
    for (line, piece) in named.iter().zip([
        "CC calls ccache: set CC=\"larder gcc\"",
        "RUSTC_WRAPPER calls kache: set RUSTC_WRAPPER=larder",
        ".cargo/config.toml calls sccache",
    ]) {
        assert!(line.contains(piece), "{piece}: {named:#?}");
    }
}

/// A setting that is easily forgotten, or a path that cannot be written, is said where people look.
#[test]
fn forgotten_settings_are_pointed_out() {
    let place = Place::new();
    let stats = |name: &str| place.larder(&["stats"]).env(name, "1").run().quiet();
    assert!(stats("LARDER_DISABLE").contains("\n disable is set: "));
    assert!(stats("LARDER_READ_ONLY").contains("\n read_only is set: "));
    assert!(!stats("LARDER_RECACHE").contains("is set"));
    let doctor = |name: &str, value: &str| place.larder(&["doctor"]).env(name, value).env("PATH", "/bin").run().stdout;
    assert!(doctor("LARDER_DIR", "relative").contains("LARDER_DIR is the relative path relative"));
    let said = doctor("LARDER_LOG", &place.text("none/log"));
    assert!(said.contains("problem  log") && said.contains("set LARDER_LOG to another file"), "{said}");
    assert!(!doctor("LARDER_LOG", &place.text("log")).contains("LARDER_LOG"));
}
