//! A server that works for a measured command without being its child, for example sccache's or
//! kache's. It is started for the benchmark, and its CPU time can be read.

use crate::files;
use crate::launcher::Launcher;
use anyhow::{Context, Result, bail};
use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

/// A running server. It is killed when this value is dropped.
pub(crate) struct Server {
    child: Child,
}

const START_LIMIT: Duration = Duration::from_secs(10);
/// The unit of process times in `/proc`, on every architecture that larder runs on.
const TICK: Duration = Duration::from_millis(10);
const LOOK_EVERY: Duration = Duration::from_millis(20);

impl Server {
    /// Starts a server in the foreground and waits until it is `ready`.
    pub(crate) fn start(mut command: Command, ready: impl Fn() -> bool) -> Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let name = Path::new(command.get_program()).display().to_string();
        let mut server = Self { child: command.spawn().with_context(|| format!("cannot start {name}"))? };
        let start = Instant::now();
        while start.elapsed() < START_LIMIT {
            if ready() {
                return Ok(server);
            }
            if let Some(status) = server.child.try_wait()? {
                bail!("{name} ended with {status}");
            }
            thread::sleep(LOOK_EVERY);
        }
        bail!("{name} does not answer after {} s", START_LIMIT.as_secs())
    }

    /// Starts the server of sccache or kache that `launcher` talks to.
    pub(crate) fn of(launcher: &Launcher, home: &Path) -> Result<Self> {
        let program = launcher.program.as_ref().context("a cache with a server has a program")?;
        let socket = launcher.socket().context("a server has a socket")?;
        let dir = socket.parent().context("a socket lies in a directory")?;
        files::make(dir)?;
        // A server that was killed leaves its socket.
        let _ = fs::remove_file(&socket);
        let mut command = Command::new(program);
        launcher.apply(&mut command, home);
        match launcher.name {
            "kache" => command.args(["daemon", "run"]),
            _ => command.env("SCCACHE_START_SERVER", "1").env("SCCACHE_NO_DAEMON", "1"),
        };
        Self::start(command, || socket.exists() && launcher.counts(home).is_ok())
    }

    /// Returns the CPU time of all its threads and of the children that it has waited for. The
    /// latter has a resolution of 10 ms.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).context("a process id")?);
        let time = clock_getcpuclockid(pid).and_then(|clock| clock.now()).context("cannot read a server's CPU time")?;
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).context("cannot read /proc/PID/stat of a server")?;
        let ticks = ticks_of_children(&text).context("cannot parse /proc/PID/stat of a server")?;
        Ok(Duration::from(time) + TICK * ticks)
    }
}

/// Returns the user and system time of the children: the fourteenth and fifteenth number after the
/// name.
fn ticks_of_children(stat: &str) -> Option<u32> {
    let numbers: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    Some(numbers.get(13)?.parse::<u32>().ok()? + numbers.get(14)?.parse::<u32>().ok()?)
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_children_cost() {
        // The fields after the name: state, parent, group, session, terminal, its group, flags,
        // four of faults, user, system, and those of children.
        assert_eq!(ticks_of_children("7 (a b) c) S 1 7 7 0 -1 4 10 20 0 0 3 4 50 6 20 0\n"), Some(56));
        assert_eq!(ticks_of_children("7 (a) S 1"), None);
    }
}
