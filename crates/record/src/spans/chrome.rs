//! Chrome's trace events, which Bazel (`--profile`), CMake (`--profiling-format=google-trace`) and
//! clang (`-ftime-trace`) write: an object with `traceEvents`, or only the list.
//!
//! Complete events (`X`) and pairs (`B` and `E`) become spans. Times are in microseconds since some
//! moment: Bazel and clang say which.

use std::collections::HashMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use serde_json::Value;

use super::parsed::{Parsed, Timed, shortened};

/// The largest number of events in a file.
const EVENTS_MAX: usize = 1_000_000;
/// Events with this name at their beginning are sums that clang adds at the end. They are no spans.
const SUMS: &str = "Total ";
/// The arguments that are shown: clang's source or function, CMake's line, Bazel's target.
const DETAILS: [&str; 5] = ["detail", "location", "target", "mnemonic", "out"];

#[derive(Default, Deserialize)]
#[serde(default)]
struct File {
    #[serde(rename = "traceEvents")]
    events: Events,
    /// clang: time 0 in microseconds since 1970.
    #[serde(rename = "beginningOfTime")]
    zero_us: Option<i64>,
    #[serde(rename = "otherData")]
    other: Value,
}

/// An event. Every field is any value, so that an odd one does not damage the whole file.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Event {
    ph: Value,
    name: Value,
    ts: Value,
    dur: Value,
    pid: Value,
    tid: Value,
    args: Value,
}

/// The spans of a list of events, which is read one event at a time.
#[derive(Default)]
struct Events {
    spans: Vec<Timed>,
    /// The events that have begun, by process and thread.
    open: HashMap<(String, String), Vec<Timed>>,
}

impl<'de> Deserialize<'de> for Events {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Events, D::Error> {
        deserializer.deserialize_seq(Events::default())
    }
}

impl<'de> Visitor<'de> for Events {
    type Value = Events;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a list of trace events")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<Events, A::Error> {
        let mut count = 0;
        while let Some(event) = list.next_element::<Event>()? {
            count += 1;
            if count > EVENTS_MAX {
                return Err(A::Error::custom(format!("more than {EVENTS_MAX} events")));
            }
            self.take(&event);
        }
        Ok(self)
    }
}

impl Events {
    fn take(&mut self, event: &Event) {
        // A conversion to an integer saturates, so that any number is some time.
        let ns = |value: &Value| value.as_f64().map(|us| (us * 1000.0) as i64);
        let Some(start_ns) = ns(&event.ts) else { return };
        let thread = || (event.pid.to_string(), event.tid.to_string());
        let span = |end_ns| {
            let detail = DETAILS.iter().find_map(|key| event.args.get(key)?.as_str()).unwrap_or_default();
            let name = shortened(event.name.as_str().unwrap_or_default());
            Timed { name, detail: shortened(detail), start_ns, end_ns }
        };
        match event.ph.as_str() {
            Some("X") => {
                let end_ns = start_ns.saturating_add(ns(&event.dur).unwrap_or(0));
                self.spans.push(span(end_ns));
            }
            Some("B") => self.open.entry(thread()).or_default().push(span(start_ns)),
            Some("E") => {
                if let Some(begun) = self.open.get_mut(&thread()).and_then(Vec::pop) {
                    self.spans.push(Timed { end_ns: start_ns, ..begun });
                }
            }
            _ => {}
        }
    }
}

