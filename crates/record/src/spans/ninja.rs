//! `.ninja_log`: one line for each output that ninja has built, with the start and the end of its
//! command in milliseconds since ninja began, the time of the output, and its path.
//!
//! ninja appends a line when a command ends, and keeps the lines of earlier builds. The lines of
//! this run begin with the first whose output is younger than the run's beginning. If ninja first
//! builds `build.ninja` itself, it starts its clock again afterwards, so earlier lines are left out.

use super::parsed::{Parsed, Timed, shortened};

/// The beginning of the file.
pub(super) const START: &[u8] = b"# ninja log v";
/// The largest number of lines.
const LINES_MAX: usize = 1_000_000;
/// The manifest, after which the clock starts again.
const MANIFEST: &str = "build.ninja";

struct Line<'a> {
    start_ms: i64,
    end_ms: i64,
    modified_ns: u64,
    output: &'a str,
}

/// Parses the lines of a run that began at `since_ns`.
pub(super) fn parse(bytes: &[u8], since_ns: u64) -> Parsed {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<Line> = text.lines().filter_map(line).take(LINES_MAX).collect();
    let first = lines.iter().position(|line| line.modified_ns >= since_ns).unwrap_or(lines.len());
    let ours = &lines[first..];
    let is_again = |pair: &[Line]| pair[1].end_ms < pair[0].end_ms;
    let again = ours.windows(2).rposition(is_again).map_or(0, |at| at + 1);
    let manifest = ours.iter().rposition(|line| line.output == MANIFEST).map_or(0, |at| at + 1);
    let mut spans: Vec<Timed> = Vec::new();
    let mut before = None;
    for Line { start_ms, end_ms, output, .. } in &ours[again.max(manifest)..] {
        // A command with several outputs has a line for each.
        match spans.last_mut().filter(|_| before == Some((start_ms, end_ms))) {
            Some(last) => last.detail = shortened(format!("{} {output}", last.detail).trim_start()),
            None => {
                let (start_ns, end_ns) = (start_ms.saturating_mul(1_000_000), end_ms.saturating_mul(1_000_000));
                spans.push(Timed { name: shortened(output), detail: String::new(), start_ns, end_ns });
            }
        }
        before = Some((start_ms, end_ms));
    }
    Parsed::Spans { form: "ninja", zero_ns: None, spans }
}

fn line(text: &str) -> Option<Line<'_>> {
    let mut fields = text.split('\t');
    let (start_ms, end_ms) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(Line { start_ms, end_ms, modified_ns: fields.next()?.parse().ok()?, output: fields.next()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(lines: &str, since_ns: u64) -> Vec<(String, i64, i64)> {
        let bytes =
            format!("# ninja log v5\n{lines}").replace(' ', "\t").replacen("#\tninja\tlog\t", "# ninja log ", 1);
        assert!(bytes.as_bytes().starts_with(START));
        let Parsed::Spans { spans, .. } = parse(bytes.as_bytes(), since_ns) else { panic!("no spans") };
        spans.into_iter().map(|span| (span.name, span.start_ns / 1_000_000, span.end_ns / 1_000_000)).collect()
    }

    #[test]
    fn only_the_lines_of_this_run() {
        let log = "0 50 900 old.o 1\n10 60 2000 a.o 2\n10 60 2000 a.d 2\n20 70 500 kept.o 3\n";
        assert_eq!(parsed(log, 1000), [("a.o".into(), 10, 60), ("kept.o".into(), 20, 70)]);
        assert_eq!(parsed(log, 3000), []);
        // ninja made its own manifest, and started its clock again.
        let log = "0 50 2000 build.ninja 1\n10 60 2000 a.o 2\n";
        assert_eq!(parsed(log, 1000), [("a.o".into(), 10, 60)]);
        let log = "0 90 2000 other 1\n10 60 2000 a.o 2\n";
        assert_eq!(parsed(log, 1000), [("a.o".into(), 10, 60)]);
        assert_eq!(parsed("x\n1 2\n9999999999999999999999 1 1 a\n1 2 3\n", 0), []);
    }
}
