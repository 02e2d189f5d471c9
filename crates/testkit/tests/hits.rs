//! Which commands hit, miss or are bypassed. The result must be that of the tool in each case.
#![cfg(target_os = "linux")]

use larder_testkit::{Place, has, larder, probe_skip};

const SOURCE: &str =
    "#include <stdio.h>\n#include \"x.h\"\nint f(int a) { int unused; printf(\"%d\", a); return a + X; }\n";

fn place() -> Place {
    let place = Place::new();
    place.put("x.c", SOURCE);
    place.put("x.h", "#define X 1\n");
    place.put("y.c", "int y;\n");
    place.put("x.cc", "#include <vector>\n#include \"x.h\"\nint f() { return std::vector<int>(X).size(); }\n");
    place.put("x.S", "#include \"x.h\"\n.globl f\nf: .long X\n");
    place.put("bad.c", "#include \"x.h\"\nint f(void) { return undeclared; }\n");
    place.put("args", "-c x.c -O1 -o x.o");
    place
}

/// Runs each command twice from the same files. A row holds the arguments, the first outcome and
/// the second outcome.
fn check_rows(compilers: &[&str], rows: &[(&str, &str, &str)]) {
    for compiler in compilers {
        if !has(compiler) {
            eprintln!("skipped: {compiler} is not installed");
            continue;
        }
        for (line, first, second) in rows {
            let argv: Vec<&str> = [*compiler].into_iter().chain(line.split(' ').filter(|w| !w.is_empty())).collect();
            place().check(&argv, &[first, second]);
        }
    }
}

#[test]
fn compiles_hit_the_second_time() {
    check_rows(
        &["gcc", "clang"],
        &[
            ("-c x.c", "miss", "hit"),
            ("-c x.c -o x.o", "miss", "hit"),
            ("-O2 -g -Wall -Wextra -c x.c -o x.o", "miss", "hit"),
            ("-MD -c x.c -o x.o", "miss", "hit"),
            ("-MMD -MP -MF x.dep -MT target -c x.c -o x.o", "miss", "hit"),
            ("-Wp,-MD,x.dep -c x.c -o x.o", "miss", "hit"),
            ("-c x.S -o x.o", "miss", "hit"),
            ("-c -x c x.c -o x.o", "miss", "hit"),
            ("-c -Wall -fdiagnostics-color=always x.c -o x.o", "miss", "hit"),
            ("@args", "miss", "hit"),
            ("-c x.c -march=native -o x.o", "miss", "hit"),
            ("-I. -Inowhere -isystem . -c x.c -o x.o", "miss", "hit"),
        ],
    );
    check_rows(&["musl-gcc"], &[("-c y.c", "miss", "hit"), ("-O2 -MD -c x.c -o x.o", "miss", "hit")]);
    check_rows(
        &["g++", "clang++"],
        &[("-c x.cc", "miss", "hit"), ("-O2 -g -MD -c x.cc -o x.o", "miss", "hit"), ("-c x.c -o x.o", "miss", "hit")],
    );
}

#[test]
fn failures_and_warnings_are_replayed() {
    check_rows(
        &["gcc", "clang"],
        &[
            ("-c bad.c -o bad.o", "miss", "hit"),
            ("-c bad.c -MD -o bad.o", "miss", "hit"),
            ("-Wall -Werror -c x.c -o x.o", "miss", "hit"),
            ("-c absent.c -o x.o", "miss", "hit"),
            ("-c x.c -include absent.h -o x.o", "miss", "hit"),
        ],
    );
}

#[test]
fn more_outputs_come_back() {
    probe_skip!(has("gcc"), "gcc is not installed");
    for line in ["-fstack-usage", "-save-temps", "-gsplit-dwarf -g", "-fdump-tree-optimized"] {
        let argv: Vec<&str> = "gcc -c x.c -o x.o".split(' ').chain(line.split(' ')).collect();
        place().check(&argv, &["miss", "hit"]);
    }
}

#[test]
fn outputs_that_differ_from_run_to_run_are_the_first_ones() {
    probe_skip!(has("gcc"), "gcc is not installed");
    // gcc writes a new stamp into coverage notes each time, and a listing contains the name of a
    // temporary file.
    for (flag, output) in [("--coverage", "x.gcno"), ("-Wa,-a=x.lst", "x.lst")] {
        let place = place();
        let argv = ["gcc", "-c", "x.c", "-o", "x.o", flag];
        let (first, outcome) = place.counted(place.larder(&argv));
        assert_eq!((first.code, outcome.as_str()), (Some(0), "miss"), "{flag}");
        let bytes = place.read(output);
        place.remove(&["x.o", output]);
        assert_eq!(place.counted(place.larder(&argv)), (first, "hit".to_owned()), "{flag}");
        assert_eq!(place.read(output), bytes);
    }
}

