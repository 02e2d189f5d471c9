//! `larder image run`: runs a command that alone sees an image's paths mounted. Its writes there
//! are lost at the end. It also works without privileges, in a mount namespace of its own, by the
//! broker or by FUSE.

use std::any::Any;
use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use larder_image::{FoundImage, Step, Target};
use larder_lookup::find as find_program;
use larder_model::ImageRecord;
use larder_mount::broker::Client;
use larder_mount::serve::{self, Server, ToServe};
use larder_mount::{
    Ask, Backend, Image as Files, Lease, Life, Mount, Owners, Placed, Places, Stay, by_fuse, by_fuse_possible,
};
use larder_store::{Live, Store};
use larder_sys::{ChildEnd, SignalForwarding};

use super::end::or_continue;
use super::find::Search;
use super::key::Wanted;
use super::remote_images::RemoteImages;
use super::restore::{Done, image, make, targets};
use super::serve as server;
use super::supply::{ImageSupply, STORED, asked_for, name};
use super::{bar, broker_socket, key};
use crate::cli::{ImageRestore, ImageRun, ImageWanted, Policy};
use crate::say;
use crate::surroundings::{Surroundings, WRAPPER_VARIABLE, nobody, own_program};

/// The exit codes that shells use.
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;
/// The hidden option of the second step: mount the image that was found.
const INSIDE: &str = "--inside";

/// A mounted path, and what keeps the mount alive.
struct Held {
    // Fields are dropped in this order.
    _placed: Placed,
    _keeps: Keeps,
}

/// The owner of a mount. The mount ends when this is dropped.
enum Keeps {
    Broker { _client: Client },
    Ourselves { _stay: Stay, _lease: Arc<dyn Any + Send + Sync> },
    // Fields are dropped in this order.
    Served { _stay: Stay, _server: Option<Server> },
}

/// Mounts the image, runs the command, and exits as the command did.
///
/// There are two steps:
///
/// 1. Find the image, run `--if-missing`, and save, in the caller's mount namespace with all
///    privileges.
/// 2. If there is something to mount, execute this program again with `--inside`. It mounts in a
///    mount namespace of its own and runs the command.
pub(super) fn run(around: &Surroundings, options: &ImageRun) -> Result<u8> {
    let wanted = key::wanted(around, &options.wanted)?;
    let key = &wanted.key;
    let how = ImageRestore {
        wanted: options.wanted.clone(),
        policy: options.policy,
        replace: options.replace,
        if_missing: options.if_missing.clone(),
        strict: options.strict,
        json: true,
        anywhere: options.anywhere,
        keep_rights: false,
        paths: options.paths.clone(),
    };
    if options.inside {
        return inside(around, &wanted, &how, options);
    }
    let found = || -> Result<FoundImage> {
        let search = Search::new(around, &wanted)?;
        let (found, _) = search.find()?;
        found.record().map_or(Ok(()), |record| search.has_all(record))?;
        Ok(found)
    };
    let found = match options.policy {
        Policy::Push => None,
        _ => or_continue(found().map(Some), options.strict, None)?,
    };
    let word = found.as_ref().map_or("miss", FoundImage::word);
    if found.as_ref().is_some_and(|found| found.record().is_none()) {
        say::tell(&format!("miss: nothing under {key}"));
    }
    match &options.if_missing {
        Some(command) if word != "exact" => match make(around, key, command, &how, false, None)? {
            0 => execute(around, &options.command),
            code => Ok(code),
        },
        _ if found.is_none_or(|found| found.record().is_none()) => execute(around, &options.command),
        _ if options.via == Some(Backend::Unpack) => {
            said(or_continue(image(around, &wanted, &how), options.strict, None)?.as_ref());
            execute(around, &options.command)
        }
        _ => {
            or_continue(begin_inside(around, options).map(|never| match never {}), options.strict, ())?;
            execute(around, &options.command)
        }
    }
}

fn said(done: Option<&Done>) {
    if let Some((done, record)) = done.and_then(|done| Some((done, done.found.record()?))) {
        let why = done.passed_over.as_ref().map(|why| format!(", because no better method worked: {why}"));
        say::tell(&format!("{}: {}: by {}{}", done.found.word(), record.key, done.via, why.unwrap_or_default()));
    }
}

