//! Lets every system call of larder fail, or kills larder at it, one call at a time. The tool's
//! result must arrive nevertheless, and the next run must also be right. With `LARDER_TEST_FULL=1`
//! each call gets each error; otherwise only some of them.
//!
//! `strace` injects the faults into larder only; processes that it starts are not traced. Only one
//! call fails in a run. So if larder then replaces itself by the tool, the tool runs without
//! faults.
#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use larder_testkit::{Place, Ran, Run, is_full, larder_text, probe_skip};

/// The tool reads an input, prints to both streams, and ends with an unusual exit code. Its object
/// is stored as a blob, and its other output is kept inside the record.
const SCRIPT: &str =
    "read line < x.c; printf %s \"$line\"; echo warning >&2; printf %06000d 7 > x.o; echo dep > x.d; exit 3";

/// The errors that each call can fail with. A call that is missing here never fails, or never for a
/// reason outside of larder (`wait4`, `rt_sigaction`).
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
/// A run takes some hundredths of a second. A run that takes longer than this is killed with all
/// processes that it started.
const HANGS: Duration = Duration::from_secs(20);
/// The most runs until a hit. Before that, larder may have to learn how well the tool can be
/// observed.
const RECOVERS_RUNS_MAX: usize = 3;
/// The number of calls that are tried in a run of the quick tests.
const QUICK: usize = 60;

/// The two kinds of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    /// It finds no record, runs the tool and records.
    Recording,
    /// It puts the outputs of a record in place.
    Answering,
}

struct Bench {
    place: Place,
    doing: Doing,
}

/// One system call of a run without faults: its name, its number among the calls of that name, and
/// strace's line.
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
            bench.right(&bench.compile().run()).expect("a run without faults has a wrong result");
        }
        bench
    }

    fn store(&self) -> PathBuf {
        self.place.path("store")
    }

    /// Brings the store into the state in which a run must begin.
    fn reset(&self) {
        if self.doing == Doing::Recording && self.store().exists() {
            fs::remove_dir_all(self.store()).expect("cannot remove the directory");
        }
    }

    fn compile(&self) -> Run {
        self.place.word(&["./mycc", "-c", "x.c", "-o", "x.o"])
    }

    /// Runs larder under strace, with a fault in one call if `call` names one. Returns the result
    /// and the traced calls. Waits for processes that are left running.
    fn traced(&self, call: Option<(&str, &str)>) -> (Ran, Vec<String>) {
        let log = self.place.path("trace");
        let trace = format!("trace={}", call.map_or("all", |(name, _)| name));
        let inject = call.map_or(String::new(), |(name, treatment)| format!("inject={name}:{treatment}"));
        let mut words = vec!["bash", "-c", "exec 19>&1; exec \"$@\"", "bash"];
        words.extend(["strace", "-y", "-s", "16", "-e", &trace]);
        if call.is_some() {
            words.extend(["-e", &inject]);
        }
        let (log_text, larder) = (log.to_str().expect("not UTF-8"), larder_text());
        words.extend(["-o", log_text, larder, "./mycc", "-c", "x.c", "-o", "x.o"]);
        let ran = self.place.run(&words).ends_within(HANGS).unwrap_or_else(|hung| panic!("{hung}"));
        let text = fs::read(&log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
        (ran, text.lines().map(str::to_owned).collect())
    }

    /// Returns every system call of a run without faults.
    fn calls(&self) -> Vec<Call> {
        self.reset();
        let (ran, lines) = self.traced(None);
        self.right(&ran).expect("a traced run without faults has a wrong result");
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
        // If larder is not static, the calls before this are the dynamic loader's. The last call
        // never returns.
        let starts = calls
            .iter()
            .position(|call| call.name == "set_tid_address")
            .expect("the start of larder is not in the trace");
        assert!(calls.len() > starts + 20, "{calls:?}");
        calls.into_iter().skip(starts + 1).filter(|call| call.name != "exit_group").collect()
    }

    /// Checks that a run gave the result of the tool.
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

    /// Checks that without faults each run gives the right result at once, and hits after a few
    /// runs.
    fn recovers(&self) -> Result<(), String> {
        let log = self.place.path("log");
        let _ = fs::remove_file(&log);
        for _ in 0..RECOVERS_RUNS_MAX {
            self.right(&self.compile().env("LARDER_LOG", &log).run()).map_err(|why| format!("afterwards: {why}"))?;
            let text = fs::read_to_string(&log).expect("cannot read the log");
            if text.lines().last().is_some_and(|line| line.contains(" hit: ")) {
                return Ok(());
            }
        }
        Err(format!("afterwards: {}", fs::read_to_string(&log).expect("cannot read the log")))
    }
}

