//! From what was typed to a session.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result, bail};
use larder_compiler::is_masquerade_name;
use larder_config::Loaded;
use larder_lookup::find;
use larder_record::form::Configured;
use larder_record::{Command, Output, Redact, Session, SideOfSession, Surroundings as Recorded, Trace};

use crate::cli::{OutputTo, RecordOptions, TraceWhen};
use crate::say;
use crate::surroundings::{Surroundings, nobody};
use crate::words::config::source;
use crate::words::explain::secret::{bare_argument, bare_variable};

/// What builds are made with, beside what `CC` and its kin name.
const TOOLS: &[&str] = &[
    "cc", "c++", "gcc", "g++", "clang", "clang++", "ld", "as", "ar", "make", "ninja", "cmake", "meson", "bazel",
    "cargo", "rustc", "ccache", "sccache",
];
const TOOL_VARIABLES: &[&str] = &["CC", "CXX", "LD", "AR"];
/// Characters of a name that is made from a command.
const NAME_CHARS_MAX: usize = 40;

/// The session that was asked for.
pub(super) fn session<'a>(around: &Surroundings, options: &RecordOptions, records: &'a Path) -> Result<Session<'a>> {
    let argv: Vec<Vec<u8>> = options.command.iter().map(|word| word.as_bytes().to_vec()).collect();
    let sides = sides(around, options, &argv, records)?;
    let now_s = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_secs() as i64);
    let name = match &options.name {
        Some(name) => checked(name)?,
        None => format!("{}-{}", named_after(&argv), super::show::date(now_s, "%Y%m%d-%H%M%S")),
    };
    let output = match options.output {
        Some(OutputTo::Shown) => Output::Shown,
        Some(OutputTo::Kept) => Output::Kept,
        Some(OutputTo::Dropped) => Output::Dropped,
        None if options.runs == 1 && options.ab.is_none() => Output::Shown,
        None => Output::Kept,
    };
    Ok(Session {
        records,
        name,
        sides,
        prepare: options.prepare.clone(),
        runs: options.runs,
        trace: match options.trace {
            TraceWhen::Once => Trace::Once,
            TraceWhen::All => Trace::All,
            TraceWhen::Never => Trace::Never,
        },
        output,
        sample_hz: options.sample,
        goes_on: options.keep_going,
        redact: Redact { argument: bare_argument, variable: bare_variable },
        larder: env!("CARGO_PKG_VERSION").to_owned(),
        now_s,
        seed: larder_sys::random_u64(),
    })
}

/// Once, or for each of two configuration files.
fn sides(
    around: &Surroundings,
    options: &RecordOptions,
    argv: &[Vec<u8>],
    records: &Path,
) -> Result<Vec<SideOfSession>> {
    let cwd = around.cwd.as_deref().context("the working directory is gone: change to one that exists")?;
    let Some(tool) = find(&argv[0], around.variable(b"PATH"), &nobody(), false) else {
        bail!("{}: command not found (looked along PATH)", say::clean(&argv[0]));
    };
    let side = |loaded: &Loaded, environment: &[(Vec<u8>, Vec<u8>)], configuration: Option<PathBuf>| SideOfSession {
        command: Command { program: tool.path.clone(), argv: argv.to_vec(), environment: environment.to_vec() },
        configuration,
        surroundings: surroundings(around, loaded, options, cwd, records),
    };
    let Some(files) = &options.ab else { return Ok(vec![side(&around.loaded, &around.environment, None)]) };
    let mut sides = Vec::new();
    for file in files {
        let file = std::fs::canonicalize(file).with_context(|| format!("--ab: {}", file.display()))?;
        let (loaded, environment) = around.with_configuration(&file);
        if let Some(problem) = loaded.problems.first() {
            bail!("--ab: {problem}");
        }
        sides.push(side(&loaded, &environment, Some(file)));
    }
    Ok(sides)
}

fn surroundings(
    around: &Surroundings,
    loaded: &Loaded,
    options: &RecordOptions,
    cwd: &Path,
    records: &Path,
) -> Recorded {
    let value = |shown: larder_config::Value| {
        let source = source(&shown);
        Configured { key: shown.name.to_owned(), value: shown.shown.to_owned(), source }
    };
    let temporary =
        around.variable(b"TMPDIR").map_or(Path::new("/tmp"), |path| Path::new(std::ffi::OsStr::from_bytes(path)));
    let mut places = vec![("the project", cwd), ("temporary files", temporary), ("the record", records)];
    places.extend(loaded.settings.dir.as_deref().map(|store| ("the store", store)));
    let prefix = &loaded.settings.record_commit_prefix;
    Recorded {
        cwd: cwd.to_owned(),
        binaries: around.wrapper.iter().cloned().chain(std::env::current_exe()).collect(),
        configuration: loaded.values().into_iter().map(value).collect(),
        commit_prefix: (!prefix.is_empty()).then(|| prefix.clone()),
        base: options.base.clone(),
        tools: tools(around),
        places: places.into_iter().map(|(what, path)| (what.to_owned(), path.to_owned())).collect(),
    }
}

/// The real programs: larder itself, and other caches that masquerade, are passed over.
fn tools(around: &Surroundings) -> Vec<(String, PathBuf)> {
    let path = around.variable(b"PATH");
    let named = TOOL_VARIABLES.iter().filter_map(|name| around.variable(name.as_bytes()));
    // `larder gcc -m32` names gcc.
    let words = named.flat_map(|value| value.split(|&b| b == b' ')).filter(|word| !word.starts_with(b"-"));
    let mut names: Vec<Vec<u8>> =
        TOOLS.iter().map(|tool| tool.as_bytes().to_vec()).chain(words.map(<[u8]>::to_vec)).collect();
    names.retain(|name| !name.is_empty() && name != b"larder");
    names.sort();
    names.dedup();
    let file = |name: Vec<u8>| {
        let masquerading = is_masquerade_name(&name);
        let tool = find(&name, path, &around.ourselves, masquerading).filter(|tool| !around.ourselves.is(tool))?;
        Some((say::clean(&name), PathBuf::from(std::ffi::OsStr::from_bytes(&tool.path))))
    };
    names.into_iter().filter_map(file).collect()
}

/// A name becomes a directory's.
fn checked(name: &str) -> Result<String> {
    let is_odd = name.is_empty() || name.starts_with('.') || name.contains('/') || name.contains(char::is_control);
    if is_odd || name == "last" {
        bail!("--name {}: a record's directory cannot be called so", say::one_line(name));
    }
    Ok(name.to_owned())
}

fn named_after(argv: &[Vec<u8>]) -> String {
    let first = argv[0].rsplit(|&b| b == b'/').next().unwrap_or_default();
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || "-_+.".contains(*c);
    let name: String = String::from_utf8_lossy(first).chars().filter(is_plain).take(NAME_CHARS_MAX).collect();
    let name = name.trim_start_matches('.').to_owned();
    if name.is_empty() { "build".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert_eq!(named_after(&[b"/usr/bin/make".to_vec()]), "make");
        assert_eq!(named_after(&["…".as_bytes().to_vec()]), "build");
        assert!(checked("../x").is_err() && checked("last").is_err() && checked("a b").is_ok());
    }
}
