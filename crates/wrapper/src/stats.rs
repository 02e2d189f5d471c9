//! Reports the outcome of an invocation: counts it in the store, appends a line to `LARDER_LOG` if
//! that is set, and adds it to the record of a build.

use std::io::Write;

use larder_lookup::Request;
use larder_model::{Outcome, Unrecorded};
use larder_store::{Counters, Store};

use crate::context::Context;
use crate::log_file::open_log;

/// The names by which an outcome is reported.
#[derive(Clone, Copy)]
pub(crate) struct By<'a> {
    /// The tool as it was called.
    pub(crate) tool: &'a [u8],
    /// The source file, or the tool if there is none.
    pub(crate) source: &'a [u8],
}

impl<'a> By<'a> {
    /// Makes it for an invocation of which only the tool is known.
    pub(crate) fn tool(tool: &'a [u8]) -> Self {
        By { tool, source: tool }
    }

    /// Makes it for a request.
    pub(crate) fn request(request: &'a Request) -> Self {
        By { tool: &request.action.argv[0], source: request.subject() }
    }
}

/// Counts the outcome, logs it, and adds it to the record of the build.
pub(crate) fn report(context: &Context, store: Option<&Store>, outcome: Outcome, by: By, detail: &str) {
    if let Some(store) = store
        && !context.loaded.settings.read_only
        && let Ok(counters) = Counters::open(store)
    {
        counters.count(outcome);
        // The process ends soon and then unmaps everything at once.
        std::mem::forget(counters);
    }
    context.recorded(|recording| recording.note(outcome, by.tool, by.source, detail, &context.place.cwd));
    say_if_not_cached(context, outcome, by.tool, detail);
    log(context, outcome, by.source, detail);
}

/// Tells a person at a terminal why `larder run` did not cache their command. Compilers behind
/// larder say nothing, because programs read their messages.
pub(crate) fn say_if_not_cached(context: &Context, outcome: Outcome, tool: &[u8], detail: &str) {
    let why = match outcome {
        Outcome::Bypass(why) => why.sentence(),
        Outcome::Miss(Some(Unrecorded::Terminal)) => "read from the terminal, or changed its settings",
        Outcome::Miss(Some(why)) => why.sentence(),
        Outcome::Fallback(cause) => cause.sentence(),
        Outcome::Hit | Outcome::Miss(None) => return,
    };
    if !context.is_asked_by_a_person {
        return;
    }
    let colon = if outcome == Outcome::Miss(Some(Unrecorded::Terminal)) { "" } else { ":" };
    let tool = String::from_utf8_lossy(tool);
    let detail = if detail.is_empty() { String::new() } else { format!(" ({detail})") };
    let line = format!("larder: not cached: {tool}{colon} {why}{detail}").replace(char::is_control, "?");
    // Standard error may be closed meanwhile.
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Appends one line to the log. It has the tool or the source, but no other argument and no
/// environment, because those may hold secrets.
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
    // A file name may contain a newline, which must not start a new log line.
    let line = line.replace(char::is_control, "?") + "\n";
    // A failure to log must not disturb the build.
    let _ = open_log(path).and_then(|mut file| file.write_all(line.as_bytes()));
}
