//! A terminal on standard input: a command that does not read from it is recorded and answered.

use std::fs;
use std::path::Path;

use larder_testkit::{Run, typed_on_terminal, wholly_on_terminal};

use crate::project::Project;

/// Runs a script with all streams on a terminal at which `text` is typed, without larder and then
/// through `larder run`. Returns the outcome, and what the terminal got from larder in addition.
#[track_caller]
fn outcome(project: &Project, script: &str, text: &str, variables: &[(&str, &str)]) -> (String, String) {
    let log = project.place.path("log");
    let _ = fs::remove_file(&log);
    let on_terminal = |run: Run| {
        let run = variables.iter().fold(run.env("LARDER_LOG", &log), |run, (name, value)| run.env(name, value));
        project.lay_out(0);
        typed_on_terminal(run.cwd(project.text(0, "")), text, Path::new(&project.text(0, "begun")))
    };
    let plain = on_terminal(project.place.run(&["sh", "-c", script]));
    let ran = on_terminal(project.place.larder(&["run", "--", "sh", "-c", script]));
    assert_eq!(ran.0, plain.0, "{script}");
    let more = ran.1.strip_prefix(&plain.1).unwrap_or_else(|| panic!("{script}: {ran:?}, without larder {plain:?}"));
    let log = fs::read_to_string(&log).expect("cannot read the log");
    let last = log.lines().last().and_then(|line| line.splitn(3, ' ').nth(2)).expect("the log has no line");
    // Why there was no hit is not the question here.
    (last.split(" · no hit: ").next().unwrap_or_default().to_owned(), more.to_owned())
}

#[test]
fn what_does_not_read_is_answered() {
    let project = Project::of(&[("in", "1\n")]);
    let scripts = ["cat in > out; test -t 0 && echo typed", "stty size; stty -a", "ls --color=auto"];
    for script in scripts {
        for expected in ["miss: sh · recorded", "hit: sh"] {
            assert_eq!(outcome(&project, script, "", &[]), (expected.to_owned(), String::new()), "{script}");
        }
    }
    // What is typed for the shell that comes afterwards is left to it.
    assert_eq!(outcome(&project, ": > begun; sleep 2; cat in", "ls\n", &[]).0, "miss: sh · recorded");
}

#[test]
fn what_reads_is_not_recorded() {
    let project = Project::of(&[("in", "1\n")]);
    // The last letter ends the input (Ctrl-D).
    let cases = [
        (": > begun; sleep 2; read x; echo got $x", "hello\n"),
        (": > begun; sleep 2; read x; echo end $x", "\u{4}"),
        (": > begun; sleep 2; sed -n p; echo end", "\u{4}"),
    ];
    for (script, text) in cases {
        for _ in 0..2 {
            let (word, more) = outcome(&project, script, text, &[]);
            assert_eq!(word, "miss, not recorded: sh · the command read from the terminal, or changed its settings");
            assert_eq!(more, "larder: not cached: sh read from the terminal, or changed its settings\r\n");
        }
    }
    let (word, more) = outcome(&project, "stty -echo", "", &[("LARDER_QUIET", "1")]);
    assert!(word.starts_with("miss, not recorded"), "{word}");
    assert_eq!(more, "");
}

#[test]
fn the_path_of_the_terminal_is_not_recorded() {
    let project = Project::of(&[("in", "1\n")]);
    project.lay_out(0);
    for _ in 0..3 {
        let run = project.place.larder(&["run", "--", "tty"]).cwd(project.text(0, ""));
        let (code, shown) = wholly_on_terminal(run);
        assert_eq!(code, Some(0));
        assert!(shown.contains("larder: not cached: tty: the tool used a device"), "{shown}");
    }
}
