//! How many tools run at once, and the order in which they get a job slot.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Instant;

use larder_testkit::{Place, Ran, has, is_root, probe_skip};

use crate::support::{
    PATIENCE, at_once, compile, gated, log, open_gate, processors, signal, sources, start, timed, times, until_begun,
    until_waiting, wrapped,
};

fn started(place: &Place, numbers: std::ops::Range<usize>, jobs: &str) -> Vec<Child> {
    numbers.map(|number| start(wrapped(place, &compile("mycc", number), jobs))).collect()
}

#[track_caller]
fn all_end_well(children: Vec<Child>) {
    children.into_iter().for_each(|child| drop(Ran::of(child).ends(0)));
}

fn place(seconds: &str, count: usize) -> Place {
    let place = Place::new();
    timed(&place, "mycc", seconds);
    sources(&place, count);
    place
}

#[test]
fn no_more_than_there_are_tokens() {
    let place = place("0.2", 8);
    all_end_well(started(&place, 0..8, "2"));
    assert_eq!(at_once(&place), (2, 8), "{}", times(&place));
    assert!(log(&place).contains("after waiting"), "{}", log(&place));
    let stats = place.run(&[larder_testkit::larder_text(), "stats"]).run().quiet();
    assert!(stats.contains("queued"), "{stats}");
}

/// While another program always uses the only processor, larder runs more than one tool. But if the
/// number of tools is set, it runs no more than that.
#[test]
fn beside_a_hog() {
    probe_skip!(has("taskset"), "taskset is not installed");
    let _processors = processors();
    for (jobs, expect_more) in [("0", true), ("1", false)] {
        let place = Place::new();
        let log = place.text("times");
        // A tool that uses about two seconds of processor time.
        let script = format!(
            "for out; do :; done; echo \"+ $$ $out\" >> {log}; i=0; while [ $i -lt 1500000 ]; do i=$((i + 1)); done; \
             echo \"- $$ $out\" >> {log}; echo made > \"$out\""
        );
        place.tool("work/mycc", &script);
        sources(&place, 6);
        // The hog ends when its place is removed, also if the test fails.
        let hogs = format!("while [ -e {} ]; do :; done", place.text("work"));
        let mut hog = std::process::Command::new("taskset")
            .args(["-c", "0", "sh", "-c", &hogs])
            .spawn()
            .expect("cannot start the command");
        let pinned = |number| {
            let compile = compile("mycc", number);
            let words: Vec<&str> = ["taskset", "-c", "0", larder_testkit::larder_text()]
                .into_iter()
                .chain(compile.iter().map(String::as_str))
                .collect();
            start(place.run(&words).env("LARDER_JOBS", jobs))
        };
        all_end_well((0..6).map(pinned).collect());
        hog.kill().and_then(|()| hog.wait()).expect("cannot end the command");
        assert_eq!(at_once(&place).0 > 1, expect_more, "{jobs}: {}", times(&place));
    }
}

#[test]
fn over_several_builds() {
    let place = place("0.2", 6);
    // The builds share only the token file, because their stores differ.
    let other = |number| start(wrapped(&place, &compile("mycc", number), "2").env("LARDER_DIR", place.path("other")));
    let mut children = started(&place, 0..3, "2");
    children.extend((3..6).map(other));
    all_end_well(children);
    assert_eq!(at_once(&place), (2, 6), "{}", times(&place));
}

#[test]
fn switched_off_all_run() {
    let place = place("1", 4);
    let off = |number| start(wrapped(&place, &compile("mycc", number), "1").env("LARDER_TOKENS", "0"));
    all_end_well((0..4).map(off).collect());
    assert!(at_once(&place).0 > 1, "{}", times(&place));
    assert!(!place.path("tokens").exists());
}

