//! From a trace to what was relied on and what was changed. Pure: no file is looked at here.
//!
//! Files that the command made before it read them are no inputs, temporaries included; what it made and left are its
//! outputs. A path that it looked at and changed later counts as it was before. What cannot be recorded soundly is a
//! refusal, with the path that shows why.

use std::collections::{HashMap, HashSet};

use larder_model::{
    Change, Digest, Fact, FileMode, Habit, Identity, Looked, ModeRule, Placement, Prior, Seen, Times, Unrecorded,
    is_name_of_tempfile,
};

use crate::paths::{file_name, has_parents};
use crate::trace::{self, INTERNET, Kind, OpenFlags, SOCKET, Trace, arguments};
use crate::who::{Running, Who};

type Event<'a> = trace::Event<&'a [u8]>;

const ENOENT: i32 = 2;
const EEXIST: i32 = 17;
const EINVAL: i32 = 22;
/// EIO, EAGAIN, ENOMEM, ENFILE, EMFILE, ENOSPC, EDQUOT: a run that met one might end otherwise the next time.
const SHORTAGES: [i32; 7] = [5, 11, 12, 23, 24, 28, 122];

/// What depends on the kind of command.
pub struct Policy<'a> {
    /// Program file names whose way with an existing output is known, so that looking at it first is no observation.
    pub replaces_output: &'a dyn Fn(&[u8]) -> bool,
    /// Program file names that unlink an existing output before they open it.
    pub unlinks_output: &'a dyn Fn(&[u8]) -> bool,
    /// Program file names that add the right to execute to what they made.
    pub adds_execute: &'a dyn Fn(&[u8]) -> bool,
    /// Variables that need no observation.
    pub variable_is_covered: &'a dyn Fn(&[u8]) -> bool,
    /// The environment that the command was started with.
    pub variable: &'a dyn Fn(&[u8]) -> Option<Vec<u8>>,
    /// Program file names that are known parts of compilers: they ask libc for the variables they use.
    pub is_compiler_part: &'a dyn Fn(&[u8]) -> bool,
    /// What a program of this file name and with these arguments, as a `Kind::Start` has them, does in every run,
    /// whatever its result.
    pub habit: &'a dyn Fn(&[u8], &[u8]) -> Habit,
    /// What was in a file before the command ran, where that was noted.
    pub before: &'a dyn Fn(&Identity) -> Option<Prior>,
    /// A text of the command names the numbers of processes, so that names may hold them.
    pub names_by_number: bool,
    /// Whether the command may write there.
    pub may_write: &'a dyn Fn(&[u8]) -> bool,
    /// The path without links and `..` in its directory, as that is at the end.
    pub real: &'a dyn Fn(&[u8]) -> Option<Vec<u8>>,
    /// The first process of the command, which its caller started.
    pub first_pid: Option<u32>,
}

/// What came of a trace.
#[derive(Debug, Default)]
pub struct Folded {
    /// Relied on and changed.
    pub seen: Seen,
    /// Why it must not be recorded; the first counts.
    pub refusals: Vec<(Unrecorded, Vec<u8>)>,
    /// A program ran that is no known part of a compiler. It may be a shell, which reads its environment without
    /// asking anybody.
    pub foreign_program: Option<Vec<u8>>,
    /// Names that were made up at random and are gone again: a result that holds one is another each time.
    pub random_names: Vec<Vec<u8>>,
    /// Names were looked for and not found that hold the number of a process: the next run looks for others.
    pub by_chance: bool,
}

#[derive(Clone, Debug)]
enum Made<'t> {
    /// `writer` is the file name of the program: the number of its process may be another's by the end.
    File {
        placement: Placement,
        mode: FileMode,
        writer: &'t [u8],
        temporary: bool,
    },
    Link,
    Directory(FileMode),
    Removed,
}

/// `'t` is the trace's: paths stay where they stand in it.
#[derive(Default)]
struct Fold<'t> {
    order: Vec<&'t [u8]>,
    looked: HashMap<&'t [u8], Looked>,
    kinds: HashMap<&'t [u8], u8>,
    made: HashMap<&'t [u8], Made<'t>>,
    made_order: Vec<&'t [u8]>,
    /// Names that came or went, and whether they were there before.
    names: HashMap<&'t [u8], bool>,
    made_inodes: HashSet<(u64, u64)>,
    /// Names with a `..` in them that led to what the command had made.
    made_by_other_names: HashSet<&'t [u8]>,
    /// Names with a `..` in them, and where they lead at the end.
    real: HashMap<&'t [u8], Option<Vec<u8>>>,
    /// How each file was when it was last closed after writing.
    closed: HashMap<(u64, u64), Identity>,
    /// Owners or attributes of what the command made were set.
    owners_set: bool,
    /// Files that the command made and then gave a time.
    dated: HashSet<&'t [u8]>,
    /// Such a file is gone, so that nobody can say any more which time it had.
    date_is_lost: bool,
    /// A program that goes by times looked at one of those.
    dates_count: bool,
    /// What was made there would not have been, or otherwise, over something else.
    must_be_absent: HashSet<&'t [u8]>,
    /// Looked at by programs that are no compilers before the command made it: make decides by what is there.
    looked_at_by_others: HashSet<&'t [u8]>,
    /// Names that were made up at random.
    temporary_names: HashSet<&'t [u8]>,
    /// Those among them that a program was started to make up, for others to use.
    random_names: Vec<&'t [u8]>,
    /// Who made each temporary file.
    authors: HashMap<&'t [u8], Running<'t>>,
    temporary_places: HashSet<&'t [u8]>,
    /// Looked at as a link and not there: LLVM does so before it removes a file.
    lstat_missing: HashSet<&'t [u8]>,
    /// Where something was to be removed and nothing was.
    unlinked: HashSet<&'t [u8]>,
    who: Who<'t>,
    /// Names that hold the number of the process that did not find them, or of one that it comes from.
    numbered: HashSet<&'t [u8]>,
    by_chance: bool,
    /// Processes in which a shell began.
    shells: HashSet<u32>,
    /// Of the program that each process runs.
    habits: HashMap<u32, Habit>,
    /// How often each process read the clock and asked for random numbers.
    clock_reads: HashMap<u32, u32>,
    zone_reads: HashMap<u32, u32>,
    random_reads: HashMap<u32, u32>,
    /// Which process looked at what, and those that give modes to what they make, each by its number and how many had
    /// that before.
    seen_by: Vec<((u32, u32), &'t [u8])>,
    gives_modes: HashSet<(u32, u32)>,
    lives: HashMap<u32, u32>,
    /// Processes that took random numbers for a name, until they make something of it.
    named_at_random: HashSet<u32>,
    umask: bool,
    umask_is_set: bool,
    host: bool,
    sockets: bool,
    last_read: HashMap<u32, &'t [u8]>,
    starts: HashMap<u32, i64>,
    anonymous: i64,
    environment: HashMap<&'t [u8], Option<&'t [u8]>>,
    refusals: Vec<(Unrecorded, Vec<u8>)>,
    foreign_program: Option<&'t [u8]>,
}

