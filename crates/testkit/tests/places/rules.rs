//! Settings about paths: which directories are roots, whether larder rewrites debug information for
//! another directory, and what a sandbox accepts.

use larder_testkit::{Place, Run, has, probe_skip};

/// Creates directories with the same sources. `file.c` contains the path of its directory, because
/// it uses `__FILE__`.
fn trees(names: &[&str]) -> Place {
    let place = Place::new();
    for name in names {
        place.put(&format!("{name}/src/x.c"), "#include \"h.h\"\nint f(void) { return H; }\n");
        place.put(&format!("{name}/src/file.c"), "const char *f(void) { return __FILE__; }\n");
        place.put(&format!("{name}/inc/h.h"), "#define H 1\n");
        std::fs::create_dir_all(place.path(format!("work/{name}/out"))).expect("cannot create the directory");
    }
    place
}

/// Returns a compile in `tree/out` whose arguments are absolute paths.
fn compile(place: &Place, tree: &str, source: &str, flags: &[&str]) -> Run {
    let top = place.text(&format!("work/{tree}"));
    let (inc, source) = (format!("-I{top}/inc"), format!("{top}/src/{source}"));
    let words = [&["gcc", "-c", &inc, &source, "-o", "x.o"], flags].concat();
    place.larder(&words).cwd(place.path(format!("work/{tree}/out")))
}

/// Returns the outcome of each of two runs.
fn outcomes(place: &Place, runs: [Run; 2]) -> [String; 2] {
    runs.map(|run| place.counted(run).1.to_owned())
}

#[test]
fn roots_that_are_named() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let place = trees(&["a", "longer/and/deeper", "ab"]);
    let roots =
        |names: &[&str]| names.iter().map(|name| place.text(&format!("work/{name}"))).collect::<Vec<_>>().join(":");
    let with = |tree: &str, flag: &str, names: &[&str]| {
        compile(&place, tree, "x.c", &["-g", flag]).env("LARDER_ROOTS", roots(names))
    };
    let far = "longer/and/deeper";
    assert_eq!(outcomes(&place, [with("a", "-DONE", &["a"]), with(far, "-DONE", &[far])]), ["miss", "hit"]);
    let nested = |tree: &str| with(tree, "-DNESTED", &[tree, &format!("{tree}/src"), &format!("{tree}/out")]);
    assert_eq!(outcomes(&place, [nested("a"), nested(far)]), ["miss", "hit"]);
    // The name of one root begins with the name of another. Both are roots of the same run.
    let both = |tree: &str, other: &str| with(tree, "-DTWO", &[tree, other]);
    assert_eq!(outcomes(&place, [both("a", "ab"), both("ab", "a")]), ["miss", "hit"]);
    // The roots are nested differently, so nothing that was recorded with the first applies.
    let differently = [with("a", "-DOTHER", &["a", "a/src"]), with(far, "-DOTHER", &[far, "a/src"])];
    assert_eq!(outcomes(&place, differently), ["miss", "miss"]);
    let none = |tree: &str| compile(&place, tree, "x.c", &["-O1"]).env("LARDER_ROOTS", "none");
    assert_eq!(outcomes(&place, [none("a"), none(far)]), ["miss", "miss"]);
    assert_eq!(outcomes(&place, [none("a"), none(far)]), ["hit", "hit"]);
}

/// gcc reads `specs` in its own directories, which `-B` adds to. They count if they name the place.
#[test]
fn specs_that_gcc_reads_by_itself() {
    probe_skip!(has("gcc"), "gcc is not installed");
    for (names_place, flag, second) in [(false, "-DNONE", "hit"), (true, "-DPLACE", "miss")] {
        let place = trees(&["a", "longer/and/deeper"]);
        let own = place.text("work/own/");
        let named = if names_place { place.text("work/a") } else { String::new() };
        place.put("own/specs", format!("*cc1_options:\n+ -DS{named}\n"));
        let run = |tree: &str| {
            let top = place.text(&format!("work/{tree}"));
            let run = place.larder(&["gcc", &format!("-B{own}"), flag, "-c", "../src/x.c", "-I../inc", "-o", "x.o"]);
            run.cwd(place.path(format!("work/{tree}/out"))).env("LARDER_ROOTS", top)
        };
        assert_eq!(place.counted(run("a")).1, "miss");
        assert_eq!(place.counted(run("longer/and/deeper")).1, second);
    }
}

