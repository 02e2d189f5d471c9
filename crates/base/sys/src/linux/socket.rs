//! Unix sockets: connecting to one whose path is too long, finding out which process is at the
//! other end, and passing descriptors.
//!
//! Unaware of: what is said over a socket.
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{self, CWD, Mode, OFlags};
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sockopt,
};

/// The most descriptors that the kernel passes in one message (`SCM_MAX_FD`).
pub const MESSAGE_DESCRIPTORS_MAX: usize = 253;
/// The longest path in a socket address, in bytes: `sun_path` without its final zero.
const ADDRESS_BYTES_MAX: usize = 107;
/// The most connections that wait to be accepted. It is more than there are wrappers at once.
const WAITING_MAX: i32 = 1024;

/// A connected socket.
pub struct Channel(OwnedFd);

/// The process at the other end of a socket, as it was when it connected or began to listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its pid in our pid namespace, or 0 if it is not visible there.
    pub pid: i32,
    /// Its effective user id, in our user namespace.
    pub user: u32,
    /// Its effective group id, in our user namespace.
    pub group: u32,
}

/// A listening socket.
pub struct Door(OwnedFd);

/// A socket address, and a directory that must stay open while the address is used.
struct Address {
    address: SocketAddrUnix,
    _directory: Option<OwnedFd>,
}

/// Returns the address of a path of any length. A long path is reached through the descriptor of
/// its directory.
fn address(path: &Path) -> io::Result<Address> {
    if path.as_os_str().len() <= ADDRESS_BYTES_MAX {
        return Ok(Address { address: SocketAddrUnix::new(path)?, _directory: None });
    }
    let parts = path.parent().zip(path.file_name()).ok_or(io::ErrorKind::InvalidInput)?;
    let directory = fs::openat(CWD, parts.0, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut short = format!("/proc/self/fd/{}/", directory.as_raw_fd()).into_bytes();
    short.extend_from_slice(parts.1.as_bytes());
    let address = SocketAddrUnix::new(crate::as_path(&short).to_owned())?;
    Ok(Address { address, _directory: Some(directory) })
}

fn socket() -> io::Result<OwnedFd> {
    Ok(net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
}

impl Channel {
    /// Connects to the socket at `path`. Connecting, and later each message, may take at most
    /// `patience`.
    pub fn connect(path: &Path, patience: Duration) -> io::Result<Channel> {
        let there = address(path)?;
        let channel = Channel(socket()?);
        channel.set_patience(patience)?;
        net::connect(&channel.0, &there.address)?;
        Ok(channel)
    }

    /// Wraps a connected socket that was passed to us.
    pub fn given(socket: OwnedFd) -> Channel {
        Channel(socket)
    }

    /// Creates a connection. Returns our end, and the end that is to be passed on.
    pub fn pair() -> io::Result<(Channel, OwnedFd)> {
        let (ours, theirs) = net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        Ok((Channel(ours), theirs))
    }

    /// Sets how long sending or receiving may wait.
    pub fn set_patience(&self, patience: Duration) -> io::Result<()> {
        // A timeout of zero would mean no timeout.
        let patience = Some(patience.max(Duration::from_millis(1)));
        for timeout in [sockopt::Timeout::Send, sockopt::Timeout::Recv] {
            sockopt::set_socket_timeout(&self.0, timeout, patience)?;
        }
        Ok(())
    }

    /// Waits at most `patience` until there is something to receive, or the connection has ended.
    /// Returns whether that is so. Does not wait if `patience` is zero.
    ///
    /// The timeout of `set_patience` is less exact: it is counted in clock ticks, so one
    /// millisecond may become eight.
    pub fn has_more_within(&self, patience: Duration) -> io::Result<bool> {
        let patience = Timespec::try_from(patience).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&patience)) {
            Err(rustix::io::Errno::INTR) => Ok(false),
            found => Ok(found? > 0),
        }
    }

    /// Returns the descriptor, for polling.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Returns the process at the other end.
    pub fn peer(&self) -> io::Result<Peer> {
        // rustix assumes that a pid is never zero, but it is zero for a process of another pid
        // namespace.
        let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
        let mut length = size_of::<libc::ucred>() as libc::socklen_t;
        // SAFETY: the kernel writes to our own variables, whose size is passed.
        let done = unsafe {
            let to = (&raw mut found).cast();
            libc::getsockopt(self.0.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, to, &mut length)
        };
        if done != 0 {
            return Err(io::Error::last_os_error());
        }
        if length as usize != size_of::<libc::ucred>() {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        }
        Ok(Peer { pid: found.pid, user: found.uid, group: found.gid })
    }

    /// Sends all of `bytes`, and `descriptors` with them, of which there are at most
    /// `MESSAGE_DESCRIPTORS_MAX`. `bytes` must not be empty.
    pub fn send(&self, bytes: &[u8], descriptors: &[BorrowedFd]) -> io::Result<()> {
        if descriptors.len() > MESSAGE_DESCRIPTORS_MAX || bytes.is_empty() {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MESSAGE_DESCRIPTORS_MAX))];
        let mut along = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !along.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        let mut sent = 0;
        while sent < bytes.len() {
            let mut none = SendAncillaryBuffer::default();
            let along = if sent == 0 { &mut along } else { &mut none };
            match net::sendmsg(&self.0, &[IoSlice::new(&bytes[sent..])], along, SendFlags::NOSIGNAL) {
                Err(rustix::io::Errno::INTR) => {}
                done => sent += done?,
            }
        }
        Ok(())
    }

    /// Waits for at least one byte, and receives what is available. Returns the number of bytes, or 0
    /// if the connection has ended.
    ///
    /// The descriptors that come along are added to `descriptors`, which has at most `most` of them
    /// then. Fails if there are more. The kernel closes those without giving them to this process,
    /// so a peer cannot fill its table of descriptors.
    pub fn receive(&self, buffer: &mut [u8], descriptors: &mut Vec<OwnedFd>, most: usize) -> io::Result<usize> {
        let room = most.saturating_sub(descriptors.len()).min(MESSAGE_DESCRIPTORS_MAX);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MESSAGE_DESCRIPTORS_MAX))];
        let room_bytes = if room == 0 { 0 } else { rustix::cmsg_space!(ScmRights(room)) };
        let mut along = RecvAncillaryBuffer::new(&mut space[..room_bytes]);
        let got = loop {
            let into = &mut [IoSliceMut::new(buffer)];
            match net::recvmsg(&self.0, into, &mut along, RecvFlags::CMSG_CLOEXEC) {
                Err(rustix::io::Errno::INTR) => {}
                done => break done?,
            }
        };
        for message in along.drain() {
            if let RecvAncillaryMessage::ScmRights(passed) = message {
                descriptors.extend(passed);
            }
        }
        // The space is rounded up, so a few more may fit.
        if got.flags.contains(ReturnFlags::CTRUNC) || descriptors.len() > most {
            return Err(io::Error::other("more descriptors were passed than expected, or too many files are open"));
        }
        Ok(got.bytes)
    }
}

