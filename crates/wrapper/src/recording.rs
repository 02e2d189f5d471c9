//! Adds the outcome of an action to the record of the build, if there is one. `larder record` names
//! a file in a variable, and each wrapper appends one line to it. `docs/record.md` describes the
//! line.
//!
//! Unaware of: how the lines are read.

use std::cell::{Cell, RefCell};
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Instant, SystemTime};

use larder_lookup::{Rejected, Request, secret, subject};
use larder_model::{ActionResult, Manifest, Outcome};
use larder_store::Store;

use crate::log_file::open_log;

/// The variable that names the file. `larder record` sets it for everything that the build starts.
const VARIABLE: &str = "LARDER_RECORD";
/// The longest text in a line, in bytes. Short lines are written by one `write`, so lines of
/// several wrappers do not mix.
const TEXT_BYTES_MAX: usize = 600;
/// The number of hexadecimal digits of a key that are written. They suffice to tell the actions of
/// a build apart.
const KEY_DIGITS: usize = 32;

/// What is noted until the outcome is known.
pub(crate) struct Recording {
    file: PathBuf,
    began: SystemTime,
    since: Cell<Instant>,
    phases: RefCell<Vec<(&'static str, u64)>>,
    key: RefCell<String>,
    cause: RefCell<String>,
    bytes: Cell<u64>,
    via: Cell<&'static str>,
}

impl Recording {
    /// Returns a recording if the variable is set.
    pub(crate) fn find(variables: &[(OsString, OsString)]) -> Option<Recording> {
        let is_named = |(name, value): &&(OsString, OsString)| name == OsStr::new(VARIABLE) && !value.is_empty();
        let (_, file) = variables.iter().find(is_named)?;
        Some(Recording {
            file: file.into(),
            began: SystemTime::now(),
            since: Cell::new(Instant::now()),
            phases: RefCell::default(),
            key: RefCell::default(),
            cause: RefCell::default(),
            bytes: Cell::new(0),
            via: Cell::new(""),
        })
    }

    /// Notes that the phase `name` ends now. It began at the previous call.
    pub(crate) fn phase(&self, name: &'static str) {
        let now = Instant::now();
        let took = now.duration_since(self.since.replace(now));
        self.phases.borrow_mut().push((name, took.as_nanos() as u64));
    }

    /// Notes the key of the action.
    pub(crate) fn key(&self, request: &Request) {
        self.phase("key");
        self.key.replace(request.weak.hex()[..KEY_DIGITS].to_owned());
    }

    /// Notes the end of a phase that leads to another lookup. `how` becomes the field `via`.
    pub(crate) fn after(&self, name: &'static str, how: &'static str) {
        self.phase(name);
        self.via.set(how);
    }

    /// Notes the size of the result that was found.
    pub(crate) fn result(&self, result: &ActionResult) {
        self.bytes.set(result.size_bytes());
    }

    /// Notes by how many bytes the store grew.
    pub(crate) fn grown(&self, bytes: u64) {
        self.bytes.set(bytes);
    }

    /// Notes why no record answers.
    pub(crate) fn missed(&self, cause: &str) {
        self.cause.replace(cause.to_owned());
    }

    /// Appends the line for an action that ran in `cwd`. A failure must not disturb the build.
    pub(crate) fn note(&self, outcome: Outcome, tool: &[u8], source: &[u8], detail: &str, cwd: &[u8]) {
        self.phase("end");
        let line = self.line(outcome, tool, source, detail, cwd);
        let _ = open_log(&self.file).and_then(|mut file| file.write_all(line.as_bytes()));
    }

