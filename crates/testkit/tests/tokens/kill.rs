//! Builds whose processes are killed at random. A dead process must not hold a token, no waiter may
//! wait until it gives up, and the next build must run.
//!
//! Settings: `LARDER_KILL_RUNS` is the number of builds, `LARDER_KILL_SEED` chooses the processes
//! and the moments, and `LARDER_KILL_TOOL` selects one build tool.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use larder_testkit::{Place, Ran, Run, has, larder, probe_skip};

use crate::support::{PATIENCE, nobody_gave_up, signal, with_cargo};

const FILES: usize = 6;
const RUNS: usize = 18;
/// After this many disturbed builds, one build runs undisturbed.
const WHOLE_EVERY: usize = 6;

/// Progress is printed after this many builds, for runs of thousands.
const SAID_EVERY: usize = 100;

/// Returns the number in an environment variable, if it is set.
fn number(name: &str) -> Option<usize> {
    std::env::var(name).ok()?.parse().ok()
}

/// Pseudo-random numbers that are the same in each run.
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
    // A compiler that starts larder again while its own larder holds the only token.
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
    place
}

/// Writes a package whose build script compiles C files with the crate `cc`, as many at once as
/// Cargo's job server allows.
fn package(place: &Place) {
    let features = "[build-dependencies]\ncc = { version = \"1\", features = [\"parallel\"] }\n";
    let names = "[package]\nname = \"killed\"\nversion = \"0.1.0\"\nedition = \"2021\"\n";
    place.put("package/Cargo.toml", format!("{names}{features}[profile.dev]\ndebug = 0\n[workspace]\n"));
    place.put("package/src/lib.rs", "");
    let script = format!(
        "fn main() {{ println!(\"cargo:rerun-if-env-changed=ROUND\"); let mut build = cc::Build::new(); \
         for n in 0..{FILES} {{ build.file(format!(\"../{{n}}.c\")); }} build.compile(\"parts\"); }}"
    );
    place.put("package/build.rs", script);
}

/// A build tool, and its command that builds everything.
struct Tool {
    name: &'static str,
    words: Vec<&'static str>,
    /// How long an undisturbed build takes.
    took: Duration,
}

impl Tool {
    fn run(&self, place: &Place, round: usize) -> Run {
        (0..FILES).for_each(|number| place.remove(&[&format!("{number}.o")]));
        let run = place.run(&self.words).env("LARDER_JOBS", "1").env("LARDER_RECACHE", "1");
        let run = run.env("LARDER_LOG", place.path("log"));
        match self.name {
            "cargo" => with_cargo(run)
                .cwd(place.path("work/package"))
                .env("CC", format!("{} gcc", larder().display()))
                .env("ROUND", round.to_string()),
            _ => run,
        }
    }

    fn build(&self, place: &Place, round: usize) -> Child {
        let mut command = self.run(place, round).command;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().expect("cannot start the command")
    }
}

/// Returns the installed build tools, after an undisturbed build with each.
fn tools(place: &Place) -> Vec<Tool> {
    let tool = |name, words: &[&'static str]| Tool { name, words: words.to_vec(), took: Duration::ZERO };
    let mut all = vec![tool("make", &["make", "-k", "-j8"]), tool("ninja", &["ninja", "-k0", "-j8"])];
    all.extend(option_env!("CARGO").map(|cargo| tool("cargo", &[cargo, "build", "--offline", "-q", "-j8"])));
    let only = std::env::var("LARDER_KILL_TOOL").ok();
    all.retain(|tool| only.as_ref().is_none_or(|only| only == tool.name));
    all.retain_mut(|tool| {
        if tool.name != "cargo" && !has(tool.name) {
            eprintln!("skipped: {} is not installed", tool.name);
            return false;
        }
        // The first build may have to make files that later builds find.
        let first = tool.run(place, usize::MAX).run();
        if tool.name == "cargo" && first.stderr.contains("no matching package") {
            eprintln!("skipped: the crate `cc` or its dependencies are not in Cargo's cache; run cargo fetch");
            return false;
        }
        first.ends(0);
        let began = Instant::now();
        tool.run(place, usize::MAX - 1).run().ends(0);
        tool.took = began.elapsed();
        true
    });
    all
}

/// Returns every process below this one, and whether it is a larder.
fn below(top: u32) -> Vec<(u32, bool)> {
    let names = fs::read_dir("/proc").expect("cannot list the directory").flatten().map(|entry| entry.file_name());
    let pids = names.filter_map(|name| name.to_str()?.parse::<u32>().ok());
    let parent = |pid: u32| -> Option<(u32, bool)> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (name, after) = text.rsplit_once(')')?;
        Some((after.split_ascii_whitespace().nth(1)?.parse().ok()?, name.ends_with("(larder")))
    };
    let parents: BTreeMap<u32, (u32, bool)> = pids.filter_map(|pid| Some((pid, parent(pid)?))).collect();
    let is_below = |pid: &u32| {
        let mut at = *pid;
        for _ in 0..64 {
            match parents.get(&at) {
                Some(&(parent, _)) if parent == top => return true,
                Some(&(parent, _)) => at = parent,
                None => return false,
            }
        }
        false
    };
    parents.iter().filter(|(pid, _)| is_below(pid)).map(|(pid, (_, is_larder))| (*pid, *is_larder)).collect()
}

fn killed(place: &Place, tool: &Tool, round: usize, dice: &mut Dice) {
    let mut child = tool.build(place, round);
    std::thread::sleep(Duration::from_millis(dice.below(tool.took.as_millis() as usize) as u64));
    for _ in 0..=dice.below(3) {
        let mut victims = below(child.id());
        if dice.below(2) == 0 && victims.iter().any(|(_, is_larder)| *is_larder) {
            victims.retain(|(_, is_larder)| *is_larder);
        }
        if let Some((victim, _)) = victims.get(dice.below(victims.len())) {
            let name = ["KILL", "KILL", "TERM", "INT"][dice.below(4)];
            signal(*victim, name);
        }
        std::thread::sleep(Duration::from_millis(dice.below(8) as u64));
    }
    if dice.below(3) == 0 {
        signal(child.id(), "KILL");
    }
    let began = Instant::now();
    while child.try_wait().expect("cannot query the process").is_none() {
        assert!(
            began.elapsed() < PATIENCE,
            "run {round}, {}: the build does not end after some of its processes were killed",
            tool.name
        );
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn nothing_hangs_and_the_next_build_runs() {
    let place = place();
    package(&place);
    place.settle();
    let tools = tools(&place);
    probe_skip!(!tools.is_empty(), "no build tool is installed");
    let mut dice = Dice(number("LARDER_KILL_SEED").unwrap_or(1) as u64);
    for round in 0..number("LARDER_KILL_RUNS").unwrap_or(RUNS) {
        let tool = &tools[round % tools.len()];
        killed(&place, tool, round, &mut dice);
        if round % WHOLE_EVERY == WHOLE_EVERY - 1 {
            let began = Instant::now();
            Ran::of(tool.build(&place, round + usize::MAX / 2)).ends(0);
            assert!(began.elapsed() < PATIENCE, "run {round}: {:?}", began.elapsed());
            nobody_gave_up(&place);
        }
        if round % SAID_EVERY == SAID_EVERY - 1 {
            eprintln!("{} builds were disturbed", round + 1);
        }
    }
    nobody_gave_up(&place);
}