#[test]
fn a_verified_hit_runs_the_tool_and_compares() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let place = place();
    let verified = |argv: &[&str]| place.counted(place.larder(argv).env("LARDER_VERIFY", "1"));
    for argv in [&["gcc", "-c", "x.c", "-Wall"][..], &["gcc", "-c", "bad.c"], &["gcc", "-E", "x.c"]] {
        let (first, outcome) = verified(argv);
        assert_eq!(outcome, "miss", "{argv:?}");
        assert_eq!(verified(argv), (first, "hit".to_owned()), "{argv:?}");
    }
    // gcc writes a new stamp into coverage notes each time.
    let argv = ["gcc", "-c", "x.c", "--coverage"];
    assert_eq!(verified(&argv).1, "miss");
    let (ran, outcome) = verified(&argv);
    assert_eq!((ran.code, outcome.as_str()), (Some(0), "fallback:verify"));
    assert!(ran.stderr.contains("the record of x.c was wrong") && ran.stderr.contains("x.gcno differs"), "{ran:?}");
    let notes = place.read("x.gcno");
    place.remove(&["x.gcno"]);
    assert_eq!(place.counted(place.larder(&argv)).1, "hit");
    assert_eq!(place.read("x.gcno"), notes, "the newest record must answer");
}

#[test]
fn every_stage_is_cached() {
    check_rows(
        &["gcc", "clang"],
        &[
            ("-E x.c", "miss", "hit"),
            ("-E x.c -o x.i", "miss", "hit"),
            ("-M x.c", "miss", "hit"),
            ("-S x.c", "miss", "hit"),
            ("-fsyntax-only x.c", "miss", "hit"),
            ("--version", "miss", "hit"),
            ("-print-search-dirs", "miss", "hit"),
            ("-shared -fPIC y.c -o y.so", "miss", "hit"),
            ("-c x.c y.c", "miss", "hit"),
            ("-c -o /dev/null y.c", "miss", "hit"),
            ("--no-such-option", "miss", "hit"),
            ("@absent", "bypass:response-file", "bypass:response-file"),
        ],
    );
    probe_skip!(has("gcc"), "gcc is not installed");
    // These commands print names of temporary files.
    let place = place();
    for line in ["-v -c y.c", "-### -c y.c", "-v"] {
        let argv: Vec<&str> = ["gcc"].into_iter().chain(line.split(' ')).collect();
        for expect in ["miss", "hit"] {
            let (ran, outcome) = place.counted(place.larder(&argv));
            assert_eq!((ran.code, outcome.as_str()), (Some(0), expect), "{line}");
            assert!(ran.stderr.contains("gcc version"), "{ran:?}");
        }
    }
    let (_, outcome) = place.counted(place.larder(&["gcc", "-ftime-report", "-c", "y.c"]));
    assert_eq!(outcome, "bypass:too-hard");
}

#[test]
fn standard_input_is_keyed() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let (place, argv) = (place(), ["gcc", "-c", "-x", "c", "-", "-o", "x.o"]);
    place.check_with(&argv, &["miss", "hit"], |run| run.stdin(b"int a;\n"));
    place.check_with(&argv, &["miss", "hit"], |run| run.stdin(b"int b;\n"));
    place.check_with(&argv, &["hit"], |run| run.stdin(b"int a;\n"));
    place.check_with(&argv, &["miss", "hit"], |run| run.stdin(b""));
}

#[test]
fn an_output_directory_that_is_missing_and_one_that_comes() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let place = place();
    let argv = ["gcc", "-c", "y.c", "-o", "out/y.o"];
    let (ran, _) = place.counted(place.larder(&argv));
    assert!(ran.code == Some(1) && ran.stderr.contains("out/y.o"), "{ran:?}");
    std::fs::create_dir(place.path("work/out")).expect("cannot create the directory");
    place.check(&argv, &["miss", "hit"]);
    std::fs::remove_dir(place.path("work/out")).expect("cannot remove the directory");
    assert_eq!(place.larder(&argv).run(), ran);
}

#[test]
fn each_change_misses_and_the_way_back_hits() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let place = place();
    let check = |argv: &[&str], outcome: &str, what: &str| {
        place.remove(&["x.o"]);
        let (ran, found) = place.counted(place.larder(argv));
        assert_eq!((ran.code, found.as_str()), (Some(0), outcome), "{what}: {ran:?}");
        place.read("x.o")
    };
    let argv = ["gcc", "-c", "x.c", "-o", "x.o"];
    let first = check(&argv, "miss", "first");
    place.put("x.h", "#define X 2\n");
    let second = check(&argv, "miss", "header changed, with the same size and mtime");
    assert_ne!(first, second);
    assert_eq!(check(&argv, "hit", "again"), second);
    place.put("x.h", "#define X 1\n");
    assert_eq!(check(&argv, "hit", "header changed back"), first);
    check(&["gcc", "-O2", "-c", "x.c", "-o", "x.o"], "miss", "another flag");
    check(&["gcc", "-DX1", "-c", "x.c", "-o", "x.o"], "miss", "a definition");
    check(&argv, "hit", "the first flags again");
    std::fs::remove_file(place.path("work/x.h")).expect("cannot remove the file");
    let (ran, found) = place.counted(place.larder(&argv));
    assert_eq!((ran.code, found.as_str()), (Some(1), "miss"), "header removed");
    place.put("x.h", "#define X 1\n");
    assert_eq!(check(&argv, "hit", "header restored"), first);
}

