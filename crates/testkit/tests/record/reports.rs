//! Reports of real build tools: their spans must lie within the processes that they are about.

use larder_testkit::{Place, has, larder_text, probe_skip};
use serde_json::Value;

/// The most by which a report's clock may differ from the tracer's, in nanoseconds. A busy machine
/// delays the last write of a file.
const CLOCKS_DIFFER_NS: u64 = 500_000_000;

/// Records a command, and returns the explained run, or `None` if processes cannot be traced here.
fn recorded(place: &Place, options: &[&str], command: &[&str]) -> Option<Value> {
    let own = larder_text();
    let words = [&[own, "record", "--name", "x"][..], options, &["--"], command].concat();
    place.run(&words).run().ends(0);
    let words = [own, "record", "show", "x", "--json"];
    let shown: Value = serde_json::from_str(&place.run(&words).run().ends(0).stdout).expect("not JSON");
    if shown["runs"][0]["end"]["not_traced"].is_string() {
        eprintln!("skipped: processes cannot be followed here");
        return None;
    }
    Some(shown)
}

/// Returns the forms of the reports, after checking that none has a problem.
fn forms(shown: &Value) -> Vec<String> {
    let reports = shown["runs"][0]["end"]["reports"].as_array().expect("not a list");
    assert!(reports.iter().all(|report| report["problem"] == ""), "{reports:?}");
    reports.iter().map(|report| report["form"].as_str().expect("no text").to_owned()).collect()
}

/// Returns the spans with this name.
fn spans<'a>(shown: &'a Value, name: &str) -> Vec<&'a Value> {
    let all = shown["explained"]["spans"].as_array().expect("not a list");
    all.iter().filter(|span| span["name"] == name).collect()
}

/// Checks that there is one span of this name, and that it is within a process of this label.
#[track_caller]
fn check_within(shown: &Value, name: &str, label: &str) {
    let found = spans(shown, name);
    assert_eq!(found.len(), 1, "{name}: {}", shown["explained"]["spans"]);
    let ns = |value: &Value| value.as_u64().expect("no number");
    let (start, end) = (ns(&found[0]["start_ns"]), ns(&found[0]["end_ns"]));
    assert!(start <= end);
    let processes = shown["explained"]["processes"].as_array().expect("not a list");
    let mut those = processes.iter().filter(|process| process["name"] == label);
    let is_within = |process: &Value| {
        ns(&process["start_ns"]) <= start + CLOCKS_DIFFER_NS && end <= ns(&process["end_ns"]) + CLOCKS_DIFFER_NS
    };
    assert!(those.any(is_within), "{name}, {start} to {end}, is in no process {label}: {processes:?}");
}

#[test]
fn ninja_writes_a_log() {
    probe_skip!(has("ninja"), "ninja is not installed");
    let place = Place::new();
    let rule = "rule wait\n command = sleep $for && touch $out\n";
    place.put("out/build.ninja", format!("{rule}build a: wait\n for = 0.3\nbuild b: wait a\n for = 0.1\n"));
    place.run(&["ninja", "-C", "out", "a"]).run().ends(0);
    let Some(shown) = recorded(&place, &[], &["ninja", "-C", "out"]) else { return };
    assert_eq!(forms(&shown), ["ninja"]);
    assert!(spans(&shown, "a").is_empty(), "the earlier build is not part of the run");
    check_within(&shown, "b", "ninja");
    check_within(&shown, "b", "sleep");
}

#[test]
fn make_names_its_jobs() {
    probe_skip!(has("make"), "make is not installed");
    let place = Place::new();
    place.put("Makefile", "all: one two\none:\n\tsleep 0.1\ntwo:\n\tsleep 0.2; true\n");
    let Some(shown) = recorded(&place, &["--output", "kept"], &["make", "-j2", "--debug=j"]) else { return };
    assert_eq!(forms(&shown), ["make"]);
    check_within(&shown, "one", "sleep");
    check_within(&shown, "two", "make");
}

#[test]
fn clang_and_cmake_write_traces() {
    probe_skip!(has("clang") && has("cmake"), "clang or cmake is not installed");
    let place = Place::new();
    place.put("x.c", "int main(void) { return 0; }\n");
    place.put("p/CMakeLists.txt", "cmake_minimum_required(VERSION 3.18)\nproject(x NONE)\nmessage(STATUS here)\n");
    let build = "clang -ftime-trace -c x.c -o x.o && \
                 cmake --profiling-format=google-trace --profiling-output=p.json -S p -B b";
    let Some(shown) = recorded(&place, &[], &["sh", "-c", build]) else { return };
    assert_eq!(forms(&shown), ["clang", "trace"]);
    check_within(&shown, "ExecuteCompiler", "clang");
    check_within(&shown, "project", "cmake");
    assert!(spans(&shown, "Total ExecuteCompiler").is_empty());
    assert!(spans(&shown, "project")[0]["detail"].as_str().is_some_and(|line| line.ends_with("CMakeLists.txt:2")));
}

#[test]
fn cargo_writes_a_page() {
    // The toolchain's own programs are used: rustup's proxies need the user's home directory.
    let output = std::process::Command::new("rustc").args(["--print", "sysroot"]).output().ok();
    let toolchain = output.and_then(|output| String::from_utf8(output.stdout).ok()).unwrap_or_default();
    let programs = format!("{}/bin", toolchain.trim());
    probe_skip!(
        std::path::Path::new(&programs).join("cargo").is_file() && has("cc"),
        "cargo or a C compiler is not installed"
    );
    let place = Place::new();
    place.put("Cargo.toml", "[package]\nname = \"timed\"\nversion = \"0.1.0\"\nedition = \"2021\"\n");
    place.put("src/main.rs", "fn main() {}\n");
    let build = format!("PATH={programs}:$PATH exec cargo build --quiet --offline --timings");
    let Some(shown) = recorded(&place, &[], &["sh", "-c", &build]) else { return };
    assert_eq!(forms(&shown), ["cargo"]);
    check_within(&shown, "timed 0.1.0", "cargo");
}

#[test]
fn any_file_is_attached() {
    let place = Place::new();
    place.put("old.json", "[{\"ph\":\"X\",\"ts\":1,\"dur\":2,\"name\":\"before\"}]");
    place.put("notes", "no report\n");
    place.settle();
    let write = "sleep 0.1; printf '[{\"ph\":\"X\",\"ts\":1,\"dur\":50000,\"name\":\"x=%s\"}]' \"$0\" > new.json";
    let options = ["--attach", "new.json", "--attach", "old.json", "--attach", "notes"];
    let Some(shown) = recorded(&place, &options, &["sh", "-c", write, "y"]) else { return };
    assert_eq!(forms(&shown), ["trace", "", ""]);
    check_within(&shown, "x=y", "sleep");
    assert!(spans(&shown, "before").is_empty());
    let attached = place.path("home/.local/state/larder/records/x/runs/1/attached");
    assert_eq!(std::fs::read_to_string(attached.join("notes")).expect("cannot read the file"), "no report\n");
    // A file that is missing is said, and the record is made.
    let words = [larder_text(), "record", "--name", "y", "--attach", "gone", "--pack", "--", "true"];
    place.run(&words).run().ends(0);
    let shown = place.word(&["record", "show", "y"]).run().ends(0).stdout;
    assert!(shown.contains("! gone: ") && shown.contains("attached: 1 file, 0 spans"), "{shown}");
}
