//! mtimes that a command itself sets on its outputs. A hit must set the same ones in any place, and
//! if programs compare them, they are part of what must hold.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use larder_testkit::{Place, has, probe_skip};

use crate::project::Project;

/// Returns the mtime of each file below a directory, except for files that were written in the last
/// ten minutes.
fn set_times(top: &str) -> BTreeMap<String, SystemTime> {
    let (mut found, mut directories) = (BTreeMap::new(), vec![Path::new(top).to_owned()]);
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory)
            .expect("cannot list the directory")
            .map(|entry| entry.expect("cannot list the directory"))
        {
            let meta = entry.metadata().expect("cannot stat the file");
            let modified = meta.modified().expect("cannot get the mtime");
            if meta.is_dir() {
                directories.push(entry.path());
            } else if modified.elapsed().is_ok_and(|age| age > Duration::from_secs(600)) {
                let name =
                    entry.path().strip_prefix(top).expect("not below this directory").to_string_lossy().into_owned();
                found.insert(name, modified);
            }
        }
    }
    found
}

/// Runs the script without larder and through it. The mtimes that it sets must also be equal.
/// Returns the outcome.
#[track_caller]
fn compared(project: &Project, at: usize, script: &str) -> String {
    let argv = ["sh", "-c", script];
    let top = project.lay_out(at);
    project.plain(at, &argv);
    let plain = set_times(&top);
    assert!(plain.len() > 3, "the script must set some mtimes: {plain:?}");
    let outcome = project.compared(at, &argv);
    assert_eq!(set_times(&top), plain, "{outcome}: left is with larder, right without");
    outcome
}

const COPIES: &str = "mkdir -p out && cp -p a out/a && install -p -m 600 b out/b && cp -a d out/d && touch -r a out/new \
    && touch -d '2019-01-02 03:04:05 UTC' out/old && cat a b > out/both";

#[test]
fn copies_have_the_times_of_what_they_are_copies_of() {
    let project = Project::of(&[("a", "a\n"), ("b", "b\n"), ("d/e", "e\n")]);
    project.age("b", 5000);
    for at in [0, 0, 1, 2] {
        compared(&project, at, COPIES);
    }
    assert_eq!(compared(&project, 3, COPIES), "hit");
    // Only mtimes change. The result does not depend on them, and the copies get the new ones.
    project.age("a", 40_000);
    project.age("b", 70_000);
    assert_eq!(compared(&project, 3, COPIES), "hit");
    project.change("d/e", "another\n");
    assert_eq!(compared(&project, 3, COPIES), "miss");
}

/// Several files have one mtime, as after `tar` or a checkout with a fixed date. An output has the
/// time of the file that the program copied, not of another one, and not of its own old file.
#[test]
fn a_time_is_that_of_the_file_that_was_copied() {
    let scripts = [
        "cat a d/e; cp -p b out",
        "cat a d/e; touch -r b out",
        "cp -p a out1 && install -p b out2",
        "mkdir o && cp -p d/e o/x && cp -p d/f o && cp -p b out",
        "touch -r b t && cat a >> b && touch -r t b && rm t",
        "cat b; touch -d '2019-01-02 03:04:05 UTC' out",
        "cat b; tar xf t.tar",
        "strip -p prog",
        "cat b; objcopy -p prog",
    ];
    let set_up = "t='2019-01-02 03:04:05 UTC'; echo t > out; touch -d \"$t\" a b d/e d/f; cp -p b out3; \
        tar cf t.tar out3; cp -L \"$(command -v ls)\" prog; touch -d \"$t\" out out3 t.tar prog";
    for script in scripts {
        let project = Project::of(&[("a", "a\n"), ("b", "b\n"), ("d/e", "e\n"), ("d/f", "f\n")]);
        let compare = |change: &str| {
            let before = format!("{set_up}; {change}");
            let argv = ["sh", "-c", script];
            let lay_out = || {
                let top = project.lay_out(0);
                assert_eq!(project.plain(0, &["sh", "-c", &before]).code, Some(0));
                top
            };
            let top = lay_out();
            project.plain(0, &argv);
            let plain = set_times(&top);
            lay_out();
            let (ran, outcomes) = project.through_larder(0, &argv);
            assert_eq!(ran.code, Some(0));
            assert_eq!(set_times(&top), plain, "{script}, {change}, {outcomes:?}: left is with larder");
            outcomes.last().cloned()
        };
        let outcomes = [0; 3].map(|_| compare(""));
        assert_eq!(outcomes[2].as_deref(), Some("hit"), "{script}: {outcomes:?}");
        for name in ["a", "b", "d/e", "out", "t.tar", "prog"] {
            compare(&format!("touch -d 2020-02-02 {name}"));
        }
    }
}

