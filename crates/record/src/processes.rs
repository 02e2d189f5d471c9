//! Converts event lines to processes: the process tree, the programs and resources of each process,
//! and the outcome of the action that it belongs to.
//!
//! If a record was cut off, processes without an end get the end of the record.

use std::collections::HashMap;

use crate::directory::RecordedRun;
use crate::schema::{Action, Event, Usage};

/// The tolerance between the clocks of wrappers and of the tracer, which are also read at different
/// moments.
const SLACK_NS: u64 = 20_000_000;
/// Interpreters, for which the script is the interesting name.
const INTERPRETERS: &[&str] = &["sh", "dash", "bash", "zsh", "ksh", "perl", "python", "ruby", "node", "awk", "m4"];

/// The outcome of an action, and of the processes that belong to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// The process belongs to no action.
    #[default]
    None,
    /// The result came from the store.
    Hit,
    /// The tool ran.
    Miss,
    /// The tool ran untouched.
    Bypass,
    /// The tool ran because something failed.
    Fallback,
}

impl Outcome {
    /// All outcomes, in the order of their numbers.
    pub const ALL: [Outcome; 5] = [Outcome::None, Outcome::Hit, Outcome::Miss, Outcome::Bypass, Outcome::Fallback];

    /// Returns the name of the outcome, as it is written and shown.
    pub fn name(self) -> &'static str {
        ["none", "hit", "miss", "bypass", "fallback"][self as usize]
    }

    /// Returns the outcome with this name, or `None` for an unknown one.
    pub fn named(name: &str) -> Outcome {
        Self::ALL.into_iter().find(|outcome| outcome.name() == name).unwrap_or_default()
    }
}

/// A program that a process executed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// The time of the execution, in nanoseconds since the run began.
    pub t: u64,
    /// The path of the program.
    pub exe: String,
    /// The arguments.
    pub argv: Vec<String>,
}

/// A process.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// The process ID, which an earlier process may have had too.
    pub pid: i32,
    /// The index of its parent.
    pub parent: Option<usize>,
    /// The start, in nanoseconds since the run began.
    pub start_ns: u64,
    /// The end, in nanoseconds since the run began.
    pub end_ns: u64,
    /// The programs that it executed, in order. Empty if it stayed a fork of its parent.
    pub programs: Vec<Program>,
    /// The working directory.
    pub cwd: String,
    /// The exit code, or `None` if its end was not recorded.
    pub code: Option<i32>,
    /// What it used itself.
    pub own: Usage,
    /// What it used, including the children that it waited for.
    pub total: Usage,
    /// The number of threads that it started.
    pub threads: u32,
    /// The index of its action, if it is a wrapper.
    pub action: Option<usize>,
    /// The outcome of its own action, or of the nearest action among its ancestors.
    pub outcome: Outcome,
    /// The name in tables and charts.
    pub label: String,
}

impl Process {
    /// Returns its life time, in nanoseconds.
    pub fn wall_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }

    /// Returns the last command line that it executed, or its parent's label if it executed none.
    pub fn command(&self) -> String {
        self.programs.last().map_or_else(|| format!("({})", self.label), |program| program.argv.join(" "))
    }
}

/// The processes of a run.
#[derive(Clone, Debug, Default)]
pub struct Processes {
    /// All processes in the order in which they began, so parents come before children.
    pub all: Vec<Process>,
    /// The wall time of the run in nanoseconds, as far as it was recorded.
    pub wall_ns: u64,
    /// The number of actions whose process was not recorded.
    pub strangers: usize,
}

/// Builds the processes from the lines of a run.
pub fn processes(recorded: &RecordedRun) -> Processes {
    let mut maker = Maker::default();
    recorded.events.iter().for_each(|event| maker.take(event));
    let Maker { mut all, .. } = maker;
    let last = all.iter().map(|process| process.end_ns.max(process.start_ns)).max().unwrap_or(0);
    let wall_ns = recorded.run.end.as_ref().map_or(last, |end| end.wall_ns.max(last));
    for process in all.iter_mut().filter(|process| process.code.is_none()) {
        process.end_ns = wall_ns;
    }
    own_usage(&mut all);
    let strangers = join(&mut all, &recorded.actions, recorded.run.began_ns);
    inherit(&mut all, &recorded.actions);
    Processes { all, wall_ns, strangers }
}