#[test]
fn a_hit_takes_none() {
    let place = place("0", 1);
    place.tool("work/mycc", "cat 0.c > 0.o");
    place.settle();
    all_end_well(started(&place, 0..1, "1"));
    timed(&place, "slow-cc", "100");
    let mut slow = start(wrapped(&place, &compile("slow-cc", 0), "1"));
    until_begun(&place, 1);
    all_end_well(started(&place, 0..1, "1"));
    assert!(times(&place).lines().count() == 1, "the slow tool still runs");
    assert!(log(&place).contains(" hit: 0.c"), "{}", log(&place));
    signal(slow.id(), "TERM");
    let _ = slow.wait();
}

/// The tool of a killed larder goes on by itself, as it does without larder. Its token is free.
#[test]
fn a_killed_holder_gives_back() {
    let place = place("0.1", 2);
    let mut first = holder(&place, 0);
    let second = started(&place, 1..2, "1");
    until_waiting(&place, 1);
    assert_eq!(at_once(&place).1, 1, "the second tool waits");
    first.kill().expect("cannot kill the process");
    let _ = first.wait();
    let began = Instant::now();
    until_begun(&place, 2);
    // The lock is released at once. The waiter checks for that every hundredth of a second, or
    // later on a busy machine.
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
    crate::support::nobody_gave_up(&place);
    all_end_well(second);
    open_gate(&place);
}

#[test]
fn a_stopped_build_holds_up_nobody() {
    let place = place("0.1", 4);
    let mut builds = vec![holder(&place, 0)];
    builds.extend(started(&place, 1..2, "1"));
    until_waiting(&place, 1);
    builds.iter().for_each(|build| signal(build.id(), "STOP"));
    all_end_well(started(&place, 2..4, "1"));
    builds.iter().for_each(|build| signal(build.id(), "CONT"));
    open_gate(&place);
    all_end_well(builds);
    assert_eq!(at_once(&place).1, 4);
    crate::support::nobody_gave_up(&place);
}

/// The tool with the token is in a frozen cgroup, as in a paused container.
#[test]
fn a_frozen_build_holds_up_nobody() {
    probe_skip!(is_root(), "only root can freeze a cgroup here");
    let freezer = Freezer::new();
    probe_skip!(freezer.is_some(), "no cgroup can be made that can be frozen");
    let freezer = freezer.expect("the test was not skipped");
    let place = place("0.1", 2);
    let frozen = holder(&place, 0);
    freezer.freeze(frozen.id());
    all_end_well(started(&place, 1..2, "1"));
    freezer.thaw();
    open_gate(&place);
    all_end_well(vec![frozen]);
    crate::support::nobody_gave_up(&place);
}

/// A cgroup below the one of this process, in the v1 freezer hierarchy or in the v2 hierarchy.
struct Freezer {
    group: PathBuf,
    file: &'static str,
    words: [&'static str; 2],
}

impl Freezer {
    fn new() -> Option<Freezer> {
        let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        let own = |controllers: &str| {
            let fields = groups.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
            Some(fields.into_iter().find(|(its, _)| *its == controllers)?.1.trim_start_matches('/').to_owned())
        };
        let ways = [
            ("/sys/fs/cgroup/freezer", own("freezer"), "freezer.state", ["FROZEN", "THAWED"]),
            ("/sys/fs/cgroup", own(""), "cgroup.freeze", ["1", "0"]),
        ];
        ways.into_iter().find_map(|(top, own, file, words)| {
            let group = Path::new(top).join(own?).join(format!("larder-test-{}", std::process::id()));
            std::fs::create_dir(&group).ok()?;
            let freezer = Freezer { group, file, words };
            freezer.group.join(file).exists().then_some(freezer)
        })
    }

    fn freeze(&self, pid: u32) {
        std::fs::write(self.group.join("cgroup.procs"), pid.to_string())
            .expect("cannot move the process into the cgroup");
        std::fs::write(self.group.join(self.file), self.words[0]).expect("cannot freeze the cgroup");
    }

