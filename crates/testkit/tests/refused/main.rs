//! Runs larder while system calls are refused, as a kernel does that lacks them (ENOSYS) or the
//! seccomp profile of a container (ENOSYS or EPERM).
//!
//! A command runs without larder and through it, under the same refusals. Both must end and leave
//! the same result. Whether larder records and hits is compared with the tables here, so a fallback
//! that stops working is noticed. `LARDER_TEST_FULL=1` refuses each call by itself for three
//! commands; otherwise the test refuses only some of them.
#![cfg(target_os = "linux")]

mod bench;
mod profiles;
mod tables;

use std::collections::BTreeSet;
use std::fs;

use larder_testkit::{Place, has, is_full, larder_text, probe_skip};

use bench::{Bench, HANGS, numbers};
use tables::{ALWAYS, CALLS, Command, NEEDED_BY_ALL, expected};

/// How many commands run at once. A run mostly waits.
const AT_ONCE: usize = 4;

/// System calls that are refused, a name for messages, and the outcomes that a command must have
/// then.
pub(crate) struct Trial {
    pub(crate) name: String,
    pub(crate) refusals: Vec<String>,
    pub(crate) command: Command,
    pub(crate) expected: String,
}

fn bench(command: Command) -> Option<Bench> {
    match command {
        Command::Gcc => Some(Bench::compile("gcc")),
        Command::Clang => has("clang").then(|| Bench::compile("clang")),
        Command::Script => Some(Bench::script()),
    }
}

/// Runs all trials, and fails with the list of those that had unexpected outcomes.
fn all_as_expected(trials: &[Trial]) {
    let commands: BTreeSet<Command> = trials.iter().map(|trial| trial.command).collect();
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let part_of = |part: usize| {
            let mut wrong = Vec::new();
            for command in &commands {
                let mine = trials.iter().filter(|trial| trial.command == *command).skip(part).step_by(AT_ONCE);
                let mine: Vec<&Trial> = mine.collect();
                let Some(bench) = (if mine.is_empty() { None } else { bench(*command) }) else { continue };
                for trial in mine {
                    let found = bench.outcomes(&trial.refusals);
                    let is_right = |outcomes: &String| trial.expected == tables::ANY || *outcomes == trial.expected;
                    if !found.as_ref().is_ok_and(is_right) {
                        let found = found.unwrap_or_else(|why| format!("WRONG {why}"));
                        let found = format!("{command:?}, {}: {found}, expected {}", trial.name, trial.expected);
                        println!("{found}");
                        wrong.push(found);
                    }
                }
            }
            wrong
        };
        let parts: Vec<_> = (0..AT_ONCE).map(|part| scope.spawn(move || part_of(part))).collect();
        parts.into_iter().flat_map(|part| part.join().expect("the thread panicked")).collect()
    });
    println!("{} trials", trials.len());
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), trials.len(), wrong.join("\n"));
}

fn can_compile() -> bool {
    has("gcc")
}

#[test]
fn each_call_is_refused() {
    probe_skip!(can_compile(), "gcc is not installed");
    let known = numbers();
    let newest = (tables::NEWEST_FIRST..=tables::NEWEST_LAST).map(|number| number.to_string());
    let named = CALLS.iter().filter(|call| known.contains_key(**call)).map(|call| (*call).to_owned());
    let commands =
        if is_full() { &[Command::Gcc, Command::Clang, Command::Script][..] } else { &[Command::Gcc, Command::Script] };
    let mut trials = Vec::new();
    for call in named.chain(newest) {
        let number = known.get(&call).map_or_else(|| call.clone(), u32::to_string);
        for (error, name) in tables::ERRORS {
            for command in commands {
                let is_chosen = is_full() || ALWAYS.contains(&call.as_str());
                if is_chosen {
                    trials.push(Trial {
                        name: format!("{call} {name}"),
                        refusals: vec![format!("{number}={error}")],
                        command: *command,
                        expected: expected(*command, &call, name).to_owned(),
                    });
                }
            }
        }
    }
    all_as_expected(&trials);
}

#[test]
fn kernels_and_containers() {
    probe_skip!(can_compile(), "gcc is not installed");
    all_as_expected(&profiles::trials());
}

/// Every system call of a hit and a miss must be in the table, so that a new call is tested as
/// well.
#[test]
fn every_call_that_is_made_is_tried() {
    probe_skip!(can_compile() && has("strace"), "gcc or strace is not installed");
    let place = Place::new();
    place.put("x.c", "int a;\n");
    probe_skip!(place.run(&["strace", "-o", "/dev/null", "true"]).run().code == Some(0), "strace may not trace");
    let mut unknown = BTreeSet::new();
    for what in ["miss", "hit"] {
        place.settle();
        let log = place.text("trace");
        let words = ["strace", "-f", "-qq", "-o", &log, larder_text(), "gcc", "-c", "x.c"];
        place.run(&words).run().ends(0);
        let text = String::from_utf8_lossy(&fs::read(&log).expect("cannot read the trace")).into_owned();
        let made =
            text.lines().filter_map(|line| line.split_once(' ')?.1.trim_start().split_once('(')).map(|(name, _)| name);
        let is_name = |name: &&str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let made: BTreeSet<&str> = made.filter(is_name).collect();
        assert!(made.contains("statx"), "{what}: {made:?}");
        let is_tried = |name: &&str| CALLS.contains(name) || NEEDED_BY_ALL.contains(name);
        unknown.extend(made.into_iter().filter(|name| !is_tried(name)).map(str::to_owned));
    }
    assert!(unknown.is_empty(), "calls that are not in the table: {unknown:?}");
}

/// larder must not wait for a process that a tool leaves on its standard error. This also holds if
/// there is no descriptor with which to wait for the tool itself.
#[test]
fn a_tool_ends_before_what_it_leaves_behind() {
    probe_skip!(can_compile(), "gcc is not installed");
    let bench = Bench::compile("gcc");
    let place = bench.place();
    place.tool("work/mycc", "(while [ ! -e stop ]; do sleep 0.1; done) & echo object > x.o; exit 3");
    for call in ["pidfd_open", "none"] {
        let number = numbers().get(call).copied().unwrap_or(tables::NO_CALL);
        let refusals = [format!("{number}=38")];
        let larder = [larder_text(), "./mycc", "-c", "x.c", "-o", "x.o"];
        // The messages go to a file, so nothing but larder itself could wait for the process that
        // is left.
        let script = "\"$@\" > ../out 2> ../err";
        let refused = bench.refused_words(&refusals, &larder);
        let words: Vec<&str> =
            ["sh", "-c", script, "sh"].into_iter().chain(refused.iter().map(String::as_str)).collect();
        let ran = place.run(&words).ends_within(HANGS);
        place.put("stop", "");
        assert_eq!(ran.map(|ran| ran.code), Ok(Some(3)), "{call}");
        place.remove(&["stop", "x.o"]);
    }
}
