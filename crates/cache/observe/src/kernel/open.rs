//! Opening: foresees the result of an `open` from what is in the file system.
//!
//! Unaware of: how notifications arrive and are answered.

use std::io;

use larder_model::contains;
use larder_model::path::{parent, without_slashes};
use larder_sys::{FileType, Notification, Stat};

use super::calls::{At, Call};
use super::pending::{Expected, Pending};
use super::process::{Caller, Trouble};
use super::watch::{DROP_UNSUPPORTED, Watch, error_of, looked};
use crate::event::{Event, EventKind, LOCAL_TIME, OpenFlags, identity_of, mode_of};

const EXECUTE: u8 = 1;
const WRITE: u8 = 2;
const READ: u8 = 4;

/// Converts the flags of `open` into those of the trace.
fn open_flags(flags: i32) -> OpenFlags {
    let access = match flags & libc::O_ACCMODE {
        _ if flags & libc::O_PATH != 0 => OpenFlags::PATH_ONLY,
        libc::O_RDONLY => OpenFlags::READ,
        libc::O_WRONLY => OpenFlags::WRITE,
        _ => OpenFlags::READ | OpenFlags::WRITE,
    };
    let others = [
        (libc::O_CREAT, OpenFlags::CREATE),
        (libc::O_EXCL, OpenFlags::EXCLUSIVE),
        (libc::O_TRUNC, OpenFlags::TRUNCATE),
        (libc::O_APPEND, OpenFlags::APPEND),
        (libc::O_DIRECTORY, OpenFlags::DIRECTORY),
    ];
    OpenFlags(others.iter().fold(access, |all, (flag, bit)| if flags & flag != 0 { all | bit } else { all }))
}

impl Watch {
    pub(super) fn opening(&mut self, caller: Caller, call: &Notification, what: Call) -> Result<(), Trouble> {
        let argument = |index: u8| call.arguments[usize::from(index)];
        let (at, flags, mode) = match what {
            Call::Open(at, flags, mode) => (at, argument(flags) as i32, argument(mode) as u32),
            Call::Create(at, mode) => (at, libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC, argument(mode) as u32),
            Call::OpenHow(at, how) => {
                let [flags, mode, resolve] = caller.numbers(argument(how))?;
                if resolve != 0 {
                    self.drop_event(caller, DROP_UNSUPPORTED, b"openat2");
                    return Ok(());
                }
                (at, flags as i32, mode as u32)
            }
            _ => return Ok(()),
        };
        let Some(path) = caller.path(call, at)? else { return Ok(()) };
        let here = caller.seen_from_here(&path).into_owned();
        if flags & O_TMPFILE == O_TMPFILE {
            // A file without a name, as glibc's `tmpfile` makes one, is an affair of the process. Only
            // `linkat` gives it a name, and such a run is refused.
            if larder_sys::may_access(&here, WRITE | EXECUTE, true).is_err() {
                self.drop_event(caller, DROP_UNSUPPORTED, b"O_TMPFILE");
            }
            return Ok(());
        }
        let found = found(&here, flags);
        let makes = matches!(found, Ok(None));
        let stat = found.and_then(|stat| stat.ok_or_else(|| io::Error::from_raw_os_error(0)));
        let kind = EventKind::Open(OpenFlags(open_flags(flags).0 | if makes { OpenFlags::NEW } else { 0 }));
        let creates = flags & libc::O_CREAT != 0;
        let event = Event { extra: if creates { mode } else { 0 }, ..looked(caller, kind, &stat) };
        if makes {
            let expected = Expected::Made { event: self.events.len() };
            self.pending.push(Pending { caller, path: here, expected });
        }
        if let Ok(stat) = &stat {
            self.note(stat, flags, &path);
        }
        let zone = names_time_zone(&path);
        self.events.push(Event { path, ..event });
        if zone {
            self.number_event(caller, EventKind::Clock, LOCAL_TIME, b"");
        }
        Ok(())
    }

    fn note(&mut self, stat: &Stat, flags: i32, path: &[u8]) {
        let key = stat.file_id();
        if stat.kind == FileType::Directory {
            self.directories.insert(key, path.to_vec());
        } else if flags & libc::O_ACCMODE != libc::O_RDONLY && flags & libc::O_PATH == 0 {
            self.written.insert(key);
        }
    }

