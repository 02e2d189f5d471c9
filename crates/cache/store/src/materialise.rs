//! Puts the outputs of a result in place, as the tool would have done it: replacing or truncating
//! what is there, through symbolic links or not, with the same modes.
//!
//! Anything unexpected is an error before something is changed. The caller then runs the tool.
//!
//! Unaware of: how a result was found, which command asks.

use std::error::Error;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use larder_model::{ActionResult, Blob, Content, Modified, Output, OutputKind, Placement, Roots};
use larder_sys::{FileType, Stat};

use crate::layout::if_there;
use crate::stage::{Failed, put_together};
use crate::write_output::{Before, Planned, Source, make, put_bytes};
use crate::{StatCache, Store, StoreError};

/// Why outputs were not put in place.
#[derive(Debug)]
pub enum MaterialiseError {
    /// The store does not have the bytes of an output.
    Store(StoreError),
    /// The file system refused an operation.
    Io {
        /// The path of the output.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// Some outputs are in place, another one failed, and the tool must not run on top of that.
    HalfDone {
        /// The path of the output that failed.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The record uses a root that this place does not have.
    Root,
    /// An output that no record of this command may have.
    Refused {
        /// The path of the output.
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
            MaterialiseError::Root => f.write_str("the record uses a root that this place does not have"),
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

/// Where the command that asks for a result may write. A record may come from an untrusted source,
/// so nothing outside of these paths is touched.
pub trait Bounds {
    /// Returns true if an output may be at this absolute path.
    fn may_write(&self, path: &[u8]) -> bool;

    /// Returns true if a file may be written through the symbolic link at this path, wherever it
    /// leads.
    fn may_write_through(&self, link: &[u8]) -> bool;
}

/// How many blobs of one result are open at a time. On most systems a process may have 1024 files
/// open.
const OPEN_MAX: usize = 256;
/// The difference of the mtimes of two successive outputs.
const AGE_STEP: Duration = Duration::from_micros(1);

/// Set-user-id and set-group-id. With these bits, an attacker who can write a record would gain the
/// rights of the user that restores it.
pub(crate) const RIGHTS: u32 = 0o6000;

impl Store {
    /// Puts every output of `result` in place. If `began` is set, each file gets an mtime that is
    /// later than `began`, in the order of the outputs ([`finished`]). Programs such as `make` compare
    /// mtimes.
    pub fn materialise(
        &self,
        result: &ActionResult,
        roots: &Roots,
        bounds: &dyn Bounds,
        stat_cache: &StatCache,
        began: Option<SystemTime>,
    ) -> Result<(), MaterialiseError> {
        let paths = permitted(result, roots, bounds)?;
        // All blobs are opened and checked before anything is changed.
        let open = |blob: &Blob| self.open_blob(blob, stat_cache).map(|opened| opened.file).map_err(io::Error::other);
        let mut blobs = Vec::new();
        for output in &result.outputs {
            blobs.push(match output.kind {
                OutputKind::File { content: Content::Blob(blob), .. } => {
                    let opened = self.open_blob(&blob, stat_cache)?;
                    match blobs.len() < OPEN_MAX {
                        true => Some(Source::Open(opened.file, opened.size_bytes)),
                        false => Some(Source::Closed(&open, blob)),
                    }
                }
                _ => None,
            });
        }
        let mut planned = Vec::new();
        let times = began.map(|began| finished(began, &result.outputs));
        for (at, ((output, path), blob)) in result.outputs.iter().zip(paths).zip(blobs).enumerate() {
            let modified = match output.modified {
                Modified::Written | Modified::WrittenWithPrevious => times.as_ref().map(|times| times[at]),
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

    /// Returns the bytes of a content.
    pub fn content_bytes(&self, content: &Content, stat_cache: &StatCache) -> Result<Vec<u8>, StoreError> {
        match content {
            Content::Inline(bytes) => Ok(bytes.to_vec()),
            Content::Blob(blob) => {
                // It is opened before memory is allocated, because then the size in the record is
                // known to be true.
                let mut file = self.open_blob(blob, stat_cache)?.file;
                let mut bytes = Vec::with_capacity(blob.size_bytes as usize);
                io::Read::read_to_end(&mut file, &mut bytes).map_err(StoreError::reading(Path::new("(a blob)")))?;
                Ok(bytes)
            }
        }
    }
}

/// Returns the mtime of each output of a result that is put in place after `began`, as if the command
/// had not set it. Outputs that were written in one tick of the clock have equal ones here too, so a
/// program that compares mtimes finds the same order after a hit as after the recorded run. No mtime is
/// in the future, because writing a file takes longer than a microsecond.
pub fn finished(began: SystemTime, outputs: &[Output]) -> Vec<SystemTime> {
    let step = |steps: &mut u32, output: &Output| {
        *steps = steps.saturating_add(u32::from(output.modified == Modified::Written));
        Some(began + AGE_STEP * *steps)
    };
    outputs.iter().scan(0, step).collect()
}

/// Returns the path of each output. Returns an error if one is outside of `bounds` or would be
/// set-user-id or set-group-id.
pub fn permitted(result: &ActionResult, roots: &Roots, bounds: &dyn Bounds) -> Result<Vec<PathBuf>, MaterialiseError> {
    let mut paths = Vec::with_capacity(result.outputs.len());
    for output in &result.outputs {
        let path = decoded(output.path, roots)?;
        let why = match output.kind {
            _ if !bounds.may_write(path.as_os_str().as_bytes()) => "is not a path that this command may write",
            OutputKind::File { mode, .. } if mode.bits & RIGHTS != 0 => "would be set-user-id or set-group-id",
            _ => {
                paths.push(path);
                continue;
            }
        };
        return Err(MaterialiseError::Refused { path, why });
    }
    // Links of the result do not exist yet. So the file system does not show that an output would
    // go through one of them.
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

/// Returns the path that `encoded` means in this place.
fn decoded(encoded: &[u8], roots: &Roots) -> Result<PathBuf, MaterialiseError> {
    let path = roots.decoded_path(encoded).ok_or(MaterialiseError::Root)?;
    Ok(PathBuf::from(std::ffi::OsString::from_vec(path)))
}

/// Returns the mtime of the file from which an output has its mtime.
fn modified_as(file: &[u8], roots: &Roots) -> Result<SystemTime, MaterialiseError> {
    let path = decoded(file, roots)?;
    let stat = larder_sys::stat(path.as_os_str().as_bytes());
    // The clock of a file system can be before 1970.
    let nanoseconds = stat.and_then(|stat| u64::try_from(stat.modified_ns).map_err(io::Error::other));
    match nanoseconds {
        Ok(nanoseconds) => Ok(UNIX_EPOCH + Duration::from_nanos(nanoseconds)),
        Err(source) => Err(MaterialiseError::Io { path, source }),
    }
}

/// Finds out what is at the path of an output, and whether the tool could have written there.
/// Changes nothing.
fn plan(path: &Path, output: &Output, bounds: &dyn Bounds) -> io::Result<Before> {
    let bytes = path.as_os_str().as_bytes();
    let Some(there) = if_there(larder_sys::lstat(bytes))? else { return Ok(Before::Nothing) };
    let refused = |kind| Err(io::Error::from(kind));
    match output.kind {
        OutputKind::File { placement, .. } => match before_file(bytes, there, placement)? {
            Before::Truncate if there.kind != FileType::Link => Ok(Before::Truncate),
            Before::Truncate if bounds.may_write_through(bytes) => Ok(Before::Through),
            Before::Truncate => refused(io::ErrorKind::PermissionDenied),
            other => Ok(other),
        },
        OutputKind::Directory(_) if there.kind == FileType::Directory => Ok(Before::Truncate),
        // A tool that does not replace a file by a link has observed the absence of a file. So its
        // record would not have matched here.
        OutputKind::Removed | OutputKind::Link(_) if matches!(there.kind, FileType::File | FileType::Link) => {
            Ok(Before::Unlink)
        }
        _ => refused(io::ErrorKind::AlreadyExists),
    }
}

/// Returns what the tool would do with an existing file or link.
///
/// `Replace` is the rule of binutils (seen with 2.40). An empty file or a dangling link is written
/// through. If there is content, the file or the link itself is unlinked. `Rename` is the rule of
/// LLVM: if the file may be written, with links followed, a new file is renamed over it.
fn before_file(path: &[u8], there: Stat, placement: Placement) -> io::Result<Before> {
    let through = if there.kind == FileType::Link { larder_sys::stat(path) } else { Ok(there) };
    let refused = |kind| Err(io::Error::from(kind));
    if !matches!(there.kind, FileType::File | FileType::Link) {
        return refused(io::ErrorKind::AlreadyExists);
    }
    match (placement, through) {
        (Placement::Unlink, _) => Ok(Before::Unlink),
        (Placement::Rename, Err(_)) => Ok(Before::Unlink),
        (_, Ok(stat)) if stat.kind != FileType::File => refused(io::ErrorKind::AlreadyExists),
        (Placement::Replace, Ok(stat)) if stat.size_bytes > 0 => Ok(Before::Unlink),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_of_one_tick_have_one_mtime() {
        let output = |modified| Output { modified, ..Output::new(b"x", OutputKind::Link(b"y")) };
        let outputs = [
            output(Modified::WrittenWithPrevious),
            output(Modified::Written),
            output(Modified::At(7)),
            output(Modified::WrittenWithPrevious),
            output(Modified::Written),
        ];
        let began = UNIX_EPOCH + Duration::from_secs(1);
        let steps = |time: SystemTime| time.duration_since(began).expect("before it began").as_micros();
        let steps: Vec<u128> = finished(began, &outputs).into_iter().map(steps).collect();
        assert_eq!((steps[1] < steps[4], steps[1] == steps[3]), (true, true), "{steps:?}");
    }
}
