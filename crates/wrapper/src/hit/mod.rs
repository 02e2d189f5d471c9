//! A hit: puts the outputs in place and replays the messages.
//!
//! Unaware of: how the result was found.

mod ninja;

use std::io::{self, Write};
use std::time::SystemTime;

use larder_compiler::Family;
use larder_lookup::Request;
use larder_model::{ActionResult, Content, Fallback, Streams};
use larder_store::{MaterialiseError, StatCache, Store};

use crate::say::say;

/// The largest message that is read into memory, in bytes. Recorded messages are never longer
/// (`sys`, `relay.rs`).
const MESSAGE_BYTES_MAX: u64 = 64 << 20;

/// Why a result was not put in place.
pub(crate) enum NotPlaced {
    /// The tool must run. Nothing was printed, and no output is in place.
    ToolRuns(Fallback),
    /// Some outputs are in place, and the tool cannot run on top of them. An error was printed.
    Half,
}

impl From<Fallback> for NotPlaced {
    fn from(cause: Fallback) -> NotPlaced {
        NotPlaced::ToolRuns(cause)
    }
}

/// Puts the outputs in place, prints the messages and returns the exit code.
pub(crate) fn replay(
    store: &Store,
    stat_cache: &StatCache,
    request: &Request,
    result: &ActionResult,
) -> Result<i32, NotPlaced> {
    let bytes = |content: &Content| match content.size_bytes() {
        0..=MESSAGE_BYTES_MAX => store.content_bytes(content, stat_cache).map_err(|error| error.fallback()),
        _ => Err(Fallback::Damaged),
    };
    if result.consumed_bytes > request.input.len() as u64 {
        return Err(Fallback::Damaged.into());
    }
    let messages = match &result.streams {
        Streams::Apart { stdout, stderr } => [(1, bytes(stdout)?), (2, bytes(stderr)?)],
        Streams::Together(both) => [(1, bytes(both)?), (2, Vec::new())],
    };
    let began = (request.family == Family::Command).then(SystemTime::now);
    let renewed =
        began.map(|began| ninja::renewed(result, &request.roots, began, store, stat_cache)).unwrap_or_default();
    let placed = match renewed.is_empty() {
        true => store.materialise(result, &request.roots, request, stat_cache, began),
        false => store.materialise(&ninja::with(result, &renewed), &request.roots, request, stat_cache, began),
    };
    match placed {
        Ok(()) => {}
        Err(error @ MaterialiseError::HalfDone { .. }) => {
            say(&format!(
                "{error}: some outputs of the command are in place, and it cannot run on top of them; remove them and retry"
            ));
            return Err(NotPlaced::Half);
        }
        Err(MaterialiseError::Store(error)) => return Err(error.fallback().into()),
        Err(MaterialiseError::Io { .. } | MaterialiseError::Root | MaterialiseError::Refused { .. }) => {
            return Err(Fallback::Materialise.into());
        }
    }
    if result.consumed_bytes > 0 {
        let _ = larder_sys::take_standard_input(result.consumed_bytes);
    }
    let mut code = i32::from(result.exit_code);
    for (fd, bytes) in messages {
        match emit(fd, &bytes) {
            // A broken pipe is no error here, because the tool could not have written either.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe && code == 0 => {
                eprintln!("larder: write error: {error}");
                code = 1;
            }
            _ => {}
        }
    }
    Ok(code)
}

fn emit(fd: i32, bytes: &[u8]) -> io::Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    let written = if fd == 1 { io::stdout().write_all(bytes) } else { io::stderr().write_all(bytes) };
    written?;
    if fd == 1 { io::stdout().flush() } else { Ok(()) }
}
