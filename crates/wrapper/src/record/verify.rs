//! Compares a recorded result with the result of a new run of the tool (`LARDER_VERIFY`).
//!
//! Unaware of: which hits are verified, what happens after a difference.

use larder_model::{ActionResult, Content, Output, OutputKind, Streams};
use larder_store::StatCache;

use crate::recorder::Recorder;

/// Returns the first difference between the two results, as text for people.
pub(crate) fn difference(
    recorded: &ActionResult,
    found: &ActionResult,
    recorder: &Recorder,
    stat_cache: &StatCache,
) -> Option<String> {
    let same = |a: &Content, b: &Content| {
        let bytes = |content: &Content| recorder.content_bytes(content, stat_cache).ok();
        a == b || bytes(a).is_some_and(|a| Some(a) == bytes(b))
    };
    if recorded.exit_code != found.exit_code {
        return Some(format!("the exit code is {} and was recorded as {}", found.exit_code, recorded.exit_code));
    }
    let streams = match (&recorded.streams, &found.streams) {
        (Streams::Apart { stdout, stderr }, Streams::Apart { stdout: out, stderr: err }) => {
            [("standard output", same(stdout, out)), ("standard error", same(stderr, err))]
        }
        (Streams::Together(a), Streams::Together(b)) => [("the messages", same(a, b)), ("", true)],
        _ => [("the messages", false), ("", true)],
    };
    if let Some((what, _)) = streams.into_iter().find(|(_, same)| !same) {
        return Some(format!("{what} differ"));
    }
    let name = |output: &Output| String::from_utf8_lossy(output.path).replace(char::is_control, "");
    for output in &recorded.outputs {
        let Some(other) = found.outputs.iter().find(|other| other.path == output.path) else {
            return Some(format!("{} is recorded as an output and was not written", name(output)));
        };
        let equal = match (&output.kind, &other.kind) {
            _ if output.modified != other.modified => false,
            (OutputKind::File { mode, content, .. }, OutputKind::File { mode: mode2, content: content2, .. }) => {
                mode == mode2 && same(content, content2)
            }
            (a, b) => a == b,
        };
        if !equal {
            return Some(format!("{} differs", name(output)));
        }
    }
    let more = found.outputs.iter().find(|output| recorded.outputs.iter().all(|other| other.path != output.path));
    more.map(|output| format!("{} was written and is not recorded as an output", name(output)))
}
