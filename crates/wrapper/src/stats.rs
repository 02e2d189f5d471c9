//! Reports the outcome of an invocation: counts it in the store, appends a line to `LARDER_LOG` if
//! that is set, and adds it to the record of a build.

use std::io::Write;

use larder_compiler::{Family, crate_kind};
use larder_lookup::Request;
use larder_model::{Outcome, Unrecorded};
use larder_store::{Counters, HitCount, Recent, Store};

use crate::context::Context;
use crate::log_file::open_log;
use crate::request_context::RequestContext;
use crate::say::say;

/// The names by which an outcome is reported.
#[derive(Clone, Copy)]
pub(crate) struct By<'a> {
    /// The tool as it was called.
    pub(crate) tool: &'a [u8],
    /// The source file, or the tool if there is none.
    pub(crate) source: &'a [u8],
    /// The request, if the command line was understood.
    pub(crate) request: Option<&'a Request>,
}

impl<'a> By<'a> {
    /// Makes it for an invocation of which only the tool is known.
    pub(crate) fn tool(tool: &'a [u8]) -> Self {
        By { tool, source: tool, request: None }
    }

    /// Makes it for a request.
    pub(crate) fn request(request: &'a Request) -> Self {
        By { tool: &request.action.argv[0], source: request.subject(), request: Some(request) }
    }
}

/// Counts the outcome, logs it, and adds it to the record of the build.
pub(crate) fn report(context: &Context, store: Option<&Store>, outcome: Outcome, by: By, detail: &str) {
    if let Some(store) = store
        && !context.loaded.settings.read_only
        && let Ok(counters) = Counters::open(store)
    {
        counters.count(outcome);
        note(context, &counters, outcome, by, 0, larder_sys::now_coarse_ns());
        // The process ends soon and then unmaps everything at once.
        std::mem::forget(counters);
    }
    told(context, outcome, by, detail);
}

/// The time and bytes that a hit saved.
pub(crate) struct Hit {
    /// How long the tool ran when the result was recorded, in microseconds.
    pub(crate) run_time_us: u64,
    /// The size of its outputs and messages.
    pub(crate) bytes: u64,
    /// The time when the record was read, so that the clock need not be read again.
    pub(crate) at_ns: i64,
}

/// Counts a hit and what it saved, logs it, and adds it to the record of the build.
pub(crate) fn report_hit(cx: RequestContext, hit: Hit, detail: &str) {
    let RequestContext { context, store, request, .. } = cx;
    let by = By::request(request);
    if !context.loaded.settings.read_only
        && let Ok(counters) = Counters::open(store)
    {
        let Hit { run_time_us, bytes, at_ns } = hit;
        let ticks = larder_sys::ticks().saturating_sub(context.began_ticks);
        counters.count(Outcome::Hit);
        counters.count_saved(&HitCount { family: request.family as usize, run_time_us, ticks, bytes, at_ns });
        note(context, &counters, Outcome::Hit, by, run_time_us, at_ns);
        std::mem::forget(counters);
    }
    told(context, Outcome::Hit, by, detail);
}

/// Notes the command for `larder explain --last`. Misses are counted for the family of the tool,
/// and crates of Rust for their kind.
pub(crate) fn note(context: &Context, counters: &Counters, outcome: Outcome, by: By, run_time_us: u64, at_ns: i64) {
    if let (Outcome::Miss(_), Some(request)) = (outcome, by.request) {
        counters.count_missed(request.family as usize, at_ns);
    }
    if let (Outcome::Hit | Outcome::Miss(_), Some(request)) = (outcome, by.request)
        && request.family == Family::Rustc
    {
        let kind = crate_kind(&request.action.argv[1..]);
        counters.count_crate(kind as usize, outcome == Outcome::Hit);
    }
    let cause = context.cause.borrow();
    let below_cwd = || cause.as_bytes().strip_prefix(&*context.place.cwd)?.strip_prefix(b"/");
    let cause = if outcome == Outcome::Hit { b"" } else { below_cwd().unwrap_or(cause.as_bytes()) };
    let (weak, source) = (by.request.map(|request| request.weak), by.source);
    let output = by.request.and_then(|request| request.invocation.output.as_deref());
    counters.note(&Recent { at_ns, outcome, run_time_us, weak, source, cause }, &context.place.cwd, output);
}

fn told(context: &Context, outcome: Outcome, by: By, detail: &str) {
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
    say(&format!("not cached: {tool}{colon} {why}{detail}"));
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
    let cause = context.cause.borrow();
    // A hit after a wait, or a bypass, may have had one too.
    let cause = if matches!(outcome, Outcome::Miss(_)) && !cause.is_empty() { &format!("no hit: {cause}") } else { "" };
    let mut line = format!("{seconds:.3} {pid} {what}: {subject}");
    for part in [why, detail, cause].into_iter().filter(|part| !part.is_empty()) {
        line.push_str(" · ");
        line.push_str(part);
    }
    // A file name may contain a newline, which must not start a new log line.
    let line = line.replace(char::is_control, "?") + "\n";
    // A failure to log must not disturb the build.
    let _ = open_log(path).and_then(|mut file| file.write_all(line.as_bytes()));
}
