//! Asks the compiler driver where it looks: parses the search list of `-v` and its answers to
//! `-print-…`.
//!
//! Unaware of: how the answers are used.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::process::Stdio;

use larder_model::DepfilePlan;
use larder_spawn::Command;

use super::reason::{Reason, text};

/// Where the compiler looks for headers and programs, by its own report.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Search {
    /// The directories for `"…"` only, which come before those of `bracket`.
    pub(super) quote: Vec<Vec<u8>>,
    /// The directories for `<…>`.
    pub(super) bracket: Vec<Vec<u8>>,
    /// The directories that the compiler ignores because they do not exist or are given twice.
    pub(super) ignored: Vec<Vec<u8>>,
    /// The path of the compiler proper, for example `/usr/lib/gcc/x86_64-linux-gnu/12/cc1`.
    pub(super) compiler: Vec<u8>,
    /// The directory of the driver, if it is clang.
    pub(super) installed: Option<Vec<u8>>,
    /// The compilation target, for example `x86_64-linux-gnu`.
    pub(super) target: Vec<u8>,
    /// The GCC installations that clang found.
    pub(super) installations: Vec<Vec<u8>>,
    /// The directories in which clang looks for configuration files.
    pub(super) configurations: Vec<Vec<u8>>,
}

/// Asks the driver for the search list.
pub(super) fn search(plan: &DepfilePlan, command: &Command) -> Result<Search, Reason> {
    let language: &[u8] = if plan.cxx { b"c++" } else { b"c" };
    let question = [&b"-E"[..], b"-v", b"-x", language, b"/dev/null"];
    let (_, stderr) = ask(plan, &command.program, command, &question, true)?;
    parse(&stderr)
}

/// Runs `program` with the question, and with the plan's search flags if `with_flags` is true.
/// Returns its standard output and standard error.
pub(super) fn ask(
    plan: &DepfilePlan,
    program: &[u8],
    command: &Command,
    question: &[&[u8]],
    with_flags: bool,
) -> Result<(Vec<u8>, Vec<u8>), Reason> {
    let mut run = std::process::Command::new(OsStr::from_bytes(program));
    if let Some(name) = command.argv.first() {
        run.arg0(OsStr::from_bytes(name));
    }
    if with_flags {
        run.args(plan.search_flags.iter().map(|flag| OsStr::from_bytes(flag)));
    }
    run.args(question.iter().map(|word| OsStr::from_bytes(word))).env_clear().stdin(Stdio::null());
    for variable in &command.environment {
        if let Some(equals) = variable.iter().position(|&b| b == b'=') {
            let (name, value) = (variable[..equals].to_vec(), variable[equals + 1..].to_vec());
            run.env(OsString::from_vec(name), OsString::from_vec(value));
        }
    }
    run.env("LC_ALL", "C").env_remove("LANGUAGE");
    let words = || question.iter().map(|word| text(word)).collect::<Vec<_>>().join(" ");
    let output = run.output().map_err(|error| format!("{} {}: {error}", text(program), words()))?;
    if !output.status.success() {
        return Err(format!("{} {}: failed", text(program), words()));
    }
    Ok((output.stdout, output.stderr))
}

/// Returns the libraries that a dynamically linked program loads. Its loader prints them instead of
/// running the program (`LD_TRACE_LOADED_OBJECTS`).
pub(super) fn libraries(program: &[u8], command: &Command) -> Result<Vec<Vec<u8>>, Reason> {
    let environment = [&command.environment[..], &[b"LD_TRACE_LOADED_OBJECTS=1".to_vec()]].concat();
    let traced = Command::new(program.to_vec(), vec![program.to_vec()], environment);
    let (stdout, _) = ask(&DepfilePlan::default(), program, &traced, &[], false)?;
    let lines = stdout.split(|&b| b == b'\n');
    let paths = lines.filter_map(|line| {
        let words: Vec<&[u8]> = line.split(|b| b" \t".contains(b)).filter(|word| !word.is_empty()).collect();
        words.into_iter().find(|word| word.starts_with(b"/")).map(<[u8]>::to_vec)
    });
    Ok(paths.collect())
}

#[derive(PartialEq)]
enum Part {
    Before,
    Quote,
    Bracket,
    After,
}

fn parse(stderr: &[u8]) -> Result<Search, Reason> {
    let mut search = Search::default();
    let mut part = Part::Before;
    for line in stderr.split(|&b| b == b'\n') {
        match (line, &part) {
            (b"#include \"...\" search starts here:", Part::Before) => part = Part::Quote,
            (b"#include <...> search starts here:", Part::Quote) => part = Part::Bracket,
            (b"End of search list.", Part::Bracket) => part = Part::After,
            (line, Part::Quote) => search.quote.push(directory(line)?),
            (line, Part::Bracket) => search.bracket.push(directory(line)?),
            (line, Part::Before) => search.before(line)?,
            (_, Part::After) => {}
        }
    }
    if part != Part::After || search.compiler.is_empty() {
        return Err("the compiler's search list was not understood".to_owned());
    }
    Ok(search)
}

