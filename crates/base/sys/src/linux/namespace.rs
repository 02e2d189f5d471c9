//! Namespaces of other processes: acting in their mount namespace, and how their user ids map to
//! ours.
//!
//! Unaware of: what is done in a namespace.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::event::PollFlags;
use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::thread::{
    CapabilitySet, ThreadNameSpaceType, UnshareFlags, capabilities, clear_ambient_capability_set,
    configure_capability_in_ambient_set, move_into_thread_name_spaces, set_capabilities, unshare_unsafe,
};

use super::Channel;
use super::poll::found_now;

/// A range of user or group ids in a file system, and the ids that they are shown as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerRange {
    /// The first id in the file system.
    pub stored: u32,
    /// The id that the first one is shown as.
    pub seen: u32,
    /// The number of consecutive ids, at least 1.
    pub count: u32,
}

/// Runs `act` on a thread that is in another mount namespace. `namespace` is a mount namespace or a
/// process. The thread keeps this process's rights.
pub fn in_mount_namespace<T: Send>(namespace: BorrowedFd, act: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let act = || {
        // SAFETY: only this thread gets a working directory of its own; descriptors stay shared.
        unsafe { unshare_unsafe(UnshareFlags::FS) }?;
        move_into_thread_name_spaces(namespace, ThreadNameSpaceType::MOUNT)?;
        act()
    };
    on_a_thread(act)
}

/// Runs `act` on a thread, and waits for it. `act` may give the thread a working directory or
/// namespaces of its own.
pub(super) fn on_a_thread<T: Send>(act: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, act)?;
        thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread with a namespace of its own panicked")))
    })
}

/// Opens a process (`pidfd_open`). The descriptor still means this process after its pid was
/// reused.
pub fn open_process(pid: u32) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(pid as i32).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

/// Returns true if an opened process has ended.
pub fn process_ended(process: impl AsFd) -> io::Result<bool> {
    Ok(!found_now(&process, PollFlags::IN)?.is_empty())
}

/// Kills an opened process.
pub fn kill_process(process: impl AsFd) -> io::Result<()> {
    Ok(rustix::process::pidfd_send_signal(process, rustix::process::Signal::KILL)?)
}

/// Returns the process at the other end of a socket, as it was when it connected. Linux 6.5.
pub fn peer_process(channel: &Channel) -> io::Result<OwnedFd> {
    let mut fd: i32 = -1;
    let mut length = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the kernel writes to our own integers, whose size is passed.
    let done = unsafe {
        let socket = channel.descriptor().as_raw_fd();
        libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_PEERPIDFD, (&raw mut fd).cast(), &mut length)
    };
    if done != 0 || fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, and no other code has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Returns true if the process at the other end has our user, and may mount in our user namespace
/// as it is now. A process without that right, or with it in a namespace of its own only, may have
/// our user as well. Linux 6.5.
pub fn peer_may_mount(channel: &Channel) -> io::Result<bool> {
    const MAY_MOUNT: u64 = 1 << 21;
    if channel.peer()?.user != super::effective_user() {
        return Ok(false);
    }
    let process = peer_process(channel)?;
    let directory = format!("/proc/{}", process_number(&process)?);
    let status = std::fs::read_to_string(format!("{directory}/status"))?;
    let rights = super::process::set_in(&status, "CapEff:");
    let users = |of: &str| std::fs::read_link(format!("{of}/ns/user"));
    let is_among_us = users(&directory)? == users("/proc/self")?;
    // If the process has ended, another one may have had its pid when the files were read.
    Ok(is_among_us && rights.is_some_and(|rights| rights & MAY_MOUNT != 0) && !process_ended(&process)?)
}

/// Begins a new session, so that signals from a terminal do not reach this process. Does nothing if
/// it leads a session already.
pub fn lead_session() {
    let _ = rustix::process::setsid();
}

/// Returns the pid of an opened process in our pid namespace. Fails if it has ended.
pub fn process_number(process: impl AsFd) -> io::Result<u32> {
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", process.as_fd().as_raw_fd()))?;
    let pid = text.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse::<i32>().ok());
    // The number is 0 for a process of another pid namespace, and -1 for one that has ended.
    let number = pid.and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid > 0);
    number.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
}

/// Returns the mount namespace of an opened process: a descriptor, and the kernel's name for it.
/// For example, the name is `mnt:[4026531841]`.
pub fn mounts_of(process: impl AsFd) -> io::Result<(OwnedFd, String)> {
    let path = format!("/proc/{}/ns/mnt", process_number(&process)?);
    let namespace = OwnedFd::from(File::open(path)?);
    let name = std::fs::read_link(format!("/proc/self/fd/{}", namespace.as_raw_fd()))?;
    // If the process has ended, another one may have had its pid when the path was opened.
    match process_ended(&process)? {
        true => Err(io::Error::from(io::ErrorKind::NotFound)),
        false => Ok((namespace, name.to_string_lossy().into_owned())),
    }
}

