//! Changes that a run of a whole command must notice, and results that must never be answered from
//! the store.

use larder_testkit::{has, probe_skip};

use crate::project::Project;
use crate::{by_configure, by_make};

/// Records the command in two places, so that a third place hits.
fn taught(project: &Project, argv: &[&str]) {
    for at in 0..3 {
        project.compared(at, argv);
    }
    assert_eq!(project.compared(2, argv), "hit", "{argv:?}");
}

#[test]
fn inputs_and_what_comes_before_them() {
    probe_skip!(has("make"), "make is not installed");
    let project = by_make();
    taught(&project, &["make"]);
    project.change("both.h", "#define HOW_MUCH 3\n");
    assert_eq!(project.compared(2, &["make"]), "miss");
    let project = by_make();
    taught(&project, &["make"]);
    // make looks for a makefile of this name before the others.
    project.change("GNUmakefile", "all:\n\techo other > other\n");
    assert!(project.compared(2, &["make"]).starts_with("miss"));
}

/// make rebuilds an existing target if one of its prerequisites is newer.
#[test]
fn which_file_is_newer() {
    probe_skip!(has("make"), "make is not installed");
    let rules = "all: out\nout: generated\n\tcat generated > out\ngenerated: source\n\tcat source source > generated\n";
    let project = Project::of(&[("Makefile", rules), ("source", "s\n"), ("generated", "g\n")]);
    project.age("source", 3000);
    project.age("generated", 2000);
    taught(&project, &["make"]);
    project.age("source", 2900);
    assert_eq!(project.compared(2, &["make"]), "hit", "the order of mtimes is the same");
    project.age("source", 1000);
    assert_eq!(project.compared(2, &["make"]), "miss", "the source is newer now");
}

/// A shell's `-nt` and `find -newer` compare mtimes as make does.
#[test]
fn which_file_is_newer_for_scripts() {
    for script in ["if [ a -nt b ]; then cat a; else cat b; fi > out", "find . -name a -newer b > out"] {
        let project = Project::of(&[("a", "a\n"), ("b", "b\n")]);
        project.age("a", 100);
        project.age("b", 200);
        for at in 0..3 {
            project.compared(at, &["bash", "-c", script]);
        }
        project.age("b", 50);
        assert!(project.compared(2, &["bash", "-c", script]).starts_with("miss"), "{script}");
    }
}

/// An output exists already, and is a hard link or symbolic link to an input.
#[test]
fn an_output_that_is_an_input_by_another_name() {
    for script in ["cp a b", "cat a > b", "cat a >> b"] {
        let project = Project::of(&[("a", "a\n"), ("b", "a\n")]);
        let argv = ["sh", "-c", script];
        (0..3).for_each(|_| drop(project.compared(0, &argv)));
        for change in ["rm b; ln a b", "rm b; ln -s a b"] {
            let outcome = project.compared_after(0, &argv, change);
            assert!(outcome.starts_with("miss"), "{script} after {change}: {outcome}");
        }
        // Another hard link to a file that is never read does not matter.
        assert_eq!(project.compared_after(0, &argv, "ln -f b ../b.too"), "hit", "{script}");
    }
}

/// Two hard links, or a symbolic link to the file, are replaced by separate files with the same
/// mtime.
#[test]
fn which_names_are_one_file() {
    for script in [
        "if [ a -ef b ]; then echo one; fi > out",
        "if test a -ef l; then echo one; fi > out",
        "bash -c '[[ a -ef b ]] && echo one' > out",
    ] {
        let project = Project::of(&[("a", "a\n")]);
        let pristine = project.place.path("work/pristine");
        let change = |line: &str| drop(project.place.run(&["sh", "-c", line]).cwd(&pristine).run().ends(0));
        change("ln a b; ln -s a l");
        let argv = ["sh", "-c", script];
        (0..3).for_each(|_| drop(project.compared(0, &argv)));
        change("rm b l; cp -p a b; cp -p a l");
        project.compared(0, &argv);
    }
}

#[test]
fn tools_on_the_path_and_checks_that_change() {
    let project = by_configure();
    let argv = ["./configure", "/usr/local"];
    taught(&project, &argv);
    project.change("Makefile.in", "prefix = @prefix@\n# other\nall:\n");
    assert_eq!(project.compared(2, &argv), "miss");
}

