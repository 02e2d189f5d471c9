//! `larder image broker`: the process that mounts images for other processes, and fills lazy mounts
//! while they exist.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use larder_config::Settings;
use larder_mount::Places;
use larder_mount::broker::{Broker, Policy, Programs, Supply};
use larder_store::{Store, StoreSocket};
use larder_sys::Door;
use parking_lot::Mutex;

use super::super::{FINE, PROBLEM, evict};
use super::fetched::{self, FetchedSupply, Memory};
use super::remote_images::RemoteImages;
use super::serve;
use super::supply::{ImageSupply, STORED};
use crate::cli::{ImageBroker, Limits};
use crate::say;
use crate::surroundings::{Surroundings, own_program};

/// How often to check whether downloads made the store too large.
const LIMIT_EVERY: Duration = Duration::from_secs(60);
/// How often to check whether something in the store is too old.
const AGE_EVERY: Duration = Duration::from_secs(60 * 60);
/// How often to check whether anything is still mounted.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// The time in which a newly started broker must answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time in which a running broker must answer, which first restores the fillers of existing
/// mounts.
const PATIENCE_MAX: Duration = Duration::from_secs(60);
/// After this time another broker is started, because the started one may have exited when it found
/// an older broker that was itself just exiting.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(2);
/// A broker that `mount` or `run` started exits after this time without any mount, in seconds.
const IDLE_S: u64 = 60;

/// Mounts for others until the idle time is over, or for ever.
pub(super) fn run(around: &Surroundings, options: &ImageBroker) -> Result<u8> {
    let store = Store::open(&absolute(around.store()?.directory())?)?;
    let Some(_lock) = store.lock_image_broker()? else {
        say::tell("another broker already mounts images of this store");
        return Ok(PROBLEM);
    };
    let (own, state) = store.image_broker()?;
    let socket = options.socket.as_deref().map_or(Ok(own), absolute)?;
    warning(around.settings(), options.socket.is_some()).into_iter().for_each(say::tell);
    let program = own_program()?;
    let cwd = around.cwd.clone().filter(|cwd| cwd.is_dir());
    let (supply, server, keeping) = supply(around, &store, options, (&program, cwd.as_deref()))?;
    keep_within_limits(&store, keeping);
    let targets: Vec<PathBuf> = options.target.iter().map(|target| absolute(target)).collect::<Result<_>>()?;
    let rescue = rescue(cwd.as_deref(), options, &socket, &targets)?;
    let policy = Policy { users: options.user.clone(), targets, mounts_max: options.mounts_max, ..Policy::default() };
    // Each mount keeps some files open.
    larder_sys::raise_descriptor_limit();
    // So that the job's directory can be removed.
    std::env::set_current_dir("/")?;
    let gate: Vec<OsString> = vec![program.into_os_string(), "gate".into()];
    let programs = Programs { gate, rescue, server, server_from: cwd };
    let says = Box::new(|what: &str| say::tell(&say::one_line(what)));
    let broker = Broker::new(&state, supply, policy, programs, says)?;
    let (door, listening) = listen(&socket, options.socket.is_some())
        .with_context(|| format!("{}: cannot listen on this socket", socket.display()))?;
    let (woken, held) = larder_sys::pipe().context("cannot create a pipe")?;
    if options.idle > 0 {
        let (idle, places, its) = (Duration::from_secs(options.idle), Places::open(&state)?, Arc::clone(&broker));
        std::thread::spawn(move || {
            wait_until_idle(&its, &places, idle);
            drop(held);
        });
        broker.serve(&door, woken.as_fd());
    } else {
        broker.serve(&door, woken.as_fd());
        drop(held);
    }
    listening.remove();
    Ok(FINE)
}

/// Evicts from a store.
type Evict = Box<dyn Fn(&Store) -> Result<()> + Send>;

/// How a store is kept within its limits.
struct Keeping {
    /// Returns true once after something may have been downloaded.
    has_grown: Box<dyn Fn() -> bool + Send>,
    /// Evicts.
    evict: Evict,
}

