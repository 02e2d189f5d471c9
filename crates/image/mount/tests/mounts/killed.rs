//! Kills fillers, gates and servers by each signal, in each order and with different delays. A file
//! that is not local then reads right, waits, or fails. It never reads as zeros, and no read waits
//! longer than documented.
//!
//! `LARDER_TEST_KILLS=1000 cargo test -p larder-mount --test mounts killed` does 1,000 rounds, and
//! so does `LARDER_TEST_FULL=1`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use larder_mount::lazy::READ_WAITS_MAX;
use larder_mount::{Ask, Backend, Life};

use crate::backends::ask;
use crate::fixture::Test;
use crate::lazy::{Far, far, gate_in, until};
use crate::served::{near, servers};

pub(crate) const TESTS: &[Test] = &[
    ("no_file_of_a_killed_filler_or_gate_reads_as_zeros", no_file_of_a_killed_filler_or_gate_reads_as_zeros),
    ("no_file_of_a_killed_server_reads_as_zeros", no_file_of_a_killed_server_reads_as_zeros),
];

const ROUNDS: usize = 12;
const ROUNDS_FULL: usize = 1000;
/// How long a fetch of 64 KiB takes. The image needs about seventy of them.
const FETCH_MS: u32 = 10;
const SIGNALS: [&str; 2] = ["-TERM", "-KILL"];
const DELAYS_MS: [u64; 5] = [0, 1, 5, 20, 50];
const BEGIN_MS: [u64; 3] = [0, 15, 60];

fn rounds() -> usize {
    let is_full = std::env::var_os("LARDER_TEST_FULL").is_some_and(|value| value == "1");
    let asked = std::env::var("LARDER_TEST_KILLS").ok().map(|value| value.parse().expect("a number of rounds"));
    asked.unwrap_or(if is_full { ROUNDS_FULL } else { ROUNDS })
}

#[derive(Clone, Copy, Debug)]
enum Order {
    Filler,
    Gate,
    FillerThenGate,
    GateThenFiller,
}

/// Which processes are killed in a round, and how.
#[derive(Clone, Copy, Debug)]
struct Kill {
    order: Order,
    filler: &'static str,
    gate: &'static str,
    begin: Duration,
    delay: Duration,
}

impl Kill {
    /// Returns round `round` of all 240 combinations, in an order that mixes them even in a few
    /// rounds.
    fn of(round: usize) -> Kill {
        let mut number = round * 77 % 240;
        let mut next = |count: usize| {
            let chosen = number % count;
            number /= count;
            chosen
        };
        let order = [Order::FillerThenGate, Order::GateThenFiller, Order::Filler, Order::Gate][next(4)];
        let (delay, begin) = (DELAYS_MS[next(5)], BEGIN_MS[next(3)]);
        Kill {
            order,
            filler: SIGNALS[next(2)],
            gate: SIGNALS[next(2)],
            begin: Duration::from_millis(begin),
            delay: Duration::from_millis(delay),
        }
    }

    /// Returns true if both processes may end before one of them could start the other anew. A gate
    /// does not end by SIGTERM.
    fn may_end_both(self) -> bool {
        self.gate == "-KILL" && matches!(self.order, Order::FillerThenGate | Order::GateThenFiller)
    }
}

fn kill(signal: &str, pid: u32) {
    // An error is ignored, because the process may have ended by itself.
    let _ = Command::new("kill").args([signal, &pid.to_string()]).stderr(Stdio::null()).status();
}

/// The results of all readers.
#[derive(Default)]
struct Seen {
    failed: AtomicUsize,
    wrong: AtomicUsize,
    longest_ms: AtomicU64,
}

impl Seen {
    /// Reads these files and compares them with the tree. `may_be` holds the errno values that are
    /// allowed.
    fn read<'a>(&self, tree: &Path, target: &Path, names: impl Iterator<Item = &'a str>, may_be: &[i32]) {
        for name in names {
            let began = Instant::now();
            let read = fs::read(target.join(name));
            self.longest_ms.fetch_max(began.elapsed().as_millis() as u64, SeqCst);
            match read {
                Ok(read) if read == fs::read(tree.join(name)).expect("reads") => {}
                Ok(_) => drop(self.wrong.fetch_add(1, SeqCst)),
                Err(error) if error.raw_os_error().is_some_and(|number| may_be.contains(&number)) => {
                    self.failed.fetch_add(1, SeqCst);
                }
                Err(error) => panic!("{name}: {error}"),
            }
        }
    }

    fn assert_right(&self, what: &dyn std::fmt::Debug) {
        assert_eq!(self.wrong.load(SeqCst), 0, "files with other bytes: {what:?}");
        let longest = Duration::from_millis(self.longest_ms.load(SeqCst));
        assert!(longest <= READ_WAITS_MAX, "a file was read for {longest:?}: {what:?}");
    }
}

/// Returns the files of the tree. One in four is only read after the kill.
fn names() -> Vec<String> {
    let mut names: Vec<String> = (0..40).map(|number| format!("deep/er/file{number}")).collect();
    names.extend(["large".to_owned(), "sparse".to_owned()]);
    names
}

/// The paths of a round.
struct Round<'a> {
    far: &'a Far,
    state: PathBuf,
    data: PathBuf,
    target: PathBuf,
}

