//! Describes the machine, the commit and the day of a measurement, without host names and paths.

use crate::place::Place;
use crate::run;
use anyhow::Result;
use serde_json::{Value, json};
use std::fs;
use std::process::Command;

/// Returns facts about the machine, the programs, and the load.
pub(crate) fn facts(place: &Place) -> Value {
    let cpuinfo = read("/proc/cpuinfo");
    let model = after(&cpuinfo, "model name").unwrap_or("unknown");
    let memory = read("/proc/meminfo");
    let kb = after(&memory, "MemTotal").and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
    json!({
        "processor": model,
        "processors": std::thread::available_parallelism().map_or(0, usize::from),
        "virtual": after(&cpuinfo, "flags").is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
        "memory_gb": kb.map(|kb| (kb / 1e6).round()),
        "kernel": read("/proc/sys/kernel/osrelease").trim(),
        "file_system": said(Command::new("stat").args(["-f", "-c", "%T"]).arg(&place.target)),
        "gcc": first_line(Command::new("gcc").arg("--version")),
        "g++": first_line(Command::new("g++").arg("--version")),
        "rustc": first_line(Command::new("rustc").arg("--version").current_dir(&place.repo)),
        "commit": commit(place),
        "load": load(),
    })
}

/// Returns the load average over the last minute.
pub(crate) fn load() -> Option<f64> {
    read("/proc/loadavg").split(' ').next()?.parse().ok()
}

/// Returns the commit of the checkout, and whether it was changed since.
pub(crate) fn commit(place: &Place) -> Option<String> {
    let git = |words: &[&str]| said(Command::new("git").args(words).current_dir(&place.repo));
    let id = git(&["rev-parse", "--short=12", "HEAD"])?;
    // Documents and reports do not change what is measured.
    let changed = git(&["status", "--porcelain", "--untracked-files=no", "--", ".", ":!benches/results", ":!*.md"]);
    Some(if changed.is_none_or(|text| text.is_empty()) { id } else { format!("{id} and changes") })
}

/// Returns the present day, for example `date("%-d %B %Y")`.
pub(crate) fn date(format: &str) -> Result<String> {
    Ok(run::output(Command::new("date").args(["-u", &format!("+{format}")]))?.trim().to_owned())
}

fn said(command: &mut Command) -> Option<String> {
    run::output(command).ok().map(|text| text.trim().to_owned())
}

fn first_line(command: &mut Command) -> Option<String> {
    said(command).and_then(|text| text.lines().next().map(str::to_owned))
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Returns the text after the colon of the first line that begins with `name`.
fn after<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_once(':').map(|(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_lines_with_a_colon() {
        assert_eq!(after("a\t: 1\nmodel name\t: Good One\n", "model name"), Some("Good One"));
        assert_eq!(after("MemTotal:   9 kB\n", "MemTotal"), Some("9 kB"));
        assert_eq!(after("MemTotal:   9 kB\n", "Nothing"), None);
    }
}
