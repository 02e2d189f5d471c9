//! `larder image`: saves and provides directories under keys.
//!
//! | file | does |
//! |---|---|
//! | `key.rs` | expands the templates of keys |
//! | `find.rs` | exact key, fallback or miss, in the store and on the remotes |
//! | `save.rs`, `restore.rs`, `mount.rs` | these subcommands |
//! | `archive.rs` | `import`, `export` |
//! | `attach.rs` | mounts existing squashfs files |
//! | `run.rs` | mounts for one command, even without privileges |
//! | `broker.rs`, `supply.rs` | mounting for others, and where a broker gets images from |
//! | `serve.rs` | the FUSE server of a mounted image |
//! | `trace.rs` | which parts of an image jobs read, stored with it |
//! | `show.rs` | `list`, `show`, `drop` |
//! | `far.rs` | the client of remotes |
//! | `bar.rs` | the progress bar |
//!
//! Unaware of: how an image is made (`larder-image`).

mod archive;
mod attach;
mod bar;
mod broker;
mod far;
mod find;
mod key;
mod mount;
mod restore;
mod run;
mod save;
mod serve;
mod show;
mod supply;
mod trace;

pub(super) use mount::SOCKET as BROKER_SOCKET;
pub(super) use run::own_mounts;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow};
use larder_image::Left;
use larder_store::{Counters, Store};

use super::FINE;
use crate::cli::{Images, ImagesWord};
use crate::say;
use crate::surroundings::Surroundings;

/// The exit code if an image of a fallback was restored.
const FALLBACK: u8 = 10;
/// The exit code if no image was found.
const MISS: u8 = 11;

/// Drops the images whose signer is not trusted any more, before any image is searched.
fn drop_disbelieved(around: &Surroundings) {
    let trust = &around.settings().remote_trust;
    let dropped = match around.store() {
        Ok(store) if !trust.is_empty() => store.drop_disbelieved_images(trust).map_err(anyhow::Error::from),
        // The subcommand will report what is wrong with the store.
        _ => return,
    };
    match dropped {
        Ok(keys) => keys.iter().for_each(|key| {
            say::tell(&format!("{key}: dropped, because none of the keys in remote_trust signed it"));
        }),
        Err(error) => say::tell(&format!(
            "images without a trusted signature could not be dropped and may still be used: {error:#}"
        )),
    }
}

/// Runs the subcommand.
pub(crate) fn run(around: &Surroundings, options: &Images, out: &mut dyn Write) -> Result<u8> {
    drop_disbelieved(around);
    match &options.word {
        ImagesWord::Save(options) => save::run(around, options, out),
        ImagesWord::Mount(options) => mount::run(around, options, out),
        ImagesWord::Run(options) => run::run(around, options),
        ImagesWord::Unmount(options) => mount::unmount(around, options, out),
        ImagesWord::Broker(options) => broker::run(around, options),
        ImagesWord::Serve(options) => serve::run(around, options),
        ImagesWord::Restore(options) => restore::run(around, options, out),
        ImagesWord::Attach(options) => attach::run(around, options, out),
        ImagesWord::Import(options) => archive::import(around, options, out),
        ImagesWord::Export(options) => archive::export(around, options, out),
        ImagesWord::List(options) => show::list(around, options, out),
        ImagesWord::Show(options) => show::show(around, options, out),
        ImagesWord::Drop(options) => show::forget(around, options, out),
    }
}

/// Returns the result. Without `strict`, an error is printed, and `instead` is returned.
fn borne<T>(done: Result<T>, strict: bool, instead: T) -> Result<T> {
    match done {
        Err(error) if !strict => {
            say::tell(&say::one_line(&format!("{error:#}: continuing without it")));
            Ok(instead)
        }
        done => done,
    }
}

/// Returns the working directory, to which paths are relative.
fn cwd(around: &Surroundings) -> Result<&Path> {
    around.cwd.as_deref().context("the working directory does not exist any more: change to one that exists")
}

/// Returns the name of a path inside an image, for example `~/.cargo` for a path below the home
/// directory.
fn name_of(around: &Surroundings, path: &Path) -> Vec<u8> {
    larder_image::name_of(path, home(around).as_deref())
}

