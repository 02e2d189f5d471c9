//! `larderd image fetch`: a process without rights that downloads and decodes one image for a
//! broker. What it makes, it writes into files that the broker passes.
//!
//! ```text
//!   broker (root, mounts) ──── requests, open files ───► fetcher (own user, no rights)
//!     │ EROFS, data file ─► kernel                          │ records, trees, packs, HTTP, TLS
//! ```
//!
//! Unaware of: what is mounted, and where.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use larder_config::Settings;
use larder_image::{Device, Image, Progress, memory_of_trees, metadata, squash};
use larder_model::{Digest, ImageRecord};
use larder_mount::lazy::{Trace, prepare};
use larder_mount::{Confinement, Fill, confine};
use larder_remote::RemoteUrl;
use larder_store::{FetcherView, Store};
use larder_sys::Channel;
use parking_lot::Mutex;

use super::super::{FINE, evict};
use super::fetch_request::{Description, Failed, Request, RequestKind, answer, next};
use super::find;
use super::remote_images::RemoteImages;
use super::supply::{ImageSupply, PackFill, STORED, asked_for, directory};
use super::trace;
use crate::cli::{ImageFetch, Limits};
use crate::say;
use crate::surroundings::Surroundings;

/// The threads that answer requests have this stack, in bytes. Trees are decoded without recursion.
const STACK_BYTES: usize = 1 << 20;
/// A process that was asked for nothing for this long ends.
const IDLE: Duration = Duration::from_secs(30);
/// The limit for a trace, in bytes.
const TRACE_BYTES_MAX: u64 = 64 << 20;

/// The exit code of a process that could not give up its rights, and read nothing.
pub(super) const UNCONFINED: u8 = 77;