/// Returns where images come from, the command of FUSE servers, and how the store is kept within
/// its limits. A broker of root has images fetched and decoded, and served, by processes
/// without rights.
fn supply(
    around: &Surroundings,
    store: &Store,
    options: &ImageBroker,
    (program, from): (&Path, Option<&Path>),
) -> Result<(Box<dyn Supply>, Vec<OsString>, Keeping)> {
    let directory = store.directory().to_owned();
    if larder_sys::effective_user() == 0 {
        let has_fetched = Arc::new(AtomicBool::new(false));
        let (its, memory_mib) = (Arc::clone(&has_fetched), options.fetcher_memory);
        // A broker for others refuses processes that stay root, unless its option says otherwise.
        let may_keep_user = options.fetcher_user_0 || options.socket.is_none();
        let limits = Limits { memory_mib, may_keep_user };
        let fetcher = fetched::words(program, store, limits);
        let words = fetcher.clone();
        let (from, is_for_others) = (from.map(Path::to_owned), options.socket.is_some());
        let (memory, sessions) = (Memory::new(memory_mib << 20), Mutex::default());
        let supply = FetchedSupply { store: directory, fetcher, from, is_for_others, has_fetched, memory, sessions };
        let keeping = Keeping {
            has_grown: Box::new(move || its.swap(false, Relaxed)),
            evict: Box::new(move |store| fetched::evict(store, &words)),
        };
        return Ok((Box::new(supply), serve::confined_words(program, store, limits), keeping));
    }
    let remotes = RemoteImages::open(around, store)?.map(Arc::new);
    let its = remotes.clone();
    let has_grown = move || its.as_ref().is_some_and(|remotes| remotes.take_brought() > 0);
    let supply = ImageSupply { store: directory, remotes, stored: STORED, serves: None };
    let settings = around.settings().clone();
    let evict = move |store: &Store| {
        evict::images_to_limits(store, &settings)?;
        evict::to_limit(store, settings.max_size_bytes).map(drop)
    };
    let keeping = Keeping { has_grown: Box::new(has_grown), evict: Box::new(evict) };
    Ok((Box::new(supply), serve::words(program, store), keeping))
}

/// Returns a warning if it mounts for other users, but accepts images from anyone who can write to
/// the remotes.
fn warning(settings: &Settings, is_for_others: bool) -> Option<&'static str> {
    let is_open = is_for_others && !settings.remote.is_empty() && settings.remote_trust.is_empty();
    is_open.then_some(
        "the images of this broker are not signed (`remote_trust` is not set), so anyone who can write to its remotes chooses \
         what it mounts for others: set remote_trust to the keys of the machines that save images",
    )
}

/// Returns the command with which a gate starts a broker like this one, if this one died and a job
/// waits: directory, program, arguments.
fn rescue(cwd: Option<&Path>, options: &ImageBroker, socket: &Path, targets: &[PathBuf]) -> Result<Vec<OsString>> {
    let program = own_program()?;
    let from = cwd.unwrap_or(Path::new("/"));
    let mut words: Vec<OsString> = vec![from.into(), program.into(), "image".into(), "broker".into()];
    if options.socket.is_some() {
        words.extend(["--socket".into(), socket.into()]);
    }
    targets.iter().for_each(|target| words.extend(["--target".into(), target.into()]));
    options.user.iter().for_each(|user| words.extend(["--user".into(), user.to_string().into()]));
    words.extend(["--mounts-max".into(), options.mounts_max.to_string().into()]);
    words.extend(["--fetcher-memory".into(), options.fetcher_memory.to_string().into()]);
    words.extend(options.fetcher_user_0.then(|| "--fetcher-user-0".into()));
    if options.idle > 0 {
        words.extend(["--idle".into(), options.idle.to_string().into()]);
    }
    Ok(words)
}

