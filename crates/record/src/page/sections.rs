//! The parts of the page that describe the main run as text, without the script.

use maud::{Markup, html};

use super::data::shortened;
use crate::directory::{Record, RecordedRun};
use crate::processes::{Outcome, Processes};
use crate::summary::{Counts, Group, NamedProcesses, ROWS_MAX};

/// The number of characters of a command line in a table.
const COMMAND_CHARS: usize = 240;
/// The share of CPU time of other processes above which it is highlighted.
const FOREIGN_MAX: f64 = 0.05;
const OUTCOMES: [Outcome; 4] = [Outcome::Hit, Outcome::Miss, Outcome::Bypass, Outcome::Fallback];

/// Returns the name, the command, the key figures, and the bar of outcomes.
pub(super) fn header(record: &Record, run: Option<&RecordedRun>, counts: &Counts, found: Option<&Processes>) -> Markup {
    let header = &record.header;
    let end = run.and_then(|run| run.run.end.as_ref());
    html! {
        header {
            div.title {
                h1 { (header.name) }
                button #theme type="button" aria-pressed="false" title="Light or dark" { "Dark" }
            }
            p.command { code { (shortened(&header.command.join(" "), COMMAND_CHARS)) } }
            @if let Some(run) = run {
                @if end.is_none() {
                    p.alarm role="status" { strong { "Cut off. " }
                        "The run was not finished. The page shows what was recorded until then." }
                }
                @if let Some(why) = end.and_then(|end| end.not_traced.as_ref()) {
                    p.alarm role="status" { strong { "No processes. " } (why) }
                }
                @if run.damaged_lines > 0 { p.note { (run.damaged_lines)
                    " lines could not be read and are omitted." } }
            }
            dl.figures {
                @if let Some(end) = end {
                    (figure("wall time", &seconds(end.wall_ns as f64 / 1e9), "s"))
                    (figure("CPU time", &seconds(end.usage.cpu_us() as f64 / 1e6), "s"))
                    (figure("in the kernel", &seconds(end.usage.system_us as f64 / 1e6), "s"))
                    @let peak = end.usage.peak_bytes as f64 / f64::from(1 << 20);
                    (figure("peak of a process", &format!("{peak:.0}"), "MiB"))
                    div.bad[end.foreign_share > FOREIGN_MAX] {
                        dt { "other CPU" } dd { (format!("{:.1}", end.foreign_share * 100.0)) span.unit { " %" } }
                    }
                    div.bad[end.exit_code != 0] { dt { "exit code" } dd { (end.exit_code) } }
                }
                @if let Some(found) = found { (figure("processes", &found.all.len().to_string(), "")) }
            }
            @if counts.all() > 0 { (verdicts(counts)) }
            nav aria-label="Sections" {
                @for (id, name) in [("causes", "Why"), ("timeline", "Timeline"), ("flame", "Flame graph"),
                    ("slowest", "Slowest"),
                    ("kinds", "Most started"), ("runs", "Runs"), ("context", "Context")] {
                    @if id != "causes" || counts.all() > 0 { a href={ "#" (id) } { (name) } }
                }
            }
        }
    }
}

fn figure(name: &str, value: &str, unit: &str) -> Markup {
    html! { div { dt { (name) } dd { (value) @if !unit.is_empty() { span.unit { " " (unit) } } } } }
}

fn seconds(value: f64) -> String {
    if value < 10.0 { format!("{value:.2}") } else { format!("{value:.1}") }
}

fn count_of(counts: &Counts, outcome: Outcome) -> u64 {
    match outcome {
        Outcome::Hit => counts.hit,
        Outcome::Miss => counts.miss,
        Outcome::Bypass => counts.bypass,
        Outcome::Fallback => counts.fallback,
        Outcome::None => 0,
    }
}

fn verdicts(counts: &Counts) -> Markup {
    let label = OUTCOMES.map(|outcome| format!("{} {}", count_of(counts, outcome), outcome.name())).join(", ");
    let more = [(counts.waited, "after waiting"), (counts.fetched, "fetched"), (counts.raced, "raced")];
    html! {
        div.verdicts role="img" aria-label={ "Verdicts: " (label) } {
            @for outcome in OUTCOMES {
                @let count = count_of(counts, outcome);
                @if count > 0 {
                    span class={ "v-" (outcome.name()) } style={ "flex-grow:" (count) } { (count) " " (outcome.name()) }
                }
            }
        }
        p.note {
            (format!("{:.1}", counts.hit as f64 * 100.0 / (counts.hit + counts.miss).max(1) as f64))
                " % of lookups were hits"
            @for (count, how) in more { @if count > 0 { ", " (count) " " (how) } }
            "."
        }
    }
}