/// `__FILE__` in a branch that is not compiled does not matter, and in one that is compiled it
/// does.
#[test]
fn names_of_files_between_conditions() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let asks = "#ifdef DEBUG_X\nint n = sizeof __FILE__;\n#endif\nint x;\n";
    for (source, header, flag, second) in [
        ("#include <assert.h>\nint f(int a) { assert(a); return a; }\n", "", "-DNDEBUG", "hit"),
        (asks, "#define DEBUG_Y\n", "-DY", "hit"),
        (asks, "#define \\\nDEBUG_X\n", "-DY", "miss"),
        (asks, "", "-DDEBUG_X", "miss"),
        ("#if !defined(NDEBUG)\nint n = sizeof __FILE__;\n#endif\n", "#undef NDEBUG\n", "-DNDEBUG", "miss"),
        ("int n = sizeof W;\n", "", "-DW=__FILE__", "miss"),
    ] {
        let place = trees(&["a", "longer/and/deeper"]);
        for tree in ["a", "longer/and/deeper"] {
            place.put(&format!("{tree}/src/x.c"), format!("#include \"h.h\"\n{source}"));
            place.put(&format!("{tree}/inc/h.h"), header);
        }
        let run =
            |tree: &str| compile(&place, tree, "x.c", &[flag]).env("LARDER_ROOTS", place.text(&format!("work/{tree}")));
        let seen = outcomes(&place, [run("a"), run("longer/and/deeper")]);
        assert_eq!(seen, ["miss", second], "{source} {header} {flag}");
    }
}

/// Returns the outcomes of a compile in two directories. Each has a generated header that contains
/// its own path, and a source that includes the header.
fn generated(source: &str) -> [String; 2] {
    let place = Place::new();
    for tree in ["a", "longer/and/deeper"] {
        let top = place.text(&format!("work/{tree}"));
        place.put(&format!("{tree}/config.h"), format!("/* For DATA_DIR. */\n#define DATA_DIR \"{top}/share\"\n"));
        place.put(&format!("{tree}/x.c"), format!("#include \"config.h\"\n{source}\n"));
    }
    let run = |tree: &str| {
        let run = place.larder(&["gcc", "-c", "x.c", "-o", "x.o"]).cwd(place.path(format!("work/{tree}")));
        run.env("LARDER_ROOTS", place.text(&format!("work/{tree}")))
    };
    let found = outcomes(&place, [run("a"), run("longer/and/deeper")]);
    let object = std::fs::read(place.path("work/longer/and/deeper/x.o")).expect("cannot read the object");
    let plain = place.run(&["gcc", "-c", "x.c", "-o", "plain.o"]).cwd(place.path("work/longer/and/deeper"));
    plain.run().ends(0);
    let expect = std::fs::read(place.path("work/longer/and/deeper/plain.o")).expect("cannot read the object");
    assert!(object == expect, "{source}");
    found
}

#[test]
fn macros_that_hold_the_place() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let paste = "#define P(a, b) a ## b\n";
    for unnamed in ["int x;", "/* DATA_DIR */ int x;", "int x; // DATA_DIR", "#ifdef DATA_DIR\nint x;\n#endif"] {
        assert_eq!(generated(unnamed), ["miss", "hit"], "{unnamed}");
    }
    let named = [
        "int x = sizeof DATA_DIR;".to_owned(),
        "int x = sizeof DATA\\\n_DIR;".to_owned(),
        format!("{paste}int x = sizeof P(DATA, _DIR);"),
        format!("{paste}#define N DATA_D\nint x = sizeof P(DATA, _DIR);"),
        "#define M DATA_DIR\nint x = sizeof M;".to_owned(),
        "/*/ /*/ int x = sizeof DATA_DIR; /* */".to_owned(),
        "int y; /*\n/*/ int x = sizeof DATA_DIR; /* */".to_owned(),
    ];
    for named in named {
        assert_eq!(generated(&named), ["miss", "miss"], "{named}");
    }
}

const ASSERTS: &str =
    "#define ensure(x) ((x) ? 0 : (long)__FILE__)\nstatic inline long g(int a) { return ensure(a); }\n";
const PASTES: &str = "#define C(a, b) C_(a, b)\n#define C_(a, b) a ## b\n";

