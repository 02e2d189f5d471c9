//! `larder image`: directories under keys.
//!
//! | file | does |
//! |---|---|
//! | `key.rs` | what a template may ask for here |
//! | `find.rs` | exact, fallback or miss, in the store and on the remotes |
//! | `save.rs`, `restore.rs`, `mount.rs` | these words |
//! | `archive.rs` | `import`, `export` |
//! | `attach.rs` | squashfs files that others made, mounted as they are |
//! | `run.rs` | mounting for one command, without rights as well |
//! | `broker.rs`, `supply.rs` | mounting for others, and where the images for that come from |
//! | `serve.rs` | answering for one that is mounted by FUSE |
//! | `trace.rs` | what jobs touch of an image, kept with it |
//! | `show.rs` | `list`, `show`, `drop` |
//! | `far.rs` | what is asked of remotes |
//! | `bar.rs` | how far it is |
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

/// What was restored has another key.
const FALLBACK: u8 = 10;
/// There was nothing.
const MISS: u8 = 11;

/// Forget the images whose signer is not trusted any more, before anything is looked for.
fn drop_disbelieved(around: &Surroundings) {
    let trust = &around.settings().remote_trust;
    let dropped = match around.store() {
        Ok(store) if !trust.is_empty() => store.drop_disbelieved_images(trust).map_err(anyhow::Error::from),
        // Who asks next says what is wrong with the store.
        _ => return,
    };
    match dropped {
        Ok(keys) => keys.iter().for_each(|key| {
            say::tell(&format!("{key}: forgotten, because none of the keys in remote_trust signed it"));
        }),
        Err(error) => say::tell(&format!("images that nobody trusted signed may still be used: {error:#}")),
    }
}

/// Do what was asked for.
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

/// What came of it; without `strict` trouble is said, and is `instead`.
fn borne<T>(done: Result<T>, strict: bool, instead: T) -> Result<T> {
    match done {
        Err(error) if !strict => {
            say::tell(&say::one_line(&format!("{error:#}: going on without")));
            Ok(instead)
        }
        done => done,
    }
}

/// The working directory, which paths are relative to.
fn cwd(around: &Surroundings) -> Result<&Path> {
    around.cwd.as_deref().context("the working directory is gone: change to one that exists")
}

/// A path as it is named in an image.
fn name_of(around: &Surroundings, path: &Path) -> Vec<u8> {
    larder_image::name_of(path, home(around).as_deref())
}

fn home(around: &Surroundings) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    let named = around.variable(b"HOME").map(|home| PathBuf::from(std::ffi::OsStr::from_bytes(home)));
    named.filter(|home| home.is_absolute()).or_else(larder_sys::home_of_user)
}

/// Where a path that is named in an image lies here.
fn place_of(around: &Surroundings, name: &[u8]) -> Result<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    let path = Path::new(std::ffi::OsStr::from_bytes(name));
    match path.strip_prefix("~") {
        Ok(below) => Ok(home(around).context("no home directory is known: name the path")?.join(below)),
        Err(_) => Ok(cwd(around)?.join(path)),
    }
}

/// Where a path that is named in an image lies here, if that is below the working directory with all links resolved, and
/// not in a `.git`. Whoever saved the image chose the name; `~/.ssh` or `.git/hooks` would give that person the account.
fn place_below(cwd: &Path, name: &[u8]) -> Result<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    use std::path::Component::{CurDir, Normal};
    let path = Path::new(std::ffi::OsStr::from_bytes(name));
    let refused = |why: &str| {
        let name = shown(name);
        anyhow!("{name}: not put in place, because {why}: type the path to have it there, or say --anywhere")
    };
    let is_below = |path: &Path| path.components().all(|part| matches!(part, CurDir | Normal(_)));
    if path.starts_with("~") || !is_below(path) {
        return Err(refused("it lies outside of the working directory"));
    }
    let place = cwd.join(path);
    // What is not there yet is no link.
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

/// Returns true for the name of a repository's own directory, also where a file system does not tell cases apart.
fn is_repository(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b".git")
}

/// Finish what commands began that were killed while they replaced one of these paths, and say what came of it.
fn tidy<'p>(paths: impl Iterator<Item = &'p Path>) {
    let is_directory = |path: &&Path| path.symlink_metadata().is_ok_and(|there| there.is_dir());
    let mut dirs: Vec<&Path> =
        paths.flat_map(|path| [path.parent(), Some(path).filter(is_directory)]).flatten().collect();
    dirs.sort_unstable();
    dirs.dedup();
    for left in dirs.into_iter().flat_map(larder_image::sweep) {
        say::tell(&say::one_line(&match left {
            Left::PutBack(path) => {
                format!("{}: put back, because a larder that was replacing it was killed", path.display())
            }
            Left::Finished(path) => format!("{}: replaced, as a larder had begun that was killed", path.display()),
            Left::Kept { target, old } => format!(
                "{}: what was there when a larder was killed that was replacing it is in {}: move it back, or remove that",
                target.display(),
                old.display()
            ),
        }));
    }
}

/// Milliseconds since 1970.
fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// The store grew by so much: count it, and bring the store within its limit where it has outgrown that.
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

/// A path for people and for JSON.
fn shown(name: &[u8]) -> String {
    say::clean(name)
}
