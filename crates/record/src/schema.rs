//! The schema of a record's files. All of it is JSON: one object per file, or one per line in files
//! that are appended to while a build runs.
//!
//! Unknown fields are skipped and missing ones get their default, so that records of other versions
//! can be read. `FORMAT` changes if that would mislead.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The version of the schema.
pub const FORMAT: u32 = 1;

/// `record.json`: the header of a record, with the command and the options. It is written first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Header {
    /// The [`FORMAT`] of the larder that wrote it.
    pub format: u32,
    /// The name of the record.
    pub name: String,
    /// The version of larder.
    pub larder: String,
    /// The start time, in seconds since 1970.
    pub began_s: i64,
    /// The command, without secrets.
    pub command: Vec<String>,
    /// The working directory of the command.
    pub cwd: String,
    /// The command that a shell ran before each run.
    pub prepare: Option<String>,
    /// The requested number of timed runs.
    pub runs: u32,
    /// True if any run is traced.
    pub traced: bool,
    /// Further options, as they would be typed.
    pub options: Vec<String>,
    /// The side, if the session compared two.
    pub side: Option<Side>,
    /// The environment variables that were kept, without secrets.
    pub environment: BTreeMap<String, String>,
    /// Short digests of the values of all other variables.
    pub environment_digests: BTreeMap<String, String>,
}

/// One side of a session that alternated between two.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Side {
    /// The ID of the session, which is equal for both sides.
    pub session: String,
    /// `a` or `b`.
    pub letter: String,
    /// The configuration file of this side.
    pub configuration: String,
}

/// `context.json`: the context of the measurement, without which its times mean nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Context {
    /// The project that was built.
    pub project: Option<Git>,
    /// larder's own source, if its program lies in a checkout.
    pub larder: Option<Git>,
    /// larder's programs, as a map from path to digest.
    pub binaries: BTreeMap<String, String>,
    /// All settings with their values and sources.
    pub configuration: Vec<Configured>,
    /// The machine and the system.
    pub machine: Machine,
    /// Compilers and build tools, by content.
    pub tools: Vec<Tool>,
    /// What could not be found out, and why.
    pub missing: Vec<String>,
}

/// A setting.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Configured {
    /// The key.
    pub key: String,
    /// The value.
    pub value: String,
    /// The source of the value, for example a file or a variable.
    pub source: String,
}

/// A checkout.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Git {
    /// The top directory.
    pub top: String,
    /// The hash of the commit.
    pub head: String,
    /// The branch, or an empty string.
    pub branch: String,
    /// The base from which commits are counted: a revision and its hash.
    pub base: String,
    /// The commits since the base, newest first: hash and subject.
    pub commits: Vec<(String, String)>,
    /// The commits whose subject starts with the configured prefix.
    pub tagged: Vec<(String, String)>,
    /// The uncommitted changes, as printed by `git status --porcelain`.
    pub status: Vec<String>,
    /// A digest of the diff to the commit; empty if there is no difference.
    pub diff_digest: String,
    /// A digest of the names and contents of untracked files that are not ignored; empty if there
    /// are none.
    #[serde(default)]
    pub untracked_digest: String,
}

/// The machine and the system.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// The host name.
    pub host: String,
    /// The kernel's version.
    pub kernel: String,
    /// The distribution.
    pub system: String,
    /// The boot ID.
    pub boot: String,
    /// The name of the processor.
    pub processor: String,
    /// The number of processors that this process may use.
    pub processors: u32,
    /// True if it is a virtual machine.
    pub hypervisor: bool,
    /// The CPU frequency governor; empty if it is unknown.
    pub governor: String,
    /// Whether the processor may boost, `on` or `off`; empty if it is unknown.
    pub boost: String,
    /// The memory, in bytes.
    pub memory_bytes: u64,
    /// The swap space, in bytes.
    pub swap_bytes: u64,
    /// The mode of transparent huge pages.
    pub huge_pages: String,
    /// The number of reserved huge pages.
    pub huge_pages_kept: u64,
    /// The file systems of the relevant directories, as a map from purpose to device, type and
    /// options.
    pub file_systems: BTreeMap<String, String>,
    /// The container runtime; empty outside of containers.
    pub container: String,
    /// The limits of the control group and of the process.
    pub limits: BTreeMap<String, String>,
}

