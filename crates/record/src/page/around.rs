//! The parts of the page that surround the main run: the table of all runs, the context, and a
//! comparison.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::data::shortened;
use crate::compare::{Comparison, Measure, Pairs, Went};
use crate::directory::Record;
use crate::schema::{Git, RunEnd};

/// The number of characters of a command line in a table of pairs.
const NAME_CHARS: usize = 120;
/// The largest number of commits that are listed.
const COMMITS_MAX: usize = 50;

/// Returns the table of all runs.
pub(super) fn runs(record: &Record) -> Markup {
    let ends: Vec<_> = record.runs.iter().map(|run| (&run.run, run.run.end.as_ref())).collect();
    let busiest = record.explaining().and_then(|run| run.run.end.as_ref()).map(|end| end.busiest.as_slice());
    html! {
        section #runs aria-labelledby="runs-h" {
            h2 #runs-h { "Runs" }
            table.sortable {
                caption { "Other CPU: the CPU time of processes outside of this build, as a share of all processors" }
                thead { tr { th.n scope="col" { "Run" } th scope="col" { "Kind" } th.n scope="col" { "Wall, s" }
                    th.n scope="col" { "CPU, s" }
                    th.n scope="col" { "Kernel, s" } th.n scope="col" { "Faults" } th.n scope="col" { "Peak, MiB" }
                    th.n scope="col" { "Other CPU, %" } th.n scope="col" { "Recorder, s" } th.n scope="col" {
                    "Exit" } } }
                tbody { @for (run, end) in &ends { tr {
                    td.n { (run.number) }
                    td { @if run.traced { "traced" } @else { "timed" } @if let Some(pair) = run.pair { ", pair "
                    (pair) } }
                    @match end {
                        Some(end) => (run_row(end)),
                        None => td colspan="8" { "cut off" },
                    }
                } } }
            }
            @if let Some(busiest) = busiest.filter(|busiest| !busiest.is_empty()) {
                p.note { "Busiest other processes: "
                    @for (at, one) in busiest.iter().enumerate() { @if at > 0 { ", " } code { (one.name) } " "
                        (one.cpu_ms) " ms" }
                    "." }
            }
        }
    }
}

fn run_row(end: &RunEnd) -> Markup {
    html! {
        td.n { (format!("{:.3}", end.wall_ns as f64 / 1e9)) }
        td.n { (format!("{:.3}", end.usage.cpu_us() as f64 / 1e6)) }
        td.n { (format!("{:.3}", end.usage.system_us as f64 / 1e6)) }
        td.n { (end.usage.minor_faults + end.usage.major_faults) }
        td.n { (format!("{:.1}", end.usage.peak_bytes as f64 / f64::from(1 << 20))) }
        td.n { (format!("{:.1}", end.foreign_share * 100.0)) }
        td.n { (format!("{:.3}", end.recorder_us as f64 / 1e6)) }
        td.n { (end.exit_code) }
    }
}

