//! Starts one action in several processes at once. If possible, it runs once. Each process must
//! give the result of the tool, whatever happens to the one that runs it.
#![cfg(target_os = "linux")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use larder_testkit::{Counters, Place, Ran, has, larder, larder_text, probe_skip};

/// A tool so slow that a second larder finds the first one running, even on a busy machine.
const SLOW: &str = "sleep 3; read line < x.c; echo \"$line\" > x.o; echo said; echo warning >&2; exit ";
const COMPILE: &[&str] = &["./mycc", "-c", "x.c", "-o", "x.o"];

fn place(code: &str) -> Place {
    let place = Place::new();
    place.tool("work/mycc", &format!("{SLOW}{code}"));
    place.put("x.c", "int a;\n");
    place.settle();
    place
}

fn start_at(place: &Place, at: &Path, words: &[&str], variables: &[(&str, &str)]) -> Child {
    let whole = [&[larder_text()], words].concat();
    let mut command = place.run(&whole).cwd(at).env("LARDER_LOG", place.path("log")).command;
    command.envs(variables.iter().copied());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("cannot start the command")
}

fn start(place: &Place, words: &[&str]) -> Child {
    start_at(place, &place.path("work"), words, &[])
}

/// Returns the lock file of single-flight, or a path that does not exist if there is no store yet.
fn turns(place: &Place) -> PathBuf {
    let formats = fs::read_dir(place.path("store")).into_iter().flatten().flatten();
    formats.map(|format| format.path().join("locks/turns")).next().unwrap_or_else(|| place.path("no-store"))
}

/// Waits until the larder that was started runs its tool.
fn until_it_runs(place: &Place) {
    let began = Instant::now();
    while !is_held(&turns(place)) {
        assert!(began.elapsed() < Duration::from_secs(60), "no larder has locked its action within 60 seconds");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Returns true if a process holds a POSIX lock on this file, according to /proc/locks.
fn is_held(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let Ok(meta) = fs::metadata(path) else { return false };
    let locks = fs::read_to_string("/proc/locks").expect("cannot read the file");
    locks.lines().any(|line| line.contains(" POSIX ") && line.contains(&format!(":{} ", meta.ino())))
}

fn log(place: &Place) -> String {
    fs::read_to_string(place.path("log")).unwrap_or_default()
}

/// Asserts that a run gave the output of the script.
#[track_caller]
fn right(at: &Path, ran: Ran, code: i32) {
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str(), ran.code), ("said\n", "warning\n", Some(code)));
    assert_eq!(fs::read(at.join("x.o")).expect("cannot read the file"), b"int a;\n");
}

#[track_caller]
fn counted(place: &Place, expect: &str) {
    assert_eq!(place.counters().since(&Counters::default()), expect, "{}", log(place));
}

fn signal(child: &Child, name: &str) {
    let done = Command::new("kill")
        .args([&format!("-{name}"), &child.id().to_string()])
        .status()
        .expect("cannot start the command");
    assert!(done.success());
}

#[test]
fn two_at_once_run_it_once() {
    for code in [0, 3] {
        let place = place(&code.to_string());
        let work = place.path("work");
        let first = start(&place, COMPILE);
        until_it_runs(&place);
        let second = start(&place, COMPILE);
        // Both write the same file, so it is complete once both have ended.
        for ran in [first, second].map(Ran::of) {
            right(&work, ran, code);
        }
        counted(&place, "hit+miss");
        let text = log(&place);
        assert!(text.lines().any(|line| line.contains(" hit: x.c · after waiting ")), "{text}");
        let stats = place.word(&["stats"]).run().quiet();
        assert!(stats.contains("waited"), "{stats}");
    }
}

