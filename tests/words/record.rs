//! Tests of `record`, `compare` and `report`, and of `stats` and `explain` for the last build.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::place::{Here, Ran};

const PATH: (&str, &str) = ("PATH", "/usr/local/bin:/usr/bin:/bin");

fn larder(here: &Here, words: &[&str]) -> Ran {
    here.larder_with(&[PATH], words)
}

/// Records `script`, run by a shell.
fn record(here: &Here, options: &[&str], script: &str) -> Ran {
    larder(here, &[&["record"], options, &["--", "sh", "-c", script]].concat())
}

/// Returns true if processes can be traced here, else prints why not.
fn is_followed(here: &Here) -> bool {
    let shown = larder(here, &["record", "show", "--json"]).ends(0).json();
    let why = shown["runs"].as_array().and_then(|runs| runs.last()?["end"]["not_traced"].as_str().map(str::to_owned));
    if let Some(why) = &why {
        eprintln!("skipped: {why}");
    }
    why.is_none()
}

fn records(here: &Here) -> std::path::PathBuf {
    here.path("home/.local/state/larder/records")
}

/// Returns the contents of all files in a directory tree as one text.
fn all_bytes(directory: &Path) -> String {
    let mut text = String::new();
    for entry in std::fs::read_dir(directory).expect("is a directory").flatten() {
        let path = entry.path();
        text += &if path.is_dir() {
            all_bytes(&path)
        } else {
            String::from_utf8_lossy(&std::fs::read(&path).expect("reads")).into()
        };
    }
    text
}

#[test]
fn a_build_that_fails_is_recorded_and_its_exit_code_is_ours() {
    let here = Here::new();
    let ran = record(&here, &["--name", "one"], "echo out; echo err >&2; /bin/true; exit 3");
    assert!(ran.code == Some(3) && ran.out == "out\n" && ran.err.starts_with("err\nlarder: one: "), "{ran:?}");
    larder(&here, &["record", "list"]).ends(0).says("one").says("sh -c");
    larder(&here, &["record", "show", "one"]).ends(0).says("sh -c").says("none of its commands ran through larder");
    let shown = larder(&here, &["record", "show", "--json"]).ends(0).json();
    assert_eq!((&shown["runs"][0]["end"]["exit_code"], &shown["record"]["name"]), (&3.into(), &"one".into()));
    if is_followed(&here) {
        let processes = shown["explained"]["processes"].as_array().expect("a list");
        let names: Vec<_> = processes.iter().filter_map(|process| process["name"].as_str()).collect();
        assert!(names.len() == 2 && names[1] == "true", "{names:?}");
        assert_eq!(processes[1]["parent"], 0);
        assert!(processes[0]["usage"]["peak_bytes"].as_u64() > Some(0));
    }
    let again = record(&here, &["--name", "one"], "true").ends(0);
    assert!(again.err.contains("one-2"), "{again:?}");
}

/// Covers four cases: output with a secret, a packed record with an existing name, a session that
/// fails before its first run, and input that only one of two runs could have read.
#[test]
fn what_is_kept_is_private_whole_and_alone() {
    use std::os::unix::fs::PermissionsExt;
    let here = Here::new();
    record(&here, &["-n", "2", "--name", "x"], "echo DB_PASSWORD=hunter2; cat; env 'A;B=1' true").ends(0);
    let top = records(&here).join("x");
    let output = std::fs::read_to_string(top.join("runs/1/output.txt")).expect("reads");
    assert!(output.starts_with("DB_PASSWORD=(not shown"), "{output}");
    assert_eq!(std::fs::metadata(&top).expect("is there").permissions().mode() & 0o077, 0);
    record(&here, &["--pack", "--name", "p"], "true").ends(0);
    record(&here, &["--pack", "--name", "p"], "exit 3").ends(3);
    let first = larder(&here, &["record", "show", "p", "--json"]).ends(0).json();
    let second = larder(&here, &["record", "show", "p-2", "--json"]).ends(0).json();
    assert_eq!(
        (&first["runs"][0]["end"]["exit_code"], &second["runs"][0]["end"]["exit_code"], &second["record"]["name"]),
        (&0.into(), &3.into(), &"p-2".into())
    );
    larder(&here, &["record", "--name", "n", "--prepare", "exit 4", "--", "true"]).ends(1).complains("ended with 4");
    assert!(!records(&here).join("n").exists());
    // A machine that crashed leaves empty files like these.
    std::fs::write(top.join("context.json"), "").expect("writes");
    std::fs::write(top.join("runs/2/run.json"), "").expect("writes");
    larder(&here, &["record", "show", "x"]).ends(0).says("not known: ").says("cut off");
}