/// Returns true if the compile in the second directory hits. A header `e.h` lies outside of both
/// directories, and each has its own `list.h`.
fn with_a_header_outside(header: &str, source: &str, flags: &[&str]) -> bool {
    let trees = ["a", "longer/and/deeper"];
    let place = trees_of(&trees, source);
    place.put("ext/e.h", header);
    let top = |tree: &str| place.text(&format!("work/{tree}"));
    // `CPATH` names the outer directory, because a directory in an absolute argument would count as
    // part of the place.
    let run = |tree: &str, larder: bool, output: &str| {
        let (inc, source) = (format!("-I{}/inc", top(tree)), format!("{}/x.cc", top(tree)));
        let set = |flag: &&str| flag.replace("@PLACE@", &top(tree)).replace("@EXT@", &top("ext"));
        let flags: Vec<String> = flags.iter().map(set).collect();
        let words = ["g++", "-O1", "-fpermissive", "-w", "-c", &inc, &source, "-o", output];
        let words: Vec<&str> = words.into_iter().chain(flags.iter().map(String::as_str)).collect();
        let run = if larder { place.larder(&words) } else { place.run(&words) };
        run.cwd(place.path(format!("work/{tree}"))).env("LARDER_ROOTS", top(tree)).env("CPATH", top("ext"))
    };
    let [first, second] = outcomes(&place, trees.map(|tree| run(tree, true, "x.o")));
    assert_eq!(first, "miss");
    run(trees[1], false, "plain.o").run().ends(0);
    let object =
        |name: &str| std::fs::read(place.path(format!("work/{}/{name}", trees[1]))).expect("cannot read the object");
    assert!(object("x.o") == object("plain.o"), "{header}{source}");
    second == "hit"
}

fn trees_of(names: &[&str], source: &str) -> Place {
    let place = Place::new();
    for name in names {
        place.put(&format!("{name}/x.cc"), source);
        place.put(&format!("{name}/inc/list.h"), "X(one)\nX(two)\n");
        let _ = std::os::unix::fs::symlink(place.path("work/ext"), place.path(format!("work/{name}/inc/link")));
    }
    place
}

/// A header outside of the place that uses `__FILE__` names itself and not the place. But if its
/// macros are used by the place's own texts, they may name the place.
#[test]
fn headers_outside_of_the_place() {
    probe_skip!(has("g++"), "g++ is not installed");
    let uses = "#include <e.h>\nlong f(int a) { return (long)g(a); }\n";
    let libc = format!("#include <stdio.h>\n#include <math.h>\n#include <vector>\n{ASSERTS}");
    let pastes_itself = format!("{PASTES}static inline long g(int a) {{ return (long)C(__FI, LE__); }}\n");
    for (header, source) in [
        (ASSERTS, uses),
        (&libc, uses),
        (&pastes_itself, uses),
        ("X(one)\nX(two)\n", "#define X(n) const char *n = __FILE__;\n#include <e.h>\n"),
        (ASSERTS, "#include <e.h>\n#if ensure\n#endif\nint ensured; // ensure\n"),
    ] {
        assert!(with_a_header_outside(header, source, &[]), "{header}{source}");
    }
    let base = "static inline long g(int a) { return a ? (long)__BASE_FILE__ : 0; }\n";
    let where_called = "inline const char *g(int a, const char *p = __builtin_FILE()) { return p; }\n";
    let pasted = |rest: &str| format!("{PASTES}{rest}");
    for (header, source) in [
        (ASSERTS, "#include <e.h>\nlong f(int a) { return ensure(a); }\n"),
        (ASSERTS, "#include <e.h>\n#define check ensure\nlong f(int a) { return check(a); }\n"),
        (base, uses),
        (where_called, uses),
        (PASTES, "#include <e.h>\nconst char *f() { return C(__FI,\nLE__); }\n"),
        (&pasted(ASSERTS), "#include <e.h>\nlong f(int a) { return C(en, sure)(a); }\n"),
        (&pasted("#define A __FI\n#define B LE__\n"), "#include <e.h>\nconst char *f() { return C(A, B); }\n"),
        (&pasted("#define NM __FI\n"), "#include <e.h>\nconst char *f() { return C(C(N, M), LE__); }\n"),
        (
            &pasted("#define NM P\n#define P(a, b) a ## b\n"),
            "#include <e.h>\nconst char *f() { return C(N, M)\n(__FI, LE__); }\n",
        ),
        (&pasted("static inline long g(int a) { return (long)C(__BASE_, FILE__); }\n"), uses),
        ("#define X(n) const char *n = __FILE__;\n#include \"list.h\"\n", "#include <e.h>\n"),
        (ASSERTS, "#include \"link/e.h\"\nlong f(int a) { return g(a); }\n"),
    ] {
        assert!(!with_a_header_outside(header, source, &[]), "{header}{source}");
    }
    let pieces = "#include <e.h>\nconst char *f() { return D(A, B); }\n";
    let told = ["-DC(a,b)=a##b", "-DA=__FI", "-DB=LE__", "-DD(a,b)=C(a,b)"];
    assert!(!with_a_header_outside(ASSERTS, pieces, &told));
    assert!(!with_a_header_outside(ASSERTS, uses, &["-fmacro-prefix-map=@EXT@=@PLACE@/e"]));
}

