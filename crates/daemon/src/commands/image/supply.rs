//! Provides images from this store and its remotes, for a broker that need not be protected or for
//! a FUSE server. All contents are verified. The metadata that the kernel reads was written by this
//! process itself. (A broker of root has `fetched.rs` instead.)
//!
//! ```text
//! name   = method " " number of the saved path " " digest of the image " " key
//! method = "lazy" | "mount" | "lazy-fuse" | "squashfs" | "fuse"
//! ```
//!
//! A job names the image that it found by digest, because the key may lead to another image by now,
//! or in another store.

use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow, bail, ensure};
use larder_image::{Device, Image, SQUASHED, metadata, squash, whole};
use larder_model::{Digest, ImageKey, ImageRecord};
use larder_mount::broker::{Lazily, Ready, Supplied, Supply};
use larder_mount::lazy::{fill_whole, is_whole};
use larder_mount::{Backend, Fill, Image as Files, erofs_has_data};
use larder_store::{Live, Store};
use parking_lot::Mutex;

use super::find::fetch_all_but_packs;
use super::remote_images::RemoteImages;
use super::{bar, trace};
use crate::remote::remote_client::Failure;
use crate::say;

/// The number of threads that get packs if all packs are needed.
pub(super) const PACKS_AT_ONCE: usize = 8;
/// The owner in a mounted image of files that belonged to the saving user. A broker shows them as
/// files of the job's user.
pub(super) const STORED: (u32, u32) = (0, 0);

/// Returns the name under which a job requests an image from a broker.
pub(super) fn name(via: Backend, saved: usize, record: &ImageRecord) -> String {
    format!("{via} {saved} {} {}", record.image(), record.key)
}

/// A parsed name.
pub(super) struct Asked {
    pub(super) via: Backend,
    pub(super) saved: usize,
    pub(super) image: Digest,
    pub(super) key: ImageKey,
}

/// Parses the name of a request.
pub(super) fn asked_for(name: &str) -> Result<Asked> {
    let mut words = name.splitn(4, ' ');
    let (via, saved, image, key) = (words.next(), words.next(), words.next(), words.next());
    let via: Backend = via.and_then(|word| word.parse().ok()).context("the request has no mount method")?;
    let saved: usize = saved.and_then(|word| word.parse().ok()).context("the request has no path number")?;
    let image: Digest = image.and_then(|word| word.parse().ok()).context("the request has no image digest")?;
    Ok(Asked { via, saved, image, key: key.context("the request has no key")?.parse()? })
}

/// The images of a store and its remotes.
pub(super) struct ImageSupply {
    pub(super) store: PathBuf,
    pub(super) remotes: Option<Arc<RemoteImages>>,
    /// The owner in a mounted image of files that belonged to the saving user.
    pub(super) stored: (u32, u32),
    /// In the server of a `lazy-fuse` mount, the directory of its state; `None` in the broker that
    /// starts one.
    pub(super) serves: Option<fn(usize) -> Live>,
}

impl Supply for ImageSupply {
    fn image(&self, _user: u32, name: &str) -> Result<Supplied, String> {
        self.supplied(name).map_err(|error| say::one_line(&format!("{error:#}")))
    }

    fn again(&self, _user: u32, name: &str, first: &Path) -> Result<Supplied, String> {
        let again = || -> Result<Supplied> {
            let store = Store::open(&self.store)?;
            let Some(record) = store.live_record(first) else { return self.supplied(name) };
            let Asked { via, saved, .. } = asked_for(name)?;
            let _lease = store.lease_image(&record.image())?;
            let is_it = matches!(via, Backend::Lazy | Backend::Mount) && first.exists();
            self.files(&store, record, saved, via, is_it.then(|| first.to_owned()))
        };
        again().map_err(|error| say::one_line(&format!("{error:#}")))
    }
}

impl ImageSupply {
    /// Returns what to mount for this name, after downloading what is missing.
    pub(super) fn supplied(&self, name: &str) -> Result<Supplied> {
        let asked = asked_for(name)?;
        let store = Store::open(&self.store)?;
        let _lease = store.lease_image(&asked.image)?;
        let record = self.found(&store, &asked)?;
        self.files(&store, record, asked.saved, asked.via, None)
    }