#[test]
fn what_is_missing_is_said() {
    let here = Here::new();
    for words in [&["record", "show"][..], &["stats", "--last-build"], &["explain", "--last-build"], &["report"]] {
        larder(&here, words).ends(1).complains("larder record -- COMMAND");
    }
    larder(&here, &["record", "list"]).ends(0).says("no record");
    larder(&here, &["record"]).ends(1).complains("larder record -- make");
    larder(&here, &["record", "--", "no-such-program"]).ends(127).complains("command not found");
    larder(&here, &["record", "--name", "../x", "--", "true"]).ends(1).complains("--name");
    larder(&here, &["record", "show", "nothing"]).ends(1).complains("larder record list");
    larder(&here, &["record", "--sample", "0", "--", "true"]).ends(2).complains("--sample");
}

#[test]
fn secrets_are_not_kept() {
    let here = Here::new();
    let variables = [PATH, ("GITHUB_TOKEN", "hunter2"), ("CFLAGS", "-O2 -DDB_PASSWORD=hunter2"), ("MINE", "hunter2")];
    let script = "/bin/true --password hunter2 -DAPI_TOKEN=hunter2";
    here.larder_with(&variables, &["record", "--name", "x", "--", "sh", "-c", script, "--token", "hunter2"]).ends(0);
    let kept = all_bytes(&records(&here));
    assert!(!kept.contains("hunter2"), "a secret is in the record");
    assert!(kept.contains("CFLAGS") && kept.contains("MINE"), "names are kept");
    assert!(records(&here).join("x/reproduce.sh").is_file());
}

#[test]
fn several_runs_are_timed_and_one_more_followed() {
    let here = Here::new();
    let options = ["-n", "3", "--name", "x", "--prepare", "echo p >> prepared"];
    let ran = record(&here, &options, "echo hidden").ends(0);
    assert!(ran.out.is_empty(), "the output of several runs is kept in the record: {ran:?}");
    let prepared = std::fs::read_to_string(here.path("work/prepared")).expect("was written");
    assert_eq!(prepared.lines().count(), 4);
    let shown = larder(&here, &["record", "show", "--json"]).ends(0).json();
    let traced: Vec<_> = shown["runs"].as_array().expect("a list").iter().map(|run| run["traced"] == true).collect();
    assert_eq!(traced, [false, false, false, is_followed(&here)]);
    let kept = std::fs::read_to_string(records(&here).join("x/runs/2/output.txt")).expect("is there");
    assert_eq!(kept, "hidden\n");
    let failed = record(&here, &["-n", "3", "--name", "y"], "exit 4").ends(4);
    assert!(failed.err.contains("3 runs were left out"), "{failed:?}");
    let prepare = record(&here, &["--prepare", "exit 5"], "true").ends(1);
    assert!(prepare.err.contains("ended with 5"), "{prepare:?}");
}

/// A build can query ignored signals, limits and descriptors, so they must be unchanged.
#[test]
fn the_command_inherits_what_it_would_without_us() {
    let here = Here::new();
    // Signals 32 and 33 belong to the C library: whether they are ignored depends on the library
    // that larderd is linked with.
    let signals = r"sed -nE 's/^(Sig(Ign|Blk)).*(.{7})$/\1 \3/p' /proc/self/status";
    let script = &format!("{signals}; ls /proc/self/fd | wc -l; ulimit -n");
    let mut plain = std::process::Command::new("/bin/sh");
    let plain = plain.args(["-c", script]).env("PATH", PATH.1).stdin(Stdio::null()).output().expect("a shell");
    let plain = String::from_utf8_lossy(&plain.stdout).into_owned();
    for options in [&["--trace", "never"][..], &["--trace", "once"]] {
        assert_eq!(record(&here, options, script).ends(0).out, plain, "{options:?}");
    }
    record(&here, &["-n", "2", "--name", "several"], script).ends(0);
    for run in ["1", "2", "3"] {
        let kept = std::fs::read_to_string(records(&here).join("several/runs").join(run).join("output.txt"));
        assert_eq!(kept.expect("is there"), plain, "run {run}");
    }
}

