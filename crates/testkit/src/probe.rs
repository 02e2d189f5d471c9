//! What this machine has and allows.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::place::PATH;

/// Whether a program of this name can be run in a place.
pub fn has(program: &str) -> bool {
    let runs = |path: &Path| path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0);
    PATH.split(':').any(|directory| runs(&Path::new(directory).join(program)))
}

/// Whether everything is to be tried, however long it takes, rather than a spread of it: `cargo xtask test --full`.
pub fn is_full() -> bool {
    std::env::var_os("LARDER_TEST_FULL").is_some_and(|value| value == "1")
}

/// Whether this is the superuser, who may give files away.
pub fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0)
}

/// Whether a process can have mounts of its own.
pub fn can_mount() -> bool {
    let probe = "mount -t tmpfs none /mnt";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", probe]).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Whether this process, and so whatever it starts, ignores the signal of this number: a shell has its background jobs
/// ignore some, `nohup` others. What is to die of one cannot be tested then.
pub fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    let ignored = mask >> (signal - 1) & 1 == 1;
    if ignored {
        eprintln!("skipped: signal {signal} is ignored here");
    }
    ignored
}