    /// Returns the record of the image, after downloading everything but its packs. The caller holds
    /// a lease of the image.
    pub(super) fn found(&self, store: &Store, asked: &Asked) -> Result<ImageRecord> {
        let (record, was_far) = self.record(store, &asked.image, &asked.key)?;
        if let Some(remotes) = self.remotes.as_ref().filter(|_| was_far) {
            fetch_all_but_packs(store, remotes, &record)?;
            // If this fails, lazy filling only starts with the wrong parts.
            let _ = remotes.fetch(store, record.trace.into_iter());
        }
        store.note_image_use(&record.key);
        Ok(record)
    }

    /// Returns the record of this image: that of its key, of another key with the same trees, or of
    /// a mounted image. The second value is true if it is known from a remote only.
    fn record(&self, store: &Store, image: &Digest, key: &ImageKey) -> Result<(ImageRecord, bool)> {
        let is_it = |record: &ImageRecord| record.image() == *image;
        let is_here = |record: &ImageRecord| is_it(record) && record.needed().all(|blob| store.has_blob(&blob));
        let first = store.image(key)?.into_iter();
        let others = store.images()?.into_iter().map(|stored| stored.record);
        if let Some(record) = first.chain(others).chain(store.live_image(image)).find(is_here) {
            return Ok((record, false));
        }
        let listed = self.remotes.as_ref().map_or(Ok(Vec::new()), |remotes| remotes.images(&key.digest()))?;
        let record = listed.into_iter().find(|record| record.key == *key && is_it(record));
        let record = record.with_context(|| {
            format!(
                "the image that was found under {key} is neither in the broker's store, {}, nor on its remotes: \
                 save it there, or to a remote that both have",
                self.store.display()
            )
        })?;
        Ok((record, true))
    }

    /// Returns what to mount for a saved path, with the existing metadata file `made` if it is
    /// given. The caller holds a lease of the record.
    fn files(
        &self,
        store: &Store,
        record: ImageRecord,
        saved: usize,
        via: Backend,
        made: Option<PathBuf>,
    ) -> Result<Supplied> {
        ensure!(saved < record.saved.len(), "the image has no such path");
        let id = record.image();
        keep_record(store, &id, &record)?;
        match via {
            Backend::Squashfs | Backend::Fuse => return self.squashed(store, record, saved, via),
            Backend::LazyFuse if self.serves.is_none() => return self.to_be_served(store, record, saved),
            _ => {}
        }
        if via == Backend::Mount && !erofs_has_data() {
            return self.whole(store, record, saved);
        }
        let metadata = made.map_or_else(|| store.live_file(&id, Live::Metadata(saved)), Ok)?;
        // Trees grow with the number of files, so they are read only if necessary. An image of
        // several paths needs them to know which packs belong to this path. For a single path, only
        // the metadata needs them, and another thread makes that.
        let (mut image, mut ready) = (Image::without_trees(store, record.clone())?, None);
        if !metadata.exists() && record.saved.len() == 1 {
            ready = Some(made_beside(store.directory(), record, self.stored)?);
        } else if record.saved.len() > 1 {
            image = Image::open(store, record)?;
            if !metadata.exists() {
                write_metadata(store, &image, saved, self.stored)?;
            }
        }
        let data = store.live_file(&id, Live::Data(saved))?;
        let mut directory = store.live_file(&id, Live::Lazy(saved))?;
        let needed = image.needed(&[saved]);
        image.forget_trees();
        let (size_bytes, image) = (Device::new(&image).size_bytes(), Arc::new(image));
        let fill = PackFill::new(&self.store, self.remotes.clone(), image.clone(), &needed);
        if via == Backend::Mount {
            fill_whole(&directory, &data, size_bytes, &fill, PACKS_AT_ONCE)?;
        }
        let mut is_lazy = via == Backend::Lazy;
        if let Some(live) = self.serves.filter(|_| via == Backend::LazyFuse && !is_whole(&directory, &data, size_bytes))
        {
            // A directory of its own: in the other directory, reads are held back for the broker's
            // filler and filled only by it.
            directory = store.live_file(&id, live(saved))?;
            is_lazy = true;
        }
        let known = trace::known(store, &image);
        let order = known.as_ref().map_or_else(Vec::new, |known| known.ranges(&image.packs));
        let lease = Arc::clone(&image);
        let keeper = if self.serves.is_some() { trace::kept } else { trace::keeper };
        let traced = (is_lazy && known.is_none_or(|known| known.is_carried))
            .then(|| keeper(self.store.clone(), self.remotes.clone(), image));
        let (fill, prepare) = (Arc::new(fill), Arc::new(larder_mount::lazy::prepare));
        let lazily = Lazily { directory, size_bytes, fill, prepare, order, traced };
        Ok(Supplied {
            id: format!("{via} {id} {saved}"),
            image: Files::Erofs { metadata, data: Some(data) },
            below: None,
            via,
            stored: self.stored,
            lease,
            lazily: is_lazy.then_some(lazily),
            ready,
        })
    }

