//! Runs a command on a pseudo-terminal.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::Run;

/// How long a command runs before something is typed.
const TYPED_AFTER: Duration = Duration::from_millis(500);

/// Runs a command with standard output and error on one terminal of this width. Returns the exit
/// code and everything that the terminal received.
pub fn on_terminal(run: Run, columns: u16) -> (Option<i32>, String) {
    started(run, columns, None)
}

/// Runs a command with all three streams on one terminal of 80 columns. No input is ever typed.
pub fn wholly_on_terminal(run: Run) -> (Option<i32>, String) {
    started(run, 80, Some(""))
}

/// Runs a command with all three streams on one terminal of 80 columns, and types `text` while it
/// runs.
pub fn typed_on_terminal(run: Run, text: &str) -> (Option<i32>, String) {
    started(run, 80, Some(text))
}

fn started(mut run: Run, columns: u16, typed: Option<&str>) -> (Option<i32>, String) {
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
    if let Some(text) = typed.filter(|text| !text.is_empty()) {
        // The command is to run already, because larder does not cache a command after typing.
        std::thread::sleep(TYPED_AFTER);
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