/// Executes this program again with the same options and `--inside`. The new process has a single
/// thread, which user namespaces need. A broker serves others as well, so it is started here,
/// outside of the new namespace.
fn begin_inside(around: &Surroundings, options: &ImageRun) -> Result<Infallible> {
    let store = around.store()?;
    // An error is reported by the second step.
    let _ = broker_socket::socket(around, &store);
    let program = own_program()?;
    let inside = words(&ImageRun { inside: true, if_missing: None, ..options.clone() });
    let begin = std::env::args_os().next().into_iter();
    let words: Vec<Vec<u8>> = begin.chain(inside).map(OsStringExt::into_vec).collect();
    let mut environment = around.block();
    let wrapper = around.wrapper.as_ref().map(|path| path.as_os_str().as_bytes());
    environment.extend(wrapper.map(|path| [WRAPPER_VARIABLE.as_bytes(), b"=", path].concat()));
    let error = larder_sys::exec(program.as_os_str().as_bytes(), &words, &environment);
    Err(error).with_context(|| format!("{} cannot be started again", program.display()))
}

/// Returns the words of the command line that these options stand for.
pub(super) fn words(options: &ImageRun) -> Vec<OsString> {
    let mut words = wanted_words("run", &options.wanted, options.policy, options.if_missing.as_deref());
    if let Some(via) = options.via {
        words.extend(["--via".into(), via.word().into()]);
    }
    let set = [
        (options.strict, "--strict"),
        (options.replace, "--replace"),
        (options.anywhere, "--anywhere"),
        (options.inside, INSIDE),
    ];
    words.extend(set.into_iter().filter(|(is_set, _)| *is_set).map(|(_, word)| OsString::from(word)));
    words.extend(options.paths.iter().map(|path| path_word(path)));
    words.push("--".into());
    words.extend(options.command.iter().cloned());
    words
}

/// Returns a path as a word of a command line. A relative one begins with `./` if it could be an
/// option: a workspace of a checkout may have any name.
pub(super) fn path_word(path: &Path) -> OsString {
    match path.as_os_str().as_bytes() {
        [b'-', ..] => Path::new(".").join(path).into_os_string(),
        _ => path.as_os_str().to_owned(),
    }
}

/// Returns the words that `image run` and `image restore` have in common.
pub(super) fn wanted_words(
    word: &str,
    wanted: &ImageWanted,
    policy: Policy,
    if_missing: Option<&str>,
) -> Vec<OsString> {
    let mut words: Vec<OsString> = ["image", word].map(OsString::from).into();
    let mut option = |name: &str, value: &str| match value.starts_with('-') {
        true => words.push(format!("--{name}={value}").into()),
        false => words.extend([format!("--{name}").into(), value.into()]),
    };
    option("key", &wanted.key);
    wanted.fallback.iter().for_each(|fallback| option("fallback", fallback));
    if let Some(policy) =
        Some(policy).filter(|policy| *policy != Policy::Both).and_then(|policy| policy.to_possible_value())
    {
        option("policy", policy.get_name());
    }
    if let Some(command) = if_missing {
        option("if-missing", command);
    }
    words
}

fn inside(around: &Surroundings, wanted: &Wanted, how: &ImageRestore, options: &ImageRun) -> Result<u8> {
    let mut held = Vec::new();
    let done = or_continue(mount_or_unpack(around, wanted, how, options.via, &mut held), options.strict, None)?;
    said(done.as_ref());
    // If something is mounted on the working directory or a parent of it, enter it again by its
    // path to see the mount.
    let cwd = around.cwd()?;
    let is_above = |target: &PathBuf| fs::canonicalize(target).is_ok_and(|target| cwd.starts_with(target));
    let is_covered = done.iter().flat_map(|done| &done.targets).any(is_above);
    if is_covered && !held.is_empty() {
        let entered = std::env::set_current_dir(cwd).context("the working directory is not in the image");
        or_continue(entered, options.strict, ())?;
    }
    let end = supervised(around, &options.command);
    drop(held);
    end.map(ended_so)
}