    /// Like [`Self::files`], but with the contents of all files in the metadata file, for kernels
    /// before 5.16.
    fn whole(&self, store: &Store, record: ImageRecord, saved: usize) -> Result<Supplied> {
        let id = record.image();
        let file = store.live_file(&id, Live::Whole(saved))?;
        let is_made = file.exists();
        let mut image = if is_made { Image::without_trees(store, record)? } else { Image::open(store, record)? };
        if !is_made {
            directory(&image, saved)?;
            store.put_live(&id, Live::Whole(saved), |file: &File| self.write_whole(&image, saved, file))?;
        }
        image.forget_trees();
        Ok(Supplied {
            id: format!("{} {id} {saved}", Backend::Mount),
            image: Files::Erofs { metadata: file, data: None },
            below: None,
            via: Backend::Mount,
            stored: self.stored,
            lease: Arc::new(image),
            lazily: None,
            ready: None,
        })
    }

    /// Returns a mount by a FUSE server, which makes the files that it needs itself.
    fn to_be_served(&self, store: &Store, record: ImageRecord, saved: usize) -> Result<Supplied> {
        let id = record.image();
        let metadata = store.live_file(&id, Live::Metadata(saved))?;
        Ok(Supplied {
            id: format!("{} {id} {saved}", Backend::LazyFuse),
            image: Files::Erofs { metadata, data: None },
            below: None,
            via: Backend::LazyFuse,
            stored: self.stored,
            lease: Arc::new(Image::without_trees(store, record)?),
            lazily: None,
            ready: None,
        })
    }

    /// Writes metadata and contents of a saved path.
    pub(super) fn write_whole(&self, image: &Image, saved: usize, file: &File) -> Result<()> {
        let whole = whole(&image.trees[saved], image.packs.blocks(), self.stored, file)?;
        file.set_len(whole.size_bytes).context("the image file to mount cannot be created")?;
        let device = Device::behind(image, whole.device_at);
        let numbers = Mutex::new(image.needed(&[saved]).into_iter());
        let work = || -> Result<()> {
            let store = Store::open(&self.store)?;
            loop {
                let next = numbers.lock().next();
                let Some(number) = next else { return Ok(()) };
                device.fill(number, &pack_bytes(&store, self.remotes.as_deref(), image, number)?, file)?;
            }
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..PACKS_AT_ONCE).map(|_| scope.spawn(work)).collect();
            let panicked = |_| Err(anyhow!("a thread that fills the image file panicked"));
            workers.into_iter().try_for_each(|worker| worker.join().unwrap_or_else(panicked))
        })?;
        Ok(whole.end(file)?)
    }

    /// Like [`Self::files`], but as a squashfs file, which is made once from the packs.
    fn squashed(&self, store: &Store, record: ImageRecord, saved: usize, via: Backend) -> Result<Supplied> {
        let id = record.image();
        let made = Live::Squashfs(saved, self.stored);
        let file = store.live_file(&id, made)?;
        let mut image = if file.exists() { Image::without_trees(store, record)? } else { Image::open(store, record)? };
        if !file.exists() {
            directory(&image, saved)?;
            bring_lacking(store, self.remotes.as_deref(), &image, saved)?;
            bar::during(|progress| squash(store, &image, saved, self.stored, &file, progress))?;
            store.forget_earlier(&id, made);
        }
        image.forget_trees();
        Ok(Supplied {
            id: format!("{via} {id} {saved}"),
            image: Files::Squashfs(file),
            below: Some(SQUASHED),
            via,
            stored: self.stored,
            lease: Arc::new(image),
            lazily: None,
            ready: None,
        })
    }
}

