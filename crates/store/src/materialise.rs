//! Putting a result's outputs in place, as the tool would have put them there: over what, through what, with which
//! mode.
//!
//! Anything unexpected is an error before it is damage: the caller then runs the tool, which does what it does.

use std::error::Error;
use std::fmt;
use std::fs::{self, DirBuilder, File, FileTimes, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use larder_model::{ActionResult, Blob, Content, FileMode, ModeRule, Modified, Output, OutputKind, Placement, Roots};
use larder_sys::{Kind, Look};

use crate::layout::{NO_FOLLOW, NO_WAIT};
use crate::stage::{Failed, Planned, Source, put_together};
use crate::{Stamps, Store, StoreError};

/// An output that could not be put in place.
#[derive(Debug)]
pub enum MaterialiseError {
    /// The store does not have its bytes.
    Store(StoreError),
    /// The file system refused.
    Io {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A part is in place, the rest failed, and the tool must not run on top of that.
    HalfDone {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The record names a root that this place does not have.
    Root,
    /// No record of the command that asks would say so.
    Refused {
        /// Where.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
}

impl fmt::Display for MaterialiseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MaterialiseError::Store(error) => error.fmt(f),
            MaterialiseError::Io { path, source } | MaterialiseError::HalfDone { path, source } => {
                write!(f, "{}: {source}", path.display())
            }
            MaterialiseError::Root => f.write_str("a record names an unknown root"),
            MaterialiseError::Refused { path, why } => write!(f, "{}: {why}", path.display()),
        }
    }
}

impl Error for MaterialiseError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            MaterialiseError::Io { source, .. } | MaterialiseError::HalfDone { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl From<StoreError> for MaterialiseError {
    fn from(error: StoreError) -> Self {
        MaterialiseError::Store(error)
    }
}

/// How far the command reaches that asks for a result. A record is somebody's word only: what is outside is not
/// touched.
pub trait Bounds {
    /// Whether an output may be at this absolute path.
    fn may_write(&self, path: &[u8]) -> bool;

    /// Whether the link at this path may be written through, wherever it leads.
    fn may_write_through(&self, link: &[u8]) -> bool;
}

/// So many blobs of one result are open at a time: a process may have 1024 files open on most systems.
const OPEN_MAX: usize = 256;
/// By how much one output is newer than the one before it.
const AGE_STEP: Duration = Duration::from_micros(1);

/// Set-user-id and set-group-id: whoever may write a record would act as whoever is handed it out.
pub(crate) const RIGHTS: u32 = 0o6000;
/// Set-group-id, which a new directory has where the one that it is in has it.
const SET_GROUP: u32 = 0o2000;

impl Store {
    /// Put every output of `result` in place. `began`: each file is to be newer than those before it, for who goes by
    /// that, the first one newer than this moment ([`finished`]).
    pub fn materialise(
        &self,
        result: &ActionResult,
        roots: &Roots,
        bounds: &dyn Bounds,
        stamps: &Stamps,
        began: Option<SystemTime>,
    ) -> Result<(), MaterialiseError> {
        let paths = permitted(result, roots, bounds)?;
        // All blobs are opened, and so found sound, before anything is touched.
        let open = |blob: &Blob| self.open_blob(blob, stamps).map(|opened| opened.file).map_err(io::Error::other);
        let mut blobs = Vec::new();
        for output in &result.outputs {
            blobs.push(match output.kind {
                OutputKind::File { content: Content::Blob(blob), .. } => {
                    let opened = self.open_blob(&blob, stamps)?;
                    match blobs.len() < OPEN_MAX {
                        true => Some(Source::Open(opened.file, opened.size_bytes)),
                        false => Some(Source::Closed(&open, blob)),
                    }
                }
                _ => None,
            });
        }
        let mut planned = Vec::new();
        for (at, ((output, path), blob)) in result.outputs.iter().zip(paths).zip(blobs).enumerate() {
            let modified = match output.modified {
                Modified::Written => began.map(|began| finished(began, at)),
                Modified::As(file) => Some(modified_as(file, roots)?),
                Modified::At(nanoseconds) => Some(UNIX_EPOCH + Duration::from_nanos(nanoseconds)),
            };
            match plan(&path, output, bounds) {
                Ok(before) => planned.push(Planned { output, path, before, blob, modified }),
                Err(source) => return Err(MaterialiseError::Io { path, source }),
            }
        }
        if !result.repeatable {
            return put_together(&planned).map_err(|Failed { path, source, half_done }| match half_done {
                true => MaterialiseError::HalfDone { path, source },
                false => MaterialiseError::Io { path, source },
            });
        }
        for one in planned {
            put(&one).map_err(|source| MaterialiseError::Io { path: one.path, source })?;
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

/// When the output at this place of a result was modified, where that is put in place since `began`. Writing a file
/// takes longer than there is between two, so none is newer than the present.
pub fn finished(began: SystemTime, at: usize) -> SystemTime {
    began + AGE_STEP * u32::try_from(at + 1).unwrap_or(u32::MAX)
}

/// The path of each output, if all of them are within `bounds` and none gives rights away.
pub fn permitted(result: &ActionResult, roots: &Roots, bounds: &dyn Bounds) -> Result<Vec<PathBuf>, MaterialiseError> {
    let mut paths = Vec::with_capacity(result.outputs.len());
    for output in &result.outputs {
        let mut bytes = Vec::new();
        if !roots.decode_path(output.path, &mut bytes) {
            return Err(MaterialiseError::Root);
        }
        let path = PathBuf::from(std::ffi::OsString::from_vec(bytes));
        let why = match output.kind {
            _ if !bounds.may_write(path.as_os_str().as_bytes()) => "is no place for an output of this command",
            OutputKind::File { mode, .. } if mode.bits & RIGHTS != 0 => "would be set-user-id or set-group-id",
            _ => {
                paths.push(path);
                continue;
            }
        };
        return Err(MaterialiseError::Refused { path, why });
    }
    // A link of the result is not there yet, so no look at the file system shows what would go through it.
    let is_link = |at: &usize| matches!(result.outputs[*at].kind, OutputKind::Link(_));
    for link in (0..paths.len()).filter(is_link) {
        if let Some(through) = paths.iter().find(|path| **path != paths[link] && path.starts_with(&paths[link])) {
            return Err(MaterialiseError::Refused {
                path: through.clone(),
                why: "leads through a link of the same run",
            });
        }
    }
    Ok(paths)
}

/// When the file that an output has its time from was modified.
fn modified_as(file: &[u8], roots: &Roots) -> Result<SystemTime, MaterialiseError> {
    let mut bytes = Vec::new();
    if !roots.decode_path(file, &mut bytes) {
        return Err(MaterialiseError::Root);
    }
    let path = PathBuf::from(std::ffi::OsString::from_vec(bytes));
    let look = larder_sys::look_through(path.as_os_str().as_bytes());
    // The clock of a file system can stand before 1970.
    let nanoseconds = look.and_then(|look| u64::try_from(look.modified_ns).map_err(io::Error::other));
    match nanoseconds {
        Ok(nanoseconds) => Ok(UNIX_EPOCH + Duration::from_nanos(nanoseconds)),
        Err(source) => Err(MaterialiseError::Io { path, source }),
    }
}

/// What is to be done with what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    /// Nothing should be there.
    Nothing,
    /// It is unlinked first.
    Unlink,
    /// It is opened and truncated.
    Truncate,
    /// The same, through a link.
    Through,
}

/// Find out what is there, and whether the tool could do what it did. Nothing is touched.
fn plan(path: &Path, output: &Output, bounds: &dyn Bounds) -> io::Result<Before> {
    let bytes = path.as_os_str().as_bytes();
    let there = match larder_sys::look(bytes) {
        Ok(there) => there,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Before::Nothing),
        Err(error) => return Err(error),
    };
    let refused = |kind| Err(io::Error::from(kind));
    match output.kind {
        OutputKind::File { placement, .. } => match before_file(bytes, there, placement)? {
            Before::Truncate if there.kind != Kind::Link => Ok(Before::Truncate),
            Before::Truncate if bounds.may_write_through(bytes) => Ok(Before::Through),
            Before::Truncate => refused(io::ErrorKind::PermissionDenied),
            other => Ok(other),
        },
        OutputKind::Directory(_) if there.kind == Kind::Directory => Ok(Before::Truncate),
        // A link that is only made where nothing is has that for an observation.
        OutputKind::Removed | OutputKind::Link(_) if matches!(there.kind, Kind::File | Kind::Link) => {
            Ok(Before::Unlink)
        }
        _ => refused(io::ErrorKind::AlreadyExists),
    }
}

/// Binutils' rule (`Replace`), seen with 2.40, is that what has no bytes yet is written through, a link to nothing
/// included; what has some is unlinked when its name is a file's or a link's own. LLVM (`Rename`) asks whether what is
/// there may be written, links followed, and renames over it.
fn before_file(path: &[u8], there: Look, placement: Placement) -> io::Result<Before> {
    let through = if there.kind == Kind::Link { larder_sys::look_through(path) } else { Ok(there) };
    let refused = |kind| Err(io::Error::from(kind));
    if !matches!(there.kind, Kind::File | Kind::Link) {
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

fn put(one: &Planned) -> io::Result<()> {
    if one.before == Before::Unlink {
        fs::remove_file(&one.path)?;
    }
    match one.output.kind {
        OutputKind::File { .. } => put_bytes(&one.path, one, one.before),
        OutputKind::Directory(_) if one.before != Before::Nothing => Ok(()),
        _ => make(&one.path, one.output),
    }
}

/// Writes an output's bytes, with its mode. If that fails, a file that was made for it is removed again: the tool, which
/// runs then, may fail without touching it, and `make` would take it for the tool's.
pub(crate) fn put_bytes(path: &Path, one: &Planned, before: Before) -> io::Result<()> {
    let OutputKind::File { mode, content, .. } = one.output.kind else { return Ok(()) };
    let file = open(path, before, mode)?;
    let fill = || {
        match (content, &one.blob) {
            (Content::Inline(bytes), _) => (&file).write_all(bytes)?,
            (Content::Blob(_), Some(Source::Open(from, size_bytes))) => copy(from, &file, *size_bytes)?,
            (Content::Blob(_), Some(Source::Closed(reopen, blob))) => copy(&reopen(blob)?, &file, blob.size_bytes)?,
            (Content::Blob(_), None) => return Err(io::Error::from(io::ErrorKind::NotFound)),
        }
        if let Some(modified) = one.modified {
            file.set_times(FileTimes::new().set_modified(modified))?;
        }
        set_mode(&file, mode, before)
    };
    fill().inspect_err(|_| {
        if matches!(before, Before::Nothing | Before::Unlink) {
            let _ = fs::remove_file(path);
        }
    })
}

fn copy(from: &File, to: &File, size_bytes: u64) -> io::Result<()> {
    match larder_sys::copy_bytes(from, to, size_bytes)? {
        copied if copied == size_bytes => Ok(()),
        _ => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
    }
}

/// Make a link or a directory.
pub(crate) fn make(path: &Path, output: &Output) -> io::Result<()> {
    match output.kind {
        OutputKind::Link(target) => std::os::unix::fs::symlink(std::ffi::OsString::from_vec(target.to_vec()), path),
        OutputKind::Directory(mode) => {
            DirBuilder::new().mode(mode.bits).create(path)?;
            match mode.rule {
                ModeRule::Masked => Ok(()),
                // It has this bit of the directory that it is in.
                ModeRule::Exact => {
                    let own = fs::symlink_metadata(path)?.permissions().mode() & SET_GROUP;
                    fs::set_permissions(path, Permissions::from_mode(mode.bits & !SET_GROUP | own))
                }
                ModeRule::Set | ModeRule::Executable => fs::set_permissions(path, Permissions::from_mode(mode.bits)),
            }
        }
        OutputKind::File { .. } | OutputKind::Removed => Ok(()),
    }
}

fn set_mode(file: &File, mode: FileMode, before: Before) -> io::Result<()> {
    match mode.rule {
        ModeRule::Masked => Ok(()),
        ModeRule::Exact if matches!(before, Before::Truncate | Before::Through) => Ok(()),
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
        Before::Nothing | Before::Unlink => {
            larder_sys::open(path.as_os_str().as_bytes(), larder_sys::Opening::New(mode.bits))
        }
        // What was no link a moment ago is not followed, nor waited for, if it is one now.
        Before::Truncate => options.truncate(true).custom_flags(NO_FOLLOW | NO_WAIT).open(path),
        Before::Through => options.create(true).truncate(true).custom_flags(NO_WAIT).open(path),
    }
}
