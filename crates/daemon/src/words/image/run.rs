//! `larder image run`: a command for which an image's paths are mounted, and for nobody else. What it writes there goes with
//! it. Without rights as well: among mounts of its own, by the broker or by FUSE.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use larder_image::{Found, Target, Unset};
use larder_lookup::find as find_program;
use larder_model::ImageKey;
use larder_mount::broker::Client;
use larder_mount::{Ask, Lease, Life, Mount, Placed, Places, Rung, Stay, by_fuse};
use larder_store::Store;
use larder_sys::{ChildEnd, Manner, SignalForwarding};

use super::far::FarImages;
use super::find::find;
use super::restore::{Done, image, make, targets};
use super::supply::{ImageSupply, name};
use super::{borne, cwd, key, mount};
use crate::cli::{ImageRestore, ImageRun, Policy, Via};
use crate::say;
use crate::surroundings::{Surroundings, nobody};

/// Exit codes as a shell has them.
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;
const SIGNAL_BASE: i32 = 128;

/// A mounted path, and what keeps it.
struct Held {
    placed: Option<Placed>,
    _keeps: Keeps,
    /// The directory that was made to mount on; where there is something in it, it is not ours.
    made: Option<PathBuf>,
}

/// Who has a mount, as long as this is there.
enum Keeps {
    Broker { _client: Client },
    Ourselves { _stay: Stay },
}

impl Drop for Held {
    fn drop(&mut self) {
        drop(self.placed.take());
        self.made.take().iter().for_each(|path| drop(fs::remove_dir(path)));
    }
}

/// Mount, run, and end as the command did.
pub(super) fn run(around: &Surroundings, options: &ImageRun) -> Result<u8> {
    let key = key::key(around, &options.key)?;
    let fallbacks = key::fallbacks(around, &options.fallback)?;
    let how = ImageRestore {
        key: options.key.clone(),
        fallback: options.fallback.clone(),
        policy: Policy::Both,
        replace: false,
        if_missing: options.if_missing.clone(),
        strict: options.strict,
        json: false,
        paths: options.paths.clone(),
    };
    let mut held = Vec::new();
    let had = had(around, &key, &fallbacks, &how, options.via, &mut held);
    if let Ok(None) = &had {
        say::tell(&format!("miss: nothing under {key}"));
    }
    let done = borne(had, options.strict, None)?;
    let word = done.as_ref().map_or("miss", |done| done.found.word());
    if let Some(done) = &done {
        say::tell(&format!("{word}: {}: by {}", key_of(&done.found), done.via));
    }
    if let (Some(command), true) = (&options.if_missing, word != "exact") {
        match make(around, &key, command, &how)? {
            0 => {}
            code => return Ok(code),
        }
    }
    // Where the working directory is mounted on, it is what is mounted.
    std::env::set_current_dir(cwd(around)?).context("the working directory cannot be entered again")?;
    let code = execute(around, &options.command);
    drop(held);
    code
}

fn key_of(found: &Found) -> String {
    found.record().map(|record| record.key.to_string()).unwrap_or_default()
}