/// Answers a broker's requests until the broker closes the connection, or evicts.
pub(super) fn run(around: &Surroundings, options: &ImageFetch) -> Result<u8> {
    if options.evict {
        return evict_confined(around, options);
    }
    let line = Channel::given(io::stdin().as_fd().try_clone_to_owned().context("standard input is closed")?);
    let store = Store::open(&options.store)?;
    larder_sys::close_others(3, &[line.descriptor().as_raw_fd()]);
    let image = asked_for(&options.name)?.image;
    if let Err(error) = confine_to(around.settings(), &store, &image, Vec::new(), options.limits) {
        say::tell(&say::one_line(&format!("{error:#}")));
        return Ok(UNCONFINED);
    }
    find::drop_untrusted(around);
    let state = Arc::new(Fetcher {
        settings: without_secret(around.settings()),
        store: options.store.clone(),
        name: options.name.clone(),
        found: Mutex::default(),
        opened: Mutex::default(),
    });
    line.set_patience(IDLE)?;
    loop {
        let request = match next(&line) {
            Ok(Some(request)) => request,
            // Threads that still work are ended with the process.
            Ok(None) => return Ok(FINE),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                // The broker starts another process for its next request.
                if Arc::strong_count(&state) == 1 {
                    return Ok(FINE);
                }
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let its = Arc::clone(&state);
        let work = move || {
            let done = its.done(&request);
            answer(&request.reply, done);
        };
        std::thread::Builder::new().stack_size(STACK_BYTES).spawn(work)?;
    }
}

/// Confines this process to what it needs of the system, of remotes, and of a store for one image,
/// and to further directories that it may write.
pub(super) fn confine_to(
    settings: &Settings,
    store: &Store,
    image: &Digest,
    further: Vec<PathBuf>,
    limits: Limits,
) -> Result<()> {
    let mut view = store.fetcher_view(image)?;
    view.writable.extend(further.into_iter().map(|path| (path.clone(), path)));
    let remotes: Vec<RemoteUrl> = settings.remote.iter().filter_map(|url| url.parse().ok()).collect();
    for directory in remotes.iter().filter_map(RemoteUrl::directory) {
        if !settings.remote_read_only {
            std::fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
        }
        view.writable.push((directory.to_owned(), directory.to_owned()));
    }
    confine_to_view(settings, view, &credentials(settings, &remotes), limits)
}

/// Evicts, as a process without rights that cannot change files for mounts. Writes the digests of
/// the images of which only such files are left to standard output.
fn evict_confined(around: &Surroundings, options: &ImageFetch) -> Result<u8> {
    let (store, settings) = (Store::open(&options.store)?, around.settings());
    larder_sys::close_others(3, &[]);
    confine_to_view(settings, store.evictor_view()?, &[], options.limits)?;
    find::drop_untrusted(around);
    evict::images_to_limits(&store, settings)?;
    evict::to_limit(&store, settings.max_size_bytes)?;
    let unneeded: Vec<u8> = store.unneeded_live()?.into_iter().flat_map(|image| image.0).collect();
    io::stdout().write_all(&unneeded)?;
    Ok(FINE)
}

fn confine_to_view(settings: &Settings, mut view: FetcherView, credentials: &[PathBuf], limits: Limits) -> Result<()> {
    view.writable.retain(|(path, _)| path.exists());
    // The secret key may be in a directory that is shown.
    let hidden = settings.remote_sign_with.as_ref().and_then(|key| key.canonicalize().ok());
    let wanted = Confinement {
        readable: &view.readable,
        credentials,
        writable: &view.writable,
        hidden: hidden.as_deref(),
        may_keep_user: limits.may_keep_user,
        memory_bytes: limits.memory_mib << 20,
    };
    let kept = confine(&wanted).context("a process for images cannot give up its rights, so it reads nothing")?;
    larder_store::forget_user();
    if let Some(why) = kept {
        say::tell(&format!("images are fetched as user 0, but without its rights: {}", say::one_line(&why)));
    }
    Ok(())
}

/// Returns the files that the URLs of remotes and the environment name, such as certificates, and
/// those in which clients of clouds keep their credentials.
fn credentials(settings: &Settings, remotes: &[RemoteUrl]) -> Vec<PathBuf> {
    const NOT_FILES: [&str; 5] = ["LARDER_", "HOME", "PATH", "TMPDIR", "XDG_"];
    let named = remotes.iter().flat_map(RemoteUrl::files).map(Path::to_owned);
    let needed = std::env::vars_os().filter(|(name, _)| {
        larder_config::larderd_needs(name.as_bytes(), &settings.remote)
            && !NOT_FILES.iter().any(|prefix| name.as_bytes().starts_with(prefix.as_bytes()))
    });
    // `SSL_CERT_DIR` is a list of directories.
    let needed = needed.flat_map(|(name, value)| match name.as_bytes() {
        b"SSL_CERT_DIR" => std::env::split_paths(&value).collect(),
        _ => vec![PathBuf::from(value)],
    });
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let kept = home.iter().flat_map(|home| [".aws", ".config/gcloud", ".azure"].map(|name| home.join(name)));
    named.chain(needed).chain(kept).filter(|path| path.is_absolute() && path != Path::new("/")).collect()
}

/// Returns settings that need no secret key. A process that decodes what others sent must not be
/// able to sign.
pub(super) fn without_secret(settings: &Settings) -> Settings {
    let signs = settings.remote_sign_with.is_some();
    Settings {
        remote_sign_with: None,
        // What it would send would replace what is signed.
        remote_read_only: settings.remote_read_only || signs,
        ..settings.clone()
    }
}

struct Fetcher {
    settings: Settings,
    store: PathBuf,
    name: String,
    found: Once<FoundRecord>,
    opened: Once<Opened>,
}

type Once<T> = Mutex<Option<Result<Arc<T>, String>>>;

/// The record of the image.
struct FoundRecord {
    record: ImageRecord,
    saved: usize,
    remotes: Option<Arc<RemoteImages>>,
}

/// The image, without its trees.
struct Opened {
    record: ImageRecord,
    saved: usize,
    image: Arc<Image>,
    remotes: Option<Arc<RemoteImages>>,
    fill: PackFill,
}

impl Fetcher {
    fn done(&self, request: &Request) -> Result<(), Failed> {
        let Request { kind, files, .. } = request;
        let file = |at: usize| -> Result<File, Failed> {
            let file = files.get(at).and_then(|file| file.try_clone().ok());
            file.map(File::from).ok_or_else(|| Failed::Other("the request has no file".to_owned()))
        };
        if *kind == RequestKind::Prepare {
            let prepared = prepare(&file(0)?, &file(1)?, &file(2)?);
            return prepared.map_err(|error| Failed::Other(format!("the metadata cannot be prepared: {error}")));
        }
        if *kind == RequestKind::Weigh {
            return self.weigh(&file(0)?).map_err(|error| Failed::Other(say::one_line(&format!("{error:#}"))));
        }
        let opened = self.opened().map_err(Failed::Other)?;
        if *kind == RequestKind::Fill {
            let filled = opened.fill.fill(request.offset, request.length, file(0)?.as_fd());
            return filled.map_err(|error| match error.kind() {
                io::ErrorKind::HostUnreachable => Failed::Unreachable(error.to_string()),
                _ => Failed::Other(error.to_string()),
            });
        }
        self.made(&opened, *kind, &file(0)?).map_err(|error| Failed::Other(say::one_line(&format!("{error:#}"))))
    }

    /// Writes how much memory it takes to decode the trees. They are downloaded, but not decoded.
    fn weigh(&self, mut file: &File) -> Result<()> {
        let found = self.found().map_err(anyhow::Error::msg)?;
        let bytes = memory_of_trees(&Store::open(&self.store)?, &found.record)?;
        Ok(file.write_all(&bytes.to_le_bytes())?)
    }

    /// Writes what was asked for to the file, or reads it.
    fn made(&self, opened: &Opened, kind: RequestKind, mut file: &File) -> Result<()> {
        let store = Store::open(&self.store)?;
        let whole = || -> Result<Image> {
            let image = Image::open(&store, opened.record.clone())?;
            directory(&image, opened.saved)?;
            Ok(image)
        };
        match kind {
            RequestKind::Describe => file.write_all(&self.description(opened, &store).encode())?,
            RequestKind::Record => file.write_all(&opened.record.encode())?,
            RequestKind::Metadata => {
                let image = whole()?;
                metadata(&image.trees[opened.saved], image.packs.blocks(), STORED, file)?;
            }
            RequestKind::Whole => self.supply(opened.remotes.clone()).write_whole(&whole()?, opened.saved, file)?,
            RequestKind::Squashfs => {
                let image = whole()?;
                super::supply::bring_lacking(&store, opened.remotes.as_deref(), &image, opened.saved)?;
                let workplace = store.workplace()?;
                let made = workplace.join("squashfs");
                let done = squash(&store, &image, opened.saved, STORED, &made, &Progress::default());
                let done = done.map_err(anyhow::Error::from).and_then(|()| {
                    io::copy(&mut File::open(&made)?, &mut file)?;
                    Ok(())
                });
                let _ = std::fs::remove_dir_all(&workplace);
                done?;
            }
            RequestKind::Trace => {
                let mut bytes = Vec::new();
                file.take(TRACE_BYTES_MAX).read_to_end(&mut bytes)?;
                let numbers: Vec<u64> = bytes.as_chunks::<8>().0.iter().map(|one| u64::from_le_bytes(*one)).collect();
                let ranges = numbers.as_chunks::<2>().0.iter().map(|&[start, end]| start..end).collect();
                let keep = trace::kept(self.store.clone(), opened.remotes.clone(), Arc::clone(&opened.image));
                keep(&Trace { ranges });
            }
            RequestKind::Weigh | RequestKind::Prepare | RequestKind::Fill => {}
        }
        Ok(())
    }

    fn description(&self, opened: &Opened, store: &Store) -> Description {
        let device = Device::new(&opened.image);
        let size_bytes = device.size_bytes();
        let mut found = Description { size_bytes, ..Description::default() };
        let mut offset = 0;
        while offset < size_bytes {
            found.pieces.push(offset);
            offset = device.piece(offset).end.max(offset + 1);
        }
        let known = trace::known(store, &opened.image);
        found.order = known.as_ref().map_or_else(Vec::new, |known| known.ranges(&opened.image.packs));
        found.traced = known.is_none_or(|known| known.is_carried);
        found
    }

    fn supply(&self, remotes: Option<Arc<RemoteImages>>) -> ImageSupply {
        ImageSupply { store: self.store.clone(), remotes, stored: STORED, serves: None }
    }

    /// Finds the image, and downloads everything but its packs. Done once.
    fn found(&self) -> Result<Arc<FoundRecord>, String> {
        once(&self.found, || self.find())
    }

    /// Opens the image. Done once.
    fn opened(&self) -> Result<Arc<Opened>, String> {
        once(&self.opened, || self.open())
    }

    fn find(&self) -> Result<FoundRecord> {
        let store = Store::open(&self.store)?;
        let remotes = RemoteImages::with_settings(&self.settings, &store)?.map(Arc::new);
        let asked = asked_for(&self.name)?;
        let record = self.supply(remotes.clone()).found(&store, &asked);
        // It is mounted, but its tree is not in the store any more.
        let record = record.or_else(|error| store.live_image(&asked.image).ok_or(error))?;
        ensure!(asked.saved < record.saved.len(), "the image has no such path");
        Ok(FoundRecord { record, saved: asked.saved, remotes })
    }

    fn open(&self) -> Result<Opened> {
        let found = self.found().map_err(anyhow::Error::msg)?;
        let FoundRecord { record, saved, remotes } = &*found;
        let store = Store::open(&self.store)?;
        // An image of several paths needs its trees to know which packs belong to this one.
        let mut image = match record.saved.len() {
            1 => Image::without_trees(&store, record.clone())?,
            _ => Image::open(&store, record.clone())?,
        };
        let needed = image.needed(&[*saved]);
        image.forget_trees();
        let image = Arc::new(image);
        let fill = PackFill::new(&self.store, remotes.clone(), Arc::clone(&image), &needed);
        Ok(Opened { record: record.clone(), saved: *saved, image, remotes: remotes.clone(), fill })
    }
}

/// Returns what `make` returned the first time.
fn once<T>(made: &Once<T>, make: impl FnOnce() -> Result<T>) -> Result<Arc<T>, String> {
    let mut made = made.lock();
    let make = || make().map(Arc::new).map_err(|error| say::one_line(&format!("{error:#}")));
    made.get_or_insert_with(make).clone()
}