fn home(around: &Surroundings) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    let named = around.variable(b"HOME").map(|home| PathBuf::from(std::ffi::OsStr::from_bytes(home)));
    named.filter(|home| home.is_absolute()).or_else(larder_sys::home_of_user)
}

/// Returns the local path for a name inside an image.
fn place_of(around: &Surroundings, name: &[u8]) -> Result<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    let path = Path::new(std::ffi::OsStr::from_bytes(name));
    match path.strip_prefix("~") {
        Ok(below) => Ok(home(around).context("the home directory is not known: type the path")?.join(below)),
        Err(_) => Ok(cwd(around)?.join(path)),
    }
}

/// Returns the local path for a name inside an image, if that path is below the working directory
/// with all links resolved, and not in a `.git`. The person who saved the image chose the name. For
/// example, `~/.ssh` or `.git/hooks` would give that person control of the account.
fn place_below(cwd: &Path, name: &[u8]) -> Result<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    use std::path::Component::{CurDir, Normal};
    let path = Path::new(std::ffi::OsStr::from_bytes(name));
    let refused = |why: &str| {
        let name = shown(name);
        anyhow!("{name}: not restored, because {why}: type the path to restore it there, or add --anywhere")
    };
    let is_below = |path: &Path| path.components().all(|part| matches!(part, CurDir | Normal(_)));
    if path.starts_with("~") || !is_below(path) {
        return Err(refused("it lies outside of the working directory"));
    }
    let place = cwd.join(path);
    // A path that does not exist yet is no link.
    let there = place.ancestors().find(|above| above.symlink_metadata().is_ok()).unwrap_or(cwd);
    let (real, top) = (fs::canonicalize(there), fs::canonicalize(cwd)?);
    match real {
        Ok(real) if !real.starts_with(&top) => Err(refused("a link there leads out of the working directory")),
        Err(_) => Err(refused("a link there leads nowhere")),
        Ok(real) if real.iter().chain(path).any(|part| is_repository(part.as_bytes())) => {
            Err(refused("it lies in a repository's own directory"))
        }
        Ok(_) => Ok(place),
    }
}

/// Returns true for the name of a repository's own directory, in any case, because some file
/// systems ignore case.
fn is_repository(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b".git")
}

/// Finishes or undoes what killed commands began when they replaced one of these paths, and prints
/// the outcome.
fn tidy<'p>(paths: impl Iterator<Item = &'p Path>) {
    let is_directory = |path: &&Path| path.symlink_metadata().is_ok_and(|there| there.is_dir());
    let mut dirs: Vec<&Path> =
        paths.flat_map(|path| [path.parent(), Some(path).filter(is_directory)]).flatten().collect();
    dirs.sort_unstable();
    dirs.dedup();
    for left in dirs.into_iter().flat_map(larder_image::sweep) {
        say::tell(&say::one_line(&match left {
            Left::PutBack(path) => {
                format!(
                    "{}: restored to its old state, because a larder that was replacing it was killed",
                    path.display()
                )
            }
            Left::Finished(path) => format!("{}: replaced, which a killed larder had begun", path.display()),
            Left::Kept { target, old } => format!(
                "{}: a larder that was replacing it was killed; its old contents are in {}: move them back, or remove them",
                target.display(),
                old.display()
            ),
        }));
    }
}

/// Returns the time in milliseconds since 1970.
fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Adds `bytes` to the counted size of the store, and evicts if it exceeds its limit.
fn grown(around: &Surroundings, store: &Store, bytes: u64) -> Result<()> {
    super::evict::images_to_limits(store, around.settings())?;
    let Ok(counters) = Counters::open(store) else { return Ok(()) };
    let now = counters.grew(bytes);
    let limit_bytes = around.settings().max_size_bytes;
    if limit_bytes > 0 && now > limit_bytes {
        super::evict::to_limit(store, limit_bytes)?;
    }
    Ok(())
}

/// Formats a name for people and for JSON.
fn shown(name: &[u8]) -> String {
    say::clean(name)
}
