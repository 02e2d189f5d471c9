//! The data for the page's script: columns of numbers and one table of texts, as JSON, compressed,
//! in base64. In this form 100,000 processes take some megabytes, which a browser decodes quickly.

use std::collections::HashMap;
use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;

use crate::critical::critical_path;
use crate::directory::RecordedRun;
use crate::lanes::lanes;
use crate::processes::{Outcome, Process, Processes};

/// The number of slices in the chart of busy processors, about the number of pixels on a wide
/// screen.
const SLICES: usize = 2000;
/// The number of characters of a command line that are kept, normally and if there are more than
/// [`MANY`] processes.
const COMMAND_CHARS: [usize; 2] = [2000, 160];
const MANY: usize = 20_000;

#[derive(Default, Serialize)]
struct Data {
    /// The wall time, in microseconds.
    wall: u64,
    processors: u32,
    lanes: usize,
    texts: Vec<String>,
    /// Columns with one number per process. Times are in microseconds, memory is in KiB, and texts
    /// are indices into `texts`.
    start: Vec<u64>,
    took: Vec<u64>,
    lane: Vec<usize>,
    parent: Vec<i64>,
    label: Vec<usize>,
    command: Vec<usize>,
    cwd: Vec<usize>,
    outcome: Vec<u8>,
    cpu: Vec<u64>,
    kernel: Vec<u64>,
    memory: Vec<u64>,
    faults: Vec<u64>,
    pid: Vec<i32>,
    code: Vec<i32>,
    /// Pairs of a process and a text about its action.
    action: Vec<(usize, usize)>,
    /// The critical path, as (process, from, to).
    critical: Vec<(usize, u64, u64)>,
    /// The number of busy processors in each slice, in hundredths.
    busy: Vec<u32>,
    stacks: String,
}

/// The outcome of spans from reports, which the page shows like processes, behind the last one.
const SPAN: u8 = Outcome::ALL.len() as u8;

/// The exit code of a process whose end was not recorded.
const NO_CODE: i32 = -1;

/// Returns the encoded data, to be put into a page.
pub(super) fn encoded(run: &RecordedRun, found: &Processes, processors: u32) -> String {
    let json = serde_json::to_vec(&data(run, found, processors)).unwrap_or_default();
    let mut packed = GzEncoder::new(Vec::new(), Compression::new(6));
    // Writing to memory cannot fail.
    let bytes = packed.write_all(&json).and_then(|()| packed.finish()).unwrap_or_default();
    STANDARD.encode(bytes)
}

fn data(run: &RecordedRun, found: &Processes, processors: u32) -> Data {
    let mut texts = Texts::default();
    let all = &found.all;
    let (lane, lanes) = lanes(all.iter().map(|process| (process.start_ns, process.end_ns)));
    let chars_max = COMMAND_CHARS[usize::from(all.len() > MANY)];
    let mut data = Data { wall: found.wall_ns / 1000, processors, lane, lanes, ..Data::default() };
    for (at, process) in all.iter().enumerate() {
        data.start.push(process.start_ns / 1000);
        data.took.push(process.wall_ns() / 1000);
        data.parent.push(process.parent.map_or(-1, |parent| parent as i64));
        data.label.push(texts.place(&process.label));
        data.command.push(texts.place(&shortened(&process.command(), chars_max)));
        data.cwd.push(texts.place(&process.cwd));
        data.outcome.push(process.outcome as u8);
        data.cpu.push(process.own.cpu_us());
        data.kernel.push(process.own.system_us);
        data.memory.push(process.own.peak_bytes / 1024);
        data.faults.push(process.own.minor_faults + process.own.major_faults);
        data.pid.push(process.pid);
        data.code.push(process.code.unwrap_or(NO_CODE));
        if let Some(action) = process.action.and_then(|action| run.actions.get(action)) {
            let parts = [&action.outcome, &action.via, &action.source, &action.cause, &action.reason, &action.detail];
            let text: Vec<&str> = parts.into_iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
            data.action.push((at, texts.place(&text.join(" · "))));
        }
    }
    spans(&mut data, run, &mut texts);
    let stretches = critical_path(all);
    data.critical = stretches.iter().map(|s| (s.process, s.from_ns / 1000, s.to_ns / 1000)).collect();
    data.busy = busy(all, found.wall_ns);
    data.stacks = run.stacks.clone();
    data.texts = texts.all;
    data
}

