//! Compares the two observers: one run is seen by the preloaded library and by the kernel, and this
//! module finds what only one of them saw.
//!
//! A program may be left to the preloaded library alone once both have seen the same of it. Three
//! kinds of accesses never reach the library and do not count against the program:
//!
//! * The dynamic loader's, before the program begins. They come before the library opens its log.
//! * The dynamic loader's, later, for a plugin. They are failed searches for a library that the
//!   library saw loaded, and stats of the directories around it.
//! * libc's to its own files. These files are in [`LIBC_FILES`] or [`LIBC_DIRECTORIES`].
//!
//! These accesses depend on the program, its libraries, and variables that are in the cache key. So
//! what was seen once can be recorded with every later run of that program. Anything else that only
//! one of the two saw means that the library misses something.
//!
//! All of this is pure, except for [`BothObservers`] and for paths with `..`. Unaware of: where verdicts are stored.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;

use larder_model::path::{file_name, has_parents, split, without_parents};
use larder_spawn::{Command, Destinations};
use larder_sys::{FileType, Rivalry};

use crate::event::{self, LOCAL_TIME};
use crate::paths::{as_made, by_parents};
use crate::process_tree::ProcessTree;
use crate::{Closing, EventKind, KernelObserver, Observed, Observer, OpenFlags, PreloadObserver, Trace};

/// Files that libc reads by itself.
#[rustfmt::skip]
pub const LIBC_FILES: &[&str] = &[
    // setlocale, local time
    "/etc/locale.alias", "/etc/localtime",
    // Names of users, groups and hosts. libc stats `/` to notice that the root has changed.
    "/etc/nsswitch.conf", "/", "/etc/passwd", "/etc/group", "/var/run/nscd/socket", "/run/nscd/socket",
    // sysconf, malloc, qsort
    "/proc/meminfo", "/proc/stat", "/proc/sys/vm/overcommit_memory", "/proc/sys/kernel/ngroups_max",
    // getlogin
    "/proc/self/loginuid",
];

/// Directories in which libc reads files by itself, at any depth.
#[rustfmt::skip]
pub const LIBC_DIRECTORIES: &[&str] = &[
    // setlocale, message catalogues, character sets
    "/usr/lib/locale", "/usr/share/locale", "/usr/share/locale-langpack", "/usr/share/i18n",
    "/usr/lib/x86_64-linux-gnu/gconv", "/usr/lib/aarch64-linux-gnu/gconv", "/usr/lib64/gconv", "/usr/lib/gconv",
    // local time
    "/usr/share/zoneinfo",
    // sysconf, malloc
    "/sys/devices/system/cpu", "/sys/fs/cgroup",
];

/// Paths that the library itself asks for, whatever the program does. Each is a prefix.
const LIBRARYS_OWN: &[&[u8]] = &[b"/proc/self/exe", b"/proc/self/fd/", b"/proc/self/cwd"];
/// Files that libc reads to find the stack of a thread (`pthread_getattr_np`). What they hold are
/// addresses that the kernel chose at random, which no observer sees anyway.
const OF_THREADS: &[&[u8]] = &[b"/proc/self/maps"];
/// A file could not be created because its path is that of a directory.
const NOT_CREATED: AccessKind = AccessKind::Failed(libc::EISDIR);
/// A file that is always empty, so accesses to it do not matter.
const NOTHING: &[u8] = b"/dev/null";

/// The kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AccessKind {
    /// The content was read, or the file was executed.
    Read,
    /// The path was looked at, by a stat or `access`, with links followed.
    Looked,
    /// The path was looked at as a link, by `lstat` or `readlink`.
    Link,
    /// The names in the directory were listed.
    Listed,
    /// The path was looked for and does not exist.
    Absent,
    /// Looking failed with this errno.
    Failed(i32),
    /// The path was created or written.
    Made,
    /// The path was removed or renamed.
    Removed,
    /// The mode, owner, times or attributes were changed, or a change of them failed.
    Changed,
    /// A socket was created or connected.
    Socket,
    /// The host name, umask, clock or random numbers were asked for.
    Asked,
}

/// One kind of access of one program to one path.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Access {
    /// The path of the program's file. It is empty for executions, which count for any program.
    pub program: Vec<u8>,
    /// The path, as the program used it.
    pub path: Vec<u8>,
    /// The kind of the access.
    pub kind: AccessKind,
}

