//! Converts the command line of `larder record` to a session.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use clap::builder::PossibleValue;
use larder_compiler::is_masquerade_name;
use larder_config::Loaded;
use larder_lookup::find;
use larder_record::schema::Configured;
use larder_record::{Command, Output, Redact, Session, SideOfSession, Surroundings as Recorded, Trace};

use crate::cli::{OutputTo, RecordOptions, TraceWhen};
use crate::commands::config::source;
use crate::commands::explain::secret::{bare_argument, bare_variable};
use crate::say;
use crate::surroundings::{Surroundings, nobody};

/// The build tools whose versions are recorded, besides those in `CC` and similar variables.
const TOOLS: &[&str] = &[
    "cc", "c++", "gcc", "g++", "clang", "clang++", "ld", "as", "ar", "make", "ninja", "cmake", "meson", "bazel",
    "cargo", "rustc", "ccache", "sccache",
];
const TOOL_VARIABLES: &[&str] = &["CC", "CXX", "LD", "AR"];
/// The largest number of characters in a record's name that is derived from a command.
const NAME_CHARS_MAX: usize = 40;

/// The shell that runs a command given as one text, as `--prepare` does.
const SHELL: &str = "/bin/sh";

/// The error for a command that is not found.
#[derive(Debug, thiserror::Error)]
#[error("{0}: command not found (searched along PATH)")]
pub(super) struct NotFound(String);

/// Returns the session that the options describe.
pub(super) fn session<'a>(around: &Surroundings, options: &RecordOptions, records: &'a Path) -> Result<Session<'a>> {
    let argv = commands(options);
    if options.sample.is_some() {
        if matches!(options.trace, TraceWhen::Never) {
            bail!("--sample: stacks are sampled in the traced run, but with --trace never no run is traced");
        }
        if larder_record::perf(&around.environment).is_none() {
            bail!("--sample: perf is not found along PATH: install it, or omit --sample");
        }
    }
    let sides = sides(around, options, &argv, records)?;
    let now_s = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_secs() as i64);
    let name = match &options.name {
        Some(name) => checked(name)?,
        None => format!("{}-{}", named_after(&argv[0]), super::show::date(now_s, "%Y%m%d-%H%M%S")),
    };
    let output = match options.output {
        Some(OutputTo::Shown) => Output::Shown,
        Some(OutputTo::Kept) => Output::Kept,
        Some(OutputTo::Dropped) => Output::Dropped,
        None if options.runs == 1 && sides.len() == 1 => Output::Shown,
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
        attach: options.attach.clone(),
        goes_on: options.keep_going,
        redact: Redact { argument: bare_argument, variable: bare_variable },
        options: typed(options),
        larder: env!("CARGO_PKG_VERSION").to_owned(),
        now_s,
        seed: larder_sys::random_u64(),
    })
}

/// Returns the options that `larder_record` does not write down itself, as they would be typed.
fn typed(options: &RecordOptions) -> Vec<String> {
    let named = |value: Option<PossibleValue>| value.map(|value| value.get_name().to_owned());
    let trace = if matches!(options.trace, TraceWhen::Once) { None } else { options.trace.to_possible_value() };
    let output = options.output.as_ref().and_then(ValueEnum::to_possible_value);
    let mut typed = Vec::new();
    for (option, value) in [("--trace", named(trace)), ("--output", named(output))] {
        typed.extend(value.into_iter().flat_map(|value| [option.to_owned(), value]));
    }
    if let Some(hz) = options.sample {
        typed.extend(["--sample".to_owned(), hz.to_string()]);
    }
    for file in &options.attach {
        typed.extend(["--attach".to_owned(), file.display().to_string()]);
    }
    if options.keep_going {
        typed.push("--keep-going".to_owned());
    }
    if let Some(base) = &options.base {
        typed.extend(["--base".to_owned(), base.clone()]);
    }
    typed
}

/// Returns the command, or with `--ab-commands` one command for each side.
fn commands(options: &RecordOptions) -> Vec<Vec<Vec<u8>>> {
    let shell = |text: &OsString| [SHELL.into(), b"-c".to_vec(), text.as_bytes().to_vec()].to_vec();
    match &options.ab_commands {
        Some(texts) => texts.iter().map(shell).collect(),
        None => vec![options.command.iter().map(|word| word.as_bytes().to_vec()).collect()],
    }
}