/// A program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tool {
    /// The name under which it is called.
    pub name: String,
    /// Its canonical path.
    pub path: String,
    /// A digest of its content.
    pub digest: String,
    /// The first line of the output of `--version`.
    pub version: String,
}

/// `runs/N/run.json`: how a run was started, and after its end how it ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Run {
    /// The number, from 1.
    pub number: u32,
    /// The number of the pair that this run belongs to, from 1.
    pub pair: Option<u32>,
    /// True if it ran first in its pair.
    pub first: bool,
    /// True if its processes were traced, so that its time is not comparable.
    pub traced: bool,
    /// The start time, in nanoseconds since 1970.
    pub began_ns: u64,
    /// How it ended, or `None` if the record was cut off.
    pub end: Option<RunEnd>,
    /// The load before it.
    pub before: Load,
}

/// How a run ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunEnd {
    /// The wall time, in nanoseconds.
    pub wall_ns: u64,
    /// The exit code, or 128 + the number of the signal.
    pub exit_code: i32,
    /// The resources that all its waited-for processes used.
    pub usage: Usage,
    /// The CPU time of the recorder itself, in microseconds.
    pub recorder_us: u64,
    /// The number of times the tracer stopped a process.
    pub stops: u64,
    /// Why processes were not traced although that was requested.
    pub not_traced: Option<String>,
    /// True if the user interrupted it: a signal came that was meant for the recorder too.
    pub interrupted: bool,
    /// The number of processes that still ran after the command ended.
    pub left: u64,
    /// The CPU time of other processes, as a share of all processors, from 0 to 1.
    pub foreign_share: f64,
    /// The CPU time of all processes, as a share of all processors.
    pub busy_share: f64,
    /// The other processes with the most CPU time, at most ten.
    pub busiest: Vec<Busy>,
    /// The load after it.
    pub after: Load,
    /// The files that build tools wrote about it, and those that were attached.
    pub reports: Vec<Report>,
    /// The number of spans of these files that were too many.
    pub spans_left_out: u64,
}

/// A file that a build tool wrote about a run, or that was attached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// Its path.
    pub path: String,
    /// Its format: `ninja`, `Bazel`, `cargo`, `clang`, `make` or `trace`. Empty if it is not known.
    pub form: String,
    /// The number of its spans in the run.
    pub spans: u64,
    /// Why it, or a part of it, could not be used.
    pub problem: String,
}

/// A line of `runs/N/spans.jsonl`: a span of time from a build tool's report. Times are in
/// nanoseconds since the run began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Span {
    /// The index of its report.
    pub report: usize,
    /// The output, action or pass that took this time.
    pub name: String,
    /// More about it, for example a target.
    pub detail: String,
    /// The start.
    pub start_ns: u64,
    /// The end.
    pub end_ns: u64,
}

/// The resources that processes used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// The CPU time in user mode, in microseconds.
    pub user_us: u64,
    /// The CPU time in the kernel, in microseconds.
    pub system_us: u64,
    /// The peak memory of a single process, in bytes.
    pub peak_bytes: u64,
    /// Page faults without I/O.
    pub minor_faults: u64,
    /// Page faults with I/O.
    pub major_faults: u64,
    /// Voluntary context switches.
    pub voluntary_switches: u64,
    /// Involuntary context switches.
    pub involuntary_switches: u64,
}

impl Usage {
    /// Returns the total CPU time, in microseconds.
    pub fn cpu_us(&self) -> u64 {
        self.user_us + self.system_us
    }

    /// Returns what was used since `before`. The peak is kept.
    pub fn since(&self, before: &Usage) -> Usage {
        let Usage { peak_bytes, .. } = *self;
        Usage {
            user_us: self.user_us.saturating_sub(before.user_us),
            system_us: self.system_us.saturating_sub(before.system_us),
            peak_bytes,
            minor_faults: self.minor_faults.saturating_sub(before.minor_faults),
            major_faults: self.major_faults.saturating_sub(before.major_faults),
            voluntary_switches: self.voluntary_switches.saturating_sub(before.voluntary_switches),
            involuntary_switches: self.involuntary_switches.saturating_sub(before.involuntary_switches),
        }
    }

