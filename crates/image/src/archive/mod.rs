//! Archives: what people have today becomes an image, and an image what others can read.
//!
//! | file | does |
//! |---|---|
//! | `format.rs` | which format a file has by its name, and its compression as a stream |
//! | `contents.rs` | the bytes of an image's files, one file after the other |
//! | `out.rs` | an image → the entries of an archive, in the order of names |
//! | `tar.rs`, `zip.rs`, `squash.rs` | each format: written, and read |
//! | `stage.rs` | entries of an archive that nobody trusts → files below one directory |
//!
//! An archive that comes in is unpacked beside the store and saved as any other directory is: what an image keeps of it
//! is what an unpacked one had.

mod contents;
mod format;
mod out;
mod squash;
mod stage;
mod tar;
mod zip;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use larder_store::Store;

pub use self::format::{Format, Packing};

use self::out::entries;
use self::stage::Stage;
use crate::place::{TOP, Work};
use crate::{Image, ImageError, Progress, Step};

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// Bytes of the archive.
    pub archive_bytes: u64,
    /// Names that the format cannot hold: FIFOs in zip.
    pub left: u64,
    /// Hard links that became files of their own.
    pub copied: u64,
    /// Names with attributes that the format cannot hold.
    pub attributes_left: u64,
}

/// Write saved paths of an image, whose packs are in the store, to the file `to`, in place of what is there. It gets
/// its name once it is whole.
///
/// # Errors
///
/// Where a name cannot stand in the format, or it cannot be written; then `to` is as it was.
pub fn export(
    store: &Store,
    image: &Image,
    saved: &[usize],
    format: Format,
    to: &Path,
    progress: &Progress,
) -> Result<Exported, ImageError> {
    write(store, image, &entries(image, saved, to)?, format, to, progress)
}

/// The directory of a squashfs file for mounting that a saved path is.
pub const SQUASHED: &str = "tree";

/// Write a saved path of an image, whose packs are in the store, as the squashfs file `to`, to be mounted: it is the
/// directory `SQUASHED`, and what was the saver's is `owner`'s.
///
/// # Errors
///
/// Where `mksquashfs` is not installed or fails, or a pack is missing; then `to` is as it was.
pub fn squash(
    store: &Store,
    image: &Image,
    saved: usize,
    owner: (u32, u32),
    to: &Path,
    progress: &Progress,
) -> Result<(), ImageError> {
    let entries = out::entries_below(image, saved, SQUASHED.as_bytes(), Some(owner));
    write(store, image, &entries, Format::Squashfs, to, progress).map(drop)
}

fn write(
    store: &Store,
    image: &Image,
    entries: &[out::Entry],
    format: Format,
    to: &Path,
    progress: &Progress,
) -> Result<Exported, ImageError> {
    progress.begin(Step::Pack, entries.iter().map(|entry| entry.size(image)).sum());
    let parent = to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let _ = crate::restore::sweep(parent);
    let work = Work::begin(parent)?;
    let file = work.path().join(TOP);
    let mut contents = contents::Contents::new(store, image)?;
    let mut exported = match format {
        Format::Tar(_) | Format::Squashfs => tar::write(&mut contents, entries, format, &file, progress),
        Format::Zip => zip::write(&mut contents, entries, &file, progress),
    }
    .map_err(|error| error.named(&file, to))?;
    exported.archive_bytes = fs::metadata(&file).map_err(ImageError::io("look at it", to))?.len();
    fs::rename(&file, to).map_err(ImageError::io("put it in place", to))?;
    Ok(exported)
}

/// An archive, unpacked. Dropped, it leaves nothing.
pub struct Unpacked {
    _work: Work,
    /// What is saved of it: the name that each path gets in the image, and where it lies now.
    pub paths: Vec<(Vec<u8>, PathBuf)>,
    /// Names that this user could not give to whom they belonged.
    pub owners_left: u64,
    /// Extended attributes that could not be set.
    pub attributes_left: u64,
}

/// Unpack the archive `from` in the directory `beside`. Each name at its top is a path of the image; with `name` all of
/// it is one. It has at most `bytes_max` bytes unpacked, of which each name takes some.
///
/// # Errors
///
/// Where it is no such archive, is cut, holds a device, or names that lead out of it, or is larger.
pub fn unpack(
    from: &Path,
    format: Format,
    name: Option<&[u8]>,
    beside: &Path,
    bytes_max: u64,
    progress: &Progress,
) -> Result<Unpacked, ImageError> {
    let size = fs::metadata(from).map_err(ImageError::io("look at it", from))?.len();
    progress.begin(Step::Unpack, size);
    let _ = crate::restore::sweep(beside);
    let work = Work::begin(beside)?;
    work.pass_nothing_on();
    let top = work.path().join(TOP);
    let mut unpacked = Unpacked { _work: work, paths: Vec::new(), owners_left: 0, attributes_left: 0 };
    if format == Format::Squashfs {
        squash::read(from, &top, bytes_max)?;
    } else {
        fs::create_dir(&top).map_err(ImageError::io("make it", &top))?;
        let mut stage = Stage::new(&top, from, bytes_max)?;
        match format {
            Format::Zip => zip::read(from, &mut stage, progress)?,
            _ => tar::read(from, format, &mut stage, progress)?,
        }
        (unpacked.owners_left, unpacked.attributes_left) = stage.done()?;
    }
    unpacked.paths = match name {
        Some(name) => vec![(name.to_vec(), top)],
        None => names_of(&top, from)?,
    };
    Ok(unpacked)
}

/// What is at the top of an archive, in the order of names.
fn names_of(top: &Path, from: &Path) -> Result<Vec<(Vec<u8>, PathBuf)>, ImageError> {
    let listed = fs::read_dir(top).and_then(|names| names.collect::<Result<Vec<_>, _>>());
    let mut names: Vec<_> = listed
        .map_err(ImageError::io("list the directory", top))?
        .into_iter()
        .map(|entry| (entry.file_name().as_bytes().to_vec(), entry.path()))
        .collect();
    names.sort();
    let wrong = |why: &str| ImageError::archive(from, why.to_owned());
    match names.len() {
        0 => Err(wrong("there is nothing in it")),
        more if more > larder_model::SAVED_PATHS_MAX => Err(wrong(
            "it has more than 64 names at its top, each of which would be a path: say --as NAME for all of it",
        )),
        _ => Ok(names),
    }
}

/// A saved path's name as archives have it: relative, without what leads up.
fn name_in_archive(path: &[u8], to: &Path) -> Result<Vec<u8>, ImageError> {
    let relative = Path::new(OsStr::from_bytes(path.strip_prefix(b"~/").unwrap_or(path)));
    let mut name = PathBuf::new();
    for part in relative.components() {
        match part {
            std::path::Component::Normal(part) => name.push(part),
            std::path::Component::ParentDir => {
                let why =
                    format!("{} leads up, which no archive should: restore the image instead", relative.display());
                return Err(ImageError::archive(to, why));
            }
            _ => {}
        }
    }
    Ok(name.into_os_string().into_encoded_bytes())
}