/// Fold `trace` by `policy`.
pub fn fold(trace: &Trace, policy: &Policy) -> Folded {
    let names = crate::paths::names(trace);
    let mut fold = Fold::default();
    if let Some(pid) = policy.first_pid {
        fold.starts.insert(pid, -1);
    }
    if trace.incomplete {
        fold.refuse(Unrecorded::Incomplete, b"");
    }
    for (mut event, (path, path2)) in trace.iter().zip(&names) {
        event.path = path.as_deref().unwrap_or(event.path);
        event.path2 = path2.as_deref().unwrap_or(event.path2);
        if matches!(event.kind, Kind::MakeDirectory | Kind::RemoveDirectory | Kind::ChangeMode) {
            event.path = without_slash(event.path);
        }
        if has_parents(event.path) && !fold.real.contains_key(event.path) {
            fold.real.insert(event.path, (policy.real)(event.path));
        }
        fold.note_number(&event, policy);
        if SHORTAGES.contains(&event.error) {
            fold.refuse(Unrecorded::Shortage, event.path);
        }
        fold.event(&event, policy);
    }
    fold.finish(policy)
}

impl<'t> Fold<'t> {
    fn refuse(&mut self, why: Unrecorded, path: &[u8]) {
        self.refusals.push((why, path.to_vec()));
    }

    fn event(&mut self, e: &Event<'t>, policy: &Policy) {
        match e.kind {
            Kind::Start | Kind::Exec | Kind::ExecFailed | Kind::Spawned | Kind::Anonymous | Kind::Drop => {
                if e.kind == Kind::Start && !(policy.is_compiler_part)(file_name(e.path)) {
                    self.foreign_program = Some(e.path);
                }
                self.process(e, policy);
            }
            Kind::Object => self.read(e, false, policy),
            Kind::Open(flags) => self.open(e, flags, policy),
            Kind::Stat | Kind::Lstat | Kind::Access | Kind::ReadLink | Kind::RealPath | Kind::List => {
                if !self.runs_a_compiler_part(e.pid, policy) && !self.is_made(e) {
                    self.looked_at_by_others.insert(e.path);
                }
                self.look(e, policy);
            }
            Kind::Clock | Kind::Random => self.clock_or_random(e, policy),
            Kind::Forked => {
                if let Some(source) = self.who.learn(e) {
                    *self.lives.entry(e.pid).or_default() += 1;
                    self.habits.remove(&e.pid);
                    for reads in [&mut self.clock_reads, &mut self.zone_reads, &mut self.random_reads] {
                        let before = reads.get(&source).copied().unwrap_or_default();
                        reads.insert(e.pid, before);
                    }
                }
            }
            Kind::Network if e.path == SOCKET && INTERNET.contains(&e.extra) && self.tries_sockets(e.pid, policy) => {
                self.sockets = true;
            }
            Kind::Network | Kind::UnixSocket => self.refuse(Unrecorded::Network, e.path),
            Kind::Identity => self.host = true,
            Kind::Umask => {
                self.umask = true;
                self.umask_is_set |= !self.runs_a_compiler_part(e.pid, policy);
            }
            Kind::ChildDied => self.refuse(Unrecorded::Signal, e.path),
            Kind::GetEnvironment => self.variable(e, policy),
            Kind::Closed => {
                if let Some(id) = e.identity {
                    self.closed.insert((id.device, id.inode), id);
                }
            }
            _ => self.change(e, policy),
        }
    }

    // ------------------------------------------------------------ processes

    /// Each successful execution must be followed by a sign of life from the new program: else it was not observed.
    fn process(&mut self, e: &Event<'t>, policy: &Policy) {
        match e.kind {
            Kind::Start => {
                *self.starts.entry(e.pid).or_default() += 1;
                self.who.learn(e);
                self.habits.remove(&e.pid);
                if self.habit(e.pid, policy).tries_terminal {
                    self.shells.insert(e.pid);
                }
                self.clock_reads.remove(&e.pid);
                self.zone_reads.remove(&e.pid);
                self.random_reads.remove(&e.pid);
                self.read(e, true, policy);
            }
            Kind::Exec => {
                *self.starts.entry(e.pid).or_default() -= 1;
            }
            Kind::ExecFailed => {
                *self.starts.entry(e.pid).or_default() += 1;
                if e.error == ENOENT {
                    self.touch(e.path).absent = true;
                } else {
                    self.touch(e.path).executed = true;
                    self.touch(e.path).kind = true;
                }
            }
            // The parent said `Exec` before it knew the child's id.
            Kind::Spawned => {
                *self.starts.entry(e.pid).or_default() += 1;
                *self.starts.entry(e.extra).or_default() -= 1;
            }
            Kind::Anonymous => self.anonymous += 1,
            Kind::Drop if e.extra == crate::UNPROVABLE => self.refuse(Unrecorded::Unprovable, e.path),
            _ => self.refuse(Unrecorded::NotObserved, e.path),
        }
        // Without a look at it there is no such file, and the failure that follows says so.
        if e.kind == Kind::Exec && e.identity.is_some() {
            self.read(e, true, policy);
            if !e.path2.is_empty() {
                // A script's interpreter, by the name that the script has for it.
                self.read(&Event { path: e.path2, identity: None, ..e.clone() }, true, policy);
            }
        }
    }

    fn habit(&mut self, pid: u32, policy: &Policy) -> Habit {
        if let Some(habit) = self.habits.get(&pid) {
            return *habit;
        }
        let running = self.who.runs(pid);
        let running = self.author(running).unwrap_or(running);
        let habit = (policy.habit)(file_name(running.program), running.arguments);
        self.habits.insert(pid, habit);
        habit
    }

