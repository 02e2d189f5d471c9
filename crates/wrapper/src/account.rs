//! What became of an invocation: counted in the store, written to `LARDER_LOG` where that is set, and said into the
//! record of a build.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use larder_lookup::Request;
use larder_model::Outcome;
use larder_store::{Counters, Store};

use crate::context::Context;
use crate::recording;

/// Whose outcome it is.
#[derive(Clone, Copy)]
pub(crate) struct By<'a> {
    /// The tool, as it is called.
    pub(crate) tool: &'a [u8],
    /// What it works on, or the tool where that is not known.
    pub(crate) source: &'a [u8],
}

impl<'a> By<'a> {
    /// All that is known is the tool.
    pub(crate) fn tool(tool: &'a [u8]) -> Self {
        By { tool, source: tool }
    }

    /// An action.
    pub(crate) fn request(request: &'a Request) -> Self {
        By { tool: &request.action.argv[0], source: request.subject() }
    }
}

/// Count, log, and say it into the record of the build.
pub(crate) fn account(context: &Context, store: Option<&Store>, outcome: Outcome, by: By, detail: &str) {
    if let Some(store) = store
        && !context.loaded.settings.read_only
        && let Ok(counters) = Counters::open(store)
    {
        counters.count(outcome);
        // The process ends soon, and then gives all mappings back at once.
        std::mem::forget(counters);
    }
    recording::note(context, outcome, by.tool, by.source, detail);
    log(context, outcome, by.source, detail);
}

/// One line for people. Arguments and the environment, which may hold secrets, are not in it; the tool and the source
/// are.
pub(crate) fn log(context: &Context, outcome: Outcome, subject: &[u8], detail: &str) {
    let Some(path) = &context.loaded.settings.log else { return };
    let (what, why) = match outcome {
        Outcome::Hit => ("hit", ""),
        Outcome::Miss(None) => ("miss", "recorded"),
        Outcome::Miss(Some(why)) => ("miss, not recorded", why.sentence()),
        Outcome::Bypass(why) => ("bypass", why.sentence()),
        Outcome::Fallback(cause) => ("fallback", cause.sentence()),
    };
    let seconds = larder_sys::now_coarse_ns() as f64 / 1e9;
    let pid = larder_sys::process_id();
    let subject = String::from_utf8_lossy(subject);
    let mut line = format!("{seconds:.3} {pid} {what}: {subject}");
    for part in [why, detail].into_iter().filter(|part| !part.is_empty()) {
        line.push_str(" · ");
        line.push_str(part);
    }
    // A file's name can hold anything: it must not begin a line of its own.
    let line = line.replace(char::is_control, "?") + "\n";
    // Trouble with the log is no trouble of the build's.
    let _ = open_log(path).and_then(|mut file| file.write_all(line.as_bytes()));
}

/// Never waits: for a FIFO's reader, or for a terminal that was stopped. Fails where the size of files is limited: to go
/// beyond that would kill us before the tool has run. In a directory of everybody's somebody else may have put there a
/// link to a file of ours, or a file of theirs.
pub(crate) fn open_log(path: &Path) -> io::Result<File> {
    const O_NONBLOCK: i32 = 0o4000;
    const O_NOCTTY: i32 = 0o400;
    const CHARACTER_DEVICE: larder_sys::Kind = larder_sys::Kind::Other(0o2);
    let trusted = |look: larder_sys::Look| match look.owner {
        0 => Ok(()),
        owner if owner == larder_sys::effective_user() || look.kind == CHARACTER_DEVICE => Ok(()),
        _ => Err(io::Error::from(io::ErrorKind::PermissionDenied)),
    };
    if larder_sys::file_size_is_limited() {
        return Err(io::Error::other("the size of files is limited"));
    }
    match larder_sys::look(path.as_os_str().as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        there => trusted(there?)?,
    }
    let flags = O_NONBLOCK | O_NOCTTY;
    let file = OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(flags).open(path)?;
    trusted(larder_sys::file_look(&file)?)?;
    Ok(file)
}
