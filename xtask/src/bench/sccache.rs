//! sccache's server: started for the benchmark on a socket of its own, and its CPU time.

use crate::launcher::Launcher;
use anyhow::{Context, Result, bail};
use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// A running server; it ends with this value.
pub(crate) struct Server {
    child: Child,
}

const START_LIMIT: Duration = Duration::from_secs(10);

impl Server {
    /// Starts the server that `launcher` talks to, and waits until it answers.
    pub(crate) fn start(launcher: &Launcher, home: &Path) -> Result<Self> {
        let program = launcher.program.as_ref().context("sccache has a program")?;
        let socket = launcher.socket().context("sccache has a socket")?;
        let dir = socket.parent().context("a socket lies in a directory")?;
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let mut command = Command::new(program);
        launcher.apply(&mut command, home);
        command.env("SCCACHE_START_SERVER", "1").env("SCCACHE_NO_DAEMON", "1");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let server = Self { child: command.spawn().with_context(|| format!("cannot start {}", program.display()))? };
        let start = Instant::now();
        while start.elapsed() < START_LIMIT {
            if socket.exists() && launcher.counts(home).is_ok() {
                return Ok(server);
            }
            thread::sleep(Duration::from_millis(50));
        }
        bail!("{} as server did not answer in {} s", program.display(), START_LIMIT.as_secs())
    }

    /// CPU time of all its threads so far.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).context("a process id")?);
        let time = clock_getcpuclockid(pid).and_then(|clock| clock.now()).context("cannot read sccache's CPU time")?;
        Ok(Duration::from(time))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
