//! This kernel as an older one: calls that an older kernel would refuse are refused.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The program `older`, built in `directory`: `older KERNEL COMMAND…` runs a command as on Linux 5.10, 6.1, 6.12 or 6.14,
/// as far as mounting goes. None, with a printed reason, if it cannot be built or may not stop others' calls here.
pub fn older(directory: &Path) -> Option<PathBuf> {
    let (source, program) = (directory.join("older.c"), directory.join("older"));
    std::fs::write(&source, include_str!("older.c")).expect("writes");
    let built = Command::new("cc").args(["-O1", "-o"]).arg(&program).arg(&source).output();
    let why = match built {
        Err(error) => format!("cc: {error}"),
        Ok(built) if !built.status.success() => String::from_utf8_lossy(&built.stderr).into_owned(),
        Ok(_) => {
            let ran = Command::new(&program).args(["6.14", "true"]).output().expect("starts");
            if ran.status.success() {
                return Some(program);
            }
            String::from_utf8_lossy(&ran.stderr).into_owned()
        }
    };
    eprintln!("skipped: as on older kernels: {}", why.trim());
    None
}