/// A copy of what the command has just made is as old as that, so `make` may regard neither as newer.
#[test]
fn a_copy_of_an_output_is_as_old() {
    let project = Project::of(&[("a", "a\n")]);
    let script = "cat a > made; sleep 0.05; cp -p made copy; touch -r copy third; rm copy";
    let mut outcome = String::new();
    for _ in 0..3 {
        outcome = project.compared(0, &["sh", "-c", script]);
        let equal = "! test made -nt third && ! test third -nt made && test made -nt a";
        assert_eq!(project.plain(0, &["sh", "-c", equal]).code, Some(0), "{outcome}");
    }
    assert_eq!(outcome, "hit");
}

/// If a program compares an mtime that the command set, the mtime of the other file counts too.
#[test]
fn a_time_that_was_set_is_compared() {
    const COMPARES: &str = "mkdir -p out && cp -p a out/a && cp -p b out/b && touch -d '2019-01-02 03:04:05 UTC' out/old \
        && if [ out/a -nt b ]; then echo newer; else echo older; fi > out/is";
    let project = Project::of(&[("a", "a\n"), ("b", "b\n")]);
    project.age("b", 5000);
    for at in [0, 0, 1, 2, 3] {
        compared(&project, at, COMPARES);
    }
    project.age("a", 90_000);
    assert_ne!(compared(&project, 2, COMPARES), "hit", "the first file is older now");
    project.age("b", 95_000);
    assert_ne!(compared(&project, 2, COMPARES), "hit", "the first file is newer again, but with other mtimes");
}

/// One command unpacks and builds a tree. The archive says how old the files are.
#[test]
fn what_is_unpacked_is_built() {
    probe_skip!(has("make") && has("tar"), "make or tar is not installed");
    const UNPACKS: &str = "tar xf src.tar && cd src && make && cp out ../out";
    const PACKS: &str = "mkdir src && cp Makefile in gen src && touch -d '2020-01-01 UTC' src/in src/Makefile \
        && touch -d '2020-01-02 UTC' src/gen && tar cf src.tar src && rm -r src && touch -d '2021-01-01 UTC' src.tar";
    let rules = "out: gen\n\tcat gen in > out\ngen: in\n\tcat in in > gen\n";
    let project = Project::of(&[("Makefile", rules), ("in", "i\n"), ("gen", "old\n")]);
    let pristine = project.place.path("work/pristine");
    assert_eq!(project.place.run(&["sh", "-c", PACKS]).cwd(&pristine).run().code, Some(0));
    for at in [0, 0, 1, 2] {
        compared(&project, at, UNPACKS);
    }
    assert_eq!(compared(&project, 2, UNPACKS), "hit");
}

#[test]
fn a_date_that_hangs_on_the_present_is_not_recorded() {
    let project = Project::of(&[("a", "a\n")]);
    for _ in 0..3 {
        let outcome = project.compared(0, &["sh", "-c", "touch -d yesterday out"]);
        assert!(outcome.starts_with("miss"), "{outcome}");
    }
}

/// CMake touches each shared library through a link to it.
#[test]
fn what_a_compiler_made_is_touched() {
    probe_skip!(has("perl"), "perl is not installed");
    let scripts = [
        "gcc -c x.c && touch x.o",
        "gcc -c x.c && ln -s x.o l && perl -e 'utime undef, undef, q(l)'",
        "gcc -c x.c -o t.o && touch t.o && mv t.o x.o",
    ];
    for script in scripts {
        let project = Project::of(&[("x.c", "int x;\n")]);
        let outcomes = [0, 1, 2].map(|at| project.compared(at, &["sh", "-c", script]));
        assert_eq!(outcomes[2], "hit", "{script}: {outcomes:?}");
    }
}

/// The makefiles of CMake read the commands for a library from a file that `ar` inherits open.
#[test]
fn makefiles_of_cmake_do_not_depend_on_when_they_were_made() {
    probe_skip!(has("cmake") && has("make"), "cmake or make is not installed");
    let lists = "cmake_minimum_required(VERSION 3.10)\nproject(p C)\nadd_library(p x.c)\n\
        add_library(q SHARED x.c)\nset_target_properties(q PROPERTIES VERSION 1.2.3 SOVERSION 1)\n";
    let project = Project::of(&[("x.c", "int x;\n"), ("CMakeLists.txt", lists)]);
    let make = ["make", "-s", "-C", "build"];
    // The order of what CMake writes in one tick of the clock differs.
    let configure = "cmake -B build . >/dev/null; rm build/CMakeFiles/*.log; t=$(date +%s); find . -type f -exec touch -d @$((t - 9)) {} +";
    let outcomes = [0, 1, 2].map(|at| project.compared_after(at, &make, configure));
    assert_eq!(outcomes[2], "hit", "{outcomes:?}");
}

