//! Turns calls into events: what a call will find is looked up just before the call is let go on.
//!
//! Unaware of: how notifications arrive and are answered.

use std::collections::{HashMap, HashSet};

use larder_sys::{ARCHITECTURE, Notification, Stat};

use super::calls::{At, CLONE_NEW, Call, rows};
use super::pending::Pending;
use super::process::{Caller, Trouble, process_of};
use super::vdso::Patches;
use crate::event::{RANDOM_BY_VDSO, identity_of};
use crate::{Event, EventKind};

/// The `extra` of an `EventKind::Drop` event: the reason (`LARDER_DROP_*` in `preload/log.h`).
pub(super) const DROP_CLASS: u32 = 3;
pub(super) const DROP_UNREADABLE: u32 = 5;
pub(super) const DROP_UNSUPPORTED: u32 = 8;
/// The `extra` of an `EventKind::Drop` event: a signal may have made a call fail with EINTR because the
/// kernel asked about that call.
pub const INTERRUPTED: u32 = 0x417;

/// All events so far, and the state that is needed to understand the next calls.
#[derive(Default)]
pub(super) struct Watch {
    pub(super) events: Vec<Event>,
    /// Calls that were let go on and whose effect is checked at their thread's next call.
    pub(super) pending: Vec<Pending>,
    /// Files that were opened for writing, by device and inode.
    pub(super) written: HashSet<(u64, u64)>,
    /// The path by which each directory was opened last, by device and inode.
    pub(super) directories: HashMap<(u64, u64), Vec<u8>>,
    /// The tool's first process, until the tool itself has begun.
    pub(super) not_begun: Option<u32>,
    /// The device and inode of our own program. If it is started again inside the run, it reports
    /// its work itself.
    pub(super) wrapper: (u64, u64),
    /// There is a log that a nested wrapper can write its report to.
    pub(super) wrapper_reports: bool,
    /// Processes that run a nested wrapper or that a nested wrapper has forked.
    pub(super) wrappers: HashSet<u32>,
    /// Processes whose new program has made no call yet, so its vDSO is not patched.
    pub(super) hidden_clocks: HashSet<u32>,
    /// The code that makes clocks visible. The outer `None` means that it was not looked up yet,
    /// the inner one that it cannot be done.
    pub(super) patches: Option<Option<Patches>>,
    /// A process has a signal handler that does not restart calls (without SA_RESTART).
    pub(super) may_be_interrupted: bool,
    calls: HashMap<i32, Call>,
    /// The process of each thread that is not the first thread of its process.
    threads: HashMap<u32, u32>,
}

/// A position in a [`Watch`], to take back what a call has added since.
pub(super) struct Mark {
    events: usize,
    pending: usize,
}

impl Watch {
    pub(super) fn new(wrapper_reports: bool) -> Watch {
        let wrapper = larder_sys::stat(b"/proc/self/exe").map_or((0, 0), |stat| stat.file_id());
        Watch {
            wrapper,
            wrapper_reports,
            calls: rows().map(|row| (row.number, row.call)).collect(),
            ..Watch::default()
        }
    }

    pub(super) fn mark(&self) -> Mark {
        Mark { events: self.events.len(), pending: self.pending.len() }
    }

    /// Removes everything that was added since `mark`.
    pub(super) fn take_back(&mut self, mark: &Mark) {
        self.events.truncate(mark.events);
        self.pending.truncate(mark.pending);
    }

    /// Returns true if the observation of `process` ends with the call since `mark`: either a new
    /// program begins, or a `Drop` event was written. Of a new program's events only the execution
    /// is kept, because the new program itself is not observed.
    pub(super) fn ends_by_executing(&mut self, mark: &Mark, process: u32) -> bool {
        let since = &self.events[mark.events..];
        let begins = since.iter().any(|event| event.kind == EventKind::Start);
        if !begins {
            return self.dropped_since(mark);
        }
        let mut rest = self.events.split_off(mark.events);
        rest.retain(|event| !matches!(event.kind, EventKind::Start | EventKind::Object));
        self.events.append(&mut rest);
        self.pending.truncate(mark.pending);
        self.hidden_clocks.remove(&process);
        self.wrappers.remove(&process);
        true
    }