impl Call {
    fn treated(&self, treatment: &str) -> String {
        format!("{treatment} at {} number {}: {}", self.name, self.number, self.line)
    }

    /// If the fault hits the write of a message, the message is lost. The tool itself would have
    /// met that fault too.
    fn is_message(&self) -> bool {
        self.name == "write" && (self.line.starts_with("write(1<") || self.line.starts_with("write(2<"))
    }

    /// Returns true if the call is the stat of the tool. larder makes it only once; if it fails,
    /// larder prints what a shell would.
    fn looks_for_tool(&self) -> bool {
        self.name == "statx" && self.line.contains("\"./mycc\"")
    }

    /// larder warns once about a configuration file that cannot be read.
    fn may_warn(&self) -> bool {
        self.line.contains("larder.toml")
    }
}

/// Returns some elements, evenly spread, or all of them for the full test.
fn some<T>(all: Vec<T>, count: usize) -> Vec<T> {
    let step = if is_full() { 1 } else { all.len().div_ceil(count).max(1) };
    all.into_iter().step_by(step).collect()
}

fn has_strace() -> bool {
    // strace may be installed, but not be allowed to trace.
    let place = Place::new();
    larder_testkit::has("strace") && place.run(&["strace", "-o", "/dev/null", "true"]).run().code == Some(0)
}

/// Lets each call that can fail do so with each of its errors.
fn fails(doing: Doing) {
    probe_skip!(has_strace(), "strace is not installed, or may not trace");
    let bench = Bench::new(doing);
    let calls = bench.calls();
    let errors = |call: &Call| ERRORS.iter().find(|(name, _)| *name == call.name).map_or(&[][..], |row| row.1);
    // An injected failure skips the call. So a failed `close` would leave a pipe or socket open,
    // and its other end would wait, which no real failure causes. And reads from pipes and sockets
    // do not fail.
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
            ran.stderr = ran.stderr.split_once('\n').expect("the log has no line").1.to_owned();
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

/// A write reports success without writing, as with a broken disk or file system.
#[test]
fn what_is_written_to_the_store_is_lost() {
    probe_skip!(has_strace(), "strace is not installed, or may not trace");
    let bench = Bench::new(Doing::Recording);
    let stored = bench.calls().into_iter().filter(|call| call.name == "write" && call.line.contains("/store/v"));
    let stored: Vec<Call> = stored.collect();
    assert!(stored.len() >= 4, "larder writes at least a blob, a manifest, stamps and counters: {stored:?}");
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

/// Returns temporary files that were written, but not renamed to their place.
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
        // Half an output may exist, because the tool goes on writing, or because larder was killed
        // while writing.
        assert_eq!(bench.recovers(), Ok(()), "{what}");
        assert_eq!(leftovers(&bench.store()), temporary, "{what}");
        let long_ago = SystemTime::now() - Duration::from_secs(3600);
        for path in &temporary {
            let file = fs::File::options().append(true).open(path).expect("cannot open the file");
            file.set_modified(long_ago).expect("cannot set the mtime");
        }
        if !temporary.is_empty() {
            bench.place.larder(&["evict"]).run().ends(0);
            assert!(leftovers(&bench.store()).is_empty(), "{what}: temporary files must be removed");
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
