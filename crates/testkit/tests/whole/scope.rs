//! Options of `larder run` that say what counts as an input or output.

use std::fs;

use larder_testkit::wholly_on_terminal;

use crate::project::Project;

/// Runs a script in place 0 with these options, and returns its outcome from the log.
fn run(project: &Project, options: &[&str], script: &str) -> String {
    let log = project.place.path("log");
    let _ = fs::remove_file(&log);
    let whole: Vec<&str> = [&["run"], options, &["--", "sh", "-c", script]].concat();
    project.lay_out(0);
    project.place.larder(&whole).cwd(project.text(0, "")).env("LARDER_LOG", &log).run().ends(0);
    let text = fs::read_to_string(&log).expect("cannot read the log");
    text.lines().last().and_then(|line| line.split([' ', ':', ',']).nth(2)).expect("the log has no line").to_owned()
}

#[test]
fn inputs_are_left_out_and_added() {
    let project = Project::of(&[("in", "1\n"), ("stamp", "1\n")]);
    let reads_both = "cat in > out; cat stamp > /dev/null";
    assert_eq!(run(&project, &[], reads_both), "miss");
    project.change("stamp", "2\n");
    assert_eq!(run(&project, &[], reads_both), "miss");
    assert_eq!(run(&project, &["--no-input", "stamp"], reads_both), "miss", "other options make another key");
    project.change("stamp", "3\n");
    assert_eq!(run(&project, &["--no-input", "stamp"], reads_both), "hit");
    project.change("in", "2\n");
    assert_eq!(run(&project, &["--no-input", "stamp"], reads_both), "miss");

    let reads_one = "cat in > out";
    assert_eq!(run(&project, &["--input=stamp"], reads_one), "miss");
    assert_eq!(run(&project, &["--input=stamp"], reads_one), "hit");
    project.change("stamp", "4\n");
    assert_eq!(run(&project, &["--input=stamp"], reads_one), "miss");
}

#[test]
fn outputs_elsewhere_are_allowed() {
    let project = Project::of(&[("in", "1\n")]);
    let out = project.place.path("elsewhere").to_str().expect("not UTF-8").to_owned();
    fs::create_dir_all(&out).expect("cannot create the directory");
    let script = format!("d={}; cat in > $d/out", &out);
    assert_eq!(run(&project, &[], &script), "miss");
    fs::remove_file(format!("{out}/out")).expect("cannot remove the file");
    assert_eq!(run(&project, &["--output", &out], &script), "miss");
    fs::remove_file(format!("{out}/out")).expect("cannot remove the file");
    assert_eq!(run(&project, &["--output", &out], &script), "hit");
    assert_eq!(fs::read(format!("{out}/out")).expect("cannot read the file"), b"1\n");
}

#[test]
fn nobody_types_to_a_whole_command() {
    let project = Project::of(&[("in", "1\n")]);
    let outcome = |options: &[&str], script: &str| {
        let log = project.place.path("log");
        let _ = fs::remove_file(&log);
        project.lay_out(0);
        let whole: Vec<&str> = [&["run"], options, &["--", "sh", "-c", script]].concat();
        let run = project.place.larder(&whole).cwd(project.text(0, "")).env("LARDER_LOG", &log);
        let (code, shown) = wholly_on_terminal(run);
        let text = fs::read_to_string(&log).expect("cannot read the log");
        let word =
            text.lines().last().and_then(|line| line.split([' ', ':', ',']).nth(2)).expect("the log has no line");
        (code, shown, word.to_owned())
    };
    // The command reads the end of file at once instead of waiting for input.
    let script = "cat - in > out; test -t 0 && echo typed; echo done";
    for expected in ["miss", "hit"] {
        let (code, shown, word) = outcome(&["--no-terminal"], script);
        assert_eq!((code, shown.trim_end(), word.as_str()), (Some(0), "done", expected));
        assert_eq!(fs::read(project.text(0, "out")).expect("cannot read the file"), b"1\n");
    }
}

#[test]
fn wrong_options_run_nothing() {
    let project = Project::of(&[("in", "1\n")]);
    for options in [&["run", "--bogus", "--", "true"][..], &["run", "--env"], &["run", "--input=", "true"]] {
        let ran = project.place.larder(options).run().ends(2);
        assert!(ran.stderr.starts_with("larder: run: `--"), "{ran:?}");
    }
}
