//! Putting a result's outputs in place, as the tool would have put them there: over what, through what, with which mode.
//!
//! Anything unexpected is an error before it is damage: the caller then runs the tool, which does what it does.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use larder_model::{ActionResult, Content, FileMode, Output, OutputKind, Placement, Roots};
use larder_sys::Kind;

use crate::{Stamps, Store, StoreError};

/// An output that could not be put in place.
#[derive(Debug, thiserror::Error)]
pub enum MaterialiseError {
    /// The store does not have its bytes.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The file system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The record names a root that this place does not have.
    #[error("a record names an unknown root")]
    Root,
}

impl Store {
    /// Put every output of `result` in place.
    pub fn materialise(&self, result: &ActionResult, roots: &Roots, stamps: &Stamps) -> Result<(), MaterialiseError> {
        // All blobs are opened, and so found sound, before anything is touched.
        let mut blobs = Vec::new();
        for output in &result.outputs {
            blobs.push(match output.kind {
                OutputKind::File { content: Content::Blob(blob), .. } => Some(self.open_blob(&blob, stamps)?),
                _ => None,
            });
        }
        for (output, blob) in result.outputs.iter().zip(blobs) {
            let path = local_path(output, roots).ok_or(MaterialiseError::Root)?;
            put(&path, output, blob.map(|b| (b.file, b.size_bytes)))
                .map_err(|source| MaterialiseError::Io { path, source })?;
        }
        Ok(())
    }

    /// The bytes of a content.
    pub fn content_bytes(&self, content: &Content, stamps: &Stamps) -> Result<Vec<u8>, StoreError> {
        match content {
            Content::Inline(bytes) => Ok(bytes.to_vec()),
            Content::Blob(blob) => {
                let mut bytes = Vec::with_capacity(blob.size_bytes as usize);
                let mut file = self.open_blob(blob, stamps)?.file;
                io::Read::read_to_end(&mut file, &mut bytes).map_err(StoreError::reading(Path::new("(a blob)")))?;
                Ok(bytes)
            }
        }
    }
}

fn local_path(output: &Output, roots: &Roots) -> Option<PathBuf> {
    let mut path = Vec::new();
    roots.decode_path(output.path, &mut path).then(|| PathBuf::from(std::ffi::OsString::from_vec(path)))
}

fn put(path: &Path, output: &Output, blob: Option<(File, u64)>) -> io::Result<()> {
    match output.kind {
        OutputKind::File { placement, mode, content } => {
            let file = open(path, placement, mode)?;
            match (content, blob) {
                (Content::Inline(bytes), _) => (&file).write_all(bytes)?,
                (Content::Blob(_), Some((from, size_bytes))) => {
                    if larder_sys::copy_bytes(&from, &file, size_bytes)? != size_bytes {
                        return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
                    }
                }
                (Content::Blob(_), None) => return Err(io::Error::from(io::ErrorKind::NotFound)),
            }
            if !mode.masked {
                file.set_permissions(Permissions::from_mode(mode.bits))?;
            }
            Ok(())
        }
        OutputKind::Link(target) => std::os::unix::fs::symlink(std::ffi::OsString::from_vec(target.to_vec()), path),
        OutputKind::Directory(mode) => match DirBuilder::new().mode(mode.bits).create(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
            other => other,
        },
        OutputKind::Removed => match fs::remove_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        },
    }
}

fn open(path: &Path, placement: Placement, mode: FileMode) -> io::Result<File> {
    let mut fresh = OpenOptions::new();
    fresh.write(true).create_new(true).mode(mode.bits);
    let mut over = OpenOptions::new();
    over.write(true).create(true).truncate(true).mode(mode.bits);
    match placement {
        Placement::Truncate => over.open(path),
        Placement::Replace | Placement::Rename => match fresh.open(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if unlink_first(path, placement)? {
                    fs::remove_file(path)?;
                    return fresh.open(path);
                }
                over.open(path)
            }
            other => other,
        },
    }
}

/// Whether what is there goes before the new file is made, or is written through. Binutils' rule, seen with 2.40, is that
/// what has no bytes yet is written through, a link to nothing included; what has some is unlinked when its name is a
/// file's or a link's own.
fn unlink_first(path: &Path, placement: Placement) -> io::Result<bool> {
    use std::os::unix::ffi::OsStrExt;
    let path = path.as_os_str().as_bytes();
    let there = larder_sys::look(path)?;
    let refused = |kind| Err(io::Error::from(kind));
    match (there.kind, placement) {
        (Kind::File | Kind::Link, Placement::Replace) => {
            Ok(larder_sys::look_through(path).is_ok_and(|look| look.size_bytes > 0))
        }
        (Kind::File, _) if there.mode & 0o222 == 0 => refused(io::ErrorKind::PermissionDenied),
        (Kind::File | Kind::Link, _) => Ok(true),
        _ => refused(io::ErrorKind::AlreadyExists),
    }
}
