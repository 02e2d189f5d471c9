//! Sampled stacks, with `perf` if it is installed: the command runs below it, and its samples are
//! folded into lines.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::{Command as Process, Stdio};

use crate::command::Command;
use crate::directory::RunFiles;
use crate::error::RecordError;

/// The largest number of frames of one stack that are kept.
const FRAMES_MAX: usize = 128;

/// Finds `perf` along the `PATH` of the command's environment.
pub fn perf(environment: &[(Vec<u8>, Vec<u8>)]) -> Option<PathBuf> {
    let path = environment.iter().find(|(name, _)| name == b"PATH").map(|(_, value)| value.as_slice())?;
    let directories = std::env::split_paths(std::ffi::OsStr::from_bytes(path));
    directories.map(|directory| directory.join("perf")).find(|file| file.is_file())
}

/// Returns the command with `perf` in front. The command line of `perf` is written to the record.
pub(crate) fn sampled(command: &Command, hz: u32, files: &RunFiles) -> Result<Command, RecordError> {
    let missing =
        std::io::Error::new(std::io::ErrorKind::NotFound, "it is not found along PATH: install it, or omit --sample");
    let program =
        perf(&command.environment).ok_or(RecordError::NotStarted { command: "perf".into(), error: missing })?;
    let scratch = files.scratch();
    let words = ["perf", "record", "--quiet", "--call-graph", "fp", "--freq"];
    let mut argv: Vec<Vec<u8>> = words.map(|word| word.as_bytes().to_vec()).to_vec();
    argv.push(hz.to_string().into_bytes());
    argv.extend([b"--output".to_vec(), scratch.as_os_str().as_bytes().to_vec(), b"--".to_vec()]);
    let line = argv.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect::<Vec<_>>().join(" ");
    fs::write(files.stacks_command(), line + " COMMAND\n").map_err(RecordError::io(files.stacks_command()))?;
    argv.extend(command.argv.iter().cloned());
    Ok(Command { program: program.as_os_str().as_bytes().to_vec(), argv, environment: command.environment.clone() })
}

/// Folds the samples that `perf` wrote, and removes its file. If it wrote nothing, there are no
/// stacks.
pub(crate) fn fold(files: &RunFiles) -> Result<(), RecordError> {
    let scratch = files.scratch();
    let mut script = Process::new("perf");
    script
        .args(["script", "--fields", "comm,ip,sym", "--input"])
        .arg(&scratch)
        .stderr(Stdio::null())
        .stdin(Stdio::null());
    let said = script.output().map(|output| output.stdout).unwrap_or_default();
    let _ = fs::remove_file(&scratch);
    let mut text = String::new();
    for (stack, count) in folded(&String::from_utf8_lossy(&said)) {
        text.push_str(&format!("{stack} {count}\n"));
    }
    fs::write(files.stacks(), text).map_err(RecordError::io(files.stacks()))
}

/// Parses the output of `perf script`: a process name, then one frame per line (innermost first),
/// then an empty line. Returns how often each `name;outer;inner` occurs.
fn folded(script: &str) -> BTreeMap<String, u64> {
    let mut stacks = BTreeMap::new();
    for sample in script.split("\n\n") {
        let mut lines = sample.lines().map(str::trim).filter(|line| !line.is_empty());
        let Some(name) = lines.next() else { continue };
        let frame = |line: &str| line.split_once(' ').map_or("[unknown]", |(_, symbol)| symbol).replace(';', ":");
        let mut frames: Vec<String> = lines.take(FRAMES_MAX).map(frame).collect();
        frames.push(name.trim_end_matches(':').replace(';', ":"));
        frames.reverse();
        *stacks.entry(frames.join(";")).or_default() += 1;
    }
    stacks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_are_folded() {
        let script =
            "cc1\n\t  55d inner a\n\t 77f outer\n\ncc1\n\t 55d inner a\n\t 77f outer\n\nsh\n\t 1 [unknown]\n\n";
        let expected = [("cc1;outer;inner a".to_owned(), 2), ("sh;[unknown]".to_owned(), 1)];
        assert_eq!(folded(script).into_iter().collect::<Vec<_>>(), expected);
        assert!(folded("").is_empty());
    }
}
