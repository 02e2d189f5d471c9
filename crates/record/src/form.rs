//! What the files of a record hold. All of it is JSON: one object a file, or where lines are appended while a build
//! runs, one a line.
//!
//! A field that a reader does not know is passed over, and one that is not there has its default, so that records of
//! other versions can be read; `FORMAT` changes where that would mislead.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The version of the form.
pub const FORMAT: u32 = 1;

/// `record.json`: what was asked for. Written first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Header {
    /// [`FORMAT`] of who wrote it.
    pub format: u32,
    /// Its name.
    pub name: String,
    /// larder's version.
    pub larder: String,
    /// When it was begun, in seconds since 1970.
    pub began_s: i64,
    /// The command, secrets taken out.
    pub command: Vec<String>,
    /// Where it ran.
    pub cwd: String,
    /// What ran before each run, through a shell.
    pub prepare: Option<String>,
    /// How many timed runs were asked for.
    pub runs: u32,
    /// Whether one more was, or the only one, whose processes are followed.
    pub traced: bool,
    /// Options beside these, as they are typed.
    pub options: Vec<String>,
    /// Which side of a comparison in one session it is.
    pub side: Option<Side>,
    /// Variables of the environment that were kept, secrets taken out.
    pub environment: BTreeMap<String, String>,
    /// Of all other variables a short digest of the value.
    pub environment_digests: BTreeMap<String, String>,
}

/// One side of a session that runs two in turn.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Side {
    /// Which session: the same for both sides.
    pub session: String,
    /// `a` or `b`.
    pub letter: String,
    /// The configuration file of this side.
    pub configuration: String,
}

/// `context.json`: what a measurement has to be believed with.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Context {
    /// The project that was built.
    pub project: Option<Git>,
    /// larder's own source, where its program lies in a checkout.
    pub larder: Option<Git>,
    /// larder's programs: path → digest.
    pub binaries: BTreeMap<String, String>,
    /// Each setting, its value and who set it.
    pub configuration: Vec<Configured>,
    /// Machine and system.
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
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: String,
    /// Who set it.
    pub source: String,
}

/// A checkout.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Git {
    /// Its top.
    pub top: String,
    /// The commit.
    pub head: String,
    /// The branch, where there is one.
    pub branch: String,
    /// What the commits are counted from: a revision and its digest.
    pub base: String,
    /// Commits since the base, newest first: digest and subject.
    pub commits: Vec<(String, String)>,
    /// Those whose subject starts with the prefix that is set.
    pub tagged: Vec<(String, String)>,
    /// What is not committed, as `git status --porcelain` says it.
    pub status: Vec<String>,
    /// Digest of the difference to the commit; none where there is no difference.
    pub diff_digest: String,
    /// Digest of the names and contents of files that are neither tracked nor ignored; none where there are none.
    #[serde(default)]
    pub untracked_digest: String,
}

/// Machine and system.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// Its name.
    pub host: String,
    /// The kernel's version.
    pub kernel: String,
    /// The distribution.
    pub system: String,
    /// What is booted, so that one boot can be told from another.
    pub boot: String,
    /// The processor's name.
    pub processor: String,
    /// Processors that this process may use.
    pub processors: u32,
    /// Whether a hypervisor is below.
    pub hypervisor: bool,
    /// How the clock rate is chosen; empty where that cannot be seen.
    pub governor: String,
    /// Whether the processor may exceed its rate; empty where that cannot be seen.
    pub boost: String,
    /// Memory, in bytes.
    pub memory_bytes: u64,
    /// Swap, in bytes.
    pub swap_bytes: u64,
    /// How transparent huge pages are given.
    pub huge_pages: String,
    /// Huge pages that are kept.
    pub huge_pages_kept: u64,
    /// File systems of the places that matter: place → device, kind, options.
    pub file_systems: BTreeMap<String, String>,
    /// The container that this is in; empty where it is none.
    pub container: String,
    /// Limits of the control group, and of the process.
    pub limits: BTreeMap<String, String>,
}

/// A program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tool {
    /// As it is called.
    pub name: String,
    /// Its real path.
    pub path: String,
    /// Digest of its content.
    pub digest: String,
    /// The first line of what it says of its version.
    pub version: String,
}

/// `runs/N/run.json`: how a run was begun, and once it has ended how it ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Run {
    /// From 1.
    pub number: u32,
    /// Of which pair of a session it is a half, from 1.
    pub pair: Option<u32>,
    /// Whether it ran first in its pair.
    pub first: bool,
    /// Its processes were followed: no time to be compared.
    pub traced: bool,
    /// When it began, in nanoseconds since 1970.
    pub began_ns: u64,
    /// How it ended. `None`: the record was cut off.
    pub end: Option<RunEnd>,
    /// Load before it.
    pub before: Load,
}

