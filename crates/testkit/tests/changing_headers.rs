//! Compiles of which only headers have changed, and hits by the preprocessed text. The result must
//! be that of the compiler in each case.
#![cfg(target_os = "linux")]

use larder_testkit::{Place, has, probe_skip};

const SOURCE: &str = "#include \"c.h\"\nint a(int b) { return f(b); }\n";
const FUNCTION: &str = "static inline int f(int a) { return a + 1; }\n";

/// Compiles a source with three versions of `c.h`. The first two miss. `third` is the outcome of the
/// third, after which each version hits.
#[track_caller]
fn check(compilers: &[&str], flags: &str, source: &str, versions: [&str; 3], third: &str) {
    for compiler in compilers {
        if !has(compiler) {
            eprintln!("skipped: {compiler} is not installed");
            continue;
        }
        let place = Place::new();
        let name = if compiler.ends_with("++") { "x.cc" } else { "x.c" };
        place.put(name, source);
        place.put("d/n.h", "#pragma once\n");
        let argv: Vec<&str> =
            [*compiler].into_iter().chain(flags.split(' ')).chain(["-c", name, "-o", "x.o"]).collect();
        for (version, outcome) in versions.iter().zip(["miss", "miss", third]) {
            place.put("c.h", version);
            place.check(&argv, &[outcome, "hit"]);
        }
        for version in &versions[..2] {
            place.put("c.h", version);
            place.check(&argv, &["hit"]);
        }
    }
}

/// Returns three versions that differ by the number in `text`.
fn numbered(text: &str, rest: &str) -> [String; 3] {
    ["1", "2", "3"].map(|number| text.replace('N', number) + rest)
}

#[test]
fn a_change_that_the_source_does_not_use() {
    let stamp = numbered("#define STAMP \"N\"\n", FUNCTION);
    let stamp = stamp.each_ref().map(String::as_str);
    for flags in ["-O2 -Wall", "-MD", "-MMD -MP -MF x.d", "-Wp,-MD,x.d"] {
        check(&["gcc", "clang"], flags, SOURCE, stamp, "hit");
    }
    check(&["g++", "clang++"], "-O2 -std=c++17", SOURCE, stamp, "hit");
    // clang writes checksums of headers into DWARF 5.
    check(&["gcc"], "-g -O2 -Wall -Wextra", SOURCE, stamp, "hit");
    check(&["gcc", "clang"], "-g -gdwarf-4", SOURCE, stamp, "hit");
    check(&["clang"], "-g -gdwarf-5", SOURCE, stamp, "miss");
}

#[test]
fn a_comment() {
    let behind = numbered("int g(void); // N\n/* N */\n", FUNCTION);
    check(&["gcc"], "-g -Wall -Wextra", SOURCE, behind.each_ref().map(String::as_str), "hit");
    let wider = ["/*1*/", "/*2*/", "/* 3 */"].map(|comment| FUNCTION.replace("return", &format!("{comment} return")));
    let wider = wider.each_ref().map(String::as_str);
    // Even without flags, columns can reach messages, and names that clang gives to types.
    for flags in ["-g", "-O2"] {
        check(&["gcc"], flags, SOURCE, wider, "miss");
    }
}

#[test]
fn a_change_that_counts() {
    let both = ["gcc", "clang"];
    let check = |flags: &str, source: &str, versions: [&str; 3]| check(&both, flags, source, versions, "miss");
    let stamp = |rest: &str| numbered("#define STAMP \"N\"\n", rest);
    let function = stamp(FUNCTION);
    let function = function.each_ref().map(String::as_str);
    check("-O2", "#include \"c.h\"\nchar *a = STAMP;\n", function);
    check("-g3", SOURCE, function);
    check("-Wunused-macros", SOURCE, function);
    check("-Wall", "#include \"c.h\"\nint a(void) { int unused; return f(1); }\n", function);
    check("-O2", "#include \"c.h\"\nasm(\".incbin \\\"c.h\\\"\");\n", function);
    let lines = |third| ["#define S 1\nint f(int);\n", "#define S 2\nint f(int);\n", third];
    check("-O2", "#include \"c.h\"\nint a = __LINE__;\n#if S == 3\n#endif\n", lines("#define S 3\nint g(int);\n"));
    check("-g", SOURCE, lines("#define S 2\n\nint f(int);\n"));
    check("-g", SOURCE, lines("#define S 2\n int f(int);\n"));
    check("-O2", SOURCE, lines("#warning S\nint f(int);\n"));
    check("-MD", SOURCE, lines("#include \"d/n.h\"\nint f(int);\n"));
}