/// The result of comparing the two observers on one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Both saw the same, except for `unseen`.
    pub alike: bool,
    /// Accesses that only the kernel saw and that the loader or libc made. They are recorded with
    /// every later run of the program.
    pub unseen: Vec<Access>,
    /// All other accesses that only the kernel saw. The library misses them.
    pub missed: Vec<Access>,
    /// Accesses that only the library saw.
    pub invented: Vec<Access>,
    /// Something happened that one of the two observers cannot follow.
    pub dropped: bool,
}

/// Runs a tool under both observers.
pub struct BothObservers {
    preload: PreloadObserver,
    kernel: KernelObserver,
}

/// What both observers saw of one run.
pub struct BothObserved {
    /// The run, as the preloaded observer saw it.
    pub observed: Observed,
    /// What the kernel observer saw of the same run.
    pub kernel: Trace,
    /// Prefixes of paths that only the preloaded observer uses, in this process and in nested
    /// wrappers.
    own_paths: Vec<Vec<u8>>,
    /// The path of our own program.
    wrapper: Vec<u8>,
}

impl BothObservers {
    /// Creates both observers. Fails if the preloaded library cannot be set up.
    pub fn new(closing: Closing) -> io::Result<BothObservers> {
        Ok(BothObservers { preload: PreloadObserver::new()?, kernel: KernelObserver::new(closing) })
    }

    /// Runs the tool under both observers. An error means that the tool was not started, so it can
    /// still be run in another way.
    pub fn run(&self, command: &Command, to: &Destinations, rival: Rivalry) -> io::Result<BothObserved> {
        let wrapper = larder_sys::link_target(b"/proc/self/exe")?;
        self.preload.kernel_asks()?;
        let (supervisor, trace) = self.kernel.supervisor(true);
        let observed = larder_spawn::attended(Box::new(supervisor), || self.preload.run(command, to, rival))?;
        let kernel = trace.take().unwrap_or(Trace { incomplete: true, ..Trace::default() });
        let began = |event: &Event| (event.kind == EventKind::Start && event.path == wrapper).then_some(event.pid);
        let wrappers = kernel.iter().filter_map(|event| began(&event));
        let own_paths = wrappers.chain([larder_sys::process_id()]).map(|pid| format!("/proc/{pid}/fd/").into_bytes());
        Ok(BothObserved { own_paths: own_paths.collect(), observed, kernel, wrapper })
    }
}

impl BothObserved {
    /// Returns the run as the kernel observer saw it, without the accesses that only the preloaded
    /// library makes, and with the reports of nested wrappers.
    pub fn by_kernel(self) -> Observed {
        let is_own = |path: &[u8]| self.own_paths.iter().any(|own| path.starts_with(own));
        let mut reported = reports(&self.observed.trace, &self.wrapper);
        let mut events = Vec::new();
        for event in self.kernel.events.into_iter().filter(|event| !is_own(&event.path)) {
            let own = event.kind == EventKind::Start && event.path == self.wrapper;
            let unsaid = event::Event { kind: EventKind::Drop, ..event.clone() };
            events.push(event);
            if own {
                let reports = reported.get_mut(&unsaid.pid).and_then(VecDeque::pop_front);
                events.extend(reports.unwrap_or_else(|| vec![unsaid]));
            }
        }
        let trace = Trace { events, ..self.kernel };
        Observed { finished: self.observed.finished, trace }
    }

    /// Compares what both observers saw.
    pub fn verdict(&self) -> Verdict {
        compare(&self.observed.trace, &self.kernel, &self.own_paths, &self.wrapper)
    }
}

/// The path that stands for random numbers in a [`AccessKind::Asked`].
const RANDOM: &[u8] = b"random";

type Event<'t> = event::Event<&'t [u8]>;
type Fact<'t> = (&'t [u8], Vec<u8>, AccessKind);

/// The program that stands in accesses by execution, because the observers may differ about which
/// program executed a file.
pub(crate) const EXECUTED: &[u8] = b"";