    /// Who wrote the script that a process runs, where that is a temporary file of the same interpreter: Meson has
    /// Python tell about itself so. It is trusted as its author is.
    fn author(&self, running: Running) -> Option<Running<'t>> {
        let script = arguments(running.arguments)?.find(|word| !word.starts_with(b"-"))?;
        let author = self.authors.get(script)?;
        (author.program == running.program).then_some(*author)
    }

    /// A process, by its number and how many had that before.
    fn life(&self, pid: u32) -> (u32, u32) {
        (pid, self.lives.get(&pid).copied().unwrap_or_default())
    }

    fn tries_sockets(&mut self, pid: u32, policy: &Policy) -> bool {
        let habit = self.habit(pid, policy);
        habit.tries_sockets || habit.reports
    }

    /// The file name of what a process runs.
    fn program(&self, pid: u32) -> &'t [u8] {
        file_name(self.who.runs(pid).program)
    }

    fn clock_or_random(&mut self, e: &Event<'t>, policy: &Policy) {
        const LOCAL_TIME: u32 = 4;
        let habit = self.habit(e.pid, policy);
        let clock = e.kind == Kind::Clock;
        let (reads, allowed, why) = match e.kind {
            Kind::Random => (&mut self.random_reads, habit.random_reads, Unrecorded::Random),
            _ if e.extra == LOCAL_TIME => (&mut self.zone_reads, habit.zone_reads, Unrecorded::Clock),
            _ => (&mut self.clock_reads, habit.clock_reads, Unrecorded::Clock),
        };
        if !clock && habit.names_at_random {
            self.named_at_random.insert(e.pid);
            return;
        }
        let reads = reads.entry(e.pid).or_default();
        *reads += 1;
        if *reads > allowed {
            self.refuse(why, self.who.runs(e.pid).program);
        }
    }

    // ------------------------------------------------------------ looking

    fn ignored(&self, path: &[u8]) -> bool {
        const EXACT: [&[u8]; 7] = [
            b"/dev/null",
            b"/dev/zero",
            b"/proc/self/exe",
            b"/proc/self/fd",
            // What it was started with.
            b"/proc/self/cmdline",
            b"/proc/sys/vm/overcommit_memory",
            b"/sys/kernel/mm/transparent_hugepage/enabled",
        ];
        path.is_empty() || EXACT.contains(&path)
    }

    /// What compilers tune their memory by, and build tools the number of what they start; what others make of it is
    /// not known.
    fn tunes_memory(&mut self, e: &Event, policy: &Policy) -> bool {
        const EXACT: [&[u8]; 4] =
            [b"/proc/self/maps", b"/proc/self/statm", b"/proc/self/cgroup", b"/proc/self/mountinfo"];
        let limits = e.path.starts_with(b"/sys/fs/cgroup/");
        (limits || EXACT.contains(&e.path)) && self.habit(e.pid, policy).tunes_memory
    }

    fn touch(&mut self, path: &'t [u8]) -> &mut Looked {
        if !self.looked.contains_key(path) {
            self.order.push(path);
        }
        self.looked.entry(path).or_default()
    }

    fn is_made(&mut self, e: &Event<'t>) -> bool {
        let by_inode = e.identity.is_some_and(|id| self.made_inodes.contains(&(id.device, id.inode)));
        let named = |path: &[u8]| self.made.contains_key(path) || self.below_made(path);
        // What a `..` leads to is found by inode, or as the directory is at the end.
        let by_name = match self.real.get(e.path) {
            Some(real) => real.as_ref().is_some_and(|real| named(real)),
            None => named(without_slash(e.path)),
        };
        if (by_inode || by_name) && has_parents(e.path) {
            self.made_by_other_names.insert(e.path);
        }
        by_inode || by_name
    }

    /// Below a directory that the command made.
    fn below_made(&self, path: &[u8]) -> bool {
        let mut slashes = path.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| at);
        slashes.any(|at| at > 0 && matches!(self.made.get(&path[..at]), Some(Made::Directory(_))))
    }

    fn device(&mut self, path: &[u8]) -> bool {
        let stable: &[&[u8]] = &[
            b"/proc/filesystems",
            b"/proc/cpuinfo",
            b"/proc/version",
            b"/proc/sys/kernel/ngroups_max",
            b"/sys/devices/system/cpu/online",
        ];
        let odd = [&b"/dev/"[..], b"/proc/", b"/sys/"].iter().any(|p| path.starts_with(p));
        if odd && !stable.contains(&path) && !path.starts_with(b"/dev/shm/") {
            self.refuse(Unrecorded::Device, path);
            return true;
        }
        false
    }

    fn read(&mut self, e: &Event<'t>, executed: bool, policy: &Policy) {
        self.last_read.insert(e.pid, e.path);
        if self.ignored(e.path) || self.tunes_memory(e, policy) {
            return;
        }
        if self.is_made(e) {
            self.dates_count |= self.dated.contains(e.path) && self.habit(e.pid, policy).times >= Times::Inputs;
            return;
        }
        if self.device(e.path) {
            return;
        }
        if !matches!(e.mode >> 12, 0 | 0o10) {
            return self.refuse(Unrecorded::Device, e.path);
        }
        let identity = e.identity;
        let habit = self.habit(e.pid, policy);
        let times = if executed { Times::Blind } else { habit.times };
        self.seen_by.push((self.life(e.pid), e.path));
        let looked = self.touch(e.path);
        looked.content = true;
        looked.times = looked.times.max(times);
        looked.kind = true;
        looked.executed |= executed;
        let first = *looked.identity.get_or_insert_with(|| identity.unwrap_or(NOBODY));
        if first == NOBODY {
            looked.identity = identity;
        } else if identity.is_some_and(|id| id != first) {
            self.refuse(Unrecorded::InputChanged, e.path);
        }
    }

    fn look(&mut self, e: &Event<'t>, policy: &Policy) {
        // The working directory by another name, as Bazel has `PWD`: both are in the key.
        let names_cwd = e.path == b"/proc/self/cwd" && self.habit(e.pid, policy).times != Times::Status;
        if self.ignored(e.path) || names_cwd {
            return;
        }
        if self.is_made(e) {
            // Its times are those of this run.
            if e.error == 0 && matches!(e.kind, Kind::Stat | Kind::Lstat) {
                self.look_at_made(e, policy);
            }
            return;
        }
        if e.error != 0 {
            return self.look_failed(e);
        }
        if e.kind == Kind::ReadLink && e.path.starts_with(b"/proc/self/fd/") && e.path2.starts_with(b"/") {
            return self.read_link_of_open_file(e);
        }
        self.by_chance |= self.habit(e.pid, policy).shows_numbers;
        if e.path.starts_with(b"/proc/") || e.path.starts_with(b"/sys/") {
            self.device(e.path);
            return;
        }
        if e.mode != 0 {
            self.kinds.entry(e.path).or_insert((e.mode >> 12) as u8);
        }
        let kind = e.kind;
        let file = e.mode >> 12 == 0o10;
        let habit = self.habit(e.pid, policy);
        let times = match kind {
            Kind::Stat | Kind::Lstat if file || habit.times == Times::Status => habit.times,
            _ => Times::Blind,
        };
        // Whether a file can be executed is part of what is recorded of it.
        let special = e.extra & 2 != 0 || e.extra & 1 != 0 && !file;
        let asks_rights = special && !self.runs_a_compiler_part(e.pid, policy);
        self.seen_by.push((self.life(e.pid), e.path));
        let reported = if matches!(kind, Kind::Stat) { e.extra } else { 0 };
        let times = match reported {
            trace::REPORTED_MODE => times.max(Times::Mode),
            trace::REPORTED_MODIFIED => times.max(Times::Inputs),
            trace::REPORTED_STATUS => times.max(Times::Status),
            _ => times,
        };
        let compares = habit.compares || reported == trace::REPORTED_COMPARED;
        let looked = self.touch(e.path);
        looked.compared |= compares && file && matches!(kind, Kind::Stat | Kind::Lstat);
        looked.times = looked.times.max(times);
        looked.order |= kind == Kind::List && !habit.sorts_names && e.extra != crate::IN_ANY_ORDER;
        if file && matches!(kind, Kind::Stat | Kind::Lstat) {
            looked.identity = looked.identity.or(e.identity);
        }
        match kind {
            Kind::Lstat | Kind::ReadLink => looked.link = true,
            Kind::RealPath => (looked.link, looked.kind) = (true, true),
            Kind::List => (looked.listed, looked.kind) = (true, true),
            Kind::Access => {
                (looked.kind, looked.executed) = (true, looked.executed || e.extra & 1 != 0);
                if asks_rights {
                    looked.failed = Some((Fact::ACCESS | (e.extra & 7) as u8, 0));
                }
            }
            _ => looked.kind = true,
        }
    }

    /// The times of what the command made are those of this run, but for those that it set itself.
    fn look_at_made(&mut self, e: &Event<'t>, policy: &Policy) {
        let habit = self.habit(e.pid, policy);
        let reported = matches!(e.extra, trace::REPORTED_COMPARED | trace::REPORTED_MODIFIED | trace::REPORTED_STATUS);
        let compares = habit.compares || habit.times >= Times::Files || habit.reports && reported;
        self.dates_count |= compares && self.dated.contains(e.path);
        if habit.times == Times::Status {
            self.refuse(Unrecorded::ComparesTimes, e.path);
        }
    }

    /// LLVM asks so for the real path of the file that it has just opened.
    fn read_link_of_open_file(&mut self, e: &Event<'t>) {
        let Some(opened) = self.last_read.get(&e.pid).copied() else {
            return self.refuse(Unrecorded::Device, e.path);
        };
        if let Some(looked) = self.looked.get_mut(opened) {
            looked.link = true;
        }
    }

    fn look_failed(&mut self, e: &Event<'t>) {
        match (e.kind, e.error) {
            (Kind::Lstat, ENOENT) => {
                self.lstat_missing.insert(e.path);
                self.touch(e.path).absent = true;
            }
            // Not a link: it was looked at as one.
            (Kind::ReadLink, EINVAL) => self.touch(e.path).link = true,
            (_, ENOENT) => self.touch(e.path).absent = true,
            // Whether a file can be executed is part of what is recorded of it; any other right is asked for again.
            (Kind::Access, 13) if e.extra & 6 == 0 => {
                let looked = self.touch(e.path);
                (looked.kind, looked.executed) = (true, true);
            }
            (Kind::Access, errno) => {
                self.touch(e.path).failed = Some((Fact::ACCESS | (e.extra & 7) as u8, errno as u32));
            }
            (Kind::List, errno) => self.touch(e.path).failed = Some((1, errno as u32)),
            (_, errno) => self.touch(e.path).failed = Some((0, errno as u32)),
        }
    }

    // ------------------------------------------------------------ opening

    fn open(&mut self, e: &Event<'t>, flags: OpenFlags, policy: &Policy) {
        let writes = flags.has(OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::TRUNCATE | OpenFlags::APPEND);
        if matches!(e.path, b"/dev/urandom" | b"/dev/random") {
            return self.clock_or_random(&Event { kind: Kind::Random, ..e.clone() }, policy);
        }
        if self.ignored(e.path) || e.path == b"/dev/tty" && self.habit(e.pid, policy).tries_terminal {
            return;
        }
        if e.error != 0 {
            return self.open_failed(e, flags, writes);
        }
        if flags.has(OpenFlags::PATH_ONLY) || flags.has(OpenFlags::DIRECTORY) || e.mode >> 12 == 0o04 {
            // Paths below it may be found by its real name from now on.
            return self.look(&Event { kind: Kind::RealPath, ..e.clone() }, policy);
        }
        if !writes {
            return self.read(e, false, policy);
        }
        self.open_for_writing(e, flags, policy);
    }

    fn open_failed(&mut self, e: &Event<'t>, flags: OpenFlags, writes: bool) {
        if self.is_made(e) {
            return;
        }
        match e.error {
            // A file could not be made, so the directory is what is missing.
            ENOENT if flags.has(OpenFlags::CREATE) => {
                if let Some(directory) = parent(e.path) {
                    self.touch(directory).absent = true;
                }
            }
            ENOENT => self.touch(e.path).absent = true,
            EEXIST if writes => self.touch(e.path).kind = true,
            _ if writes => self.refuse(Unrecorded::WriteFailed, e.path),
            errno => self.touch(e.path).failed = Some((1, errno as u32)),
        }
    }

    fn open_for_writing(&mut self, e: &Event<'t>, flags: OpenFlags, policy: &Policy) {
        match e.mode >> 12 {
            0o10 | 0 => {}
            _ => return self.refuse(Unrecorded::OutputSpecial, e.path),
        }
        if self.is_made(e) && !matches!(self.made.get(e.path), None | Some(Made::Removed)) {
            return;
        }
        let fresh = flags.has(OpenFlags::EXCLUSIVE) || flags.has(OpenFlags::TRUNCATE);
        let empty = e.identity.is_some_and(|id| id.size_bytes == 0) && !flags.has(OpenFlags::APPEND);
        if !fresh && flags.has(OpenFlags::NEW) {
            self.was_absent(e.path);
        } else if !fresh && empty {
            let looked = self.touch(e.path);
            looked.content = true;
            looked.identity = looked.identity.or(e.identity);
        } else if !fresh {
            // What it becomes is recorded whole, so what it was must be known.
            if e.identity.as_ref().and_then(|opened| (policy.before)(opened)).is_none() {
                return self.refuse(Unrecorded::UpdatesFile, e.path);
            }
            let looked = self.touch(e.path);
            looked.content = true;
            looked.identity = looked.identity.or(e.identity);
        }
        let new = flags.has(OpenFlags::NEW | OpenFlags::EXCLUSIVE);
        if flags.has(OpenFlags::EXCLUSIVE) {
            self.made_by_its_name(e, policy);
        }
        self.name(e.path, !new);
        let removed = matches!(self.made.get(e.path), Some(Made::Removed)) || self.unlinked.contains(e.path);
        let placement =
            if removed || flags.has(OpenFlags::EXCLUSIVE) { Placement::Unlink } else { Placement::Truncate };
        let mode = FileMode { bits: e.extra & 0o7777, rule: ModeRule::Masked };
        let reports = self.habit(e.pid, policy).reports;
        let reported = if reports { trace::output_reported(e.extra) } else { None };
        let (placement, mode) = reported.unwrap_or((placement, mode));
        if !matches!(mode.bits, 0o600 | 0o666 | 0o777) && !reports {
            self.gives_modes.insert(self.life(e.pid));
        }
        let temporary = flags.has(OpenFlags::TEMPORARY) || flags.has(OpenFlags::EXCLUSIVE);
        if temporary && let Some(directory) = parent(e.path) {
            self.temporary_places.insert(directory);
        }
        if temporary {
            self.authors.insert(e.path, self.who.runs(e.pid));
        }
        let writer = self.program(e.pid);
        self.make(e.path, Made::File { placement, mode, writer, temporary });
        if let Some(id) = e.identity {
            self.made_inodes.insert((id.device, id.inode));
        }
    }

    // ------------------------------------------------------------ changing

    /// Made where nothing was, or not at all.
    fn made_by_its_name(&mut self, e: &Event<'t>, policy: &Policy) {
        let at_random = self.named_at_random.remove(&e.pid) || self.habit(e.pid, policy).names_at_random;
        let temporary = self.is_temporary_name(e, policy);
        if at_random || temporary && !self.runs_a_compiler_part(e.pid, policy) {
            self.temporary_names.insert(e.path);
            self.random_names.push(e.path);
        } else if temporary || self.is_of_tempfile(e, policy) {
            self.temporary_names.insert(e.path);
        } else {
            self.was_absent(e.path);
        }
    }

    /// A name comes or goes: only whether it was there before the first time counts.
    fn name(&mut self, path: &'t [u8], existed: bool) {
        self.names.entry(path).or_insert(existed);
    }

    fn make(&mut self, path: &'t [u8], made: Made<'t>) {
        if !self.made.contains_key(path) {
            self.made_order.push(path);
        }
        self.made.insert(path, made);
    }

    fn change(&mut self, e: &Event<'t>, policy: &Policy) {
        if self.ignored(e.path) {
            return;
        }
        if e.error != 0 {
            return self.change_failed(e);
        }
        match e.kind {
            Kind::RemoveDirectory if !self.is_made(e) => self.refuse(Unrecorded::UpdatesFile, e.path),
            Kind::Unlink | Kind::RemoveDirectory => {
                self.unlink(e, policy);
                self.name(e.path, true);
            }
            Kind::Rename(flags) => {
                self.rename(e, flags, policy);
                self.name(e.path, true);
                self.name(e.path2, !flags.has(OpenFlags::NEW));
            }
            Kind::Symlink => {
                self.name(e.path2, false);
                self.make(e.path2, Made::Link);
            }
            Kind::MakeDirectory => {
                self.made_by_its_name(e, policy);
                self.name(e.path, false);
                self.make(e.path, Made::Directory(FileMode { bits: e.extra & 0o7777, rule: ModeRule::Masked }));
            }
            Kind::ChangeMode => self.change_mode(e, policy),
            Kind::MakeNode => self.refuse(Unrecorded::OutputSpecial, e.path),
            // To now, which is what it is.
            Kind::SetTimes if e.extra == 1 && matches!(self.made.get(e.path), Some(Made::File { .. })) => {}
            Kind::SetTimes if matches!(self.made.get(e.path), Some(Made::File { .. })) => {
                self.dated.insert(e.path);
            }
            // Nobody compares those: what is made later in a directory would change it again.
            Kind::SetTimes if matches!(self.made.get(e.path), Some(Made::Directory(_) | Made::Link)) => {}
            Kind::Truncate if self.is_temporary(e.path) => {}
            // What they were set to shows at the end.
            Kind::ChangeOwner | Kind::SetAttribute
                if self.is_temporary(e.path)
                    || matches!(self.made.get(e.path), Some(Made::Directory(_) | Made::Link)) =>
            {
                self.owners_set = true;
                if !self.habit(e.pid, policy).reports {
                    self.gives_modes.insert(self.life(e.pid));
                }
            }
            _ => self.refuse(Unrecorded::UpdatesFile, e.path),
        }
    }

    fn change_failed(&mut self, e: &Event<'t>) {
        match (e.kind, e.error) {
            _ if self.is_made(e) && e.error == ENOENT => {}
            // What it made there itself it has renamed or removed since.
            (Kind::Rename(_), ENOENT) if self.names.contains_key(e.path) => {}
            (Kind::Unlink | Kind::RemoveDirectory | Kind::ChangeMode, ENOENT) => {
                if e.kind == Kind::Unlink {
                    self.unlinked.insert(e.path);
                }
                self.touch(e.path).absent = true;
            }
            (Kind::MakeDirectory, EEXIST) => self.touch(e.path).kind = true,
            // It asked not to replace what is there.
            (Kind::Rename(_) | Kind::Symlink | Kind::Link, EEXIST) if !self.made.contains_key(e.path2) => {
                let looked = self.touch(e.path2);
                (looked.kind, looked.link) = (true, true);
            }
            (Kind::Rename(_) | Kind::Symlink | Kind::Link, EEXIST) => {}
            _ => self.refuse(Unrecorded::WriteFailed, e.path),
        }
    }

    fn is_temporary(&self, path: &[u8]) -> bool {
        matches!(self.made.get(path), Some(Made::File { temporary: true, .. }))
    }

    /// The command found nothing there.
    fn was_absent(&mut self, path: &'t [u8]) {
        if !self.names.contains_key(path) {
            self.touch(path).absent = true;
            self.must_be_absent.insert(path);
        }
    }

    /// Made up at random, so that it says nothing of the next run. Compilers' parts make all their temporary names so.
    fn is_temporary_name(&self, e: &Event, policy: &Policy) -> bool {
        const NAMED_BY_LIBC: u16 = OpenFlags::TEMPORARY;
        let flags = if let Kind::Open(flags) = e.kind { flags } else { OpenFlags(0) };
        flags.has(NAMED_BY_LIBC) || self.runs_a_compiler_part(e.pid, policy)
    }

    /// Where no output can be, so that nobody else looks for it.
    fn is_of_tempfile(&mut self, e: &Event, policy: &Policy) -> bool {
        is_name_of_tempfile(file_name(e.path))
            && !(policy.may_write)(e.path)
            && self.habit(e.pid, policy).names_as_tempfile
    }

    fn runs_a_compiler_part(&self, pid: u32, policy: &Policy) -> bool {
        (policy.is_compiler_part)(self.program(pid))
    }

    /// A file that the command wrote goes away under this name. What was there before would have gone with it, and
    /// other names of that would have been written to.
    fn made_file_goes(&mut self, e: &Event<'t>, policy: &Policy) {
        let Some(Made::File { writer, .. }) = self.made.get(e.path) else { return };
        let replaces = (policy.replaces_output)(writer);
        match self.names.get(e.path) {
            Some(false) if !self.temporary_names.contains(e.path) => self.touch(e.path).absent = true,
            Some(true) if !replaces => self.refuse(Unrecorded::UpdatesFile, e.path),
            _ => {}
        }
    }

    fn unlink(&mut self, e: &Event<'t>, policy: &Policy) {
        self.made_file_goes(e, policy);
        self.date_is_lost |= self.dated.remove(e.path);
        // What the command made itself is as if it had never been, unless something was there before.
        let before = self.looked.get(e.path).is_some_and(|l| l.absent) || self.is_temporary(e.path);
        match self.made.get(e.path) {
            Some(Made::File { placement: Placement::Truncate, .. }) if !before => self.make(e.path, Made::Removed),
            Some(Made::Removed) => {}
            Some(_) => {
                self.made.remove(e.path);
            }
            // A link to nothing: looking says that it is not there, and the next run would find it gone.
            None if before => self.refuse(Unrecorded::OutputSpecial, e.path),
            None => {
                let kind = if e.mode == 0 { 0o10 } else { (e.mode >> 12) as u8 };
                self.kinds.entry(e.path).or_insert(kind);
                if !self.runs_a_compiler_part(e.pid, policy) {
                    self.touch(e.path).kind = true;
                }
                self.make(e.path, Made::Removed);
            }
        }
    }

    fn rename(&mut self, e: &Event<'t>, flags: OpenFlags, policy: &Policy) {
        const NO_REPLACE: u16 = 1;
        const EXCHANGE: u16 = 2;
        if flags.has(EXCHANGE) {
            return self.refuse(Unrecorded::UpdatesFile, e.path);
        }
        if flags.has(NO_REPLACE) {
            self.was_absent(e.path2);
        }
        self.made_file_goes(e, policy);
        match self.made.remove(e.path) {
            Some(Made::File { mode, writer, .. }) => {
                self.date_is_lost |= self.dated.remove(e.path2);
                if self.dated.remove(e.path) {
                    self.dated.insert(e.path2);
                }
                self.make(e.path2, Made::File { placement: Placement::Rename, mode, writer, temporary: false });
            }
            Some(Made::Link) => self.make(e.path2, Made::Link),
            _ => self.refuse(Unrecorded::UpdatesFile, e.path),
        }
    }

    /// Linkers ask for the umask and add the right to execute to what is there.
    fn change_mode(&mut self, e: &Event<'t>, policy: &Policy) {
        let linker = (policy.adds_execute)(self.program(e.pid));
        if !linker && !self.habit(e.pid, policy).reports {
            self.gives_modes.insert(self.life(e.pid));
        }
        let rule = if linker { ModeRule::Executable } else { ModeRule::Set };
        let replaces = (policy.unlinks_output)(self.program(e.pid));
        if !linker && !replaces && self.names.get(e.path) == Some(&true) {
            // What it has now may come of what it had.
            return self.refuse(Unrecorded::UpdatesFile, e.path);
        }
        match self.made.get_mut(e.path) {
            Some(Made::File { mode, .. }) if linker => mode.rule = rule,
            Some(Made::File { mode, .. } | Made::Directory(mode)) => {
                *mode = FileMode { bits: e.extra & 0o7777, rule };
            }
            _ => self.refuse(Unrecorded::UpdatesFile, e.path),
        }
    }

    fn variable(&mut self, e: &Event<'t>, policy: &Policy) {
        let value = (e.error == 0).then_some(e.path2);
        // A variable that differs from the caller's was set by the command itself.
        if !(policy.variable_is_covered)(e.path) && (policy.variable)(e.path).as_deref() == value {
            self.environment.insert(e.path, value);
        }
    }

    // ------------------------------------------------------------ the end

    fn finish(mut self, policy: &Policy) -> Folded {
        if !self.named_at_random.is_empty() {
            self.refuse(Unrecorded::Random, b"a name that was not used");
        }
        for name in self.random_names.clone() {
            if self.made.contains_key(name) {
                self.refuse(Unrecorded::Random, name);
            }
        }
        let unaccounted: i64 = self.starts.values().filter(|n| **n != 0).sum();
        if self.starts.values().any(|n| *n < 0) || unaccounted > self.anonymous {
            self.refuse(Unrecorded::NotObserved, b"a program that left no sign");
        }
        if self.dates_count && self.date_is_lost {
            self.refuse(Unrecorded::ComparesTimes, b"a file whose time was set, and that is gone");
        }
        let variable = |(name, value): (&&[u8], &Option<&[u8]>)| (name.to_vec(), value.map(<[u8]>::to_vec));
        let closed = self.closed.values().copied().collect();
        let mut seen = Seen {
            closed,
            umask: self.umask,
            umask_is_set: self.umask_is_set,
            host: self.host,
            sockets: self.sockets,
            dates_count: self.dates_count,
            owners_set: self.owners_set,
            names: self.names.iter().map(|(path, existed)| (path.to_vec(), *existed)).collect(),
            environment: self.environment.iter().map(variable).collect(),
            ..Seen::default()
        };
        let made_order = std::mem::take(&mut self.made_order);
        let mut listed = HashSet::new();
        for path in made_order {
            if !listed.insert(path) {
                continue;
            }
            if let Some(made) = self.made.get(path).cloned() {
                self.output(path, made, policy, &mut seen);
            }
        }
        // The mode of what is made may be that of what was read.
        for (life, path) in std::mem::take(&mut self.seen_by) {
            if self.gives_modes.contains(&life)
                && let Some(looked) = self.looked.get_mut(path)
            {
                looked.times = looked.times.max(Times::Mode);
            }
        }
        for path in std::mem::take(&mut self.order) {
            if self.is_of_this_run(path) {
                self.by_chance |= self.numbered.contains(path);
                continue;
            }
            if let Some(looked) = self.looked.remove(path) {
                self.input(path, looked, policy, &mut seen);
            }
        }
        Folded {
            seen,
            refusals: self.refusals,
            foreign_program: self.foreign_program.map(<[u8]>::to_vec),
            by_chance: self.by_chance,
            random_names: self.random_names.iter().map(|path| file_name(path).to_vec()).collect(),
        }
    }

    /// Nothing was there, and the name holds the number of a process or was made up at random: nobody will look for it
    /// again.
    fn is_of_this_run(&self, path: &[u8]) -> bool {
        let nothing = Looked { absent: true, ..Looked::default() };
        if self.looked.get(path) != Some(&nothing) || self.made.contains_key(path) {
            return false;
        }
        let within = |name: &&[u8]| path.strip_prefix(*name).is_some_and(|rest| rest.is_empty() || rest[0] == b'/');
        self.numbered.contains(path) || self.random_names.iter().any(within)
    }

    /// Note a name that was not looked at before, where it holds the number of who looks for it or makes it.
    fn note_number(&mut self, e: &Event<'t>, policy: &Policy) {
        let new = policy.names_by_number && file_name(e.path).iter().any(u8::is_ascii_digit);
        if !new || self.looked.contains_key(e.path) || self.numbered.contains(e.path) || !(policy.may_write)(e.path) {
            return;
        }
        // So long that it is none by accident: a shell between that one and who looks may have done nothing that is
        // seen.
        const DIGITS: usize = 3;
        let numbers = file_name(e.path).split(|byte| !byte.is_ascii_digit()).filter(|digits| !digits.is_empty());
        for digits in numbers {
            let number = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<u32>().ok());
            let Some(number) = number.filter(|_| digits[0] != b'0') else { continue };
            if self.who.line(e.pid).any(|pid| pid == number) || digits.len() >= DIGITS && self.shells.contains(&number)
            {
                self.numbered.insert(e.path);
                return;
            }
        }
    }

    fn output(&mut self, path: &'t [u8], made: Made<'t>, policy: &Policy, seen: &mut Seen) {
        if !(policy.may_write)(path) {
            self.refuse(Unrecorded::OutputElsewhere, path);
        }
        let change = match made {
            Made::File { placement, mode, writer, temporary } => {
                let known = (policy.replaces_output)(writer);
                if temporary && !known && self.names.get(path) != Some(&true) {
                    // It was made only because nothing was there.
                    self.touch(path).absent = true;
                }
                let unlinks = (policy.unlinks_output)(writer);
                let removes = known && self.lstat_missing.contains(path) && placement == Placement::Truncate;
                let placement = match placement {
                    Placement::Rename => Placement::Rename,
                    _ if unlinks => Placement::Replace,
                    _ if removes => Placement::Unlink,
                    other => other,
                };
                let closed_when_complete = (policy.is_compiler_part)(writer);
                let anew = matches!(placement, Placement::Rename | Placement::Unlink);
                let new = anew || self.names.get(path) == Some(&false);
                let dated = self.dated.contains(path);
                Change::File { placement, mode, new, closed_when_complete, dated }
            }
            Made::Link => Change::Link,
            Made::Directory(mode) => Change::Directory(mode),
            Made::Removed => Change::Removed,
        };
        seen.changed.push((path.to_vec(), change));
    }

    fn input(&mut self, path: &'t [u8], mut looked: Looked, policy: &Policy, seen: &mut Seen) {
        if self.temporary_places.contains(path) && !looked.content && !looked.listed && !looked.absent {
            return;
        }
        // What is in a directory that the command made was made there by it, and nothing was there before.
        if looked.absent && self.below_made(path) {
            return;
        }
        if self.made_by_other_names.contains(path) && looked.absent && !looked.content && !looked.listed && !looked.kind
        {
            looked.prior = Some(Prior::Absent);
        }
        if self.dates_count && looked.compared {
            // How old it is counts beside a time that is always the same.
            looked.times = looked.times.max(Times::Files);
        }
        if let Some(made) = self.made.get(path) {
            if looked.listed {
                return self.refuse(Unrecorded::UpdatesFile, path);
            }
            if looked.content {
                let known = |opened: &Identity| (policy.before)(opened).or_else(|| empty(opened));
                let Some(prior) = looked.identity.as_ref().and_then(known) else {
                    return self.refuse(Unrecorded::UpdatesFile, path);
                };
                looked.prior = Some(prior);
            } else {
                // Compilers look whether it is one of their inputs, and then write it.
                if let Made::File { writer, .. } = made
                    && !self.must_be_absent.contains(path)
                    && !self.looked_at_by_others.contains(path)
                    && (policy.is_compiler_part)(writer)
                {
                    return;
                }
                let kind = self.kinds.get(path).copied();
                looked.prior = Some(match kind {
                    Some(kind) if !looked.absent => Prior::Kind(kind),
                    _ => Prior::Absent,
                });
            }
            let there = looked.prior != Some(Prior::Absent);
            if there && (looked.times == Times::Status || looked.times == Times::Files && looked.identity.is_none()) {
                return self.refuse(Unrecorded::ComparesTimes, path);
            }
        }
        seen.looked.push((path.to_vec(), looked));
    }
}

