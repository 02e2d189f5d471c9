//! Symbolic links with a compiler's name that lead to larder, larder twice in a row, and other
//! caches before and behind it. larder must find the real tool, and run it once.
#![cfg(target_os = "linux")]

use larder_testkit::{Place, Run, copy_program, has, larder, larder_text, probe_skip};

const LARDER: &str = "larder";

/// Runs `argv` with these directories of the place before the usual `PATH`.
fn with_path(place: &Place, directories: &[&str], argv: &[&str]) -> Run {
    let mut path: Vec<String> = directories.iter().map(|directory| place.text(directory)).collect();
    path.push("/usr/bin:/bin".to_owned());
    place.settle();
    // The shell searches this `PATH`, as a build would.
    let line = [&["sh", "-c", "exec \"$0\" \"$@\""], argv].concat();
    place.run(&line).env("PATH", path.join(":"))
}

/// Runs the command twice. Each run must give the same object as without larder, and the second
/// must hit.
#[track_caller]
fn check(place: &Place, run: impl Fn() -> Run, object: &[u8], what: &str) {
    let mut outcomes = Vec::new();
    for _ in 0..2 {
        place.remove(&["x.o"]);
        let (ran, outcome) = place.counted(run());
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{what}: {outcome} {ran:?}");
        assert!(place.read("x.o") == object, "{what}: the object differs");
        outcomes.push(outcome);
    }
    assert_eq!(outcomes[1], "hit", "{what}: {outcomes:?}");
}

fn place() -> Place {
    let place = Place::new();
    place.put("x.c", "int f(void) { return 1; }\n");
    place.put("x.cc", "int f() { return 1; }\n");
    place
}

fn plain(place: &Place, compiler: &str) -> Vec<u8> {
    place.run(&[compiler, "-c", source(compiler), "-o", "x.o"]).run().quiet();
    place.read("x.o")
}

/// Returns a source for which the compiler of this name prints no warning.
fn source(compiler: &str) -> &str {
    if compiler.ends_with("++") { "x.cc" } else { "x.c" }
}

#[test]
fn a_link_finds_the_real_one() {
    for name in ["gcc", "cc", "g++", "c++", "clang", "clang++", "gcc-12", "x86_64-linux-gnu-gcc-12", "clang-14"] {
        if !has(name) {
            eprintln!("skipped: {name} is not installed");
            continue;
        }
        let place = place();
        let object = plain(&place, name);
        let link = place.link(&format!("links/{name}"));
        place.link(&format!("more/{name}"));
        let argv = |tool| [tool, "-c", source(name), "-o", "x.o"];
        check(&place, || with_path(&place, &["links"], &argv(name)), &object, name);
        check(&place, || with_path(&place, &["links", "more", "links"], &argv(name)), &object, "two");
        // If larder is called by its path, `argv[0]` differs. It must find the real compiler also
        // if the link is not on `PATH`.
        check(&place, || with_path(&place, &["links"], &argv(&link)), &object, "by its path");
        check(&place, || with_path(&place, &[], &argv(&link)), &object, "not on PATH");
    }
}

#[test]
fn a_copy_and_a_hard_link_are_larder_too() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let place = place();
    let object = plain(&place, "gcc");
    for directory in ["copy", "hard", "soft"] {
        std::fs::create_dir(place.path(directory)).expect("cannot create the directory");
    }
    copy_program(larder(), place.path("copy/gcc"));
    std::fs::hard_link(place.path("copy/gcc"), place.path("hard/gcc")).expect("cannot create the hard link");
    std::os::unix::fs::symlink("../copy/gcc", place.path("soft/gcc")).expect("cannot create the link");
    let argv = ["gcc", "-c", "x.c", "-o", "x.o"];
    for directories in [&["hard"][..], &["soft", "copy", "hard"], &["copy", "soft"]] {
        check(&place, || with_path(&place, directories, &argv), &object, directories[0]);
    }
}

#[test]
fn two_copies_in_a_row_do_not_loop() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let place = place();
    let object = plain(&place, "gcc");
    for directory in ["one", "two"] {
        std::fs::create_dir(place.path(directory)).expect("cannot create the directory");
        copy_program(larder(), place.path(directory).join("gcc"));
    }
    for _ in 0..2 {
        place.remove(&["x.o"]);
        let ran = with_path(&place, &["one", "two"], &["timeout", "20", "gcc", "-c", "x.c", "-o", "x.o"]).run();
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
        assert!(place.read("x.o") == object);
    }
}

