//! Changes of names and attributes: foresees their result, and notes what must be visible
//! afterwards.
//!
//! Unaware of: how notifications arrive and are answered.

use std::io;

use larder_model::path::{file_name, parent, without_slashes};
use larder_sys::{FileType, Notification, Stat};

use super::calls::{At, Call};
use super::open::{error_of_making, may_make_in};
use super::pending::{Expected, Pending};
use super::process::{Caller, Trouble};
use super::watch::{DROP_UNSUPPORTED, Watch, bare, error_of};
use crate::event::OF_LINK;
use crate::{Event, EventKind, OpenFlags};

const RENAME_NOREPLACE: u32 = 1;

impl Watch {
    pub(super) fn changing(&mut self, caller: Caller, call: &Notification, what: Call) -> Result<(), Trouble> {
        let argument = |index: u8| call.arguments[usize::from(index)] as u32;
        let flags = |index: Option<u8>| index.map_or(0, argument);
        match what {
            Call::Unlink(at, index) if flags(index) & libc::AT_REMOVEDIR as u32 != 0 => {
                self.remove(caller, call, at, EventKind::RemoveDirectory)?;
            }
            Call::Unlink(at, _) => self.remove(caller, call, at, EventKind::Unlink)?,
            Call::RemoveDirectory(at) => self.remove(caller, call, at, EventKind::RemoveDirectory)?,
            Call::Rename(from, to, index) => self.rename(caller, call, (from, to), flags(index))?,
            Call::Link(from, to) => {
                let (Some(path), Some(path2)) = (caller.path(call, from)?, caller.path(call, to)?) else {
                    // The old path is a descriptor (`AT_EMPTY_PATH`).
                    self.drop_event(caller, DROP_UNSUPPORTED, b"linkat");
                    return Ok(());
                };
                let error = match larder_sys::lstat(&path) {
                    Ok(old) => match error_of_making(&path2, false) {
                        0 if old.kind == FileType::Directory => libc::EPERM,
                        error => error,
                    },
                    old => error_of(&old),
                };
                self.changed(caller, Event { path, path2, error, ..bare(caller, EventKind::Link) }, None);
            }
            Call::Symlink(text, at) => {
                let path = caller.text(call.arguments[usize::from(text)])?;
                let Some(path2) = caller.path(call, at)? else { return Ok(()) };
                let error = error_of_making(&path2, false);
                let there = Some((path2.clone(), Expected::There));
                self.changed(caller, Event { path, path2, error, ..bare(caller, EventKind::Symlink) }, there);
            }
            Call::MakeDirectory(at, mode) => self.make(caller, call, at, EventKind::MakeDirectory, argument(mode))?,
            Call::MakeNode(at, mode) => self.make(caller, call, at, EventKind::MakeNode, argument(mode))?,
            Call::Change(kind, at, extra, index) => {
                let follow = flags(index) & libc::AT_SYMLINK_NOFOLLOW as u32 == 0;
                // `utimensat` with a null path is about the descriptor itself.
                let of_descriptor = at.dir.filter(|_| call.arguments[usize::from(at.path)] == 0);
                let path = match of_descriptor {
                    Some(dir) => Some(caller.descriptor(argument(dir) as i32)?),
                    None => caller.path(call, at)?,
                };
                let path = match (path, at.dir) {
                    (None, Some(dir)) if flags(index) & libc::AT_EMPTY_PATH as u32 != 0 => {
                        caller.descriptor(argument(dir) as i32)?
                    }
                    (None, _) => return Ok(()),
                    (Some(path), _) => path,
                };
                self.change(caller, kind, path, flags(extra), follow);
            }
            Call::ChangeOpen(kind, fd, extra) => {
                let path = caller.descriptor(argument(fd) as i32)?;
                self.change(caller, kind, path, flags(extra), true);
            }
            _ => {}
        }
        Ok(())
    }

    fn changed(&mut self, caller: Caller, event: Event, expected: Option<(Vec<u8>, Expected)>) {
        if event.error == 0
            && let Some((path, expected)) = expected
        {
            self.pending.push(Pending { caller, path, expected });
        }
        self.events.push(event);
    }

    fn remove(&mut self, caller: Caller, call: &Notification, at: At, kind: EventKind) -> Result<(), Trouble> {
        let Some(path) = caller.path(call, at)? else { return Ok(()) };
        let found = larder_sys::lstat(without_slashes(&path));
        let error = match (file_name(without_slashes(&path)), kind) {
            (b".", EventKind::RemoveDirectory) => libc::EINVAL,
            (b"..", EventKind::RemoveDirectory) => libc::ENOTEMPTY,
            _ => error_of(&found.and_then(|stat| may_remove(&path, &stat, kind))),
        };
        let gone = Some((path.clone(), Expected::Gone));
        self.changed(caller, Event { path, error, ..bare(caller, kind) }, gone);
        Ok(())
    }