/// Mounts the image's paths with the first method that works, else unpacks them.
fn mount_or_unpack(
    around: &Surroundings,
    wanted: &Wanted,
    how: &ImageRestore,
    via: Option<Backend>,
    held: &mut Vec<Held>,
) -> Result<Option<Done>> {
    let store = around.store()?;
    let broker = broker_socket::socket(around, &store);
    // An error says why we cannot mount without a broker.
    let ourselves_possible = match via {
        None | Some(Backend::LazyFuse) => serve::possible(),
        Some(Backend::Fuse) => by_fuse_possible(),
        Some(_) => Err(String::new()),
    };
    let own = enter_own_namespace(broker.as_ref().err(), ourselves_possible.as_ref().err());
    let search = Search::new(around, wanted)?;
    let (found, _) = search.find()?;
    let Some(record) = found.record() else { return Ok(None) };
    let targets = targets(around, record, how)?;
    search.holds_no_repository(how)?;
    let mut trouble: Vec<String> = own.as_ref().err().map(|error| format!("{error:#}")).into_iter().collect();
    let ways = search.ways(record).chain([Backend::Fuse]).filter(|_| via.is_none());
    let ways = via.into_iter().filter(|backend| *backend != Backend::Unpack).chain(ways);
    for backend in ways.filter(|_| own.is_ok()) {
        let one = |Target { saved, path }: &Target| -> Result<Held> {
            let name = name(backend, *saved, record);
            // The directory stays afterwards: removing it would remove mounts of other processes on
            // it, in their own mount namespaces.
            fs::create_dir_all(path).with_context(|| format!("{}: cannot be created", path.display()))?;
            let (mount, keeps) = match (backend, &broker) {
                (Backend::Fuse, _) => ourselves(&store, search.remotes.clone(), &name, path)?,
                (Backend::LazyFuse, Err(_)) => by_server(&store, &name, record, path)?,
                (Backend::LazyFuse, Ok(_)) if ourselves_possible.is_ok() => by_server(&store, &name, record, path)?,
                (_, Ok(socket)) => bar::during(|progress| {
                    progress.begin(Step::Wait, 0);
                    by_broker(socket, &name)
                })?,
                (_, Err(why)) => bail!("{why:#}"),
            };
            Ok(Held { _placed: mount.place(path)?, _keeps: keeps })
        };
        match targets.iter().map(one).collect::<Result<Vec<Held>>>() {
            Ok(all) => {
                held.extend(all);
                let targets = targets.into_iter().map(|target| target.path).collect();
                // Without a broker, no better method was possible anyway, so nothing is reported.
                let why = (broker.is_ok() && !trouble.is_empty()).then(|| say::one_line(&trouble.join("; ")));
                return Ok(Some(Done::mounted(found.clone(), targets, backend, why)));
            }
            Err(error) => trouble.push(format!("{backend}: {error:#}")),
        }
    }
    let why = say::one_line(&trouble.join("; "));
    if via.is_some() {
        bail!("cannot be mounted: {why}");
    }
    let done = image(around, wanted, how)?;
    if done.is_some() {
        say::tell(&format!("unpacked (the files stay), because it could not be mounted: {why}"));
    }
    Ok(done)
}

/// Enters a mount namespace of this command's own. In it, the command of an ordinary user has fewer
/// privileges. So none is created if nothing can be mounted anyway: if there is no broker, for the
/// reason `no_broker`, and we cannot mount ourselves either.
fn enter_own_namespace(no_broker: Option<&anyhow::Error>, not_ourselves: Option<&String>) -> Result<()> {
    if let (Some(why), Some(why_not)) = (no_broker, not_ourselves) {
        let why_not = if why_not.is_empty() { String::new() } else { format!("; {why_not}") };
        bail!("{why:#}{why_not}");
    }
    own_mounts().context("no mount namespace can be created here")
}

/// Creates a mount namespace: later mounts are visible only to this process and its children. Root
/// gets no user namespace, because in it the files of other users would belong to the overflow
/// user.
pub(in crate::commands) fn own_mounts() -> io::Result<()> {
    if larder_sys::effective_user() == 0 { larder_sys::own_mounts() } else { larder_sys::own_namespaces() }
}

fn by_broker(socket: &Path, name: &str) -> Result<(Mount, Keeps)> {
    let (client, mount) = Client::detached(socket, name)?;
    Ok((mount, Keeps::Broker { _client: client }))
}