/// How a run ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunEnd {
    /// How long it took, in nanoseconds.
    pub wall_ns: u64,
    /// The exit code; 128 + the signal that ended it.
    pub exit_code: i32,
    /// What all its processes used that were waited for.
    pub usage: Usage,
    /// What the recorder used meanwhile, in microseconds of processor time.
    pub recorder_us: u64,
    /// How often the tracer stopped a process.
    pub stops: u64,
    /// Why processes were not followed though that was asked for.
    pub not_traced: Option<String>,
    /// A signal came that was meant for the recorder as well: its user ended it.
    pub interrupted: bool,
    /// How many processes went on when the command had ended.
    pub left: u64,
    /// Processor time that others used meanwhile, as a share of all processors: 0 to 1.
    pub foreign_share: f64,
    /// Processor time that was used by anybody, as a share of all processors.
    pub busy_share: f64,
    /// Those others that used most: at most ten.
    pub busiest: Vec<Busy>,
    /// Load after it.
    pub after: Load,
}

/// What processes used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Processor time outside the kernel, in microseconds.
    pub user_us: u64,
    /// Processor time in the kernel, in microseconds.
    pub system_us: u64,
    /// The most memory that one process held at once, in bytes.
    pub peak_bytes: u64,
    /// Page faults that read nothing.
    pub minor_faults: u64,
    /// Page faults that read from a device.
    pub major_faults: u64,
    /// Times that the processor was given up.
    pub voluntary_switches: u64,
    /// Times that it was taken.
    pub involuntary_switches: u64,
}

impl Usage {
    /// All processor time, in microseconds.
    pub fn cpu_us(&self) -> u64 {
        self.user_us + self.system_us
    }

    /// What was used since `before`. The peak stays.
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

    /// Both together: the peak is the larger one.
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

/// A process of somebody else's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Busy {
    /// Its id.
    pub pid: i32,
    /// Its name.
    pub name: String,
    /// Processor time that it used, in milliseconds.
    pub cpu_ms: u64,
}

/// `runs/N/load.jsonl`, a line a second; and load before and after a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Load {
    /// Nanoseconds since the run began.
    pub t: u64,
    /// Processes that run or wait to, on average over a minute.
    pub load_1: f64,
    /// Processes and threads that run at this moment.
    pub running: u32,
    /// Memory that is to be had, in bytes.
    pub free_bytes: u64,
    /// Of the time since the line before, the share of all processors that was used.
    pub busy_share: f64,
    /// Time in which something waited for a processor, in per cent over ten seconds; below 0 where that is not known.
    pub pressure_cpu: f64,
    /// The same for input and output.
    pub pressure_io: f64,
}

/// `runs/N/events.jsonl`, a line for each thing that a process did. `t` is nanoseconds since the run began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "e", rename_all = "lowercase")]
pub enum Event {
    /// A process was made.
    Fork {
        /// When.
        t: u64,
        /// By whom.
        parent: i32,
        /// Itself.
        pid: i32,
    },
    /// A process runs another program.
    Exec {
        /// When.
        t: u64,
        /// Which.
        pid: i32,
        /// The program's file.
        exe: String,
        /// Its arguments, secrets taken out.
        argv: Vec<String>,
        /// Its directory, where that is not its parent's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cwd: Option<String>,
    },
    /// A process has ended.
    Exit {
        /// When.
        t: u64,
        /// Which.
        pid: i32,
        /// Its exit code; 128 + the signal that ended it.
        code: i32,
        /// What it used, with those of its children that it waited for.
        usage: Usage,
        /// The most memory that it held itself, in bytes, where it has children.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        peak: Option<u64>,
        /// Threads that it started.
        #[serde(default, skip_serializing_if = "is_zero")]
        threads: u32,
    },
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// `runs/N/actions.jsonl`, a line for each command that a wrapper was in front of.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Action {
    /// The wrapper's process.
    pub pid: i32,
    /// When the wrapper began, in nanoseconds since 1970.
    pub began_ns: u64,
    /// How long it took until it said this, in nanoseconds.
    pub took_ns: u64,
    /// `hit`, `miss`, `bypass` or `fallback`.
    pub outcome: String,
    /// The reason's code; of a miss, why its result was not recorded.
    pub reason: String,
    /// `waited` for another process, `fetched` from a remote, `raced` and fetched.
    pub via: String,
    /// The weak fingerprint's first digits.
    pub key: String,
    /// The tool as it was called.
    pub tool: String,
    /// What it worked on.
    pub source: String,
    /// Of a miss, the first thing that was not as recorded.
    pub cause: String,
    /// More words on it.
    pub detail: String,
    /// Where it ran.
    pub cwd: String,
    /// Bytes that were put in place, or by which the store grew.
    pub bytes: u64,
    /// Nanoseconds of each step.
    pub phases: BTreeMap<String, u64>,
}
