//! Finds the socket of the broker that mounts for this user: the machine's broker if one listens,
//! otherwise a broker of our own, which only root can start.
//!
//! Unaware of: what is mounted.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use larder_store::Store;
use larder_sys::Channel;

use super::broker;
use crate::surroundings::Surroundings;

/// The socket of the machine's broker.
pub(in crate::commands) const SOCKET: &str = "/run/larder/broker.sock";
/// The time in which a broker must accept a connection.
const PATIENCE: Duration = Duration::from_secs(10);

/// Returns the socket of the machine's broker, if one listens there. A killed broker leaves its
/// socket, so the file alone proves nothing.
pub(super) fn of_machine() -> Option<&'static Path> {
    use io::ErrorKind::{ConnectionRefused, NotFound};
    let socket = Path::new(SOCKET);
    // Any other error, such as a timeout, comes from a broker that is busy.
    let why_not = Channel::connect(socket, PATIENCE).err().map(|error| error.kind());
    (!matches!(why_not, Some(ConnectionRefused | NotFound))).then_some(socket)
}

/// Returns the socket of the machine's broker, or starts a broker of our own if we may mount.
pub(super) fn socket(around: &Surroundings, store: &Store) -> Result<PathBuf> {
    if let Some(socket) = of_machine() {
        return Ok(socket.to_owned());
    }
    may_mount_for_others()?;
    broker::begin(around, store)
}

/// Fails if this user may not mount for others. Called when no broker of the machine runs.
pub(super) fn may_mount_for_others() -> Result<()> {
    if larder_sys::effective_user() != 0 {
        bail!(
            "only root can mount for all processes, and no broker listens on {SOCKET}: use `larder image run`, or `larder \
             image attach FILE PATH -- COMMAND`, which mount for one command"
        );
    }
    Ok(())
}