/// Returns true if a namespace belongs to another user namespace than ours. Then a process without
/// rights over the machine may have created it.
pub fn is_of_other_users(namespace: BorrowedFd) -> io::Result<bool> {
    const GET_USER_NAMESPACE: u64 = 0xb701;
    // SAFETY: no pointer is passed; the result is a descriptor.
    let fd = unsafe { libc::ioctl(namespace.as_raw_fd(), GET_USER_NAMESPACE as _) };
    if fd < 0 {
        let error = io::Error::last_os_error();
        // EPERM means that the owner is neither our user namespace nor one below it.
        return if error.kind() == io::ErrorKind::PermissionDenied { Ok(true) } else { Err(error) };
    }
    // SAFETY: the descriptor is new, and no other code has it.
    let owner = unsafe { OwnedFd::from_raw_fd(fd) };
    let owner = std::fs::read_link(format!("/proc/self/fd/{}", owner.as_raw_fd()))?;
    Ok(owner != std::fs::read_link("/proc/self/ns/user")?)
}

/// Moves this process into new user and mount namespaces. It keeps its user and group ids and may
/// mount there. The process must have one thread.
///
/// After an error nothing has changed. To ensure that, it is tried in a child first, because there
/// is no way back from half of it: some systems allow the namespace, but grant no right in it.
pub fn own_namespaces() -> io::Result<()> {
    // SAFETY: there is one thread, and the child ends without returning.
    match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        0 => super::end_process(enter().map_or_else(|error| error.raw_os_error().unwrap_or(libc::EIO), |()| 0) as u8),
        pid => match (super::Child { pid }).wait()? {
            super::ChildEnd::Exited(0) => {}
            super::ChildEnd::Exited(number) => return Err(io::Error::from_raw_os_error(i32::from(number))),
            super::ChildEnd::Signalled(_) => return Err(io::Error::other("the child that tried it was killed")),
        },
    }
    enter()
}

fn enter() -> io::Result<()> {
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    // SAFETY: there is one thread, and descriptors are not affected.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNS) }?;
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
    Ok(mount_change(c"/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?)
}

/// Returns true if this process is in the initial user namespace, or in one that maps all ids to
/// themselves. Also returns true if the map cannot be read.
pub fn is_of_first_users() -> bool {
    const ALL: [&str; 3] = ["0", "0", "4294967295"];
    let map = std::fs::read_to_string("/proc/self/uid_map");
    map.map_or(true, |map| map.split_whitespace().eq(ALL))
}

/// Returns true if this process has the right to mount and unmount in its mount namespace
/// (CAP_SYS_ADMIN).
pub fn may_mount() -> bool {
    capabilities(None).is_ok_and(|own| own.effective.contains(CapabilitySet::SYS_ADMIN))
}

/// Runs `act` while every program that is started inherits this process's right to mount
/// (CAP_SYS_ADMIN), whatever its user.
pub fn lending_mount_rights<T>(act: impl FnOnce() -> T) -> T {
    let own = capabilities(None);
    let lend = || -> io::Result<()> {
        let mut sets = capabilities(None)?;
        sets.inheritable |= CapabilitySet::SYS_ADMIN;
        set_capabilities(None, sets)?;
        Ok(configure_capability_in_ambient_set(CapabilitySet::SYS_ADMIN, true)?)
    };
    // This fails if the process does not have the right. Then there is nothing to pass on.
    let _ = lend();
    let done = act();
    let _ = clear_ambient_capability_set();
    let _ = own.and_then(|own| set_capabilities(None, own));
    done
}

/// Creates a user namespace that maps ids like this, for `set_mount_owners`. It needs the right to
/// map the ids of other users.
pub fn owners_namespace(users: &[OwnerRange], groups: &[OwnerRange]) -> io::Result<OwnedFd> {
    let child = sleeper()?;
    let open = || {
        let map = |name: &str, ranges: &[OwnerRange]| {
            let line = |range: &OwnerRange| format!("{} {} {}\n", range.stored, range.seen, range.count);
            let text: String = ranges.iter().map(line).collect();
            // The kernel accepts a map only in one write.
            File::options().write(true).open(format!("/proc/{child}/{name}"))?.write_all(text.as_bytes())
        };
        map("uid_map", users)?;
        map("gid_map", groups)?;
        Ok(OwnedFd::from(File::open(format!("/proc/{child}/ns/user"))?))
    };
    let namespace = open();
    // SAFETY: kills and collects the child that was made above. Its pid is not reused before that.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, std::ptr::null_mut(), libc::__WALL);
    }
    namespace
}

/// Starts a process in a new user namespace that does nothing until it is killed.
fn sleeper() -> io::Result<libc::pid_t> {
    let flags = libc::CLONE_NEWUSER | libc::SIGCHLD;
    // SAFETY: this is like `fork`, with a new user namespace. The child only makes system calls,
    // which is all that is allowed after forking a process with threads.
    let child = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    match child {
        0 => {
            // SAFETY: the child asks to be killed with the thread that made it, and waits.
            unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                loop {
                    libc::pause();
                }
            }
        }
        child if child > 0 => Ok(child as libc::pid_t),
        _ => Err(io::Error::last_os_error()),
    }
}