    /// Writes the event of a `chdir` in the way the preloaded library does: an open of the
    /// directory with `O_PATH`.
    pub(super) fn change_directory(&mut self, caller: Caller, call: &Notification, at: At) -> Result<(), Trouble> {
        let Some(path) = caller.path(call, at)? else { return Ok(()) };
        let here = caller.seen_from_here(&path);
        let found = larder_sys::stat(&here).and_then(|stat| match stat.kind {
            FileType::Directory => larder_sys::may_access(&here, EXECUTE, true).map(|()| stat),
            _ => Err(io::Error::from_raw_os_error(libc::ENOTDIR)),
        });
        let flags = OpenFlags(OpenFlags::PATH_ONLY | OpenFlags::DIRECTORY);
        let event = looked(caller, EventKind::Open(flags), &found);
        drop(here);
        self.events.push(Event { path, ..event });
        Ok(())
    }

    /// Completes the event of a call that created a file, now that its identity is known. The file
    /// was empty when it was created.
    pub(super) fn made(&mut self, event: usize, stat: &Stat) {
        self.written.insert(stat.file_id());
        if let Some(event) = self.events.get_mut(event) {
            event.identity = Some(larder_model::Identity { size_bytes: 0, ..identity_of(stat) });
            event.mode = mode_of(stat);
        }
    }
}

/// Returns true if libc reads this path to convert a time to local time.
fn names_time_zone(path: &[u8]) -> bool {
    path == b"/etc/localtime" || contains(path, "/zoneinfo/")
}

/// The flag includes `O_DIRECTORY`, so all of its bits must be compared.
const O_TMPFILE: i32 = libc::O_TMPFILE;

/// Foresees the result of an `open`: the file that will be opened, `None` if a file will be
/// created, or the error.
fn found(path: &[u8], flags: i32) -> io::Result<Option<Stat>> {
    let has = |flag: i32| flags & flag != 0;
    let error = |number| Err(io::Error::from_raw_os_error(number));
    let exclusive = has(libc::O_CREAT) && has(libc::O_EXCL);
    let path_only = has(libc::O_PATH);
    if has(libc::O_CREAT) && !path_only && path.ends_with(b"/") {
        // The kernel makes no file with such a name, whether or not the path exists.
        let above = parent(without_slashes(path)).unwrap_or(path);
        larder_sys::may_access(above, EXECUTE, true)?;
        return error(libc::EISDIR);
    }
    let looked = if has(libc::O_NOFOLLOW) || exclusive { larder_sys::lstat(path) } else { larder_sys::stat(path) };
    let stat = match looked {
        Err(missing) if has(libc::O_CREAT) && !path_only && error_number(&missing) == libc::ENOENT => {
            return may_make_in(path).map(|()| None);
        }
        other => other?,
    };
    let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
    match stat.kind {
        _ if exclusive && !path_only => return error(libc::EEXIST),
        FileType::Link if !path_only && !has(libc::O_DIRECTORY) => return error(libc::ELOOP),
        FileType::Directory if !path_only && (writes || has(libc::O_CREAT)) => return error(libc::EISDIR),
        FileType::Directory => {}
        _ if has(libc::O_DIRECTORY) => return error(libc::ENOTDIR),
        _ => {}
    }
    if path_only {
        return Ok(Some(stat));
    }
    let reads = flags & libc::O_ACCMODE != libc::O_WRONLY;
    // A file that every user may read needs no further check.
    if reads && stat.mode & 0o444 != 0o444 {
        larder_sys::may_access(path, READ, true)?;
    }
    if writes || has(libc::O_TRUNC) {
        larder_sys::may_access(path, WRITE, true)?;
    }
    Ok(Some(stat))
}

fn error_number(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

/// Succeeds if a name can be created at `path` or removed from it: its directory exists and may be
/// written.
pub(super) fn may_make_in(path: &[u8]) -> io::Result<()> {
    larder_sys::may_access(parent(without_slashes(path)).unwrap_or(path), WRITE | EXECUTE, true)
}

/// Returns the errno of a change that requires that `path` does not exist yet, or 0. Only a directory
/// can be made with a slash at the end of its path.
pub(super) fn error_of_making(path: &[u8], is_directory: bool) -> i32 {
    match larder_sys::lstat(without_slashes(path)) {
        Ok(_) => libc::EEXIST,
        Err(missing) if error_number(&missing) == libc::ENOENT && path.ends_with(b"/") && !is_directory => libc::ENOENT,
        Err(missing) if error_number(&missing) == libc::ENOENT => error_of(&may_make_in(path)),
        Err(other) => error_number(&other),
    }
}