    fn rename(&mut self, caller: Caller, call: &Notification, at: (At, At), flags: u32) -> Result<(), Trouble> {
        let (Some(path), Some(path2)) = (caller.path(call, at.0)?, caller.path(call, at.1)?) else { return Ok(()) };
        if flags & !RENAME_NOREPLACE != 0 {
            self.drop_event(caller, DROP_UNSUPPORTED, b"renameat2");
            return Ok(());
        }
        let fresh = error_of(&larder_sys::lstat(without_slashes(&path2))) == libc::ENOENT;
        let error = match flags & RENAME_NOREPLACE != 0 && !fresh {
            true => libc::EEXIST,
            false => error_of(&may_rename(&path, &path2)),
        };
        let there = Some((path2.clone(), Expected::There));
        let kind = EventKind::Rename(OpenFlags(if fresh { OpenFlags::NEW } else { 0 }));
        self.changed(caller, Event { path, path2, error, ..bare(caller, kind) }, there);
        Ok(())
    }

    fn make(&mut self, caller: Caller, call: &Notification, at: At, kind: EventKind, mode: u32) -> Result<(), Trouble> {
        let Some(path) = caller.path(call, at)? else { return Ok(()) };
        let error = error_of_making(&path, kind == EventKind::MakeDirectory);
        let there = Some((path.clone(), Expected::There));
        self.changed(caller, Event { path, error, extra: mode, ..bare(caller, kind) }, there);
        Ok(())
    }

    fn change(&mut self, caller: Caller, kind: EventKind, path: Vec<u8>, extra: u32, follow: bool) {
        let here = caller.seen_from_here(&path);
        let found = if follow { larder_sys::stat(&here) } else { larder_sys::lstat(&here) };
        let error = error_of(&found.and_then(|stat| may_change(&stat)));
        drop(here);
        let mode = if follow { 0 } else { OF_LINK };
        self.events.push(Event { path, error, extra, mode, ..bare(caller, kind) });
    }
}

fn refused(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

fn may_remove(path: &[u8], stat: &Stat, kind: EventKind) -> io::Result<()> {
    let directory = stat.kind == FileType::Directory;
    match kind {
        EventKind::Unlink if directory => return Err(refused(libc::EISDIR)),
        EventKind::Unlink if path.ends_with(b"/") => return Err(refused(libc::ENOTDIR)),
        EventKind::RemoveDirectory if !directory => return Err(refused(libc::ENOTDIR)),
        EventKind::RemoveDirectory if has_names(path) => return Err(refused(libc::ENOTEMPTY)),
        _ => {}
    }
    may_make_in(path)
}

fn has_names(path: &[u8]) -> bool {
    std::fs::read_dir(larder_sys::as_path(path)).is_ok_and(|mut names| names.next().is_some())
}

fn may_rename(from: &[u8], to: &[u8]) -> io::Result<()> {
    if [from, to].iter().any(|path| matches!(file_name(without_slashes(path)), b"." | b"..")) {
        return Err(refused(libc::EBUSY));
    }
    let stat = larder_sys::lstat(without_slashes(from))?;
    let directory = stat.kind == FileType::Directory;
    if !directory && (from.ends_with(b"/") || to.ends_with(b"/")) {
        return Err(refused(libc::ENOTDIR));
    }
    may_make_in(from)?;
    may_make_in(to)?;
    match larder_sys::lstat(without_slashes(to)) {
        Ok(old) if old.device != stat.device => Err(refused(libc::EXDEV)),
        Ok(old) if old.kind == FileType::Directory && !directory => Err(refused(libc::EISDIR)),
        Ok(old) if old.kind != FileType::Directory && directory => Err(refused(libc::ENOTDIR)),
        Ok(_) if directory && has_names(to) => Err(refused(libc::ENOTEMPTY)),
        Ok(_) => Ok(()),
        Err(_) => match larder_sys::stat(parent(without_slashes(to)).unwrap_or(b".")) {
            Ok(place) if place.device != stat.device => Err(refused(libc::EXDEV)),
            place => place.map(drop),
        },
    }
}

/// Succeeds if we may change the attributes of a file: only its owner and the superuser may. Others
/// may change some attributes after all, for example the times of a file that they can write. The
/// foreseen failure is wrong then, and its only effect is that the run is not recorded.
fn may_change(stat: &Stat) -> io::Result<()> {
    let user = larder_sys::effective_user();
    if user == 0 || user == stat.owner { Ok(()) } else { Err(refused(libc::EPERM)) }
}
