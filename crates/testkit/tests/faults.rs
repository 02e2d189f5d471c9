//! Every system call of larder's fails, or is its last, in turn: the tool's own result all the same, and the run after
//! it is right, too. With `LARDER_TEST_FULL=1` each call with each error; else a spread of them.
//!
//! `strace` does it, on larder alone: what it starts is not traced. One call fails in a run, so that a tool that larder
//! becomes afterwards has no faults.
#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use larder_testkit::{Place, Ran, Run, is_full, larder, probe_skip};

/// An input, both streams, an object that is a blob, an output that stands in the record, an exit code of its own.
const SCRIPT: &str =
    "read line < x.c; printf %s \"$line\"; echo warning >&2; printf %06000d 7 > x.o; echo dep > x.d; exit 3";

/// The errors that each call can fail with. A call that is not here never does, or not for a reason outside larder
/// (`wait4`, `rt_sigaction`).
const ERRORS: &[(&str, &[&str])] = &[
    ("access", &["EACCES", "EIO"]),
    ("clone", &["EAGAIN", "ENOMEM"]),
    ("close", &["EIO"]),
    ("copy_file_range", &["EIO", "ENOSPC", "EDQUOT", "EXDEV", "ENOSYS", "EINVAL"]),
    ("fallocate", &["ENOSPC", "EIO"]),
    ("flock", &["EIO", "ENOLCK", "EINTR"]),
    ("fstat", &["EIO", "EACCES"]),
    ("fstatfs", &["EIO"]),
    ("fsync", &["EIO", "ENOSPC"]),
    ("ftruncate", &["EIO", "ENOSPC"]),
    ("getcwd", &["ENOENT", "EACCES"]),
    ("getrandom", &["EIO", "EAGAIN"]),
    ("link", &["EACCES", "EMLINK"]),
    ("linkat", &["EACCES", "EMLINK"]),
    ("lseek", &["EIO"]),
    ("memfd_create", &["EMFILE", "ENOSYS", "EACCES"]),
    ("mkdir", &["ENOSPC", "EACCES", "EROFS"]),
    ("mmap", &["ENOMEM"]),
    ("open", &["EACCES", "EMFILE", "ENOSPC", "EIO", "EDQUOT"]),
    ("openat", &["EACCES", "EMFILE", "ENOSPC", "EIO"]),
    ("openat2", &["EACCES", "EMFILE", "ENOSYS", "EIO"]),
    ("pidfd_open", &["EMFILE", "ENOSYS"]),
    ("pipe2", &["EMFILE"]),
    ("ppoll", &["EINTR"]),
    ("pread64", &["EIO"]),
    ("pwrite64", &["EIO", "ENOSPC"]),
    ("read", &["EIO", "EINTR"]),
    ("readlink", &["EACCES", "ENOENT"]),
    ("readlinkat", &["EACCES", "ENOENT"]),
    ("rename", &["EACCES", "ENOSPC", "EIO", "EDQUOT"]),
    ("renameat2", &["EACCES", "ENOSPC", "EIO"]),
    ("statx", &["EIO", "EACCES", "ENOSYS"]),
    ("unlink", &["EACCES", "EIO"]),
    ("write", &["ENOSPC", "EIO", "EDQUOT", "EINTR"]),
];
/// A run takes some hundredths of a second. One that takes longer than this is killed, with all that it started.
const HANGS: Duration = Duration::from_secs(20);
/// A run records; before that one may have to learn how well the tool is observed.
const RECOVERS_RUNS_MAX: usize = 3;
/// Calls that are tried in a run of the quick tests.
const QUICK: usize = 60;

/// What larder is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    /// Find nothing, run the tool, record.
    Recording,
    /// Put a record's outputs in place.
    Answering,
}

struct Bench {
    place: Place,
    doing: Doing,
}

/// One call of a run without faults: which it is, which of its name, and on what.
#[derive(Clone, Debug)]
struct Call {
    name: String,
    number: usize,
    line: String,
}

impl Bench {
    fn new(doing: Doing) -> Bench {
        let place = Place::new();
        place.tool("work/mycc", SCRIPT);
        place.put("x.c", "int a;\n");
        place.settle();
        let bench = Bench { place, doing };
        for _ in 0..3 {
            bench.reset();
            bench.right(&bench.compile().run()).expect("before any fault");
        }
        bench
    }

    fn store(&self) -> PathBuf {
        self.place.path("store")
    }

    /// What a run is to begin with.
    fn reset(&self) {
        if self.doing == Doing::Recording && self.store().exists() {
            fs::remove_dir_all(self.store()).expect("removes");
        }
    }

    fn compile(&self) -> Run {
        self.place.run(&[larder().to_str().expect("is text"), "./mycc", "-c", "x.c", "-o", "x.o"])
    }