    /// Returns the sum of both. The peak is the larger one.
    pub fn and(&self, other: &Usage) -> Usage {
        Usage {
            user_us: self.user_us + other.user_us,
            system_us: self.system_us + other.system_us,
            peak_bytes: self.peak_bytes.max(other.peak_bytes),
            minor_faults: self.minor_faults + other.minor_faults,
            major_faults: self.major_faults + other.major_faults,
            voluntary_switches: self.voluntary_switches + other.voluntary_switches,
            involuntary_switches: self.involuntary_switches + other.involuntary_switches,
        }
    }
}

impl From<larder_sys::Usage> for Usage {
    fn from(usage: larder_sys::Usage) -> Self {
        let larder_sys::Usage { user_us, system_us, peak_bytes, minor_faults, major_faults, .. } = usage;
        let larder_sys::Usage { voluntary_switches, involuntary_switches, .. } = usage;
        Usage { user_us, system_us, peak_bytes, minor_faults, major_faults, voluntary_switches, involuntary_switches }
    }
}

/// A process that does not belong to the build.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Busy {
    /// The process ID.
    pub pid: i32,
    /// The process name.
    pub name: String,
    /// Its CPU time, in milliseconds.
    pub cpu_ms: u64,
}

/// The load of the machine: one line per second in `runs/N/load.jsonl`, and before and after a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Load {
    /// The time, in nanoseconds since the run began.
    pub t: u64,
    /// The load average of one minute.
    pub load_1: f64,
    /// The number of processes and threads that are running now.
    pub running: u32,
    /// The available memory, in bytes.
    pub free_bytes: u64,
    /// The share of all processors that was busy since the previous line.
    pub busy_share: f64,
    /// The CPU pressure over ten seconds, in per cent (`/proc/pressure/cpu`); below 0 if it is
    /// unknown.
    pub pressure_cpu: f64,
    /// The I/O pressure over ten seconds, in per cent (`/proc/pressure/io`); below 0 if it is
    /// unknown.
    pub pressure_io: f64,
}

/// A line of `runs/N/events.jsonl`: an event of a process. `t` is in nanoseconds since the run
/// began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "e", rename_all = "lowercase")]
pub enum Event {
    /// A process was created.
    Fork {
        /// The time.
        t: u64,
        /// The parent's process ID.
        parent: i32,
        /// The new process ID.
        pid: i32,
    },
    /// A process executed a program.
    Exec {
        /// The time.
        t: u64,
        /// The process ID.
        pid: i32,
        /// The path of the program.
        exe: String,
        /// The arguments, without secrets.
        argv: Vec<String>,
        /// The working directory, if it differs from that of the process's previous program, or at
        /// first from the parent's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cwd: Option<String>,
    },
    /// A process ended.
    Exit {
        /// The time.
        t: u64,
        /// The process ID.
        pid: i32,
        /// The exit code, or 128 + the number of the signal.
        code: i32,
        /// What it used, including the children that it waited for.
        usage: Usage,
        /// Its own peak memory in bytes, if it had children.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        peak: Option<u64>,
        /// The number of threads that it started.
        #[serde(default, skip_serializing_if = "is_zero")]
        threads: u32,
    },
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// A line of `runs/N/actions.jsonl`: one command that ran through a wrapper.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Action {
    /// The process ID of the wrapper.
    pub pid: i32,
    /// The time when the wrapper began, in nanoseconds since 1970.
    pub began_ns: u64,
    /// The time until the wrapper wrote this line, in nanoseconds.
    pub took_ns: u64,
    /// `hit`, `miss`, `bypass` or `fallback`.
    pub outcome: String,
    /// The code of the reason. For a miss, why its result was not recorded.
    pub reason: String,
    /// How a hit came about: `waited` for another process, `fetched` from a remote, or `raced`,
    /// which means downloaded while the tool ran.
    pub via: String,
    /// The first digits of the weak fingerprint.
    pub key: String,
    /// The tool, as it was called.
    pub tool: String,
    /// The source file, or another main input.
    pub source: String,
    /// For a miss, the first difference from the record.
    pub cause: String,
    /// More detail in words.
    pub detail: String,
    /// The working directory.
    pub cwd: String,
    /// For a hit, the bytes of restored outputs; for a miss, the bytes by which the store grew.
    pub bytes: u64,
    /// The time of each step, in nanoseconds.
    pub phases: BTreeMap<String, u64>,
}
