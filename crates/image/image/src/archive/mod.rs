//! Archives: importing them as images, and exporting images for other programs.
//!
//! | file | does |
//! |---|---|
//! | `format.rs` | the format by a file's name, and its compression as a stream |
//! | `contents.rs` | the contents of an image's files |
//! | `exported.rs` | the result of an export |
//! | `out.rs` | an image → the entries of an archive |
//! | `tar.rs`, `zip.rs`, `squash.rs` | reading and writing each format |
//! | `stage.rs` | entries of an untrusted archive → files below one directory |
//!
//! An imported archive is unpacked into a temporary directory and saved like any other directory.
//! So an image keeps of it what it would keep of the unpacked files.
//!
//! Unaware of: remotes, what is printed.

mod contents;
mod exported;
mod format;
mod out;
mod squash;
mod stage;
mod tar;
mod zip;

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use larder_store::Store;

pub use self::exported::Exported;
pub use self::format::{Format, Packing};

use self::out::entries;
pub use self::squash::can_squash;
use self::stage::Stage;
use crate::place::{TOP, Work};
use crate::{Image, ImageError, Progress, Step};

/// Writes saved paths of an image to the file `to` and replaces it. The packs must be in the store.
/// The file is written under a temporary name and then renamed. Fails if the format cannot hold a
/// name, or writing fails. Then `to` is unchanged.
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

/// The directory in a squashfs file that holds the saved path.
pub const SQUASHED: &str = "tree";

/// Writes a saved path of an image to the squashfs file `to`, for mounting. The path becomes the
/// directory `SQUASHED`, and files of the saver belong to `owner`. The packs must be in the store.
/// Fails if `mksquashfs` is not installed or fails, or a pack is missing. Then `to` is unchanged.
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
    entries: &[out::ArchiveEntry],
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
    exported.archive_bytes = fs::metadata(&file).map_err(ImageError::io("stat it", to))?.len();
    fs::rename(&file, to).map_err(ImageError::io("move it into place", to))?;
    Ok(exported)
}

/// An unpacked archive. Dropping it removes the files.
pub struct Unpacked {
    _work: Work,
    /// The paths to save: the name in the image, and where the files are now.
    pub paths: Vec<(Vec<u8>, PathBuf)>,
    /// How many names could not be given to their owner.
    pub owners_left: u64,
    /// How many extended attributes could not be set.
    pub attributes_left: u64,
}

/// Unpacks the archive `from` in the directory `beside`. Each name at its top is a path of the
/// image; with `name` all of it is one path. It may have at most `bytes_max` bytes, and each name
/// counts as some bytes. Fails if it is not an archive of this format, is truncated or too large,
/// or has devices or names that lead out of it.
pub fn unpack(
    from: &Path,
    format: Format,
    name: Option<&[u8]>,
    beside: &Path,
    bytes_max: u64,
    progress: &Progress,
) -> Result<Unpacked, ImageError> {
    let size = fs::metadata(from).map_err(ImageError::io("stat it", from))?.len();
    progress.begin(Step::Unpack, size);
    let _ = crate::restore::sweep(beside);
    let work = Work::begin(beside)?;
    work.pass_nothing_on();
    let top = work.path().join(TOP);
    let mut unpacked = Unpacked { _work: work, paths: Vec::new(), owners_left: 0, attributes_left: 0 };
    if format == Format::Squashfs {
        squash::read(from, &top, bytes_max)?;
    } else {
        fs::create_dir(&top).map_err(ImageError::io("create it", &top))?;
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

/// Returns the names at the top of an unpacked archive, sorted.
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
        0 => Err(wrong("the archive is empty")),
        more if more > larder_model::SAVED_PATHS_MAX => Err(wrong(
            "it has more than 64 names at its top, and each of them would be a path; use --as NAME for all of it",
        )),
        _ => Ok(names),
    }
}