fn directory(line: &[u8]) -> Result<Vec<u8>, Reason> {
    let odd = line.ends_with(b" (framework directory)") || line.ends_with(b" (headermap)");
    let trimmed = line.strip_prefix(b" ").map(|path| path.strip_suffix(b"\r").unwrap_or(path));
    trimmed
        .filter(|path| !odd && !path.is_empty())
        .map(<[u8]>::to_vec)
        .ok_or_else(|| format!("{}: not a directory that headers are looked for in", text(line)))
}

impl Search {
    fn before(&mut self, line: &[u8]) -> Result<(), Reason> {
        let after = |start: &[u8]| line.strip_prefix(start).map(<[u8]>::to_vec);
        let quoted = |start: &[u8]| after(start).map(|rest| rest.strip_suffix(b"\"").unwrap_or(&rest).to_vec());
        if let Some(path) = quoted(b"ignoring nonexistent directory \"") {
            self.ignored.push(path);
        } else if let Some(path) = quoted(b"ignoring duplicate directory \"") {
            self.ignored.push(path);
        } else if let Some(path) = after(b"InstalledDir: ") {
            self.installed = Some(path);
        } else if let Some(target) = after(b"Target: ") {
            self.target = target;
        } else if let Some(path) = after(b"Found candidate GCC installation: ") {
            self.installations.push(path);
        } else if let Some(path) = after(b"System configuration file directory: ") {
            self.configurations.push(path);
        } else if let Some(path) = after(b"User configuration file directory: ") {
            self.configurations.push(path);
        } else if line.starts_with(b"Configuration file:") || line.starts_with(b"Reading specs from ") {
            return Err(text(line));
        } else if self.compiler.is_empty() && line.starts_with(b" ") {
            self.compiler_of(line);
        }
        Ok(())
    }

    /// Parses the command line of the compiler proper. clang quotes each word, gcc only the words
    /// that need it.
    fn compiler_of(&mut self, line: &[u8]) {
        let line = line.trim_ascii_start();
        let (line, end) = line.strip_prefix(b"\"").map_or((line, b' '), |line| (line, b'"'));
        let word = line.split(|&b| b == end).next().unwrap_or_default();
        if word.starts_with(b"/") {
            self.compiler = word.to_vec();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn search_lists() {
        let text = b"Using built-in specs.\nTarget: x86_64-linux-gnu\n /usr/lib/gcc/12/cc1 -E -quiet -v /dev/null\n\
            ignoring nonexistent directory \"no such\"\nignoring duplicate directory \"/usr/include\"\n\
            #include \"...\" search starts here:\n q\n#include <...> search starts here:\n inc\n /usr/include\n\
            End of search list.\nCOMPILER_PATH=/x\n";
        let search = parse(text).expect("is understood");
        let bytes = |list: &[&str]| list.iter().map(|path| path.as_bytes().to_vec()).collect::<Vec<_>>();
        assert_eq!(search.quote, bytes(&["q"]));
        assert_eq!(search.bracket, bytes(&["inc", "/usr/include"]));
        assert_eq!(search.ignored, bytes(&["no such", "/usr/include"]));
        assert_eq!(search.compiler, b"/usr/lib/gcc/12/cc1");
    }

    #[test]
    fn clangs_words() {
        let text = b"clang version 14\nTarget: t\nInstalledDir: /usr/bin\nFound candidate GCC installation: /g/12\n \
            (in-process)\n \"/usr/lib/llvm-14/bin/clang\" \"-cc1\"\n#include \"...\" search starts here:\n\
            #include <...> search starts here:\n /i\nEnd of search list.\n";
        let search = parse(text).expect("is understood");
        assert_eq!(search.compiler, b"/usr/lib/llvm-14/bin/clang");
        assert_eq!(search.installed.as_deref(), Some(&b"/usr/bin"[..]));
        assert_eq!(search.installations, [b"/g/12".to_vec()]);
    }

    #[test]
    fn refused() {
        let check = |text: &str| assert!(parse(text.as_bytes()).is_err(), "{text}");
        check("");
        check("Reading specs from /x/specs\n");
        check("Configuration file: /x.cfg\n");
        check(
            " /cc1\n#include \"...\" search starts here:\n#include <...> search starts here:\n x.hmap (headermap)\n\
            End of search list.\n",
        );
    }
}
