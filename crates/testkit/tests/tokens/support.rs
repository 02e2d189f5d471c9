//! Tools that write down when they begin and end, and helpers to run several larders at once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use larder_testkit::{Place, Run, larder_text};

/// Longer than anything in these tests takes, even on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

/// Takes a lock, so that other tests that measure turns or that occupy the processors do not run at
/// the same time.
pub(crate) fn processors() -> MutexGuard<'static, ()> {
    static PROCESSORS: Mutex<()> = Mutex::new(());
    // The mutex is poisoned if a test failed while it held it.
    PROCESSORS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes a compiler that works for this long, and notes in `times` when it begins and ends.
pub(crate) fn timed(place: &Place, name: &str, seconds: &str) {
    let log = place.text("times");
    let script = format!(
        "for out; do :; done; echo \"+ $$ $out\" >> {log}; sleep {seconds}; echo \"- $$ $out\" >> {log}; echo made > \"$out\""
    );
    place.tool(&format!("work/{name}"), &script);
}

/// Writes a compiler that works until `open_gate` is called or its place is removed, and notes when
/// it begins and ends.
pub(crate) fn gated(place: &Place, name: &str) {
    place.put("gate", "");
    let (log, gate) = (place.text("times"), place.text("work/gate"));
    let script = format!(
        "for out; do :; done; echo \"+ $$ $out\" >> {log}; while [ -e {gate} ]; do sleep 0.05; done; \
         echo \"- $$ $out\" >> {log}; echo made > \"$out\""
    );
    place.tool(&format!("work/{name}"), &script);
}

pub(crate) fn open_gate(place: &Place) {
    place.remove(&["gate"]);
}

/// Writes the sources `0.c`, `1.c` … with different contents.
pub(crate) fn sources(place: &Place, count: usize) {
    (0..count).for_each(|number| drop(place.put(&format!("{number}.c"), format!("int a{number};\n"))));
    place.settle();
}

/// Returns the command line that compiles one of them.
pub(crate) fn compile(name: &str, number: usize) -> Vec<String> {
    let words = [format!("./{name}"), "-c".into(), format!("{number}.c"), "-o".into(), format!("{number}.o")];
    words.into()
}

/// Returns larder with these arguments and this number of tokens.
pub(crate) fn wrapped(place: &Place, words: &[String], jobs: &str) -> Run {
    let whole: Vec<&str> = [larder_text()].into_iter().chain(words.iter().map(String::as_str)).collect();
    place.run(&whole).env("LARDER_JOBS", jobs).env("LARDER_LOG", place.path("log"))
}

pub(crate) fn start(run: Run) -> Child {
    let mut command = run.command;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("cannot start the command")
}

/// Returns the notes of the tools: a line `+ PID OUTPUT` for a beginning, and `- PID OUTPUT` for an
/// end.
pub(crate) fn times(place: &Place) -> String {
    fs::read_to_string(place.path("times")).unwrap_or_default()
}

/// Returns the most tools that worked at once, and how many tools began.
pub(crate) fn at_once(place: &Place) -> (usize, usize) {
    let (mut now, mut most, mut all) = (0, 0, 0);
    for line in times(place).lines() {
        if line.starts_with('+') {
            (now, all) = (now + 1, all + 1);
            most = most.max(now);
        } else {
            now -= 1;
        }
    }
    (most, all)
}

/// Waits until this many tools have begun.
#[track_caller]
pub(crate) fn until_begun(place: &Place, count: usize) {
    until(|| times(place).lines().filter(|line| line.starts_with('+')).count() >= count);
}

#[track_caller]
pub(crate) fn until(holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "the condition was not met in time");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until this many tickets of the queue have been given out.
#[track_caller]
pub(crate) fn until_waiting(place: &Place, count: u64) {
    until(|| tickets(place) >= count);
}

/// Returns the number of tickets given out over all lanes of the queue: the sum of words 1152 to
/// 1215 of the file.
fn tickets(place: &Place) -> u64 {
    let bytes = fs::read(place.path("tokens")).unwrap_or_default();
    let (words, _) = bytes.as_chunks();
    words.iter().skip(1152).take(64).map(|word| u64::from_ne_bytes(*word)).sum()
}

pub(crate) fn signal(pid: u32, name: &str) {
    let _ = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).stderr(Stdio::null()).status();
}

/// Asserts that no waiter ran its tool without a token because nothing moved for too long. That is
/// the safety net for cases that the design overlooked.
#[track_caller]
pub(crate) fn nobody_gave_up(place: &Place) {
    assert!(!log(place).contains("in vain"), "{}", log(place));
}

/// Sets the variables by which Cargo finds its own files and the compiler beside it.
pub(crate) fn with_cargo(run: Run) -> Run {
    let own = |name: &str, usual: &str| {
        let named = std::env::var_os(name).map(PathBuf::from);
        named.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(usual))).filter(|path| path.is_dir())
    };
    let rustc = option_env!("CARGO").map(|cargo| Path::new(cargo).with_file_name("rustc"));
    let variables =
        [("CARGO_HOME", own("CARGO_HOME", ".cargo")), ("RUSTUP_HOME", own("RUSTUP_HOME", ".rustup")), ("RUSTC", rustc)];
    let set = variables.into_iter().filter_map(|(name, path)| Some((name, path?)));
    set.fold(run, |run, (name, path)| run.env(name, path))
}

pub(crate) fn log(place: &Place) -> String {
    fs::read_to_string(place.path("log")).unwrap_or_default()
}
