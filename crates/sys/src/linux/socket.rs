//! Unix sockets: reaching one whose path is too long, knowing who is at the other end, passing descriptors.

use std::ffi::OsStr;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{self, CWD, Mode, OFlags};
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sockopt,
};

/// The kernel passes no more descriptors than this in one message (`SCM_MAX_FD`).
pub const MESSAGE_DESCRIPTORS_MAX: usize = 253;
/// `sun_path`, less its final zero.
const ADDRESS_BYTES_MAX: usize = 107;
/// Connections that wait to be accepted: more than there are wrappers at once.
const WAITING_MAX: i32 = 1024;

/// A connected socket.
pub struct Channel(OwnedFd);

/// Who is at the other end of a socket, as of when it connected or began to listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its process, in our numbers; 0 where it has none here.
    pub pid: i32,
    /// Its effective user, in our numbers.
    pub user: u32,
    /// And its group.
    pub group: u32,
}

/// A socket that others can connect to.
pub struct Door(OwnedFd);

/// A path by which a socket can be reached, and what must stay open meanwhile.
struct Address {
    address: SocketAddrUnix,
    _directory: Option<OwnedFd>,
}

/// Of a path of any length: a long one goes by way of its directory's descriptor.
fn address(path: &Path) -> io::Result<Address> {
    if path.as_os_str().len() <= ADDRESS_BYTES_MAX {
        return Ok(Address { address: SocketAddrUnix::new(path)?, _directory: None });
    }
    let parts = path.parent().zip(path.file_name()).ok_or(io::ErrorKind::InvalidInput)?;
    let directory = fs::openat(CWD, parts.0, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut short = format!("/proc/self/fd/{}/", directory.as_raw_fd()).into_bytes();
    short.extend_from_slice(parts.1.as_bytes());
    let address = SocketAddrUnix::new(PathBuf::from(OsStr::from_bytes(&short)))?;
    Ok(Address { address, _directory: Some(directory) })
}

fn socket() -> io::Result<OwnedFd> {
    Ok(net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
}

impl Channel {
    /// Connect to the socket at `path`, waiting at most `patience` for that, and as long for each message.
    pub fn connect(path: &Path, patience: Duration) -> io::Result<Channel> {
        let there = address(path)?;
        let channel = Channel(socket()?);
        channel.set_patience(patience)?;
        net::connect(&channel.0, &there.address)?;
        Ok(channel)
    }

    /// A connected socket that somebody passed.
    pub fn given(socket: OwnedFd) -> Channel {
        Channel(socket)
    }

    /// Both ends of a connection: one for us, one to be passed.
    pub fn pair() -> io::Result<(Channel, OwnedFd)> {
        let (ours, theirs) = net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        Ok((Channel(ours), theirs))
    }

    /// Wait at most this long for what is sent or received.
    pub fn set_patience(&self, patience: Duration) -> io::Result<()> {
        // None would be for ever.
        let patience = Some(patience.max(Duration::from_millis(1)));
        for timeout in [sockopt::Timeout::Send, sockopt::Timeout::Recv] {
            sockopt::set_socket_timeout(&self.0, timeout, patience)?;
        }
        Ok(())
    }

    /// Wait at most this long for something to receive, or for the end; not at all for none. Says whether there is.
    /// A socket's own patience is counted in ticks, so that a millisecond of it may be eight.
    pub fn has_more_within(&self, patience: Duration) -> io::Result<bool> {
        let patience = Timespec::try_from(patience).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&patience)) {
            Err(rustix::io::Errno::INTR) => Ok(false),
            found => Ok(found? > 0),
        }
    }

    /// To be waited on.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Who is at the other end.
    pub fn peer(&self) -> io::Result<Peer> {
        // rustix takes a process id to be never zero, which it is for a process of another namespace.
        let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
        let mut length = size_of::<libc::ucred>() as libc::socklen_t;
        // SAFETY: both are ours and of the size that is said.
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

    /// Send all of `bytes`, and with them `descriptors`, at most `MESSAGE_DESCRIPTORS_MAX`.
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

    /// Receive what is there, at least a byte, and the descriptors that come with it. Returns how many bytes; 0 at the
    /// end. It is an error when descriptors were lost.
    pub fn receive(&self, buffer: &mut [u8], descriptors: &mut Vec<OwnedFd>) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MESSAGE_DESCRIPTORS_MAX))];
        let mut along = RecvAncillaryBuffer::new(&mut space);
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
        if got.flags.contains(ReturnFlags::CTRUNC) {
            return Err(io::Error::other("descriptors were lost"));
        }
        Ok(got.bytes)
    }
}