/// Returns the context of the record.
pub(super) fn context(record: &Record) -> Markup {
    let (header, context) = (&record.header, &record.context);
    let machine = &context.machine;
    let texts = |pairs: &[(&str, String)]| -> BTreeMap<String, String> {
        pairs
            .iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| ((*name).to_owned(), value.clone()))
            .collect()
    };
    let mib = |bytes: u64| format!("{} MiB", bytes >> 20);
    let shown = texts(&[
        ("host", machine.host.clone()),
        ("system", machine.system.clone()),
        ("kernel", machine.kernel.clone()),
        ("processor", machine.processor.clone()),
        ("processors", machine.processors.to_string()),
        ("hypervisor", if machine.hypervisor { "yes" } else { "no" }.to_owned()),
        ("governor", machine.governor.clone()),
        ("boost", machine.boost.clone()),
        ("memory", mib(machine.memory_bytes)),
        ("swap", mib(machine.swap_bytes)),
        ("huge pages", machine.huge_pages.clone()),
        ("container", machine.container.clone()),
    ]);
    let systems = machine.file_systems.iter().map(|(what, system)| (format!("file system of {what}"), system.clone()));
    let limits = machine.limits.iter().map(|(what, limit)| (format!("limit: {what}"), limit.clone()));
    let shown: BTreeMap<_, _> = shown.into_iter().chain(systems).chain(limits).collect();
    let tools: BTreeMap<_, _> = context
        .tools
        .iter()
        .map(|tool| (tool.name.clone(), format!("{}, {} ({})", tool.version, tool.path, tool.digest)))
        .collect();
    let settings: BTreeMap<_, _> = context
        .configuration
        .iter()
        .map(|one| (one.key.clone(), format!("{}  —  {}", one.value, one.source)))
        .collect();
    html! {
        section #context aria-labelledby="context-h" {
            h2 #context-h { "Context" }
            @if !context.missing.is_empty() { p.note { "Unknown: " (context.missing.join("; ")) "." } }
            (folded("Machine and system", &shown, true))
            @if let Some(git) = &context.project { (checkout("Project", git)) }
            @if let Some(git) = &context.larder { (checkout("larder’s source", git)) }
            (folded("larder’s programs", &context.binaries, false))
            (folded("Configuration", &settings, false))
            (folded("Compilers and build tools", &tools, false))
            (folded("Environment", &header.environment, false))
        }
    }
}

fn folded(title: &str, rows: &BTreeMap<String, String>, open: bool) -> Markup {
    html! {
        @if !rows.is_empty() {
            details open[open] {
                summary { (title) " (" (rows.len()) ")" }
                table { tbody { @for (name, value) in rows { tr { th scope="row" { (name) } td { code {
                    (value) } } } } } }
            }
        }
    }
}

fn checkout(title: &str, git: &Git) -> Markup {
    let tagged = |id: &str| git.tagged.iter().any(|(other, _)| other == id);
    html! {
        details open {
            summary { (title) ": " code { (git.head.get(..12).unwrap_or(&git.head)) } @if !git.branch.is_empty() {
                " on " (git.branch) } }
            p { code { (git.top) } }
            @if git.diff_digest.is_empty() { p { "There were no changes to tracked files." } }
            @else { p { strong { "There were uncommitted changes" } ": " code { "project.diff" }
                ", digest " code { (git.diff_digest) } "." } }
            @if !git.status.is_empty() { pre { (git.status.join("\n")) } }
            @if !git.base.is_empty() { p { (git.commits.len()) " commits since " (git.base) "." } }
            @if !git.commits.is_empty() {
                ul { @for (id, subject) in git.commits.iter().take(COMMITS_MAX) { li {
                    code { (id.get(..12).unwrap_or(id)) } " " @if tagged(id) { strong { (subject) } } @else {
                    (subject) }
                } } }
            }
        }
    }
}

/// Returns the comparison of two records.
pub(super) fn comparison(comparison: &Comparison) -> Markup {
    let [a, b] = &comparison.names;
    html! {
        section #comparison aria-labelledby="comparison-h" {
            h2 #comparison-h { "Comparison" }
            p { "A is " strong { (a) } ", B is " strong { (b) } ". Ratios are B ÷ A with a confidence interval of 99 %." }
            @if !comparison.refused.is_empty() { p.alarm role="status" { (comparison.refused) } }
            @for warning in &comparison.warnings { p.note { "⚠ " (warning) } }
            @if !comparison.unlike.is_empty() {
                details open {
                    summary { "Differences in the context (" (comparison.unlike.len()) ")" }
                    table { thead { tr { th scope="col" { "Part" } th scope="col" { "What" } th scope="col" { "A" }
                        th scope="col" { "B" } } }
                        tbody { @for one in &comparison.unlike { tr {
                            td { (one.part.name()) } td { (one.what) } td { code { (one.values[0]) } } td { code {
                            (one.values[1]) } }
                        } } } }
                }
            }
            table {
                caption { "Timed runs: the median of each side" }
                thead { tr { th scope="col" { "Measure" } th.n scope="col" { "A" } th.n scope="col" { "B" }
                    th.n scope="col" { "Runs" }
                    th.n scope="col" { "B ÷ A" } th.n scope="col" { "Interval" } th scope="col" { "Verdict" } } }
                tbody { @for measure in &comparison.measures { (measure_row(measure, comparison.refused.is_empty())) } }
            }
            @if let Some(pairs) = &comparison.actions { (pairs_table("Actions in both records", pairs)) }
            @if let Some(pairs) = &comparison.processes {
                (pairs_table("Processes in both records, by CPU time", pairs)) }
            (went("CPU time by program, largest difference first", &comparison.by_kind, true))
            (went("Time of the wrappers by step", &comparison.by_phase, false))
        }
    }
}

