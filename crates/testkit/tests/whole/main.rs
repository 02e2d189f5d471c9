//! Whole commands through `larder run`: what a script, a `configure` or a `make` leaves in several
//! directories, what larder must notice, and compilers behind larder inside the command.
#![cfg(target_os = "linux")]

mod clocks;
mod git;
mod gone;
mod inside;
mod jobs;
mod modes;
mod names;
mod ninja;
mod notices;
mod numbers;
mod project;
mod python;
mod samples;
mod scope;
mod terminal;
mod times;

use larder_testkit::{has, probe_skip};

use crate::project::Project;

const MAKEFILE: &str = "all: prog\nprog: a.o b.o\n\t$(CC) -o $@ a.o b.o\n%.o: %.c both.h\n\t$(CC) -c -o $@ $<\n";

/// Returns a project of two sources that make builds.
pub(crate) fn by_make() -> Project {
    Project::of(&[
        ("Makefile", MAKEFILE),
        ("both.h", "#define HOW_MUCH 1\n"),
        ("a.c", "#include \"both.h\"\nint b(void);\nint main(void) { return b() - HOW_MUCH; }\n"),
        ("b.c", "#include \"both.h\"\nint b(void) { return HOW_MUCH; }\n"),
    ])
}

const CONFIGURE: &str = r##"exec 5>config.log
echo "configured by process $$" >&5
trap 'rm -rf conftest* conf$$.dir' 0
mkdir conf$$.dir && (cd conf$$.dir && echo x > f && test -s f) || exit 1
ln -s conftest.c conftest.link && rm -f conftest.link
check() {
    echo "checking for $1" >&5
    printf '#include <%s>\nint main(void) { return 0; }\n' "$1" > conftest.c
    if gcc -o conftest conftest.c 2>&5 && ./conftest; then
        echo "checking for $1... yes"
        echo "#define HAVE_$2 1" >> confdefs.h
    else
        echo "checking for $1... no"
    fi
}
: > confdefs.h
check stdio.h STDIO_H
check no/such/header.h NO_SUCH_HEADER_H
mkdir -p sub
sed -e "s|@prefix@|$1|" Makefile.in > sub/Makefile
chmod 755 sub/Makefile
mv confdefs.h config.h
ln -s sub/Makefile Makefile
"##;

/// Returns a project whose script does what autoconf's scripts do: temporary names with the process
/// ID, checks, a log, and the path of the directory in its output.
pub(crate) fn by_configure() -> Project {
    let project = Project::of(&[("Makefile.in", "prefix = @prefix@\nall:\n")]);
    project.tool("configure", CONFIGURE);
    project
}

#[test]
fn make_serves_anywhere_once_it_gave_the_same_in_two_places() {
    probe_skip!(has("make"), "make is not installed");
    let project = by_make();
    let outcomes: Vec<String> = (0..4).map(|at| project.compared(at, &["make"])).collect();
    assert_eq!(outcomes, ["miss", "miss", "hit", "hit"]);
    // Outputs that a hit puts in place have the mtime order that make left.
    let again = project.plain(3, &["make", "-q"]);
    assert_eq!(again.code, Some(0), "{again:?}");
}

/// A result that is equal in two directories with paths of one length may differ in a directory
/// with a longer path.
#[test]
fn places_as_long_as_each_other() {
    let project = Project::of(&[("in", "x\n")]);
    let check = |script: &str, expected: &[(usize, &str)]| {
        for (at, expect) in expected {
            assert_eq!(project.compared(*at, &["sh", "-c", script]), *expect, "{script} in place {at}");
        }
    };
    check("echo ${#PWD} > long; cat in > out", &[(10, "miss"), (11, "miss"), (12, "hit"), (0, "miss"), (13, "hit")]);
    check("cat in > out", &[(10, "miss"), (11, "miss"), (12, "hit"), (0, "miss"), (3, "hit"), (4, "hit")]);
}

