//! Becomes a tool, without observing or recording it.
//!
//! Unaware of: why the tool is run.

use larder_spawn::{Command, Token, become_tool};

use super::parent_run;
use crate::say::say;

/// The exit codes that a shell has for a command that does not exist and for one that cannot be
/// executed.
pub(crate) const NOT_FOUND: i32 = 127;
pub(crate) const NOT_EXECUTABLE: i32 = 126;

/// Becomes the tool. Returns only if that fails, with the exit code that a shell would have.
pub(crate) fn start(command: &Command) -> i32 {
    start_with(command, &Token::default())
}

/// Becomes the tool and keeps the job slot as long as the tool runs. Returns as `start` does.
pub(crate) fn start_with(command: &Command, token: &Token) -> i32 {
    let mut command = command.clone();
    parent_run::becomes(&command.program, &mut command.environment);
    let error = become_tool(&command, token);
    say(&format!("{}: {error}", String::from_utf8_lossy(&command.program)));
    if error.kind() == std::io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE }
}