/// Returns one side for each command, or for each of two configuration files.
fn sides(
    around: &Surroundings,
    options: &RecordOptions,
    commands: &[Vec<Vec<u8>>],
    records: &Path,
) -> Result<Vec<SideOfSession>> {
    let cwd = around.cwd()?;
    let command = |argv: &Vec<Vec<u8>>, environment: &[(Vec<u8>, Vec<u8>)]| -> Result<Command> {
        let Some(tool) = find(&argv[0], around.variable(b"PATH"), &nobody(), false) else {
            bail!(NotFound(say::clean(&argv[0])));
        };
        Ok(Command { program: tool.path.clone(), argv: argv.clone(), environment: environment.to_vec() })
    };
    let side = |loaded: &Loaded, command: Command, configuration: Option<PathBuf>| SideOfSession {
        surroundings: surroundings(around, loaded, options, &command.argv, cwd, records),
        command,
        configuration,
    };
    let mut sides = Vec::new();
    for file in options.ab.iter().flatten() {
        let file = std::fs::canonicalize(file).with_context(|| not_a_file(file))?;
        let (loaded, environment) = around.with_configuration(&file);
        if let Some(problem) = loaded.problems.first() {
            bail!("--ab: {problem}");
        }
        sides.push(side(&loaded, command(&commands[0], &environment)?, Some(file)));
    }
    if sides.is_empty() {
        for argv in commands {
            sides.push(side(&around.loaded, command(argv, &around.environment)?, None));
        }
    }
    Ok(sides)
}

/// Returns the error for a missing file of `--ab`. People who know other tools may have written a
/// command instead.
fn not_a_file(given: &Path) -> String {
    let text = given.to_string_lossy();
    let hint = if text.contains(' ') { " (it takes configuration files; --ab-commands takes commands)" } else { "" };
    format!("--ab {}{hint}", say::one_line(&text))
}

fn surroundings(
    around: &Surroundings,
    loaded: &Loaded,
    options: &RecordOptions,
    argv: &[Vec<u8>],
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
        binaries: binaries(around, argv),
        configuration: loaded.values().into_iter().map(value).collect(),
        commit_prefix: (!prefix.is_empty()).then(|| prefix.clone()),
        base: options.base.clone(),
        tools: tools(around, argv),
        places: places.into_iter().map(|(what, path)| (what.to_owned(), path.to_owned())).collect(),
    }
}

/// Returns the real build tools: larder itself, and other caches that masquerade as compilers, are
/// skipped.
fn tools(around: &Surroundings, argv: &[Vec<u8>]) -> Vec<(String, PathBuf)> {
    let path = around.variable(b"PATH");
    let set = TOOL_VARIABLES.iter().filter_map(|name| around.variable(name.as_bytes()));
    // Values given on the command line, as in `make CC=…`.
    let given = argv.iter().filter_map(|argument| {
        let (name, value) = argument.split_at(argument.iter().position(|b| *b == b'=')?);
        TOOL_VARIABLES.iter().any(|known| known.as_bytes() == name).then_some(&value[1..])
    });
    let named = set.chain(given);
    // For example, `larder gcc -m32` names gcc.
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

/// Returns larder's own programs first, then those that the command names, each once.
fn binaries(around: &Surroundings, argv: &[Vec<u8>]) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = around.wrapper.iter().cloned().chain(std::env::current_exe()).collect();
    for named in larders(argv) {
        if !all.contains(&named) {
            all.push(named);
        }
    }
    all
}

/// Returns the larder programs that a command names, even within `CC="…/larder gcc"`, because a
/// record may compare two versions of larder.
fn larders(argv: &[Vec<u8>]) -> Vec<PathBuf> {
    let is_end = |b: &u8| b.is_ascii_whitespace() || b"='\";&|()".contains(b);
    let words = argv.iter().flat_map(|argument| argument.split(is_end)).filter(|word| word.contains(&b'/'));
    let mut found: Vec<PathBuf> = words
        .filter_map(|word| std::fs::canonicalize(std::ffi::OsStr::from_bytes(word)).ok())
        .filter(|path| path.file_name().is_some_and(|name| name == "larder"))
        .flat_map(|path| [path.with_file_name("larderd"), path])
        .filter(|path| path.is_file())
        .collect();
    found.sort();
    found.dedup();
    found
}

/// Returns the name if it can be used as a directory name.
fn checked(name: &str) -> Result<String> {
    let is_odd = name.is_empty() || name.starts_with('.') || name.contains('/') || name.contains(char::is_control);
    if is_odd || name == "last" {
        bail!("--name {}: this name cannot be used for a record's directory", say::one_line(name));
    }
    Ok(name.to_owned())
}

fn named_after(argv: &[Vec<u8>]) -> String {
    let words = argv.iter().flat_map(|argument| argument.split(u8::is_ascii_whitespace));
    // For a shell command, use the program in it.
    let is_shell = argv[0] == SHELL.as_bytes() && argv.get(1).is_some_and(|option| option == b"-c");
    let word = words.skip(if is_shell { 2 } else { 0 }).find(|word| !word.is_empty()).unwrap_or_default();
    let first = word.rsplit(|&b| b == b'/').next().unwrap_or_default();
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
        let shell = ["/bin/sh", "-c", "  ninja -C x"].map(|word| word.as_bytes().to_vec());
        assert_eq!(named_after(&shell), "ninja");
        assert!(checked("../x").is_err() && checked("last").is_err() && checked("a b").is_ok());
    }
}
