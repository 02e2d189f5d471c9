//! Chrome's trace event format (JSON), which Chrome, Perfetto and Speedscope read. A process is a
//! complete event in a track of its own; times are in microseconds.

use serde_json::{Map, Value, json};

use super::arguments::arguments;
use crate::directory::RecordedRun;
use crate::lanes::lanes;
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
    let (of_lane, _) = lanes(run.spans.iter().map(|span| (span.start_ns, span.end_ns)));
    for (span, lane) in run.spans.iter().zip(of_lane) {
        events.push(json!({
            "ph": "X",
            "cat": "report",
            "name": span.name,
            // No traced process has this number.
            "pid": 0,
            "tid": lane,
            "ts": span.start_ns as f64 / 1e3,
            "dur": span.end_ns.saturating_sub(span.start_ns) as f64 / 1e3,
            "args": { "detail": span.detail },
        }));
    }
    json!({ "displayTimeUnit": "ms", "traceEvents": events })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::tests::a_run;
    use crate::schema::Span;

    #[test]
    fn an_event_for_each_process_and_span() {
        let mut run = a_run();
        run.spans.push(Span { name: "a.o".into(), start_ns: 1000, end_ns: 3000, ..Span::default() });
        let trace = chrome(&run);
        let events = trace["traceEvents"].as_array().expect("a list");
        let complete: Vec<_> = events.iter().filter(|event| event["ph"] == "X").collect();
        assert_eq!((complete.len(), &complete[2]["cat"], &complete[2]["ts"]), (5, &json!("miss"), &json!(20_000.0)));
        assert_eq!(
            (&complete[4]["name"], &complete[4]["ts"], &complete[4]["dur"]),
            (&json!("a.o"), &json!(1.0), &json!(2.0))
        );
        assert_eq!(complete[2]["args"]["cause"], "x.h changed");
    }
}
