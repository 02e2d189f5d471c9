//! Prints an explanation, as text for people or as JSON.

use std::io::Write;

use anyhow::Result;
use serde_json::{Value, json};

use super::explanation::{Explanation, Hit, Miss, Nearest, OutputLine, RejectedLine, Verdict};
use super::facts::FactCounts;
use super::sentence;
use crate::commands::advice::advice;
use crate::say;

/// The number of records and differences that are listed; further ones are only counted.
const LINES_MAX: usize = 8;

/// Prints the explanation as text: a sentence, and with `verbose` the details.
pub(super) fn text(explanation: &Explanation, verbose: bool, out: &mut dyn Write) -> Result<()> {
    writeln!(out, "{}", summary(explanation))?;
    match &explanation.verdict {
        Verdict::Bypass(reason) => line(out, "what to do", advice(reason.code()))?,
        Verdict::Fallback(cause, detail) => {
            if !detail.is_empty() {
                line(out, "detail", &say::one_line(detail))?;
            }
            line(out, "what to do", advice(cause.code()))?;
        }
        Verdict::Hit(hit) if verbose => hit_text(hit, out)?,
        Verdict::Hit(_) => {}
        Verdict::Miss(miss) => miss_text(miss, verbose, out)?,
    }
    for note in &explanation.notes {
        line(out, "note", note)?;
    }
    if !verbose {
        return Ok(());
    }
    line(out, "tool", &explanation.tool)?;
    if let Some(about) = &explanation.about {
        line(out, "source", &about.source)?;
        if let Some(output) = &about.output {
            line(out, "output", output)?;
        }
        line(out, "roots", &if about.roots.is_empty() { "none".to_owned() } else { about.roots.join(", ") })?;
        line(out, "fingerprint", &format!("{} (weak)", about.fingerprint))?;
    }
    if let Verdict::Hit(Hit { facts, .. }) | Verdict::Miss(Miss { facts, .. }) = &explanation.verdict {
        for fact in facts {
            writeln!(out, "    {fact}")?;
        }
    }
    Ok(())
}

fn summary(explanation: &Explanation) -> String {
    let source = explanation.about.as_ref().map_or("", |about| about.source.as_str());
    sentence::of_verdict(&explanation.verdict, source)
}

fn line(out: &mut dyn Write, name: &str, text: &str) -> Result<()> {
    writeln!(out, "  {name:<12} {text}")?;
    Ok(())
}

fn hit_text(hit: &Hit, out: &mut dyn Write) -> Result<()> {
    line(out, "record", &format!("{} of {}; {} observed it", hit.record, hit.records, hit.observer))?;
    line(out, "relies on", &counts_text(&hit.counts))?;
    let read = say::count(hit.effort.hashed, "file", "files");
    let looked = say::count(hit.effort.absences_looked, "missing name", "missing names");
    line(
        out,
        "checked",
        &format!("by the stat cache, except {read} that had to be read and {looked} that had to be checked"),
    )?;
    line(out, "outputs", &outputs_text(&hit.outputs))?;
    line(out, "exit code", &hit.exit_code.to_string())?;
    if let Some(why) = &hit.bound {
        line(out, "only here", why)?;
    }
    rejected_text(&hit.rejected, out)
}

fn counts_text(counts: &FactCounts) -> String {
    let count = |number: usize, one, many| say::count(number as u64, one, many);
    let mut parts = vec![count(counts.files, "file", "files"), count(counts.absences, "absence", "absences")];
    let rest = [
        (counts.directories, "directory", "directories"),
        (counts.links, "link", "links"),
        (counts.listings, "listing", "listings"),
        (counts.others, "other", "others"),
        (counts.variables, "variable", "variables"),
    ];
    parts.extend(
        rest.into_iter().filter(|(number, ..)| *number > 0).map(|(number, one, many)| count(number, one, many)),
    );
    format!("{}; in {}", parts.join(", "), count(counts.in_directories, "directory", "directories"))
}

fn outputs_text(outputs: &[OutputLine]) -> String {
    let text = |output: &OutputLine| match output.size_bytes {
        Some(size_bytes) => format!("{} ({})", output.path, say::bytes(size_bytes)),
        None => format!("{} ({})", output.path, output.kind),
    };
    if outputs.is_empty() { "none".to_owned() } else { outputs.iter().map(text).collect::<Vec<_>>().join(", ") }
}

