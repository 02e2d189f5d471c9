//! `larder image broker`: who mounts, and fills what is mounted, as long as it is.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use larder_config::{Settings, larderd_needs};
use larder_mount::Places;
use larder_mount::broker::{Broker, Policy, Programs};
use larder_store::{Store, StoreSocket};
use larder_sys::Door;

use super::super::{FINE, PROBLEM, evict};
use super::far::FarImages;
use super::supply::{ImageSupply, STORED};
use crate::cli::ImageBroker;
use crate::say;
use crate::surroundings::Surroundings;

/// How often it is looked whether what was brought made the store too large.
const LIMIT_EVERY: Duration = Duration::from_secs(60);
/// And whether something in it is too old.
const AGE_EVERY: Duration = Duration::from_secs(60 * 60);
/// How often it is looked whether anything is mounted still.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// One that was started answers in this time.
const PATIENCE: Duration = Duration::from_secs(10);
/// One that is there first fills again what is mounted.
const PATIENCE_MAX: Duration = Duration::from_secs(60);
/// One that was started may have found another that was just ending.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(2);
/// One that was started for somebody ends when nothing was mounted for so long.
const IDLE_S: u64 = 60;

/// Mount for others until nothing is mounted any more, or for ever.
pub(super) fn run(around: &Surroundings, options: &ImageBroker) -> Result<u8> {
    let store = Store::open(&absolute(around.store()?.directory())?)?;
    let Some(_lock) = store.lock_image_broker()? else {
        say::tell("there is one already that mounts images of this store");
        return Ok(PROBLEM);
    };
    let (own, state) = store.image_broker()?;
    let socket = options.socket.as_deref().map_or(Ok(own), absolute)?;
    warning(around.settings(), options.socket.is_some()).into_iter().for_each(say::tell);
    let far = FarImages::open(around, &store)?.map(Arc::new);
    keep_within_limits(&store, around.settings(), far.clone());
    let supply = ImageSupply { store: store.directory().to_owned(), far, stored: STORED, serves: false };
    let targets: Vec<PathBuf> = options.target.iter().map(|target| absolute(target)).collect::<Result<_>>()?;
    let cwd = around.cwd.clone().filter(|cwd| cwd.is_dir());
    let rescue = rescue(cwd.as_deref(), options, &socket, &targets)?;
    let policy = Policy { users: options.user.clone(), targets, mounts_max: options.mounts_max, ..Policy::default() };
    // Each mount that is held keeps some open.
    larder_sys::raise_descriptor_limit();
    // The job's directory can be removed.
    std::env::set_current_dir("/")?;
    let program = std::env::current_exe().context("the file of larderd cannot be found")?;
    let server = super::serve::words(&program, &store);
    let gate: Vec<OsString> = vec![program.into_os_string(), "gate".into()];
    let programs = Programs { gate, rescue, server, server_from: cwd };
    let says = Box::new(|what: &str| say::tell(&say::one_line(what)));
    let broker = Broker::new(&state, Box::new(supply), policy, programs, says)?;
    let (door, listening) = listen(&socket, options.socket.is_some())
        .with_context(|| format!("{}: nobody can be let in", socket.display()))?;
    let (woken, held) = larder_sys::pipe().context("no pipe can be made")?;
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

/// What is to be said of settings with which it mounts for others what anybody may have written.
fn warning(settings: &Settings, is_for_others: bool) -> Option<&'static str> {
    let is_open = is_for_others && !settings.remote.is_empty() && settings.remote_trust.is_empty();
    is_open.then_some(
        "the remotes of this broker are not signed (`remote_trust` is not set), so whoever can write to them chooses what it \
         reads with its rights and mounts for others: set remote_trust to the keys of those who save images",
    )
}

