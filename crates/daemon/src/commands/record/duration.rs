//! How long the runs of a record took.

use larder_record::Record;

use crate::say;

/// Returns the median time of the runs in nanoseconds, and in words. `None` if no run has ended.
pub(in crate::commands) fn took(record: &Record) -> Option<(u64, String)> {
    let walls: Vec<u64> = record.timed().iter().filter_map(|run| Some(run.run.end.as_ref()?.wall_ns)).collect();
    (!walls.is_empty()).then(|| middle(&walls))
}

pub(super) fn middle(walls: &[u64]) -> (u64, String) {
    let middle = larder_record::statistics::median(walls.iter().map(|wall| *wall as f64).collect()) as u64;
    let of = if walls.len() > 1 { format!(" (median of {})", walls.len()) } else { String::new() };
    (middle, format!("{}{of}", say::duration_us(middle / 1000)))
}