    /// Returns true if an event since `mark` has a path that starts with these bytes.
    pub(super) fn names_since(&self, mark: &Mark, beginning: &[u8]) -> bool {
        self.events.iter().skip(mark.events).any(|event| event.path.starts_with(beginning))
    }

    /// Returns true if a `Drop` event was written since `mark`, after which the run cannot be
    /// recorded.
    pub(super) fn dropped_since(&self, mark: &Mark) -> bool {
        self.events.iter().skip(mark.events).any(|event| event.kind == EventKind::Drop)
    }

    /// Returns the thread that makes a call, and its process.
    pub(super) fn caller(&mut self, thread: u32) -> Caller {
        if larder_sys::is_thread_of(thread, thread) {
            return Caller { thread, process: thread };
        }
        let known = self.threads.get(&thread).copied().filter(|process| larder_sys::is_thread_of(thread, *process));
        let process = known.or_else(|| process_of(thread)).unwrap_or(thread);
        self.threads.insert(thread, process);
        Caller { thread, process }
    }

    /// Writes the events of what a call will do.
    pub(super) fn see(&mut self, caller: Caller, call: &Notification) {
        if call.architecture != ARCHITECTURE {
            return self.drop_event(caller, DROP_CLASS, b"a call of another architecture");
        }
        // The filter asks about this number, and our table does not have it. So it is from another
        // system call table of the same architecture (x32).
        let Some(what) = self.calls.get(&call.number).copied() else {
            return self.drop_event(caller, DROP_CLASS, b"a system call from another table");
        };
        match self.see_call(caller, call, what) {
            Ok(()) | Err(Trouble::Fault) => {}
            Err(Trouble::Unreadable) => {
                self.drop_event(caller, DROP_UNREADABLE, b"a process whose memory or directory cannot be read")
            }
        }
    }

    fn see_call(&mut self, caller: Caller, call: &Notification, what: Call) -> Result<(), Trouble> {
        let argument = |index: u8| call.arguments[usize::from(index)] as u32;
        let flags = |index: Option<u8>| index.map_or(0, argument) as i32;
        match what {
            Call::Execute(at, index) => self.execute(caller, call, at, flags(index))?,
            _ if self.wrappers.contains(&caller.process) => {}
            Call::Open(..) | Call::Create(..) | Call::OpenHow(..) => self.opening(caller, call, what)?,
            Call::Stat(at, index) => {
                let follow = flags(index) & libc::AT_SYMLINK_NOFOLLOW == 0;
                self.looking(caller, call, at, if follow { EventKind::Stat } else { EventKind::Lstat })?;
            }
            Call::Lstat(at) => self.looking(caller, call, at, EventKind::Lstat)?,
            Call::Access(at, mode, index) => self.access(caller, call, at, flags(mode) as u32, flags(index))?,
            Call::ReadLink(at) => self.read_link(caller, call, at)?,
            Call::List(index) => self.list(caller, argument(index) as i32)?,
            Call::Close(index) => self.close(caller, argument(index) as i32),
            Call::ChangeDirectory(at) => self.change_directory(caller, call, at)?,
            Call::Begin | Call::End => {}
            Call::Handle(index) => {
                /// `SIG_DFL` and `SIG_IGN`.
                const NO_HANDLERS: [u64; 2] = [0, 1];
                let address = call.arguments[usize::from(index)];
                if address != 0 {
                    let [handler, flags] = caller.numbers(address)?;
                    self.may_be_interrupted |= !NO_HANDLERS.contains(&handler) && flags & libc::SA_RESTART as u64 == 0;
                }
            }
            Call::Socket => self.number_event(caller, EventKind::Network, argument(0), b"socket"),
            Call::Address => self.address(caller, call)?,
            Call::Identity => self.number_event(caller, EventKind::Identity, 0, b"uname"),
            Call::Umask => self.number_event(caller, EventKind::Umask, argument(0) & 0o777, b""),
            Call::Clock(which) => self.clock(caller, which),
            Call::Random => {
                // libc's own calls for random bytes have this size.
                const LIBC_BYTES: u32 = 8;
                let is_libcs = argument(1) == LIBC_BYTES && argument(2) == libc::GRND_NONBLOCK;
                let what_for = match is_libcs {
                    true => caller.libc_draws(call.arguments[0]),
                    false if caller.is_in_vdso(call.instruction) => RANDOM_BY_VDSO,
                    false => 0,
                };
                self.number_event(caller, EventKind::Random, what_for, b"getrandom");
            }
            Call::CloneArguments => {
                const CLONE_NEWTIME: u64 = 0x80;
                let [how] = caller.numbers(call.arguments[0])?;
                if how & (u64::from(CLONE_NEW) | CLONE_NEWTIME) != 0 {
                    self.drop_event(caller, DROP_UNSUPPORTED, b"clone3");
                }
            }
            Call::SetUser(count) => {
                self.becomes(caller, call, count, larder_sys::effective_user(), b"another user");
            }
            Call::SetGroup(count) => {
                self.becomes(caller, call, count, larder_sys::effective_group(), b"another group");
            }
            Call::Unobservable(name) => self.drop_event(caller, DROP_UNSUPPORTED, name.as_bytes()),
            Call::Unlink(..)
            | Call::RemoveDirectory(..)
            | Call::Rename(..)
            | Call::Link(..)
            | Call::Symlink(..)
            | Call::MakeDirectory(..)
            | Call::MakeNode(..)
            | Call::Change(..)
            | Call::ChangeOpen(..) => self.changing(caller, call, what)?,
        }
        Ok(())
    }