impl Door {
    /// Listens at `path`, which must not exist yet. The umask decides which users may connect.
    pub fn open(path: &Path) -> io::Result<Door> {
        let here = address(path)?;
        let door = Door(socket()?);
        net::bind(&door.0, &here.address)?;
        net::listen(&door.0, WAITING_MAX)?;
        door.do_not_wait()?;
        Ok(door)
    }

    /// Wraps a listening socket that was passed to us. For example, systemd passes one.
    pub fn given(socket: OwnedFd) -> io::Result<Door> {
        let door = Door(socket);
        door.do_not_wait()?;
        Ok(door)
    }

    /// Returns the descriptor, for polling and passing.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Makes this process the one that connecting processes see as their peer. Before, that is the
    /// process that opened the socket.
    pub fn listen_ourselves(&self) -> io::Result<()> {
        Ok(net::listen(&self.0, WAITING_MAX)?)
    }

    /// Makes `accept` never wait, because a connection that `wait` reported may be gone again.
    fn do_not_wait(&self) -> io::Result<()> {
        let flags = fs::fcntl_getfl(&self.0)?;
        Ok(fs::fcntl_setfl(&self.0, flags | OFlags::NONBLOCK)?)
    }

    /// Waits until a client connects, until the other end of the pipe `woken` is closed, or until
    /// `at_most` is over.
    pub fn wait(&self, at_most: Duration, woken: BorrowedFd) -> io::Result<()> {
        use rustix::event::{PollFd, PollFlags};
        let mut asked = [PollFd::new(&self.0, PollFlags::IN), PollFd::from_borrowed_fd(woken, PollFlags::IN)];
        let at_most = rustix::event::Timespec::try_from(at_most).map_err(|_| io::ErrorKind::InvalidInput)?;
        match rustix::event::poll(&mut asked, Some(&at_most)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the next connection, or `None` if there is none.
    pub fn accept(&self) -> io::Result<Option<Channel>> {
        use rustix::io::Errno;
        match net::accept_with(&self.0, SocketFlags::CLOEXEC) {
            Ok(socket) => Ok(Some(Channel(socket))),
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Gives this thread, and threads that it starts, a descriptor table of its own. Of the descriptors
/// from `first` on, only those in `keep` stay open in it.
///
/// The thread must not use other descriptors. Other threads do not see what it opens from here on.
pub fn own_descriptors(first: i32, keep: &[i32]) -> io::Result<()> {
    // SAFETY: the descriptors of other threads stay open in their own table.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::FILES) }?;
    close_others(first, keep);
    Ok(())
}

/// Closes every descriptor from `first` on that is not in `keep`.
pub fn close_others(first: i32, keep: &[i32]) {
    let mut keep: Vec<i32> = keep.iter().copied().filter(|fd| *fd >= first).collect();
    keep.sort_unstable();
    let mut from = first;
    for fd in keep.into_iter().chain([-1]) {
        let last = if fd < 0 { i32::MAX } else { fd - 1 };
        if from <= last {
            // SAFETY: this runs only at the start of a program or a thread, before it has opened a
            // descriptor.
            unsafe { super::closing::close_range(from, last) };
        }
        from = fd + 1;
    }
}

/// Raises this process's limit for descriptors to the maximum that it may set.
pub fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: now.maximum, maximum: now.maximum });
}

/// Sets the umask so that everything that this process creates is for its user only.
pub fn keep_to_ourselves() {
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
}

/// Returns the file of a descriptor that another process passed, with the result of its `fstat`.
pub fn passed_file(passed: OwnedFd) -> io::Result<(std::fs::File, crate::Stat)> {
    let stat = crate::fstat(passed.as_fd())?;
    Ok((std::fs::File::from(passed), stat))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek, Write};

    #[test]
    fn descriptors_go_through_a_long_path() {
        let dir = std::env::temp_dir().join(format!("larder-sys-{}", crate::random_u64()));
        let deep = dir.join("d".repeat(120));
        std::fs::create_dir_all(&deep).expect("makes");
        let path = deep.join("socket");
        let door = Door::open(&path).expect("listens");
        assert!(door.accept().expect("asks").is_none());
        let ours = Channel::connect(&path, Duration::from_secs(1)).expect("connects");
        door.wait(Duration::from_secs(1), crate::pipe().expect("makes").0.as_fd()).expect("waits");
        let theirs = door.accept().expect("accepts").expect("is there");
        let peer = theirs.peer().expect("has a peer");
        assert_eq!((peer.user, peer.pid), (crate::effective_user(), crate::process_id() as i32));

        let mut file = crate::sealed_memory_file("x", b"content").expect("makes");
        let many = vec![file.as_fd(); MESSAGE_DESCRIPTORS_MAX];
        ours.send(b"first", &many).expect("sends");
        ours.send(b"second", &[file.as_fd()]).expect("sends");
        assert!(ours.send(b"third", &vec![file.as_fd(); MESSAGE_DESCRIPTORS_MAX + 1]).is_err());
        drop(ours);
        let (mut bytes, mut passed) = (Vec::new(), Vec::new());
        let mut buffer = [0; 64];
        loop {
            match theirs.receive(&mut buffer, &mut passed, usize::MAX).expect("receives") {
                0 => break,
                count => bytes.extend_from_slice(&buffer[..count]),
            }
        }
        assert_eq!((bytes.as_slice(), passed.len()), (&b"firstsecond"[..], MESSAGE_DESCRIPTORS_MAX + 1));
        let (mut theirs, stat) = passed_file(passed.pop().expect("a descriptor came")).expect("looks");
        assert_eq!(stat.size_bytes, 7);
        theirs.rewind().expect("seeks");
        let mut content = String::new();
        theirs.read_to_string(&mut content).expect("reads");
        assert_eq!(content, "content");
        assert!(file.write_all(b"other").is_err(), "sealed");
        std::fs::remove_dir_all(dir).expect("removes");
    }

    #[test]
    fn no_more_descriptors_come_than_are_expected() {
        // The space for them is rounded up by a few.
        const SPARE: usize = 3;
        for (most, sent) in [(0, 1), (1, 100), (2, 100), (2, 3), (2, 2), (3, 2)] {
            let (ours, theirs) = Channel::pair().expect("makes");
            let null = std::fs::File::open("/dev/null").expect("opens");
            ours.send(b"x", &vec![null.as_fd(); sent]).expect("sends");
            let mut passed = Vec::new();
            let received = Channel::given(theirs).receive(&mut [0; 8], &mut passed, most);
            assert_eq!(received.is_ok(), sent <= most, "{most} {sent}");
            assert!(passed.len() <= most + SPARE, "{most} {sent}: {}", passed.len());
        }
    }

    #[test]
    fn nobody_is_waited_for_long() {
        let path = std::env::temp_dir().join(format!("larder-sys-{}", crate::random_u64()));
        let door = Door::open(&path).expect("listens");
        let ours = Channel::connect(&path, Duration::from_millis(20)).expect("connects");
        let error = ours.receive(&mut [0; 8], &mut Vec::new(), 0).expect_err("nothing is sent");
        assert!(matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut), "{error}");
        drop(door);
        // A process that another test starts also has the socket open until it executes its
        // program.
        let listens = || Channel::connect(&path, Duration::from_millis(20)).is_ok();
        assert!(
            (0..3000).any(|_| !listens() || {
                std::thread::sleep(Duration::from_millis(10));
                false
            }),
            "the socket still listens"
        );
        std::fs::remove_file(&path).expect("removes");
    }
}
