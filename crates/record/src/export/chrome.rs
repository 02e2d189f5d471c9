//! Chrome's trace event format (JSON), which Chrome, Perfetto and Speedscope read. A process is a
//! complete event in a track of its own; times are in microseconds.

use serde_json::{Map, Value, json};

use super::arguments::arguments;
use crate::directory::RecordedRun;
use crate::processes::{Processes, processes};

/// Returns a run as one JSON object.
pub fn chrome(run: &RecordedRun) -> Value {
    let Processes { all, .. } = processes(run);
    let mut events: Vec<Value> = Vec::with_capacity(all.len() * 2);
    for process in &all {
        let of = json!({ "name": process.label });
        events.push(json!({ "ph": "M", "name": "process_name", "pid": process.pid, "tid": process.pid, "args": of }));
        let args: Map<String, Value> =
            arguments(process, &run.actions).into_iter().map(|(name, text)| (name.to_owned(), text.into())).collect();
        events.push(json!({
            "ph": "X",
            "cat": process.outcome.name(),
            "name": process.label,
            "pid": process.pid,
            "tid": process.pid,
            "ts": process.start_ns as f64 / 1e3,
            "dur": process.wall_ns() as f64 / 1e3,
            "args": args,
        }));
    }
    json!({ "displayTimeUnit": "ms", "traceEvents": events })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::tests::a_run;

    #[test]
    fn an_event_a_process() {
        let trace = chrome(&a_run());
        let events = trace["traceEvents"].as_array().expect("a list");
        let complete: Vec<_> = events.iter().filter(|event| event["ph"] == "X").collect();
        assert_eq!((complete.len(), &complete[2]["cat"], &complete[2]["ts"]), (4, &json!("miss"), &json!(20_000.0)));
        assert_eq!(complete[2]["args"]["cause"], "x.h changed");
    }
}
