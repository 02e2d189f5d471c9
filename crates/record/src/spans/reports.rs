//! Finds the reports that a run wrote, by the command lines of its processes. No directory is
//! searched, so a large project costs nothing.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use crate::processes::{Process, Processes};

/// Returns the existing reports that were written after `since_ns` (nanoseconds since 1970), each
/// once, in the order of the processes.
pub(super) fn written(found: &Processes, environment: &[(Vec<u8>, Vec<u8>)], since_ns: u64) -> Vec<PathBuf> {
    let since = UNIX_EPOCH + Duration::from_nanos(since_ns);
    let is_new = |path: &PathBuf| {
        fs::metadata(path).is_ok_and(|about| about.is_file() && about.modified().is_ok_and(|when| when >= since))
    };
    let mut all: Vec<PathBuf> = Vec::new();
    let mut known = std::collections::HashSet::new();
    for process in &found.all {
        for path in of(process, environment).into_iter().filter(is_new) {
            if known.insert(fs::canonicalize(&path).unwrap_or_else(|_| path.clone())) {
                all.push(path);
            }
        }
    }
    all
}

/// Returns the paths to which a process may have written a report.
fn of(process: &Process, environment: &[(Vec<u8>, Vec<u8>)]) -> Vec<PathBuf> {
    let Some(program) = process.programs.last() else { return Vec::new() };
    let mut arguments = &program.argv[..];
    let cwd = Path::new(&process.cwd);
    // A wrapper has the tool's command line behind its own name.
    if arguments.first().is_some_and(|first| base(first) == "larder") {
        arguments = &arguments[1..];
    }
    let Some(name) = arguments.first().map(|first| base(first)) else { return Vec::new() };
    let arguments = &arguments[1..];
    match name.trim_end_matches(|c: char| c.is_ascii_digit() || "-.".contains(c)) {
        "ninja" | "ninja-build" | "samu" => {
            vec![cwd.join(value(arguments, "-C").unwrap_or_default()).join(".ninja_log")]
        }
        "cmake" => value(arguments, "--profiling-output").map(|file| cwd.join(file)).into_iter().collect(),
        "bazel" | "bazelisk" => bazel(arguments, cwd),
        "cargo" => cargo(arguments, cwd, environment),
        "clang" | "clang++" => clang(arguments, cwd).into_iter().collect(),
        _ => Vec::new(),
    }
}

fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Returns the value of an option that was given as `--name=VALUE`, `--name VALUE`, or, if it has
/// one dash, `-nVALUE`. The last one counts.
fn value<'a>(arguments: &'a [String], name: &str) -> Option<&'a str> {
    let is_long = name.starts_with("--");
    arguments.iter().enumerate().rev().find_map(|(at, argument)| match argument.strip_prefix(name)? {
        "" => arguments.get(at + 1).map(String::as_str),
        rest if is_long => rest.strip_prefix('='),
        rest => Some(rest),
    })
}

/// Bazel's own profile, if no path was given, lies in its output base, to which a link points.
fn bazel(arguments: &[String], cwd: &Path) -> Vec<PathBuf> {
    if let Some(file) = value(arguments, "--profile") {
        return vec![cwd.join(file)];
    }
    let output = fs::read_link(cwd.join("bazel-out")).unwrap_or_default();
    let base =
        output.ancestors().find(|above| above.file_name() == Some(OsStr::new("execroot"))).and_then(Path::parent);
    base.map(|base| base.join("command.profile.gz")).into_iter().collect()
}

/// Cargo writes a page for each build below the target directory, which is in the directory of the
/// workspace or at a path that was given.
fn cargo(arguments: &[String], cwd: &Path, environment: &[(Vec<u8>, Vec<u8>)]) -> Vec<PathBuf> {
    if !arguments.iter().any(|argument| argument == "--timings" || argument.starts_with("--timings=")) {
        return Vec::new();
    }
    let set = environment.iter().find(|(name, _)| name == b"CARGO_TARGET_DIR");
    let set = set.map(|(_, value)| Path::new(OsStr::from_bytes(value)));
    let given = value(arguments, "--target-dir").map(Path::new).or(set);
    let targets: Vec<PathBuf> = match given {
        Some(given) => vec![cwd.join(given)],
        None => cwd.ancestors().map(|above| above.join("target")).collect(),
    };
    targets.into_iter().map(|target| target.join("cargo-timings/cargo-timing.html")).collect()
}

/// Returns the path of the trace that clang writes, by default beside the object.
fn clang(arguments: &[String], cwd: &Path) -> Option<PathBuf> {
    let option = arguments.iter().rev().find_map(|argument| argument.strip_prefix("-ftime-trace"));
    let given = match option? {
        "" => None,
        rest => Some(cwd.join(rest.strip_prefix('=')?)),
    };
    let output = value(arguments, "-o").or_else(|| {
        let is_source = |argument: &&String| !argument.starts_with('-') && Path::new(argument).extension().is_some();
        arguments.iter().find(is_source).map(|source| base(source))
    });
    let name = || Path::new(output.unwrap_or_default()).with_extension("json");
    match given {
        Some(directory) if directory.is_dir() => Some(directory.join(name().file_name()?)),
        Some(file) => Some(file),
        None => Some(cwd.join(name())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::Program;

    #[test]
    fn command_lines() {
        let check = |argv: &str, expected: &[&str]| {
            let argv: Vec<String> = argv.split(' ').map(str::to_owned).collect();
            let programs = vec![Program { argv, ..Program::default() }];
            let process = Process { programs, cwd: "/no/p".into(), ..Process::default() };
            let paths = of(&process, &[]);
            assert_eq!(paths.iter().map(|path| path.to_str().expect("text")).collect::<Vec<_>>(), expected);
        };
        check("ninja -j2", &["/no/p/.ninja_log"]);
        check("/usr/bin/ninja -C out all", &["/no/p/out/.ninja_log"]);
        check("ninja -Cout", &["/no/p/out/.ninja_log"]);
        check("cmake --profiling-output=p.json -S .", &["/no/p/p.json"]);
        check("cmake --build .", &[]);
        check("bazel build --profile=/x/p.gz //:a", &["/x/p.gz"]);
        check("bazel build //:a", &[]);
        check("cargo build", &[]);
        check("cargo build --timings --target-dir=t", &["/no/p/t/cargo-timings/cargo-timing.html"]);
        check("clang-14 -ftime-trace -c a.c -o x/a.o", &["/no/p/x/a.json"]);
        check("larder clang++ -ftime-trace -c ../a.cc", &["/no/p/a.json"]);
        check("clang -ftime-trace=t.json -c a.c", &["/no/p/t.json"]);
        check("clang -c a.c", &[]);
        check("gcc -c a.c", &[]);
    }
}