#[derive(Default)]
struct Maker {
    all: Vec<Process>,
    /// Maps each process ID to the index of the process that has it now.
    now: HashMap<i32, usize>,
}

impl Maker {
    fn take(&mut self, event: &Event) {
        match event {
            Event::Fork { t, parent, pid } => {
                let parent = self.now.get(parent).copied();
                let above = parent.map(|at| &self.all[at]);
                let cwd = above.map(|above| above.cwd.clone()).unwrap_or_default();
                let label = above.map(|above| above.label.clone()).unwrap_or_default();
                self.begin(Process { pid: *pid, parent, start_ns: *t, end_ns: *t, cwd, label, ..Process::default() });
            }
            Event::Exec { t, pid, exe, argv, cwd } => {
                if !self.now.contains_key(pid) {
                    self.begin(Process { pid: *pid, start_ns: *t, end_ns: *t, ..Process::default() });
                }
                let process = &mut self.all[self.now[pid]];
                process.cwd = cwd.clone().unwrap_or(std::mem::take(&mut process.cwd));
                process.label = label(exe, argv);
                process.programs.push(Program { t: *t, exe: exe.clone(), argv: argv.clone() });
            }
            Event::Exit { t, pid, code, usage, peak, threads } => {
                let Some(process) = self.now.remove(pid).map(|at| &mut self.all[at]) else { return };
                process.end_ns = *t;
                process.code = Some(*code);
                process.total = *usage;
                process.own = Usage { peak_bytes: peak.unwrap_or(usage.peak_bytes), ..*usage };
                process.threads = *threads;
            }
        }
    }

    fn begin(&mut self, process: Process) {
        self.now.insert(process.pid, self.all.len());
        self.all.push(process);
    }
}

/// Computes what each process used itself. The kernel adds the usage of a child to its parent when
/// the parent waits for it. Here it is assumed that a parent waited for every child that ended
/// before it.
fn own_usage(all: &mut [Process]) {
    for at in (0..all.len()).rev() {
        let Process { parent: Some(parent), end_ns, total, code: Some(_), .. } = all[at] else { continue };
        let above = &mut all[parent];
        if above.code.is_some() && end_ns <= above.end_ns {
            above.own = above.own.since(&total);
        }
    }
}

/// Assigns actions to processes. Returns the number of actions without a process.
fn join(all: &mut [Process], actions: &[Action], began_ns: u64) -> usize {
    let mut by_pid: HashMap<i32, Vec<usize>> = HashMap::new();
    for (at, process) in all.iter().enumerate() {
        by_pid.entry(process.pid).or_default().push(at);
    }
    let mut strangers = 0;
    for (at, action) in actions.iter().enumerate() {
        let t = action.began_ns.saturating_sub(began_ns);
        let was_there = |process: &&usize| {
            let process = &all[**process];
            process.start_ns <= t + SLACK_NS && t <= process.end_ns + SLACK_NS && process.action.is_none()
        };
        match by_pid.get(&action.pid).and_then(|those| those.iter().rev().find(was_there).copied()) {
            Some(process) => all[process].action = Some(at),
            None => strangers += 1,
        }
    }
    strangers
}

fn inherit(all: &mut [Process], actions: &[Action]) {
    for at in 0..all.len() {
        let above = all[at].parent.map(|parent| all[parent].outcome).unwrap_or_default();
        all[at].outcome = all[at].action.map_or(above, |action| Outcome::named(&actions[action].outcome));
    }
}