fn miss_text(miss: &Miss, verbose: bool, out: &mut dyn Write) -> Result<()> {
    match &miss.nearest {
        Nearest::Nothing => {
            line(out, "hint", "if it ran, `larder stats` and LARDER_LOG say why that was not recorded")?;
        }
        Nearest::Differs(differences) => {
            if differences.iter().any(|difference| difference.what == "terminal") {
                line(out, "hint", "add --no-terminal to explain a build whose output does not go to a terminal")?;
            }
            if verbose {
                also_text(differences, out)?;
            }
        }
        Nearest::Itself | Nearest::Gone | Nearest::Fetched => {}
    }
    if miss.running {
        line(
            out,
            "running",
            "another process runs it now: a build would wait for it, about as long as the tool ran before",
        )?;
    }
    if !verbose {
        return Ok(());
    }
    rejected_text(&miss.rejected, out)?;
    match miss.observer {
        Some(observer) => line(out, "then", &format!("the tool runs, observed by {observer}")),
        None => line(out, "then", "the tool cannot be observed here, and runs untouched"),
    }
}

/// Prints the differences to the nearest record after the first one, which the summary names.
fn also_text(differences: &[super::fields::FieldDifference], out: &mut dyn Write) -> Result<()> {
    for difference in differences.iter().skip(1).take(LINES_MAX) {
        line(out, "also", &difference.sentence())?;
    }
    if differences.len() > LINES_MAX + 1 {
        line(out, "also", &format!("{} more", differences.len() - LINES_MAX - 1))?;
    }
    Ok(())
}

fn rejected_text(rejected: &[RejectedLine], out: &mut dyn Write) -> Result<()> {
    for RejectedLine { record, observer, subject, what } in rejected.iter().take(LINES_MAX) {
        line(out, &format!("record {record}"), &format!("{subject}: {what} ({observer} observed it)"))?;
    }
    if rejected.len() > LINES_MAX {
        line(out, "", &format!("and {} older ones", rejected.len() - LINES_MAX))?;
    }
    Ok(())
}

/// Returns the explanation as JSON.
pub(super) fn object(explanation: &Explanation) -> Value {
    let mut object = match &explanation.verdict {
        Verdict::Bypass(reason) => {
            json!({ "outcome": "bypass", "reason": reason.code(), "sentence": reason.sentence() })
        }
        Verdict::Fallback(cause, detail) => json!({
            "outcome": "fallback", "reason": cause.code(), "sentence": cause.sentence(), "detail": detail,
        }),
        Verdict::Hit(hit) => hit_object(hit),
        Verdict::Miss(miss) => miss_object(miss),
    };
    object["summary"] = json!(summary(explanation));
    object["tool"] = json!(explanation.tool);
    object["notes"] = json!(explanation.notes);
    if let Some(about) = &explanation.about {
        object["source"] = json!(about.source);
        object["output"] = json!(about.output);
        object["roots"] = json!(about.roots);
        object["fingerprint"] = json!(about.fingerprint);
    }
    object
}

fn hit_object(hit: &Hit) -> Value {
    let outputs = hit
        .outputs
        .iter()
        .map(|output| json!({ "path": output.path, "kind": output.kind, "size_bytes": output.size_bytes }));
    let counts = &hit.counts;
    json!({
        "outcome": "hit",
        "record": hit.record,
        "records": hit.records,
        "observer": hit.observer,
        "run_time_us": hit.run_time_us,
        "exit_code": hit.exit_code,
        "only_here": hit.bound,
        "outputs": outputs.collect::<Vec<_>>(),
        "relies_on": {
            "files": counts.files, "directories": counts.directories, "links": counts.links,
            "listings": counts.listings, "others": counts.others, "absences": counts.absences,
            "variables": counts.variables, "in_directories": counts.in_directories,
        },
        "effort": {
            "directories": hit.effort.directories, "facts": hit.effort.facts, "absences": hit.effort.absences,
            "absences_looked": hit.effort.absences_looked, "hashed": hit.effort.hashed,
        },
        "rejected": rejected_objects(&hit.rejected),
        "facts": hit.facts,
    })
}

fn miss_object(miss: &Miss) -> Value {
    let (nearest, differences) = match &miss.nearest {
        Nearest::Itself => ("itself", Vec::new()),
        Nearest::Nothing => ("nothing", Vec::new()),
        Nearest::Gone => ("gone", Vec::new()),
        Nearest::Fetched => ("fetched", Vec::new()),
        Nearest::Differs(differences) => ("differs", differences.iter().map(difference_object).collect()),
    };
    json!({
        "outcome": "miss",
        "nearest": nearest,
        "differences": differences,
        "rejected": rejected_objects(&miss.rejected),
        "observer": miss.observer,
        "running": miss.running,
        "facts": miss.facts,
    })
}

fn difference_object(difference: &super::fields::FieldDifference) -> Value {
    json!({ "what": difference.what, "was": difference.was, "is": difference.is, "sentence": difference.sentence() })
}

fn rejected_objects(rejected: &[RejectedLine]) -> Vec<Value> {
    let object = |line: &RejectedLine| json!({ "record": line.record, "observer": line.observer, "subject": line.subject, "what": line.what });
    rejected.iter().map(object).collect()
}
