//! Reads the reports that build tools write about a run: ninja lists its edges, Bazel its actions,
//! clang its passes. They become spans on the timeline of the processes.
//!
//! | file | holds |
//! |---|---|
//! | `reports.rs` | finds the files that the run wrote, by the command lines of its processes |
//! | `parse.rs`, `parsed.rs` | recognises a format, and unpacks; what a report contains |
//! | `chrome.rs`, `ninja.rs`, `cargo.rs`, `make.rs` | one format each |
//!
//! Files come from outside. So their size and the number of spans are limited, and a file that
//! cannot be read leaves a note in the record.

mod cargo;
mod chrome;
mod make;
mod ninja;
mod parse;
mod parsed;
mod reports;

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use self::parsed::Parsed;
use crate::Redact;
use crate::directory::{RecordedRun, RunFiles};
use crate::error::RecordError;
use crate::processes::{Processes, processes};
use crate::schema::{Report, Run, Span};

/// The largest size of a report in bytes, also after it was unpacked.
const REPORT_BYTES_MAX: u64 = 256 << 20;
/// The largest number of reports of a run. With `-ftime-trace` each compile writes one.
const REPORTS_MAX: usize = 10_000;
/// The largest number of spans of a run. If there are more, the longest are kept.
const SPANS_MAX: usize = 100_000;
/// File times come from a clock that may be this much behind.
const FILE_CLOCK_NS: u64 = 10_000_000;
/// A span that begins or ends this long outside of the run is not part of it.
const OUTSIDE_NS: i128 = 50_000_000;

/// Says which reports are taken into a record, and how their texts are shown.
pub(crate) struct Wanted<'a> {
    /// Files that the user named.
    pub(crate) attach: &'a [PathBuf],
    /// The variables of the command.
    pub(crate) environment: &'a [(Vec<u8>, Vec<u8>)],
    pub(crate) redact: &'a Redact,
}

/// Takes the reports of a run that has ended into the record. A report that cannot be read is named
/// in `run` with the reason.
pub(crate) fn collect(run: &mut Run, files: &RunFiles, wanted: &Wanted) -> Result<(), RecordError> {
    let recorded = RecordedRun { run: run.clone(), events: files.events_so_far(), ..RecordedRun::default() };
    let found = processes(&recorded);
    let mut reports = Vec::new();
    for path in wanted.attach {
        let copied = files.attach(path, REPORT_BYTES_MAX).map_err(|error| error.to_string());
        reports.push(report(path, copied, &found, run.began_ns));
    }
    let mut written = reports::written(&found, wanted.environment, run.began_ns.saturating_sub(FILE_CLOCK_NS));
    written.retain(|path| !wanted.attach.iter().any(|attached| is_same(attached, path)));
    let written = written.iter().take(REPORTS_MAX).map(|path| report(path, Ok(()), &found, run.began_ns));
    reports.extend(written.filter(|(report, spans)| !spans.is_empty() || !report.problem.is_empty()));
    // The command's output is only a report if make wrote its jobs into it.
    let output = files.kept_output().map(|path| report(&path, Ok(()), &found, run.began_ns));
    reports.extend(output.filter(|(_, spans)| !spans.is_empty()));
    let of_report = |(at, (_, spans)): (usize, &mut (Report, Vec<Span>))| {
        std::mem::take(spans).into_iter().map(move |span| Span { report: at, ..span })
    };
    let mut spans: Vec<Span> = reports.iter_mut().enumerate().flat_map(of_report).collect();
    let left_out = spans.len().saturating_sub(SPANS_MAX);
    if left_out > 0 {
        spans.sort_by_key(|span: &Span| std::cmp::Reverse(span.end_ns - span.start_ns));
        spans.truncate(SPANS_MAX);
    }
    spans.sort_by_key(|span| (span.start_ns, std::cmp::Reverse(span.end_ns)));
    let shown = |text: &str| (wanted.redact.argument)(b"", text.as_bytes());
    for span in &mut spans {
        (span.name, span.detail) = (shown(&span.name), shown(&span.detail));
    }
    if let Some(end) = &mut run.end {
        (end.reports, end.spans_left_out) = (reports.into_iter().map(|(report, _)| report).collect(), left_out as u64);
    }
    files.spans(&spans)
}

fn is_same(one: &Path, other: &Path) -> bool {
    one == other || fs::canonicalize(one).is_ok_and(|one| fs::canonicalize(other).is_ok_and(|other| one == other))
}

/// Reads one report and places its spans. `copied` is the reason why the file itself could not be
/// taken into the record.
fn report(path: &Path, copied: Result<(), String>, found: &Processes, began_ns: u64) -> (Report, Vec<Span>) {
    let mut report = Report { path: path.display().to_string(), ..Report::default() };
    let mut spans = Vec::new();
    match copied.and_then(|()| read(path, began_ns)) {
        Err(problem) => report.problem = problem,
        Ok(None) => {}
        Ok(Some((parsed, modified_ns))) => {
            let (form, inside, outside) = placed(parsed, modified_ns, found, began_ns);
            if outside > 0 {
                report.problem = format!("{outside} spans are outside of the run, so they are left out");
            }
            (report.form, report.spans, spans) = (form.to_owned(), inside.len() as u64, inside);
        }
    }
    (report, spans)
}