    fn line(&self, outcome: Outcome, tool: &[u8], source: &[u8], detail: &str, cwd: &[u8]) -> String {
        let (what, reason) = match outcome {
            Outcome::Hit => ("hit", ""),
            Outcome::Miss(None) => ("miss", ""),
            Outcome::Miss(Some(why)) => ("miss", why.code()),
            Outcome::Bypass(why) => ("bypass", why.code()),
            Outcome::Fallback(cause) => ("fallback", cause.code()),
        };
        let began = self.began.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let phases = self.phases.borrow();
        let took: u64 = phases.iter().map(|(_, ns)| ns).sum();
        let mut line = format!(
            "{{\"v\":1,\"pid\":{},\"began_ns\":{},\"took_ns\":{took},\"outcome\":\"{what}\",\
             \"reason\":\"{reason}\",\"bytes\":{}",
            larder_sys::process_id(),
            began.as_nanos(),
            self.bytes.get(),
        );
        let cause = self.cause.borrow();
        let texts = [
            ("via", self.via.get().as_bytes()),
            ("key", self.key.borrow().as_bytes()),
            ("tool", tool),
            ("source", source),
            ("cause", if what == "hit" { b"" } else { cause.as_bytes() }),
            ("detail", detail.as_bytes()),
            ("cwd", cwd),
        ]
        .map(|(name, text)| (name, text.to_vec()));
        for (name, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
            let _ = write!(line, ",\"{name}\":");
            quote(&text, &mut line);
        }
        line.push_str(",\"phases\":{");
        for (at, (name, ns)) in phases.iter().enumerate() {
            let _ = write!(line, "{}\"{name}\":{ns}", if at > 0 { "," } else { "" });
        }
        line.push_str("}}\n");
        line
    }
}

/// Returns why no record answers: the first difference to the newest entry. If the fingerprint has
/// no manifest, it is the difference to the command that was last recorded for the same source and
/// output.
pub(crate) fn cause(request: &Request, store: &Store, rejected: &[Rejected]) -> String {
    match rejected.first() {
        Some(Rejected { why, .. }) => format!("{} {}", String::from_utf8_lossy(&why.subject), why.what),
        None => unrecorded(request, store),
    }
}

/// Returns why there is no record, if the fingerprint has no manifest.
fn unrecorded(request: &Request, store: &Store) -> String {
    const NOTHING: &str = "nothing was recorded for it";
    let Some(near) = store.neighbour(&subject(request)) else { return NOTHING.to_owned() };
    let Ok(Some(file)) = store.read_manifest(&near, false) else { return NOTHING.to_owned() };
    let Ok(manifest) = Manifest::decode(&file.bytes) else { return NOTHING.to_owned() };
    // A manifest from a remote does not have the fields of its key.
    if manifest.fields.is_empty() {
        return "its last record came from a remote and does not say for which command it is".to_owned();
    }
    let now = secret::explained(request);
    let is_recorded =
        |name: &str, value: &[u8]| manifest.fields.iter().any(|(n, v)| *n == name.as_bytes() && *v == value);
    match now.fields.iter().find(|field| !is_recorded(&field.name, &field.value)) {
        Some(field) => format!("{} is not as in the last record", field.name),
        None => "the command has fewer arguments or variables than in the last record".to_owned(),
    }
}

/// Appends `text` as a JSON string. A file name may contain anything.
fn quote(text: &[u8], line: &mut String) {
    let text = String::from_utf8_lossy(&text[..text.len().min(TEXT_BYTES_MAX)]);
    line.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => line.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(line, "\\u{:04x}", u32::from(c));
            }
            c => line.push(c),
        }
    }
    line.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted() {
        let check = |text: &[u8], expect: &str| {
            let mut line = String::new();
            quote(text, &mut line);
            assert_eq!(line, expect);
        };
        check(b"x.c", r#""x.c""#);
        check(b"a\"b\\c\n\x1b", r#""a\"b\\c\u000a\u001b""#);
        check(b"\xff", "\"\u{fffd}\"");
        check(&[b'x'; TEXT_BYTES_MAX + 1], &format!("\"{}\"", "x".repeat(TEXT_BYTES_MAX)));
    }

    #[test]
    fn only_where_it_is_named() {
        let variable = |name: &str, value: &str| (OsString::from(name), OsString::from(value));
        assert!(Recording::find(&[variable("LARDER_LOG", "/x")]).is_none());
        assert!(Recording::find(&[variable(VARIABLE, "")]).is_none());
        assert!(Recording::find(&[variable(VARIABLE, "/x")]).is_some());
    }
}
