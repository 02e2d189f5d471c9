//! What trace viewers show of a process.

use crate::processes::Process;
use crate::schema::Action;

/// Returns what a trace viewer shows of a process besides its name and times.
pub(super) fn arguments(process: &Process, actions: &[Action]) -> Vec<(&'static str, String)> {
    let mut all = vec![
        ("command", process.command()),
        ("directory", process.cwd.clone()),
        ("cpu_ms", format!("{:.3}", process.own.cpu_us() as f64 / 1e3)),
        ("peak_mib", format!("{:.1}", process.own.peak_bytes as f64 / f64::from(1 << 20))),
        ("faults", (process.own.minor_faults + process.own.major_faults).to_string()),
    ];
    all.extend(process.code.map(|code| ("exit_code", code.to_string())));
    if let Some(action) = process.action.and_then(|at| actions.get(at)) {
        all.push(("outcome", action.outcome.clone()));
        all.extend([("cause", &action.cause), ("reason", &action.reason)].map(|(name, text)| (name, text.clone())));
    }
    all.retain(|(_, text)| !text.is_empty());
    all
}
