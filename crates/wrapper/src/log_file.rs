//! Opens the files to which wrappers append lines: `LARDER_LOG`, and the record of a build.
//!
//! Unaware of: what the lines say.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens the log for appending. It never blocks: neither on a FIFO without a reader nor on a
/// stopped terminal.
///
/// It fails in two cases:
///
/// - The size of files is limited (`RLIMIT_FSIZE`), because SIGXFSZ would kill us before the tool
///   has run.
/// - The file belongs to another ordinary user. In `/tmp`, for example, that user may have made it
///   or a link to a file of ours.
pub(crate) fn open_log(path: &Path) -> io::Result<File> {
    const O_NONBLOCK: i32 = 0o4000;
    const O_NOCTTY: i32 = 0o400;
    const CHARACTER_DEVICE: larder_sys::FileType = larder_sys::FileType::Other(0o2);
    let trusted = |stat: larder_sys::Stat| match stat.owner {
        0 => Ok(()),
        owner if owner == larder_sys::effective_user() || stat.kind == CHARACTER_DEVICE => Ok(()),
        _ => Err(io::Error::from(io::ErrorKind::PermissionDenied)),
    };
    if larder_sys::file_size_is_limited() {
        return Err(io::Error::other("the size of files is limited"));
    }
    match larder_sys::lstat(path.as_os_str().as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        there => trusted(there?)?,
    }
    let flags = O_NONBLOCK | O_NOCTTY;
    let file = OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(flags).open(path)?;
    trusted(larder_sys::fstat(&file)?)?;
    Ok(file)
}