#[test]
fn a_name_without_a_real_one_is_not_found() {
    let place = place();
    let link = place.link("links/x86_64-linux-gnu-gcc-99");
    for path in ["links", "nowhere"] {
        let ran = with_path(&place, &[path], &[&link, "-c", "x.c"]).run();
        assert_eq!(ran.code, Some(127), "{ran:?}");
        assert!(ran.stderr.contains("x86_64-linux-gnu-gcc-99"), "{ran:?}");
    }
}

#[test]
fn larder_twice() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let place = place();
    let object = plain(&place, "gcc");
    let own = larder_text();
    let [named, linked] = [place.link("bin/larder"), place.link("links/gcc")];
    for (what, tools) in [
        ("larder larder gcc", vec![own, own, "gcc"]),
        ("three times", vec![own, own, own, "gcc"]),
        ("by another link", vec![own, &named, "gcc"]),
        ("along PATH", vec![own, LARDER, "gcc"]),
        ("larder run -- larder gcc", vec![own, "run", "--", own, "gcc"]),
        ("larder -- larder gcc", vec![own, "--", own, "gcc"]),
        ("larder and the link", vec![own, &linked]),
        ("larder and the link's name", vec![own, "gcc"]),
    ] {
        let place_of_its_own = Place::new();
        place_of_its_own.put("x.c", place.read("x.c"));
        let path = format!("{}:{}:/usr/bin:/bin", place.text("links"), place.text("bin"));
        let argv = [&tools[..], &["-c", "x.c", "-o", "x.o"]].concat();
        let run = || {
            place_of_its_own.settle();
            place_of_its_own.run(&[&["timeout", "20"], &argv[..]].concat()).env("PATH", &path)
        };
        check(&place_of_its_own, run, &object, what);
    }
}

#[test]
fn another_cache_before_and_behind() {
    probe_skip!(has("gcc") && has("ccache"), "gcc or ccache is not installed");
    let own = larder_text();
    let place = place();
    let object = plain(&place, "gcc");
    let arguments = ["gcc", "-c", "x.c", "-o", "x.o"];
    std::fs::create_dir(place.path("ccache-links")).expect("cannot create the directory");
    std::os::unix::fs::symlink("/usr/bin/ccache", place.path("ccache-links/gcc")).expect("cannot create the link");
    place.link("links/gcc");
    let quiet = |run: Run| run.env("CCACHE_DIR", place.path("ccache"));
    let rows: [(&str, &[&str], &[&str]); 5] = [
        ("larder ccache gcc", &[own, "ccache"], &[]),
        ("ccache larder gcc", &["ccache", own], &[]),
        ("larder's link, then ccache's", &[], &["links", "ccache-links"]),
        ("ccache's link, then larder's", &[], &["ccache-links", "links"]),
        ("larder gcc, which is ccache's link", &[own], &["ccache-links"]),
    ];
    for (what, before, directories) in rows {
        for _ in 0..2 {
            place.remove(&["x.o"]);
            let argv = [&["timeout", "20"], before, &arguments[..]].concat();
            let ran = quiet(with_path(&place, directories, &argv)).run();
            assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{what}: {ran:?}");
            assert!(place.read("x.o") == object, "{what}: the object differs");
        }
    }
}

#[test]
fn a_build_tool_calls_it_by_either_way() {
    probe_skip!(has("gcc") && has("make"), "gcc or make is not installed");
    let place = place();
    place.put("Makefile", "x: x.o main.o\n\t$(CC) -o x x.o main.o\n");
    place.put("main.c", "int f(void);\nint main(void) { return f() - 1; }\n");
    place.link("links/gcc");
    for (at, compiler) in [format!("CC={} gcc", larder().display()), "CC=gcc".to_owned()].iter().enumerate() {
        for hits in [None, Some(3)] {
            place.remove(&["x", "x.o", "main.o"]);
            let before = place.counters();
            let directories: &[&str] = if at == 1 { &["links"] } else { &[] };
            with_path(&place, directories, &["make", "-j2", "x", compiler]).run().ends(0);
            let now = place.counters();
            let grown = |name: &str| now.get(name) - before.get(name);
            assert_eq!(grown("hit") + grown("miss"), 3, "{compiler}: {}", now.since(&before));
            assert!(hits.is_none_or(|hits| grown("hit") == hits), "{compiler}: {}", now.since(&before));
            place.run(&[place.text("work/x")]).run().ends(0);
        }
    }
}