#[test]
fn two_sides_run_in_turn_and_are_compared() {
    let here = Here::new();
    here.write("work/a.toml", "max_size = \"5 GiB\"\n");
    here.write("work/b.toml", "max_size = \"6 GiB\"\n");
    let script = "test \"$LARDER_CONFIG\" && sleep 0.02";
    record(&here, &["-n", "8", "--trace", "never", "--name", "t", "--ab", "a.toml", "b.toml"], script).ends(0);
    let compared = larder(&here, &["compare", "t-a", "t-b", "--json"]).ends(0).json();
    let wall = &compared["measures"][0];
    assert_eq!((&wall["paired"], &wall["samples"], &compared["refused"]), (&true.into(), &[8, 8].into(), &"".into()));
    let unlike = compared["unlike"].as_array().expect("a list");
    assert!(unlike.iter().any(|one| one["part"] == "configuration" && one["what"] == "max_size"), "{unlike:?}");
    larder(&here, &["compare", "t-a", "t-b"]).ends(0).says("wall time, s").says("5 GiB");
    larder(&here, &["compare", "t-a", "t-b", "--markdown"]).ends(0).says("| wall time s |");
    larder(&here, &["compare", "t-a", "t-b", "--expect", "weather"]).ends(1).complains("machine, tools, project");
    here.write("work/c.toml", "nonsense = 1\n");
    record(&here, &["--ab", "a.toml", "c.toml"], "true").ends(1).complains("nonsense");
}

#[test]
fn another_machine_refuses_the_verdict() {
    let here = Here::new();
    for name in ["x", "y"] {
        record(&here, &["--name", name], "true").ends(0);
    }
    let path = records(&here).join("y/context.json");
    let mut context: Value = serde_json::from_slice(&std::fs::read(&path).expect("reads")).expect("is JSON");
    context["machine"]["processor"] = "another".into();
    std::fs::write(&path, context.to_string()).expect("writes");
    larder(&here, &["compare", "x", "y"]).ends(0).says("--expect machine").says("another");
    let anyway = larder(&here, &["compare", "x", "y", "--anyway"]).ends(0).says("cannot tell");
    assert!(!anyway.out.contains("no verdict"), "{anyway:?}");
}

#[test]
fn every_form() {
    let here = Here::new();
    record(&here, &["--name", "x"], "/bin/true; /bin/true").ends(0);
    larder(&here, &["record", "export", "--as", "markdown"]).ends(0).says("## x");
    let chrome = larder(&here, &["record", "export", "x", "--as", "chrome"]).ends(0).json();
    assert!(chrome["traceEvents"].is_array());
    larder(&here, &["record", "export", "--as", "perfetto", "-o", "x.pftrace"]).ends(0);
    larder(&here, &["record", "export", "--as", "archive"]).ends(1).complains("-o FILE");
    larder(&here, &["record", "export", "--as", "archive", "-o", "x.tar.zst"]).ends(0);
    let listed = std::process::Command::new("tar").args(["--zstd", "-tf"]).arg(here.path("work/x.tar.zst")).output();
    match listed {
        Ok(listed) if listed.status.success() => {
            assert!(String::from_utf8_lossy(&listed.stdout).contains("x/runs/1/run.json"));
        }
        other => eprintln!("skipped: tar does not read zstd here: {other:?}"),
    }
    let packed = larder(&here, &["record", "show", "x.tar.zst", "--json"]).ends(0).json();
    let plain = larder(&here, &["record", "show", "x", "--json"]).ends(0).json();
    assert_eq!(packed, plain);
    larder(&here, &["report", "x.tar.zst", "-o", "page.html", "--against", "x"]).ends(0).says("page.html");
    let page = std::fs::read_to_string(here.path("work/page.html")).expect("is there");
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("Comparison"));
    record(&here, &["--pack", "--name", "z"], "true").ends(0);
    assert!(records(&here).join("z.tar.zst").is_file() && !records(&here).join("z").exists());
    larder(&here, &["stats", "--last-build", "--json"]).ends(0);
    larder(&here, &["stats", "--last-build", "--markdown"]).ends(0).says("## z");
}