/// Downloads the packs of a saved path that the store does not have.
pub(super) fn bring_lacking(store: &Store, remotes: Option<&RemoteImages>, image: &Image, saved: usize) -> Result<()> {
    let lacking = image.lacking(store, &image.needed(&[saved]));
    if let Some(remotes) = remotes.filter(|_| !lacking.is_empty()) {
        let blobs = lacking.into_iter().map(|number| image.packs.packs[number].blob);
        remotes.fetch(store, blobs).context("the image could not be downloaded")?;
    }
    Ok(())
}

/// Writes the record beside the files that will be made of its image, unless it is there already.
fn keep_record(store: &Store, image: &Digest, record: &ImageRecord) -> Result<()> {
    if !store.live_file(image, Live::Record)?.exists() {
        store
            .put_live(image, Live::Record, |mut file: &File| -> Result<()> { Ok(file.write_all(&record.encode())?) })?;
    }
    Ok(())
}

/// Writes the EROFS metadata of a saved path.
fn write_metadata(store: &Store, image: &Image, saved: usize, stored: (u32, u32)) -> Result<()> {
    directory(image, saved)?;
    let write = |file: &File| metadata(&image.trees[saved], image.packs.blocks(), stored, file);
    Ok(store.put_live(&image.record.image(), Live::Metadata(saved), write).map(drop)?)
}

/// Writes the EROFS metadata of an image's only path, in a thread of its own. The returned function
/// waits for it.
fn made_beside(store: &Path, record: ImageRecord, stored: (u32, u32)) -> Result<Ready> {
    let store = Store::open(store)?;
    let made = move || {
        let written = Image::open(&store, record).map_err(Into::into);
        written.and_then(|image| write_metadata(&store, &image, 0, stored))
    };
    made_on_a_thread(made)
}

/// Makes an image file in a thread of its own. The returned function waits for it.
pub(super) fn made_on_a_thread(made: impl FnOnce() -> Result<()> + Send + 'static) -> Result<Ready> {
    let thread = Mutex::new(Some(std::thread::Builder::new().spawn(made)?));
    Ok(Box::new(move || {
        let thread = thread.lock().take();
        match thread.map(JoinHandle::join) {
            None | Some(Ok(Ok(()))) => Ok(()),
            Some(Ok(Err(error))) => Err(say::one_line(&format!("{error:#}"))),
            Some(Err(_)) => Err("the image file to mount could not be created".to_owned()),
        }
    }))
}

/// Fails if there is no such saved path, or if it is no directory.
pub(super) fn directory(image: &Image, saved: usize) -> Result<()> {
    let tree = image.trees.get(saved).context("the image has no such path")?;
    if !matches!(tree.nodes[0].kind, larder_image::NodeKind::Directory(_)) {
        bail!("the saved path is no directory and cannot be mounted: use `larder image restore`");
    }
    Ok(())
}

/// Fills those packs of an image that a saved path needs, and keeps them from eviction. The
/// metadata of that path refers to no blocks of other packs.
pub(super) struct PackFill {
    store: PathBuf,
    remotes: Option<Arc<RemoteImages>>,
    image: Arc<Image>,
    /// For each pack, whether it is needed.
    needed: Vec<bool>,
}

impl PackFill {
    pub(super) fn new(
        store: &Path,
        remotes: Option<Arc<RemoteImages>>,
        image: Arc<Image>,
        numbers: &[usize],
    ) -> PackFill {
        let mut needed = vec![false; image.packs.packs.len()];
        numbers.iter().for_each(|&number| needed[number] = true);
        PackFill { store: store.to_owned(), remotes, image, needed }
    }