/// A result that is equal in two directories of one name may have that name.
#[test]
fn places_that_share_a_name() {
    let check = |script: &str, expected: &[(&str, &str)]| {
        let project = Project::of(&[("in", "x\n")]);
        for (at, expect) in expected {
            assert_eq!(project.compared_at(at, &["sh", "-c", script]), *expect, "{script} in {at}");
        }
    };
    let named = [("1/this", "miss"), ("22/this", "miss"), ("333/this", "hit"), ("4/other", "miss"), ("1/this", "hit")];
    check("echo \"${PWD##*/}\" > out", &named);
    check("echo \"${PWD##*/}\"", &named);
    check("echo > \"${PWD##*/}.txt\"", &named);
    check("ln -s \"${PWD##*/}\" link", &named);
    let below =
        [("1/this", "miss"), ("1/that-one", "miss"), ("1/other", "hit"), ("22/this", "miss"), ("1/this", "hit")];
    check("echo \"${PWD%/*}\" > out", &below);
    check("cd ..; echo \"${PWD##*/}\"", &[("un/this", "miss"), ("un/that-one", "miss"), ("deux/this", "miss")]);
    check("cat in > out", &[("1/this", "miss"), ("22/this", "miss"), ("333/other", "hit")]);
    let climbs = "d=$PWD; while test -n \"$d\"; do printf ../; d=${d%/*}; done; echo usr";
    check(
        climbs,
        &[("1/this", "miss"), ("22/other", "miss"), ("333/third", "hit"), ("4/5/6", "miss"), ("1/this", "hit")],
    );
}

/// A result that is equal in two directories may have a relative path from them to a file above both.
#[test]
fn places_as_deep_below_a_file_that_is_used() {
    let project = Project::of(&[("in", "x\n")]);
    project.place.put("shared/file", "s\n");
    project.place.settle();
    let script = format!("realpath --relative-to=. {} > out", project.place.text("work/shared/file"));
    let expected = [("1/this", "miss"), ("22/other", "miss"), ("3/third", "hit"), ("4/5/6", "miss"), ("7", "miss")];
    for (at, expect) in expected {
        assert_eq!(project.compared_at(at, &["sh", "-c", &script]), expect, "{at}");
    }
}

/// gcc writes the path of the directory into assembler source, among strings in the order of a hash
/// table. Any two directories may have the same order by chance.
#[test]
fn places_in_the_order_of_a_hash_table() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let project = Project::of(&[("x.c", "int x;\n")]);
    for at in ["a", "b", "c/d", "e", "ff", "g/h/i", "jj", "k", "ll", "m"] {
        assert!(project.compared_at(at, &["sh", "-c", "gcc -g -S x.c"]).starts_with("miss"), "{at}");
    }
}

/// A program, a library and an object contain the path of the directory because they use it.
#[test]
fn programs_that_use_the_place() {
    probe_skip!(has("make") && has("gcc"), "make or gcc is not installed");
    let project = by_make();
    project.change("b.c", "#include \"both.h\"\nconst char *where = WHERE;\nint b(void) { return HOW_MUCH; }\n");
    let makefile = "all: prog lib.so lib.a\nprog: a.o b.o\n\tgcc -g -Wl,-rpath,$(CURDIR)/lib -o $@ a.o b.o\n\
                    lib.so: b.o\n\tgcc -shared -o $@ b.o\nlib.a: b.o\n\tar crD $@ $^\n\
                    %.o: %.c both.h\n\tgcc -g -O2 -fPIC -DWHERE='\"$(CURDIR)/share\"' -c -o $@ $<\n";
    project.change("Makefile", makefile);
    for (at, expect) in [(10, "miss"), (11, "miss"), (12, "hit"), (0, "miss"), (13, "hit"), (2, "miss"), (14, "hit")] {
        assert_eq!(project.compared(at, &["make"]), expect, "place {at}");
    }
}

/// An archive of objects whose debug information contains the path of the directory.
#[test]
fn archives_are_written_again() {
    probe_skip!(has("make") && has("gcc"), "make or gcc is not installed");
    let project = by_make();
    let makefile =
        "all: lib.a\nlib.a: a.o b.o\n\tar crD $@ $^\n\tranlib -D $@\n%.o: %.c both.h\n\tgcc -g -c -o $@ $<\n";
    project.change("Makefile", makefile);
    for (at, expect) in [(0, "miss"), (1, "miss"), (2, "hit"), (10, "hit")] {
        assert_eq!(project.compared(at, &["make"]), expect, "place {at}");
    }
}

#[test]
fn configure_serves_anywhere_with_the_place_in_what_it_writes() {
    let project = by_configure();
    let outcomes: Vec<String> =
        (0..4).map(|at| project.compared(at, &["./configure", &project.text(at, "installed")])).collect();
    assert_eq!(outcomes, ["miss", "miss", "hit", "hit"]);
}

