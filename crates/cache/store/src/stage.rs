//! Puts the outputs of a result in place, as far as possible all or none. This is used if the tool
//! must not run on a part of them: it removed something, made a directory, or changed what it had
//! read.
//!
//! It works in two steps:
//! 1. Prepare: contents are written to files beside the outputs, and directories are made. If this
//!    fails, all of them are removed and nothing has changed.
//! 2. Commit: the prepared files are renamed to their paths. A file that must keep its inode is
//!    written, links are made, and files are removed. If this fails, some outputs may be in place,
//!    which `Failed::half_done` says.
//!
//! Unaware of: how a result was found.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use larder_model::{ModeRule, OutputKind};

use crate::layout::if_there;
use crate::write_output::{Before, Planned, make, put_bytes};

/// The mode bits that the kernel keeps when a file is written: all but set-user-id and
/// set-group-id.
const RIGHTS_KEPT: u32 = 0o1777;

/// Which output failed and why, and whether other outputs are in place already.
pub(crate) struct Failed {
    pub(crate) path: PathBuf,
    pub(crate) source: io::Error,
    pub(crate) half_done: bool,
}

/// Files and directories that were prepared. They are removed when this is dropped, unless they
/// were put in place.
#[derive(Default)]
struct Beside {
    directories: Vec<PathBuf>,
    files: Vec<Option<PathBuf>>,
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.files.iter().flatten().for_each(|path| drop(fs::remove_file(path)));
        self.directories.iter().rev().for_each(|path| drop(fs::remove_dir(path)));
    }
}

/// Puts all of `planned` in place, or nothing if preparing fails.
pub(crate) fn put_together(planned: &[Planned]) -> Result<(), Failed> {
    let mut beside = Beside::default();
    for one in planned {
        let prepared = prepare(one, &mut beside);
        prepared.map_err(|source| Failed { path: one.path.clone(), source, half_done: false })?;
    }
    beside.directories.clear();
    for (at, one) in planned.iter().enumerate() {
        let committed = commit(one, beside.files[at].as_deref());
        committed.map_err(|source| Failed { path: one.path.clone(), source, half_done: true })?;
        beside.files[at] = None;
    }
    Ok(())
}

fn prepare(one: &Planned, beside: &mut Beside) -> io::Result<()> {
    let mut file = None;
    match one.output.kind {
        OutputKind::Directory(_) if one.before == Before::Nothing => {
            make(&one.path, one.output)?;
            beside.directories.push(one.path.clone());
        }
        OutputKind::File { .. } => {
            let path = name_beside(&one.path);
            beside.files.push(Some(path.clone()));
            put_bytes(&path, one, Before::Nothing)?;
            beside.files.pop();
            file = Some(path);
        }
        OutputKind::Link(_) if one.before == Before::Unlink => {
            let path = name_beside(&one.path);
            make(&path, one.output)?;
            file = Some(path);
        }
        OutputKind::Link(_) | OutputKind::Removed => may_change(&one.path)?,
        OutputKind::Directory(_) => {}
    }
    beside.files.push(file);
    Ok(())
}

fn name_beside(path: &Path) -> PathBuf {
    path.with_file_name(format!(".larder-{:016x}", larder_sys::random_u64()))
}

/// Returns an error unless names can be added and removed in the directory of `path`.
fn may_change(path: &Path) -> io::Result<()> {
    let directory = path.parent().map(|parent| parent.as_os_str().as_bytes()).unwrap_or(b"/");
    if larder_sys::may_write(directory) { Ok(()) } else { Err(io::Error::from(io::ErrorKind::PermissionDenied)) }
}

fn commit(one: &Planned, file: Option<&Path>) -> io::Result<()> {
    let Some(file) = file else {
        if one.before == Before::Unlink {
            fs::remove_file(&one.path)?;
        }
        return if matches!(one.output.kind, OutputKind::Link(_)) { make(&one.path, one.output) } else { Ok(()) };
    };
    if matches!(one.before, Before::Truncate | Before::Through) {
        let write_into = || put_bytes(&one.path, one, one.before).and_then(|()| fs::remove_file(file));
        // A dangling symbolic link is written through.
        let Some(there) = if_there(fs::metadata(&one.path))? else { return write_into() };
        // A rename would lose the other hard links of the file, its owner or its attributes.
        let adds = matches!(one.output.kind, OutputKind::File { mode, .. } if mode.rule == ModeRule::Executable);
        let owner = |it: &fs::Metadata| (it.uid(), it.gid());
        let is_anothers = owner(&there) != owner(&fs::symlink_metadata(file)?);
        let stays =
            there.nlink() > 1 || is_anothers || larder_sys::has_attributes(one.path.as_os_str().as_bytes()) || adds;
        if one.before == Before::Through || stays {
            return write_into();
        }
        let mode = there.permissions().mode() & RIGHTS_KEPT;
        let keeps = !matches!(one.output.kind, OutputKind::File { mode, .. } if mode.rule == ModeRule::Set);
        if keeps {
            fs::set_permissions(file, fs::Permissions::from_mode(mode))?;
        }
    }
    fs::rename(file, &one.path)
}
