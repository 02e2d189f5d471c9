//! Reports to the run that contains us, if there is one. `larder run -- make` observes make and all
//! processes below it, and so also the wrappers that make starts. Each wrapper reports what its
//! tool relied on and what it wrote, as if the tool had done so. Files of larder itself are not
//! reported.
//!
//! Unaware of: how the outer run uses these reports.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use larder_compiler::is_of_job;
use larder_lookup::{Place, Request, left_out};
use larder_model::path::{absolute, join};
use larder_model::{
    ALL_VARIABLES, ActionResult, Fact, HOST_NAME, JOB_VARIABLES, Links, Looked, ObservationSet, OfHistory, Output,
    OutputKind, Placement, Roots, SOCKETS, UMASK, looked_for_along_path, of_host_field,
};
use larder_observe::{
    Event, EventKind, IN_ANY_ORDER, IN_ANY_ORDER_OF_KINDS, INTERNET, OpenFlags, OuterLog, REPORTED_BELONGS,
    REPORTED_COMPARED, REPORTED_MODE, REPORTED_MODIFIED, REPORTED_OWNER, REPORTED_STATUS, REPORTED_UMASK, SOCKET,
    Trace, mode_of, reported_output,
};
use larder_sys::Stat;

use crate::own_file::own_path;

const ENOENT: i32 = 2;
const EINVAL: i32 = 22;
const FILE: u32 = 0o100_644;
const DIRECTORY: u32 = 0o040_755;

/// The outer run, once it was found. It is not thread-local, because a destructor at the end of a
/// thread costs a hit six system calls.
static OUTER: OnceLock<OuterLog> = OnceLock::new();

/// True if the environment names an outer run, even if we cannot report to it.
static NAMED: AtomicBool = AtomicBool::new(false);

fn with<T>(use_it: impl FnOnce(&OuterLog) -> T) -> Option<T> {
    OUTER.get().map(use_it)
}

fn report(events: Vec<Event>) {
    with(|log| log.report(&Trace { events, ..Trace::default() }));
}

/// Finds the outer run by the environment, removes its variables from there, and reports that we
/// have started.
pub(crate) fn find(environment: &mut Vec<(Vec<u8>, Vec<u8>)>) {
    NAMED.store(OuterLog::is_named(environment), Relaxed);
    let Some(log) = OuterLog::take(environment) else { return };
    let parent = larder_sys::parent_process_id();
    let _ = OUTER.set(log);
    report(vec![Event { path: own_path(), extra: parent, ..event(EventKind::Start) }]);
}

/// Reports that our actions are unknown, so that the outer run is not recorded.
pub(crate) fn is_lost() {
    with(|log| log.report(&Trace { incomplete: true, ..Trace::default() }));
}

/// Returns true if there is an outer run that we can report to.
pub(crate) fn is_there() -> bool {
    with(|_| ()).is_some()
}

/// Returns true if there is an outer run, even if we cannot report to it.
pub(crate) fn is_around() -> bool {
    NAMED.load(Relaxed)
}

/// Reports that we read a file, or found none.
pub(crate) fn reads(path: &[u8]) {
    let open = EventKind::Open(OpenFlags(OpenFlags::READ));
    report(vec![match larder_sys::stat(path) {
        Ok(_) => Event { mode: FILE, ..looked(open, path) },
        Err(_) => absent(path),
    }]);
}

/// Reports that this process becomes the tool, which the outer run then observes itself.
pub(crate) fn becomes(program: &[u8], environment: &mut Vec<Vec<u8>>) {
    if is_there() {
        report(vec![looked(EventKind::Exec, program)]);
        with(|log| log.observed(environment));
    }
}

/// Reports what the tool did. It ran as our child `pid`. `unseen` returns the paths that its
/// programs read without being observed, or `None` if these are not known.
pub(crate) fn ran(
    place: &Place,
    request: &Request,
    pid: u32,
    trace: &Trace,
    unseen: impl FnOnce() -> Option<Vec<(Vec<u8>, Looked)>>,
) {
    if !is_there() {
        return;
    }
    let mut events = chosen(place, request);
    events.push(Event { pid, ..looked(EventKind::Exec, &request.action.tool_path) });
    let unseen = unseen();
    let besides = unseen.iter().flatten();
    events.extend(besides.flat_map(|(path, looked)| looks(path, looked)));
    report(events);
    with(|log| if unseen.is_some() { log.report_whole(trace) } else { log.report(trace) });
}

