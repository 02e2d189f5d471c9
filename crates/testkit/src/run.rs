//! A command, and its result as the caller sees it: exit code, signal and output.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// A command that has not been started yet.
pub struct Run {
    /// The command and its environment. [`Run::run`] sets its streams.
    pub command: Command,
    stdin: Vec<u8>,
}

/// The result of a command, without the files that it wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// The exit code, or `None` if a signal ended the command.
    pub code: Option<i32>,
    /// The signal that ended the command, if any.
    pub signal: Option<i32>,
    /// Everything written to standard output.
    pub stdout: String,
    /// Everything written to standard error.
    pub stderr: String,
}

impl Run {
    pub(crate) fn new(command: Command) -> Run {
        Run { command, stdin: Vec::new() }
    }

    /// Sets a variable.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Run {
        self.command.env(name, value);
        self
    }

    /// Removes a variable.
    pub fn without(mut self, name: &str) -> Run {
        self.command.env_remove(name);
        self
    }

    /// Sets the working directory.
    pub fn cwd(mut self, path: impl AsRef<Path>) -> Run {
        self.command.current_dir(path);
        self
    }

    /// Sets the bytes that the command can read from its standard input.
    pub fn stdin(mut self, bytes: &[u8]) -> Run {
        self.stdin = bytes.to_vec();
        self
    }

    /// Starts the command with pipes on all three streams, for tests that talk with it.
    pub fn start(mut self) -> Child {
        self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        self.command.spawn().unwrap_or_else(|error| panic!("cannot start {:?}: {error}", self.command))
    }

    /// Runs the command and waits until no process holds its standard output or error open. Returns
    /// an error if that takes longer than `limit`, and then kills the command's process group.
    pub fn ends_within(mut self, limit: Duration) -> Result<Ran, String> {
        self.command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = self.command.spawn().unwrap_or_else(|error| panic!("cannot start {:?}: {error}", self.command));
        let group = format!("-{}", child.id());
        let (ended, watched) = mpsc::channel::<()>();
        let watch = thread::spawn(move || {
            let hangs = watched.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout);
            if hangs {
                Command::new("kill").args(["-KILL", "--", &group]).status().expect("cannot start kill");
            }
            hangs
        });
        let ran = Ran::of(child);
        drop(ended);
        let hung = watch.join().expect("the watching thread panicked");
        if hung {
            Err(format!("the command, or a process that it started, did not end in time: {:?}", self.command))
        } else {
            Ok(ran)
        }
    }

    /// Runs the command to its end.
    pub fn run(mut self) -> Ran {
        if self.stdin.is_empty() {
            // `/dev/null` and not a pipe that is closed at once: a pipe would make larder wait for
            // its end or bypass the command.
            self.command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            return Ran::of(
                self.command.spawn().unwrap_or_else(|error| panic!("cannot start {:?}: {error}", self.command)),
            );
        }
        let bytes = self.stdin.clone();
        let mut child = self.start();
        let mut stdin = child.stdin.take().expect("standard input is not a pipe");
        // The command may end before it has read everything, so a failed write is not an error.
        let _ = stdin.write_all(&bytes);
        drop(stdin);
        Ran::of(child)
    }
}

impl Ran {
    /// Waits for `child` and returns its result.
    pub fn of(child: Child) -> Ran {
        let output = child.wait_with_output().expect("cannot wait for the command");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ran {
            code: output.status.code(),
            signal: output.status.signal(),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
        }
    }

    /// Asserts that the command exited with `code`, and returns the result for chaining.
    #[track_caller]
    pub fn ends(self, code: i32) -> Ran {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    /// Asserts that the command exited with 0 and wrote nothing to standard error. Returns its
    /// standard output.
    #[track_caller]
    pub fn quiet(self) -> String {
        assert!(self.code == Some(0) && self.stderr.is_empty(), "{self:#?}");
        self.stdout
    }
}
