//! The load of the machine: at one moment, once a second during a run, and which other processes
//! used the CPU.
//!
//! The share of CPU time that other processes used is what separates good measurements from bad
//! ones. It is the busy time in `/proc/stat`, minus what the build's processes used.
//!
//! Unaware of: what runs.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use procfs::process::all_processes;
use procfs::{Current, CurrentSI, KernelStats, LoadAverage, Meminfo};

use crate::schema::{Busy, Load, Usage};

/// The interval between two lines. One sample costs 0.1 ms, and a scan of all processes costs 2 ms
/// with 200 of them.
const EVERY: Duration = Duration::from_secs(1);
/// The number of lines between two scans of all processes.
const PROCESSES_EVERY: u32 = 2;
/// The largest number of other processes that are listed.
const BUSIEST_MAX: usize = 10;
/// Other processes with fewer ticks of CPU time are not listed.
const TICKS_MIN: u64 = 2;

/// CPU ticks of all processors since boot.
#[derive(Clone, Copy, Default)]
struct Ticks {
    busy: u64,
    all: u64,
}

impl Ticks {
    fn now() -> Ticks {
        let Ok(stats) = KernelStats::current() else { return Ticks::default() };
        let cpu = stats.total;
        // A guest's time is already part of `user` and `nice`.
        let stolen = cpu.steal.unwrap_or(0);
        let busy = cpu.user + cpu.nice + cpu.system + cpu.irq.unwrap_or(0) + cpu.softirq.unwrap_or(0) + stolen;
        Ticks { busy, all: busy + cpu.idle + cpu.iowait.unwrap_or(0) }
    }

    fn share_since(&self, before: &Ticks) -> f64 {
        let all = self.all.saturating_sub(before.all);
        if all == 0 { 0.0 } else { self.busy.saturating_sub(before.busy) as f64 / all as f64 }
    }
}

/// Returns the load at this moment.
pub(crate) fn now() -> Load {
    let average = LoadAverage::current().ok();
    let memory = Meminfo::current().ok();
    Load {
        t: 0,
        load_1: average.as_ref().map_or(0.0, |average| f64::from(average.one)),
        running: average.map_or(0, |average| average.cur),
        free_bytes: memory.and_then(|memory| memory.mem_available).unwrap_or(0),
        busy_share: 0.0,
        pressure_cpu: pressure("cpu"),
        pressure_io: pressure("io"),
    }
}

/// Returns the number in a line such as `some avg10=0.12 …`, or -1 if the kernel does not provide
/// it.
fn pressure(of: &str) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/pressure/{of}")).unwrap_or_default();
    let number = text.split_once("avg10=").and_then(|(_, rest)| rest.split(' ').next());
    number.and_then(|number| number.parse().ok()).unwrap_or(-1.0)
}

/// A thread that watches the machine during a run.
pub(crate) struct Watch {
    stop: Sender<()>,
    thread: JoinHandle<Vec<Busy>>,
    before: Ticks,
    began: Instant,
}

/// The result of a watch.
pub(crate) struct Watched {
    pub(crate) foreign_share: f64,
    pub(crate) busy_share: f64,
    pub(crate) busiest: Vec<Busy>,
}

impl Watch {
    /// Starts the thread, which appends lines to `lines`. `others` is a scan of the processes
    /// before the run.
    pub(crate) fn begin(mut others: Others, lines: File, began: Instant) -> Watch {
        let (stop, stopped) = channel::<()>();
        let thread = std::thread::spawn(move || {
            let (mut lines, mut before, mut count) = (lines, Ticks::now(), 0);
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(EVERY) {
                let ticks = Ticks::now();
                let t = began.elapsed().as_nanos() as u64;
                let load = Load { t, busy_share: ticks.share_since(&before), ..now() };
                before = ticks;
                if let Ok(mut line) = serde_json::to_vec(&load) {
                    line.push(b'\n');
                    let _ = lines.write_all(&line);
                }
                count += 1;
                if count % PROCESSES_EVERY == 0 {
                    others.look();
                }
            }
            others.look();
            others.busiest()
        });
        Watch { stop, thread, before: Ticks::now(), began }
    }

