//! Build tools with more jobs than there are tokens: with job servers and without, one build and
//! two at once.

use std::process::Child;

use larder_testkit::{Place, Ran, has, larder, probe_skip};

use crate::support::{
    at_once, compile, gated, open_gate, processors, sources, start, timed, times, until_begun, until_waiting,
    with_cargo, wrapped,
};

const FILES: usize = 12;
const HOLDERS: usize = 2;
/// How often the order of two builds is tried, because a busy machine changes it.
const TRIES: usize = 20;

fn place() -> Place {
    let place = Place::new();
    timed(&place, "mycc", "0.05");
    sources(&place, FILES);
    let larder = larder().display();
    let objects: Vec<String> = (0..FILES).map(|number| format!("$(D){number}.o")).collect();
    let rules = format!("all: {}\n$(D)%.o: %.c\n\t{larder} ./mycc -c $< -o $@\n", objects.join(" "));
    place.put("Makefile", rules);
    // A make that runs two makes, which share its job server.
    place.put("outer.mk", "all: a b\na b:\n\tmkdir -p $@\n\t+$(MAKE) D=$@/\n");
    let edges: String = (0..FILES).map(|number| format!("build {number}.o: cc {number}.c\n")).collect();
    place.put("build.ninja", format!("rule cc\n  command = {larder} ./mycc -c $in -o $out\n{edges}"));
    place.settle();
    place
}

fn build(place: &Place, words: &[&str]) -> Child {
    start(place.run(words).env("LARDER_JOBS", "2").env("LARDER_WAIT", "0"))
}

#[track_caller]
fn well(place: &Place, children: Vec<Child>, files: usize) {
    for child in children {
        Ran::of(child).ends(0);
    }
    let (most, all) = at_once(place);
    assert!(most <= 2 && all == files, "{most} tools ran at once, {all} in total: {}", times(place));
}

#[test]
fn make_with_each_kind_of_job_server() {
    probe_skip!(has("make"), "make is not installed");
    for style in [None, Some("--jobserver-style=fifo"), Some("--jobserver-style=pipe")] {
        let place = place();
        let known = style.is_none_or(|style| place.run(&["make", style, "--version"]).run().code == Some(0));
        if !known {
            eprintln!("skipped: make has no {}", style.unwrap_or_default());
            continue;
        }
        let words: Vec<&str> = ["make", "-j16", "-f", "outer.mk"].into_iter().chain(style).collect();
        // Both makes share one store, so one of them may hit what the other one made.
        let child = build(&place, &words);
        Ran::of(child).ends(0);
        assert!(at_once(&place).0 <= 2, "{}", times(&place));
    }
}

#[test]
fn ninja_with_many_jobs() {
    probe_skip!(has("ninja"), "ninja is not installed");
    let place = place();
    let child = build(&place, &["ninja", "-j16"]);
    well(&place, vec![child], FILES);
}

/// Neither build keeps the other from its turn. For example, a build with few jobs that came first
/// does not wait for all jobs that a larger build added later.
#[test]
fn two_builds_at_once() {
    probe_skip!(has("make") && has("ninja"), "make or ninja is not installed");
    let _processors = processors();
    const FEW: usize = 3;
    // A waiter that got no processor time for a while after its turn is passed over. So the test
    // tries several times.
    let mut seen = Vec::new();
    let come_first = (0..TRIES).any(|_| {
        seen.push(few_beside_many(&["ninja", "-j3"]));
        seen.last().is_some_and(|begun| begun[..2 * FEW].iter().filter(|of_many| !**of_many).count() >= 2)
    });
    assert!(come_first, "{seen:?}");
}

/// Two builds get half of the tokens each. One of them runs in its own PID namespace. Otherwise
/// larder would take both for one build, because both have the same ancestor: the `cargo` or `make`
/// that started this test.
#[test]
fn two_builds_share_in_halves() {
    probe_skip!(has("make") && has("ninja"), "make or ninja is not installed");
    probe_skip!(larder_testkit::can_mount(), "no namespaces here");
    let _processors = processors();
    // If the machine is busy, a waiter may come more than 40 ms after its turn, and is passed over.
    // So the test tries several times. With one queue for both builds, or if the build with many
    // jobs came first, the small build would never have more than a quarter.
    let mut seen = Vec::new();
    let halves = (0..TRIES).any(|_| {
        seen.push(few_beside_many(&["unshare", "-p", "-f", "--mount-proc", "--", "ninja", "-j3"]));
        seen.last().is_some_and(|begun| in_halves(begun))
    });
    assert!(halves, "{seen:?}");
}