/// The state of the outputs' paths before a hit.
pub(crate) struct Before(Vec<Option<Stat>>);

impl Before {
    /// Notes that state, if there is an outer run.
    pub(crate) fn of(result: &ActionResult, roots: &Roots) -> Option<Before> {
        with(|_| ())?;
        Some(Before(result.outputs.iter().map(|output| larder_sys::lstat(&decoded(roots, output.path)).ok()).collect()))
    }
}

/// Reports a hit: all observations of `set` were read, and the outputs were written.
pub(crate) fn answered(place: &Place, request: &Request, set: &ObservationSet, result: &ActionResult, before: &Before) {
    let roots = &request.roots;
    let mut events = chosen(place, request);
    for directory in &set.directories {
        let path = decoded(roots, directory.path);
        if directory.class != 0 {
            events.push(Event { mode: DIRECTORY, ..looked(EventKind::Stat, &path) });
        }
        // A listing follows links as well, and says nothing more of the path.
        let follows = |fact: &Fact| {
            matches!(fact, Fact::Content { plain: true, .. } | Fact::Link(_) | Fact::Listing(_) | Fact::Kinds(_))
        };
        if directory.links != Links::Any && !directory.facts.iter().any(|named| follows(&named.fact)) {
            // It shows that the directory is no link, and not which inode it has.
            events.push(Event { error: EINVAL, ..at(EventKind::ReadLink, &path) });
        }
        let named = |name: &[u8]| join(&path, &roots.decoded_names(name).unwrap_or_default());
        events.extend(directory.facts.iter().flat_map(|fact| facts(roots, &named(fact.name), &fact.fact)));
        events.extend(directory.absent.iter().map(|name| absent(&named(name))));
    }
    for age in &set.ages {
        events.push(Event { extra: REPORTED_COMPARED, ..looked(EventKind::Stat, &decoded(roots, age.path)) });
    }
    for variable in &set.environment {
        if let Some(programs) = looked_for_along_path(variable.name) {
            events.extend(not_found_along_path(place, variable.name, programs));
        }
        if let Some(letter) = of_host_field(variable.name) {
            events.push(Event { extra: letter.into(), ..event(EventKind::Identity) });
        }
        events.extend(of_history(place, variable.name));
        events.extend(match variable.name {
            UMASK => Some(Event { extra: REPORTED_UMASK, ..event(EventKind::Umask) }),
            SOCKETS => Some(Event { extra: INTERNET[0], ..at(EventKind::Network, SOCKET) }),
            name if name.is_empty() || name.starts_with(b"\0") => None,
            name => Some(asked(name, place.asked(name))),
        });
    }
    // Compilers read PWD. It is reported as a variable because their key has only the directory
    // that it stands for.
    let pwd = place.variable(b"PWD");
    let error = if pwd.is_some() { 0 } else { ENOENT };
    events.push(Event { error, path2: pwd.unwrap_or_default().to_vec(), ..at(EventKind::GetEnvironment, b"PWD") });
    for (output, before) in result.outputs.iter().zip(&before.0) {
        made(&decoded(roots, output.path), output, before.as_ref(), &mut events);
    }
    report(events);
}

/// Returns events for the programs that were not found in directories of `PATH`. `name` is that of
/// the observation, which names these programs.
fn not_found_along_path<'n>(
    place: &Place,
    name: &[u8],
    programs: impl Iterator<Item = &'n [u8]> + Clone,
) -> Vec<Event> {
    let kept = place.asked(name).unwrap_or_default();
    let directories = left_out(place.variable(b"PATH").unwrap_or_default(), &kept);
    directories.flat_map(|directory| programs.clone().map(move |program| absent(&join(directory, program)))).collect()
}