/// Returns the reports of nested wrappers by pid. A process may have run a nested wrapper several
/// times, so each pid has a queue with one report for each run.
fn reports(preload: &Trace, wrapper: &[u8]) -> HashMap<u32, VecDeque<Vec<event::Event>>> {
    let mut reports: HashMap<u32, VecDeque<Vec<event::Event>>> = HashMap::new();
    let mut tree = ProcessTree::default();
    for event in preload.iter() {
        tree.learn(&event);
        if tree.runs(event.pid).program != wrapper {
            continue;
        }
        let of_process = reports.entry(event.pid).or_default();
        match event.kind {
            EventKind::Start => of_process.push_back(Vec::new()),
            // The kernel observer has written these itself.
            EventKind::Exec | EventKind::ExecFailed => {}
            _ => of_process.back_mut().into_iter().for_each(|events| events.push(event.owned())),
        }
    }
    reports
}

/// Compares what both observers saw of one run. The preloaded library and its log are files below
/// one of `own_paths`. The accesses of nested wrappers, whose program is `wrapper`, are ignored.
pub fn compare(preload: &Trace, kernel: &Trace, own_paths: &[Vec<u8>], wrapper: &[u8]) -> Verdict {
    let links = Links::of(kernel);
    let (theirs, ours) =
        (Facts::of(preload, &links, own_paths, wrapper), Facts::of(kernel, &links, own_paths, wrapper));
    let dropped = preload.incomplete || kernel.incomplete || theirs.dropped || ours.dropped || ours.unloaded;
    let mut verdict = Verdict { dropped, ..Verdict::default() };
    for fact in ours.all.iter().filter(|fact| !theirs.cover(fact)) {
        let list = match ours.is_loaders_or_libcs(fact, &theirs) {
            true => &mut verdict.unseen,
            false => &mut verdict.missed,
        };
        list.push(access(fact));
    }
    // The kernel observer does not count a draw in the form that libc uses for itself. The library
    // sees such a draw if the program makes it by a function of libc. It is not invented.
    let is_random = |fact: &Fact| fact.2 == AccessKind::Asked && fact.1 == RANDOM;
    let invented = theirs.all.iter().filter(|fact| !ours.cover(fact) && !is_random(fact));
    verdict.invented = invented.map(access).collect();
    for list in [&mut verdict.unseen, &mut verdict.missed, &mut verdict.invented] {
        list.sort();
    }
    verdict.alike = !dropped && verdict.missed.is_empty() && verdict.invented.is_empty();
    verdict
}

/// Returns the path with its directory resolved, if that exists.
fn real(path: &[u8]) -> Option<Vec<u8>> {
    let (directory, name) = split(path)?;
    let directory = larder_sys::Dir::open(directory, false).and_then(|directory| directory.real_path()).ok()?;
    Some([&directory, &b"/"[..], name].concat())
}

fn access((program, path, what): &Fact) -> Access {
    Access { program: program.to_vec(), path: path.clone(), kind: *what }
}

/// The accesses of a trace, by program.
#[derive(Default)]
struct Facts<'t> {
    all: HashSet<Fact<'t>>,
    /// The accesses of `all`, whichever program made them.
    by_any_program: HashSet<(Vec<u8>, AccessKind)>,
    /// Accesses before the program itself began, so by its loader.
    loaders: HashSet<Fact<'t>>,
    /// Paths that a program reached by a path with `..` in it, resolved as text.
    returned_to: HashSet<(&'t [u8], Vec<u8>)>,
    /// The file names of the libraries that each program has loaded.
    libraries: HashSet<(&'t [u8], &'t [u8])>,
    dropped: bool,
    /// A program ran without the preloaded library.
    unloaded: bool,
}