/// No file at all: stands for an identity that is not known yet.
const NOBODY: Identity = Identity { device: u64::MAX, inode: u64::MAX, size_bytes: 0, modified_ns: 0, changed_ns: 0 };

/// What a file without content was. Nobody executes such.
fn empty(opened: &Identity) -> Option<Prior> {
    (opened.size_bytes == 0).then(|| Prior::File { digest: Digest::of(b""), mode: None })
}

/// A directory's name, which may have a slash at its end, or a dot after that.
fn without_slash(path: &[u8]) -> &[u8] {
    let path = path.strip_suffix(b"/.").unwrap_or(path);
    let end = path.iter().rposition(|&b| b != b'/').map_or(0, |last| last + 1);
    &path[..end.max(path.len().min(1))]
}

fn parent(path: &[u8]) -> Option<&[u8]> {
    let slash = path.iter().rposition(|&b| b == b'/')?;
    Some(&path[..slash.max(1)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_model::Digest;

    const PID: u32 = 7;
    const READ: u16 = OpenFlags::READ;
    const MAKE: u16 = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::TRUNCATE;

    fn event(kind: Kind, path: &str) -> trace::Event {
        let id = path.bytes().fold(1u64, |sum, b| sum * 31 + u64::from(b));
        let identity = Identity { device: 1, inode: id, size_bytes: 0, modified_ns: 0, changed_ns: 0 };
        trace::Event {
            pid: PID,
            error: 0,
            kind,
            path: path.into(),
            path2: Vec::new(),
            identity: Some(identity),
            mode: 0o100_644,
            extra: 0o666,
        }
    }

    fn open(path: &str, flags: u16) -> trace::Event {
        event(Kind::Open(OpenFlags(flags)), path)
    }

    fn failed(error: i32, event: trace::Event) -> trace::Event {
        trace::Event { error, identity: None, mode: 0, ..event }
    }

    fn folded(program: &str, mut events: Vec<trace::Event>) -> Folded {
        events.insert(0, event(Kind::Start, program));
        let policy = Policy {
            replaces_output: &|program| program == b"as",
            unlinks_output: &|program| program == b"as",
            adds_execute: &|_| false,
            variable_is_covered: &|name| name == b"COVERED",
            variable: &|name| (name == b"OUTER").then(|| b"1".to_vec()),
            is_compiler_part: &|program| program == b"as" || program == b"cc1",
            habit: &|program, told| {
                let part = program == b"as" || program == b"cc1" || told.starts_with(b"/b/meson");
                let times = if program == b"find" { Times::Status } else { Times::Blind };
                let times = if program == b"generator" { Times::Files } else { times };
                Habit {
                    times,
                    compares: program == b"make",
                    clock_reads: if part { 9 } else { 1 },
                    zone_reads: 0,
                    random_reads: 0,
                    sorts_names: part,
                    tunes_memory: part,
                    tries_terminal: false,
                    names_at_random: false,
                    names_as_tempfile: false,
                    shows_numbers: false,
                    tries_sockets: false,
                    reports: false,
                }
            },
            before: &|opened| {
                let known = event(Kind::Stat, "/w/known").identity.map(|id| id.inode) == Some(opened.inode);
                known.then(|| Prior::File { digest: Digest::of(b"old"), mode: Some(0o644) })
            },
            names_by_number: true,
            real: &|_| None,
            may_write: &|path| path.starts_with(b"/w/"),
            first_pid: Some(PID),
        };
        fold(&Trace { events, ..Trace::default() }, &policy)
    }

    /// What is relied on beside the program itself, what is changed, and why it is refused, as text.
    fn told(folded: &Folded) -> (String, String, String) {
        let text = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
        let looked = folded.seen.looked.iter().filter(|(path, _)| path.starts_with(b"/w/"));
        let ways = |l: &Looked| match l {
            Looked { prior: Some(Prior::Absent), .. } => "was absent",
            Looked { prior: Some(Prior::Kind(_)), .. } => "was there",
            Looked { prior: Some(Prior::File { .. }), .. } => "had content",
            Looked { absent: true, .. } => "absent",
            Looked { failed: Some(_), .. } => "fails",
            Looked { listed: true, .. } => "listed",
            Looked { content: true, .. } => "content",
            _ => "kind",
        };
        let looked: Vec<String> = looked.map(|(path, l)| format!("{} {}", text(path), ways(l))).collect();
        let changed: Vec<String> = folded.seen.changed.iter().map(|(path, _)| text(path)).collect();
        let refused = folded.refusals.first().map_or(String::new(), |(why, _)| why.code().to_owned());
        (looked.join(", "), changed.join(", "), refused)
    }

    fn check(what: &str, program: &str, events: Vec<trace::Event>, expect: (&str, &str, &str)) {
        let (looked, changed, refused) = told(&folded(program, events));
        assert_eq!((&*looked, &*changed, &*refused), expect, "{what}");
    }

    #[test]
    fn a_script_of_its_own_is_trusted_as_its_author_is() {
        let temporary = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCLUSIVE;
        let python = |pid: u32, told: &str| trace::Event {
            pid,
            path2: [told, "\x1f"].concat().into(),
            ..event(Kind::Start, "/b/python3")
        };
        let read_clock = |pid: u32| trace::Event { pid, extra: 1, ..event(Kind::Clock, "") };
        let refusals = |author: &str, flags: u16, script: &str| {
            let made = trace::Event { pid: 2, ..open("/t/own.py", flags) };
            let events = vec![python(2, author), made, python(3, script), read_clock(3), read_clock(3)];
            let refusals = folded("/b/sh", events).refusals;
            refusals.iter().filter(|(why, _)| *why == Unrecorded::Clock).count()
        };
        assert_eq!(refusals("/b/meson", temporary, "/t/own.py"), 0);
        assert_eq!(refusals("/b/meson", temporary, "/t/other.py"), 1);
        assert_eq!(refusals("/b/meson", OpenFlags::WRITE | OpenFlags::CREATE, "/t/own.py"), 1);
        assert_eq!(refusals("/b/other", temporary, "/t/own.py"), 1);
    }

    #[test]
    fn what_is_read_and_what_is_missing() {
        check("read", "/b/cc1", vec![open("/w/x.c", READ)], ("/w/x.c content", "", ""));
        check("missing", "/b/cc1", vec![failed(2, open("/w/a/h.h", READ))], ("/w/a/h.h absent", "", ""));
        check("forbidden", "/b/cc1", vec![failed(13, open("/w/h.h", READ))], ("/w/h.h fails", "", ""));
        check("listed", "/b/cc1", vec![event(Kind::List, "/w/d")], ("/w/d listed", "", ""));
        check("device", "/b/cc1", vec![open("/dev/sda", READ)], ("", "", "device"));
        check("harmless device", "/b/cc1", vec![open("/dev/null", READ)], ("", "", ""));
        let mut twice = open("/w/x.c", READ);
        twice.identity = twice.identity.map(|id| Identity { inode: 99, ..id });
        check(
            "replaced meanwhile",
            "/b/cc1",
            vec![open("/w/x.c", READ), twice],
            ("/w/x.c content", "", "input-changed"),
        );
    }

    #[test]
    fn what_is_made_is_no_input() {
        check("output", "/b/cc1", vec![open("/w/x.s", MAKE), open("/w/x.s", READ)], ("", "/w/x.s", ""));
        let temporary = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::EXCLUSIVE | OpenFlags::TEMPORARY;
        let unlinked = vec![open("/t/cc1.s", temporary), event(Kind::Unlink, "/t/cc1.s")];
        check("temporary", "/b/cc1", unlinked, ("", "", ""));
        let renamed = trace::Event { path2: b"/w/x.o".to_vec(), ..event(Kind::Rename(OpenFlags(0)), "/w/x.tmp") };
        check("renamed", "/b/cc1", vec![open("/w/x.tmp", temporary), renamed], ("", "/w/x.o", ""));
        check("elsewhere", "/b/cc1", vec![open("/etc/x", MAKE)], ("", "/etc/x", "output-elsewhere"));
        let other_name = trace::Event { path: b"/w/./x.s".to_vec(), ..open("/w/x.s", READ) };
        check("by another name", "/b/cc1", vec![open("/w/x.s", MAKE), other_name], ("", "/w/x.s", ""));
    }

    #[test]
    fn a_look_at_an_output_counts_as_it_was_before() {
        let looked_first = |error| {
            let look = event(Kind::Lstat, "/w/x.o");
            vec![if error == 0 { look } else { failed(error, look) }, open("/w/x.o", MAKE)]
        };
        check("absent", "/b/sh", looked_first(2), ("/w/x.o was absent", "/w/x.o", ""));
        check("there", "/b/sh", looked_first(0), ("/w/x.o was there", "/w/x.o", ""));
        check("a program that replaces it", "/b/as", looked_first(0), ("", "/w/x.o", ""));
        let mut read = open("/w/x.o", READ);
        read.identity = read.identity.map(|id| Identity { size_bytes: 5, ..id });
        let read_first = vec![read, open("/w/x.o", MAKE)];
        check("read first", "/b/cc1", read_first, ("", "/w/x.o", "updates-file"));
    }

    #[test]
    fn a_process_that_has_the_number_of_an_earlier_one_wrote_nothing() {
        let forked = trace::Event { extra: 99, mode: 99, ..event(Kind::Forked, "") };
        let events = vec![open("/w/x.o", MAKE), forked, event(Kind::Start, "/b/sh")];
        let by_as = folded("/b/as", events).seen.changed;
        let by_sh = folded("/b/sh", vec![open("/w/x.o", MAKE)]).seen.changed;
        let placement = |changed: &[(Vec<u8>, Change)]| match changed {
            [(_, Change::File { placement, .. })] => *placement,
            other => panic!("{other:?}"),
        };
        assert_eq!((placement(&by_as), placement(&by_sh)), (Placement::Replace, Placement::Truncate));
    }

    #[test]
    fn what_cannot_be_recorded() {
        let clock = |extra| trace::Event { extra, ..event(Kind::Clock, "") };
        check("a compiler's clock", "/b/cc1", vec![clock(1)], ("", "", ""));
        check("a date", "/b/cc1", vec![clock(4)], ("", "", "clock"));
        check("a habit", "/b/sh", vec![clock(1)], ("", "", ""));
        check("a script's clock", "/b/sh", vec![clock(1), clock(1)], ("", "", "clock"));
        check("random numbers", "/b/sh", vec![event(Kind::Random, "getrandom")], ("", "", "random"));
        let known = [open("/w/known", READ), open("/w/known", OpenFlags::WRITE)].to_vec();
        check("an update of what is known", "/b/ar", known, ("/w/known had content", "/w/known", ""));
        let times = |program| (program, [event(Kind::Stat, "/w/o"), open("/w/o", MAKE)].to_vec());
        let (program, events) = times("/b/find");
        check("an output's times", program, events, ("", "/w/o", "compares-times"));
        check("network", "/b/cc1", vec![event(Kind::Network, "")], ("", "", "network"));
        check("shortage", "/b/cc1", vec![failed(28, open("/w/x.o", MAKE))], ("", "", "shortage"));
        check("a child's death", "/b/cc1", vec![event(Kind::ChildDied, "")], ("", "", "signal"));
        check("unobserved", "/b/cc1", vec![event(Kind::Drop, "/w/static")], ("", "", "not-observed"));
        check("appended to", "/b/cc1", vec![updated("/w/log")], ("", "", "updates-file"));
        let silent = trace::Event { pid: 8, ..event(Kind::Exec, "/b/as") };
        check("no sign of life", "/b/cc1", vec![silent], ("", "", "not-observed"));
    }

    fn updated(path: &str) -> trace::Event {
        let mut open = open(path, OpenFlags::WRITE | OpenFlags::APPEND);
        open.identity = open.identity.map(|id| Identity { size_bytes: 5, ..id });
        open
    }

    #[test]
    fn variables_of_the_callers_count() {
        let asked = |name: &str, value: &str| trace::Event {
            path2: value.into(),
            error: if value.is_empty() { 2 } else { 0 },
            ..event(Kind::GetEnvironment, name)
        };
        let events =
            vec![asked("OUTER", "1"), asked("OWN", "set by the tool"), asked("UNSET", ""), asked("COVERED", "")];
        let mut names = folded("/b/cc1", events).seen.environment;
        names.sort();
        assert_eq!(names, [(b"OUTER".to_vec(), Some(b"1".to_vec())), (b"UNSET".to_vec(), None)]);
    }
}
