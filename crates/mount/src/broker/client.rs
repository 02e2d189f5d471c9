//! The job's side: asking a broker.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use larder_sys::Channel;

use super::message::{Kind, TEXT_BYTES_MAX, encode, receive};
use super::policy::refused;
use crate::{Mount, MountError};

/// A broker may have to fetch an image first.
const PATIENCE: Duration = Duration::from_secs(600);

/// How long a mount is to stay.
#[derive(Clone, Copy, Debug)]
pub enum Wish<'a> {
    /// As long as the client's handle, and the client.
    Held,
    /// As long as a process that was opened (`larder_sys::open_process`).
    Process(BorrowedFd<'a>),
    /// Until it is unmounted. Not among mounts of the job's own: nobody would take it away.
    Kept,
}

/// A connection to a broker, for one request. With it goes what was asked to be held.
pub struct Client {
    channel: Channel,
    id: String,
}

impl Client {
    /// Have the broker at `socket` mount the image `name` on an empty directory of ours.
    ///
    /// # Errors
    ///
    /// Where there is no broker, or it refuses, with its reason.
    pub fn mount(socket: &Path, name: &str, target: &Path, wish: Wish) -> Result<Client, MountError> {
        let place = larder_sys::open_place(target).map_err(MountError::path(target, "is no directory to mount on"))?;
        let (kind, process) = match wish {
            Wish::Held => (Kind::MountHeld, None),
            Wish::Process(process) => (Kind::MountForProcess, Some(process)),
            Wish::Kept => (Kind::MountKept, None),
        };
        let passed: Vec<BorrowedFd> = [place.as_fd()].into_iter().chain(process).collect();
        ask(socket, kind, name, &passed).map(|(client, _)| client)
    }

    /// Have it make a mount that we place ourselves, as anybody may in a user and mount namespace of their own. What is
    /// written there goes with the client's handle.
    ///
    /// # Errors
    ///
    /// As above.
    pub fn detached(socket: &Path, name: &str) -> Result<(Client, Mount), MountError> {
        let (client, mut passed) = ask(socket, Kind::Detached, name, &[])?;
        let root = passed.pop().ok_or_else(|| refused("the broker said yes, and passed no mount".to_owned()))?;
        Ok((client, Mount::passed(root)))
    }

    /// Have it unmount what it mounted at `target`.
    ///
    /// # Errors
    ///
    /// `NotMounted` where that was not mounted by it, or for somebody else.
    pub fn unmount(socket: &Path, target: &Path) -> Result<(), MountError> {
        let root = larder_sys::open_place(target).map_err(MountError::path(target, "is no directory"))?;
        ask(socket, Kind::Unmount, "", &[root.as_fd()]).map(drop).map_err(|error| match error {
            MountError::NotMounted(_) => MountError::NotMounted(target.to_owned()),
            error => error,
        })
    }

    /// What it mounted for us: what each image is called, and where it is.
    ///
    /// # Errors
    ///
    /// Where there is no broker, or it refuses.
    pub fn mounts(socket: &Path) -> Result<Vec<(String, PathBuf)>, MountError> {
        let (mut found, mut last) = (Vec::new(), String::new());
        loop {
            let said = match ask(socket, Kind::Next, &last, &[]) {
                Err(MountError::NotMounted(_)) => return Ok(found),
                said => said?.0.id,
            };
            let mut lines = said.splitn(3, '\n');
            let (id, name, target) = (lines.next(), lines.next(), lines.next());
            let (Some(id), Some(name), Some(target)) = (id.filter(|id| **id > *last), name, target) else {
                return Err(refused("what the broker says of a mount cannot be read".to_owned()));
            };
            found.push((name.to_owned(), PathBuf::from(target)));
            last = id.to_owned();
        }
    }

    /// To be waited on: it ends when the broker does.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.channel.descriptor()
    }

    /// What the broker calls the mount.
    pub fn id(&self) -> &str {
        &self.id
    }
}

fn ask(
    socket: &Path,
    kind: Kind,
    name: &str,
    passed: &[BorrowedFd],
) -> Result<(Client, Vec<std::os::fd::OwnedFd>), MountError> {
    if name.len() > TEXT_BYTES_MAX {
        return Err(refused(format!("a name of {} bytes is longer than any: {TEXT_BYTES_MAX}", name.len())));
    }
    let asked = || -> io::Result<_> {
        let channel = Channel::connect(socket, PATIENCE)?;
        let sent = channel.send(&encode(kind, name), passed);
        // A broker that refuses a user says so before it reads anything.
        let reply = receive(&channel, Instant::now() + PATIENCE).map_err(|error| sent.err().unwrap_or(error))?;
        Ok((channel, reply))
    };
    let (channel, reply) = asked().map_err(MountError::path(socket, "the broker cannot be asked"))?;
    match reply.kind {
        Kind::Done => Ok((Client { channel, id: reply.text }, reply.passed)),
        Kind::Nothing => Err(MountError::NotMounted(PathBuf::new())),
        _ => Err(refused(reply.text)),
    }
}
