//! The server of a cache, a process of ours on a socket beside the store.

use crate::spawn::spawn;
use anyhow::{Context, Result};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How long a server may take to listen.
const START: Duration = Duration::from_secs(5);

/// A server that may run.
#[derive(Default)]
pub(super) struct Server(Option<Child>);

impl Server {
    /// Starts the server, and waits until its socket is there, it has ended, or `START` is over.
    pub(super) fn start(&mut self, command: &mut Command, socket: &Path) -> Result<()> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut server = spawn(command).with_context(|| format!("{:?} does not start", command.get_program()))?;
        let until = Instant::now() + START;
        while !socket.exists() && server.try_wait()?.is_none() && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
        self.0 = Some(server);
        Ok(())
    }

    /// Kills the server.
    pub(super) fn kill(&mut self) {
        if let Some(mut server) = self.0.take() {
            // The server may have ended by itself.
            let _ = server.kill();
            let _ = server.wait();
        }
    }

    /// Returns the process of the server.
    pub(super) fn pids(&self) -> Vec<u32> {
        self.0.iter().map(Child::id).collect()
    }
}