#[test]
fn a_header_that_appears_earlier_on_the_path_is_seen() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let place = Place::new();
    place.put("x.c", "#include <x.h>\n#if __has_include(<late.h>)\nint late;\n#endif\nint a = X;\n");
    place.put("second/x.h", "#define X 1\n");
    std::fs::create_dir(place.path("work/first")).expect("cannot create the directory");
    let argv = ["gcc", "-Ifirst", "-Isecond", "-Inew", "-c", "x.c", "-o", "x.o"];
    let steps: [(&str, Option<&str>, &str); 7] = [
        ("", None, "miss"),
        ("first/x.h", Some("#define X 2\n"), "miss"),
        ("first/x.h", None, "hit"),
        ("second/late.h", Some("\n"), "miss"),
        ("second/late.h", None, "hit"),
        ("new/late.h", Some("\n"), "miss"),
        ("new/late.h", None, "hit"),
    ];
    for (at, (path, text, expect)) in steps.iter().enumerate() {
        match text {
            Some(text) => drop(place.put(path, text)),
            None => place.remove(&[path]),
        }
        // The empty directory `new` that remains cannot be mistaken for a header.
        if at == 6 {
            std::fs::remove_dir(place.path("work/new")).expect("cannot remove the directory");
        }
        place.check(&argv, &[*expect, "hit"]);
    }
}

/// `configure` compiles a source that it wrote a moment ago, and a build links what it compiled a
/// moment ago. On overlayfs both have the time of the same tick as the command.
#[test]
fn inputs_as_new_as_the_command_where_times_are_coarse() {
    const TIMES: usize = 8;
    let place = Place::new();
    let larder = larder().display().to_string();
    let configure = format!(
        "echo \"int main(void) {{ return $i; }}\" > c.c && {larder} gcc -c c.c && {larder} ar rcsD c.a c.o && \
         {larder} gcc c.a -o c && echo $i > t && {larder} run -- tail -n 1 t"
    );
    let Some(run) = place.in_overlay(&format!("for i in $(seq {TIMES}); do {configure} || exit; done")) else { return };
    let log = place.path("log");
    run.env("LARDER_LOG", &log).run().ends(0);
    let text = std::fs::read_to_string(&log).expect("reads");
    // The first run of each tool shows whether it can be observed.
    let count = |what: &str| text.lines().filter(|line| line.contains(what)).count();
    assert!(count(" · recorded") >= 4 * (TIMES - 1), "{text}");
    assert_eq!(count("as new as the run"), 0, "{text}");
}

#[test]
fn switches() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let place = place();
    let argv = ["gcc", "-c", "x.c", "-o", "x.o"];
    let rows: [(&str, &[&str]); 7] = [
        ("LARDER_READ_ONLY", &["miss:read-only", "miss:read-only"]),
        ("LARDER_DISABLE", &["nothing", "nothing"]),
        ("", &["miss", "hit"]),
        ("LARDER_RECACHE", &["miss", "miss"]),
        ("", &["hit"]),
        ("LARDER_READ_ONLY", &["hit"]),
        ("LARDER_DISABLE", &["nothing"]),
    ];
    for (name, outcomes) in rows {
        // A run that may only read, or that is disabled, writes nothing to the store, so it is not
        // counted.
        let outcomes: Vec<&str> = match name {
            "LARDER_READ_ONLY" => outcomes.iter().map(|_| "nothing").collect(),
            _ => outcomes.to_vec(),
        };
        place.check_with(&argv, &outcomes, |run| if name.is_empty() { run } else { run.env(name, "1") });
    }
}

#[test]
fn any_command_is_explained_as_larder_runs_it() {
    let place = Place::new();
    place.put("x", "1\n");
    place.settle();
    for _ in 0..3 {
        place.larder(&["run", "--", "cat", "x"]).run().ends(0);
    }
    let explained = || place.larder(&["explain", "--no-terminal", "--", "cat", "x"]).run().ends(0).stdout;
    let said = explained();
    assert!(said.starts_with("Hit") && said.contains("`larder run -- COMMAND`"), "{said}");
    for words in [&["run", "--"][..], &["larder", "run", "--"]] {
        let words = [&["explain", "--no-terminal"], words, &["cat", "x"]].concat();
        assert!(place.larder(&words).run().ends(0).stdout.starts_with("Hit"), "{words:?}");
    }
    place.put("x", "2\n");
    let said = explained();
    assert!(said.starts_with("Miss: `x` changed since the last build"), "{said}");
}

#[test]
fn an_unknown_tool_runs_untouched_and_is_counted() {
    let place = Place::new();
    let tool = place.tool("bin/frobnicate", "cat; echo \"$0\" \"$@\"; echo err >&2; echo made > made; exit 7");
    place.check_with(&[&tool, "-c", "x.c"], &["bypass:unknown-tool"; 2], |run| run.stdin(b"input\n"));
    for tool in ["true", "false", "ls", "env"] {
        place.check(&[tool], &["bypass:unknown-tool"]);
    }
}