/// A result that differs in each run must never be answered from the store.
#[test]
fn never_answered() {
    for script in [
        "date > out",
        "date +%Y > out",
        "date > config.log; cp config.log out",
        "date > config.log; mv config.log out",
        "(echo; date; cat in) > out",
        "echo `date` > config.log",
        "echo $$ > out",
        "echo $((10000 + $$ % 5000)) > out",
        "echo $(( $$ % 2 )) > out",
        "case $$ in *[02468]) echo even;; *) echo odd;; esac > out",
        "perl -e 'print $$ & 1' > out",
        "ls ../pp ../ppp > out 2>&1; echo $$ > out",
        "set > out",
        "bash -c 'tmp=/tmp/x$$-$RANDOM-$$; echo $RANDOM' > out",
        "printf '%x' $$ > out",
        "echo x > out.$(($$ + 1))",
        "ln -s x.$$ out",
        "sh -c 'echo $PPID' > out",
        "sleep 0 & echo $! > out; wait",
        "perl -e 'print \"$$\\n\"' > out",
        // A program that the command compiled passes the script text to a shell.
        "echo 'int system(); int main(){system(\"sleep 0 & echo $\" \"! > out\");}' > p.c; cc -w p.c -o p; ./p; rm p p.c",
        "echo 'int system(); int main(){system(\"echo $\" \"$ > out\");}' > p.c; cc -w p.c -o p; ./p; rm p p.c",
        "perl -MData::Dumper -e 'print Dumper({map {($_, 1)} 1..9})' > out",
        "ls -di . > out",
        "ls -di . | tail -c 4 > out",
        "bash -c 'echo $RANDOM' > out",
        "bash -c 'echo $((RANDOM % 2))' > out",
        "bash -c 'echo $SECONDS' > out",
        "bash -c 'printf \"%(%Y)T\\n\" -1' > out",
        "bash -c 'time cat in' 2> out",
        "printf '#!/bin/bash\\n{ time cat in; } 2> out\\n' > x; bash x",
        "bash -c times > out",
        "mktemp -u > out",
        "awk 'BEGIN { srand(); print int(rand() * 2) }' > out",
        "ls -l in > out",
        "stat -c %i in > out",
        "cat /proc/uptime > out",
        "cat /proc/self/stat > out",
        "find in -printf '%T@\\n' > out",
        "stat in > out",
        "stat -c %Z in > out",
        "find . -name in -cmin -5 > out",
    ] {
        let project = Project::of(&[("in", "x\n")]);
        for at in [0, 1, 2, 3, 3] {
            project.lay_out(at);
            // The files have the same mtimes in all places, but they are different files.
            let (_, outcomes) = project.through_larder(at, &["sh", "-c", script]);
            let about_files = script.starts_with("ls -l") || script.starts_with("stat") || script.starts_with("find");
            let again = about_files && at == 3;
            assert!(again || outcomes.iter().all(|outcome| outcome != "hit"), "{script}: {outcomes:?}");
        }
    }
}

/// The script came out of a compressed archive, and no longer exists when larder searches the texts
/// for suspicious words.
#[test]
fn scripts_that_were_unpacked_and_are_gone() {
    probe_skip!(has("tar") && has("gzip") && has("bash"), "tar, gzip or bash is not installed");
    let own = [("p/random", "echo $RANDOM > out\n"), ("p/number", "echo $$ > out\n"), ("p/plain", "cat in > out\n")];
    let project = Project::of(&[&own[..], &[("in", "x\n")]].concat());
    let pack = ["sh", "-c", "tar czf p.tgz p && rm -r p && touch -d '2020-01-01 UTC' p.tgz"];
    project.place.run(&pack).cwd(project.place.path("work/pristine")).run().ends(0);
    let outcomes = |script: &str| {
        let argv = ["sh", "-c", script];
        let run = |_| {
            project.lay_out(0);
            project.through_larder(0, &argv).1.pop()
        };
        (0..3).filter_map(run).collect::<Vec<String>>()
    };
    for name in ["random", "number"] {
        let found = outcomes(&format!("tar xzf p.tgz; bash p/{name}; rm -r p"));
        assert!(found.iter().all(|outcome| outcome != "hit"), "{name}: {found:?}");
    }
    // A script that stays can be searched, and a script that is only copied is never run.
    for script in ["tar xzf p.tgz; sh p/plain", "tar xzf p.tgz; cp p/plain copy; rm -r p"] {
        let found = outcomes(script);
        assert_eq!(found.last().map(String::as_str), Some("hit"), "{script}: {found:?}");
    }
}

