//! What became of an invocation: counted in the store, and written to `LARDER_LOG` where that is set.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;

use larder_model::Outcome;
use larder_store::{Counters, Store};

use crate::context::Context;

/// Count and log.
pub(crate) fn account(context: &Context, store: Option<&Store>, outcome: Outcome, subject: &[u8], detail: &str) {
    if let Some(store) = store
        && !context.loaded.settings.read_only
        && let Ok(counters) = Counters::open(store)
    {
        counters.count(outcome);
    }
    log(context, outcome, subject, detail);
}

/// One line for people. Arguments and the environment, which may hold secrets, are not in it; the tool and the source are.
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
    let subject = String::from_utf8_lossy(subject).replace(char::is_control, "?");
    let mut line = format!("{seconds:.3} {pid} {what}: {subject}");
    for part in [why, detail].into_iter().filter(|part| !part.is_empty()) {
        line.push_str(" · ");
        line.push_str(part);
    }
    line.push('\n');
    // Trouble with the log is no trouble of the build's.
    if let Ok(mut file) = OpenOptions::new().append(true).create(true).mode(0o600).open(path) {
        let _ = file.write_all(line.as_bytes());
    }
}