impl<'t> Facts<'t> {
    fn of(trace: &'t Trace, links: &Links<'t>, own_paths: &[Vec<u8>], wrapper: &[u8]) -> Facts<'t> {
        let mut facts = Facts::default();
        let by_parents = by_parents(trace, &real);
        let mut tree = ProcessTree::default();
        let mut loading: HashSet<u32> = HashSet::default();
        // The programs that a nested wrapper starts. The wrapper reports the tool that it runs, and
        // the library is not in the programs that it runs for its own purposes.
        let mut helpers: HashSet<u32> = HashSet::default();
        for e in trace.iter() {
            match e.kind {
                EventKind::Start => {
                    tree.learn(&e);
                    if e.path == wrapper {
                        loading.remove(&e.pid);
                        continue;
                    }
                    let is_wrapper = |pid: u32| !wrapper.is_empty() && tree.runs(pid).program == wrapper;
                    if tree.line(e.pid).skip(1).any(is_wrapper) {
                        helpers.insert(e.pid);
                    }
                    facts.unloaded |= !loading.insert(e.pid) && !helpers.contains(&e.pid);
                }
                EventKind::Forked => drop(tree.learn(&e)),
                EventKind::Drop => facts.dropped = true,
                _ => {}
            }
            if own_paths.iter().any(|own| e.path.starts_with(own)) {
                // The library opens its log when it begins, which is after the loader has finished.
                if matches!(e.kind, EventKind::Open(flags) if flags.has(OpenFlags::WRITE)) {
                    loading.remove(&e.pid);
                }
                continue;
            }
            let program = tree.runs(e.pid).program;
            if !wrapper.is_empty() && program == wrapper && e.kind != EventKind::Exec {
                continue;
            }
            if e.kind == EventKind::Object {
                facts.libraries.insert((program, file_name(e.path)));
            }
            // A program is often executed by a child that was forked for it, and one observer may
            // not know that child yet.
            let executes =
                matches!(e.kind, EventKind::Exec | EventKind::ExecFailed | EventKind::Anonymous | EventKind::Drop);
            for (path, what) in said(&e, program, links) {
                let program = if executes { EXECUTED } else { program };
                if what == AccessKind::Looked && has_parents(&path) {
                    facts.returned_to.insert((program, without_parents(&path)));
                }
                // A directory that is opened and then listed is given by two forms of its path.
                let path = without_dots(path);
                let fact = (program, as_made(&by_parents, &path).unwrap_or(path), what);
                if loading.contains(&e.pid) {
                    facts.loaders.insert(fact.clone());
                }
                facts.all.insert(fact);
            }
        }
        facts.unloaded |= !loading.is_subset(&helpers);
        facts.all.retain(|(_, path, _)| {
            let is_own = || LIBRARYS_OWN.iter().any(|own| path.starts_with(own)) || OF_THREADS.contains(&&path[..]);
            path != NOTHING && !path.is_empty() && !is_own()
        });
        facts.by_any_program = facts.all.iter().map(|(_, path, what)| (path.clone(), *what)).collect();
        facts
    }

    /// Returns true if this observer saw the access, or another one that implies it.
    fn cover(&self, (program, path, what): &Fact<'t>) -> bool {
        let has = |what| match *program == EXECUTED {
            true => self.by_any_program.contains(&(path.clone(), what)),
            false => [*program, EXECUTED].iter().any(|by| self.all.contains(&(*by, path.clone(), what))),
        };
        let also: &[AccessKind] = match what {
            AccessKind::Looked => &[
                AccessKind::Read,
                AccessKind::Listed,
                AccessKind::Made,
                AccessKind::Removed,
                AccessKind::Changed,
                NOT_CREATED,
            ],
            AccessKind::Read => &[AccessKind::Made],
            // The library looks at a path before the call that creates it, which may fail.
            AccessKind::Absent => &[AccessKind::Made, AccessKind::Changed, NOT_CREATED],
            AccessKind::Link => &[AccessKind::Removed, AccessKind::Made, AccessKind::Changed],
            // A directory was opened to be listed, but was not listed.
            AccessKind::Listed => &[AccessKind::Looked],
            _ => &[],
        };
        // After `chdir` the library stats the new working directory.
        let itself = path.strip_suffix(b"/.").map(|dir| if dir.is_empty() { b"/".to_vec() } else { dir.to_vec() });
        let is_known = |dir: Vec<u8>| {
            let ways = [AccessKind::Looked, AccessKind::Made, AccessKind::Failed(libc::EEXIST)];
            ways.iter().any(|what| self.all.contains(&(*program, dir.clone(), *what)))
                || self.returned_to.contains(&(*program, dir))
        };
        let moved = *what == AccessKind::Looked && itself.is_some_and(is_known);
        has(*what) || also.iter().any(|what| has(*what)) || moved
    }

    fn is_loaders_or_libcs(&self, fact: &Fact<'t>, theirs: &Facts<'t>) -> bool {
        let (program, path, what) = fact;
        let within = |directory: &&str| {
            path.strip_prefix(directory.as_bytes()).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
        };
        let libcs = LIBC_FILES.iter().any(|file| path == file.as_bytes()) || LIBC_DIRECTORIES.iter().any(within);
        let looks = matches!(
            what,
            AccessKind::Read | AccessKind::Looked | AccessKind::Link | AccessKind::Absent | AccessKind::Listed
        );
        let searched =
            matches!(what, AccessKind::Absent | AccessKind::Looked) && self.is_on_the_way(program, path, theirs);
        looks && (libcs || searched || self.loaders.contains(fact))
    }

    /// Returns true if the loader looked at `path` while it searched for a library that it then
    /// found elsewhere: `path` has the name of that library, or is a directory above such a path.
    /// Since glibc 2.38, the loader stats such a directory with a `/` at the end.
    fn is_on_the_way(&self, program: &'t [u8], path: &[u8], theirs: &Facts<'t>) -> bool {
        let path = path.strip_suffix(b"/").unwrap_or(path);
        let library = |path: &[u8]| theirs.libraries.iter().any(|(p, name)| *p == program && *name == file_name(path));
        let below = |other: &[u8]| other.strip_prefix(path).is_some_and(|rest| rest.starts_with(b"/"));
        let absent = self.all.iter().filter(|(p, _, what)| *p == program && *what == AccessKind::Absent);
        library(path) || absent.into_iter().any(|(_, other, _)| below(other) && library(other))
    }
}

