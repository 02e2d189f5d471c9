//! `larder config`: prints each setting, its value and its source, and lists problems.

use std::io::Write;

use anyhow::Result;
use larder_config::{Loaded, Setting, Source, Value as Shown};
use larder_remote::RemoteUrl;
use serde_json::{Value, json};

use super::record::place::records;
use super::{FINE, PROBLEM, plain_table, print_json, print_table};
use crate::cli::AsJson;
use crate::say;
use crate::surroundings::Surroundings;

/// Prints the settings. The exit code is 1 if something was invalid and ignored.
pub(crate) fn run(around: &Surroundings, options: &AsJson, out: &mut dyn Write) -> Result<u8> {
    let loaded = &around.loaded;
    if options.json {
        print_json(&object(around), out)?;
    } else {
        show(around, out)?;
    }
    let remotes = remotes(loaded);
    for problem in &remotes {
        say::tell(problem);
    }
    Ok(if loaded.problems.is_empty() && remotes.is_empty() { FINE } else { PROBLEM })
}

/// Returns the errors in the URLs of remotes, and which part of a URL each is about.
fn remotes(loaded: &Loaded) -> Vec<String> {
    let parsed = loaded.settings.remote.iter().map(|url| url.parse::<RemoteUrl>());
    parsed.filter_map(Result::err).map(|error| say::one_line(&format!("remote: {error}"))).collect()
}

/// Returns the effective values. If `record_dir` is not set, its default follows from the
/// environment.
fn values(around: &Surroundings) -> Vec<Shown> {
    let mut values = around.loaded.values();
    let record_dir = values.iter_mut().find(|value| value.name == "record_dir" && value.source == Source::Default);
    if let (Some(value), Ok(path)) = (record_dir, records(around)) {
        value.shown = path.to_string_lossy().into_owned();
    }
    values
}

fn show(around: &Surroundings, out: &mut dyn Write) -> Result<()> {
    let loaded = &around.loaded;
    let mut table = plain_table();
    for value in values(around) {
        table.add_row(vec![value.name.to_owned(), say::one_line(&value.shown), source(&value)]);
    }
    print_table(&table, out)?;
    writeln!(out, "\n Files; later ones override earlier ones:")?;
    for file in &loaded.files {
        let found = if file.found { "read" } else { "does not exist" };
        let whose = if file.of_project { ", the project's own" } else { "" };
        writeln!(out, "   {} ({found}{whose})", say::one_line(&file.path.to_string_lossy()))?;
    }
    for (title, found) in [("Problems; invalid settings are ignored:", &loaded.problems), ("Notes:", &loaded.notes)] {
        if !found.is_empty() {
            writeln!(out, "\n {title}")?;
        }
        for problem in found {
            writeln!(out, "   {problem}")?;
        }
    }
    Ok(())
}

/// Returns the source of a value in words.
pub(super) fn source(value: &Shown) -> String {
    match &value.source {
        Source::Default => "default".to_owned(),
        Source::PasswordDatabase => "home directory in the password database".to_owned(),
        Source::Environment(name) if Setting::by_key(value.name).is_some_and(|s| s.variable == *name) => {
            format!("environment {name}")
        }
        Source::Environment(name) => format!("derived from environment {name}"),
        Source::File { path, line } => say::one_line(&format!("{}:{line}", path.display())),
    }
}

fn object(around: &Surroundings) -> Value {
    let loaded = &around.loaded;
    let settings = values(around).into_iter().map(|value| {
        let variable = Setting::by_key(value.name).map(|setting| setting.variable);
        json!({ "key": value.name, "variable": variable, "value": value.shown, "source": source(&value) })
    });
    let files = loaded
        .files
        .iter()
        .map(|file| json!({ "path": file.path.to_string_lossy(), "found": file.found, "of_project": file.of_project }));
    let texts = |problems: &[larder_config::Problem]| problems.iter().map(ToString::to_string).collect::<Vec<_>>();
    json!({
        "settings": settings.collect::<Vec<_>>(),
        "files": files.collect::<Vec<_>>(),
        "problems": texts(&loaded.problems),
        "notes": texts(&loaded.notes),
    })
}