/// Parses a trace. Returns `None` if it has no span.
pub(super) fn parse(bytes: &[u8]) -> serde_json::Result<Option<Parsed>> {
    let is_list = bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[');
    let file = if is_list {
        // A list of other things is no trace.
        let Ok(events) = serde_json::from_slice(bytes) else {
            return serde_json::from_slice::<serde::de::IgnoredAny>(bytes).map(|_| None);
        };
        File { events, ..File::default() }
    } else {
        serde_json::from_slice(bytes)?
    };
    let File { events: Events { mut spans, .. }, zero_us, other } = file;
    let form = match (zero_us, other.get("bazel_version").or(other.get("build_id"))) {
        (Some(_), _) => "clang",
        (None, Some(_)) => "Bazel",
        (None, None) => "trace",
    };
    if zero_us.is_some() {
        spans.retain(|span| !span.name.starts_with(SUMS));
    }
    // Bazel: time 0 in milliseconds since 1970, from version 6 on.
    let bazel_ms = other.get("profile_start_ts").and_then(Value::as_i64);
    let zero_ns = zero_us.and_then(|us| us.checked_mul(1000)).or(bazel_ms.and_then(|ms| ms.checked_mul(1_000_000)));
    Ok((!spans.is_empty()).then_some(Parsed::Spans { form, zero_ns, spans }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Name, detail, start and end.
    type Shown = (String, String, i64, i64);

    fn parsed(text: &str) -> (&'static str, Option<i64>, Vec<Shown>) {
        let Some(Parsed::Spans { form, zero_ns, spans }) = parse(text.as_bytes()).expect("JSON") else {
            panic!("no spans: {text}")
        };
        (form, zero_ns, spans.into_iter().map(|s| (s.name, s.detail, s.start_ns, s.end_ns)).collect())
    }

    #[test]
    fn clang_bazel_and_cmake() {
        let span = |name: &str, detail: &str, start, end| (name.to_owned(), detail.to_owned(), start, end);
        let clang = r#"{"traceEvents":[
            {"pid":1,"tid":1,"ph":"X","ts":47236,"dur":502,"name":"RunPass","args":{"detail":"main"}},
            {"pid":1,"tid":2,"ph":"X","ts":0,"dur":9000,"name":"Total Frontend","args":{"count":1}},
            {"cat":"","pid":1,"tid":0,"ts":0,"ph":"M","name":"process_name","args":{"name":"clang-14"}}],
            "beginningOfTime":1795718621403143}"#;
        let expected = vec![span("RunPass", "main", 47_236_000, 47_738_000)];
        assert_eq!(parsed(clang), ("clang", Some(1_795_718_621_403_143_000), expected));
        let bazel = r#"{"otherData":{"bazel_version":"release 7.0.0","profile_start_ts":1795718621403},"traceEvents":[
            {"name":"thread_name","ph":"M","pid":1,"tid":0,"args":{"name":"Critical Path"}},
            {"cat":"action processing","name":"Compiling a.cc","ph":"X","ts":10,"dur":20.5,"pid":1,"tid":7,
             "args":{"target":"//:a"}}, {"ph":"C","name":"cpu","ts":3,"args":{"cpu":1}}]}"#;
        let expected = vec![span("Compiling a.cc", "//:a", 10_000, 30_500)];
        assert_eq!(parsed(bazel), ("Bazel", Some(1_795_718_621_403_000_000), expected));
        let cmake = r#"[{"ph":"B","ts":5,"name":"project","pid":1,"tid":0,"args":{"location":"CMakeLists.txt:2"}},
            {"ph":"B","ts":6,"name":"if","pid":1,"tid":0},{"ph":"E","ts":7,"pid":1,"tid":0},{"ph":"E","ts":9,"pid":1,"tid":0},
            {"ph":"E","ts":9,"pid":1,"tid":0},{"ph":"B","ts":10,"name":"never ends","pid":1,"tid":0}]"#;
        let expected = vec![span("if", "", 6000, 7000), span("project", "CMakeLists.txt:2", 5000, 9000)];
        assert_eq!(parsed(cmake), ("trace", None, expected));
    }

    #[test]
    fn odd_values_are_some_time_or_no_span() {
        let odd = r#"[{"ph":"X","ts":1e300,"dur":1e300,"name":7},{"ph":"X","ts":"1"},{"ph":3},{"ph":"E","ts":1}]"#;
        assert_eq!(parsed(odd).2, [(String::new(), String::new(), i64::MAX, i64::MAX)]);
        let many = format!("[{}{{}}]", "{},".repeat(EVENTS_MAX));
        assert_eq!(parse(many.as_bytes()).ok(), Some(None), "it is no trace");
        let many = format!("{{\"traceEvents\":{many}}}");
        assert!(parse(many.as_bytes()).is_err_and(|why| why.to_string().contains("more than")));
    }
}