/// Starts a thread that evicts as long as this process lives. On a host whose jobs all use a
/// broker, no other process would evict.
fn keep_within_limits(store: &Store, keeping: Keeping) {
    let directory = store.directory().to_owned();
    std::thread::spawn(move || {
        let mut looked: Option<Instant> = None;
        loop {
            if (keeping.has_grown)() || looked.is_none_or(|at| at.elapsed() > AGE_EVERY) {
                looked = Some(Instant::now());
                let store = Store::open(&directory).map_err(anyhow::Error::from);
                if let Err(error) = store.and_then(|store| (keeping.evict)(&store)) {
                    say::tell(&say::one_line(&format!("the store cannot be reduced to its limits: {error:#}")));
                }
            }
            std::thread::sleep(LIMIT_EVERY);
        }
    });
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).with_context(|| format!("{}: is not a valid path", path.display()))
}

/// Listens on a socket, and replaces one that another broker left. The socket is open to all users
/// only if its path was given as an option.
fn listen(path: &Path, is_for_all: bool) -> io::Result<(Door, StoreSocket)> {
    let mode = if is_for_all { 0o666 } else { 0o600 };
    let name = format!(".larder-{:016x}", larder_sys::random_u64());
    StoreSocket::open(path, &path.parent().ok_or(io::ErrorKind::InvalidInput)?.join(name), mode)
}

/// Waits until nothing was mounted and no client was connected for `idle`. A client counts because
/// its download may take longer than that.
fn wait_until_idle(broker: &Broker, places: &Places, idle: Duration) {
    let mut since = Instant::now();
    while since.elapsed() < idle {
        std::thread::sleep(LOOK_EVERY);
        if broker.is_asked() || places.list().is_ok_and(|mounts| mounts.iter().any(|mount| mount.mounted)) {
            since = Instant::now();
        }
    }
}

/// Returns the socket of this user's own broker, and starts one if none answers. Waits for one that
/// is just starting or exiting.
pub(super) fn begin(around: &Surroundings, store: &Store) -> Result<PathBuf> {
    let (socket, _) = store.image_broker()?;
    let began = Instant::now();
    let mut started: Option<Instant> = None;
    while larder_sys::Channel::connect(&socket, PATIENCE).is_err() {
        let is_there = store.image_broker_runs();
        if !is_there && started.is_none_or(|at| at.elapsed() > AGAIN_AFTER) {
            start(around)?;
            started = Some(Instant::now());
        }
        if began.elapsed() > if is_there { PATIENCE_MAX } else { PATIENCE } {
            anyhow::bail!("the image broker does not answer: run `larder image broker` to see why");
        }
        std::thread::sleep(PAUSE);
    }
    Ok(socket)
}

fn start(around: &Surroundings) -> Result<()> {
    let idle = IDLE_S.to_string();
    // Without a limit of mounts, because it serves one user, who could start any number of brokers
    // anyway.
    around.start_larderd(&[b"image", b"broker", b"--target", b"/", b"--mounts-max", b"0", b"--idle", idle.as_bytes()])
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_broker_for_others_without_signatures_says_so() {
        let remote = vec!["file:///r".to_owned()];
        let signed = Settings { remote: remote.clone(), remote_trust: vec!["k".to_owned()], ..Settings::default() };
        let unsigned = Settings { remote, ..Settings::default() };
        assert!(warning(&unsigned, true).is_some_and(|said| said.contains("remote_trust")));
        assert_eq!(warning(&unsigned, false), None);
        assert_eq!(warning(&signed, true), None);
        assert_eq!(warning(&Settings::default(), true), None);
    }

    #[test]
    fn the_socket_of_a_successor_stays() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("broker.sock");
        let (_door, first) = listen(&path, false).expect("listens");
        let (_other, second) = listen(&path, true).expect("listens in its place");
        first.remove();
        assert!(larder_sys::Channel::connect(&path, PATIENCE).is_ok());
        assert_eq!(fs::metadata(&path).expect("is there").permissions().mode() & 0o777, 0o666);
        second.remove();
        assert_eq!(fs::read_dir(dir.path()).expect("lists").count(), 0);
    }
}
