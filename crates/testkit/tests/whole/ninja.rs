//! A whole `ninja` in several directories, and the log and dependency files that it keeps for its
//! next run.

use std::fs;

use larder_testkit::{Ran, Tree, has, probe_skip};

use crate::project::Project;

/// Returns a project whose sources are in this directory, `@` for absolute paths, as CMake writes
/// them. The real `ninja` writes and reads the files that are compared.
fn by_ninja(sources: &str) -> Project {
    by_ninja_with(sources, "")
}

/// Returns such a project with more lines in the build file.
fn by_ninja_with(sources: &str, more: &str) -> Project {
    let rules = "rule cc\n  command = cc -MMD -MF $out.d -c $in -o $out\n  depfile = $out.d\n  deps = gcc\n\
                 rule ar\n  command = ar crD $out $in\n";
    let project = Project::of(&[
        ("rules.ninja", rules),
        ("a.c", "#include \"both.h\"\nint a(void) { return N; }\n"),
        ("b.c", "#include \"both.h\"\nint b(void) { return -N; }\n"),
        ("both.h", "#define N 1\n"),
    ]);
    let units = format!("build a.o: cc {sources}/a.c\\nbuild b.o: cc {sources}/b.c\\nbuild lib.a: ar a.o b.o\\n{more}");
    project.tool("configure", &format!("printf 'include rules.ninja\\n{units}' | sed \"s|@|$PWD|\" > build.ninja; touch -r rules.ninja build.ninja\n"));
    project
}

fn configured(project: &Project, at: usize) {
    project.lay_out(at);
    let ran = project.plain(at, &["./configure"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

/// Returns the dependencies that ninja knows, without times.
fn dependencies(project: &Project, at: usize) -> Vec<String> {
    let ran = project.plain(at, &["ninja", "-t", "deps"]);
    let mut lines: Vec<String> =
        ran.stdout.lines().map(|line| line.split(", deps").next().unwrap_or(line).to_owned()).collect();
    assert!(lines.iter().any(|line| line.starts_with("b.o: #deps 2")), "{ran:?}");
    lines.sort();
    lines
}

fn tree(project: &Project, at: usize) -> Tree {
    let top = project.text(at, "");
    // ninja's own files contain times.
    for name in [".ninja_deps", ".ninja_log"] {
        fs::write(format!("{top}/{name}"), "").expect("cannot empty the file");
    }
    Tree::of(std::path::Path::new(&top))
}

fn made(project: &Project, at: usize, through_larder: bool) -> (Ran, Vec<String>) {
    configured(project, at);
    match through_larder {
        true => project.through_larder(at, &["ninja"]),
        false => (project.plain(at, &["ninja"]), Vec::new()),
    }
}

/// Runs ninja in four places, and returns the outcomes. In each, the next ninja must have nothing to
/// do, and must know the dependencies.
fn in_four_places(project: &Project) -> Vec<String> {
    let mut outcomes = Vec::new();
    for at in 0..4 {
        let (plain, _) = made(project, at, false);
        let plain_dependencies = dependencies(project, at);
        let plain_tree = tree(project, at);
        let (ran, outcome) = made(project, at, true);
        assert_eq!(ran.code, plain.code, "{ran:?}");
        let left = project.plain(at, &["ninja", "-n", "-d", "explain"]);
        assert!(left.stdout.contains("no work to do"), "in place {at}: {outcome:?}: {left:?}");
        assert_eq!(dependencies(project, at), plain_dependencies, "in place {at}: {outcome:?}");
        // ninja must understand the restored dependencies: after a header is changed, it must
        // compile again.
        let header = project.text(at, "both.h");
        let kept = fs::read(project.text(at, ".ninja_deps")).expect("cannot read the file");
        if let Some(difference) = tree(project, at).difference(&plain_tree) {
            panic!("in place {at}: {difference}");
        }
        fs::write(project.text(at, ".ninja_deps"), kept).expect("cannot write the file");
        fs::write(header, "#define N 2\n").expect("cannot write the file");
        let left = project.plain(at, &["ninja", "-n"]);
        assert!(left.stdout.contains("lib.a"), "{left:?}");
        outcomes.extend(outcome);
    }
    outcomes
}

#[test]
fn what_ninja_keeps_serves_other_places() {
    probe_skip!(has("ninja") && has("cc"), "ninja or cc is not installed");
    assert_eq!(in_four_places(&by_ninja(".")), ["miss", "miss", "hit", "hit"]);
    // A command that names the place, as for the generator, and did not run.
    let generator = "rule generate\\n  command = @/configure\\nbuild other.ninja: generate\\ndefault lib.a\\n";
    assert_eq!(in_four_places(&by_ninja_with(".", generator)), ["miss", "miss", "hit", "hit"]);
    // ninja's log has hashes of commands that name the place.
    assert_eq!(in_four_places(&by_ninja("@")), ["miss"; 4]);
}

#[test]
fn ninja_finds_nothing_to_do_after_a_hit() {
    probe_skip!(has("ninja") && has("cc"), "ninja or cc is not installed");
    let project = by_ninja("@");
    for expect in ["miss", "hit", "hit"] {
        let (ran, outcome) = made(&project, 0, true);
        assert_eq!((ran.code, &outcome[..]), (Some(0), &[expect.to_owned()][..]), "{ran:?}");
        let left = project.plain(0, &["ninja", "-n", "-d", "explain"]);
        assert!(left.stdout.contains("no work to do"), "{expect}: {left:?}");
        fs::write(project.text(0, "a.c"), "int a(void) { return 2; }\n").expect("cannot write the file");
        let left = project.plain(0, &["ninja", "-n"]);
        assert!(left.stdout.contains("[2/2]") && left.stdout.contains("lib.a"), "{left:?}");
    }
}
