//! The client of a broker: each function sends one request on a connection of its own.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use larder_sys::Channel;

use super::message::{MessageKind, RELEASE, TEXT_BYTES_MAX, encode, receive};
use super::policy::refused;
use crate::{Mount, MountError};

/// The time limit of a request. It is long because a broker may have to fetch an image first.
const PATIENCE: Duration = Duration::from_secs(600);

/// How long a mount is to stay.
#[derive(Clone, Copy, Debug)]
pub enum Wish<'a> {
    /// Until the `Client` is dropped or the client process ends.
    Held,
    /// Until this process ends. The descriptor is a pidfd, as from `larder_sys::open_process`.
    Process(BorrowedFd<'a>),
    /// Until it is unmounted. A broker refuses this in a mount namespace of the job's own, because
    /// nothing would unmount it there.
    Kept,
}

/// A connection to a broker, on which one request was answered. When it is dropped, the broker
/// unmounts what was requested as `Held`.
pub struct Client {
    channel: Channel,
    id: String,
}

impl Client {
    /// Asks the broker at `socket` to mount the image `name` on the empty directory `target`, which
    /// must belong to this user. Fails if no broker answers, or if it refuses. Then the error holds
    /// the broker's reason.
    pub fn mount(socket: &Path, name: &str, target: &Path, wish: Wish) -> Result<Client, MountError> {
        let place =
            larder_sys::open_place(target).map_err(MountError::path(target, "is not a directory to mount on"))?;
        let (kind, process) = match wish {
            Wish::Held => (MessageKind::MountHeld, None),
            Wish::Process(process) => (MessageKind::MountForProcess, Some(process)),
            Wish::Kept => (MessageKind::MountKept, None),
        };
        let passed: Vec<BorrowedFd> = [place.as_fd()].into_iter().chain(process).collect();
        ask(socket, kind, name, &passed).map(|(client, _)| client)
    }

    /// Asks the broker for a detached mount, which this process attaches itself. Every user may do
    /// that in a user and mount namespace of its own. What is written there is deleted when the
    /// `Client` is dropped. Fails if no broker answers, or if it refuses.
    pub fn detached(socket: &Path, name: &str) -> Result<(Client, Mount), MountError> {
        let (client, mut passed) = ask(socket, MessageKind::Detached, name, &[])?;
        let root = passed.pop().ok_or_else(no_mount)?;
        Ok((client, Mount::passed(root)))
    }

    /// Asks the broker for a detached read-only mount, whose files belong to `owner` (a user and a
    /// group). Only root may ask for it.
    ///
    /// The mount can be used as long as this process or the kernel has it. The broker fetches its
    /// data until `release`, or for two minutes after this `Client` is gone. So a process that
    /// starts again has time to ask for the same mount once more. Fails if no broker answers, or if
    /// it refuses.
    pub fn layer(socket: &Path, name: &str, owner: (u32, u32)) -> Result<(Client, Mount), MountError> {
        let (client, mut passed) = ask(socket, MessageKind::Layer, &format!("{} {} {name}", owner.0, owner.1), &[])?;
        let root = passed.pop().ok_or_else(no_mount)?;
        Ok((client, Mount::passed(root)))
    }

    /// Tells the broker that the mount of `layer` is no longer used.
    pub fn release(self) {
        // If the broker is gone, there is nothing to release.
        let _ = self.channel.send(&[RELEASE], &[]);
    }

    /// Returns true if the broker has ended or closed the connection.
    pub fn is_lost(&self) -> bool {
        // A broker sends nothing after its reply. So only the end of the connection can be there.
        self.channel.has_more_within(Duration::ZERO).unwrap_or(true)
    }

    /// Asks the broker to unmount what it mounted at `target`. Fails with `NotMounted` if the
    /// broker did not mount it, or mounted it for another user.
    pub fn unmount(socket: &Path, target: &Path) -> Result<(), MountError> {
        let root = larder_sys::open_place(target).map_err(MountError::path(target, "is not a directory"))?;
        ask(socket, MessageKind::Unmount, "", &[root.as_fd()]).map(drop).map_err(|error| match error {
            MountError::NotMounted(_) => MountError::NotMounted(target.to_owned()),
            error => error,
        })
    }

    /// Returns the name and the mount point of each image that the broker mounted for this user.
    /// Fails if no broker answers, or if it refuses.
    pub fn mounts(socket: &Path) -> Result<Vec<(String, PathBuf)>, MountError> {
        let (mut found, mut last) = (Vec::new(), String::new());
        loop {
            let said = match ask(socket, MessageKind::Next, &last, &[]) {
                Err(MountError::NotMounted(_)) => return Ok(found),
                said => said?.0.id,
            };
            let mut lines = said.splitn(3, '\n');
            let (id, name, target) = (lines.next(), lines.next(), lines.next());
            let (Some(id), Some(name), Some(target)) = (id.filter(|id| **id > *last), name, target) else {
                return Err(refused("the broker's reply about its mounts cannot be parsed".to_owned()));
            };
            found.push((name.to_owned(), PathBuf::from(target)));
            last = id.to_owned();
        }
    }

    /// Returns the descriptor of the connection. It becomes readable when the broker ends.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.channel.descriptor()
    }

    /// Returns the broker's identifier of the mount.
    pub fn id(&self) -> &str {
        &self.id
    }
}

fn no_mount() -> MountError {
    refused("the broker accepted the request but passed no mount".to_owned())
}

fn ask(
    socket: &Path,
    kind: MessageKind,
    name: &str,
    passed: &[BorrowedFd],
) -> Result<(Client, Vec<std::os::fd::OwnedFd>), MountError> {
    if name.len() > TEXT_BYTES_MAX {
        return Err(refused(format!("the image name has {} bytes, and {TEXT_BYTES_MAX} are allowed", name.len())));
    }
    let asked = || -> io::Result<_> {
        let channel = Channel::connect(socket, PATIENCE)?;
        let sent = channel.send(&encode(kind, name), passed);
        // A broker that refuses a user replies before it reads the request. So a reply may be there
        // even if sending failed.
        let reply = receive(&channel, Instant::now() + PATIENCE).map_err(|error| sent.err().unwrap_or(error))?;
        Ok((channel, reply))
    };
    let (channel, reply) = asked().map_err(MountError::path(socket, "the broker does not answer"))?;
    match reply.kind {
        MessageKind::Done => Ok((Client { channel, id: reply.text }, reply.passed)),
        MessageKind::Nothing => Err(MountError::NotMounted(PathBuf::new())),
        _ => Err(refused(reply.text)),
    }
}
