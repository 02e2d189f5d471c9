//! Namespaces of others: acting in their mounts, and what their owners are here.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::thread::{
    CapabilitySet, ThreadNameSpaceType, UnshareFlags, capabilities, clear_ambient_capability_set,
    configure_capability_in_ambient_set, move_into_thread_name_spaces, set_capabilities, unshare_unsafe,
};

use super::Channel;

/// Owners as a file system has them, and as they are to be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerRange {
    /// The first, in the file system.
    pub stored: u32,
    /// What it is seen as.
    pub seen: u32,
    /// How many follow each other so, at least 1.
    pub count: u32,
}

/// Do something on a thread in a mount namespace, or in that of a process. All rights are this process's own.
pub fn in_mount_namespace<T: Send>(namespace: BorrowedFd, act: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let act = || {
        // SAFETY: this thread alone gets a working directory of its own; descriptors stay shared.
        unsafe { unshare_unsafe(UnshareFlags::FS) }?;
        move_into_thread_name_spaces(namespace, ThreadNameSpaceType::MOUNT)?;
        act()
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, act)?;
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread in the other namespace panicked")))
    })
}

/// A process, as long as it lives: nobody else is meant once its number is given away.
pub fn open_process(pid: u32) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(pid as i32).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

/// Whether an opened process has ended.
pub fn process_ended(process: impl AsFd) -> io::Result<bool> {
    let mut asked = [PollFd::new(&process, PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut asked, Some(&at_once))?;
    Ok(!asked[0].revents().is_empty())
}

/// Kill an opened process.
pub fn kill_process(process: impl AsFd) -> io::Result<()> {
    Ok(rustix::process::pidfd_send_signal(process, rustix::process::Signal::KILL)?)
}

/// The process at the other end of a socket, as it was when it connected. Linux 6.5.
pub fn peer_process(channel: &Channel) -> io::Result<OwnedFd> {
    let mut fd: i32 = -1;
    let mut length = size_of::<i32>() as libc::socklen_t;
    // SAFETY: both are ours and of the size that is said.
    let done = unsafe {
        let socket = channel.descriptor().as_raw_fd();
        libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_PEERPIDFD, (&raw mut fd).cast(), &mut length)
    };
    if done != 0 || fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Begin a session of our own, which no terminal's signals reach. No error where we lead one already.
pub fn lead_session() {
    let _ = rustix::process::setsid();
}

/// The number of an opened process here, as long as it lives.
pub fn process_number(process: impl AsFd) -> io::Result<u32> {
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", process.as_fd().as_raw_fd()))?;
    let pid = text.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse::<i32>().ok());
    // It is 0 for a process of another namespace, and -1 for one that has ended.
    let number = pid.and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid > 0);
    number.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
}

/// What an opened process sees as mounts: a descriptor, and the name by which the kernel tells it from others.
pub fn mounts_of(process: impl AsFd) -> io::Result<(OwnedFd, String)> {
    let path = format!("/proc/{}/ns/mnt", process_number(&process)?);
    let namespace = OwnedFd::from(File::open(path)?);
    let name = std::fs::read_link(format!("/proc/self/fd/{}", namespace.as_raw_fd()))?;
    // Its number may have been given away before the path was opened.
    match process_ended(&process)? {
        true => Err(io::Error::from(io::ErrorKind::NotFound)),
        false => Ok((namespace, name.to_string_lossy().into_owned())),
    }
}

/// Whether a namespace belongs to another user namespace than ours: somebody made it without rights over the machine.
pub fn is_of_other_users(namespace: BorrowedFd) -> io::Result<bool> {
    const GET_USER_NAMESPACE: u64 = 0xb701;
    // SAFETY: takes nothing, gives a descriptor.
    let fd = unsafe { libc::ioctl(namespace.as_raw_fd(), GET_USER_NAMESPACE as _) };
    if fd < 0 {
        let error = io::Error::last_os_error();
        // It belongs to one that is none of ours, nor below.
        return if error.kind() == io::ErrorKind::PermissionDenied { Ok(true) } else { Err(error) };
    }
    // SAFETY: a new descriptor that nobody else has.
    let owner = unsafe { OwnedFd::from_raw_fd(fd) };
    let owner = std::fs::read_link(format!("/proc/self/fd/{}", owner.as_raw_fd()))?;
    Ok(owner != std::fs::read_link("/proc/self/ns/user")?)
}

