//! Places that are removed before the command runs in the next one, as in CI: the earlier checkout
//! is gone, with the directories above it.

use std::fs;

use larder_testkit::{has, probe_skip};

use super::project::Project;

/// Copies the project to `jobs/NAME/src`, runs a command there with and without larder, compares
/// both, removes `jobs/NAME`, and returns the outcome.
#[track_caller]
fn outcome(project: &Project, name: &str, argv: &[&str]) -> String {
    let job = project.place.path(format!("work/jobs/{name}"));
    let at = format!("jobs/{name}/src");
    let outcome = project.compared_at(&at, argv);
    fs::remove_dir_all(job).expect("cannot remove the directory");
    outcome
}

#[test]
fn what_is_above_the_place_moves_with_it() {
    let scripts = [
        "mkdir -p \"$PWD/z\"",
        "install -d \"$PWD/z\"",
        "cd ..; cd src; cat in > out",
        "test -d \"${PWD%/*}\" && echo yes",
        "test -e \"${PWD%/*}/other\" || echo no",
        "test in -nt .. && echo newer || echo older",
        "test .. -nt in && test -d .. && echo newer",
    ];
    for script in scripts {
        let project = Project::of(&[("in", "1\n")]);
        let argv = ["sh", "-c", script];
        let outcomes: Vec<_> = ["1", "22", "333", "4444"].map(|name| outcome(&project, name, &argv)).into();
        assert_eq!(outcomes[2..], ["hit", "hit"], "{script}: {outcomes:?}");
    }
}

#[test]
fn what_is_above_the_place_counts() {
    let project = Project::of(&[("in", "1\n")]);
    let argv = ["sh", "-c", "cat \"${PWD%/*}/other\" 2>/dev/null || echo none"];
    for (name, expected) in [("1", "miss"), ("22", "miss"), ("333", "hit")] {
        assert_eq!(outcome(&project, name, &argv), expected, "{name}");
    }
    let other = |name: &str, text: &str| project.place.put(&format!("jobs/{name}/other"), text);
    other("5555", "here\n");
    assert_ne!(outcome(&project, "5555", &argv), "hit");
    // Its mtime counts where it was compared. It is older than the file here.
    let argv = ["sh", "-c", "test in -nt .. && echo newer || echo older"];
    for (name, expected) in [("1", "miss"), ("22", "miss"), ("333", "hit")] {
        assert_eq!(outcome(&project, name, &argv), expected, "{name}");
    }
    let made = |argv: &[&str]| project.place.run(argv).run().ends(0);
    made(&["mkdir", "-p", "jobs/4444/src"]);
    made(&["cp", "-a", "pristine/in", "jobs/4444/src/in"]);
    made(&["touch", "-d", "@1000000000", "jobs/4444"]);
    let work = project.place.path("work/jobs/4444/src");
    assert_eq!(project.place.larder(&[&["run", "--"], &argv[..]].concat()).cwd(work).run().ends(0).stdout, "newer\n");
    fs::remove_dir_all(project.place.path("work/jobs/4444")).expect("cannot remove the directory");
    // The directory that the first places shared keeps its path.
    let shared = format!("cat {}/note 2>/dev/null || echo none", project.place.path("work/jobs").display());
    let argv = ["sh", "-c", &shared];
    for name in ["1", "22", "333"] {
        outcome(&project, name, &argv);
    }
    project.place.put("jobs/note", "noted\n");
    assert_ne!(outcome(&project, "4444", &argv), "hit");
}

