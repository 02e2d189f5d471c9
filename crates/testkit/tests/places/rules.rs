//! What is set about places: which directories are roots, whether debug information is written again, what a sandbox
//! takes.

use larder_testkit::{Place, Run, has, probe_skip};

/// Two trees of the same sources, one of which names itself.
fn trees(names: &[&str]) -> Place {
    let place = Place::new();
    for name in names {
        place.put(&format!("{name}/src/x.c"), "#include \"h.h\"\nint f(void) { return H; }\n");
        place.put(&format!("{name}/src/file.c"), "const char *f(void) { return __FILE__; }\n");
        place.put(&format!("{name}/inc/h.h"), "#define H 1\n");
        std::fs::create_dir_all(place.path(format!("work/{name}/out"))).expect("makes");
    }
    place
}

/// A compile in `tree/out`, told by absolute paths.
fn compile(place: &Place, tree: &str, source: &str, flags: &[&str]) -> Run {
    let top = place.text(&format!("work/{tree}"));
    let (inc, source) = (format!("-I{top}/inc"), format!("{top}/src/{source}"));
    let words = [&["gcc", "-c", &inc, &source, "-o", "x.o"], flags].concat();
    place.larder(&words).cwd(place.path(format!("work/{tree}/out")))
}

/// The outcome in each of two places, which are emptied of what was made.
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
    // One whose name begins with another's, and both at once.
    let both = |tree: &str, other: &str| with(tree, "-DTWO", &[tree, other]);
    assert_eq!(outcomes(&place, [both("a", "ab"), both("ab", "a")]), ["miss", "hit"]);
    // They lie in each other in another way: nothing is known of that.
    let differently = [with("a", "-DOTHER", &["a", "a/src"]), with(far, "-DOTHER", &[far, "a/src"])];
    assert_eq!(outcomes(&place, differently), ["miss", "miss"]);
    let none = |tree: &str| compile(&place, tree, "x.c", &["-O1"]).env("LARDER_ROOTS", "none");
    assert_eq!(outcomes(&place, [none("a"), none(far)]), ["miss", "miss"]);
    assert_eq!(outcomes(&place, [none("a"), none(far)]), ["hit", "hit"]);
}

/// A file's name that only a condition's other branch has, and one that is asked for.
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

/// A generated header that holds the place's path, and a source that includes it.
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
    let object = std::fs::read(place.path("work/longer/and/deeper/x.o")).expect("was made");
    let plain = place.run(&["gcc", "-c", "x.c", "-o", "plain.o"]).cwd(place.path("work/longer/and/deeper"));
    plain.run().ends(0);
    let expect = std::fs::read(place.path("work/longer/and/deeper/plain.o")).expect("was made");
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
        let words = ["explain", "--no-terminal", "gcc", "-c", &inc, &source, "-o", "x.o"];
        let run = place.larder(&words).cwd(place.path(format!("work/{tree}/out")));
        rooted(run, tree).run().ends(0).stdout
    };
    let here = explain("b");
    assert!(here.starts_with("hit") && here.contains("only here") && here.contains("-ffile-prefix-map="), "{here}");
    place.put("c/src/file.c", "const char *f(void) { return __FILE__; }\n");
    place.put("c/inc/h.h", "#define H 1\n");
    std::fs::create_dir_all(place.path("work/c/out")).expect("makes");
    let elsewhere = explain("c");
    assert!(elsewhere.starts_with("miss") && elsewhere.contains("made in another place"), "{elsewhere}");
}

#[test]
fn a_sandbox_may_take_what_names_another() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let sandbox = |number: u32| format!("sandbox/linux-sandbox/{number}/execroot/ws");
    let (first, second) = (sandbox(1), sandbox(22));
    let place = trees(&[&first, &second, "plain"]);
    let run = |tree: &str| compile(&place, tree, "file.c", &[]).env("LARDER_POLICY", "ephemeral");
    assert_eq!(outcomes(&place, [run(&first), run(&second)]), ["miss", "hit"]);
    let object = std::fs::read(place.path(format!("work/{second}/out/x.o"))).expect("was made");
    let path = place.text(&format!("work/{first}/src/file.c")).into_bytes();
    assert!(object.windows(path.len()).any(|part| part == path), "it names the first, as documented");
    let plain = run("plain").env("LARDER_ROOTS", place.text("work/plain"));
    assert_eq!(place.counted(plain).1, "miss", "no sandbox");
}