/// Returns the table of why commands were not hits.
pub(super) fn causes(groups: &[Group], counts: &Counts) -> Markup {
    html! {
        section #causes aria-labelledby="causes-h" {
            h2 #causes-h { "Why not a hit" }
            @if groups.is_empty() { p { "All " (counts.all()) " commands were hits." } }
            @else {
                table.sortable {
                    caption { "Commands that were not hits, by first cause" }
                    thead { tr { th scope="col" { "Outcome" } th.n scope="col" { "Count" } th.n scope="col" {
                        "Time, s" }
                        th scope="col" { "First cause" } th scope="col" { "Examples" } } }
                    tbody { @for group in groups.iter().take(ROWS_MAX * 2) { tr {
                        td { span class={ "dot v-" (group.outcome) } {} (group.outcome) }
                        td.n { (group.count) }
                        td.n { (format!("{:.2}", group.took_ns as f64 / 1e9)) }
                        td { (group.cause) @if !group.unrecorded.is_empty() { br; span.note { "not recorded: "
                        (group.unrecorded) } } }
                        td { @for (at, example) in group.examples.iter().enumerate() { @if at > 0 { ", " } code {
                        (example) } } }
                    } } }
                }
                @if groups.len() > ROWS_MAX * 2 { p.note { (groups.len() - ROWS_MAX * 2)
                    " more causes are in the record." } }
            }
        }
    }
}

/// Returns the frame of the timeline, which the script fills.
pub(super) fn timeline(found: &Processes, run: &RecordedRun) -> Markup {
    html! {
        section #timeline aria-labelledby="timeline-h" {
            h2 #timeline-h { "Timeline" }
            @if found.all.is_empty() && run.spans.is_empty() {
                p { "No processes were traced in this run"
                    @if run.run.end.is_none() { ", or it was cut off before the first" } "." }
            } @else {
                div.tools role="group" aria-label="Timeline tools" {
                    label for="search" { "Search" }
                    input #search type="search" placeholder="name or argument" autocomplete="off";
                    output #found for="search" aria-live="polite" {}
                    button type="button" data-do="in" title="Zoom in (+)" { "Zoom in" }
                    button type="button" data-do="out" title="Zoom out (−)" { "Zoom out" }
                    button type="button" data-do="all" title="All (0)" { "All" }
                    label { input #critical type="checkbox" checked; " critical path" }
                }
                fieldset.legend {
                    legend { "Colours: outcome of the action" }
                    @for outcome in Outcome::ALL {
                        label { input type="checkbox" checked data-outcome=(outcome as u8); span class={ "dot v-"
                            (outcome.name()) } {}
                            @if outcome == Outcome::None { "no action" } @else { (outcome.name()) } }
                    }
                    @if !run.spans.is_empty() {
                        label { input type="checkbox" checked data-outcome=(Outcome::ALL.len()); span.dot.v-tool {}
                            "reported by a build tool" }
                    }
                    span.key { span.line {} "critical path" }
                    span.key { span.idle {} "idle processors" }
                }
                div.canvas {
                    canvas #lanes tabindex="0" role="application" aria-describedby="keys"
                        aria-label={ "Timeline of " (found.all.len()) " processes over "
                            (format!("{:.2}", found.wall_ns as f64 / 1e9)) " seconds" } {
                        "The slowest processes are listed in a table below."
                    }
                }
                p.note #keys {
                    "Left and right: move. + and −: zoom. 0: all. Down and up: next and previous process. "
                    "Enter: zoom to it. "
                    "n and p: next and previous match. With a mouse: drag, Ctrl and wheel, double click."
                }
                div #detail.detail aria-live="polite" { "Choose a process to see its details." }
                (reports(run))
            }
        }
    }
}

/// Returns what build tools reported about the run, and which files were attached.
fn reports(run: &RecordedRun) -> Markup {
    let end = run.run.end.as_ref();
    let reports = end.map(|end| end.reports.as_slice()).unwrap_or_default();
    html! {
        @if !reports.is_empty() {
            details {
                summary { "Reports of build tools, and attached files: " (reports.len()) }
                ul { @for report in reports { li {
                    code { (report.path) }
                    @if !report.form.is_empty() { " · " (report.form) " · " (report.spans) " spans" }
                    @if !report.problem.is_empty() { " · " (report.problem) }
                } } }
            }
        }
        @if let Some(count) = end.map(|end| end.spans_left_out).filter(|count| *count > 0) {
            p.note { "The " (count) " shortest spans are left out." }
        }
    }
}