/// gcc 12 ignores the first two pragmas with `-E`, and clang does not expand macros in the others.
#[test]
fn a_pragma_that_the_preprocessed_text_does_not_show() {
    let number = numbered("#define A N\n", "");
    let number = number.each_ref().map(String::as_str);
    for pragma in ["GCC target(\"avx2\")", "GCC optimize(\"fast-math\")"] {
        let source = format!(
            "#include \"c.h\"\n#pragma {pragma}\n#if defined __AVX2__ || defined __FAST_MATH__\nint a = A;\n#endif\n"
        );
        check(&["gcc"], "-O0", &source, number, "miss");
    }
    for pragma in ["unroll(A)", "clang loop unroll_count(A)"] {
        let source = format!(
            "#include \"c.h\"\nvoid a(int *b, int c) {{\n#pragma {pragma}\nfor (int i = 0; i < c; i++) b[i] *= i;\n}}\n"
        );
        check(&["clang"], "-O2", &source, number, "miss");
    }
}

/// The third version looks for a header that the recorded run did not look for.
#[test]
fn a_header_that_only_the_new_text_looks_for() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let place = Place::new();
    place.put("x.c", "#include \"c.h\"\nint a;\n");
    let argv = ["gcc", "-c", "x.c", "-o", "x.o"];
    for (text, outcome) in [
        ("#define S 1\n\n\n", "miss"),
        ("#define S 2\n\n\n", "miss"),
        ("#if __has_include(\"n.h\")\n#include \"n.h\"\n#endif\n", "hit"),
    ] {
        place.put("c.h", text);
        place.check(&argv, &[outcome, "hit"]);
    }
    place.put("n.h", "int n;\n");
    place.check(&argv, &["miss", "hit"]);
    place.remove(&["n.h"]);
    place.check(&argv, &["hit"]);
}

#[test]
fn another_checkout() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let place = Place::new();
    let mut outcomes = Vec::new();
    for (at, directory) in ["one", "another", "a-third-one"].iter().enumerate() {
        let work = |name: &str| format!("{directory}/{name}");
        place.put(&work(".git/HEAD"), "");
        place.put(&work("x.c"), SOURCE);
        place.put(&work("include/c.h"), format!("#define STAMP {at}\n{FUNCTION}"));
        let source = place.text(&format!("work/{}", work("x.c")));
        let include = format!("-I{}", place.text(&format!("work/{}", work("include"))));
        let argv = ["gcc", "-g", &include, "-c", &source, "-o", "x.o"];
        let cwd = place.path(format!("work/{directory}"));
        let (ran, outcome) = place.counted(place.larder(&argv).cwd(&cwd));
        assert_eq!(ran.code, Some(0), "{ran:?}");
        outcomes.push(outcome);
        let made = place.read(&work("x.o"));
        place.run(&argv).cwd(&cwd).run().ends(0);
        assert!(made == place.read(&work("x.o")), "the object is not the compiler's");
        std::fs::remove_dir_all(cwd).expect("cannot remove the directory");
    }
    assert_eq!(outcomes, ["miss", "miss", "hit"]);
}

#[test]
fn what_is_said_of_it() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let place = Place::new();
    let log = place.text("log");
    place.put("x.c", SOURCE);
    let argv = ["gcc", "-c", "x.c", "-o", "x.o"];
    let put = |text: &str| drop(place.put("c.h", format!("{text}{FUNCTION}")));
    let compile = || {
        place.larder(&argv).env("LARDER_LOG", &log).run().ends(0);
        std::fs::read_to_string(&log).expect("cannot read the log").lines().last().unwrap_or_default().to_owned()
    };
    let explain = || place.word(&["explain", "--no-terminal", "gcc", "-c", "x.c", "-o", "x.o"]).run().ends(0).stdout;
    for stamp in ["#define S 1\n", "#define S 2\n"] {
        put(stamp);
        assert!(compile().contains("miss"));
    }
    put("#define S 3\n");
    let said = explain();
    let begins = "Miss, or a hit if the preprocessed text is unchanged: `c.h` changed since the last build";
    assert!(said.starts_with(begins), "{said}");
    let said = compile();
    assert!(said.ends_with("hit: x.c · c.h changed, and the preprocessed text did not"), "{said}");
    put("int s;\n");
    let said = compile();
    assert!(said.ends_with("c.h has other content, and so has the preprocessed text"), "{said}");
}

/// After some failures the preprocessor runs only now and then, and a success forgives them.
#[test]
fn a_header_of_which_each_change_counts() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let place = Place::new();
    let log = place.text("log");
    place.put("x.c", "#include \"c.h\"\nint a = A;\n");
    let compile = |text: String| {
        place.put("c.h", text);
        place.larder(&["gcc", "-c", "x.c", "-o", "x.o"]).env("LARDER_LOG", &log).run().ends(0);
        let said = std::fs::read_to_string(&log).expect("cannot read the log");
        let said = said.lines().last().unwrap_or_default();
        if said.contains(" hit: x.c") {
            "hit"
        } else if said.ends_with("preprocessed text") {
            "tried"
        } else {
            "miss"
        }
    };
    let mut number = 0;
    let mut used = || {
        number += 1;
        compile(format!("#define A {number}\n"))
    };
    let outcomes = [(); 11].map(|()| used());
    let expected = ["miss", "miss", "tried", "tried", "tried", "miss", "tried", "miss", "miss", "miss", "tried"];
    assert_eq!(outcomes, expected);
}