/// Returns the accesses of one event.
fn said<'t>(e: &Event<'t>, program: &[u8], links: &Links<'t>) -> Vec<(Vec<u8>, AccessKind)> {
    let one = |what| vec![(e.path.to_vec(), what)];
    let looked = |what| match e.error {
        0 => one(what),
        libc::ENOENT => one(AccessKind::Absent),
        error => one(AccessKind::Failed(error)),
    };
    match e.kind {
        // The kernel observer cannot foresee if there is a terminal.
        EventKind::Open(_) if e.path == b"/dev/tty" => one(AccessKind::Looked),
        EventKind::Open(flags) => opened(e, flags, looked),
        EventKind::Object => looked(AccessKind::Read),
        // The library opens a script to find its interpreter.
        EventKind::Exec if e.identity.is_some() && !e.path2.is_empty() => {
            vec![(e.path.to_vec(), AccessKind::Read), (e.path2.to_vec(), AccessKind::Read)]
        }
        EventKind::Exec | EventKind::Anonymous if e.identity.is_some() => one(AccessKind::Read),
        // The program was started although the library cannot be loaded into it. The program that
        // started it is not at fault.
        EventKind::Drop if e.identity.is_some() => {
            let files = [e.path, e.path2].into_iter().filter(|path| !path.is_empty());
            files.flat_map(|path| [(path.to_vec(), AccessKind::Read), (path.to_vec(), AccessKind::Looked)]).collect()
        }
        EventKind::ExecFailed => looked(AccessKind::Read),
        EventKind::Stat | EventKind::Access => looked(AccessKind::Looked),
        EventKind::ReadLink if e.error == libc::EINVAL => one(AccessKind::Link),
        EventKind::Lstat | EventKind::ReadLink => looked(AccessKind::Link),
        EventKind::RealPath => links.visited(program, e.path),
        EventKind::List if e.error == 0 => vec![(inode(e), AccessKind::Listed), (e.path.to_vec(), AccessKind::Looked)],
        EventKind::List => looked(AccessKind::Listed),
        EventKind::Unlink | EventKind::RemoveDirectory => looked(AccessKind::Removed),
        EventKind::Rename(_) if e.error == 0 => {
            vec![(e.path.to_vec(), AccessKind::Removed), (e.path2.to_vec(), AccessKind::Made)]
        }
        // The call was asked not to replace an existing path.
        EventKind::Rename(_) if e.error == libc::EEXIST => vec![(e.path2.to_vec(), AccessKind::Link)],
        EventKind::Symlink | EventKind::Link if e.error == 0 => vec![(e.path2.to_vec(), AccessKind::Made)],
        EventKind::MakeDirectory | EventKind::MakeNode => looked(AccessKind::Made),
        EventKind::Rename(_) | EventKind::Symlink | EventKind::Link => {
            vec![(e.path.to_vec(), AccessKind::Changed), (e.path2.to_vec(), AccessKind::Changed)]
        }
        EventKind::ChangeMode
        | EventKind::Truncate
        | EventKind::SetTimes
        | EventKind::ChangeOwner
        | EventKind::SetAttribute => one(AccessKind::Changed),
        // The function does not matter, because a run with network access is not recorded.
        EventKind::Network => vec![(b"network".to_vec(), AccessKind::Socket)],
        EventKind::UnixSocket => one(AccessKind::Socket),
        EventKind::Identity => vec![(b"host".to_vec(), AccessKind::Asked)],
        EventKind::Umask => vec![(b"umask".to_vec(), AccessKind::Asked)],
        // A local time needs the time zone. The two observers see its read in different ways.
        EventKind::Clock if e.extra != LOCAL_TIME => vec![(b"clock".to_vec(), AccessKind::Asked)],
        EventKind::Random if e.extra == 0 => vec![(RANDOM.to_vec(), AccessKind::Asked)],
        // All other events stay inside of the program, or the two observers write them in different
        // ways.
        _ => Vec::new(),
    }
}

