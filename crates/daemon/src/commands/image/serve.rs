//! `larderd image serve`: the FUSE server of an image that is mounted via `lazy-fuse`. It fills the
//! image's files when they are read, as long as the image is mounted.
//!
//! Unaware of: the FUSE protocol, and which process mounts.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use larder_mount::Image;
use larder_mount::serve::{Bytes, Filled, Served, serve};
use larder_store::{Live, Store};

use super::super::FINE;
use super::fetched::limited;
use super::fetcher::{confine_to, without_secret};
use super::remote_images::RemoteImages;
use super::supply::{Asked, ImageSupply, STORED, asked_for};
use crate::cli::{ImageServe, Limits};
use crate::say;
use crate::surroundings::Surroundings;

/// Serves until the mount ends.
pub(super) fn run(around: &Surroundings, options: &ImageServe) -> Result<u8> {
    let socket = std::io::stdin().as_fd().try_clone_to_owned().context("standard input is closed")?;
    let found = |name: &str| served(around, options, name).map_err(|error| say::one_line(&format!("{error:#}")));
    serve(socket, found).context("`larder image serve` is started by larderd and cannot be used by hand")?;
    Ok(FINE)
}

/// Returns the command that starts a server for images of this store.
pub(super) fn words(program: &Path, store: &Store) -> Vec<OsString> {
    vec![program.into(), "image".into(), "serve".into(), "--store".into(), store.directory().into()]
}

/// Returns the command that starts such a server without rights.
pub(super) fn confined_words(program: &Path, store: &Store, limits: Limits) -> Vec<OsString> {
    let mut words = words(program, store);
    words.push("--confined".into());
    words.extend(limited(limits));
    words
}

/// Opens the image with this name.
fn served(around: &Surroundings, options: &ImageServe, name: &str) -> Result<Served> {
    let store = Store::open(&options.store)?;
    let mut settings = around.settings().clone();
    if options.confined {
        let Asked { image, saved, .. } = asked_for(name)?;
        let own = store.live_file(&image, Live::Confined(saved))?;
        std::fs::create_dir_all(&own)?;
        confine_to(&settings, &store, &image, vec![own], options.limits)?;
        settings = without_secret(&settings);
    }
    let remotes = RemoteImages::with_settings(&settings, &store)?.map(Arc::new);
    // The request says how owners are shown, because this file system serves a single user.
    let serves: fn(usize) -> Live = if options.confined { Live::Confined } else { Live::Served };
    let supply = ImageSupply { store: options.store.clone(), remotes, stored: STORED, serves: Some(serves) };
    let supplied = supply.supplied(name)?;
    let Image::Erofs { metadata, data } = supplied.image else {
        bail!("this name is of an image that is not served by FUSE")
    };
    if let Some(ready) = supplied.ready {
        ready().map_err(anyhow::Error::msg)?;
    }
    let bytes = match (supplied.lazily, data) {
        (Some(lazily), _) => {
            let (directory, size_bytes, fill) = (lazily.directory, lazily.size_bytes, lazily.fill);
            Bytes::Filled(Filled { directory, size_bytes, fill, order: lazily.order, traced: lazily.traced })
        }
        (None, Some(data)) => Bytes::Whole(data),
        (None, None) => Bytes::Inside,
    };
    Ok(Served { metadata, bytes, lease: supplied.lease })
}