    fn bytes(&self, number: usize) -> Result<Vec<u8>> {
        pack_bytes(&Store::open(&self.store)?, self.remotes.as_deref(), &self.image, number)
    }
}

/// Returns the bytes of a pack, after downloading it if the store does not have it.
fn pack_bytes(store: &Store, remotes: Option<&RemoteImages>, image: &Image, number: usize) -> Result<Vec<u8>> {
    let blob = image.packs.packs[number].blob;
    if let Some(remotes) = remotes.filter(|_| !store.has_blob(&blob)) {
        remotes.bring(&blob)?;
    }
    Ok(store.blob_bytes(&blob, u64::MAX)?)
}

/// Converts an error of a fill. If a remote is temporarily unreachable, the kind is
/// `HostUnreachable`, which makes the filler retry.
fn of_fill(error: &anyhow::Error) -> io::Error {
    let kind = match error.downcast_ref::<Failure>() {
        Some(failure) if failure.may_pass => io::ErrorKind::HostUnreachable,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, format!("{error:#}"))
}

impl Fill for PackFill {
    fn fill(&self, offset: u64, length: u64, into: BorrowedFd<'_>) -> io::Result<()> {
        let device = Device::new(&self.image);
        for number in device.packs_of(offset, length).filter(|&number| self.needed[number]) {
            let bytes = self.bytes(number).map_err(|error| of_fill(&error))?;
            device.fill(number, &bytes, into).map_err(|error| io::Error::other(error.to_string()))?;
        }
        Ok(())
    }

    fn piece(&self, offset: u64) -> Range<u64> {
        Device::new(&self.image).piece(offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_image::{Progress, Request, save};

    fn saved(store: &Store, dir: &Path, key: &str, bytes: &str) -> ImageRecord {
        let tree = dir.join("tree");
        std::fs::create_dir_all(&tree).expect("makes");
        std::fs::write(tree.join("file"), bytes).expect("writes");
        for path in [tree.join("file"), tree.clone()] {
            let file = std::fs::File::open(path).expect("opens");
            file.set_modified(std::time::UNIX_EPOCH).expect("can be set");
        }
        let (paths, elsewhere) = ([(b"tree".to_vec(), tree)], |blobs: &[larder_model::Blob]| vec![false; blobs.len()]);
        let key = key.parse().expect("a key");
        let request =
            Request { key, paths: &paths, now_ms: 1, elsewhere: &elsewhere, rights: larder_image::Rights::Kept };
        save(store, &request, &Progress::default()).expect("saves").record
    }

    #[test]
    fn a_job_gets_the_image_that_it_found_or_none() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(&dir.path().join("store")).expect("opens");
        let supply = ImageSupply { store: store.directory().to_owned(), remotes: None, stored: STORED, serves: None };
        let supplied = |record: &ImageRecord| supply.image(0, &name(Backend::Lazy, 0, record));
        let first = saved(&store, dir.path(), "k", "one");
        let second = saved(&store, dir.path(), "k", "another");
        let no_path = supply.image(0, &name(Backend::Lazy, 1, &second)).err();
        assert_eq!(no_path.as_deref(), Some("the image has no such path"));
        let why = supplied(&first).err().expect("it is not there any more");
        assert!(why.contains("the image that was found under k") && why.contains("save it"), "{why}");
        let other = saved(&store, dir.path(), "other", "one");
        assert_eq!(other.image(), first.image());
        for record in [&first, &second] {
            for is_made in [false, true] {
                let supplied = supplied(record).map_err(|why| panic!("{why}")).expect("is there");
                assert_eq!(
                    (&*supplied.id, supplied.ready.is_none()),
                    (&*format!("lazy {} 0", record.image()), is_made)
                );
                supplied.ready.iter().for_each(|ready| assert_eq!(ready(), Ok(())));
                assert!(supplied.image.first_file().exists());
            }
        }
        // It was mounted, so it can be mounted again.
        store.drop_image(&other.key).expect("drops");
        assert!(supplied(&first).is_ok());
        assert!(supply.image(0, "lazy 0 k").is_err() && supply.image(0, "").is_err());
    }
}