/// Without options that show mtimes, it does not matter that `diff` takes the present for that of a
/// pipe. Otherwise the mtimes of files count, and the present is not recorded.
#[test]
fn diff_shows_mtimes_only_if_told_to() {
    probe_skip!(has("diff"), "diff is not installed");
    let outcomes = |script: &str| {
        let project = Project::of(&[("a", "1\n"), ("b", "2\n")]);
        let found = [0, 1, 2].map(|at| project.compared(at, &["sh", "-c", script]));
        project.age("a", 7000);
        (found, project.compared(2, &["sh", "-c", script]))
    };
    let (found, aged) = outcomes("cat a | diff - b > out; true");
    assert_eq!((found, &aged[..]), (["miss", "miss", "hit"].map(String::from), "hit"));
    for options in ["-u", "-U 100", "-p", "-c"] {
        let (found, aged) = outcomes(&format!("diff {options} a b > out; true"));
        assert_eq!((found, &aged[..]), (["miss", "miss", "hit"].map(String::from), "miss"), "{options}");
    }
    for options in ["-u", "-p"] {
        let project = Project::of(&[("a", "1\n"), ("b", "2\n")]);
        let script = format!("cat a | diff {options} - b > out; true");
        for at in [0, 1, 2] {
            project.lay_out(at);
            let outcome = project.through_larder(at, &["sh", "-c", &script]).1.pop().unwrap_or_default();
            assert!(outcome.contains("depends on the time"), "{options}: {outcome}");
        }
    }
}

/// The header has the time to the minute, which two runs can agree on.
#[test]
fn xgettext_without_a_header() {
    probe_skip!(has("xgettext"), "xgettext is not installed");
    let project = Project::of(&[("x.c", "int main(void) { return puts(_(\"made\")); }\n")]);
    let argv = ["xgettext", "--omit-header", "-k_", "-o", "x.pot", "x.c"];
    assert_eq!([0, 1, 2].map(|at| project.compared(at, &argv)), ["miss", "miss", "hit"]);
    for at in [0, 1, 2] {
        project.lay_out(at);
        let outcome =
            project.through_larder(at, &["xgettext", "-k_", "-o", "x.pot", "x.c"]).1.pop().unwrap_or_default();
        assert!(outcome.contains("depends on the time"), "{outcome}");
    }
}

/// Sizes of directories, and the space that a file takes, change without the names or the content.
#[test]
fn what_stat_says_of_space() {
    const NAMES: usize = 400;
    const ZEROS: usize = 1 << 16;
    let place = Place::new();
    place.put("d/a", "1\n");
    let file = place.put("zeros", vec![0; ZEROS]);
    let directory = place.path("work/d");
    let grow = || {
        let names = (0..NAMES).map(|number| directory.join(format!("{number:0>200}")));
        names.clone().for_each(|path| fs::write(path, "").expect("cannot write the file"));
        names.for_each(|path| fs::remove_file(path).expect("cannot remove the file"));
    };
    let pierce = || drop(place.run(&["fallocate", "-d", &file.to_string_lossy()]).run());
    for words in [
        &["stat", "-c", "%s", "d"][..],
        &["find", ".", "-size", "+7k", "-type", "d"],
        &["du", "zeros"],
        &["stat", "-c", "%b", "zeros"],
    ] {
        let path = if words.contains(&"zeros") { &file } else { &directory };
        place.put("zeros", vec![0; ZEROS]);
        place.settle();
        let argv = [&["run", "--"], words].concat();
        let outcomes = [(); 3].map(|()| place.counted(place.larder(&argv)).1);
        assert_eq!(outcomes[2], "hit", "{words:?}: {outcomes:?}");
        let before = fs::metadata(path).expect("cannot stat the file");
        if path == &file {
            pierce()
        } else {
            grow()
        }
        let opened = fs::File::open(path).expect("cannot open the file");
        opened.set_modified(before.modified().expect("cannot get the mtime")).expect("cannot set the mtime");
        let after = fs::metadata(path).expect("cannot stat the file");
        let is_seen = before.size() != after.size() || before.blocks() != after.blocks();
        let plain = place.run(words).run();
        let (ran, outcome) = place.counted(place.larder(&argv));
        assert_eq!((&ran, outcome == "hit"), (&plain, !is_seen), "{words:?}");
    }
}
