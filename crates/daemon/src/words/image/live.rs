//! An image of the store as what can be mounted: metadata that is written here, a data file, and who brings its bytes.
//!
//! Unaware of: who mounts, by which rung.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use larder_image::{Device, Image, metadata};
use larder_model::{BLOCK_BYTES, ImageRecord};
use larder_mount::Fill;
use larder_store::{Live, Store};

use super::far::FarImages;

/// Files of one saved path of an image. Its packs may still be elsewhere.
pub(crate) struct LiveImage {
    /// EROFS metadata; files of whoever saved it are root's.
    pub(crate) metadata: PathBuf,
    /// The data file, which need not be there yet.
    pub(crate) data: PathBuf,
    /// Its size once it is.
    pub(crate) size_bytes: u64,
    /// Where what belongs to filling it is kept.
    pub(crate) directory: PathBuf,
    /// Who brings its bytes.
    pub(crate) fill: Arc<Packs>,
}

/// Brings packs: from the store, and from remotes by way of it.
pub(crate) struct Packs {
    image: Image,
    store: Store,
    far: Option<Arc<FarImages>>,
}

impl LiveImage {
    /// Of the saved path `number` of an image whose trees are in the store.
    pub(crate) fn open(
        store: Store,
        far: Option<Arc<FarImages>>,
        record: ImageRecord,
        number: usize,
    ) -> Result<LiveImage> {
        let name = record.image();
        let image = Image::open(&store, record)?;
        let Some(tree) = image.trees.get(number) else { bail!("the image has no path of the number {number}") };
        let path = store.live_file(&name, Live::Metadata(number))?;
        if !path.exists() {
            store.put_live(&name, Live::Metadata(number), &metadata(tree, image.packs.blocks(), (0, 0))?)?;
        }
        let data = store.live_file(&name, Live::Data)?;
        let directory = data.parent().context("a file of the store lies in a directory")?.to_owned();
        let size_bytes = Device::new(&image).size_bytes();
        Ok(LiveImage { metadata: path, data, size_bytes, directory, fill: Arc::new(Packs { image, store, far }) })
    }
}

impl Packs {
    fn bring(&self, offset: u64, into: BorrowedFd) -> Result<()> {
        let number = self.image.packs.of_range(offset, 1).next().context("no pack holds that")?;
        let blob = self.image.packs.packs[number].blob;
        if !self.store.has_blob(&blob) {
            let far = self.far.as_ref().context("a pack is missing, and there is no remote")?;
            far.fetch(&self.store, std::iter::once(blob))?;
        }
        let bytes = self.store.blob_bytes(&blob, u64::MAX)?;
        Device::new(&self.image).fill(number, &bytes, &File::from(into.try_clone_to_owned()?))?;
        Ok(())
    }
}

impl Fill for Packs {
    fn fill(&self, offset: u64, _length: u64, into: BorrowedFd<'_>) -> io::Result<()> {
        self.bring(offset, into).map_err(|error| io::Error::other(format!("{error:#}")))
    }

    /// A pack.
    fn piece(&self, offset: u64) -> Range<u64> {
        let packs = &self.image.packs;
        let Some(number) = packs.of_range(offset, 1).next() else { return offset..offset };
        let start = u64::from(packs.start(number)) * BLOCK_BYTES;
        start..start + u64::from(packs.packs[number].blocks) * BLOCK_BYTES
    }
}