/// Give this process a user and a mount namespace of its own, in which it keeps its numbers and may mount. Only for a
/// process of one thread. An error leaves it as it was: it is tried in a child first, since there is no way back from
/// half of it (some systems give a namespace, and then no right in it).
pub fn own_namespaces() -> io::Result<()> {
    // SAFETY: there is one thread; the child ends without returning.
    match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        0 => super::end_process(enter().map_or_else(|error| error.raw_os_error().unwrap_or(libc::EIO), |()| 0) as u8),
        pid => match (super::Child { pid }).wait()? {
            super::ChildEnd::Exited(0) => {}
            super::ChildEnd::Exited(number) => return Err(io::Error::from_raw_os_error(i32::from(number))),
            super::ChildEnd::Signalled(_) => return Err(io::Error::other("whoever tried it was killed")),
        },
    }
    enter()
}

fn enter() -> io::Result<()> {
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    // SAFETY: there is one thread, and descriptors stay what they are.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNS) }?;
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
    Ok(mount_change(c"/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?)
}

/// Whether we are in the user namespace that the system began with, or one that has all users of it: true where that
/// cannot be seen.
pub fn is_of_first_users() -> bool {
    const ALL: [&str; 3] = ["0", "0", "4294967295"];
    let map = std::fs::read_to_string("/proc/self/uid_map");
    map.map_or(true, |map| map.split_whitespace().eq(ALL))
}

/// Whether this process may mount and unmount among the mounts that it sees, as far as its rights go.
pub fn may_mount() -> bool {
    capabilities(None).is_ok_and(|own| own.effective.contains(CapabilitySet::SYS_ADMIN))
}

/// Do something while programs that are started inherit the right to mount that this process has in its own namespace,
/// whatever their user.
pub fn lending_mount_rights<T>(act: impl FnOnce() -> T) -> T {
    let own = capabilities(None);
    let lend = || -> io::Result<()> {
        let mut sets = capabilities(None)?;
        sets.inheritable |= CapabilitySet::SYS_ADMIN;
        set_capabilities(None, sets)?;
        Ok(configure_capability_in_ambient_set(CapabilitySet::SYS_ADMIN, true)?)
    };
    // Who has no such right has none to lend.
    let _ = lend();
    let done = act();
    let _ = clear_ambient_capability_set();
    let _ = own.and_then(|own| set_capabilities(None, own));
    done
}

/// A user namespace that maps owners so, for `set_mount_owners`. Needs the right to map others' numbers.
pub fn owners_namespace(users: &[OwnerRange], groups: &[OwnerRange]) -> io::Result<OwnedFd> {
    let child = sleeper()?;
    let open = || {
        let map = |name: &str, ranges: &[OwnerRange]| {
            let line = |range: &OwnerRange| format!("{} {} {}\n", range.stored, range.seen, range.count);
            let text: String = ranges.iter().map(line).collect();
            // The kernel takes a map in one piece.
            File::options().write(true).open(format!("/proc/{child}/{name}"))?.write_all(text.as_bytes())
        };
        map("uid_map", users)?;
        map("gid_map", groups)?;
        Ok(OwnedFd::from(File::open(format!("/proc/{child}/ns/user"))?))
    };
    let namespace = open();
    // SAFETY: ends and waits for the child that was made above, whose number is its own until then.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, std::ptr::null_mut(), libc::__WALL);
    }
    namespace
}

/// A process in a new user namespace, which does nothing until it is ended.
fn sleeper() -> io::Result<libc::pid_t> {
    let flags = libc::CLONE_NEWUSER | libc::SIGCHLD;
    // SAFETY: like fork, with one namespace more; the child makes only system calls, which is all that it may after a
    // fork of a process with threads.
    let child = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    match child {
        0 => {
            // SAFETY: asks to be ended with the thread that made it, and waits.
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