    /// A process that changes its ids may read other files than we may. Many programs only set the
    /// ids that they already have, which changes nothing.
    fn becomes(&mut self, caller: Caller, call: &Notification, count: u8, who: u32, name: &[u8]) {
        const SAME: u32 = u32::MAX;
        let asked = call.arguments[..usize::from(count)].iter().map(|id| *id as u32);
        if asked.into_iter().any(|id| id != SAME && id != who) {
            self.drop_event(caller, DROP_UNSUPPORTED, name);
        }
    }

    // ------------------------------------------------------------ looking

    fn looking(&mut self, caller: Caller, call: &Notification, at: At, kind: EventKind) -> Result<(), Trouble> {
        // Without a path, the call is about a descriptor.
        let Some(path) = caller.path(call, at)? else { return Ok(()) };
        let here = caller.seen_from_here(&path);
        let found = if kind == EventKind::Stat { larder_sys::stat(&here) } else { larder_sys::lstat(&here) };
        let event = Event { ..looked(caller, kind, &found) };
        drop(here);
        self.events.push(Event { path, ..event });
        Ok(())
    }

    fn access(&mut self, caller: Caller, call: &Notification, at: At, mode: u32, flags: i32) -> Result<(), Trouble> {
        let Some(path) = caller.path(call, at)? else { return Ok(()) };
        let here = caller.seen_from_here(&path);
        let found = if flags & libc::AT_SYMLINK_NOFOLLOW != 0 {
            larder_sys::lstat(&here).map(drop)
        } else {
            larder_sys::may_access(&here, mode as u8 & 7, flags & libc::AT_EACCESS != 0)
        };
        let error = error_of(&found);
        drop(here);
        self.events.push(Event { path, error, extra: mode, ..bare(caller, EventKind::Access) });
        Ok(())
    }

    fn read_link(&mut self, caller: Caller, call: &Notification, at: At) -> Result<(), Trouble> {
        let Some(path) = caller.path(call, at)? else { return Ok(()) };
        let found = larder_sys::link_target(&caller.seen_from_here(&path));
        let error = error_of(&found);
        self.events.push(Event { path, error, path2: found.unwrap_or_default(), ..bare(caller, EventKind::ReadLink) });
        Ok(())
    }