impl Door {
    /// Listen at `path`, where nothing may be yet. The umask decides who may connect.
    pub fn open(path: &Path) -> io::Result<Door> {
        let here = address(path)?;
        let door = Door(socket()?);
        net::bind(&door.0, &here.address)?;
        net::listen(&door.0, WAITING_MAX)?;
        door.do_not_wait()?;
        Ok(door)
    }

    /// A socket that somebody else listens with and gave to us.
    pub fn given(socket: OwnedFd) -> io::Result<Door> {
        let door = Door(socket);
        door.do_not_wait()?;
        Ok(door)
    }

    /// To be waited on, and passed.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// What `wait` says is there may be gone again.
    fn do_not_wait(&self) -> io::Result<()> {
        let flags = fs::fcntl_getfl(&self.0)?;
        Ok(fs::fcntl_setfl(&self.0, flags | OFlags::NONBLOCK)?)
    }

    /// Wait for somebody to connect, or for the other end of the pipe `woken` to be closed, at most so long.
    pub fn wait(&self, at_most: Duration, woken: BorrowedFd) -> io::Result<()> {
        use rustix::event::{PollFd, PollFlags};
        let mut asked = [PollFd::new(&self.0, PollFlags::IN), PollFd::from_borrowed_fd(woken, PollFlags::IN)];
        let at_most = rustix::event::Timespec::try_from(at_most).map_err(|_| io::ErrorKind::InvalidInput)?;
        match rustix::event::poll(&mut asked, Some(&at_most)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The next who connected, if there is one.
    pub fn accept(&self) -> io::Result<Option<Channel>> {
        use rustix::io::Errno;
        match net::accept_with(&self.0, SocketFlags::CLOEXEC) {
            Ok(socket) => Ok(Some(Channel(socket))),
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Give this thread, and those that it starts, descriptors of its own: what it opens from here on is open nowhere else,
/// and of what was open from this number on it has only what is listed. For a thread that uses nothing else.
pub fn own_descriptors(first: i32, keep: &[i32]) -> io::Result<()> {
    // SAFETY: descriptors that others own stay open where they are used.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::FILES) }?;
    close_others(first, keep);
    Ok(())
}

/// Close every descriptor from this number on that is not listed.
pub fn close_others(first: i32, keep: &[i32]) {
    let mut keep: Vec<i32> = keep.iter().copied().filter(|fd| *fd >= first).collect();
    keep.sort_unstable();
    let mut from = first;
    for fd in keep.into_iter().chain([-1]) {
        let last = if fd < 0 { i32::MAX } else { fd - 1 };
        if from <= last {
            // SAFETY: only at the start of a program, before anything of it has opened a descriptor.
            unsafe { super::closing::close_range(from, last) };
        }
        from = fd + 1;
    }
}

/// Allow this process as many descriptors as it may allow itself.
pub fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: now.maximum, maximum: now.maximum });
}

/// From now on what this process makes is for its user only.
pub fn keep_to_ourselves() {
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
}

/// A descriptor's file, looked at as one that was passed by somebody else.
pub fn passed_file(passed: OwnedFd) -> io::Result<(std::fs::File, crate::Look)> {
    let look = crate::file_look(passed.as_fd())?;
    Ok((std::fs::File::from(passed), look))
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
        let peer = theirs.peer().expect("is known");
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
            match theirs.receive(&mut buffer, &mut passed).expect("receives") {
                0 => break,
                count => bytes.extend_from_slice(&buffer[..count]),
            }
        }
        assert_eq!((bytes.as_slice(), passed.len()), (&b"firstsecond"[..], MESSAGE_DESCRIPTORS_MAX + 1));
        let (mut theirs, look) = passed_file(passed.pop().expect("has one")).expect("looks");
        assert_eq!(look.size_bytes, 7);
        theirs.rewind().expect("seeks");
        let mut content = String::new();
        theirs.read_to_string(&mut content).expect("reads");
        assert_eq!(content, "content");
        assert!(file.write_all(b"other").is_err(), "sealed");
        std::fs::remove_dir_all(dir).expect("removes");
    }

    #[test]
    fn nobody_is_waited_for_long() {
        let path = std::env::temp_dir().join(format!("larder-sys-{}", crate::random_u64()));
        let door = Door::open(&path).expect("listens");
        let ours = Channel::connect(&path, Duration::from_millis(20)).expect("connects");
        let error = ours.receive(&mut [0; 8], &mut Vec::new()).expect_err("nobody says anything");
        assert!(matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut), "{error}");
        drop(door);
        // A process that another test starts has the door as well until it runs its program.
        let listens = || Channel::connect(&path, Duration::from_millis(20)).is_ok();
        assert!(
            (0..200).any(|_| !listens() || {
                std::thread::sleep(Duration::from_millis(10));
                false
            }),
            "nobody listens"
        );
        std::fs::remove_file(&path).expect("removes");
    }
}
