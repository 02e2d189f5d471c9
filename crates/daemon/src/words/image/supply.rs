//! Where a broker's images come from: this store and its remotes, verified; what the kernel reads of them this process
//! wrote itself.
//!
//! ```text
//! name = "lazy" | "mount", " ", number of the saved path, " ", key
//! ```

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use larder_image::{Device, Image, metadata};
use larder_model::ImageKey;
use larder_mount::broker::{Lazily, Supplied, Supply};
use larder_mount::{Fill, Image as Files, Rung};
use larder_store::{Live, Store};

use super::far::FarImages;
use super::find::find;
use crate::say;

/// Packs are brought by so many threads where all of them are wanted.
const PACKS_AT_ONCE: usize = 8;
/// In what is mounted the saver's files are the superuser's: a broker shows them as those of whoever asks.
const STORED: (u32, u32) = (0, 0);

/// What a job asks a broker for.
pub(super) fn name(via: Rung, saved: usize, key: &ImageKey) -> String {
    format!("{via} {saved} {key}")
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
}

impl ImageSupply {
    fn supplied(&self, name: &str) -> Result<Supplied> {
        let mut words = name.splitn(3, ' ');
        let (via, saved, key) = (words.next(), words.next(), words.next());
        let via: Rung = via.and_then(|word| word.parse().ok()).context("the request names no way to mount")?;
        let saved: usize = saved.and_then(|word| word.parse().ok()).context("the request names no path")?;
        let key: ImageKey = key.context("the request names no key")?.parse()?;
        let store = Store::open(&self.store)?;
        let (found, is_far) = find(&store, self.far.as_deref(), &key, &[])?;
        let record = found.record().with_context(|| format!("nothing under {key}"))?;
        let lease = store.lease_image(&record.image())?;
        if let Some(far) = self.far.as_ref().filter(|_| is_far) {
            far.fetch(&store, record.needed())?;
            store.keep_image(record, false)?;
        }
        let image = Arc::new(Image::open(&store, record.clone())?);
        drop(lease);
        store.note_image_use(&key);
        self.files(&store, image, saved, via)
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
        let data = store.live_file(&id, Live::Data(saved))?;
        let directory = store.live_file(&id, Live::Lazy(saved))?;
        let size_bytes = Device::new(&image).size_bytes();
        let fill = Arc::new(PackFill { store: self.store.clone(), far: self.far.clone(), image });
        if via == Rung::Mount {
            fill.all(&data, saved)?;
        }
        let lazily = Lazily { directory, size_bytes, fill, order: Vec::new() };
        Ok(Supplied {
            id: format!("{via} {id} {saved}"),
            image: Files::Erofs { metadata: path, data: Some(data) },
            via,
            stored: STORED,
            lazily: (via == Rung::Lazy).then_some(lazily),
        })
    }
}

/// Brings packs of an image, which nobody evicts meanwhile.
struct PackFill {
    store: PathBuf,
    far: Option<Arc<FarImages>>,
    image: Arc<Image>,
}

impl PackFill {
    fn bytes(&self, number: usize) -> Result<Vec<u8>> {
        let blob = self.image.packs.packs[number].blob;
        let store = Store::open(&self.store)?;
        match &self.far {
            Some(far) if !store.has_blob(&blob) => Ok(far.pack(number, blob)?),
            _ => Ok(store.blob_bytes(&blob, u64::MAX)?),
        }
    }

    /// Bring all that a saved path needs into the data file, under another name until it is whole.
    fn all(&self, data: &std::path::Path, saved: usize) -> Result<()> {
        if data.with_extension("whole").exists() {
            return Ok(());
        }
        let device = Device::new(&self.image);
        let part = data.with_extension(format!("{:016x}", larder_sys::random_u64()));
        let file = File::create(&part)?;
        file.set_len(device.size_bytes())?;
        let needed = self.image.needed(&[saved]);
        let next = std::sync::atomic::AtomicUsize::new(0);
        let bring = || -> Result<()> {
            while let Some(&number) = needed.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
                device.fill(number, &self.bytes(number)?, &file)?;
            }
            Ok(())
        };
        let done: Result<()> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..PACKS_AT_ONCE).map(|_| scope.spawn(bring)).collect();
            threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| bail!("a thread died")))
        });
        let placed = done.and_then(|()| Ok(std::fs::rename(&part, data)?));
        placed.inspect_err(|_| drop(std::fs::remove_file(&part)))?;
        File::create(data.with_extension("whole"))?;
        Ok(())
    }
}

impl Fill for PackFill {
    fn fill(&self, offset: u64, length: u64, into: BorrowedFd<'_>) -> io::Result<()> {
        let device = Device::new(&self.image);
        for number in device.packs_of(offset, length) {
            let bytes = self.bytes(number).map_err(|error| io::Error::other(format!("{error:#}")))?;
            device.fill(number, &bytes, into).map_err(|error| io::Error::other(error.to_string()))?;
        }
        Ok(())
    }

    fn piece(&self, offset: u64) -> Range<u64> {
        Device::new(&self.image).piece(offset)
    }
}
