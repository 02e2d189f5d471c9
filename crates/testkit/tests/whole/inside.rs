//! Compilers behind larder inside a command that itself runs behind larder.

use larder_testkit::{has, larder, probe_skip};

use crate::{Project, by_make};

#[test]
fn one_changed_source_compiles_once() {
    probe_skip!(has("make"), "make is not installed");
    let project = by_make();
    let compiler = format!("CC={} gcc", larder().display());
    let argv = ["make", &compiler];
    assert_eq!(project.compared_inside(0, &argv), ["miss"; 4]);
    // The compiles inside hit at once and are reported to the outer run. The whole command can hit
    // after it was seen twice.
    assert_eq!(project.compared_inside(1, &argv), ["hit", "hit", "hit", "miss"]);
    assert_eq!(project.compared_inside(2, &argv), ["hit"]);
    project.change("b.c", "#include \"both.h\"\nint b(void) { return HOW_MUCH + 0; }\n");
    let changed = project.compared_inside(3, &argv);
    assert_eq!(changed, ["hit", "miss", "hit", "miss"], "a.c, b.c, the link of equal objects, make");
    assert_eq!(project.compared_inside(4, &argv), ["hit", "hit", "hit", "miss"]);
    assert_eq!(project.compared_inside(5, &argv), ["hit"]);
    // The whole command also notices a change to a header that only the compiler inside had read.
    project.change("both.h", "#define HOW_MUCH 2\n");
    assert_eq!(project.compared_inside(5, &argv).last().map(String::as_str), Some("miss"));
}

#[test]
fn a_header_that_only_an_inner_hit_looked_for() {
    probe_skip!(has("make"), "make is not installed");
    let project = by_make();
    let compiler = format!("CC={} gcc -Ifirst -Isecond", larder().display());
    project.change("second/more.h", "#define MORE 1\n");
    project.change("first/other.h", "\n");
    project.change("b.c", "#include <more.h>\nint b(void) { return MORE; }\n");
    let argv = ["make", &compiler];
    // The command is recorded once and its compiles hit twice; then the whole command hits.
    for at in 0..3 {
        project.compared(at, &argv);
    }
    project.change("a.c", "int b(void);\nint main(void) { return b() - 1; }\n");
    for at in 0..2 {
        project.compared(at, &argv);
    }
    assert_eq!(project.compared_inside(2, &argv), ["hit"]);
    project.change("first/more.h", "#define MORE 2\n");
    let noticed = project.compared_inside(3, &argv);
    assert_eq!(noticed.last().map(String::as_str), Some("miss"), "{noticed:?}");
}

#[test]
fn what_larder_does_not_cache_is_observed_inside() {
    let project = crate::project::Project::of(&[("in", "1\n"), ("x.c", "int x;\n")]);
    let script = format!("{} cat in > out; {} gcc --version > v", larder().display(), larder().display());
    let argv = ["sh", "-c", &script];
    for at in 0..3 {
        project.compared(at, &argv);
    }
    assert_eq!(project.compared(3, &argv), "hit");
    project.change("in", "2\n");
    assert_eq!(project.compared(4, &argv), "miss");
}

/// If only the kernel watches the outer run, inner runs cannot report to it. So no whole command
/// may hit that had inner hits.
#[test]
fn an_outer_run_that_cannot_be_told() {
    let project = crate::project::Project::of(&[("x.c", "#include \"x.h\"\nint x = X;\n"), ("x.h", "#define X 1\n")]);
    let script = format!("{} gcc -c x.c", larder().display());
    for at in [0, 1, 2, 2] {
        project.lay_out(at);
        let log = project.place.path("log");
        let _ = std::fs::remove_file(&log);
        let run = project.place.larder(&["run", "--", "sh", "-c", &script]).cwd(project.text(at, ""));
        run.env("LARDER_OBSERVER", "kernel").env("LARDER_LOG", &log).run().ends(0);
        let text = std::fs::read_to_string(&log).expect("cannot read the log");
        assert!(!text.lines().last().is_some_and(|line| line.contains("hit: sh")), "{text}");
    }
}

/// A static program makes larder leave the command to the kernel observer, and then the larder
/// inside cannot report. Only the compiles inside are cached. Other commands of the same shell are
/// not affected.
#[test]
fn a_static_program_beside_a_compiler() {
    let project = crate::project::Project::of(&[("x.c", "int x;\n"), ("hello.c", "int main(void) { return 0; }\n")]);
    let hello = project.place.path("work/pristine/hello");
    let source = project.place.path("work/pristine/hello.c");
    let built = std::process::Command::new("gcc").arg("-static").arg("-o").args([&hello, &source]).status();
    probe_skip!(built.is_ok_and(|status| status.success()), "gcc cannot make static programs here");
    let compile = format!("{} gcc -c x.c", larder().display());
    let with_static = format!("./hello; {compile}");
    let outcomes: Vec<_> = (0..4).map(|at| project.compared_inside(at, &["sh", "-c", &with_static])).collect();
    assert_eq!(outcomes[3], ["bypass: the tool cannot be observed here", "hit"], "{outcomes:?}");
    let outcomes: Vec<_> = (4..8).map(|at| project.compared_inside(at, &["sh", "-c", &compile])).collect();
    assert_eq!(outcomes[3], ["hit"], "{outcomes:?}");
}

/// A linker that ran would have asked for the umask. An inner hit must not make larder believe that
/// the outer command set the umask.
#[test]
fn a_link_that_is_answered_inside() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let project = Project::of(&[("x.c", "int x = 1;\n")]);
    let script = format!("{} gcc -shared -fPIC x.c -o x.so; echo x > after", larder().display());
    let argv = ["sh", "-c", &script];
    assert_eq!(project.compared_inside(0, &argv), ["miss", "miss"]);
    assert_eq!(project.compared_inside(1, &argv), ["hit", "miss"]);
    assert_eq!(project.compared_inside(2, &argv), ["hit"]);
}
