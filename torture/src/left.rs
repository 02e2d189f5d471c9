//! What a command left behind after it ended: running processes and temporary files.
//!
//! Unaware of: how the command was run.

use regex::bytes::Regex;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};

/// How long a process may take to end by itself.
const GRACE: Duration = Duration::from_millis(600);
/// The longest time for that if the machine is busy. The time during which a process waits for a
/// processor does not count. It is shorter than the processes of the cases run that a signal should
/// end.
const GRACE_MAX: Duration = Duration::from_secs(4);
/// How long a killed process may take to disappear.
const VANISH: Duration = Duration::from_secs(30);

/// Returns the names of processes that still run below `root`, shortly after the command's end,
/// except those in `known`. They are killed.
pub(crate) fn processes(root: &Path, known: &[u32]) -> Vec<String> {
    let latest = Instant::now() + GRACE_MAX;
    let mut until = Instant::now() + GRACE;
    let left = loop {
        let left = at_work(root, known);
        if left.keys().any(|pid| wants_a_processor(*pid)) {
            until = latest.min(Instant::now() + GRACE);
        }
        if left.is_empty() || Instant::now() >= until {
            break left;
        }
        thread::sleep(Duration::from_millis(10));
    };
    for pid in left.keys() {
        if let Some(pid) = i32::try_from(*pid).ok().and_then(Pid::from_raw) {
            // The process may have ended meanwhile, so an error is ignored.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
    let until = Instant::now() + VANISH;
    while !left.is_empty() && !at_work(root, known).is_empty() && Instant::now() < until {
        thread::sleep(Duration::from_millis(10));
    }
    let names: BTreeSet<String> = left.into_values().collect();
    names.into_iter().map(|name| format!("running {name}")).collect()
}

fn at_work(root: &Path, known: &[u32]) -> BTreeMap<u32, String> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        // A process may end while they are listed.
        let Ok(cwd) = fs::read_link(entry.path().join("cwd")) else { continue };
        if cwd.starts_with(root) && !known.contains(&pid) {
            let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            found.insert(pid, name.trim().to_owned());
        }
    }
    found
}

/// Returns true if the process runs or could run: state R in `/proc/PID/stat` (proc_pid_stat(5)).
fn wants_a_processor(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('R'))
}

/// Returns the names of temporary files with the random parts masked. The files are removed.
pub(crate) fn temporary_files(dir: &Path) -> Vec<String> {
    static RANDOM: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"^cc[A-Za-z0-9]{6}|-[0-9a-f]{6}\b").expect("is a pattern"));
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        use std::os::unix::ffi::OsStrExt;
        // larder makes this file to print a warning about its store only once.
        if entry.file_name().as_bytes().starts_with(b"larder-warned-") {
            continue;
        }
        let name = RANDOM.replace_all(entry.file_name().as_bytes(), &b"XXXXXX"[..]).into_owned();
        names.push(format!("temporary file {}", String::from_utf8_lossy(&name)));
        // If this fails, the file is found and reported again after the next command.
        let _ = crate::change::remove(&entry.path());
    }
    names.sort();
    names
}