/// How a gate starts a broker like this one, if this one died and a job waits: directory, program, arguments.
fn rescue(cwd: Option<&Path>, options: &ImageBroker, socket: &Path, targets: &[PathBuf]) -> Result<Vec<OsString>> {
    let program = std::env::current_exe().context("the file of larderd cannot be found")?;
    let from = cwd.unwrap_or(Path::new("/"));
    let mut words: Vec<OsString> = vec![from.into(), program.into(), "image".into(), "broker".into()];
    if options.socket.is_some() {
        words.extend(["--socket".into(), socket.into()]);
    }
    targets.iter().for_each(|target| words.extend(["--target".into(), target.into()]));
    options.user.iter().for_each(|user| words.extend(["--user".into(), user.to_string().into()]));
    words.extend(["--mounts-max".into(), options.mounts_max.to_string().into()]);
    if options.idle > 0 {
        words.extend(["--idle".into(), options.idle.to_string().into()]);
    }
    Ok(words)
}

/// As long as this process lives: on a host whose jobs all ask a broker nobody else would.
fn keep_within_limits(store: &Store, settings: &Settings, far: Option<Arc<FarImages>>) {
    let (directory, settings) = (store.directory().to_owned(), settings.clone());
    std::thread::spawn(move || {
        let mut looked: Option<Instant> = None;
        loop {
            let has_grown = far.as_ref().is_some_and(|far| far.take_brought() > 0);
            if has_grown || looked.is_none_or(|at| at.elapsed() > AGE_EVERY) {
                looked = Some(Instant::now());
                let held = Store::open(&directory).map_err(anyhow::Error::from).and_then(|store| {
                    evict::images_to_limits(&store, &settings)?;
                    evict::to_limit(&store, settings.max_size_bytes)
                });
                if let Err(error) = held {
                    say::tell(&say::one_line(&format!("the store is not brought within its limits: {error:#}")));
                }
            }
            std::thread::sleep(LIMIT_EVERY);
        }
    });
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).with_context(|| format!("{}: is no path", path.display()))
}

/// Listen, in place of whoever did before; one that everybody may ask is told by its path.
fn listen(path: &Path, is_for_all: bool) -> io::Result<(Door, StoreSocket)> {
    let mode = if is_for_all { 0o666 } else { 0o600 };
    let name = format!(".larder-{:016x}", larder_sys::random_u64());
    StoreSocket::open(path, &path.parent().ok_or(io::ErrorKind::InvalidInput)?.join(name), mode)
}

/// Until nothing was mounted for so long, and nobody was connected: what is fetched for somebody may take longer.
fn wait_until_idle(broker: &Broker, places: &Places, idle: Duration) {
    let mut since = Instant::now();
    while since.elapsed() < idle {
        std::thread::sleep(LOOK_EVERY);
        if broker.is_asked() || places.list().is_ok_and(|mounts| mounts.iter().any(|mount| mount.mounted)) {
            since = Instant::now();
        }
    }
}

/// Have one of our own, started where there is none; one that is just beginning or ending is waited for. Returns its
/// socket.
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
            anyhow::bail!("nobody mounts: `larder image broker` says why");
        }
        std::thread::sleep(PAUSE);
    }
    Ok(socket)
}

fn start(around: &Surroundings) -> Result<()> {
    use std::os::unix::ffi::OsStrExt;
    let program = std::env::current_exe().context("the file of larderd cannot be found")?;
    let idle = IDLE_S.to_string();
    // It serves one user, who can start as many brokers as they like.
    let words: [&[u8]; 9] =
        [b"larderd", b"image", b"broker", b"--target", b"/", b"--mounts-max", b"0", b"--idle", idle.as_bytes()];
    let variables = around.environment.iter().filter(|(name, _)| larderd_needs(name, &around.settings().remote));
    let environment = variables.map(|(name, value)| [name, &b"="[..], value].concat()).collect();
    let (program_bytes, argv) = (program.as_os_str().as_bytes().to_vec(), words.map(<[u8]>::to_vec).to_vec());
    let command = larder_spawn::Command::new(program_bytes, argv, environment);
    larder_spawn::start_apart(&command).with_context(|| format!("{} cannot be started", program.display()))?;
    Ok(())
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
