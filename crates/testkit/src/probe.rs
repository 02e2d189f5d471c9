//! Probes for what is installed on this machine and what it permits.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::place::PATH;

/// Returns true if a program of this name is in the `PATH` of a place.
pub fn has(program: &str) -> bool {
    let runs = |path: &Path| path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0);
    PATH.split(':').any(|directory| runs(&Path::new(directory).join(program)))
}

/// Returns true if a test must try every case instead of a sample, however long it takes. `cargo
/// xtask test --full` sets this.
pub fn is_full() -> bool {
    std::env::var_os("LARDER_TEST_FULL").is_some_and(|value| value == "1")
}

/// Returns true if this process is the superuser, which may give files to other users.
pub fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0)
}

/// Returns true if a process can have its own mount namespace and mount in it.
pub fn can_mount() -> bool {
    let probe = "mount -t tmpfs none /mnt";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", probe]).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Returns true, and prints that the test is skipped, if this process ignores the signal of this
/// number. Processes that it starts then ignore the signal as well, so a test cannot end them by
/// it. For example, a shell makes background jobs ignore SIGINT, and `nohup` makes them ignore
/// SIGHUP.
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