/// Reads a report. Returns `None` if the file has no known format, or was not written during the
/// run; the second value is the time of the last change, in nanoseconds since 1970.
fn read(path: &Path, began_ns: u64) -> Result<Option<(Parsed, u64)>, String> {
    let said = |error: std::io::Error| error.to_string();
    let about = fs::metadata(path).map_err(said)?;
    let modified = about.modified().map_err(said)?.duration_since(UNIX_EPOCH).unwrap_or_default();
    let modified_ns = modified.as_nanos() as u64;
    if !about.is_file() {
        return Err("not a regular file".to_owned());
    }
    if about.len() > REPORT_BYTES_MAX {
        return Err(format!("larger than {REPORT_BYTES_MAX} bytes"));
    }
    if modified_ns.saturating_add(FILE_CLOCK_NS) < began_ns {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(REPORT_BYTES_MAX).read_to_end(&mut bytes)).map_err(said)?;
    let bytes = parse::unpacked(bytes, REPORT_BYTES_MAX)?;
    Ok(parse::any(&bytes, began_ns.saturating_sub(FILE_CLOCK_NS))?.map(|parsed| (parsed, modified_ns)))
}

/// Returns the format, the spans in nanoseconds since the run began, and how many are outside of
/// the run.
fn placed(parsed: Parsed, modified_ns: u64, found: &Processes, began_ns: u64) -> (&'static str, Vec<Span>, usize) {
    match parsed {
        Parsed::Children { form, parent, names } => (form, make::placed(parent, names, found), 0),
        Parsed::Spans { form, zero_ns, spans } => {
            // A report without a clock time was last written when its last span ended.
            let last_ns = spans.iter().map(|span| i128::from(span.end_ns)).max().unwrap_or(0);
            let zero_ns = zero_ns.map_or(i128::from(modified_ns) - last_ns, i128::from) - i128::from(began_ns);
            let wall_ns = i128::from(found.wall_ns);
            let count = spans.len();
            let inside = spans.into_iter().filter_map(|span| {
                let (start, end) = (zero_ns + i128::from(span.start_ns), zero_ns + i128::from(span.end_ns));
                let is_inside = start >= -OUTSIDE_NS && end <= wall_ns + OUTSIDE_NS && start <= end;
                let within = |t: i128| t.clamp(0, wall_ns) as u64;
                is_inside.then(|| Span {
                    report: 0,
                    name: span.name,
                    detail: span.detail,
                    start_ns: within(start),
                    end_ns: within(end),
                })
            });
            let inside: Vec<Span> = inside.collect();
            let outside = count - inside.len();
            (form, inside, outside)
        }
    }
}

/// Parses a report and places its spans, for fuzzing.
#[cfg(feature = "fuzzing")]
pub fn check_report(bytes: &[u8]) {
    if let Ok(Some(parsed)) = parse::any(bytes, 0) {
        let (_, spans, _) = placed(parsed, 0, &Processes { wall_ns: u64::MAX, ..Processes::default() }, 0);
        assert!(spans.iter().all(|span| span.start_ns <= span.end_ns));
    }
}

#[cfg(test)]
mod tests {
    use super::parsed::Timed;
    use super::*;
    use crate::processes::tests::a_run;

    const MS: i64 = 1_000_000;

    fn spans(zero_ns: Option<i64>, times: &[(i64, i64)]) -> Parsed {
        let spans = times.iter().map(|&(start, end)| Timed {
            name: "x".into(),
            detail: String::new(),
            start_ns: start * MS,
            end_ns: end * MS,
        });
        Parsed::Spans { form: "x", zero_ns, spans: spans.collect() }
    }

    #[test]
    fn a_clock_is_used_and_else_the_time_of_the_file() {
        let found = processes(&a_run());
        let times = |parsed, modified_ns| {
            let (_, spans, outside) = placed(parsed, modified_ns, &found, 1_000_000_000);
            (spans.iter().map(|span| (span.start_ns / 1_000_000, span.end_ns / 1_000_000)).collect::<Vec<_>>(), outside)
        };
        assert_eq!(times(spans(Some(1_000_000_000), &[(10, 20), (90, 200)]), 0), (vec![(10, 20)], 1));
        // The file was last written 80 ms after the run began.
        assert_eq!(times(spans(None, &[(500, 510), (505, 520)]), 1_080_000_000), (vec![(60, 70), (65, 80)], 0));
        assert_eq!(times(spans(Some(i64::MIN), &[(i64::MIN / MS, 1)]), 0), (vec![], 1));
    }

    #[test]
    fn files_that_are_no_reports() {
        let place = tempfile::tempdir().expect("a directory");
        let file = place.path().join("x");
        assert!(read(&file, 0).is_err() && read(place.path(), 0).is_err_and(|why| why.contains("regular")));
        fs::write(&file, "some text").expect("writes");
        assert_eq!(read(&file, 0), Ok(None));
        fs::write(&file, "{\"traceEvents\":[").expect("writes");
        assert!(read(&file, 0).is_err());
        // It is older than the run.
        assert_eq!(read(&file, u64::MAX), Ok(None));
    }
}