fn measure_row(measure: &Measure, is_told: bool) -> Markup {
    let more = match measure.more_runs {
        Some(more) if measure.verdict == "cannot tell" => format!(": {more} more runs per side would be enough"),
        _ => String::new(),
    };
    html! { tr {
        td { (measure.name) @if !measure.unit.is_empty() { ", " (measure.unit) } }
        td.n { (format!("{:.3}", measure.medians[0])) }
        td.n { (format!("{:.3}", measure.medians[1])) }
        td.n { (measure.samples[0]) " / " (measure.samples[1]) }
        @match measure.ratio {
            Some([ratio, low, high]) => { td.n { (format!("{ratio:.3}")) } td.n {
                @if measure.samples.iter().all(|samples| *samples > 1) { (format!("{low:.3} – {high:.3}")) } @else {
                    "–" }
            } },
            None => { td.n { "–" } td.n { "–" } },
        }
        td { @if is_told { (measure.verdict) (more) } @else { "refused" } }
    } }
}

fn pairs_table(title: &str, pairs: &Pairs) -> Markup {
    // Pairs of processes have no outcomes.
    let with_outcomes = pairs.rows.iter().any(|row| !row.outcomes[0].is_empty());
    html! {
        table.sortable {
            caption { (title) ": " (pairs.count) " pairs"
                @if let Some([ratio, low, high]) = pairs.ratio {
                    (format!(", B ÷ A {ratio:.3} ({low:.3} – {high:.3})")) }
                "; " (pairs.alone[0]) " only in A, " (pairs.alone[1]) " only in B. The pairs that differ most:" }
            thead { tr {
                th scope="col" { "What" }
                th.n scope="col" { "A, ms" }
                th.n scope="col" { "B, ms" }
                th.n scope="col" { "B ÷ A" }
                @if with_outcomes { th scope="col" { "Outcomes" } }
            } }
            tbody { @for row in &pairs.rows { tr {
                td { code { (shortened(&row.name, NAME_CHARS)) } }
                td.n { (format!("{:.2}", row.ms[0])) }
                td.n { (format!("{:.2}", row.ms[1])) }
                td.n { (format!("{:.2}", row.ratio)) }
                @if with_outcomes { td {
                    @let [before, after] = &row.outcomes;
                    @if before == after { (before) } @else { (before) " → " (after) }
                } }
            } } }
        }
    }
}

fn went(title: &str, rows: &[Went], with_kernel: bool) -> Markup {
    html! {
        @if !rows.is_empty() {
            table.sortable {
                caption { (title) }
                thead { tr { th scope="col" { "Name" } th.n scope="col" { "A, ms" } th.n scope="col" { "B, ms" }
                    th.n scope="col" { "Difference, ms" }
                    @if with_kernel { th.n scope="col" { "in the kernel, ms" } } th.n scope="col" { "Count" } } }
                tbody { @for row in rows { tr {
                    td { code { (row.name) } }
                    td.n { (format!("{:.1}", row.ms[0])) } td.n { (format!("{:.1}", row.ms[1])) }
                    td.n { (format!("{:+.1}", row.ms[1] - row.ms[0])) }
                    @if with_kernel { td.n { (format!("{:+.1}", row.kernel_ms[1] - row.kernel_ms[0])) } }
                    td.n { (row.counts[0]) " / " (row.counts[1]) }
                } } }
            }
        }
    }
}