    /// Stops the thread. `ours` is what all processes of the run used.
    pub(crate) fn end(self, ours: &Usage) -> Watched {
        let after = Ticks::now();
        let elapsed_us = self.began.elapsed().as_micros() as f64;
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get());
        drop(self.stop);
        let busy_share = after.share_since(&self.before);
        // Counts all processors of the machine, even those that this process may not use.
        let all = KernelStats::current().map_or(processors, |stats| stats.cpu_time.len().max(1));
        let ours = ours.cpu_us() as f64 / (elapsed_us * all as f64).max(1.0);
        let busiest = self.thread.join().unwrap_or_default();
        Watched { foreign_share: (busy_share - ours).clamp(0.0, 1.0), busy_share, busiest }
    }
}

/// The processes that do not belong to the build, with their CPU time.
#[derive(Default)]
pub(crate) struct Others {
    looked: bool,
    /// Maps (process ID, start time) to (name, ticks when first seen, ticks now).
    seen: HashMap<(i32, u64), (String, u64, u64)>,
}

impl Others {
    /// Scans the processes that exist now, which takes some milliseconds.
    pub(crate) fn now() -> Others {
        let mut others = Others::default();
        others.look();
        others
    }

    fn look(&mut self) {
        let Ok(all) = all_processes() else { return };
        let stats: Vec<_> = all.flatten().filter_map(|process| process.stat().ok()).collect();
        let parents: HashMap<i32, i32> = stats.iter().map(|stat| (stat.pid, stat.ppid)).collect();
        let own = larder_sys::process_id() as i32;
        let is_ours = |pid: i32| {
            let mut above = Some(pid);
            for _ in 0..parents.len() {
                match above {
                    Some(pid) if pid == own => return true,
                    Some(pid) => above = parents.get(&pid).copied(),
                    None => return false,
                }
            }
            false
        };
        for stat in stats.iter().filter(|stat| !is_ours(stat.pid)) {
            let ticks = stat.utime + stat.stime;
            // A process that started after the first scan has used all its ticks since then.
            let first = if self.looked { 0 } else { ticks };
            let one = self.seen.entry((stat.pid, stat.starttime)).or_insert_with(|| (stat.comm.clone(), first, ticks));
            one.2 = ticks;
        }
        self.looked = true;
    }

    fn busiest(self) -> Vec<Busy> {
        let used = self.seen.into_iter().map(|((pid, _), (name, first, now))| (now.saturating_sub(first), pid, name));
        let mut used: Vec<_> = used.filter(|(ticks, ..)| *ticks >= TICKS_MIN).collect();
        used.sort_by(|a, b| b.cmp(a));
        let ms = 1000 / procfs::ticks_per_second().max(1);
        used.into_iter().take(BUSIEST_MAX).map(|(ticks, pid, name)| Busy { pid, name, cpu_ms: ticks * ms }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_is_there() {
        let load = now();
        assert!(load.free_bytes > 0 && load.running >= 1, "{load:?}");
    }

    #[test]
    fn a_busy_stranger_is_named_and_counted() {
        // The busy process is no child of this one, because its parent ends at once.
        let began = Instant::now();
        let lines = tempfile::tempfile().expect("a file");
        let watch = Watch::begin(Others::now(), lines, began);
        let script = "(timeout 5 sh -c 'while :; do :; done' >/dev/null 2>&1 & echo $!) | cat";
        let shell = std::process::Command::new("setsid").args(["sh", "-c", script]).output().expect("a shell");
        std::thread::sleep(Duration::from_millis(1500));
        let watched = watch.end(&Usage::default());
        let pid: String = String::from_utf8_lossy(&shell.stdout).trim().to_owned();
        let _ = std::process::Command::new("kill").arg(&pid).status();
        assert!(watched.foreign_share > 0.05, "{}", watched.foreign_share);
        assert!(!watched.busiest.is_empty() && watched.busiest.len() <= BUSIEST_MAX, "{:?}", watched.busiest);
    }
}
