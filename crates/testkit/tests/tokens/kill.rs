//! Builds whose processes are killed at random: nothing that is left holds a token, and the next build runs.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use larder_testkit::{Place, Ran, has, larder, probe_skip};

use crate::support::{PATIENCE, signal};

const FILES: usize = 6;

/// How many builds are killed: `LARDER_KILL_RUNS`, else a few.
fn runs() -> usize {
    std::env::var("LARDER_KILL_RUNS").ok().and_then(|text| text.parse().ok()).unwrap_or(24)
}

/// Numbers that look random and are the same in each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit.max(1)
    }
}

fn place() -> Place {
    let place = Place::new();
    let larder = larder().display();
    place.tool("work/mycc", "for out; do :; done; sleep 0.01; echo made > $out");
    // One that starts larder again, with the only token.
    place.tool(
        "work/outer-cc",
        &format!("for out; do :; done; {larder} ./mycc -c inner.c -o $out.inner; echo made > $out"),
    );
    (0..FILES).for_each(|number| drop(place.put(&format!("{number}.c"), format!("int a{number};\n"))));
    place.put("inner.c", "int inner;\n");
    let objects: Vec<String> = (0..FILES).map(|number| format!("{number}.o")).collect();
    let rules = format!(
        "all: {}\n0.o: 0.c\n\t{larder} ./outer-cc -c $< -o $@\n%.o: %.c\n\t{larder} ./mycc -c $< -o $@\n",
        objects.join(" ")
    );
    place.put("Makefile", rules);
    let edges: String = (1..FILES).map(|number| format!("build {number}.o: cc {number}.c\n")).collect();
    let first = "rule outer\n  command = L ./outer-cc -c $in -o $out\nbuild 0.o: outer 0.c\n";
    let ninja =
        format!("rule cc\n  command = L ./mycc -c $in -o $out\n{first}{edges}").replace("L ", &format!("{larder} "));
    place.put("build.ninja", ninja);
    place.settle();
    place
}

fn build(place: &Place, words: &[&str]) -> Child {
    let mut command = place.run(words).env("LARDER_JOBS", "1").env("LARDER_RECACHE", "1").command;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("starts")
}

/// Every process below this one.
fn below(top: u32) -> Vec<u32> {
    let names = fs::read_dir("/proc").expect("reads").flatten().map(|entry| entry.file_name());
    let pids = names.filter_map(|name| name.to_str()?.parse::<u32>().ok());
    let parent = |pid: u32| -> Option<u32> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        text.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
    };
    let parents: BTreeMap<u32, u32> = pids.filter_map(|pid| Some((pid, parent(pid)?))).collect();
    let is_below = |pid: &u32| {
        let mut at = *pid;
        for _ in 0..64 {
            match parents.get(&at) {
                Some(&parent) if parent == top => return true,
                Some(&parent) => at = parent,
                None => return false,
            }
        }
        false
    };
    parents.keys().copied().filter(is_below).collect()
}

fn killed(place: &Place, words: &[&str], dice: &mut Dice) {
    let mut child = build(place, words);
    std::thread::sleep(Duration::from_millis(dice.below(60) as u64));
    for _ in 0..=dice.below(3) {
        let victims = below(child.id());
        if let Some(victim) = victims.get(dice.below(victims.len())) {
            let name = ["KILL", "KILL", "TERM", "INT"][dice.below(4)];
            signal(*victim, name);
        }
        std::thread::sleep(Duration::from_millis(dice.below(8) as u64));
    }
    if dice.below(3) == 0 {
        signal(child.id(), "KILL");
    }
    let began = Instant::now();
    while child.try_wait().expect("can be asked").is_none() {
        assert!(began.elapsed() < PATIENCE, "a build that was killed at hangs: {words:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn nothing_hangs_and_the_next_build_runs() {
    let tools: Vec<&[&str]> = [(has("make"), &["make", "-k", "-j8"][..]), (has("ninja"), &["ninja", "-k0", "-j8"])]
        .into_iter()
        .filter_map(|(there, words)| there.then_some(words))
        .collect();
    probe_skip!(!tools.is_empty(), "neither make nor ninja is installed");
    let place = place();
    let seed = std::env::var("LARDER_KILL_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let mut dice = Dice(seed);
    for run in 0..runs() {
        let words = tools[run % tools.len()];
        for number in 0..FILES {
            place.remove(&[&format!("{number}.o")]);
        }
        killed(&place, words, &mut dice);
        if run % 8 == 7 {
            place.remove(&["0.o", "3.o"]);
            let began = Instant::now();
            Ran::of(build(&place, words)).ends(0);
            assert!(began.elapsed() < PATIENCE, "run {run}: {:?}", began.elapsed());
        }
    }
}