/// Returns the frame of the flame graph, which the script fills.
pub(super) fn flame(has_stacks: bool) -> Markup {
    html! {
        section #flame aria-labelledby="flame-h" {
            h2 #flame-h { "Flame graph" }
            p.note { "The width is CPU time. Below each program are the programs that it started."
                @if has_stacks { " Sampled stacks show functions." } }
            @if has_stacks {
                div.tools role="group" aria-label="What the flame graph shows" {
                    label { input type="radio" name="flames" value="processes" checked; " programs" }
                    label { input type="radio" name="flames" value="stacks"; " sampled stacks" }
                }
            }
            div.canvas { canvas #flames tabindex="0" role="application"
                aria-label="Flame graph: arrows move, Enter zooms, Escape goes back" {
                "The same data is in the table of the most started programs." } }
            div #flame-detail.detail aria-live="polite" { "Choose a program." }
        }
    }
}

/// Returns the table of the processes with the most CPU time.
pub(super) fn slowest(found: &Processes, places: &[usize]) -> Markup {
    html! {
        section #slowest aria-labelledby="slowest-h" {
            h2 #slowest-h { "Slowest processes" }
            table.sortable {
                caption { "By their own CPU time, without their children" }
                thead { tr { th.n scope="col" { "CPU, s" } th.n scope="col" { "Kernel, s" } th.n scope="col" {
                    "Wall, s" }
                    th.n scope="col" { "Peak, MiB" } th scope="col" { "Outcome" } th scope="col" { "Command" } } }
                tbody { @for &at in places {
                    @let process = &found.all[at];
                    tr data-process=(at) {
                        td.n { (format!("{:.3}", process.own.cpu_us() as f64 / 1e6)) }
                        td.n { (format!("{:.3}", process.own.system_us as f64 / 1e6)) }
                        td.n { (format!("{:.3}", process.wall_ns() as f64 / 1e9)) }
                        td.n { (format!("{:.1}", process.own.peak_bytes as f64 / f64::from(1 << 20))) }
                        td { span class={ "dot v-" (process.outcome.name()) } {}
                            @if process.outcome == Outcome::None { "–" } @else { (process.outcome.name()) } }
                        td { code { (shortened(&process.command(), COMMAND_CHARS)) } }
                    }
                } }
            }
        }
    }
}

/// Returns the table of processes by name.
pub(super) fn kinds(kinds: &[NamedProcesses]) -> Markup {
    html! {
        section #kinds aria-labelledby="kinds-h" {
            h2 #kinds-h { "Most started programs" }
            table.sortable {
                caption { "Processes by name" @if kinds.len() > ROWS_MAX { ": the first " (ROWS_MAX) " of "
                    (kinds.len()) } }
                thead { tr { th scope="col" { "Program" } th.n scope="col" { "Count" } th.n scope="col" { "CPU, s" }
                    th.n scope="col" { "Kernel, s" } th.n scope="col" { "Wall, s" } th.n scope="col" { "Faults" }
                    th.n scope="col" { "Peak, MiB" } } }
                tbody { @for kind in kinds.iter().take(ROWS_MAX) { tr {
                    td { code { (kind.name) } }
                    td.n { (kind.count) }
                    td.n { (format!("{:.3}", kind.cpu_us as f64 / 1e6)) }
                    td.n { (format!("{:.3}", kind.system_us as f64 / 1e6)) }
                    td.n { (format!("{:.3}", kind.wall_ns as f64 / 1e9)) }
                    td.n { (kind.faults) }
                    td.n { (format!("{:.1}", kind.peak_bytes as f64 / f64::from(1 << 20))) }
                } } }
            }
        }
    }
}

/// Returns the table of the wrappers' own time.
pub(super) fn phases(phases: &[(String, u64)], count: u64) -> Markup {
    html! {
        section #phases aria-labelledby="phases-h" {
            h2 #phases-h { "Time of the wrappers by step" }
            table.sortable {
                caption { "All " (count) " commands together" }
                thead { tr { th scope="col" { "Step" } th.n scope="col" { "Time, s" } th.n scope="col" {
                    "Per command, ms" } } }
                tbody { @for (name, ns) in phases { tr {
                    td { (name) }
                    td.n { (format!("{:.3}", *ns as f64 / 1e9)) }
                    td.n { (format!("{:.3}", *ns as f64 / 1e6 / count.max(1) as f64)) }
                } } }
            }
        }
    }
}
