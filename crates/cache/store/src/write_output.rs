//! Writes one output of a result: a file, a link or a directory.
//!
//! Unaware of: which outputs there are, and whether they may be written.

use std::fs::{self, DirBuilder, File, FileTimes, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use larder_model::{Blob, Content, FileMode, ModeRule, Output, OutputKind};

use crate::layout::{NO_FOLLOW, NO_WAIT};

/// Set-group-id, which a new directory inherits from its parent directory.
const SET_GROUP: u32 = 0o2000;

/// An output, what to do with the file that is there, and the output's bytes if they are a blob.
pub(crate) struct Planned<'a> {
    pub(crate) output: &'a Output<'a>,
    pub(crate) path: PathBuf,
    pub(crate) before: Before,
    pub(crate) blob: Option<Source<'a>>,
    /// The mtime that the output gets, or `None` for the time when it is written.
    pub(crate) modified: Option<SystemTime>,
}

/// A blob whose content was checked.
pub(crate) enum Source<'a> {
    /// It is open. The number is its size in bytes.
    Open(File, u64),
    /// It is opened when it is needed, because there are too many blobs to have all open.
    Closed(&'a dyn Fn(&Blob) -> io::Result<File>, Blob),
}

/// What to do with the file at the path of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    /// Nothing is there.
    Nothing,
    /// Something is there and is unlinked first.
    Unlink,
    /// The file is opened and truncated. A directory is left as it is.
    Truncate,
    /// A file is opened through a symbolic link and truncated.
    Through,
}

/// Writes the bytes of an output and sets its mode. If that fails, a file that was created for it
/// is removed. The tool runs next and may fail before it writes, and `make` would take our
/// incomplete file for the tool's output.
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

/// Makes a symbolic link or a directory.
pub(crate) fn make(path: &Path, output: &Output) -> io::Result<()> {
    match output.kind {
        OutputKind::Link(target) => std::os::unix::fs::symlink(std::ffi::OsString::from_vec(target.to_vec()), path),
        OutputKind::Directory(FileMode { bits, rule: ModeRule::Masked }) => DirBuilder::new().mode(bits).create(path),
        OutputKind::Directory(FileMode { bits, rule }) => {
            // Its owner may read it until it has its mode, so that it can be opened. Its path may
            // name another one by then.
            DirBuilder::new().mode(bits | 0o700).create(path)?;
            let directory = OpenOptions::new().read(true).custom_flags(NO_FOLLOW | NO_WAIT).open(path)?;
            let found = directory.metadata()?;
            if !found.is_dir() {
                return Err(io::Error::from(io::ErrorKind::NotADirectory));
            }
            // The directory inherits this bit from its parent.
            let inherited = if rule == ModeRule::Exact { found.permissions().mode() & SET_GROUP } else { 0 };
            let own = if rule == ModeRule::Exact { bits & !SET_GROUP } else { bits };
            directory.set_permissions(Permissions::from_mode(own | inherited))
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
        // It was no link a moment ago. If it is one now, opening fails, and if it is a FIFO,
        // opening does not wait.
        Before::Truncate => options.truncate(true).custom_flags(NO_FOLLOW | NO_WAIT).open(path),
        Before::Through => options.create(true).truncate(true).custom_flags(NO_WAIT).open(path),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::process::Command;

    use larder_model::{Modified, Placement, Rewrite};

    use super::*;

    /// Puts something in the place of an output, as an attacker may do between its check and the
    /// moment when it is written: a link to another file, a link that leads nowhere, or a FIFO.
    fn exchanged(dir: &Path, what: &str, path: &Path) {
        match what {
            "link" => symlink(dir.join("own"), path).expect("can be made"),
            "dangling link" => symlink(dir.join("not there"), path).expect("can be made"),
            "link to a directory" => symlink(dir.join("private"), path).expect("can be made"),
            _ => {
                let made = Command::new("mkfifo").arg(path).status().expect("mkfifo runs");
                assert!(made.success(), "mkfifo failed");
            }
        }
    }

    #[test]
    fn what_is_exchanged_before_it_is_written_is_not_followed() {
        let dir = tempfile::tempdir().expect("can be made");
        let dir = dir.path();
        fs::write(dir.join("own"), "own").expect("can be written");
        fs::create_dir(dir.join("private")).expect("can be made");
        fs::set_permissions(dir.join("private"), Permissions::from_mode(0o700)).expect("is ours");
        let mode = FileMode { bits: 0o666, rule: ModeRule::Masked };
        let kind = OutputKind::File {
            placement: Placement::Replace,
            mode,
            rewrite: Rewrite::None,
            content: Content::Inline(b"forged"),
        };
        let output = Output { path: b"x", kind, modified: Modified::Written };
        for what in ["link", "dangling link", "link to a directory", "FIFO"] {
            for before in [Before::Nothing, Before::Unlink, Before::Truncate] {
                let path = dir.join("x");
                exchanged(dir, what, &path);
                let one = Planned { output: &output, path: path.clone(), before, blob: None, modified: None };
                let done = put_bytes(&path, &one, before);
                assert!(done.is_err(), "{what}, {before:?}");
                assert_eq!(fs::read(dir.join("own")).expect("is there"), b"own", "{what}, {before:?}");
                assert!(!dir.join("not there").exists(), "{what}, {before:?}");
                let _ = fs::remove_file(&path);
            }
            let path = dir.join("x");
            exchanged(dir, what, &path);
            for kind in [OutputKind::Link(b"own"), OutputKind::Directory(FileMode { bits: 0o777, rule: ModeRule::Set })]
            {
                let output = Output { path: b"x", kind, modified: Modified::Written };
                assert!(make(&path, &output).is_err(), "{what}");
            }
            fs::remove_file(&path).expect("is still there");
        }
        let bits = fs::metadata(dir.join("private")).expect("is there").permissions().mode();
        assert_eq!(bits & 0o777, 0o700);
    }

    #[test]
    fn directories_get_their_modes() {
        let dir = tempfile::tempdir().expect("can be made");
        for (bits, rule) in
            [(0, ModeRule::Set), (0o755, ModeRule::Exact), (0o1777, ModeRule::Set), (0o2750, ModeRule::Set)]
        {
            let path = dir.path().join(format!("{bits:o}"));
            let kind = OutputKind::Directory(FileMode { bits, rule });
            make(&path, &Output { path: b"x", kind, modified: Modified::Written }).expect("can be made");
            assert_eq!(fs::metadata(&path).expect("is there").permissions().mode() & 0o7777, bits);
        }
    }
}