/// Returns events for how the tool was found: the absent candidates along PATH, then the tool and
/// its content.
fn chosen(place: &Place, request: &Request) -> Vec<Event> {
    let tool = &request.action.tool_path;
    let mut events = Vec::new();
    if let (Some(path), Some(slash)) = (place.variable(b"PATH"), tool.iter().rposition(|&b| b == b'/')) {
        let (directory, name) = (&tool[..slash], &tool[slash + 1..]);
        for candidate in path.split(|&b| b == b':').take_while(|entry| *entry != directory) {
            let path = join(&absolute(&request.action.cwd, candidate), name);
            if larder_sys::lstat(&path).is_err() {
                events.push(absent(&path));
            }
        }
    }
    events.push(Event { mode: FILE, ..looked(EventKind::Open(OpenFlags(OpenFlags::READ)), tool) });
    events
}

fn facts(roots: &Roots, path: &[u8], fact: &Fact) -> Vec<Event> {
    let read = EventKind::Open(OpenFlags(OpenFlags::READ));
    let failed = |kind, error: u32| Event { error: error as i32, ..at(kind, path) };
    let reported = |times: u32| vec![Event { mode: FILE, extra: times, ..looked(EventKind::Stat, path) }];
    match fact {
        Fact::Content { plain, .. } => {
            let content = Event { mode: FILE, ..looked(read, path) };
            let link = Event { mode: FILE, ..looked(EventKind::Lstat, path) };
            if *plain { vec![content, link] } else { vec![content] }
        }
        Fact::Directory => vec![Event { mode: DIRECTORY, ..looked(EventKind::Stat, path) }],
        Fact::Link(target) => vec![Event { path2: decoded(roots, target), ..looked(EventKind::ReadLink, path) }],
        Fact::Error { operation: 0, errno } => vec![failed(EventKind::Stat, *errno)],
        Fact::Error { operation: Fact::OWNER, .. } => {
            vec![Event { extra: REPORTED_OWNER, ..looked(EventKind::Stat, path) }]
        }
        Fact::Error { operation: Fact::IS_DIRECTORY, errno } => vec![failed(EventKind::List, *errno)],
        Fact::Error { operation, errno } if operation & Fact::ACCESS != 0 => {
            let mode = looked(EventKind::Stat, path).mode;
            vec![Event { mode, extra: u32::from(operation & 7), ..failed(EventKind::Access, *errno) }]
        }
        Fact::Error { errno, .. } => vec![failed(read, *errno)],
        Fact::Listing(_) => vec![Event { mode: DIRECTORY, extra: IN_ANY_ORDER, ..looked(EventKind::List, path) }],
        Fact::Kinds(_) => {
            vec![Event { mode: DIRECTORY, extra: IN_ANY_ORDER_OF_KINDS, ..looked(EventKind::List, path) }]
        }
        Fact::Ordered(_) => vec![Event { mode: DIRECTORY, ..looked(EventKind::List, path) }],
        Fact::Other(_) => vec![looked(EventKind::Stat, path)],
        Fact::Mode(mode) => {
            let now = looked(EventKind::Stat, path);
            let kind = if now.mode >> 12 == DIRECTORY >> 12 { DIRECTORY >> 12 } else { FILE >> 12 };
            vec![Event { mode: kind << 12 | mode, extra: REPORTED_MODE, ..now }]
        }
        Fact::Modified(_) => reported(REPORTED_MODIFIED),
        Fact::Status(_) => reported(REPORTED_STATUS),
        Fact::Belongs { .. } => vec![Event { extra: REPORTED_BELONGS, ..looked(EventKind::Stat, path) }],
    }
}