/// Returns the label of a process, for example `gcc`, `sh configure` or `larder gcc`.
fn label(exe: &str, argv: &[String]) -> String {
    let name = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    let own = if exe.is_empty() { name(argv.first().map_or("", String::as_str)) } else { name(exe) };
    let first = argv.get(1).filter(|word| !word.starts_with('-') && !word.is_empty());
    let stem = own.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    match first {
        Some(first) if own == "larder" || INTERPRETERS.contains(&stem) => format!("{own} {}", name(first)),
        _ => own,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::schema::{Run, RunEnd};

    pub(crate) fn fork(t: u64, parent: i32, pid: i32) -> Event {
        Event::Fork { t, parent, pid }
    }

    pub(crate) fn exec(t: u64, pid: i32, command: &str) -> Event {
        let argv: Vec<String> = command.split(' ').map(str::to_owned).collect();
        Event::Exec { t, pid, exe: format!("/usr/bin/{}", argv[0]), argv, cwd: None }
    }

    pub(crate) fn exit(t: u64, pid: i32, cpu_us: u64) -> Event {
        let usage = Usage { user_us: cpu_us, peak_bytes: cpu_us, ..Usage::default() };
        Event::Exit { t, pid, code: 0, usage, peak: None, threads: 0 }
    }

    /// Returns a run in which make starts larder twice: a hit, and a miss that runs gcc.
    pub(crate) fn a_run() -> RecordedRun {
        const MS: u64 = 1_000_000;
        let events = vec![
            exec(0, 10, "make"),
            fork(10 * MS, 10, 11),
            exec(11 * MS, 11, "larder gcc -c a.c"),
            exit(15 * MS, 11, 4),
            fork(20 * MS, 10, 12),
            exec(21 * MS, 12, "larder gcc -c b.c"),
            fork(30 * MS, 12, 13),
            exec(31 * MS, 13, "gcc -c b.c"),
            exit(80 * MS, 13, 50),
            exit(85 * MS, 12, 55),
            exit(90 * MS, 10, 62),
        ];
        let action = |pid, at: u64, outcome: &str, cause: &str| Action {
            pid,
            began_ns: 1_000_000_000 + at * MS,
            took_ns: 3 * MS,
            outcome: outcome.into(),
            cause: cause.into(),
            source: format!("{pid}.c"),
            key: format!("key{pid}"),
            phases: [("lookup".to_owned(), MS)].into(),
            ..Action::default()
        };
        let actions =
            vec![action(11, 12, "hit", ""), action(12, 22, "miss", "x.h changed"), action(99, 22, "bypass", "")];
        let end = RunEnd { wall_ns: 95 * MS, ..RunEnd::default() };
        let run = Run { number: 1, began_ns: 1_000_000_000, end: Some(end), traced: true, ..Run::default() };
        RecordedRun { run, events, actions, ..RecordedRun::default() }
    }

    #[test]
    fn a_tree_with_outcomes() {
        let found = processes(&a_run());
        let shown: Vec<_> = found.all.iter().map(|p| (p.label.as_str(), p.parent, p.outcome.name())).collect();
        let expected = [
            ("make", None, "none"),
            ("larder gcc", Some(0), "hit"),
            ("larder gcc", Some(0), "miss"),
            ("gcc", Some(2), "miss"),
        ];
        assert_eq!(shown, expected);
        assert_eq!(found.all.iter().map(|p| p.own.user_us).collect::<Vec<_>>(), [3, 4, 5, 50]);
        assert_eq!((found.strangers, found.wall_ns), (1, 95_000_000));
    }

    #[test]
    fn what_was_cut_off_ends_where_the_record_does() {
        let mut run = a_run();
        run.events.truncate(8);
        run.run.end = None;
        let found = processes(&run);
        assert_eq!(found.wall_ns, 30_000_000);
        assert!(found.all[0].code.is_none() && found.all[0].end_ns == 30_000_000);
    }

    #[test]
    fn a_number_that_is_used_again_is_another_process() {
        let events =
            vec![exec(0, 1, "sh"), fork(1, 1, 2), exit(2, 2, 0), fork(3, 1, 2), exec(4, 2, "cc"), exit(5, 2, 0)];
        let found = processes(&RecordedRun { events, ..RecordedRun::default() });
        assert_eq!(found.all.iter().map(|p| p.label.as_str()).collect::<Vec<_>>(), ["sh", "sh", "cc"]);
        assert_eq!((found.all[1].end_ns, found.all[2].end_ns), (2, 5));
    }

    #[test]
    fn labels() {
        let check = |exe: &str, argv: &str, expect: &str| {
            let argv: Vec<String> = argv.split(' ').map(str::to_owned).collect();
            assert_eq!(label(exe, &argv), expect);
        };
        check("/usr/lib/gcc/cc1", "/usr/lib/gcc/cc1 x.c", "cc1");
        check("/usr/bin/dash", "/bin/sh ./configure --x", "dash configure");
        check("/usr/bin/dash", "/bin/sh -c make", "dash");
        check("/usr/bin/python3.11", "python3 gen.py", "python3.11 gen.py");
        check("/opt/larder", "larder gcc -c x.c", "larder gcc");
        check("", "gone x", "gone");
    }
}
