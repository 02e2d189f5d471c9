//! Every process of a configure-like script and of `make` must be recorded. `strace` gives the true
//! list.

use std::collections::BTreeMap;

use larder_testkit::{Place, has, larder_text, probe_skip};
use serde_json::Value;

/// Does what autotools scripts do: subshells, pipes, programs that are tried in turn, and compiles
/// that must fail.
const CONFIGURE: &str = r##"#!/bin/sh
set -e
for header in stdio.h no-such.h stdlib.h; do
  echo "#include <$header>" > conftest.c
  if (gcc -c conftest.c -o conftest.o) 2>/dev/null; then
    echo "#define HAVE_$(echo "$header" | tr 'a-z.' 'A-Z_' | sed 's/-/_/g') 1"
  fi
done > config.h
size=$(echo 'int main(void) { return sizeof(long); }' > t.c && gcc t.c -o t && { ./t || echo $?; })
echo "#define SIZE $size" >> config.h
nice -n 0 sh -c 'exec cat config.h' > copy.h &
wait
"##;
const MAKEFILE: &str = "all: a b c\n%: %.c\n\tgcc -include config.h -o $@ $<\n";

fn project(place: &Place) {
    place.tool("work/configure", CONFIGURE);
    place.put("Makefile", MAKEFILE);
    for name in ["a", "b", "c"] {
        place.put(&format!("{name}.c"), "int main(void) { return 0; }\n");
    }
}

const COMMAND: [&str; 3] = ["sh", "-c", "./configure && make -j2"];

/// The programs by how often they were executed, and the number of processes.
type Seen = (BTreeMap<String, usize>, usize);

fn by_strace() -> Option<Seen> {
    let place = Place::new();
    project(&place);
    let log = place.text("strace.log");
    let traced =
        ["strace", "-f", "-qq", "-s", "4096", "-e", "trace=execve,execveat,fork,vfork,clone,clone3", "-o", &log];
    let ran = place.run(&[&traced[..], &COMMAND].concat()).run();
    if ran.code != Some(0) {
        eprintln!("skipped: strace does not work here: {}", ran.stderr);
        return None;
    }
    let (mut programs, mut processes) = (BTreeMap::new(), 1);
    // The program that each process began to execute. Lines of other processes may come in between.
    let mut begun: BTreeMap<String, String> = BTreeMap::new();
    for line in std::fs::read_to_string(&log).expect("cannot read the trace").lines() {
        let Some((pid, call)) = line.split_once(' ') else { continue };
        if call.contains("exec") {
            if let Some(path) = call.split('"').nth(1) {
                begun.insert(pid.to_owned(), path.rsplit('/').next().unwrap_or(path).to_owned());
            }
            if call.ends_with("= 0") {
                *programs.entry(begun.get(pid).cloned().unwrap_or_default()).or_default() += 1;
            }
        } else if call.rsplit("= ").next().is_some_and(|made| made.parse().is_ok_and(|made: i32| made > 0))
            && !call.contains("CLONE_THREAD")
        {
            processes += 1;
        }
    }
    Some((programs, processes))
}

fn by_larder() -> Option<Seen> {
    let place = Place::new();
    project(&place);
    let words = [larder_text(), "record", "--name", "x", "--"];
    place.run(&[&words[..], &COMMAND].concat()).run().ends(0);
    let shown = place.word(&["record", "show", "x", "--json"]).run().ends(0);
    let shown: Value = serde_json::from_str(&shown.stdout).expect("not JSON");
    if let Some(why) = shown["runs"][0]["end"]["not_traced"].as_str() {
        eprintln!("skipped: {why}");
        return None;
    }
    let all = shown["explained"]["processes"].as_array().expect("not a list");
    assert!(all.iter().all(|process| process["exit_code"].is_i64()), "each process has an exit code");
    // Read the events themselves, because one process may have executed several programs.
    let lines = std::fs::read_to_string(place.path("home/.local/state/larder/records/x/runs/1/events.jsonl"))
        .expect("cannot read the file");
    let mut programs = BTreeMap::new();
    for line in lines.lines().filter(|line| line.contains("\"e\":\"exec\"")) {
        let event: Value = serde_json::from_str(line).expect("not JSON");
        let path = event["exe"].as_str().expect("`exe` is not a string").to_owned();
        *programs.entry(path.rsplit('/').next().expect("no file name").to_owned()).or_default() += 1;
    }
    Some((programs, all.len()))
}

#[test]
fn every_process_is_seen() {
    probe_skip!(has("strace") && has("gcc") && has("make"), "strace, gcc or make is not installed");
    let (Some((programs, processes)), Some((seen, count))) = (by_strace(), by_larder()) else { return };
    assert_eq!(count, processes);
    let sum = |programs: &BTreeMap<String, usize>| programs.values().sum::<usize>();
    assert_eq!(sum(&seen), sum(&programs), "larder {seen:?}, strace {programs:?}");
    // larder and strace may give different names if a name is a symbolic link, such as gcc, sh or
    // cc.
    for name in ["cc1", "collect2", "make", "sed", "tr"] {
        assert_eq!(seen.get(name), programs.get(name), "{name}");
    }
}