/// The image's paths, mounted by the first way that works, else unpacked.
fn had(
    around: &Surroundings,
    key: &ImageKey,
    fallbacks: &[String],
    how: &ImageRestore,
    via: Option<Via>,
    held: &mut Vec<Held>,
) -> Result<Option<Done>> {
    let ways: &[Rung] = match via {
        None => &[Rung::Lazy, Rung::Mount, Rung::Fuse],
        Some(Via::Lazy) => &[Rung::Lazy],
        Some(Via::Mount) => &[Rung::Mount],
        Some(Via::Squashfs) => &[Rung::Squashfs],
        Some(Via::Fuse) => &[Rung::Fuse],
        Some(Via::Unpack) => return image(around, key, fallbacks, how),
    };
    let store = around.store()?;
    // It is for others as well: it has to begin where they are.
    let broker = mount::socket(around, &store);
    let own = own_mounts().context("it can have no mounts of its own here");
    let far = FarImages::open(around, &store)?.map(Arc::new);
    let (found, _) = find(&store, far.as_deref(), key, fallbacks)?;
    let Some(record) = found.record() else { return Ok(None) };
    let targets = targets(around, record, &how.paths)?;
    let mut trouble: Vec<String> = own.as_ref().err().map(|error| format!("{error:#}")).into_iter().collect();
    for &rung in ways.iter().filter(|_| own.is_ok()) {
        let one = |Target { saved, path }: &Target| -> Result<Held> {
            let name = name(rung, *saved, record);
            let made = (!path.exists()).then(|| path.clone());
            fs::create_dir_all(path).with_context(|| format!("{}: cannot be made", path.display()))?;
            let mounted = match (rung, &broker) {
                (Rung::Fuse, _) => ourselves(&store, far.clone(), &name, path),
                (_, Ok(socket)) => by_broker(socket, &name),
                (_, Err(why)) => Err(anyhow!("{why:#}")),
            };
            let placed = mounted.and_then(|(mount, keeps)| Ok((mount.place(path)?, keeps)));
            match placed {
                Ok((placed, keeps)) => Ok(Held { placed: Some(placed), _keeps: keeps, made }),
                Err(error) => {
                    made.iter().for_each(|path| drop(fs::remove_dir(path)));
                    Err(error)
                }
            }
        };
        match targets.iter().map(one).collect::<Result<Vec<Held>>>() {
            Ok(all) => {
                held.extend(all);
                let targets = targets.into_iter().map(|target| target.path).collect();
                let (fetched_bytes, unset) = (None, Unset::default());
                return Ok(Some(Done { found, targets, fetched_bytes, unset, via: rung.word(), why_unpacked: None }));
            }
            Err(error) => trouble.push(format!("{rung}: {error:#}")),
        }
    }
    let why = say::one_line(&trouble.join("; "));
    if via.is_some() {
        bail!("cannot be mounted: {why}");
    }
    let done = image(around, key, fallbacks, how)?;
    if done.is_some() {
        say::tell(&format!("unpacked, where it stays, since it could not be mounted: {why}"));
    }
    Ok(done)
}

/// From here on what we mount is seen by us and what we start alone.
fn own_mounts() -> io::Result<()> {
    if larder_sys::effective_user() == 0 && larder_sys::own_mounts().is_ok() {
        return Ok(());
    }
    larder_sys::own_namespaces()
}

fn by_broker(socket: &Path, name: &str) -> Result<(Mount, Keeps)> {
    let (client, mount) = Client::detached(socket, name)?;
    Ok((mount, Keeps::Broker { _client: client }))
}

/// By FUSE, from this user's own store.
fn ourselves(store: &Store, far: Option<Arc<FarImages>>, name: &str, path: &Path) -> Result<(Mount, Keeps)> {
    let (user, group) = (larder_sys::effective_user(), larder_sys::effective_group());
    let supply = ImageSupply { store: store.directory().to_owned(), far, stored: (user, group) };
    let supplied = supply.supplied(name)?;
    let whole = by_fuse(&supplied.image, Life::AsThread)?;
    let layer = if let Some(below) = supplied.below { whole.below(below)? } else { whole };
    let (_, state) = store.image_broker()?;
    let places = Places::open(&state)?;
    // Of those that were killed.
    let _ = places.sweep();
    let ask = Ask {
        name,
        user,
        image: &supplied.image,
        target: path,
        layer: Some(&layer),
        via: Rung::Fuse,
        writable: true,
        owners: None,
        lease: Lease::Held,
        over: true,
        inside: None,
    };
    let (mount, stay) = places.detached(&ask)?;
    Ok((mount, Keeps::Ourselves { _stay: stay }))
}

/// Run the command, to which signals go on, and say how it ended as a shell does.
fn execute(around: &Surroundings, command: &[std::ffi::OsString]) -> Result<u8> {
    let argv: Vec<Vec<u8>> = command.iter().map(|word| word.as_bytes().to_vec()).collect();
    let environment: Vec<Vec<u8>> =
        around.environment.iter().map(|(name, value)| [name, &b"="[..], value].concat()).collect();
    let shown = || say::one_line(&OsStr::from_bytes(&argv[0]).to_string_lossy());
    let Some(tool) = find_program(&argv[0], around.variable(b"PATH"), &nobody(), false) else {
        say::tell(&format!("{}: command not found", shown()));
        return Ok(NOT_FOUND);
    };
    let forwarding = SignalForwarding::prepare()?;
    let started = larder_sys::spawn(&tool.path, &argv, &environment, &[], &forwarding, &Manner::default());
    let child = match started {
        Ok(child) => child,
        Err(error) => {
            forwarding.unblock();
            say::tell(&format!("{}: cannot be executed: {error}", shown()));
            return Ok(NOT_EXECUTABLE);
        }
    };
    forwarding.begin(child.pid);
    let end = child.wait();
    SignalForwarding::end();
    Ok(match end? {
        ChildEnd::Exited(code) => code,
        ChildEnd::Signalled(signal) => u8::try_from(SIGNAL_BASE + signal).unwrap_or(u8::MAX),
    })
}