fn opened<'t>(
    e: &Event<'t>,
    flags: OpenFlags,
    looked: impl Fn(AccessKind) -> Vec<(Vec<u8>, AccessKind)>,
) -> Vec<(Vec<u8>, AccessKind)> {
    let no_content = flags.has(OpenFlags::PATH_ONLY | OpenFlags::DIRECTORY) || e.file_type() == FileType::Directory;
    if flags.has(OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::TRUNCATE) {
        looked(AccessKind::Made)
    } else {
        looked(if no_content { AccessKind::Looked } else { AccessKind::Read })
    }
}

/// Returns an identity for a directory that is listed, because it may be known by two paths.
fn inode(e: &Event) -> Vec<u8> {
    match e.identity {
        Some(id) => format!("directory {}:{}", id.device, id.inode).into_bytes(),
        None => e.path.to_vec(),
    }
}

/// The results of reading one path as a link. The path may have been several things during the run.
#[derive(Default)]
struct Way<'t> {
    target: Option<&'t [u8]>,
    missing: bool,
    plain: bool,
}

/// The links that the kernel observer saw, which tell what `realpath` looked at.
struct Links<'t> {
    /// By program and path.
    read: HashMap<&'t [u8], HashMap<&'t [u8], Way<'t>>>,
    /// The errno of looking at a path with a `/` at its end, by program and path without that
    /// slash. It tells whether the path is a directory.
    directories: HashMap<&'t [u8], HashMap<&'t [u8], i32>>,
}

impl<'t> Links<'t> {
    /// The kernel follows at most this many links in a row.
    const MAX: usize = 40;