/// The output of a compiler in one directory also answers in another one.
#[test]
fn two_places_run_it_once() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let place = Place::new();
    let functions: String =
        (0..800).map(|at| format!("int f{at}(int a) {{ return a * {at} % (a + {at}); }}\n")).collect();
    let at: Vec<PathBuf> = ["one", "two"].map(|name| place.path("work").join(name)).into();
    for directory in &at {
        let name = directory.file_name().expect("no file name").to_str().expect("not UTF-8");
        place.put(&format!("{name}/.git/HEAD"), "ref: refs/heads/main\n");
        place.put(&format!("{name}/x.c"), &functions);
    }
    let argv = ["gcc", "-O2", "-c", "x.c", "-o", "x.o"];
    // In the first run of a compiler both observers watch it, so that larder learns how it can be
    // observed.
    place.put("first.c", "int a;\n");
    place.settle();
    Ran::of(start(&place, &["gcc", "-O2", "-c", "first.c"])).ends(0);
    let first = start_at(&place, &at[0], &argv, &[]);
    until_it_runs(&place);
    let second = start_at(&place, &at[1], &argv, &[]);
    Ran::of(first).ends(0);
    Ran::of(second).ends(0);
    let text = log(&place);
    assert!(text.lines().any(|line| line.contains(" hit: x.c · after waiting ")), "{text}");
    let objects: Vec<Vec<u8>> = at.iter().map(|at| fs::read(at.join("x.o")).expect("cannot read the file")).collect();
    place.run(&argv).cwd(&at[1]).run().ends(0);
    assert!(objects[0] == objects[1] && objects[1] == fs::read(at[1].join("x.o")).expect("cannot read the file"));
}

#[test]
fn switched_off_both_run() {
    let place = place("0");
    let work = place.path("work");
    let first = start_at(&place, &work, COMPILE, &[("LARDER_WAIT", "0")]);
    std::thread::sleep(Duration::from_millis(300));
    let second = start_at(&place, &work, COMPILE, &[("LARDER_WAIT", "0")]);
    for ran in [first, second].map(Ran::of) {
        right(&work, ran, 0);
    }
    counted(&place, "miss+miss");
    assert!(!turns(&place).exists());
}

#[test]
fn a_holder_that_is_killed_or_stopped_is_not_waited_for() {
    for name in ["KILL", "STOP"] {
        let place = place("0");
        let work = place.path("work");
        let mut first = start(&place, COMPILE);
        until_it_runs(&place);
        let second = start(&place, COMPILE);
        std::thread::sleep(Duration::from_millis(100));
        signal(&first, name);
        right(&work, Ran::of(second), 0);
        counted(&place, "miss");
        if name == "STOP" {
            signal(&first, "CONT");
            assert_eq!(first.wait().expect("cannot wait for the command").code(), Some(0));
            right(&work, Ran { code: Some(0), signal: None, stdout: "said\n".into(), stderr: "warning\n".into() }, 0);
        } else {
            let _ = first.wait();
        }
    }
}

/// A larder waits at most for the time that the tool took before.
#[test]
fn a_slow_holder_is_waited_for_no_longer_than_the_tool_ran_before() {
    let place = Place::new();
    place.tool("work/mycc", "read line < x.c; read seconds < h; sleep $seconds; echo \"$line\" > x.o");
    place.put("x.c", "int a;\n");
    place.put("h", "0\n");
    place.settle();
    Ran::of(start(&place, COMPILE)).ends(0);
    place.put("h", "4\n");
    place.settle();
    let first = start(&place, COMPILE);
    until_it_runs(&place);
    let second = start(&place, COMPILE);
    for ran in [first, second].map(Ran::of) {
        ran.ends(0);
        assert_eq!(place.read("x.o"), b"int a;\n");
    }
    counted(&place, "miss+miss+miss");
}