/// Bytes of machine code that happen to spell a shell's `$!` must not count as a use of a process
/// ID.
#[test]
fn machine_code_says_nothing_to_shells() {
    let project = Project::of(&[("x.c", "const char s[] = \"$\" \"!\";\n")]);
    let argv = ["sh", "-c", "cc -c x.c -o x.o"];
    let outcomes = [(); 2].map(|()| project.compared(0, &argv));
    assert_eq!(outcomes, ["miss", "hit"]);
}

/// Does what the scripts of autoconf do: compares two paths of one directory, uses names with the
/// shell's process ID, and writes that ID to a log.
#[test]
fn a_configure_is_answered_from_its_second_run_on() {
    let project = Project::of(&[("in", "x\ny\n")]);
    let script = "ac_pwd=`pwd`\nac_ls_di=`ls -di .` &&\nac_pwd_ls_di=`cd \"$ac_pwd\" && ls -di .` || exit 1\n\
        test \"X$ac_ls_di\" = \"X$ac_pwd_ls_di\" || exit 1\n(: & am_sleep_pid=$!; wait)\n\
        test -f conf$$.none || : > conf$$.file; test -f conf$$.file && rm conf$$.file\n\
        echo \"conf$$ configured\" > config.log; sed '$!N;s/\\n/ /' in > out\n";
    let argv = ["sh", "-c", script];
    for outcome in ["miss", "hit"] {
        project.lay_out(0);
        assert_eq!(project.through_larder(0, &argv).1, [outcome]);
    }
    // An input that was changed is still noticed.
    project.change("in", "z\n");
    project.lay_out(0);
    assert_eq!(project.through_larder(0, &argv).1, ["miss"]);
}

/// zlib's configure writes the date to its log.
#[test]
fn a_date_in_a_log_is_the_recorded_ones() {
    let project = Project::of(&[("in", "x\n")]);
    let argv = ["sh", "-c", "cat in > config.log; date >> config.log; cat in in > out"];
    taught(&project, &argv);
    project.change("in", "y\n");
    assert_eq!(project.compared(2, &argv), "miss");
}

const CHANGES: &str =
    "sed s/undef/define/ < conf.h > conf.tmp; mv conf.tmp conf.h; echo more >> log; cat in conf.h > out";

/// Large files that no argument names. One run shows larder that they are changed in place, so the
/// next run reads them beforehand.
#[test]
fn large_files_that_are_changed_in_place() {
    let large = "a line\n".repeat(20_000);
    let project = Project::of(&[("conf.h", "#undef A\n"), ("log", &large), ("in", "x\n")]);
    let argv = ["sh", "-c", CHANGES];
    let first = project.compared(0, &argv);
    assert!(first.contains("changed an existing file"), "{first}");
    for (at, expect) in [(0, "miss"), (1, "miss"), (2, "hit"), (3, "hit")] {
        assert_eq!(project.compared(at, &argv), expect, "place {at}");
    }
    project.change("log", &large.replacen('a', "b", 1));
    assert_eq!(project.compared(3, &argv), "miss");
}

/// Small files are read before the first run.
#[test]
fn files_that_are_changed_in_place() {
    let project = Project::of(&[("conf.h", "#undef A\n"), ("log", "old\n"), ("in", "x\n")]);
    let argv = ["sh", "-c", CHANGES];
    for (at, expect) in [(0, "miss"), (1, "miss"), (2, "hit"), (3, "hit")] {
        assert_eq!(project.compared(at, &argv), expect, "place {at}");
    }
    project.change("log", "older\n");
    assert_eq!(project.compared(3, &argv), "miss");
    project.change("log", "old\n");
    project.change("conf.h", "#undef B\n");
    assert_eq!(project.compared(3, &argv), "miss");
    project.change("conf.h", "#undef A\n");
    assert_eq!(project.compared(3, &argv), "hit");
}

