//! The last recorded build, for `stats --last-build` and `explain --last-build`.

use std::io::Write;

use anyhow::Result;
use comfy_table::Cell;
use larder_record::export;
use larder_record::summary::{Counts, Group, causes as grouped};
use serde_json::json;

use super::record::duration::took;
use super::record::place::last;
use super::{FINE, number, plain_table, print_json, print_table};
use crate::say;
use crate::surroundings::Surroundings;

/// `larder stats --last-build`: prints the build's counts.
pub(super) fn stats(around: &Surroundings, as_json: bool, markdown: bool, out: &mut dyn Write) -> Result<u8> {
    let record = last(around)?;
    if markdown {
        write!(out, "{}", export::markdown(&record))?;
        return Ok(FINE);
    }
    let run = record.explaining();
    let counts = run.map(|run| Counts::of(&run.actions)).unwrap_or_default();
    let took = took(&record);
    if as_json {
        let wall_ns = took.map(|(wall_ns, _)| wall_ns);
        let object = json!({ "record": record.header.name, "path": record.path, "counts": counts, "wall_ns": wall_ns });
        print_json(&object, out)?;
        return Ok(FINE);
    }
    let wall = took.map_or("cut off".to_owned(), |(_, words)| words);
    let of = match run {
        Some(run) if record.runs.len() > 1 => format!("; in run {} of {}", run.run.number, record.runs.len()),
        _ => String::new(),
    };
    writeln!(out, " {}: {wall}{of}", say::one_line(&record.header.name))?;
    let mut table = plain_table();
    let asked = counts.hit + counts.miss;
    let rate = if asked > 0 {
        format!("{:.1} % of {asked} looked up", counts.hit as f64 * 100.0 / asked as f64)
    } else {
        String::new()
    };
    let rows = [
        ("hit", counts.hit, rate.as_str()),
        ("  waited", counts.waited, "for another process that ran the same action"),
        ("  fetched", counts.fetched, "from a remote on request"),
        ("  raced", counts.raced, "from a remote, while the tool already ran"),
        ("miss", counts.miss, ""),
        ("bypass", counts.bypass, ""),
        ("fallback", counts.fallback, ""),
    ];
    for (name, count, why) in rows.into_iter().filter(|(name, count, _)| *count > 0 || !name.starts_with(' ')) {
        table.add_row(vec![Cell::new(name), number(count), Cell::new(why)]);
    }
    print_table(&table, out)?;
    writeln!(out, " record: {} (`larder report last` writes a page about it)", record.path.display())?;
    Ok(FINE)
}

/// `larder explain --last-build`: prints misses, bypasses and fallbacks, grouped by first cause.
pub(super) fn causes(around: &Surroundings, as_json: bool, markdown: bool, out: &mut dyn Write) -> Result<u8> {
    let record = last(around)?;
    let groups = record.explaining().map(|run| grouped(&run.actions)).unwrap_or_default();
    if as_json {
        print_json(&json!({ "record": record.header.name, "causes": groups }), out)?;
    } else if markdown {
        write!(out, "{}", export::causes(&groups))?;
    } else {
        let all: usize = record.explaining().map_or(0, |run| run.actions.len());
        show(&record.header.name, &groups, all, out)?;
    }
    Ok(FINE)
}

/// Prints the groups as text.
pub(super) fn show(name: &str, groups: &[Group], all: usize, out: &mut dyn Write) -> Result<()> {
    let name = say::one_line(name);
    if groups.is_empty() {
        let what = if all == 0 { "none of its commands ran through larder" } else { "every command was a hit" };
        writeln!(out, " {name}: {what}")?;
        return Ok(());
    }
    let count: u64 = groups.iter().map(|group| group.count).sum();
    writeln!(out, " {name}: not hits: {count} of {}", say::count(all as u64, "command", "commands"))?;
    for group in groups {
        let time = say::duration_us(group.took_ns / 1000);
        writeln!(out, "\n {:>6} {} · {time} · {}", group.count, group.outcome, say::one_line(&group.cause))?;
        if !group.unrecorded.is_empty() {
            writeln!(out, "        not recorded: {}", say::one_line(&group.unrecorded))?;
        }
        let examples: Vec<String> = group.examples.iter().map(|example| say::one_line(example)).collect();
        writeln!(out, "        for example {}", examples.join(", "))?;
    }
    Ok(())
}
