//! Runs a command on a pseudo-terminal.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::Run;

/// The longest time until a command is ready for what is typed. The machine may be busy.
const READY_MAX: Duration = Duration::from_secs(60);
/// The pause between two checks whether it is ready.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Runs a command with standard output and error on one terminal of this width. Returns the exit
/// code and everything that the terminal received.
pub fn on_terminal(run: Run, columns: u16) -> (Option<i32>, String) {
    started(run, columns, None)
}

/// Runs a command with all three streams on one terminal of 80 columns. No input is ever typed.
pub fn wholly_on_terminal(run: Run) -> (Option<i32>, String) {
    started(run, 80, Some(("", Path::new(""))))
}

/// Runs a command with all three streams on one terminal of 80 columns, and types `text` as soon as
/// the file `ready` exists. The command must make that file.
pub fn typed_on_terminal(run: Run, text: &str, ready: &Path) -> (Option<i32>, String) {
    started(run, 80, Some((text, ready)))
}

fn started(mut run: Run, columns: u16, typed: Option<(&str, &Path)>) -> (Option<i32>, String) {
    let ours =
        openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("cannot open a pseudo-terminal");
    grantpt(&ours).expect("cannot grant the pseudo-terminal");
    unlockpt(&ours).expect("cannot unlock the pseudo-terminal");
    let name = ptsname(&ours, Vec::new()).expect("the pseudo-terminal has no name");
    let path = Path::new(name.to_str().expect("not UTF-8"));
    const O_NOCTTY: i32 = 0o400;
    use std::os::unix::fs::OpenOptionsExt;
    let theirs =
        OpenOptions::new().read(true).write(true).custom_flags(O_NOCTTY).open(path).expect("cannot open the terminal");
    let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(theirs.as_fd(), size).expect("cannot set the size of the terminal");
    let copy = || theirs.try_clone().expect("cannot duplicate the descriptor");
    let input = if typed.is_some() { copy().into() } else { std::process::Stdio::null() };
    run.command.stdin(input).stdout(copy()).stderr(copy());
    let mut child = run.command.spawn().expect("cannot start the command");
    // Close our copies of the child's end, so that the reads below end when the child ends.
    drop((theirs, run));
    if let Some((text, ready)) = typed.filter(|(text, _)| !text.is_empty()) {
        // The command is to run already, because larder does not cache a command after typing.
        let started = Instant::now();
        while !ready.exists() && started.elapsed() < READY_MAX {
            std::thread::sleep(LOOK_EVERY);
        }
        let _ = rustix::io::write(&ours, text.as_bytes());
    }
    let mut received = Vec::new();
    let mut buffer = [0; 4096];
    let mut ours = File::from(ours);
    // A read fails with EIO once the child's end is closed.
    while let Ok(count @ 1..) = ours.read(&mut buffer) {
        received.extend_from_slice(&buffer[..count]);
    }
    let code = child.wait().expect("cannot wait for the command").code();
    (code, String::from_utf8_lossy(&received).into_owned())
}