    fn thaw(&self) {
        let _ = std::fs::write(self.group.join(self.file), self.words[1]);
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        self.thaw();
        crate::support::until(|| std::fs::remove_dir(&self.group).is_ok() || !self.group.exists());
    }
}

/// Whatever happened to earlier waiters, the remaining ones are served in the order of their
/// arrival.
#[test]
fn who_came_first_is_served_first() {
    // A waiter that got no processor time for a while after its turn is passed over. So the test
    // tries several times.
    const TRIES: usize = 20;
    let mut seen = Vec::new();
    let in_order = (0..TRIES).any(|_| {
        seen.push(served());
        seen.last().is_some_and(|numbers| numbers.is_sorted())
    });
    assert!(in_order, "{seen:?}");
}

/// Starts six tools one after the other on one token. Returns their numbers in the order in which
/// they began.
fn served() -> Vec<i32> {
    let place = place("0.05", 6);
    let mut children = vec![holder(&place, 0)];
    for number in 1..6 {
        children.extend(started(&place, number..number + 1, "1"));
        until_waiting(&place, number as u64);
    }
    open_gate(&place);
    all_end_well(children);
    let begun: Vec<String> = times(&place)
        .lines()
        .filter(|line| line.starts_with('+'))
        .map(|line| line.split(' ').nth(2).unwrap_or("").into())
        .collect();
    let numbers: Vec<i32> = begun.iter().filter_map(|name| name.strip_suffix(".o")?.parse().ok()).collect();
    assert_eq!(numbers.len(), 6, "{begun:?}");
    numbers
}

/// Starts a tool that holds the only token until `open_gate`, and waits until it has begun.
fn holder(place: &Place, number: usize) -> Child {
    gated(place, "gated-cc");
    place.settle();
    let child = start(wrapped(place, &compile("gated-cc", number), "1"));
    until_begun(place, 1);
    child
}

/// A larder that replaces itself by the tool, without recording, keeps its token while the tool
/// runs.
#[test]
fn an_untouched_tool_has_a_token_too() {
    let place = place("0.3", 3);
    let untouched =
        |number| start(wrapped(&place, &compile("mycc", number), "1").env("LARDER_READ_ONLY", "1").env("X", "y"));
    all_end_well((0..3).map(untouched).collect());
    assert_eq!(at_once(&place), (1, 3), "{}", times(&place));
}

#[test]
fn a_whole_command_takes_none() {
    let place = place("0", 1);
    let larder = larder_testkit::larder().display();
    place.tool("work/all", &format!("{larder} ./mycc -c 0.c -o 0.o </dev/null"));
    place.settle();
    for observer in ["auto", "kernel"] {
        place.remove(&["0.o"]);
        let words: Vec<String> = ["run", "--", "./all"].map(str::to_owned).into();
        Ran::of(start(wrapped(&place, &words, "1").env("LARDER_OBSERVER", observer))).ends(0);
        assert_eq!(place.read("0.o"), b"made\n");
    }
    crate::support::nobody_gave_up(&place);
}

/// A tool that reads from a pipe takes no token, so it cannot block the tool that writes to the
/// pipe.
#[test]
fn two_in_a_pipe_do_not_wait_for_each_other() {
    let place = place("0", 1);
    let larder = larder_testkit::larder().display();
    // The output is larger than the pipe, and the writing tool holds the only token.
    place.tool(
        "work/writer-cc",
        "i=0; while [ $i -lt 3000 ]; do echo 'int a; /* a long line of text to fill it */'; i=$((i+1)); done",
    );
    place.tool("work/reader-cc", "cat > /dev/null; echo read");
    place.settle();
    let script = format!("{larder} ./writer-cc -E 0.c | {larder} ./reader-cc -c -x c - -o r.o");
    let run = place.run(&["sh", "-c", &script]).env("LARDER_JOBS", "1").env("LARDER_LOG", place.path("log")).run();
    assert_eq!((run.code, run.stdout.as_str()), (Some(0), "read\n"), "{run:?}");
    crate::support::nobody_gave_up(&place);
}

/// A shell's `<(…)` is a pipe. The tool that writes to it may need a token, so the reader takes
/// none.
#[test]
fn who_writes_what_is_read_is_not_waited_for_in_vain() {
    let place = place("0", 1);
    let larder = larder_testkit::larder().display();
    place.tool("work/mycc", "cat \"$3\" > /dev/null; echo read");
    place.settle();
    let script = format!("{larder} ./mycc -c 0.c <(sleep 0.3; {larder} ./mycc -E 0.c 0.c)");
    let began = std::time::Instant::now();
    let run = place.run(&["bash", "-c", &script]).env("LARDER_JOBS", "1").env("LARDER_LOG", place.path("log")).run();
    assert_eq!((run.code, run.stdout.as_str()), (Some(0), "read\n"), "{run:?}");
    assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
    crate::support::nobody_gave_up(&place);
}

/// Writes to the token file that each running tool needs more memory than any machine has.
fn need_everything(place: &Place) {
    const EXPECTED_WORDS: std::ops::Range<u64> = 128..128 + 4;
    let file = File::options().read(true).write(true).open(place.path("tokens")).expect("cannot open the file");
    for word in EXPECTED_WORDS {
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, word * 8).expect("cannot read the file");
        if u64::from_ne_bytes(bytes) > 0 {
            file.write_all_at(&(1u64 << 40).to_ne_bytes(), word * 8).expect("cannot write the file");
        }
    }
}

