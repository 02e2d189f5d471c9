//! Runs 64 larders at once on one key while the store is evicted and cleared. Each must give the
//! result of the tool and be counted once, and the store must be sound afterwards.
#![cfg(target_os = "linux")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use larder_testkit::{Place, Ran, has, is_full, larder_text, probe_skip};

const CROWD: usize = 64;
/// Limits below the size of one record, so that every eviction removes all it may.
const LIMITS: [&str; 3] = ["0", "1kB", "20kB"];

/// The object and standard output are stored as blobs, and everything else in the record.
const SCRIPT: &str = "read line < x.c; printf \"%s%05000d\" \"$line\" 1; echo warning >&2; printf %06000d 7 > x.o; \
    echo dep > x.d; exit 3";

/// Returns how long the crowd runs.
fn duration() -> Duration {
    Duration::from_secs(if is_full() { 60 } else { 2 })
}

/// Starts larder with an empty standard input, as a build tool does.
fn start(place: &Place, directory: &Path, words: &[&str]) -> Child {
    let whole = [&[larder_text()], words].concat();
    let mut command = place.run(&whole).cwd(directory).command;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("cannot start the command")
}

fn word(place: &Place, words: &[&str]) -> Ran {
    Ran::of(start(place, &place.path("work"), words))
}

/// Creates directories with the same files. All of them have one key, and each has its own outputs.
fn directories(place: &Place, tool: Option<&str>) -> Vec<PathBuf> {
    let directory = |number: usize| {
        let name = format!("w{number}");
        if let Some(script) = tool {
            place.tool(&format!("{name}/mycc"), script);
        }
        let path = place.path(&name);
        fs::create_dir_all(&path).expect("cannot create the directory");
        fs::write(path.join("x.c"), "int a;\n").expect("cannot write the file");
        path
    };
    let all = (0..CROWD).map(directory).collect();
    place.settle();
    all
}

/// Evicts, clears and checks the store until `done` is set. Returns how often.
fn disturb(place: &Place, done: &AtomicBool) -> usize {
    let mut rounds = 0;
    while !done.load(Relaxed) {
        let words: &[&str] = match rounds % 7 {
            3 => &["clear"],
            5 => &["fsck"],
            round => &["evict", "--max-size", LIMITS[round % LIMITS.len()]],
        };
        let ran = word(place, words);
        // fsck may find a record whose blob is being evicted at this moment, but it must not fail
        // otherwise.
        let ended = ran.code == Some(0) || words[0] == "fsck" && ran.code == Some(1) && ran.stderr.is_empty();
        assert!(ended, "{words:?}: {ran:?}");
        rounds += 1;
        // Sometimes pause long enough for hits.
        std::thread::sleep(Duration::from_millis(rounds as u64 % 5 * 25));
    }
    rounds
}

/// Runs `argv` repeatedly in each directory of `at`, all at once, while the store is disturbed.
/// `right` returns whether a run gave the result of the tool, and removes its outputs. `calm` is
/// called when no run is active.
fn crowd(place: &Place, at: &[PathBuf], argv: &[&str], right: impl Fn(&Path, &Ran) -> bool, calm: impl Fn()) {
    let before = place.counters().total();
    let (done, runs) = (AtomicBool::new(false), AtomicUsize::new(0));
    let disturbed = std::thread::scope(|scope| {
        let disturber = scope.spawn(|| disturb(place, &done));
        let until = Instant::now() + duration();
        while Instant::now() < until {
            let children: Vec<Child> = at.iter().map(|directory| start(place, directory, argv)).collect();
            for (child, directory) in children.into_iter().zip(at) {
                let ran = Ran::of(child);
                runs.fetch_add(1, Relaxed);
                if !right(directory, &ran) {
                    done.store(true, Relaxed);
                    panic!("{}: {ran:?}", directory.display());
                }
            }
            calm();
        }
        done.store(true, Relaxed);
        disturber.join().expect("the disturbing thread panicked")
    });
    assert_eq!(place.counters().total() - before, runs.load(Relaxed) as u64, "each run must be counted once");
    println!("{} runs, disturbed {disturbed} times: {:?}", runs.load(Relaxed), place.counters());
    // A record that lost a blob is repaired by the next run that asks for it.
    for directory in at {
        let ran = Ran::of(start(place, directory, argv));
        assert!(right(directory, &ran), "after the crowd, in {}: {ran:?}", directory.display());
    }
    // Evictions that larder itself started may still be running.
    let temporary = || {
        let left = fs::read_dir(place.path("store")).expect("cannot list the directory").flatten();
        left.flat_map(|version| fs::read_dir(version.path().join("tmp")).into_iter().flatten()).count()
    };
    let until = Instant::now() + Duration::from_secs(60);
    let mut fsck = word(place, &["fsck"]);
    while Instant::now() < until && (fsck.code != Some(0) || temporary() > 0) {
        std::thread::sleep(Duration::from_millis(100));
        fsck = word(place, &["fsck"]);
    }
    assert_eq!(fsck.code, Some(0), "{fsck:?}");
    assert_eq!(temporary(), 0, "temporary files are left in the store");
}

fn script_is_right(directory: &Path, ran: &Ran) -> bool {
    let read = |name: &str| fs::read(directory.join(name)).unwrap_or_default();
    let outputs = read("x.o") == format!("{:06000}", 7).as_bytes() && read("x.d") == b"dep\n";
    for name in ["x.o", "x.d"] {
        let _ = fs::remove_file(directory.join(name));
    }
    outputs && (ran.stdout.len(), ran.stderr.as_str(), ran.code) == (5006, "warning\n", Some(3))
}

#[test]
fn one_key_in_many_places() {
    let place = Place::new();
    let at = directories(&place, Some(SCRIPT));
    crowd(&place, &at, &["./mycc", "-c", "x.c", "-o", "x.o"], script_is_right, || {});
}

#[test]
fn one_key_in_few_places() {
    let place = Place::new();
    let at = directories(&place, Some(SCRIPT));
    // These are few enough to be entries of one manifest.
    crowd(&place, &at[..8], &["./mycc", "-c", "x.c", "-o", "x.o"], script_is_right, || {});
}

#[test]
fn a_compiler_and_one_output() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let place = Place::new();
    let work = directories(&place, None).remove(0);
    let plain = place.run(&["gcc", "-c", "x.c", "-o", "x.o"]).cwd(&work).run();
    let object = fs::read(work.join("x.o")).expect("cannot read the file");
    // All runs write the same file, often at the same time. The file is complete only when all of
    // them have ended.
    let at: Vec<PathBuf> = std::iter::repeat_n(work.clone(), CROWD).collect();
    let whole = || assert!(fs::read(work.join("x.o")).expect("cannot read the file") == object);
    crowd(&place, &at, &["gcc", "-c", "x.c", "-o", "x.o"], |_, ran| *ran == plain, whole);
}
