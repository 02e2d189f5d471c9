//! Makes this kernel behave like an older one: mount calls that an older kernel would refuse fail
//! with the error of that kernel.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds the program `older` in `directory` and returns its path. `older KERNEL COMMAND…` runs a
/// command with the mount calls of Linux 5.10, 6.1, 6.12 or 6.14.
///
/// Returns `None` and prints the reason if the program cannot be built, or if it may not trace
/// other processes here.
pub fn older(directory: &Path) -> Option<PathBuf> {
    let (source, program) = (directory.join("older.c"), directory.join("older"));
    std::fs::write(&source, include_str!("older.c")).expect("cannot write older.c");
    let built = Command::new("cc").args(["-O1", "-o"]).arg(&program).arg(&source).output();
    let why = match built {
        Err(error) => format!("cc: {error}"),
        Ok(built) if !built.status.success() => String::from_utf8_lossy(&built.stderr).into_owned(),
        Ok(_) => {
            let ran = Command::new(&program).args(["6.14", "true"]).output().expect("cannot start the program `older`");
            if ran.status.success() {
                return Some(program);
            }
            String::from_utf8_lossy(&ran.stderr).into_owned()
        }
    };
    eprintln!("skipped: cannot imitate older kernels here: {}", why.trim());
    None
}
