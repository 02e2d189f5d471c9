//! The messages of GNU make's `--debug=j`: the targets of its jobs, each with a process ID but
//! without times. The times are those of the processes, so such a report needs a traced run.

use std::collections::HashMap;

use super::parsed::{Parsed, shortened};
use crate::processes::Processes;
use crate::schema::Span;

const BEGINNING: &str = "Putting child ";
const END: &str = " on the chain.";
/// The largest number of jobs.
const JOBS_MAX: usize = 1_000_000;

/// Parses the messages. Returns `None` if there is no job.
pub(super) fn parse(bytes: &[u8]) -> Option<Parsed> {
    let lines = bytes.split(|&byte| byte == b'\n');
    let names: Vec<(i32, String)> = lines.filter_map(job).take(JOBS_MAX).collect();
    (!names.is_empty()).then_some(Parsed::Children { form: "make", parent: "make", names })
}

/// Returns the process and the target in a line such as
/// `Putting child 0x55ba (x.o) PID 8811 on the chain.`
fn job(line: &[u8]) -> Option<(i32, String)> {
    let line = std::str::from_utf8(line).ok()?.trim_end();
    let (_, rest) = line.strip_prefix(BEGINNING)?.strip_suffix(END)?.split_once(" (")?;
    let (target, pid) = rest.rsplit_once(") PID ")?;
    Some((pid.parse().ok()?, shortened(target)))
}

/// Returns a span for each job whose process was traced: a child of a program whose name ends with
/// `parent`. If process IDs were used again, jobs and processes are matched in order, but only
/// if there are equally many.
pub(super) fn placed(parent: &str, names: Vec<(i32, String)>, found: &Processes) -> Vec<Span> {
    let mut jobs: HashMap<i32, Vec<String>> = HashMap::new();
    names.into_iter().for_each(|(pid, name)| jobs.entry(pid).or_default().push(name));
    let mut children: HashMap<i32, Vec<usize>> = HashMap::new();
    for (at, process) in found.all.iter().enumerate().filter(|(_, process)| jobs.contains_key(&process.pid)) {
        let above = process.parent.map(|above| found.all[above].label.as_str());
        if above.is_some_and(|label| label.ends_with(parent)) {
            children.entry(process.pid).or_default().push(at);
        }
    }
    let mut spans = Vec::new();
    for (pid, names) in jobs {
        let Some(those) = children.get(&pid).filter(|those| those.len() == names.len()) else { continue };
        for (name, process) in names.into_iter().zip(those.iter().map(|&at| &found.all[at])) {
            let (start_ns, end_ns) = (process.start_ns, process.end_ns);
            spans.push(Span { report: 0, name, detail: format!("process {pid}"), start_ns, end_ns });
        }
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::processes;
    use crate::processes::tests::a_run;

    #[test]
    fn jobs_of_traced_processes() {
        let said = "gcc -c a.c\nPutting child 0x55 (a.o) PID 11 on the chain.\nLive child 0x55 (a.o) PID 11 \n\
                    Putting child 0x56 (b (x).o) PID 12 on the chain.\nPutting child 0x57 (c.o) PID 13 on the chain.\n\
                    Putting child 0x58 (d.o) PID 12345678901 on the chain.\n";
        let Some(Parsed::Children { parent, names, .. }) = parse(said.as_bytes()) else { panic!("no jobs") };
        let mut spans = placed(parent, names, &processes(&a_run()));
        spans.sort_by_key(|span| span.start_ns);
        // Process 13 is a child of larder, not of make.
        let shown: Vec<_> = spans.iter().map(|span| (span.name.as_str(), span.start_ns / 1_000_000)).collect();
        assert_eq!(shown, [("a.o", 10), ("b (x).o", 20)]);
        assert_eq!(parse(b"make: nothing to be done"), None);
    }
}
