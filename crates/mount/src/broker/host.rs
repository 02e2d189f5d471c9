//! One mount an image for all jobs of the machine: nowhere itself, it is what their overlays lie on.

use std::collections::HashMap;
use std::ffi::OsString;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::policy::refused;
use super::{Supplied, supply::Lazily};
use crate::lazy::{Lazy, Options};
use crate::{Image, Mount, MountError, Rung, layer};

/// An image that is mounted as long as somebody holds this.
pub(super) struct Shared {
    pub(super) layer: Mount,
    /// Dropped after it.
    _lazy: Option<Lazy>,
}

/// All images that are mounted now.
pub(super) struct Host {
    images: Mutex<HashMap<String, Weak<Shared>>>,
    gate: Vec<OsString>,
}

impl Host {
    pub(super) fn new(gate: Vec<OsString>) -> Host {
        Host { images: Mutex::new(HashMap::new()), gate }
    }

    /// The image, mounted by the first who asks.
    pub(super) fn shared(&self, supplied: &Supplied) -> Result<Arc<Shared>, MountError> {
        let mut images = self.images.lock().unwrap_or_else(PoisonError::into_inner);
        images.retain(|_, shared| shared.strong_count() > 0);
        if let Some(shared) = images.get(&supplied.id).and_then(Weak::upgrade) {
            return Ok(shared);
        }
        let shared = Arc::new(self.mount(supplied)?);
        images.insert(supplied.id.clone(), Arc::downgrade(&shared));
        Ok(shared)
    }

    fn mount(&self, supplied: &Supplied) -> Result<Shared, MountError> {
        let plain = |layer| Shared { layer, _lazy: None };
        match (&supplied.image, supplied.via, &supplied.lazily) {
            (Image::Erofs { metadata, data: Some(data) }, Rung::Lazy, Some(lazily)) => {
                let Lazily { directory, size_bytes, fill, order } = lazily;
                let options = Options { order: order.clone(), ..Options::new(self.gate.clone()) };
                let lazy = Lazy::begin(directory, data, *size_bytes, Arc::clone(fill), &options)?;
                Ok(Shared { layer: lazy.mount(metadata)?, _lazy: Some(lazy) })
            }
            (Image::Erofs { metadata, data }, Rung::Mount, _) => {
                let by_file = layer::erofs(metadata, data.as_deref());
                let layer =
                    by_file.or_else(|first| layer::erofs_by_loop_device(metadata, data.as_deref()).map_err(|_| first));
                layer.map(plain)
            }
            (Image::Squashfs(file), Rung::Squashfs, _) => layer::squashfs(file).map(plain),
            (_, rung, _) => Err(refused(format!("`{rung}` is not for an image of this kind"))),
        }
    }
}