#[test]
fn reproduce_does_it_again() {
    let here = Here::new();
    // A program `larder` on PATH, as people have it.
    let script = format!("#!/bin/sh\nexec {} \"$@\"\n", env!("CARGO_BIN_EXE_larderd"));
    larder_testkit::write_program(here.path("bin/larder"), script);
    let path = format!("{}:/usr/bin:/bin", here.path("bin").display());
    let script = "echo \"it's\" \"$CFLAGS\" > made";
    let words = ["record", "--name", "x", "--", "sh", "-c", script];
    here.larder_with(&[("PATH", &path), ("CFLAGS", "-DX='a b'")], &words).ends(0);
    std::fs::remove_file(here.path("work/made")).expect("was made");
    let mut command = std::process::Command::new("/bin/sh");
    let ran =
        command.arg(records(&here).join("x/reproduce.sh")).current_dir("/").env_clear().output().expect("a shell");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    assert_eq!(std::fs::read_to_string(here.path("work/made")).expect("made again"), "it's -DX='a b'\n");
    assert!(records(&here).join("x-2").is_dir(), "it is recorded again");
}

/// Starts a recording, and waits until its command has begun.
fn started(here: &Here) -> std::process::Child {
    let mut command =
        here.command(&["record", "--name", "x", "--", "sh", "-c", "/bin/true; : > began; sleep 100; echo late"]);
    let child = command.env(PATH.0, PATH.1).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts");
    let until = Instant::now() + Duration::from_secs(60);
    while !here.path("work/began").exists() {
        assert!(Instant::now() < until, "the command did not begin in time");
        std::thread::sleep(Duration::from_millis(10));
    }
    child
}

fn signal(name: &str, pid: u32) {
    let status = std::process::Command::new("kill").args([name, &pid.to_string()]).status().expect("kill");
    assert!(status.success());
}

#[test]
fn signals_go_on_to_the_command() {
    let here = Here::new();
    let mut child = started(&here);
    signal("-TERM", child.id());
    assert_eq!(child.wait().expect("ends").code(), Some(128 + 15));
    let shown = larder(&here, &["record", "show", "--json"]).ends(0).json();
    assert_eq!(shown["runs"][0]["end"]["exit_code"], 128 + 15);
}

#[test]
fn what_was_cut_off_is_shown() {
    let here = Here::new();
    let mut child = started(&here);
    std::thread::sleep(Duration::from_millis(600));
    signal("-KILL", child.id());
    let _ = child.wait();
    larder(&here, &["record", "show", "x"]).ends(0).says("cut off");
    larder(&here, &["report", "x", "-o", "page.html"]).ends(0);
    let page = std::fs::read_to_string(here.path("work/page.html")).expect("is there");
    assert!(page.contains("Cut off"));
    larder(&here, &["record", "export", "x", "--as", "markdown"]).ends(0).says("Cut off");
}

#[test]
fn a_daemon_that_goes_on_is_let_go() {
    let here = Here::new();
    let began = Instant::now();
    record(&here, &["--name", "x"], "sleep 200 >/dev/null 2>&1 & echo $! > pid").ends(0);
    assert!(began.elapsed() < Duration::from_secs(100), "the daemon was waited for");
    let pid = std::fs::read_to_string(here.path("work/pid")).expect("was written").trim().to_owned();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("goes on");
    assert!(status.contains("TracerPid:\t0"), "{status}");
    signal("-KILL", pid.parse().expect("a number"));
    let shown = larder(&here, &["record", "show", "--json"]).ends(0).json();
    assert_eq!(shown["runs"][0]["end"]["left"], 1);
}
