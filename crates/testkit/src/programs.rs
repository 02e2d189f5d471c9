//! Makes programs that a test runs.
//!
//! Another process writes them. If this one had the file open for writing, a child that another
//! test starts in that moment would hold the descriptor until its own program begins. Running the
//! file would fail with ETXTBSY for as long.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes a program, in place if the file exists.
pub fn write_program(path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) {
    let script = "cat >\"$0\" && chmod 755 \"$0\"";
    let mut writer = Command::new("sh")
        .args(["-c", script])
        .arg(path.as_ref())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("cannot start sh: {error}"));
    writer.stdin.take().expect("is piped").write_all(bytes.as_ref()).expect("cannot write the program");
    assert!(writer.wait().expect("cannot wait for sh").success(), "{}: cannot write it", path.as_ref().display());
}

/// Copies a program. What is there is removed first.
pub fn copy_program(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let mut copy = Command::new("install");
    let status = copy.args(["-m", "755"]).args([from.as_ref(), to.as_ref()]).status();
    assert!(status.expect("cannot start install").success(), "{}: cannot copy it", to.as_ref().display());
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::Place;

    #[test]
    fn programs_can_be_run_while_others_start_children() {
        let place = Place::new();
        let (ended, program) = (AtomicBool::new(false), place.path("program"));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !ended.load(Ordering::Relaxed) {
                        Command::new("true").status().expect("cannot start true");
                    }
                });
            }
            let busy = (0..300).find_map(|number| {
                write_program(&program, format!("#!/bin/sh\nexit {}\n", number % 7));
                let status = Command::new(&program).status();
                let right = matches!(&status, Ok(status) if status.code() == Some(number % 7));
                (!right).then_some(status)
            });
            ended.store(true, Ordering::Relaxed);
            assert!(busy.is_none(), "{busy:?}");
        });
    }
}