    /// Run with larder's calls written down, and one of them treated so. What is left running is waited for.
    fn traced(&self, call: Option<(&str, &str)>) -> (Ran, Vec<String>) {
        let log = self.place.path("trace");
        let trace = format!("trace={}", call.map_or("all", |(name, _)| name));
        let inject = call.map_or(String::new(), |(name, treatment)| format!("inject={name}:{treatment}"));
        let mut words = vec!["bash", "-c", "exec 19>&1; exec \"$@\"", "bash"];
        words.extend(["strace", "-y", "-s", "16", "-e", &trace]);
        if call.is_some() {
            words.extend(["-e", &inject]);
        }
        let (log_text, larder) = (log.to_str().expect("is text"), larder().to_str().expect("is text"));
        words.extend(["-o", log_text, larder, "./mycc", "-c", "x.c", "-o", "x.o"]);
        let ran = self.place.run(&words).ends_within(HANGS).unwrap_or_else(|hung| panic!("{hung}"));
        let text = fs::read(&log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
        (ran, text.lines().map(str::to_owned).collect())
    }

    /// Every call of a run without faults.
    fn calls(&self) -> Vec<Call> {
        self.reset();
        let (ran, lines) = self.traced(None);
        self.right(&ran).expect("traced");
        let mut numbers = BTreeMap::new();
        let named = lines.into_iter().filter_map(|line| Some((line.split_once('(')?.0.to_owned(), line)));
        let named = named.filter(|(name, _)| name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_'));
        let calls: Vec<Call> = named
            .map(|(name, line)| {
                let number = numbers.entry(name.clone()).or_insert(0);
                *number += 1;
                Call { name, number: *number, line }
            })
            .collect();
        // Until then it is the loader, where larder is not static; the last call never comes back.
        let starts = calls.iter().position(|call| call.name == "set_tid_address").expect("starts");
        assert!(calls.len() > starts + 20, "{calls:?}");
        calls.into_iter().skip(starts + 1).filter(|call| call.name != "exit_group").collect()
    }

    /// The result is the plain tool's.
    fn right(&self, ran: &Ran) -> Result<(), String> {
        let said = (ran.stdout.as_str(), ran.stderr.as_str(), ran.code);
        let outputs = self.outputs_right();
        if said == ("int a;", "warning\n", Some(3)) { outputs } else { Err(format!("{ran:?}, outputs: {outputs:?}")) }
    }

    fn outputs_right(&self) -> Result<(), String> {
        let object = fs::read(self.place.path("work/x.o")).unwrap_or_default();
        let depfile = fs::read(self.place.path("work/x.d")).unwrap_or_default();
        self.place.remove(&["x.o", "x.d"]);
        let good = object == format!("{:06000}", 7).as_bytes() && depfile == b"dep\n";
        if good { Ok(()) } else { Err(format!("outputs of {} and {} bytes", object.len(), depfile.len())) }
    }

    /// Without faults all is well again: at once in what it gives, and soon in that it is an answer.
    fn recovers(&self) -> Result<(), String> {
        let log = self.place.path("log");
        let _ = fs::remove_file(&log);
        for _ in 0..RECOVERS_RUNS_MAX {
            self.right(&self.compile().env("LARDER_LOG", &log).run()).map_err(|why| format!("afterwards: {why}"))?;
            let text = fs::read_to_string(&log).expect("there is a log");
            if text.lines().last().is_some_and(|line| line.contains(" hit: ")) {
                return Ok(());
            }
        }
        Err(format!("afterwards: {}", fs::read_to_string(&log).expect("there is a log")))
    }
}

impl Call {
    fn treated(&self, treatment: &str) -> String {
        format!("{treatment} at {} number {}: {}", self.name, self.number, self.line)
    }

    /// A message that was not passed on is not there: such a fault the tool itself would have met.
    fn is_message(&self) -> bool {
        self.name == "write" && (self.line.starts_with("write(1<") || self.line.starts_with("write(2<"))
    }

    /// Whether the tool is there is asked once: where that fails, larder says what a shell would.
    fn looks_for_tool(&self) -> bool {
        self.name == "statx" && self.line.contains("\"./mycc\"")
    }

    /// A configuration file that cannot be read is warned of, once.
    fn may_warn(&self) -> bool {
        self.line.contains("larder.toml")
    }
}

/// A spread of them, or all.
fn some<T>(all: Vec<T>, count: usize) -> Vec<T> {
    let step = if is_full() { 1 } else { all.len().div_ceil(count).max(1) };
    all.into_iter().step_by(step).collect()
}

fn has_strace() -> bool {
    // It may be there and not be allowed to trace.
    let place = Place::new();
    larder_testkit::has("strace") && place.run(&["strace", "-o", "/dev/null", "true"]).run().code == Some(0)
}

/// Each call that can fail with each of its errors.
fn fails(doing: Doing) {
    probe_skip!(has_strace(), "strace is not installed, or may not trace");
    let bench = Bench::new(doing);
    let calls = bench.calls();
    let errors = |call: &Call| ERRORS.iter().find(|(name, _)| *name == call.name).map_or(&[][..], |row| row.1);
    // A call that is made to fail is not made at all, so a failed `close` would leave a pipe or a socket open, whose
    // other end waits for that; no real one does. And reading from them does not fail.
    let is_waited_for = |call: &Call| ["pipe:", "socket:"].iter().any(|kind| call.line.contains(kind));
    let honest = |call: &&Call| !matches!(&*call.name, "close" | "read") || !is_waited_for(call);
    let faults =
        calls.iter().filter(honest).flat_map(|call| errors(call).iter().map(move |error| (call, *error))).collect();
    let (mut injected, mut wrong) = (0, Vec::new());
    for (call, error) in some(faults, QUICK) {
        bench.reset();
        let (mut ran, lines) = bench.traced(Some((&call.name, &format!("error={error}:when={}", call.number))));
        injected += usize::from(lines.iter().any(|line| line.ends_with("(INJECTED)")));
        if call.may_warn() && ran.stderr.starts_with("larder: warning: ") {
            ran.stderr = ran.stderr.split_once('\n').expect("is a line").1.to_owned();
        }
        let right = match call.is_message() {
            true if ran.code == Some(3) => bench.outputs_right(),
            _ if call.looks_for_tool() && ran.code == Some(126) => Ok(()),
            _ => bench.right(&ran),
        };
        let why = [right, bench.recovers()].into_iter().filter_map(Result::err);
        wrong.extend(why.map(|why| format!("{}\n    {why}", call.treated(error))));
    }
    println!("{doing:?}: {injected} faults");
    assert!(wrong.is_empty(), "{doing:?}: {} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn any_call_of_a_recording_run_fails() {
    fails(Doing::Recording);
}

#[test]
fn any_call_of_an_answer_fails() {
    fails(Doing::Answering);
}

/// As if written, and not: what a broken disk or file system does.
#[test]
fn what_is_written_to_the_store_is_lost() {
    probe_skip!(has_strace(), "strace is not installed, or may not trace");
    let bench = Bench::new(Doing::Recording);
    let stored = bench.calls().into_iter().filter(|call| call.name == "write" && call.line.contains("/store/v"));
    let stored: Vec<Call> = stored.collect();
    assert!(stored.len() >= 4, "blob, manifest, stamps, counters: {stored:?}");
    for call in &stored {
        for count in [0, 1, 50] {
            bench.reset();
            let (ran, _) = bench.traced(Some(("write", &format!("retval={count}:when={}", call.number))));
            let right = bench.right(&ran).and_then(|()| bench.recovers());
            assert_eq!(right, Ok(()), "{}", call.treated("only some bytes written"));
        }
    }
    let bench = Bench::new(Doing::Answering);
    for call in bench.calls().iter().filter(|call| call.name == "copy_file_range") {
        let (ran, _) = bench.traced(Some((&call.name, &format!("retval=0:when={}", call.number))));
        assert_eq!(bench.right(&ran).and_then(|()| bench.recovers()), Ok(()), "{}", call.treated("nothing copied"));
    }
}

/// Files that are written and not yet in their place.
fn leftovers(store: &Path) -> Vec<PathBuf> {
    let list = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let of_version = |version: PathBuf| {
        let stamps = list(&version.join("stamps")).filter(|path| path.extension().is_some());
        list(&version.join("tmp")).chain(stamps).collect::<Vec<_>>()
    };
    list(store).flat_map(of_version).collect()
}

fn is_killed(doing: Doing) {
    probe_skip!(has_strace(), "strace is not installed, or may not trace");
    let bench = Bench::new(doing);
    let (mut killed, mut left) = (0, 0);
    for call in some(bench.calls(), QUICK) {
        bench.reset();
        let what = call.treated("killed");
        let (ran, _) = bench.traced(Some((&call.name, &format!("signal=KILL:when={}", call.number))));
        killed += usize::from(ran.signal == Some(9));
        bench.place.larder(&["fsck"]).run().ends(0);
        let temporary = leftovers(&bench.store());
        assert!(temporary.len() <= 1, "{what}: {temporary:?}");
        left += temporary.len();
        // Half an output may be there: of the tool, which goes on, or of larder.
        assert_eq!(bench.recovers(), Ok(()), "{what}");
        assert_eq!(leftovers(&bench.store()), temporary, "{what}");
        let long_ago = SystemTime::now() - Duration::from_secs(3600);
        for path in &temporary {
            let file = fs::File::options().append(true).open(path).expect("opens");
            file.set_modified(long_ago).expect("sets");
        }
        if !temporary.is_empty() {
            bench.place.larder(&["evict"]).run().ends(0);
            assert!(leftovers(&bench.store()).is_empty(), "{what}: not swept");
        }
        bench.place.larder(&["fsck"]).run().ends(0);
    }
    assert!(killed > 0);
    println!("{doing:?}: killed {killed} times, {left} temporary files left and swept");
}

#[test]
fn a_recording_run_is_killed_anywhere() {
    is_killed(Doing::Recording);
}

#[test]
fn an_answer_is_killed_anywhere() {
    is_killed(Doing::Answering);
}
