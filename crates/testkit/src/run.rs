//! A command, and what came of it as its caller sees it.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// A command that is about to run.
pub struct Run {
    /// The command.
    pub command: Command,
    stdin: Vec<u8>,
}

/// What a command left, but for files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// Its exit code, unless a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl Run {
    pub(crate) fn new(command: Command) -> Run {
        Run { command, stdin: Vec::new() }
    }

    /// Set a variable.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Run {
        self.command.env(name, value);
        self
    }

    /// Unset a variable.
    pub fn without(mut self, name: &str) -> Run {
        self.command.env_remove(name);
        self
    }

    /// Run it in another directory.
    pub fn cwd(mut self, path: impl AsRef<Path>) -> Run {
        self.command.current_dir(path);
        self
    }

    /// What it can read from its standard input.
    pub fn stdin(mut self, bytes: &[u8]) -> Run {
        self.stdin = bytes.to_vec();
        self
    }

    /// Start it with pipes to all three, for those who talk with it.
    pub fn start(mut self) -> Child {
        self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        self.command.spawn().unwrap_or_else(|error| panic!("{:?}: {error}", self.command))
    }

    /// Run it, and wait until no process holds its standard output or error any more. An error if that takes longer than
    /// `limit`: then everything in its process group was killed.
    pub fn ends_within(mut self, limit: Duration) -> Result<Ran, String> {
        self.command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = self.command.spawn().unwrap_or_else(|error| panic!("{:?}: {error}", self.command));
        let group = format!("-{}", child.id());
        let (ended, watched) = mpsc::channel::<()>();
        let watch = thread::spawn(move || {
            let hangs = watched.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout);
            if hangs {
                Command::new("kill").args(["-KILL", "--", &group]).status().expect("kill starts");
            }
            hangs
        });
        let ran = Ran::of(child);
        drop(ended);
        let hung = watch.join().expect("ends");
        if hung { Err(format!("it, or what it left behind, did not end: {:?}", self.command)) } else { Ok(ran) }
    }

    /// Run it to its end.
    pub fn run(mut self) -> Ran {
        if self.stdin.is_empty() {
            // Not a pipe that is closed soon: what reads its standard input is waited for, or is none of ours.
            self.command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            return Ran::of(self.command.spawn().unwrap_or_else(|error| panic!("{:?}: {error}", self.command)));
        }
        let bytes = self.stdin.clone();
        let mut child = self.start();
        let mut stdin = child.stdin.take().expect("is a pipe");
        // What is not read may be lost.
        let _ = stdin.write_all(&bytes);
        drop(stdin);
        Ran::of(child)
    }
}

impl Ran {
    /// Wait for `child`.
    pub fn of(child: Child) -> Ran {
        let output = child.wait_with_output().expect("can be waited for");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ran {
            code: output.status.code(),
            signal: output.status.signal(),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
        }
    }

    /// It ended so; for chaining.
    #[track_caller]
    pub fn ends(self, code: i32) -> Ran {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    /// It ended well and said nothing on standard error; gives its standard output.
    #[track_caller]
    pub fn quiet(self) -> String {
        assert!(self.code == Some(0) && self.stderr.is_empty(), "{self:#?}");
        self.stdout
    }
}
