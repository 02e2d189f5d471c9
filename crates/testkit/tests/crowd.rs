//! Sixty-four larders at once on one key while the store is evicted and cleared: each gives what the tool gives, each
//! is counted once, and what is left is sound.
#![cfg(target_os = "linux")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use larder_testkit::{Place, Ran, has, is_full, larder, probe_skip};

const CROWD: usize = 64;
/// Below what one record needs: every eviction takes all that it may.
const LIMITS: [&str; 3] = ["0", "1kB", "20kB"];

/// Object and standard output are blobs, all else stands in the record.
const SCRIPT: &str = "read line < x.c; printf \"%s%05000d\" \"$line\" 1; echo warning >&2; printf %06000d 7 > x.o; \
    echo dep > x.d; exit 3";

/// How long there is a crowd.
fn duration() -> Duration {
    Duration::from_secs(if is_full() { 60 } else { 2 })
}

/// Start a command with nothing on its standard input, as a build tool does.
fn start(place: &Place, directory: &Path, words: &[&str]) -> Child {
    let whole: Vec<&str> = [larder().to_str().expect("is text")].into_iter().chain(words.iter().copied()).collect();
    let mut command = place.run(&whole).cwd(directory).command;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("starts")
}

fn word(place: &Place, words: &[&str]) -> Ran {
    Ran::of(start(place, &place.path("work"), words))
}

/// Directories with the same files: all of them are one key, and each has outputs of its own.
fn directories(place: &Place, tool: Option<&str>) -> Vec<PathBuf> {
    let directory = |number: usize| {
        let name = format!("w{number}");
        if let Some(script) = tool {
            place.tool(&format!("{name}/mycc"), script);
        }
        let path = place.path(&name);
        fs::create_dir_all(&path).expect("can be made");
        fs::write(path.join("x.c"), "int a;\n").expect("writes");
        path
    };
    let all = (0..CROWD).map(directory).collect();
    place.settle();
    all
}

/// Evict and clear until there is nobody any more; how often that was.
fn disturb(place: &Place, done: &AtomicBool) -> usize {
    let mut rounds = 0;
    while !done.load(Relaxed) {
        let words: &[&str] = match rounds % 7 {
            3 => &["clear"],
            5 => &["fsck"],
            round => &["evict", "--max-size", LIMITS[round % LIMITS.len()]],
        };
        let ran = word(place, words);
        // A record whose blob is just being evicted is a finding; trouble is not.
        let ended = ran.code == Some(0) || words[0] == "fsck" && ran.code == Some(1) && ran.stderr.is_empty();
        assert!(ended, "{words:?}: {ran:?}");
        rounds += 1;
        // Now and then long enough for answers.
        std::thread::sleep(Duration::from_millis(rounds as u64 % 5 * 25));
    }
    rounds
}

/// Run `argv` again and again in each of `at`, all at once, while the store is disturbed. `right` says of each run
/// whether it is the plain tool's, and takes its outputs away; `calm` is called when nobody runs.
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
        disturber.join().expect("ends")
    });
    // Evictions that larder itself started may still be at work.
    place.settle();
    assert_eq!(place.counters().total() - before, runs.load(Relaxed) as u64, "each is counted once");
    println!("{} runs, disturbed {disturbed} times: {:?}", runs.load(Relaxed), place.counters());
    // What a record lacks is put right by the next that asks for it.
    for directory in at {
        let ran = Ran::of(start(place, directory, argv));
        assert!(right(directory, &ran), "afterwards, {}: {ran:?}", directory.display());
    }
    let fsck = word(place, &["fsck"]);
    assert_eq!(fsck.code, Some(0), "{fsck:?}");
    let left = fs::read_dir(place.path("store")).expect("is there").flatten();
    let temporary = left.flat_map(|version| fs::read_dir(version.path().join("tmp")).into_iter().flatten()).count();
    assert_eq!(temporary, 0, "temporary files");
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
    // Few enough that all of them are entries of one manifest.
    crowd(&place, &at[..8], &["./mycc", "-c", "x.c", "-o", "x.o"], script_is_right, || {});
}

#[test]
fn a_compiler_and_one_output() {
    probe_skip!(has("gcc"), "gcc is not installed");
    let place = Place::new();
    let work = directories(&place, None).remove(0);
    let plain = place.run(&["gcc", "-c", "x.c", "-o", "x.o"]).cwd(&work).run();
    let object = fs::read(work.join("x.o")).expect("is there");
    // All write one file, as often as not over each other: only when they are done is it whole.
    let at: Vec<PathBuf> = std::iter::repeat_n(work.clone(), CROWD).collect();
    let whole = || assert!(fs::read(work.join("x.o")).expect("is there") == object);
    crowd(&place, &at, &["gcc", "-c", "x.c", "-o", "x.o"], |_, ran| *ran == plain, whole);
}