/// One tool waits for another one, which waits for memory that the first one has reserved.
#[test]
fn memory_is_not_waited_for_in_vain() {
    let place = place("0.1", 2);
    let (times, fifo) = (place.text("times"), place.text("work/fifo"));
    let made = std::process::Command::new("mkfifo").arg(&fifo).status().expect("cannot start the command");
    assert!(made.success());
    place.tool("work/blocked-cc", &format!("echo \"+ $$ 0.o\" >> {times}; read line < {fifo}; exit 3"));
    place.settle();
    let first = start(wrapped(&place, &compile("blocked-cc", 0), "1"));
    until_begun(&place, 1);
    need_everything(&place);
    all_end_well(started(&place, 1..2, "4"));
    std::fs::write(&fifo, "go on\n").expect("cannot write the file");
    Ran::of(first).ends(3);
    assert!(log(&place).contains("for memory") || log(&place).contains("in vain"), "{}", log(&place));
}

/// The token file says that the running tool needs more memory than any machine has.
#[test]
fn a_tool_waits_for_memory() {
    let place = place("0.1", 2);
    let first = holder(&place, 0);
    need_everything(&place);
    let second = started(&place, 1..2, "4");
    until_waiting(&place, 1);
    std::thread::sleep(std::time::Duration::from_millis(200));
    assert_eq!(at_once(&place).1, 1, "a token is free, but there is not enough memory");
    open_gate(&place);
    all_end_well(vec![first]);
    all_end_well(second);
    assert_eq!(at_once(&place), (1, 2), "{}", times(&place));
    assert!(log(&place).contains("for memory"), "{}", log(&place));
}

/// Whatever the token file contains, tools run, and never more at once than allowed.
#[test]
fn a_damaged_file_costs_order_only() {
    for byte in [0xff, 0x80, 0x01] {
        let place = place("0.1", 4);
        std::fs::write(place.path("tokens"), vec![byte; 2432 * 8]).expect("cannot write the file");
        set_mode(&place, 0o600);
        all_end_well(started(&place, 0..4, "2"));
        assert_eq!(at_once(&place).1, 4);
        assert!(at_once(&place).0 <= 2, "{}", times(&place));
    }
}

fn set_mode(place: &Place, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(place.path("tokens"), std::fs::Permissions::from_mode(mode)).expect("cannot set the mode");
}

#[test]
fn what_cannot_be_a_file_of_tokens_is_none() {
    let place = place("0", 2);
    std::fs::create_dir(place.path("tokens")).expect("cannot create the directory");
    all_end_well(started(&place, 0..1, "1"));
    std::fs::remove_dir(place.path("tokens")).expect("cannot remove the directory");
    std::fs::write(place.path("tokens"), "").expect("cannot write the file");
    set_mode(&place, 0o666);
    all_end_well(started(&place, 1..2, "1"));
}