#[test]
fn debug_information_only_here() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let place = trees(&["a", "longer"]);
    let root = |tree: &str| place.text(&format!("work/{tree}"));
    let run = |tree: &str, how| {
        compile(&place, tree, "x.c", &["-g"]).env("LARDER_ROOTS", root(tree)).env("LARDER_DEBUG_PATHS", how)
    };
    assert_eq!(outcomes(&place, [run("a", "exact"), run("longer", "exact")]), ["miss", "miss"]);
    let place = trees(&["a", "longer"]);
    let root = |tree: &str| place.text(&format!("work/{tree}"));
    let run = |tree: &str| compile(&place, tree, "x.c", &["-g"]).env("LARDER_ROOTS", root(tree));
    assert_eq!(outcomes(&place, [run("a"), run("longer")]), ["miss", "hit"]);
}

#[test]
fn what_serves_one_place_only_is_explained() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let place = trees(&["a", "b"]);
    let rooted = |run: Run, tree: &str| run.env("LARDER_ROOTS", place.text(&format!("work/{tree}")));
    let run = |tree: &str| rooted(compile(&place, tree, "file.c", &[]), tree);
    assert_eq!(outcomes(&place, [run("a"), run("b")]), ["miss", "miss"]);
    let explain = |tree: &str| {
        let source = place.text(&format!("work/{tree}/src/file.c"));
        let inc = format!("-I{}", place.text(&format!("work/{tree}/inc")));
        let words = ["explain", "--verbose", "--no-terminal", "gcc", "-c", &inc, &source, "-o", "x.o"];
        let run = place.larder(&words).cwd(place.path(format!("work/{tree}/out")));
        rooted(run, tree).run().ends(0).stdout
    };
    let here = explain("b");
    assert!(here.starts_with("Hit") && here.contains("only here") && here.contains("-ffile-prefix-map="), "{here}");
    place.put("c/src/file.c", "const char *f(void) { return __FILE__; }\n");
    place.put("c/inc/h.h", "#define H 1\n");
    std::fs::create_dir_all(place.path("work/c/out")).expect("cannot create the directory");
    let elsewhere = explain("c");
    assert!(elsewhere.starts_with("Miss") && elsewhere.contains("made in another checkout"), "{elsewhere}");
    let named = place.text("work/b/src/file.c");
    assert!(elsewhere.contains(&format!("expands __FILE__ ({named})")), "{elsewhere}");
}

#[test]
fn a_sandbox_may_take_what_names_another() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let sandbox = |number: u32| format!("sandbox/linux-sandbox/{number}/execroot/ws");
    let (first, second) = (sandbox(1), sandbox(22));
    let place = trees(&[&first, &second, "plain"]);
    let run = |tree: &str| compile(&place, tree, "file.c", &[]).env("LARDER_POLICY", "ephemeral");
    assert_eq!(outcomes(&place, [run(&first), run(&second)]), ["miss", "hit"]);
    let object = std::fs::read(place.path(format!("work/{second}/out/x.o"))).expect("cannot read the object");
    let path = place.text(&format!("work/{first}/src/file.c")).into_bytes();
    assert!(
        object.windows(path.len()).any(|part| part == path),
        "the object contains the path of the first sandbox, as the documentation says"
    );
    let plain = run("plain").env("LARDER_ROOTS", place.text("work/plain"));
    assert_eq!(place.counted(plain).1, "miss", "a directory that is no sandbox must not take it");
}
