//! Putting a result's outputs in place, as the tool would have put them there: over what, through what, with which mode.
//!
//! Anything unexpected is an error before it is damage: the caller then runs the tool, which does what it does.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use larder_model::{ActionResult, Content, FileMode, ModeRule, Output, OutputKind, Placement, Roots};
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
        let mut plans = Vec::new();
        for output in &result.outputs {
            let path = local_path(output, roots).ok_or(MaterialiseError::Root)?;
            match plan(&path, output) {
                Ok(before) => plans.push((path, before)),
                Err(source) => return Err(MaterialiseError::Io { path, source }),
            }
        }
        for ((output, blob), (path, before)) in result.outputs.iter().zip(blobs).zip(plans) {
            put(&path, output, before, blob.map(|b| (b.file, b.size_bytes)))
                .map_err(|source| MaterialiseError::Io { path, source })?;
        }
        Ok(())
    }

    /// The bytes of a content.
    pub fn content_bytes(&self, content: &Content, stamps: &Stamps) -> Result<Vec<u8>, StoreError> {
        match content {
            Content::Inline(bytes) => Ok(bytes.to_vec()),
            Content::Blob(blob) => {
                // Opened first: then it has the size that the record claims.
                let mut file = self.open_blob(blob, stamps)?.file;
                let mut bytes = Vec::with_capacity(blob.size_bytes as usize);
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

/// What is to be done with what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    /// Nothing should be there.
    Nothing,
    /// It is unlinked first.
    Unlink,
    /// It is opened and truncated.
    Truncate,
}

/// Find out what is there, and whether the tool could do what it did. Nothing is touched.
fn plan(path: &Path, output: &Output) -> io::Result<Before> {
    let bytes = path.as_os_str().as_bytes();
    let there = match larder_sys::look(bytes) {
        Ok(there) => there,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Before::Nothing),
        Err(error) => return Err(error),
    };
    let refused = |kind| Err(io::Error::from(kind));
    match output.kind {
        OutputKind::File { placement, .. } => before_file(bytes, there.kind, placement),
        OutputKind::Directory(_) if there.kind == Kind::Directory => Ok(Before::Truncate),
        OutputKind::Removed if matches!(there.kind, Kind::File | Kind::Link) => Ok(Before::Unlink),
        _ => refused(io::ErrorKind::AlreadyExists),
    }
}

/// Binutils' rule (`Replace`), seen with 2.40, is that what has no bytes yet is written through, a link to nothing
/// included; what has some is unlinked when its name is a file's or a link's own. LLVM (`Rename`) asks whether what is
/// there may be written, links followed, and renames over it.
fn before_file(path: &[u8], kind: Kind, placement: Placement) -> io::Result<Before> {
    let through = larder_sys::look_through(path);
    let refused = |kind| Err(io::Error::from(kind));
    if !matches!(kind, Kind::File | Kind::Link) {
        return refused(io::ErrorKind::AlreadyExists);
    }
    match (placement, through) {
        (Placement::Unlink, _) => Ok(Before::Unlink),
        (Placement::Rename, Err(_)) => Ok(Before::Unlink),
        (_, Ok(look)) if look.kind != Kind::File => refused(io::ErrorKind::AlreadyExists),
        (Placement::Replace, Ok(look)) if look.size_bytes > 0 => Ok(Before::Unlink),
        (Placement::Replace | Placement::Truncate, Err(_)) => Ok(Before::Truncate),
        _ if !larder_sys::may_write(path) => refused(io::ErrorKind::PermissionDenied),
        (Placement::Rename, _) => Ok(Before::Unlink),
        (Placement::Replace | Placement::Truncate, _) => Ok(Before::Truncate),
    }
}

fn put(path: &Path, output: &Output, before: Before, blob: Option<(File, u64)>) -> io::Result<()> {
    if before == Before::Unlink {
        fs::remove_file(path)?;
    }
    match output.kind {
        OutputKind::File { mode, content, .. } => {
            let file = open(path, before, mode)?;
            match (content, blob) {
                (Content::Inline(bytes), _) => (&file).write_all(bytes)?,
                (Content::Blob(_), Some((from, size_bytes))) => {
                    if larder_sys::copy_bytes(&from, &file, size_bytes)? != size_bytes {
                        return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
                    }
                }
                (Content::Blob(_), None) => return Err(io::Error::from(io::ErrorKind::NotFound)),
            }
            set_mode(&file, mode, before)
        }
        OutputKind::Link(target) => std::os::unix::fs::symlink(std::ffi::OsString::from_vec(target.to_vec()), path),
        OutputKind::Directory(mode) if before == Before::Nothing => {
            DirBuilder::new().mode(mode.bits).create(path)?;
            if mode.rule == ModeRule::Masked {
                Ok(())
            } else {
                fs::set_permissions(path, Permissions::from_mode(mode.bits))
            }
        }
        OutputKind::Directory(_) | OutputKind::Removed => Ok(()),
    }
}

fn set_mode(file: &File, mode: FileMode, before: Before) -> io::Result<()> {
    match mode.rule {
        ModeRule::Masked => Ok(()),
        ModeRule::Exact if before == Before::Truncate => Ok(()),
        ModeRule::Exact | ModeRule::Set => file.set_permissions(Permissions::from_mode(mode.bits)),
        ModeRule::Executable => {
            let now = file.metadata()?.permissions().mode() & 0o7777;
            file.set_permissions(Permissions::from_mode(now | 0o111 & !larder_sys::umask()))
        }
    }
}

fn open(path: &Path, before: Before, mode: FileMode) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).mode(mode.bits);
    match before {
        Before::Nothing | Before::Unlink => options.create_new(true).open(path),
        Before::Truncate => options.create(true).truncate(true).open(path),
    }
}