/// One text contains the path after a letter, as `curl-config` does when it compares the path with
/// its prefix. Another one has a column after the path.
#[test]
fn the_place_in_odd_surroundings() {
    let project = Project::of(&[("in", "x\n")]);
    let script = "cat in > out; echo \"test \\\"X$PWD/lib\\\" != X/usr/lib; see $PWD, or $PWD.\" > config; \
                  printf '%s   1\\n' \"$PWD\" > table";
    let outcomes: Vec<String> = (0..4).map(|at| project.compared(at, &["sh", "-c", script])).collect();
    assert_eq!(outcomes, ["miss", "miss", "hit", "hit"]);
}

#[test]
fn what_two_runs_had_otherwise_is_said() {
    let project = Project::of(&[("in", "in\n")]);
    let list = format!("ls {} >/dev/null; cat in >out", project.place.text("work/outer"));
    let argv = ["sh", "-c", &list];
    for at in 0..2 {
        project.place.put(&format!("outer/{at}"), "");
        project.place.settle();
        assert_eq!(project.compared(at, &argv), "miss");
    }
    let top = project.lay_out(2);
    let explain = [&["explain", "--no-terminal", "--"], &argv[..]].concat();
    let said = project.place.larder(&explain).cwd(top).run().ends(0).stdout;
    let unlike = format!("; unlike record 2: listing {}, names ", project.place.text("work/outer"));
    assert!(said.contains(&unlike), "{said}");
}

/// A script that writes a `config.status`. autoconf cuts values after 148 bytes, also in the middle
/// of a path.
const CUT: &str = r#"awk -v v="cd $PWD && $PWD/src/missing --run and some more words that fill a line of it $PWD/x $PWD/y" 'BEGIN {
    print "cat >all <<\\_E"
    printf "S[\"X\"]="
    for (; length(v) > 148; v = substr(v, 149)) printf "\"%s\"\\\n", substr(v, 1, 148)
    printf "\"%s\"\n", v
    print "_E" }' >config.status; touch -d 2020-02-02 config.status"#;

#[test]
fn what_autoconf_has_cut_is_read() {
    let project = Project::of(&[("in", "in\n")]);
    let argv = ["sh", "-c", "sh config.status; tr -d '\\\\\"\\n' <all >out; rm all; cat in >>out"];
    let outcomes = [0, 3, 4].map(|at| project.compared_after(at, &argv, CUT));
    assert_eq!(outcomes, ["miss", "miss", "hit"]);
    let other = CUT.replace("words", "words\\nS");
    assert_eq!(project.compared_after(5, &argv, &other), "miss");
    // Any other program may count the lines of `config.status`, also one that the script itself
    // starts.
    for command in ["wc -l <config.status >out", "sh config.status; rm all; grep -c S config.status >out"] {
        let outcomes = [6, 7, 8].map(|at| project.compared_after(at, &["sh", "-c", command], CUT));
        assert_eq!(outcomes, ["miss"; 3], "{command}");
    }
}

/// A `configure` compiles, runs and removes a program that asks the kernel for network interfaces.
#[test]
fn a_check_that_asks_for_interfaces() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let source = "#include <ifaddrs.h>\nint main(void) { struct ifaddrs *all; return getifaddrs(&all) != 0; }\n";
    let check = "gcc -o conftest conftest.c && ./conftest; echo $? > answer; rm -f conftest";
    let project = Project::of(&[("conftest.c", source), ("configure", check)]);
    let outcomes: Vec<String> = (0..3).map(|at| project.compared(at, &["sh", "./configure"])).collect();
    assert_eq!(outcomes, ["miss", "miss", "hit"]);
    // The name of the program alone is not enough.
    let outcomes: Vec<String> = (0..3).map(|at| project.compared(at, &["sh", "-c", check])).collect();
    assert!(outcomes.iter().all(|outcome| outcome != "hit"), "{outcomes:?}");
}

#[test]
fn a_second_run_in_one_place_hits_where_nothing_is_left_to_chance() {
    let project = Project::of(&[("in", "x\n")]);
    let outcomes: Vec<String> = (0..2).map(|_| project.compared(0, &["sh", "-c", "mkdir d; cat in > d/out"])).collect();
    assert_eq!(outcomes, ["miss", "hit"]);
}

/// The command makes more files than a process may have open.
#[test]
fn thousands_of_outputs() {
    let project = Project::of(&[("in", "x\n")]);
    let script =
        "ulimit -n 256; i=0; while [ $i -lt 1500 ]; do echo $i > f$i; i=$((i + 1)); done; rm f7; mkdir d; mv f8 d";
    let outcomes: Vec<String> = (0..3).map(|at| project.compared(at, &["sh", "-c", script])).collect();
    assert_eq!(outcomes, ["miss", "miss", "hit"]);
}
