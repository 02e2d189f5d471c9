//! Records as people make them: two commands in turn, and a script that repeats a build. Also
//! builds that leave a process behind, arguments that are not UTF-8, and machines on which
//! processes cannot be traced.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::Command;

use larder_testkit::{Place, Ran, copy_program, has, larder, larder_text, probe_skip};
use serde_json::Value;

const RECORDS: &str = "home/.local/state/larder/records";

fn word(place: &Place, words: &[&str]) -> Ran {
    place.word(words).run()
}

fn shown(place: &Place, name: &str) -> Value {
    serde_json::from_str(&word(place, &["record", "show", name, "--json"]).ends(0).stdout).expect("not JSON")
}

fn file(place: &Place, name: &str) -> String {
    std::fs::read_to_string(place.path(RECORDS).join(name)).expect("cannot read the file")
}

#[test]
fn two_commands_in_turn() {
    let place = Place::new();
    let other = place.path("other/larder");
    std::fs::create_dir_all(other.parent().expect("no parent directory")).expect("cannot create the directory");
    copy_program(larder(), &other);
    // The second command takes a hundred times as long. Two of the twelve pairs may be disturbed by as
    // much.
    let slow = format!(": {}; sleep 0.5", other.display());
    let words = ["record", "--name", "v", "-n", "12", "--trace", "never", "--ab-commands", "sleep 0.005", &slow];
    word(&place, &words).ends(0);
    let compared = word(&place, &["compare", "v-a", "v-b", "--json"]).ends(0).stdout;
    let compared: Value = serde_json::from_str(&compared).expect("not JSON");
    assert_eq!((&compared["measures"][0]["verdict"], &compared["refused"]), (&"more".into(), &"".into()), "{compared}");
    assert!(compared["unlike"].as_array().is_some_and(|all| all.iter().any(|one| one["part"] == "command")));
    assert_eq!(shown(&place, "v-b")["record"]["command"][2], slow);
    // The record says which larder binaries a command names.
    let named =
        |name: &str| shown(&place, name)["context"]["binaries"].get(other.to_str().expect("not UTF-8")).is_some();
    assert_eq!((named("v-a"), named("v-b")), (false, true));
}

#[test]
fn what_ab_takes() {
    let place = Place::new();
    let check = |words: &[&str], why: &str| {
        let ran = word(&place, &[&["record"], words].concat());
        assert!(ran.code != Some(0) && ran.stderr.contains(why), "{words:?}: {}", ran.stderr);
    };
    check(&["--ab", "make CC=gcc", "make CC=clang", "--", "true"], "--ab-commands takes commands");
    check(&["--ab-commands", "true", "false", "--", "true"], "cannot be used with");
    check(&["--ab-commands", "true"], "2 values");
    check(&["--ab", "a.toml", "b.toml"], "the command is missing");
}

#[test]
fn a_script_does_it_again() {
    probe_skip!(has("git"), "git is not installed");
    let place = Place::new();
    let git = |words: &[&str]| {
        let mut command = Command::new("git");
        command.current_dir(place.path("work")).args(["-c", "user.name=x", "-c", "user.email=x@example.org"]);
        assert!(command.args(words).status().expect("cannot start the command").success(), "{words:?}");
    };
    git(&["init", "-q"]);
    git(&["commit", "-q", "--allow-empty", "-m", "first"]);
    let command = "printf '%s|' \"$CFLAGS\" \"$1\" >> ../said";
    let whole =
        ["record", "--name", "x", "--prepare", "echo >> ../said", "--", "sh", "-c", command, "sh", "a 'b' $c\n"];
    let words = [&[larder_text()], &whole[..]].concat();
    place.run(&words).env("CFLAGS", "-O2 -DX='a b'").run().ends(0);
    let script = place.path(RECORDS).join("x/reproduce.sh");
    // The recorded `PATH` does not contain larder, so the script uses the larder that made the
    // record.
    let again = || place.run(&["/bin/sh", script.to_str().expect("not UTF-8")]).run();
    again().ends(0);
    let said = std::fs::read_to_string(place.path("said")).expect("cannot read the file");
    assert_eq!(said, "\n-O2 -DX='a b'|a 'b' $c\n|".repeat(2));
    let (first, second) = (shown(&place, "x"), shown(&place, "x-2"));
    for part in ["command", "cwd", "prepare", "runs"] {
        assert_eq!(first["record"][part], second["record"][part], "{part}");
    }
    git(&["commit", "-q", "--allow-empty", "-m", "second"]);
    let refused = again().ends(1);
    assert!(refused.stderr.contains("reproduce: check out "), "{}", refused.stderr);
}

#[test]
fn arguments_that_are_no_text_and_many() {
    let place = Place::new();
    let odd = std::ffi::OsStr::from_bytes(b"a\xffb");
    let words = ["record", "--name", "odd", "--", "true"].map(std::ffi::OsStr::new);
    place.run(&[&[larder().as_os_str()], &words[..], &[odd]].concat()).run().ends(0);
    let refused =
        place.run(&["sh", place.path(RECORDS).join("odd/reproduce.sh").to_str().expect("not UTF-8")]).run().ends(1);
    assert!(refused.stderr.contains("not UTF-8"), "{}", refused.stderr);

    let numbers: Vec<String> = (0..20_000).map(|number| number.to_string()).collect();
    let numbers: Vec<&str> = numbers.iter().map(String::as_str).collect();
    word(&place, &[&["record", "--name", "many", "--", "true"], &numbers[..]].concat()).ends(0);
    let many = shown(&place, "many");
    assert_eq!(many["record"]["command"].as_array().map(Vec::len), Some(20_001));
    if many["runs"][0]["end"]["not_traced"].is_null() {
        let argv = &many["explained"]["processes"][0]["argv"];
        assert!(argv.to_string().contains("… more than 65536 bytes"));
    }
    word(&place, &["report", "many", "-o", place.text("tmp/many.html").as_str()]).ends(0);
}

