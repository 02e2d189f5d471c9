//! A fetch and the tool at the same time. The tool is gcc with a slow assembler that has already
//! begun to write its output.

use std::fs;
use std::time::{Duration, Instant};

use larder_testkit::{Ran, Run, Way, has, larder_text};

use crate::far::{FIRST, Far, SECOND};

/// This delay is longer than larder waits for a fetch without history, and shorter than the
/// compile.
const LATE: Way = Way::Late(Duration::from_millis(400));
const COMPILE: [&str; 6] = ["gcc", "-B./tools/", "-c", "x.c", "-o", "x.o"];

/// Returns a place where the first machine recorded and uploaded a compile that takes this long,
/// and the second machine knows all of its programs. `says` is a shell command that the assembler
/// runs first.
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
    fs::rename(far.place.path("work/x.o"), far.place.path("right.o")).expect("cannot rename the file");
    Some(far)
}

fn source(far: &Far, which: u32) {
    let functions = (0..200).map(|n| format!("int f{which}_{n}(int a) {{ return a * {n}; }}\n"));
    far.place.put("x.c", functions.collect::<String>());
}

/// Compiles without an old output. Returns what larder logged, and the result.
fn compile(far: &Far, store: &str, change: impl Fn(Run) -> Run) -> (String, Ran) {
    far.place.remove(&["x.o"]);
    compile_over(far, store, change)
}

/// Compiles over whatever output exists. Returns what larder logged, and the result.
fn compile_over(far: &Far, store: &str, change: impl Fn(Run) -> Run) -> (String, Ran) {
    let _ = fs::remove_file(far.place.path("log"));
    let ran = change(far.larder(store, &COMPILE)).run().ends(0);
    (fs::read_to_string(far.place.path("log")).expect("cannot read the log"), ran)
}

fn is_right(far: &Far) -> bool {
    far.place.read("x.o") == fs::read(far.place.path("right.o")).expect("cannot read the file")
}

/// Returns the compiler's files that are left in the directory for temporary files.
fn temporary(far: &Far) -> Vec<String> {
    let entries = fs::read_dir(far.place.path("tmp")).expect("cannot list the directory").flatten();
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
    // By itself it would end 6.5 seconds after it began. A process that was killed may take a while
    // to end if the machine is busy.
    let slept = || far.place.run(&["pgrep", "-f", "^sleep 6.5$"]).run().stdout;
    while !slept().is_empty() {
        assert!(began.elapsed() < Duration::from_secs(6), "a process that the tool started must be stopped as well");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(far.larder(SECOND, &["fsck"]).run().ends(0).stdout.contains("all sound"));
}

/// A fetch that wins must deal with an output that existed before, and with its hard link, as the
/// tool does.
#[test]
fn outputs_that_were_there() {
    let Some(far) = far(6.0, ":") else { return };
    far.proxy().set(LATE);
    far.place.put("x.o", "an old object");
    fs::hard_link(far.place.path("work/x.o"), far.place.path("work/other.o")).expect("cannot create the hard link");
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

/// If the tool has printed something, stopping it and replaying the record would print that twice.
#[test]
fn a_tool_that_speaks_is_let_run() {
    let Some(far) = far(4.0, "echo warning >&2") else { return };
    far.proxy().set(Way::Stalled);
    let (log, ran) = std::thread::scope(|scope| {
        let compiling = scope.spawn(|| compile(&far, SECOND, |run| run));
        // The assembler has printed its warning when it begins the output.
        far.until("the tool has spoken", || far.place.path("work/x.o").exists());
        far.proxy().set(LATE);
        compiling.join().expect("the compile panicked")
    });
    assert_eq!(ran.stderr, "warning\n", "the warning must be printed exactly once");
    assert!(log.contains("miss: x.c · recorded"), "{log}");
    assert!(is_right(&far));
}

/// A signal that arrives during the race ends the run as it would end the tool.
#[test]
fn an_interrupted_race_ends_by_the_signal() {
    let Some(far) = far(5.0, ":") else { return };
    far.proxy().set(Way::Stalled);
    let words = [&[larder_text()], &COMPILE[..]].concat();
    far.place.remove(&["x.o"]);
    let mut child = far.command(SECOND, &words).start();
    far.until("the tool begins", || far.place.path("work/x.o").exists());
    far.place.run(&["kill", "-TERM", &child.id().to_string()]).run().ends(0);
    drop(child.stdin.take());
    let ran = Ran::of(child);
    assert_eq!((ran.signal, ran.code), (Some(15), None), "{ran:?}");
    assert_eq!(temporary(&far), [""; 0]);
}