#[test]
fn other_inputs_are_another_action() {
    let place = Place::new();
    place.tool("bin/mycc", "read line < x.c; read more < h; : > begun; sleep 2; echo \"$line$more\" > x.o");
    let compiler = place.text("bin/mycc");
    let argv = [compiler.as_str(), "-c", "x.c", "-o", "x.o"];
    place.put("x.c", "int a;\n");
    place.put("h", "1\n");
    place.settle();
    Ran::of(start(&place, &argv)).ends(0);
    place.put("h", "2\n");
    place.remove(&["begun"]);
    place.settle();
    let first = start(&place, &argv);
    let began = Instant::now();
    while !place.path("work/begun").exists() {
        assert!(began.elapsed() < Duration::from_secs(60), "the tool has not read its inputs within 60 seconds");
        std::thread::sleep(Duration::from_millis(2));
    }
    place.put("h", "3\n");
    place.settle();
    let second = start(&place, &argv);
    Ran::of(first).ends(0);
    Ran::of(second).ends(0);
    let text = log(&place);
    assert!(!text.contains("another process"), "{text}");
    assert_eq!(place.read("x.o"), b"int a;3\n");
}

/// A tool runs the same command through larder once more. The inner larder must not wait for the
/// outer one.
#[test]
fn nobody_waits_for_the_larder_around_it() {
    for observer in ["auto", "kernel"] {
        let place = Place::new();
        let inner =
            format!("[ -e inside ] || {{ : > inside; {} ./mycc -c x.c -o x.o; }}; cat x.c > x.o", larder().display());
        place.tool("work/mycc", &inner);
        place.put("x.c", "int a;\n");
        place.settle();
        let began = Instant::now();
        Ran::of(start_at(&place, &place.path("work"), COMPILE, &[("LARDER_OBSERVER", observer)])).ends(0);
        assert!(began.elapsed() < Duration::from_secs(8), "the inner larder waited for the outer one");
        assert_eq!(place.read("x.o"), b"int a;\n");
    }
}

/// Two commands each run the other one inside. Neither inner larder may wait for the outer larder
/// of the other.
#[test]
fn two_do_not_wait_for_each_others_inner_ones() {
    let place = Place::new();
    for (name, other) in [("a", "b"), ("b", "a")] {
        let inner = format!("{} run --no-env INSIDE -- ./{other}", larder().display());
        // Stops the recursion at the third level.
        place.tool(
            &format!("work/{name}"),
            &format!("[ \"$INSIDE\" ] && exit; sleep 0.5; INSIDE=1; export INSIDE; {inner}; echo {name}"),
        );
    }
    place.settle();
    let began = Instant::now();
    let children = ["a", "b"].map(|name| start(&place, &["run", "--no-env", "INSIDE", "--", &format!("./{name}")]));
    for child in children {
        Ran::of(child).ends(0);
    }
    assert!(began.elapsed() < Duration::from_secs(8), "the inner larders waited for the outer ones");
}

#[test]
fn explain_says_that_it_runs() {
    let place = place("0");
    let first = start(&place, COMPILE);
    until_it_runs(&place);
    let words: Vec<&str> = ["explain"].iter().chain(COMPILE).copied().collect();
    let explained = Ran::of(start(&place, &words));
    assert!(explained.stdout.contains("another process runs it now"), "{explained:?}");
    Ran::of(first).ends(0);
}

#[test]
fn a_waiter_that_is_told_to_end_ends_as_the_tool_would() {
    let place = place("0");
    let first = start(&place, COMPILE);
    until_it_runs(&place);
    let second = start(&place, COMPILE);
    std::thread::sleep(Duration::from_millis(200));
    // A shell lets background commands ignore SIGINT, so the test sends SIGTERM.
    signal(&second, "TERM");
    assert_eq!(Ran::of(second).signal, Some(15));
    right(&place.path("work"), Ran::of(first), 0);
}

#[test]
fn what_stands_where_the_locks_should_be_is_no_trouble() {
    let place = place("0");
    let work = place.path("work");
    // This run creates the store.
    right(&work, Ran::of(start(&place, &["./mycc", "-O1", "-c", "x.c", "-o", "x.o"])), 0);
    fs::remove_file(turns(&place)).expect("cannot remove the file");
    fs::create_dir_all(turns(&place)).expect("cannot create the directory");
    let children = [start(&place, COMPILE), start(&place, COMPILE)];
    // Both write the same file and neither waits, so the file is complete once both have ended.
    for ran in children.map(Ran::of) {
        right(&work, ran, 0);
    }
    counted(&place, "miss+miss+miss");
}