impl Round<'_> {
    fn filler(&self, more: &[&Path]) -> Child {
        let mut command = Command::new(std::env::current_exe().expect("is known"));
        command.arg("role-fill").args([&self.state, &self.data, &self.far.source]).arg(FETCH_MS.to_string());
        command.args(more).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("starts")
    }

    /// Kills the processes of this round that are still running.
    fn end(&self) {
        let pids = fs::read_to_string(self.data.with_extension("pids")).expect("reads");
        for pid in pids.lines().map(|pid| pid.parse::<u32>().expect("a number")) {
            let is_ours = fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|words| {
                words.windows(self.data.as_os_str().len()).any(|part| part == self.data.as_os_str().as_encoded_bytes())
            });
            if is_ours {
                kill("-KILL", pid);
            }
        }
    }
}

fn no_file_of_a_killed_filler_or_gate_reads_as_zeros() {
    let Some(far) = far() else { return };
    let (names, mut failed, mut longest_ms) = (names(), 0, 0);
    for number in 0..rounds() {
        let kill = Kill::of(number);
        let base = far.fixture.make(&format!("images/{number}"));
        let target = far.fixture.make(&format!("killed-{number}"));
        let round = Round { far: &far, state: base.join("state"), data: base.join("data"), target };
        let seen = one_round(&round, kill, &names);
        failed += seen.failed.load(SeqCst);
        longest_ms = longest_ms.max(seen.longest_ms.load(SeqCst));
        seen.assert_right(&(number, kill));
        far.places().unmount(&round.target).expect("unmounts");
        round.end();
        let gate = base.join("state/gate2.sock");
        assert!(fs::metadata(&gate).is_ok_and(|gate| gate.file_type().is_socket()));
        until("the gate ends", || std::os::unix::net::UnixStream::connect(&gate).is_err());
        fs::remove_dir_all(&base).expect("removes");
    }
    println!("    {failed} reads failed, none was wrong; the longest took {longest_ms} ms");
}

fn one_round(round: &Round, kill: Kill, names: &[String]) -> Seen {
    let (far, seen) = (round.far, Seen::default());
    let places = far.fixture.path("places");
    let mut filler = round.filler(&[&far.metadata, &round.target, &places, Path::new("rescue")]);
    let mut line = String::new();
    BufReader::new(filler.stdout.as_mut().expect("is piped")).read_line(&mut line).expect("reads");
    assert_eq!(line, "fills\n");
    let gate = gate_in(&round.state);
    std::thread::scope(|scope| {
        for reader in 0..3 {
            let (seen, tree, target) = (&seen, far.fixture.tree(), &round.target);
            let its = names.iter().map(String::as_str).skip(reader).step_by(4);
            scope.spawn(move || seen.read(&tree, target, its, &[5]));
        }
        std::thread::sleep(kill.begin);
        let end_gate = || gate.iter().for_each(|gate| self::kill(kill.gate, *gate));
        let end_filler = || self::kill(kill.filler, filler.id());
        match kill.order {
            Order::Filler => end_filler(),
            Order::Gate => end_gate(),
            Order::FillerThenGate => {
                end_filler();
                std::thread::sleep(kill.delay);
                end_gate();
            }
            Order::GateThenFiller => {
                end_gate();
                std::thread::sleep(kill.delay);
                end_filler();
            }
        }
    });
    let all = || seen.read(&far.fixture.tree(), &round.target, names.iter().map(String::as_str), &[5]);
    all();
    let failed = seen.failed.load(SeqCst);
    assert!(failed == 0 || kill.may_end_both(), "{failed} reads failed: {kill:?}");
    if failed > 0 {
        // The next filler also repairs existing mounts.
        let mut again = round.filler(&[&far.metadata]);
        until("all data is local", || round.state.join("complete").exists());
        until("the mount reads it", || {
            let seen = Seen::default();
            seen.read(&far.fixture.tree(), &round.target, names.iter().map(String::as_str), &[5]);
            seen.assert_right(&kill);
            seen.failed.load(SeqCst) == 0
        });
        self::kill("-KILL", again.id());
        again.wait().expect("ends");
    }
    self::kill("-KILL", filler.id());
    filler.wait().expect("ends");
    seen
}

fn no_file_of_a_killed_server_reads_as_zeros() {
    let Some(near) = near() else { return };
    let (names, target) = (names(), near.fixture.make("killed"));
    let (mut failed, mut longest_ms) = (0, 0);
    for round in 0..rounds() {
        let (signal, begin) = (SIGNALS[round % 2], Duration::from_millis(BEGIN_MS[round / 2 % 3] / 2));
        let _ = fs::remove_dir_all(&near.directory);
        let (layer, _) = near.mount(u64::from(FETCH_MS), Life::AsMount);
        let image = near.image();
        let asked = Ask { layer: Some(&layer), ..ask(&image, &target, Backend::LazyFuse) };
        let stay = near.places().mount(&asked).expect("mounts");
        let (seen, tree) = (Seen::default(), near.fixture.tree());
        std::thread::scope(|scope| {
            for reader in 0..3 {
                let (seen, tree, target) = (&seen, &tree, &target);
                let its = names.iter().map(String::as_str).skip(reader).step_by(4);
                scope.spawn(move || seen.read(tree, target, its, &[5, 103, 107]));
            }
            std::thread::sleep(begin);
            servers(&near.directory).into_iter().for_each(|server| kill(signal, server));
        });
        seen.read(&tree, &target, names.iter().map(String::as_str), &[5, 103, 107]);
        seen.assert_right(&(round, signal));
        assert!(seen.failed.load(SeqCst) == 0 || signal == "-KILL", "a server does not end by SIGTERM");
        failed += seen.failed.load(SeqCst);
        longest_ms = longest_ms.max(seen.longest_ms.load(SeqCst));
        stay.end().expect("unmounts");
        drop(layer);
        until("the server ends", || servers(&near.directory).is_empty());
    }
    println!("    {failed} reads failed, none was wrong; the longest took {longest_ms} ms");
}