/// A file that is opened for writing, but not written, is no output.
#[test]
fn a_file_that_is_only_locked_is_no_output() {
    probe_skip!(has("flock"), "flock is not installed");
    let project = Project::of(&[("in", "x\n")]);
    let argv = ["sh", "-c", "flock in cat in"];
    let modified =
        || std::fs::metadata(project.text(0, "in")).and_then(|meta| meta.modified()).expect("cannot get the mtime");
    for is_answered in [false, true, true] {
        project.lay_out(0);
        let before = modified();
        let (ran, outcomes) = project.through_larder(0, &argv);
        assert_eq!((ran.stdout.as_str(), modified()), ("x\n", before), "{outcomes:?}");
        assert_eq!(outcomes[0] == "hit", is_answered, "{outcomes:?}");
    }
}

#[test]
fn variables_and_the_umask() {
    let project = Project::of(&[("in", "x\n")]);
    let argv = ["sh", "-c", "echo \"$OWN\" > out; mkdir -m 755 d; echo > e"];
    taught(&project, &argv);
    project.lay_out(2);
    let other = project.place.larder(&["run", "--", "sh", "-c", argv[2]]).cwd(project.text(2, "")).env("OWN", "1");
    other.run().ends(0);
    assert_eq!(project.place.read("trees/ppp/out"), b"1\n");
}

/// CMake finds out all about the system whenever it is asked for one property of it. `include(CTest)`
/// asks for the host name.
#[test]
fn cmake_is_asked_for_the_host_name_or_for_memory() {
    probe_skip!(has("cmake"), "cmake is not installed");
    let outcomes = |query: &str| {
        let script = format!("cmake_host_system_information(RESULT x QUERY {query})\nfile(WRITE out \"${{x}}\")\n");
        let project = Project::of(&[("s.cmake", &script)]);
        let ran = |at| {
            project.lay_out(at);
            let (ran, mut outcomes) = project.through_larder(at, &["cmake", "-P", "s.cmake"]);
            ran.ends(0);
            outcomes.pop().expect("the log is empty")
        };
        [0, 1, 2].map(ran)
    };
    assert_eq!(outcomes("HOSTNAME")[2], "hit");
    for query in ["AVAILABLE_PHYSICAL_MEMORY", "HOSTNAME AVAILABLE_VIRTUAL_MEMORY", "TOTAL_PHYSICAL_MEMORY"] {
        assert!(outcomes(query).iter().all(|outcome| outcome != "hit"), "{query}");
    }
}

/// Two programs that work on one directory are not compared with each other, as if one had changed.
#[test]
fn another_program_is_no_changed_program() {
    let project = Project::of(&[("in", "x\n")]);
    assert_eq!(project.compared(0, &["cat", "in"]), "miss");
    let explained = project.place.larder(&["explain", "--no-terminal", "--", "larder", "run", "--", "wc", "in"]);
    let said = explained.cwd(project.text(0, "")).run().ends(0).stdout;
    assert!(said.starts_with("Miss: nothing is recorded for this source and output\n"), "{said}");
}

/// pyenv does this at each start: bash looks for an object with more commands, by its path.
#[test]
fn an_object_that_a_program_loads_if_it_is_there() {
    let project = Project::of(&[("in", "x\n")]);
    let argv = ["bash", "-c", "enable -f ./more.so more || cat in > out"];
    taught(&project, &argv);
    project.change("more.so", "no object\n");
    assert!(project.compared(2, &argv).starts_with("miss"));
}

/// `cp -a` sets times and owner of a link that it makes, and not of the file that the link leads to.
#[test]
fn links_are_copied_with_all_they_have() {
    let project = Project::of(&[("in", "x\n"), ("a/b", "y\n")]);
    let script = "ln -s ../in a/l; cp -a a copy; ln -s in m; touch -h m; chown -h \"$(id -u)\" m; cp -Pp a/l n";
    let argv = ["sh", "-c", script];
    let outcomes = [0, 1, 2, 3].map(|at| project.compared(at, &argv));
    assert_eq!(outcomes[3], "hit", "{outcomes:?}");
}
