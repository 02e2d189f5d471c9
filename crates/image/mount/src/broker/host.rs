//! One mount of each image for all jobs of the machine. It is detached, and is the lower layer of
//! the jobs' overlays.
//!
//! Unaware of: requests and jobs.

use std::any::Any;
use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::policy::refused;
use super::{Supplied, Traced, supply::Lazily};
use crate::fuse::Life;
use crate::lazy::{Lazy, Options};
use crate::serve::{self, ToServe};
use crate::{Backend, Image, Mount, MountError, Owners, fuse, layer};

/// How long the first reads of an image are traced, if no trace of it is recorded yet. Jobs begin
/// with what all of them need, so a minute is enough. Meanwhile, each first read of a chunk is a
/// request to the filler, which costs time.
const TRACE_FOR: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// The stack of the thread that ends the trace, in bytes.
const STACK_BYTES: usize = 256 << 10;

/// An image that is mounted as long as there is a reference to this.
pub(super) struct Shared {
    pub(super) layer: Mount,
    /// The mount shows the owners that the first request asked for, so it is only shared by
    /// requests with the same owners.
    pub(super) is_owned: bool,
    /// The filler. It is dropped after the mount, because fields are dropped in order.
    lazy: Option<Lazy>,
    traced: Option<Traced>,
    told: AtomicBool,
    /// Keeps the image's files from being evicted, as long as the mount exists.
    _lease: Arc<dyn Any + Send + Sync>,
}

impl Shared {
    /// Stops tracing and reports the trace, if that was not done before.
    fn end_trace(&self) {
        let (Some(lazy), Some(traced)) = (&self.lazy, &self.traced) else { return };
        if !self.told.swap(true, Relaxed) {
            let trace = lazy.finish();
            // If there is no trace, the next job fetches data in the order of the data file.
            if !trace.ranges.is_empty() {
                traced(&trace);
            }
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.end_trace();
    }
}

/// Ends the trace after `TRACE_FOR`, or when the last user of the image drops it.
fn end_trace_later(shared: &Arc<Shared>) {
    let its = Arc::downgrade(shared);
    let wait = move || {
        let until = Instant::now() + TRACE_FOR;
        while Instant::now() < until && its.strong_count() > 0 {
            std::thread::sleep(LOOK_EVERY);
        }
        its.upgrade().iter().for_each(|shared| shared.end_trace());
    };
    if std::thread::Builder::new().stack_size(STACK_BYTES).spawn(wait).is_err() {
        shared.end_trace();
    }
}

fn wait_for(supplied: &Supplied) -> Result<(), MountError> {
    supplied.ready.as_ref().map_or(Ok(()), |ready| ready().map_err(refused))
}

/// The programs that a broker starts, each with its arguments.
#[derive(Clone, Debug, Default)]
pub struct Programs {
    /// A program that calls `lazy::gate` with its standard input and the arguments that follow
    /// these.
    pub gate: Vec<OsString>,
    /// A program that starts a broker like this one: the working directory, the program, its
    /// arguments. A gate starts it if a job waits for data and the broker is gone.
    pub rescue: Vec<OsString>,
    /// A program that calls `serve::serve` with its standard input.
    pub server: Vec<OsString>,
    /// The working directory that servers are started in, or `None` for the broker's.
    pub server_from: Option<PathBuf>,
}

/// All images that are mounted now, by their identifier.
pub(super) struct Host {
    images: Mutex<HashMap<String, Arc<Mutex<Weak<Shared>>>>>,
    programs: Programs,
}

impl Host {
    pub(super) fn new(programs: Programs) -> Host {
        Host { images: Mutex::new(HashMap::new()), programs }
    }