    /// Writes the event of listing a directory, by the path that the directory was opened by.
    fn list(&mut self, caller: Caller, fd: i32) -> Result<(), Trouble> {
        let Ok(stat) = larder_sys::stat(&caller.descriptor_link(fd)) else { return Ok(()) };
        let identity = identity_of(&stat);
        let again = self.events.last().is_some_and(|last| {
            last.kind == EventKind::List && last.pid == caller.process && last.identity == Some(identity)
        });
        if again {
            return Ok(());
        }
        let path = match self.directories.get(&stat.file_id()) {
            Some(path) => path.clone(),
            None => caller.descriptor(fd)?,
        };
        self.events.push(Event { path, ..looked(caller, EventKind::List, &Ok(stat)) });
        Ok(())
    }

    /// Writes the state of a file when a descriptor that was opened for writing is closed.
    fn close(&mut self, caller: Caller, fd: i32) {
        if self.written.is_empty() {
            return;
        }
        let Ok(stat) = larder_sys::stat(&caller.descriptor_link(fd)) else { return };
        if self.written.contains(&stat.file_id()) && caller.writes(fd) {
            self.events.push(looked(caller, EventKind::Closed, &Ok(stat)));
        }
    }

    /// Writes the event of reading the clock, with the identity of standard output if that is a
    /// file.
    fn clock(&mut self, caller: Caller, which: u32) {
        let output = larder_sys::stat(&caller.descriptor_link(1)).ok();
        let identity = output.filter(|stat| stat.kind == larder_sys::FileType::File).as_ref().map(identity_of);
        self.events.push(Event { extra: which, identity, ..bare(caller, EventKind::Clock) });
    }

    fn address(&mut self, caller: Caller, call: &Notification) -> Result<(), Trouble> {
        const ADDRESS_BYTES_MAX: usize = 110;
        let bytes = caller.bytes(call.arguments[1], (call.arguments[2] as usize).min(ADDRESS_BYTES_MAX))?;
        let Some((family, name)) = bytes.split_at_checked(2) else { return Ok(()) };
        let family = u32::from(u16::from_ne_bytes([family[0], family[1]]));
        if family != libc::AF_UNIX as u32 {
            self.number_event(caller, EventKind::Network, family, b"");
            return Ok(());
        }
        let name = name.split(|&b| b == 0).next().unwrap_or_default();
        let missing = if name.starts_with(b"/") { larder_sys::stat(name) } else { Err(no_such_file()) };
        // libc connects to the socket of a name service cache in this way, and does without if
        // there is none.
        if call.number as libc::c_long == libc::SYS_connect
            && name.starts_with(b"/")
            && error_of(&missing) == libc::ENOENT
        {
            self.events.push(Event { path: name.to_vec(), ..looked(caller, EventKind::Stat, &missing) });
        } else {
            self.events.push(Event { path: name.to_vec(), ..bare(caller, EventKind::UnixSocket) });
        }
        Ok(())
    }

    pub(super) fn number_event(&mut self, caller: Caller, kind: EventKind, extra: u32, name: &[u8]) {
        self.events.push(Event { extra, path: name.to_vec(), ..bare(caller, kind) });
    }

    pub(super) fn drop_event(&mut self, caller: Caller, reason: u32, name: &[u8]) {
        self.number_event(caller, EventKind::Drop, reason, name);
    }
}

fn no_such_file() -> std::io::Error {
    std::io::Error::from_raw_os_error(libc::ENOENT)
}

/// Returns the errno of a result, or 0.
pub(super) fn error_of<T>(found: &std::io::Result<T>) -> i32 {
    found.as_ref().err().map_or(0, |error| error.raw_os_error().unwrap_or(libc::EIO))
}

/// Returns an event with only a process and a kind.
pub(super) fn bare(caller: Caller, kind: EventKind) -> Event {
    Event::new(caller.process, kind, Vec::new())
}

/// Returns an event with the result of a stat, or its error.
pub(super) fn looked(caller: Caller, kind: EventKind, found: &std::io::Result<Stat>) -> Event {
    match found {
        Ok(stat) => bare(caller, kind).with(stat),
        Err(_) => Event { error: error_of(found), ..bare(caller, kind) },
    }
}
