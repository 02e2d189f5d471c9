//! The page that `cargo --timings` writes. Its script has the units as JSON, with times in seconds
//! since cargo began.

use serde::Deserialize;

use super::parsed::{Parsed, Timed, shortened};

/// The variable of the page's script.
const UNITS: &[u8] = b"const UNIT_DATA = ";

#[derive(Default, Deserialize)]
#[serde(default)]
struct Unit {
    name: String,
    version: String,
    target: String,
    start: f64,
    duration: f64,
}

/// Parses a page. Returns `None` if it is another one.
pub(super) fn parse(bytes: &[u8]) -> serde_json::Result<Option<Parsed>> {
    let Some(at) = bytes.windows(UNITS.len()).position(|window| window == UNITS) else { return Ok(None) };
    let mut values = serde_json::Deserializer::from_slice(&bytes[at + UNITS.len()..]).into_iter::<Vec<Unit>>();
    let units = values.next().transpose()?.unwrap_or_default();
    let ns = |seconds: f64| (seconds * 1e9) as i64;
    let span = |unit: Unit| Timed {
        name: shortened(&format!("{} {}", unit.name, unit.version)),
        detail: shortened(unit.target.trim()),
        start_ns: ns(unit.start),
        end_ns: ns(unit.start + unit.duration),
    };
    let spans: Vec<Timed> = units.into_iter().map(span).collect();
    Ok((!spans.is_empty()).then_some(Parsed::Spans { form: "cargo", zero_ns: None, spans }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units() {
        let page = "<html><script>\nDURATION = 6;\nconst UNIT_DATA = [{\"i\":0,\"name\":\"c1\",\"version\":\"0.1.0\",\
                    \"mode\":\"todo\",\"target\":\" c1 \\\"bin\\\"\",\"start\":3.25,\"duration\":2.5,\"sections\":null}];\n\
                    const CONCURRENCY_DATA = [];";
        let span = Timed {
            name: "c1 0.1.0".into(),
            detail: "c1 \"bin\"".into(),
            start_ns: 3_250_000_000,
            end_ns: 5_750_000_000,
        };
        let expected = Parsed::Spans { form: "cargo", zero_ns: None, spans: vec![span] };
        assert_eq!(parse(page.as_bytes()).expect("JSON"), Some(expected));
        assert!(parse(b"<script>const UNIT_DATA = [{\"start\":").is_err());
    }
}
