//! Images for a broker: of its own store, and of its own remotes by way of that. What a client names is a key, a path that was saved
//! under it, and fallbacks, a line each.
//!
//! Unaware of: who may have what; a store and its remotes are for all users of a broker.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, bail};
use larder_image::Found;
use larder_model::ImageKey;
use larder_mount::broker::{Lazily, Supplied, Supply};
use larder_mount::lazy::fill_whole;
use larder_mount::{Fill, Image, Rung, choose, ladder};
use larder_store::Store;

use crate::surroundings::Surroundings;
use crate::words::image::far::FarImages;
use crate::words::image::find::find;
use crate::words::image::live::LiveImage;

/// Packs that are fetched at once where all of them are waited for.
const AT_ONCE: usize = 16;

/// The store, and what can be done with its images here.
pub(super) struct Images {
    directory: PathBuf,
    far: Option<Arc<FarImages>>,
    via: Rung,
    /// One image is made ready at a time: two jobs that ask for one fetch it once.
    turn: Mutex<()>,
}

impl Images {
    pub(super) fn open(around: &Surroundings, store: &Store) -> Result<Images> {
        let directory = store.directory().to_owned();
        let any = Image::Erofs { metadata: PathBuf::new(), data: Some(PathBuf::new()) };
        let via = choose(&ladder(&directory), &any, None)?;
        if !matches!(via, Rung::Lazy | Rung::Mount) {
            bail!("nothing can be mounted here: `larder doctor` says why");
        }
        Ok(Images { directory, far: FarImages::open(around, store)?.map(Arc::new), via, turn: Mutex::new(()) })
    }

    fn supplied(&self, name: &str) -> Result<Supplied> {
        let mut lines = name.lines();
        let key: ImageKey = lines.next().unwrap_or_default().parse().context("no key was named")?;
        let path = lines.next().unwrap_or_default();
        let fallbacks: Vec<String> = lines.map(str::to_owned).collect();
        let store = Store::open(&self.directory)?;
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let (found, is_far) = find(&store, self.far.as_deref(), &key, &fallbacks)?;
        let Some(record) = found.record() else { bail!("no image has the key {}, or begins as asked for", key.text()) };
        let _lease = store.lease_image(&record.image())?;
        if let Some(far) = self.far.as_deref().filter(|_| is_far) {
            far.fetch(&store, record.needed()).context("the image's tree could not be fetched")?;
            store.keep_image(record, false)?;
        }
        store.note_image_use(&record.key);
        let number = match path {
            "" if record.saved.len() == 1 => 0,
            "" => bail!("{} has {} paths: name one", record.key.text(), record.saved.len()),
            path => {
                let position = record.saved.iter().position(|saved| saved.path == path.as_bytes());
                position.with_context(|| format!("{} was not saved under {}", path, record.key.text()))?
            }
        };
        let word = if matches!(found, Found::Exact(_)) { "exact" } else { "fallback" };
        let note = format!("{word} {}", record.key.text());
        let id = format!("{}-{number}", record.image().hex());
        let live = LiveImage::open(store, self.far.clone(), record.clone(), number)?;
        let LiveImage { metadata, data, size_bytes, directory, fill } = live;
        let image = Image::Erofs { metadata, data: Some(data.clone()) };
        let fill: Arc<dyn Fill> = fill;
        let lazily = match self.via {
            Rung::Lazy => Some(Lazily { directory, size_bytes, fill, order: Vec::new() }),
            _ => {
                fill_whole(&directory, &data, size_bytes, &*fill, AT_ONCE)?;
                None
            }
        };
        Ok(Supplied { note, id, image, via: self.via, stored: (0, 0), lazily })
    }
}

impl Supply for Images {
    fn image(&self, _user: u32, name: &str) -> Result<Supplied, String> {
        self.supplied(name).map_err(|error| format!("{error:#}"))
    }
}
