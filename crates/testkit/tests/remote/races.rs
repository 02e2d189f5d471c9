//! A fetch and the tool, at once. The tool is gcc with an assembler that takes its time, and has begun its output by
//! then.

use std::fs;
use std::time::{Duration, Instant};

use larder_testkit::{Ran, Run, Way, has, larder};

use crate::far::{FIRST, Far, SECOND};

/// More than is waited for without history, and less than the compile takes.
const LATE: Way = Way::Late(Duration::from_millis(400));
const COMPILE: [&str; 6] = ["gcc", "-B./tools/", "-c", "x.c", "-o", "x.o"];

/// With a compile that takes so long, recorded and sent by the first; and a second store that knows all of its
/// programs. `says` is what the assembler says, a shell's words.
fn far(seconds: f64, says: &str) -> Option<Far> {
    if !has("gcc") {
        eprintln!("skipped: gcc is not installed");
        return None;
    }
    let far = Far::redis()?;
    let assembler = |seconds: f64| {
        let script = format!("{says}\nprintf partial > x.o\nsleep {seconds}\nexec /usr/bin/as \"$@\"");
        far.place.tool("work/tools/as", &script);
    };
    assembler(0.0);
    for which in 1000..1004 {
        source(&far, which);
        compile(&far, SECOND, |run| run.without("LARDER_REMOTE"));
    }
    assembler(seconds);
    source(&far, 1);
    let logs: Vec<String> = (0..4).map(|_| compile(&far, FIRST, |run| run).0).collect();
    assert!(logs[3].contains(" hit: "), "{logs:?}");
    far.larder(FIRST, &["remote", "flush"]).run().ends(0);
    fs::rename(far.place.path("work/x.o"), far.place.path("right.o")).expect("is there");
    Some(far)
}

fn source(far: &Far, which: u32) {
    let functions = (0..200).map(|n| format!("int f{which}_{n}(int a) {{ return a * {n}; }}\n"));
    far.place.put("x.c", functions.collect::<String>());
}

/// What larder logged, and what it said.
fn compile(far: &Far, store: &str, change: impl Fn(Run) -> Run) -> (String, Ran) {
    far.place.remove(&["x.o"]);
    compile_over(far, store, change)
}

/// The same over what is there.
fn compile_over(far: &Far, store: &str, change: impl Fn(Run) -> Run) -> (String, Ran) {
    let _ = fs::remove_file(far.place.path("log"));
    let ran = change(far.larder(store, &COMPILE)).run().ends(0);
    (fs::read_to_string(far.place.path("log")).expect("is logged"), ran)
}

fn is_right(far: &Far) -> bool {
    far.place.read("x.o") == fs::read(far.place.path("right.o")).expect("is there")
}

/// What is left in the directory of temporary files.
fn temporary(far: &Far) -> Vec<String> {
    let entries = fs::read_dir(far.place.path("tmp")).expect("lists").flatten();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with("cc"))
        .collect()
}

#[test]
fn a_fetch_that_wins_stops_the_tool() {
    let Some(far) = far(6.5, ":") else { return };
    far.proxy().set(LATE);
    let began = Instant::now();
    let (log, _) = compile(&far, SECOND, |run| run);
    assert!(log.contains("before the tool had ended"), "{log} {} {}", far.daemon_log(SECOND), far.stats(SECOND));
    assert!(began.elapsed() < Duration::from_secs(6));
    assert!(is_right(&far));
    assert_eq!(temporary(&far), [""; 0]);
    let stats = far.stats(SECOND);
    assert_eq!((&stats["remote"]["races"], &stats["remote"]["races_won"]), (&1.into(), &1.into()));
    assert_eq!(far.place.run(&["pgrep", "-f", "^sleep 6.5$"]).run().stdout, "", "what the tool had started is gone");
    assert!(far.larder(SECOND, &["fsck"]).run().ends(0).stdout.contains("all sound"));
}

/// What was there before is found by a hit as by the tool.
#[test]
fn outputs_that_were_there() {
    let Some(far) = far(6.0, ":") else { return };
    far.proxy().set(LATE);
    far.place.put("x.o", "an old object");
    fs::hard_link(far.place.path("work/x.o"), far.place.path("work/other.o")).expect("links");
    let (log, _) = compile_over(&far, SECOND, |run| run);
    assert!(log.contains("before the tool had ended"), "{log}");
    assert!(is_right(&far));
}

#[test]
fn a_tool_that_wins_is_recorded() {
    let Some(far) = far(1.0, ":") else { return };
    far.proxy().set(Way::Stalled);
    let (log, _) = compile(&far, SECOND, |run| run);
    assert!(log.contains("miss: x.c · recorded"), "{log}");
    assert!(is_right(&far));
    let stats = far.stats(SECOND);
    assert_eq!((&stats["remote"]["races"], &stats["remote"]["races_won"]), (&1.into(), &0.into()));
    far.proxy().set(Way::Late(Duration::ZERO));
    assert!(compile(&far, SECOND, |run| run).0.contains(" hit: "));
}

/// Once it has said something, its words would come twice.
#[test]
fn a_tool_that_speaks_is_let_run() {
    let Some(far) = far(4.0, "echo warning >&2") else { return };
    far.proxy().set(LATE);
    let (log, ran) = compile(&far, SECOND, |run| run);
    assert_eq!(ran.stderr, "warning\n", "once");
    assert!(log.contains("miss: x.c · recorded"), "{log}");
    assert!(is_right(&far));
}

/// A signal that comes meanwhile is the tool's.
#[test]
fn an_interrupted_race_ends_by_the_signal() {
    let Some(far) = far(5.0, ":") else { return };
    far.proxy().set(Way::Stalled);
    let words = [&[larder().to_str().expect("is text")], &COMPILE[..]].concat();
    let mut child = far.command(SECOND, &words).start();
    std::thread::sleep(Duration::from_millis(1500));
    far.place.run(&["kill", "-TERM", &child.id().to_string()]).run().ends(0);
    drop(child.stdin.take());
    let ran = Ran::of(child);
    assert_eq!((ran.signal, ran.code), (Some(15), None), "{ran:?}");
    assert_eq!(temporary(&far), [""; 0]);
}
