//! Imitates Bazel's sandboxes without Bazel. They are directories full of symbolic links whose path
//! contains a number. They are removed, kept, or put aside and moved, and a number is used again
//! for other content.

use larder_testkit::{has, probe_skip};

use crate::two::{Case, Counted};

/// How many of the three units must hit in a sandbox with another path.
const LEAST_HITS: u64 = 3;
/// How many of them must hit if one header was changed that two of the three units include.
const LEAST_HITS_WITH_A_CHANGE: u64 = 1;

const FILES: &[(&str, &str)] = &[
    ("src/lib/lib.h", "int one(int a);\nint two(int a);\n"),
    ("src/lib/more.h", "#define MORE 3\n"),
    ("src/lib/one.c", "#include \"lib/lib.h\"\n#include \"lib/more.h\"\nint one(int a) { return a + MORE; }\n"),
    ("src/lib/two.c", "#include \"lib/lib.h\"\n#include \"lib/more.h\"\nint two(int a) { return one(a) + MORE; }\n"),
    (
        "src/lib/main.c",
        "#include <stdio.h>\n#include \"lib/lib.h\"\nint main(void) { return printf(\"%d\", two(1)) < 0; }\n",
    ),
];

/// Shell functions. `place N` makes a sandbox of links to the sources. `build N HOW FLAGS` compiles
/// in it, as Bazel does or as a package's makefile does.
const FUNCTIONS: &str = r#"
root() { echo "$PWD/sandbox/linux-sandbox/$1/execroot/ws"; }
place() {
    mkdir -p "$(root "$1")/lib" "$(root "$1")/bazel-out/lib"
    for file in src/lib/*; do ln -s "$PWD/$file" "$(root "$1")/lib"; done
}
build() {
    at=$(root "$1"); how=$2; shift 2
    for unit in one two main; do
        case $how in
            bazel) (cd "$at"; PWD=/proc/self/cwd $CC "$@" -iquote . -MD -MF bazel-out/lib/$unit.d -c lib/$unit.c -o bazel-out/lib/$unit.o) ;;
            relative) (cd "$at"; $CC "$@" -iquote . -MD -MF bazel-out/lib/$unit.d -c lib/$unit.c -o bazel-out/lib/$unit.o) ;;
            absolute) (cd "$at/bazel-out"; $CC "$@" -I"$at" -MD -MF lib/$unit.d -c "$at/lib/$unit.c" -o lib/$unit.o) ;;
        esac
    done
}
"#;

/// How the units are compiled: an argument of `build`, and flags.
const WAYS: &[(&str, &str)] = &[
    ("bazel", "-O1"),
    ("bazel", "-O1 -g"),
    ("relative", "-O1"),
    ("relative", "-O1 -g"),
    ("absolute", "-O1"),
    ("absolute", "-O1 -g"),
];

#[track_caller]
fn check(what: &str, second_place: &str, between: &str, least_hits: u64) -> Vec<Counted> {
    let mut all = Vec::new();
    for (how, flags) in WAYS {
        let build = |number: &str| format!("place {number}; build {number} {how} {flags}");
        let first = format!("{FUNCTIONS}{}\n{between}", build("1"));
        let second = format!("{FUNCTIONS}{}", build(second_place));
        let case = Case {
            name: &format!("{what}, {how}, {flags}"),
            files: FILES,
            first: &first,
            second: &second,
            compared: &format!("sandbox/linux-sandbox/{second_place}"),
            left_out: &[],
            least_hits,
        };
        all.push(case.check());
    }
    all
}

#[test]
fn a_sandbox_that_was_removed() {
    probe_skip!(has("gcc"), "gcc is not installed");
    check("removed", "2", "rm -r sandbox", LEAST_HITS);
}

#[test]
fn a_sandbox_that_is_kept() {
    probe_skip!(has("gcc"), "gcc is not installed");
    check("kept", "10", "", LEAST_HITS);
}

#[test]
fn a_sandbox_that_was_put_aside_and_moved() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let aside = "mkdir stash; mv sandbox/linux-sandbox/1 stash/0; rm -r stash/0/execroot/ws/*; mv stash/0 sandbox/linux-sandbox/3";
    check("put aside and moved", "3", aside, LEAST_HITS);
}

#[test]
fn an_old_number_with_other_content() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let change = "rm -r sandbox; echo '#define MORE 4' >src/lib/more.h; sleep 0.1";
    for counted in check("old number", "1", change, LEAST_HITS_WITH_A_CHANGE) {
        assert!(counted.hits <= 1 && counted.misses >= 2, "{counted:?}: two units include the header");
    }
}

#[test]
fn another_number_with_one_header_changed() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let change = "rm -r sandbox; echo '#define MORE 4' >src/lib/more.h; sleep 0.1";
    for counted in check("another number, header changed", "2", change, LEAST_HITS_WITH_A_CHANGE) {
        assert!(counted.misses >= 2, "{counted:?}: two units include the header");
    }
}