    /// Returns the mounted image, and mounts it if that was not done before. `owners` are the
    /// owners that the caller is to see; `name` is the name that the caller asked for.
    pub(super) fn shared(&self, supplied: &Supplied, name: &str, owners: &Owners) -> Result<Arc<Shared>, MountError> {
        // A server answers with the mapped owners itself, because kernels before 6.12 cannot map
        // the owners of a FUSE file system. So there is one mount for each mapping.
        let id = match supplied.via {
            Backend::LazyFuse if !owners.is_plain() => format!("{} {owners:?}", supplied.id),
            _ => supplied.id.clone(),
        };
        // The slot is locked while the image is mounted. That may take as long as a fetch from a
        // remote, but does not delay other images.
        let slot = self.slot(id);
        let mut slot = slot.lock();
        if let Some(shared) = slot.upgrade() {
            return Ok(shared);
        }
        let shared = Arc::new(self.mount(supplied, name, owners)?);
        if shared.traced.is_some() {
            end_trace_later(&shared);
        }
        *slot = Arc::downgrade(&shared);
        Ok(shared)
    }

    /// Returns the slot of the image with this identifier.
    fn slot(&self, id: String) -> Arc<Mutex<Weak<Shared>>> {
        let mut images = self.images.lock();
        // A slot that is locked, or that a thread waits for, has a reference outside of this map.
        let is_used = |slot: &Arc<Mutex<Weak<Shared>>>| {
            Arc::strong_count(slot) > 1 || slot.try_lock().is_some_and(|shared| shared.strong_count() > 0)
        };
        images.retain(|_, slot| is_used(slot));
        Arc::clone(images.entry(id).or_default())
    }

    fn mount(&self, supplied: &Supplied, name: &str, owners: &Owners) -> Result<Shared, MountError> {
        let lease = Arc::clone(&supplied.lease);
        let plain = |layer| Shared {
            layer,
            is_owned: supplied.via == Backend::LazyFuse,
            _lease: lease.clone(),
            lazy: None,
            traced: None,
            told: AtomicBool::new(false),
        };
        match (&supplied.image, supplied.via, &supplied.lazily) {
            (Image::Erofs { metadata, data: Some(data) }, Backend::Lazy, Some(lazily)) => {
                let Lazily { directory, size_bytes, fill, prepare, order, traced } = lazily;
                let trace = traced.is_some();
                let Programs { gate, rescue, .. } = self.programs.clone();
                let (order, prepare) = (order.clone(), Arc::clone(prepare));
                let options = Options { order, trace, rescue, prepare, ..Options::new(gate) };
                // This runs while the metadata is still being made, because it takes about as long.
                let lazy = Lazy::begin(directory, data, *size_bytes, Arc::clone(fill), &options)?;
                wait_for(supplied)?;
                let (layer, traced, told) = (lazy.mount(metadata)?, traced.clone(), AtomicBool::new(false));
                Ok(Shared { layer, is_owned: false, _lease: lease, lazy: Some(lazy), traced, told })
            }
            (Image::Erofs { metadata, data }, Backend::Mount, _) => {
                wait_for(supplied)?;
                let by_file = layer::erofs(metadata, data.as_deref());
                let layer =
                    by_file.or_else(|first| layer::erofs_by_loop_device(metadata, data.as_deref()).map_err(|_| first));
                layer.map(plain)
            }
            (Image::Erofs { .. }, Backend::LazyFuse, _) => {
                // The server's process outlives this one. It finds and fills the image by itself.
                let Programs { server, server_from, .. } = &self.programs;
                let (from, owners, life) = (server_from.as_deref(), Some(owners), Life::AsMount);
                let (layer, _) = serve::mount(&ToServe { server, from, name, owners, life })?;
                Ok(plain(layer))
            }
            (Image::Squashfs(file), Backend::Squashfs, _) => {
                let layer = layer::squashfs(file)?;
                let layer = if let Some(name) = supplied.below { layer.below(name)? } else { layer };
                Ok(plain(layer))
            }
            (image, Backend::Fuse, _) => {
                let near = image.first_file().parent().unwrap_or(Path::new("/"));
                let layer = fuse::layer(image, near, Life::AsMount)?;
                let layer = if let Some(name) = supplied.below { layer.below(name)? } else { layer };
                Ok(plain(layer))
            }
            (_, backend, _) => Err(refused(format!("`{backend}` is not for an image of this kind"))),
        }
    }
}