#[test]
fn looks_of_a_shell_at_directories_above_compare_no_mtimes() {
    probe_skip!(has("bash"), "bash is not installed");
    let script = "cd \"$PWD/d\" && bash -c 'test -f ../in && cat ../in'; [ ../in -nt in ] && echo newer; true";
    let compares = "[ in -nt .. ] && echo newer; cd \"$PWD/d\"";
    for (script, expected) in [(script, "hit"), (compares, "miss")] {
        let project = Project::of(&[("in", "1\n"), ("d/in", "2\n")]);
        let argv = ["bash", "-c", script];
        for name in ["1", "22", "333"] {
            outcome(&project, name, &argv);
        }
        // The directory above is older than all files of the project.
        let above = project.place.path("work/jobs/4444");
        let made = |argv: &[&str]| project.place.run(argv).run().ends(0);
        made(&["mkdir", "-p", "jobs/4444"]);
        made(&["cp", "-a", "pristine", "jobs/4444/src"]);
        made(&["touch", "-d", "@1000000000", "jobs/4444"]);
        let log = project.place.path("log-of-4444");
        let larder = project.place.larder(&[&["run", "--"], &argv[..]].concat());
        let ran = larder.cwd(above.join("src")).env("OLDPWD", &above).env("LARDER_LOG", &log).run();
        assert_eq!(ran.stdout.contains("newer"), script == compares, "{script}");
        let log = fs::read_to_string(&log).expect("cannot read the log");
        let outcome = log.split(' ').nth(2).expect("the log is empty");
        assert!(outcome.starts_with(expected), "{script}: {log}");
    }
}

#[test]
fn an_absolute_path_above_the_place_stays() {
    // The home directory lies above one place and not above the others.
    let project = Project::of(&[("in", "1\n")]);
    let home = project.place.path("work/jobs/22").to_str().expect("not UTF-8").to_owned();
    let script = format!("h={home}; cat $h/.setting 2>/dev/null || echo none");
    let argv = ["sh", "-c", &script];
    for name in ["1", "22", "333"] {
        outcome(&project, name, &argv);
    }
    fs::create_dir_all(&home).expect("cannot create the directory");
    fs::write(format!("{home}/.setting"), "set\n").expect("cannot write the file");
    assert_ne!(outcome(&project, "4444", &argv), "hit");
}

#[test]
fn compilers_do_not_depend_on_the_directory_of_make() {
    probe_skip!(has("make"), "make is not installed");
    let project = Project::of(&[
        ("src/x.c", "int x;\n"),
        ("src/Makefile", "x.o: x.c\n\t$(LARDER) gcc -c x.c\n"),
        ("y/Makefile", "all:\n\t$(MAKE) -C ../src\n"),
        // As CMake's checks do: the path goes on below the caller's directory.
        ("z/x.c", "int z;\n"),
        ("z/Makefile", "x.o: x.c\n\t$(LARDER) gcc -c $(CURDIR)/x.c\n"),
    ]);
    for argv in [&["make", "-s", "-C", "src"][..], &["make", "-s", "-C", "y"], &["make", "-s", "-C", "z"]] {
        let outcomes: Vec<_> = ["1", "22", "333"]
            .map(|name| {
                let outcome = project.wrapped_at(&format!("jobs/{name}"), argv);
                fs::remove_dir_all(project.place.path(format!("work/jobs/{name}"))).expect("cannot remove it");
                outcome
            })
            .into();
        assert_eq!(outcomes[1..], ["hit", "hit"], "{argv:?}: {outcomes:?}");
    }
}

#[test]
fn search_paths_count_by_what_is_found() {
    let project = Project::of(&[("x.c", "int x;\n"), ("Makefile", "x.o: x.c\n\t$(LARDER) gcc -c x.c\n")]);
    probe_skip!(has("make"), "make is not installed");
    let usual = std::env::var("PATH").expect("PATH is not set");
    let tools = project.place.path("work/tools");
    let with = |name: &str| format!("{}/{name}/bin:{usual}", tools.display());
    let outcome = |path: &str| project.wrapped_with("jobs/1", &["make", "-s"], &[("PATH", path)]);
    assert_eq!(outcome(&with("gone-1")), "miss");
    assert_eq!(outcome(&with("gone-2")), "hit");
    project.place.put("tools/new/bin/cmake", "");
    assert_eq!(outcome(&with("new")), "hit");
    fs::remove_dir_all(&tools).expect("cannot remove the directory");
    assert_eq!(outcome(&with("other")), "hit");
    // An assembler that gcc finds first.
    project.place.tool("work/tools/own/bin/as", "echo own >&2; exec /usr/bin/as \"$@\"");
    assert_ne!(outcome(&with("own")), "hit");
}