/// Mounts with squashfuse, from this user's own store.
fn ourselves(store: &Store, remotes: Option<Arc<RemoteImages>>, name: &str, path: &Path) -> Result<(Mount, Keeps)> {
    let (user, group) = (larder_sys::effective_user(), larder_sys::effective_group());
    let supply = ImageSupply { store: store.directory().to_owned(), remotes, stored: (user, group), serves: None };
    let supplied = supply.supplied(name)?;
    let (_, state) = store.image_broker()?;
    let places = Places::open(&state)?;
    let whole = by_fuse(&supplied.image, state.parent().unwrap_or(&state), Life::AsThread)?;
    let layer = if let Some(below) = supplied.below { whole.below(below)? } else { whole };
    places.sweep_held();
    let (mount, stay) = places.detached(&ask(name, &supplied.image, path, &layer, Backend::Fuse))?;
    Ok((mount, Keeps::Ourselves { _stay: stay, _lease: supplied.lease }))
}

/// Mounts with larder's own FUSE server, from this user's own store.
fn by_server(store: &Store, name: &str, record: &ImageRecord, path: &Path) -> Result<(Mount, Keeps)> {
    let (user, group) = (larder_sys::effective_user(), larder_sys::effective_group());
    let program = own_program()?;
    let (words, owners) = (server::words(&program, store), Owners::one(STORED, (user, group)));
    let wanted = ToServe { server: &words, from: None, name, owners: Some(&owners), life: Life::AsThread };
    let (layer, server) = serve::mount(&wanted)?;
    let (_, state) = store.image_broker()?;
    let places = Places::open(&state)?;
    places.sweep_held();
    // Only identifies the image. The server finds what it serves by itself.
    let metadata = store.live_file(&record.image(), Live::Metadata(asked_for(name)?.saved))?;
    let image = Files::Erofs { metadata, data: None };
    let (mount, stay) = places.detached(&ask(name, &image, path, &layer, Backend::LazyFuse))?;
    Ok((mount, Keeps::Served { _stay: stay, _server: server }))
}

/// Returns a request for a writable mount that covers what exists, as long as we hold it.
fn ask<'a>(name: &'a str, image: &'a Files, target: &'a Path, layer: &'a Mount, via: Backend) -> Ask<'a> {
    Ask {
        name,
        user: larder_sys::effective_user(),
        image,
        target,
        layer: Some(layer),
        via,
        writable: true,
        owners: None,
        lease: Lease::Held,
        life: Life::AsThread,
        over: true,
        inside: None,
    }
}

/// How a command ended, or with which exit code of a shell it failed to start.
pub(super) enum End {
    Not(u8),
    So(ChildEnd),
}

/// Runs the command without a mount.
fn execute(around: &Surroundings, command: &[OsString]) -> Result<u8> {
    supervised(around, command).map(ended_so)
}

/// Runs the command, forwards signals to it, and kills it if this process dies.
pub(super) fn supervised(around: &Surroundings, command: &[OsString]) -> Result<End> {
    let argv: Vec<Vec<u8>> = command.iter().map(|word| word.as_bytes().to_vec()).collect();
    let shown = || say::one_line(&OsStr::from_bytes(&argv[0]).to_string_lossy());
    let Some(tool) = find_program(&argv[0], around.variable(b"PATH"), &nobody(), false) else {
        say::tell(&format!("{}: command not found", shown()));
        return Ok(End::Not(NOT_FOUND));
    };
    let forwarding = SignalForwarding::prepare()?;
    let child = match larder_sys::spawn_job(&tool.path, &argv, &around.block(), &forwarding) {
        Ok(child) => child,
        Err(error) => {
            forwarding.unblock();
            say::tell(&format!("{}: cannot be executed: {error}", shown()));
            return Ok(End::Not(NOT_EXECUTABLE));
        }
    };
    forwarding.begin(child.pid);
    let end = child.wait();
    SignalForwarding::end();
    Ok(End::So(end?))
}

/// Ends as the command did: with its exit code, or by the same signal, so that an interrupted shell
/// notices.
pub(super) fn ended_so(end: End) -> u8 {
    match end {
        End::Not(code) | End::So(ChildEnd::Exited(code)) => code,
        End::So(ChildEnd::Signalled(signal)) => larder_sys::die_by(signal),
    }
}