/// Adds the spans as rows behind the processes, in lanes below theirs.
fn spans(data: &mut Data, run: &RecordedRun, texts: &mut Texts) {
    let reports = run.run.end.as_ref().map(|end| end.reports.as_slice()).unwrap_or_default();
    let (lane, lanes) = lanes(run.spans.iter().map(|span| (span.start_ns, span.end_ns)));
    for (span, lane) in run.spans.iter().zip(lane) {
        let report = reports.get(span.report);
        data.lane.push(data.lanes + lane);
        data.start.push(span.start_ns / 1000);
        data.took.push(span.end_ns.saturating_sub(span.start_ns) / 1000);
        data.parent.push(-1);
        data.label.push(texts.place(&span.name));
        data.command.push(texts.place(&span.detail));
        data.cwd
            .push(texts.place(&report.map(|report| format!("{} {}", report.form, report.path)).unwrap_or_default()));
        data.outcome.push(SPAN);
        for column in [&mut data.cpu, &mut data.kernel, &mut data.memory, &mut data.faults] {
            column.push(0);
        }
        data.pid.push(0);
        data.code.push(NO_CODE);
    }
    data.lanes += lanes;
}

#[derive(Default)]
struct Texts {
    all: Vec<String>,
    places: HashMap<String, usize>,
}

impl Texts {
    fn place(&mut self, text: &str) -> usize {
        if let Some(&place) = self.places.get(text) {
            return place;
        }
        let place = self.all.len();
        self.all.push(text.to_owned());
        self.places.insert(text.to_owned(), place);
        place
    }
}

pub(super) fn shortened(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Returns the number of busy processors in each slice, in hundredths. It is assumed that each
/// process used its CPU time evenly over its life.
fn busy(all: &[Process], wall_ns: u64) -> Vec<u32> {
    let mut slices = vec![0.0; SLICES];
    let slice_ns = wall_ns as f64 / SLICES as f64;
    for process in all.iter().filter(|process| process.own.cpu_us() > 0) {
        let (start, end) = (process.start_ns as f64, (process.end_ns as f64).max(process.start_ns as f64 + 1.0));
        let share = process.own.cpu_us() as f64 * 1000.0 / (end - start);
        let (first, last) = ((start / slice_ns) as usize, (end / slice_ns) as usize);
        for (at, slice) in slices.iter_mut().enumerate().take(last + 1).skip(first) {
            let (from, to) = (at as f64 * slice_ns, (at + 1) as f64 * slice_ns);
            *slice += share * (end.min(to) - start.max(from)).max(0.0) / slice_ns;
        }
    }
    slices.into_iter().map(|busy: f64| (busy * 100.0).round() as u32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::processes;
    use crate::processes::tests::a_run;
    use crate::schema::Span;

    #[test]
    fn spans_are_below_the_processes() {
        let mut run = a_run();
        let span = |start_ns, end_ns| Span { start_ns, end_ns, name: "a.o".into(), ..Span::default() };
        run.spans = vec![span(0, 2000), span(0, 1000), span(3000, 4000)];
        let data = data(&run, &processes(&run), 2);
        assert_eq!((data.lanes, &data.lane[4..], &data.outcome[4..]), (5, &[3, 4, 3][..], &[SPAN; 3][..]));
        assert_eq!((data.start.len(), data.pid.len(), data.cpu.len(), data.faults.len()), (7, 7, 7, 7));
    }

    #[test]
    fn all_processor_time_is_in_the_strip() {
        let mut found = processes(&a_run());
        found.all[3].own.user_us = 40_000;
        let sum: u32 = busy(&found.all, found.wall_ns).iter().sum();
        let us = f64::from(sum) / 100.0 * found.wall_ns as f64 / 1000.0 / SLICES as f64;
        assert!((us - 40_000.0).abs() < 500.0, "{us}");
    }

    #[test]
    fn texts_are_there_once() {
        let run = a_run();
        let data = data(&run, &processes(&run), 2);
        assert_eq!(data.label[1], data.label[2]);
        assert!(data.texts[data.action[1].1].contains("miss · 12.c · x.h changed"));
        assert_eq!(shortened("äöü", 2), "äö…");
    }
}