/// CMake keeps hashes of commands, which contain paths of the place.
#[test]
fn hashes_of_commands_are_computed_for_the_place() {
    probe_skip!(has("cmake") && has("make") && has("cc"), "cmake, make or cc is not installed");
    let lists = "cmake_minimum_required(VERSION 3.10)\nproject(p C)\n\
        add_custom_command(OUTPUT m.c COMMAND ${CMAKE_COMMAND} -E copy ${CMAKE_SOURCE_DIR}/in.c m.c DEPENDS in.c)\n\
        add_executable(m m.c)\nadd_subdirectory(sub)\n";
    let sub = "add_custom_command(OUTPUT s.c COMMAND cp in.c ${CMAKE_CURRENT_BINARY_DIR}/s.c && true\n\
        COMMAND sh -c \"echo '$x' > t\" WORKING_DIRECTORY ${CMAKE_SOURCE_DIR} VERBATIM COMMENT \"It's made\")\n\
        add_custom_target(every ALL DEPENDS s.c)\n";
    let project = Project::of(&[
        ("CMakeLists.txt", lists),
        ("sub/CMakeLists.txt", sub),
        ("in.c", "int main(void) { return 0; }\n"),
    ]);
    // The logs hold names by chance.
    let configure = "cmake -S . -B b > out && rm b/CMakeFiles/*.log";
    let argv = ["sh", "-c", configure];
    let outcomes: Vec<_> = ["1", "22", "333", "4444", "55555"].map(|name| outcome(&project, name, &argv)).into();
    assert_eq!(outcomes[3..], ["hit", "hit"], "{outcomes:?}");
    // A makefile was changed: nothing is derived from it.
    let stale =
        ["sh", "-c", "cmake -S . -B b > out && rm b/CMakeFiles/*.log && echo '#' >> b/CMakeFiles/m.dir/build.make"];
    let outcomes: Vec<_> = ["1", "22", "333", "4444"].map(|name| outcome(&project, name, &stale)).into();
    assert_eq!(outcomes[3], "hit", "{outcomes:?}");
    let changed = [
        "sh",
        "-c",
        "cmake -S . -B b > out && rm b/CMakeFiles/*.log && sed -i s/true/false/ b/sub/CMakeFiles/every.dir/build.make",
    ];
    let outcomes: Vec<_> = ["1", "22", "333", "4444"].map(|name| outcome(&project, name, &changed)).into();
    assert!(outcomes.iter().all(|outcome| outcome.starts_with("miss")), "{outcomes:?}");
}

/// CMake writes the prerequisites of a target in the order of memory addresses. Here the order
/// depends on the place, so that it is known.
#[test]
fn prerequisites_of_cmake_are_in_any_order() {
    for (file, first, expect) in [
        ("Makefile2", "x: b\\nx: a\\n", "hit"),
        ("Makefile2", "x: b\\n\\nx: a\\n", "miss"),
        ("Makefile2", "x: b\\nx: c\\n", "miss"),
        ("Makefile3", "x: b\\nx: a\\n", "miss"),
    ] {
        let project = Project::of(&[("in", "")]);
        let script = format!(
            "mkdir -p b/CMakeFiles; case $PWD in */1/*) printf '{first}';; *) printf 'x: a\\nx: b\\n';; esac > b/CMakeFiles/{file}"
        );
        let outcomes = ["1", "22", "333"].map(|name| outcome(&project, name, &["sh", "-c", &script]));
        assert_eq!(outcomes[2], expect, "{file} {first}");
    }
}
