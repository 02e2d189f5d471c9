//! Where a broker's images come from: this store and its remotes, verified; what the kernel reads of them this process
//! wrote itself.
//!
//! ```text
//! name = "lazy" | "mount", " ", number of the saved path, " ", key
//! ```

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use larder_image::{Device, Image, metadata};
use larder_model::ImageKey;
use larder_mount::broker::{Lazily, Supplied, Supply};
use larder_mount::lazy::fill_whole;
use larder_mount::{Fill, Image as Files, Rung};
use larder_store::{Live, Store};

use super::far::FarImages;
use super::find::{Opened, open};
use super::trace;
use crate::say;

/// Packs are brought by so many threads where all of them are wanted.
const PACKS_AT_ONCE: usize = 8;
/// In what is mounted the saver's files are the superuser's: a broker shows them as those of whoever asks.
const STORED: (u32, u32) = (0, 0);

/// What a job asks a broker for.
pub(super) fn name(via: Rung, saved: usize, key: &ImageKey) -> String {
    format!("{via} {saved} {key}")
}

/// A name, read.
struct Asked {
    via: Rung,
    saved: usize,
    key: ImageKey,
}

fn asked(name: &str) -> Result<Asked> {
    let mut words = name.splitn(3, ' ');
    let (via, saved, key) = (words.next(), words.next(), words.next());
    let via: Rung = via.and_then(|word| word.parse().ok()).context("the request names no way to mount")?;
    let saved: usize = saved.and_then(|word| word.parse().ok()).context("the request names no path")?;
    Ok(Asked { via, saved, key: key.context("the request names no key")?.parse()? })
}

/// Images of a store and its remotes.
pub(super) struct ImageSupply {
    pub(super) store: PathBuf,
    pub(super) far: Option<Arc<FarImages>>,
}

impl Supply for ImageSupply {
    fn image(&self, _user: u32, name: &str) -> Result<Supplied, String> {
        self.supplied(name).map_err(|error| say::one_line(&format!("{error:#}")))
    }

    fn again(&self, _user: u32, name: &str, first: &Path) -> Result<Supplied, String> {
        let again = || -> Result<Supplied> {
            let store = Store::open(&self.store)?;
            let Some(record) = store.live_record(first) else { return self.supplied(name) };
            let Asked { via, saved, .. } = asked(name)?;
            self.files(&store, Arc::new(Image::open(&store, record)?), saved, via)
        };
        again().map_err(|error| say::one_line(&format!("{error:#}")))
    }
}

impl ImageSupply {
    fn supplied(&self, name: &str) -> Result<Supplied> {
        let Asked { via, saved, key } = asked(name)?;
        let store = Store::open(&self.store)?;
        let opened = open(&store, self.far.as_deref(), &key, &[])?;
        let Opened { lease, image, was_far, .. } = opened.with_context(|| format!("nothing under {key}"))?;
        if let Some(far) = self.far.as_ref().filter(|_| was_far) {
            // Without, what comes first is not what is needed first.
            let _ = far.fetch(&store, image.record.trace.into_iter());
        }
        drop(lease);
        store.note_image_use(&key);
        self.files(&store, Arc::new(image), saved, via)
    }

    /// What is mounted of a saved path.
    fn files(&self, store: &Store, image: Arc<Image>, saved: usize, via: Rung) -> Result<Supplied> {
        let tree = image.trees.get(saved).context("the image has no such path")?;
        if !matches!(tree.nodes[0].kind, larder_image::Kind::Directory(_)) {
            bail!("what was saved is no directory: only `restore` puts it in place");
        }
        let id = image.record.image();
        let path = store.live_file(&id, Live::Metadata(saved))?;
        if !path.exists() {
            store.put_live(&id, Live::Metadata(saved), &metadata(tree, image.packs.blocks(), STORED)?)?;
        }
        if !store.live_file(&id, Live::Record)?.exists() {
            store.put_live(&id, Live::Record, &image.record.encode())?;
        }
        let data = store.live_file(&id, Live::Data(saved))?;
        let directory = store.live_file(&id, Live::Lazy(saved))?;
        let size_bytes = Device::new(&image).size_bytes();
        let fill = PackFill::new(&self.store, self.far.clone(), image.clone(), saved);
        if via == Rung::Mount {
            fill_whole(&directory, &data, size_bytes, &fill, PACKS_AT_ONCE)?;
        }
        let known = trace::known(store, &image);
        let order = known.as_ref().map_or_else(Vec::new, |known| known.ranges(&image.packs));
        let traced = (via == Rung::Lazy && known.is_none_or(|known| known.is_carried))
            .then(|| trace::keeper(self.store.clone(), self.far.clone(), image));
        let lazily = Lazily { directory, size_bytes, fill: Arc::new(fill), order, traced };
        Ok(Supplied {
            id: format!("{via} {id} {saved}"),
            image: Files::Erofs { metadata: path, data: Some(data) },
            via,
            stored: STORED,
            lazily: (via == Rung::Lazy).then_some(lazily),
        })
    }
}

/// Brings those packs of an image that a saved path needs, which nobody evicts meanwhile. What is mounted of that path
/// names no block of another.
struct PackFill {
    store: PathBuf,
    far: Option<Arc<FarImages>>,
    image: Arc<Image>,
    /// For each pack whether it is needed.
    needed: Vec<bool>,
}

impl PackFill {
    fn new(store: &Path, far: Option<Arc<FarImages>>, image: Arc<Image>, saved: usize) -> PackFill {
        let mut needed = vec![false; image.packs.packs.len()];
        image.needed(&[saved]).into_iter().for_each(|number| needed[number] = true);
        PackFill { store: store.to_owned(), far, image, needed }
    }

    fn bytes(&self, number: usize) -> Result<Vec<u8>> {
        let blob = self.image.packs.packs[number].blob;
        let store = Store::open(&self.store)?;
        match &self.far {
            Some(far) if !store.has_blob(&blob) => Ok(far.pack(number, blob)?),
            _ => Ok(store.blob_bytes(&blob, u64::MAX)?),
        }
    }
}

impl Fill for PackFill {
    fn fill(&self, offset: u64, length: u64, into: BorrowedFd<'_>) -> io::Result<()> {
        let device = Device::new(&self.image);
        for number in device.packs_of(offset, length).filter(|&number| self.needed[number]) {
            let bytes = self.bytes(number).map_err(|error| io::Error::other(format!("{error:#}")))?;
            device.fill(number, &bytes, into).map_err(|error| io::Error::other(error.to_string()))?;
        }
        Ok(())
    }

    fn piece(&self, offset: u64) -> Range<u64> {
        Device::new(&self.image).piece(offset)
    }
}