/// Returns events for a path that was read in these ways. They hold its present state.
fn looks(path: &[u8], ways: &Looked) -> Vec<Event> {
    let Ok(stat) = larder_sys::stat(path) else {
        let error = ways.failed.map_or(ENOENT, |(_, errno)| errno as i32);
        let link =
            larder_sys::link_target(path).ok().map(|target| Event { path2: target, ..at(EventKind::ReadLink, path) });
        return [Some(Event { error, ..at(EventKind::Stat, path) }), link].into_iter().flatten().collect();
    };
    let found = |kind| at(kind, path).with(&stat);
    let is_link = larder_sys::link_target(path).ok();
    let as_link =
        is_link.map_or(found(EventKind::Lstat), |target| Event { path2: target, ..at(EventKind::ReadLink, path) });
    let ways = [
        (true, found(EventKind::Stat)),
        (ways.content, found(EventKind::Open(OpenFlags(OpenFlags::READ)))),
        (ways.link, as_link),
        (ways.listed, found(EventKind::List)),
    ];
    ways.into_iter().filter(|(is, _)| *is).map(|(_, event)| event).collect()
}

/// Adds events for an output that we put in place. `before` is what existed there.
fn made(path: &[u8], output: &Output, before: Option<&Stat>, events: &mut Vec<Event>) {
    let existed = before.is_some();
    match output.kind {
        OutputKind::File { placement, mode, .. } => {
            let anew = placement != Placement::Truncate;
            if existed && anew {
                events.push(Event { mode: FILE, ..at(EventKind::Unlink, path) });
            }
            let new = if existed && !anew { 0 } else { OpenFlags::NEW };
            let flags = OpenFlags(OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::TRUNCATE | new);
            let opened = Event { extra: reported_output(placement, mode), ..looked(EventKind::Open(flags), path) };
            let closed = Event { path: Vec::new(), ..looked(EventKind::Closed, path) };
            events.extend([opened, closed]);
            if output.modified.is_set() {
                events.push(Event { mode: FILE, ..at(EventKind::SetTimes, path) });
            }
        }
        OutputKind::Directory(mode) if !existed => {
            events.push(Event { extra: mode.bits, ..at(EventKind::MakeDirectory, path) });
        }
        OutputKind::Directory(_) => {}
        OutputKind::Link(target) => {
            if let Some(stat) = before {
                events.push(Event { mode: mode_of(stat), ..at(EventKind::Unlink, path) });
            }
            events.push(Event { path: target.to_vec(), path2: path.to_vec(), ..event(EventKind::Symlink) });
        }
        OutputKind::Removed => events.push(Event { mode: FILE, ..at(EventKind::Unlink, path) }),
    }
}

/// Returns the event of asking for a variable.
fn asked(name: &[u8], value: Option<Vec<u8>>) -> Event {
    let error = if value.is_some() { 0 } else { ENOENT };
    Event { error, path2: value.unwrap_or_default(), ..at(EventKind::GetEnvironment, name) }
}

/// Returns the events of a run that may have read variables unseen, as the fact of this name says. Most
/// variables are in the key of the outer run, but not those that describe a job of a CI service.
fn of_history(place: &Place, name: &[u8]) -> Vec<Event> {
    match (name, OfHistory::of_fact_name(name)) {
        (b"" | ALL_VARIABLES | JOB_VARIABLES, _) => {
            let of_job = place.history_variables().filter(|name| is_of_job(name));
            let values = of_job.map(|name| asked(name, place.history_value(name)));
            values.chain([asked(JOB_VARIABLES, place.asked(JOB_VARIABLES))]).collect()
        }
        (_, Some((HOST_NAME, _))) => vec![Event { extra: b'n'.into(), ..event(EventKind::Identity) }],
        _ => Vec::new(),
    }
}

fn event(kind: EventKind) -> Event {
    at(kind, b"")
}

fn at(kind: EventKind, path: &[u8]) -> Event {
    Event::new(larder_sys::process_id(), kind, path.to_vec())
}

/// Makes an event of looking at a path where nothing is.
fn absent(path: &[u8]) -> Event {
    Event { error: ENOENT, ..at(EventKind::Stat, path) }
}

/// Makes an event with the present state of the path.
fn looked(kind: EventKind, path: &[u8]) -> Event {
    match larder_sys::stat(path) {
        Ok(stat) => at(kind, path).with(&stat),
        Err(_) => at(kind, path),
    }
}

fn decoded(roots: &Roots, encoded: &[u8]) -> Vec<u8> {
    roots.decoded_path(encoded).unwrap_or_default()
}
