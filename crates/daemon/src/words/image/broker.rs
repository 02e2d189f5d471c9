//! `larder image broker`: who mounts, and fills what is mounted, as long as it is.

use std::ffi::OsString;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use larder_mount::Places;
use larder_mount::broker::{Broker, Policy};
use larder_store::Store;
use larder_sys::Door;

use super::super::{FINE, PROBLEM};
use super::far::FarImages;
use super::supply::ImageSupply;
use crate::cli::ImageBroker;
use crate::say;
use crate::surroundings::Surroundings;

/// How often it is looked whether anything is mounted still.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// One that was started answers in this time.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(2);
/// One that was started for somebody ends when nothing was mounted for so long.
const IDLE_S: u64 = 60;

/// Mount for others until nothing is mounted any more, or for ever.
pub(super) fn run(around: &Surroundings, options: &ImageBroker) -> Result<u8> {
    let store = around.store()?;
    let Some(_lock) = store.lock_image_broker()? else {
        say::tell("there is one already that mounts images of this store");
        return Ok(PROBLEM);
    };
    let (own, state) = store.image_broker()?;
    let socket = options.socket.clone().unwrap_or(own);
    let far = FarImages::open(around, &store)?.map(Arc::new);
    let supply = ImageSupply { store: store.directory().to_owned(), far };
    let policy = Policy { users: options.user.clone(), targets: options.target.clone(), mounts_max: 0 };
    let program = std::env::current_exe().context("the file of larderd cannot be found")?;
    let gate: Vec<OsString> = vec![program.into_os_string(), "gate".into()];
    let broker = Broker::new(&state, Box::new(supply), policy, gate, Box::new(|what| say::tell(&say::one_line(what))))?;
    let door = open(&socket, options.socket.is_some())?;
    let (woken, held) = larder_sys::pipe().context("no pipe can be made")?;
    if options.idle > 0 {
        let (idle, places) = (Duration::from_secs(options.idle), Places::open(&state)?);
        std::thread::spawn(move || {
            wait_until_idle(&places, idle);
            drop(held);
        });
        broker.serve(&door, woken.as_fd());
    } else {
        broker.serve(&door, woken.as_fd());
        drop(held);
    }
    let _ = fs::remove_file(&socket);
    Ok(FINE)
}

/// Listen; one that everybody may ask is told by its path.
fn open(socket: &PathBuf, is_for_all: bool) -> Result<Door> {
    let _ = fs::remove_file(socket);
    let door = Door::open(socket).with_context(|| format!("{}: nobody can be let in", socket.display()))?;
    let mode = if is_for_all { 0o666 } else { 0o600 };
    fs::set_permissions(socket, fs::Permissions::from_mode(mode)).context("the socket's mode cannot be set")?;
    Ok(door)
}

fn wait_until_idle(places: &Places, idle: Duration) {
    let mut since = Instant::now();
    while since.elapsed() < idle {
        std::thread::sleep(LOOK_EVERY);
        if places.list().is_ok_and(|mounts| mounts.iter().any(|mount| mount.mounted)) {
            since = Instant::now();
        }
    }
}

/// Have one of our own, started where there is none. Returns its socket.
pub(super) fn begin(around: &Surroundings, store: &Store) -> Result<PathBuf> {
    let (socket, _) = store.image_broker()?;
    let until = Instant::now() + PATIENCE;
    let mut is_started = false;
    while larder_sys::Channel::connect(&socket, PATIENCE).is_err() {
        if !is_started {
            start(around)?;
            is_started = true;
        }
        if Instant::now() > until {
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
    let words: [&[u8]; 7] = [b"larderd", b"image", b"broker", b"--target", b"/", b"--idle", idle.as_bytes()];
    let variables = around.environment.iter().filter(|(name, _)| name.starts_with(b"LARDER_") || is_needed(name));
    let command = larder_spawn::Command {
        program: program.as_os_str().as_bytes().to_vec(),
        argv: words.map(<[u8]>::to_vec).to_vec(),
        environment: variables.map(|(name, value)| [name, &b"="[..], value].concat()).collect(),
    };
    larder_spawn::start_apart(&command).with_context(|| format!("{} cannot be started", program.display()))?;
    Ok(())
}

/// What remotes may need beside the settings.
fn is_needed(name: &[u8]) -> bool {
    const BEGINNINGS: [&[u8]; 6] = [b"AWS_", b"GOOGLE_", b"AZURE_", b"ACTIONS_", b"REDISCLI_", b"XDG_"];
    matches!(name, b"HOME" | b"PATH" | b"TMPDIR") || BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
}
