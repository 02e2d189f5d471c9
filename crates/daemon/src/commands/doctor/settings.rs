//! Checks the wrapper, the configuration, and switches that are easily forgotten.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{Access, OFlags};

use super::check::{Check, note, ok, problem};
use crate::surroundings::Surroundings;

/// A log may be a FIFO. Opening it must not wait for a reader.
const NONBLOCK: i32 = OFlags::NONBLOCK.bits() as i32;

pub(super) fn checks(around: &Surroundings) -> Vec<Check> {
    let mut checks = vec![wrapper(around)];
    configuration(around, &mut checks);
    switches(around, &mut checks);
    checks
}

fn wrapper(around: &Surroundings) -> Check {
    match &around.wrapper {
        Some(path) => {
            let found = format!("{}, version {}", path.display(), env!("CARGO_PKG_VERSION"));
            match is_at_fixed_addresses(path) {
                Ok(false) => note("wrapper", format!("{found}: {}", not_static())),
                _ => ok("wrapper", found),
            }
        }
        None => problem("wrapper", "larder is not beside larderd: install both files in one directory"),
    }
}

/// Returns true if the program is linked for fixed addresses (`ET_EXEC`), as `.cargo/config.toml`
/// asks for. `cargo install` does not read that file.
fn is_at_fixed_addresses(path: &Path) -> io::Result<bool> {
    let mut start = [0; 18];
    File::open(path)?.read_exact(&mut start)?;
    Ok(start.starts_with(b"\x7fELF\x02\x01") && start[16..] == [2, 0])
}

/// Returns the advice for a wrapper that takes longer to start, because it is not the static program.
/// docs/performance.md has the figure.
fn not_static() -> String {
    format!(
        "it is not the static program, so a hit takes 1.7 times as long: install it by `RUSTFLAGS=\"-C \
         relocation-model=static\" cargo install --force larder --target {}-unknown-linux-musl`",
        std::env::consts::ARCH
    )
}

fn configuration(around: &Surroundings, checks: &mut Vec<Check>) {
    checks.extend(around.loaded.problems.iter().map(|found| problem("configuration", found.to_string())));
    checks.extend(around.loaded.notes.iter().map(|found| note("configuration", found.to_string())));
    if around.loaded.problems.is_empty() {
        let read = around.loaded.files.iter().filter(|file| file.found);
        let names: Vec<String> = read.map(|file| file.path.display().to_string()).collect();
        let from = if names.is_empty() { "no file".to_owned() } else { names.join(", ") };
        checks.push(ok("configuration", format!("read from {from}; see `larder config`")));
    }
}

fn switches(around: &Surroundings, checks: &mut Vec<Check>) {
    let settings = around.settings();
    let switches = [
        (settings.disable, "disable is set (LARDER_DISABLE): every tool runs untouched until it is unset"),
        (settings.read_only, "read_only is set (LARDER_READ_ONLY): nothing is recorded or counted until it is unset"),
        (settings.recache, "recache is set (LARDER_RECACHE): every tool runs, and there are no hits until it is unset"),
    ];
    checks.extend(switches.into_iter().filter(|(on, _)| *on).map(|(_, found)| note("switch", found)));
    checks.extend(relative_store(around));
    checks.extend(settings.log.as_deref().and_then(log));
    if larder_sys::file_size_is_limited() {
        let found = "the size of files is limited (ulimit -f): every tool runs untouched until the limit is lifted";
        checks.push(note("limit", found));
    }
    if let Some(observer) = settings.observer {
        let found = format!("only the {} observer may be used (LARDER_OBSERVER)", observer.name());
        checks.push(note("switch", found));
    }
}

/// Returns a note if each working directory has a store of its own.
fn relative_store(around: &Surroundings) -> Option<Check> {
    let typed = around.text(b"LARDER_DIR").filter(|path| !path.is_empty() && !path.starts_with(['/', '~']))?;
    let found = format!(
        "LARDER_DIR is the relative path {typed}, so commands in other directories have another store: write an absolute \
         path"
    );
    Some(note("store", found))
}

/// Returns a problem if the log cannot be written, because builds do not say that.
fn log(path: &Path) -> Option<Check> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let why = match path.symlink_metadata() {
        Ok(_) => OpenOptions::new().append(true).custom_flags(NONBLOCK).open(path).err()?.to_string(),
        Err(_) if !directory.is_dir() => format!("there is no directory {}", directory.display()),
        Err(_) => rustix::fs::access(directory, Access::WRITE_OK | Access::EXEC_OK).err()?.to_string(),
    };
    Some(problem("log", format!("{} cannot be written ({why}): set LARDER_LOG to another file", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_for_any_address_is_told_from_the_static_one() {
        let dir = tempfile::tempdir().expect("a directory");
        for (kind, expected) in [(2, true), (3, false)] {
            let path = dir.path().join("larder");
            std::fs::write(&path, [&b"\x7fELF\x02\x01\x01"[..], &[0; 9], &[kind, 0, 62, 0]].concat()).expect("written");
            assert_eq!(is_at_fixed_addresses(&path).ok(), Some(expected));
        }
        assert!(is_at_fixed_addresses(&dir.path().join("absent")).is_err());
        assert!(not_static().contains("-unknown-linux-musl"));
    }

    #[test]
    fn a_log_that_cannot_be_written_is_a_problem() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("log");
        assert!(log(&file).is_none());
        std::fs::write(&file, "").expect("written");
        assert!(log(&file).is_none());
        let found = |path: &Path| log(path).expect("is a problem").found;
        assert!(found(&dir.path().join("none/log")).contains("there is no directory"));
        assert!(found(dir.path()).contains("set LARDER_LOG to another file"));
    }
}