/// Returns true if about half of the tools that began first belong to the first build.
fn in_halves(begun: &[bool]) -> bool {
    let few = begun[..FILES].iter().filter(|of_many| !**of_many).count();
    (FILES / 2 - 2..=FILES / 2 + 2).contains(&few)
}

/// Runs a build with this command and three jobs, and a build by make with sixteen jobs, on two
/// tokens. The tokens are held until the jobs of both wait. Returns for each tool, in the order of
/// their beginnings, whether it belongs to make.
fn few_beside_many(few: &[&str]) -> Vec<bool> {
    const FEW: u64 = 3;
    let place = place();
    // This is long compared with the time after which a waiter is passed over.
    timed(&place, "mycc", "0.2");
    std::fs::create_dir(place.path("work/other")).expect("cannot create the directory");
    gated(&place, "gated-cc");
    [20, 21].into_iter().for_each(|number| drop(place.put(&format!("{number}.c"), format!("int a{number};\n"))));
    place.settle();
    let holders = [20, 21].map(|number| start(wrapped(&place, &compile("gated-cc", number), "2")));
    until_begun(&place, HOLDERS);
    let ninja = build(&place, few);
    until_waiting(&place, FEW);
    let make =
        start(place.run(&["make", "-j16", "D=other/"]).env("LARDER_JOBS", "2").env("LARDER_DIR", place.path("own")));
    until_waiting(&place, FEW + FILES as u64);
    open_gate(&place);
    holders.into_iter().for_each(|holder| drop(Ran::of(holder).ends(0)));
    well(&place, vec![make, ninja], 2 * FILES + HOLDERS);
    let begun = times(&place);
    let begun = begun.lines().filter(|line| line.starts_with('+')).skip(HOLDERS);
    begun.map(|line| line.contains("other/")).collect()
}

/// Cargo's job server is inherited by the compilers that a build script starts.
#[test]
fn cargo_with_its_job_server() {
    let Some(cargo) = option_env!("CARGO") else { return };
    let place = place();
    place.put("Cargo.toml", "[package]\nname = \"p\"\nversion = \"0.1.0\"\nedition = \"2021\"\nbuild = \"build.rs\"\n");
    place.put("src/lib.rs", "");
    let script = format!(
        "fn main() {{ let all: Vec<_> = (0..{FILES}).map(|n| std::process::Command::new({:?}).args([\"./mycc\".to_string(), \
         \"-c\".into(), format!(\"{{n}}.c\"), \"-o\".into(), format!(\"{{n}}.o\")]).spawn().unwrap()).collect(); \
         for mut one in all {{ assert!(one.wait().unwrap().success()); }} }}",
        larder().display().to_string()
    );
    place.put("build.rs", script);
    place.settle();
    let run = with_cargo(place.run(&[cargo, "build", "--offline", "-j4"])).env("LARDER_JOBS", "2");
    well(&place, vec![start(run)], FILES);
}

/// Links a program with `-flto=jobserver`: the compiler runs a make of its own, which asks the job
/// server.
#[test]
fn link_time_optimisation_with_the_job_server() {
    probe_skip!(has("make") && has("gcc"), "make or gcc is not installed");
    let place = Place::new();
    let larder = larder().display();
    for number in 0..4 {
        place.put(&format!("{number}.c"), format!("int f{number}(int a) {{ return a * {number}; }}\n"));
    }
    place.put(
        "main.c",
        "int f0(int), f1(int), f2(int), f3(int);\nint main(void) { return f0(1) + f1(0) + f2(0) + f3(0); }\n",
    );
    let rules = format!(
        "all: p q\np q: main.o 0.o 1.o 2.o 3.o\n\t+{larder} gcc -O2 -flto=jobserver $^ -o $@\n%.o: %.c\n\t{larder} gcc -O2 -flto -c $< -o $@\n"
    );
    place.put("Makefile", rules);
    place.settle();
    Ran::of(start(place.run(&["make", "-j8"]).env("LARDER_JOBS", "1").env("LARDER_LOG", place.path("log")))).ends(0);
    crate::support::nobody_gave_up(&place);
    place.run(&["./p"]).run().ends(0);
}