#[test]
fn secrets_are_taken_out() {
    let place = Place::new();
    let run = place.run(&[
        larder_text(),
        "record",
        "--name",
        "s",
        "--",
        "sh",
        "-c",
        "true --password hunter2abc; API_TOKEN=hunter3abc true",
        "--secret-key=hunter4abc",
    ]);
    run.env("CARGO_REGISTRY_TOKEN", "hunter5abc").env("CFLAGS", "-DAPI_KEY=hunter6abc").run().ends(0);
    let mut looked = 0;
    for name in ["record.json", "context.json", "reproduce.sh", "runs/1/events.jsonl", "runs/1/run.json"] {
        let text = file(&place, &format!("s/{name}"));
        assert!(!text.contains("hunter"), "{name}: {text}");
        looked += usize::from(text.contains("not shown"));
    }
    assert!(looked >= 2, "the secrets were replaced in at least two files");
    for form in ["json", "markdown", "chrome"] {
        let exported = word(&place, &["record", "export", "s", "--as", form]).ends(0).stdout;
        assert!(!exported.contains("hunter"), "{form}: {exported}");
    }
}

#[test]
fn what_goes_on_is_let_go() {
    probe_skip!(has("setsid"), "setsid is not installed");
    let place = Place::new();
    let script = "setsid sleep 600 > /dev/null 2>&1 < /dev/null & echo $! > ../pid";
    word(&place, &["record", "--name", "d", "--", "sh", "-c", script]).ends(0);
    let pid = std::fs::read_to_string(place.path("pid")).expect("cannot read the file").trim().to_owned();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))
        .expect("the process that was left behind does not run any more");
    let _ = Command::new("kill").arg(&pid).status();
    assert!(status.contains("TracerPid:\t0"), "{status}");
    assert_eq!(shown(&place, "d")["runs"][0]["end"]["left"], 1);
}

/// This imitates a container that forbids `ptrace`: a process that is traced already cannot be
/// traced again.
#[test]
fn where_nothing_can_be_followed() {
    probe_skip!(has("strace"), "strace is not installed");
    let place = Place::new();
    let words = ["strace", "-f", "-qq", "-e", "trace=none", "-o", "/dev/null", larder_text()];
    let ran = place.run(&[&words[..], &["record", "--name", "n", "--", "sh", "-c", "true; exit 3"]].concat()).run();
    if ran.stderr.contains("strace:") {
        eprintln!("skipped: strace does not work here: {}", ran.stderr);
        return;
    }
    let ran = ran.ends(3);
    assert!(ran.stderr.contains("processes cannot be traced here"), "{}", ran.stderr);
    let page = place.text("tmp/page.html");
    word(&place, &["report", "n", "-o", &page]).ends(0);
    assert!(std::fs::read_to_string(page).expect("cannot read the file").contains("No processes."));
}

#[test]
fn a_recorder_that_is_killed_leaves_what_it_saw() {
    let place = Place::new();
    let words = ["record", "--name", "cut", "--", "sh", "-c", "/bin/echo seen > /dev/null; exec sleep 600"];
    let mut recorder = place.run(&[&[larder_text()], &words[..]].concat()).start();
    let events: PathBuf = place.path(RECORDS).join("cut/runs/1/events.jsonl");
    let began = std::time::Instant::now();
    let lines = || std::fs::read_to_string(&events).unwrap_or_default();
    while !lines().contains("sleep")
        && began.elapsed().as_secs() < 60
        && recorder.try_wait().is_ok_and(|end| end.is_none())
    {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let (seen, last) = (lines(), lines().lines().last().unwrap_or_default().to_owned());
    recorder.kill().expect("cannot kill the process");
    recorder.wait().expect("cannot wait for the command");
    let pid = serde_json::from_str::<Value>(&last).ok().and_then(|event| event["pid"].as_i64());
    if let Some(pid) = pid {
        let _ = Command::new("kill").arg(pid.to_string()).status();
    }
    if seen.is_empty() {
        eprintln!("skipped: processes cannot be followed here");
        return;
    }
    assert!(seen.contains("sleep"), "{seen}");
    let said = word(&place, &["record", "show", "cut"]).ends(0).stdout;
    assert!(said.contains("cut off"), "{said}");
    let page = place.text("tmp/page.html");
    word(&place, &["report", "cut", "-o", &page]).ends(0);
    assert!(std::fs::read_to_string(page).expect("cannot read the file").contains("Cut off."));
    // Files that were cut off in the middle of a line or that are missing are read as far as
    // possible.
    let state = place.path(RECORDS).join("cut/runs/1/run.json");
    std::fs::write(&state, "{\"number\":1,").expect("cannot write the file");
    word(&place, &["report", "cut", "-o", &place.text("tmp/x.html")]).ends(0);
    let shown = word(&place, &["record", "show", "cut", "--json"]).ends(0).stdout;
    let shown: Value = serde_json::from_str(&shown).expect("not JSON");
    assert!(shown["explained"]["damaged_lines"].as_u64() > Some(0), "{shown}");
}