    fn of(kernel: &'t Trace) -> Links<'t> {
        let mut tree = ProcessTree::default();
        let mut links = Links { read: HashMap::default(), directories: HashMap::default() };
        for e in kernel.iter() {
            tree.learn(&e);
            let program = tree.runs(e.pid).program;
            match e.kind {
                EventKind::ReadLink => {
                    let way = links.read.entry(program).or_default().entry(e.path).or_default();
                    match e.error {
                        0 => way.target = Some(e.path2),
                        libc::ENOENT => way.missing = true,
                        _ => way.plain = true,
                    }
                }
                // `realpath` of glibc before 2.33 calls `lstat` for each component first, and
                // `readlink` only for links.
                EventKind::Lstat => {
                    let way = links.read.entry(program).or_default().entry(e.path).or_default();
                    match e.error {
                        0 if e.file_type() == FileType::Link => {}
                        libc::ENOENT => way.missing = true,
                        _ => way.plain = true,
                    }
                }
                EventKind::Access => {
                    if let Some(directory) = e.path.strip_suffix(b"/") {
                        links.directories.entry(program).or_default().insert(directory, e.error);
                    }
                }
                _ => {}
            }
        }
        links
    }

    fn visited(&self, program: &[u8], path: &[u8]) -> Vec<(Vec<u8>, AccessKind)> {
        let parts = |path: &[u8]| -> Vec<Vec<u8>> { path.split(|&b| b == b'/').rev().map(<[u8]>::to_vec).collect() };
        let (mut done, mut rest, mut facts, mut followed) = (Vec::new(), parts(path), Vec::new(), 0);
        while let Some(part) = rest.pop() {
            match &part[..] {
                b"" | b"." => continue,
                b".." => {
                    let end = done.iter().rposition(|&b| b == b'/').unwrap_or(0);
                    done.truncate(end);
                    continue;
                }
                _ => {}
            }
            let next = [&done, &b"/"[..], &part].concat();
            if let Some(error) = self.directories.get(program).and_then(|looks| looks.get(&next[..])) {
                let what = if *error == 0 { AccessKind::Looked } else { AccessKind::Failed(*error) };
                facts.push(([&next[..], b"/"].concat(), what));
            }
            // The path begins with the working directory if it was relative. That part has no
            // links.
            let Some(way) = self.read.get(program).and_then(|read| read.get(&next[..])) else {
                done = next;
                continue;
            };
            if way.missing {
                facts.push((next.clone(), AccessKind::Absent));
            }
            if way.plain || way.target.is_some() {
                facts.push((next.clone(), AccessKind::Link));
            }
            match way.target {
                Some(target) if followed < Self::MAX => {
                    followed += 1;
                    if target.starts_with(b"/") {
                        done.clear();
                    }
                    rest.extend(parts(target));
                }
                _ => done = next,
            }
        }
        facts
    }
}

/// Returns the path without `.` components in its middle.
fn without_dots(mut path: Vec<u8>) -> Vec<u8> {
    while let Some(at) = memchr::memmem::find(&path, b"/./") {
        path.drain(at..at + 2);
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLUMBING: &[u8] = b"/proc/9/fd/";

    fn event(kind: EventKind, path: &str, error: i32) -> event::Event {
        event::Event { error, ..event::Event::new(7, kind, path.into()) }
    }

    fn compared(preload: &[event::Event], kernel: &[event::Event]) -> (bool, Vec<String>, Vec<String>) {
        let trace = |events: &[event::Event]| {
            let start = event(EventKind::Start, "/b/x", 0);
            Trace { events: [&[start], events].concat(), ..Trace::default() }
        };
        let verdict = compare(&trace(preload), &trace(kernel), &[PLUMBING.to_vec()], b"");
        let paths =
            |accesses: &[Access]| accesses.iter().map(|s| String::from_utf8_lossy(&s.path).into_owned()).collect();
        (verdict.alike, paths(&verdict.unseen), paths(&verdict.missed))
    }

    /// Returns the event of the library opening its log.
    fn begins() -> event::Event {
        event(EventKind::Open(OpenFlags(OpenFlags::READ | OpenFlags::WRITE)), "/proc/9/fd/4", 0)
    }

    fn read(path: &str) -> event::Event {
        event(EventKind::Open(OpenFlags(OpenFlags::READ)), path, 0)
    }

    #[test]
    fn only_loader_and_libc_may_go_unseen() {
        let missing = |path: &str| event(EventKind::Open(OpenFlags(OpenFlags::READ)), path, libc::ENOENT);
        let library = event(EventKind::Object, "/lib/p.so", 0);
        let id = larder_model::Identity { device: 1, inode: 2, size_bytes: 3, modified_ns: 4, changed_ns: 5 };
        let check = |what: &str, preload: &[_], kernel: &[_], alike, unseen: &[&str], missed: &[&str]| {
            let owned = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect::<Vec<_>>();
            assert_eq!(compared(preload, kernel), (alike, owned(unseen), owned(missed)), "{what}");
        };
        let loads = [missing("/opt/p.so"), read("/lib/p.so"), begins()];
        check("by the loader", std::slice::from_ref(&library), &loads, true, &["/opt/p.so"], &[]);
        let plugin = [begins(), missing("/opt/p.so"), read("/lib/p.so")];
        check("for a plugin", std::slice::from_ref(&library), &plugin, true, &["/opt/p.so"], &[]);
        let locale = [begins(), read("/usr/share/locale/de/x.mo")];
        let absent = |path: &str| event(EventKind::Stat, path, libc::ENOENT);
        let directories = [begins(), missing("/opt/v3/p.so"), absent("/opt/v3"), read("/lib/p.so")];
        let searched = ["/opt/v3", "/opt/v3/p.so"];
        check("in directories", std::slice::from_ref(&library), &directories, true, &searched, &[]);
        let directories = [begins(), missing("/opt/v3/p.so"), absent("/opt/v3/"), read("/lib/p.so")];
        let searched = ["/opt/v3/", "/opt/v3/p.so"];
        check("in directories of glibc 2.38", std::slice::from_ref(&library), &directories, true, &searched, &[]);
        check("a directory", std::slice::from_ref(&library), &[begins(), absent("/w/v3/")], false, &[], &["/w/v3/"]);
        check("messages", &[], &locale, true, &["/usr/share/locale/de/x.mo"], &[]);
        check("a raw system call", &[], &[begins(), read("/w/x")], false, &[], &["/w/x"]);
        check("not loaded", &[], &[begins(), missing("/w/p.so")], false, &[], &["/w/p.so"]);
        check("only the library", &[read("/w/x")], &[begins()], false, &[], &[]);
        let at_the_root = [begins(), event(EventKind::Stat, "/", 0), event(EventKind::Stat, "/.", 0)];
        check("stat after chdir", &[event(EventKind::Stat, "/", 0)], &at_the_root, true, &[], &[]);
        let shell = |kind| [event::Event { identity: Some(id), ..event(kind, "/bin/sh", 0) }];
        check(
            "by system()",
            &shell(EventKind::Anonymous),
            &[begins(), shell(EventKind::Exec)[0].clone()],
            true,
            &[],
            &[],
        );
        let asks = event(EventKind::Random, "getrandom", 0);
        check("random numbers", &[], &[begins(), asks.clone()], false, &[], &["random"]);
        check("in the form of libc's own", std::slice::from_ref(&asks), &[begins()], true, &[], &[]);
        let by_vdso = event::Event { extra: event::RANDOM_BY_VDSO, ..asks };
        check("for the name of a file", &[], &[begins(), by_vdso], true, &[], &[]);
        check("a drop", &[event(EventKind::Drop, "/w/static", 0)], &[begins()], false, &[], &[]);
        check("not preloaded", &[], &[read("/lib/c.so")], false, &["/lib/c.so"], &[]);
    }

    #[test]
    fn what_a_wrapper_runs_for_itself_has_no_library() {
        let start =
            |pid: u32, parent: u32, path: &str| event::Event { pid, extra: parent, ..event(EventKind::Start, path, 0) };
        let begins = |pid: u32| event::Event { pid, ..begins() };
        let trace = |helpers: u32| Trace {
            events: vec![start(7, 1, "/b/sh"), begins(7), start(8, 7, "/b/larder"), start(9, helpers, "/b/cc")],
            ..Trace::default()
        };
        let said = Trace { events: vec![start(7, 1, "/b/sh")], ..Trace::default() };
        let alike = |parent: u32| compare(&said, &trace(parent), &[PLUMBING.to_vec()], b"/b/larder").alike;
        assert!(alike(8), "the wrapper's child");
        assert!(!alike(7), "the shell's child");
    }

    #[test]
    fn a_real_path_is_the_links_on_its_way() {
        let link =
            |path: &str, target: &str| event::Event { path2: target.into(), ..event(EventKind::ReadLink, path, 0) };
        let plain = |path: &str| event(EventKind::ReadLink, path, libc::EINVAL);
        let kernel = [
            begins(),
            plain("/a"),
            link("/a/l", "../b"),
            plain("/b"),
            event(EventKind::ReadLink, "/b/x", libc::ENOENT),
        ];
        let (alike, ..) = compared(&[event(EventKind::RealPath, "/a/./l/../b/x", libc::ENOENT)], &kernel);
        assert!(alike);
        let (alike, _, missed) = compared(&[event(EventKind::RealPath, "/a", 0)], &kernel);
        assert_eq!((alike, missed.len()), (false, 3));
    }

    #[test]
    fn a_real_path_by_looking_at_each_component() {
        let looked = |path: &str, mode: u32| event::Event { mode, ..event(EventKind::Lstat, path, 0) };
        let (directory, link) = (0o040_755, 0o120_777);
        let kernel = [
            begins(),
            looked("/a", directory),
            looked("/a/l", link),
            event::Event { path2: b"../b".to_vec(), ..event(EventKind::ReadLink, "/a/l", 0) },
            looked("/b", directory),
            event(EventKind::Lstat, "/b/x", libc::ENOENT),
        ];
        let (alike, ..) = compared(&[event(EventKind::RealPath, "/a/l/x", libc::ENOENT)], &kernel);
        assert!(alike);
    }
}
