//! Subcommands for people, such as `larder stats`: this process becomes `larderd`, which answers
//! them.
//!
//! Unaware of: what the subcommands do.

use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::own_file::OWN_FILE;
use crate::run::parent_run;

/// Reports to the outer run, if there is one, what the answer of `larderd` relies on. For example,
/// CMake asks each compiler with `-print-sysroot`, and forgets the compiler's name behind `larder`.
/// Such a question is answered by a fixed text. Any other subcommand may read or change anything,
/// so it is not reported, and the outer run is not recorded.
pub(crate) fn report_question(words: &[Vec<u8>]) {
    const FIXED: [&[u8]; 6] = [b"--help", b"--version", b"-dumpmachine", b"-dumpversion", b"help", b"version"];
    let Some(first) = words.first() else { return };
    if !FIXED.contains(&&first[..]) && !first.starts_with(b"-print-") {
        return;
    }
    let mut environment = std::env::vars_os().map(|(name, value)| (name.into_vec(), value.into_vec())).collect();
    parent_run::find(&mut environment);
    let own = std::fs::read_link(OWN_FILE).unwrap_or_default();
    for path in candidates(&own) {
        parent_run::reads(path.as_os_str().as_bytes());
        if path.exists() {
            return;
        }
    }
}

/// Becomes `larderd` with these arguments. Returns an exit code if that fails.
pub(crate) fn answer(words: Vec<Vec<u8>>) -> i32 {
    let own = std::fs::read_link(OWN_FILE).unwrap_or_default();
    let environment: Vec<Vec<u8>> = std::env::vars_os()
        .map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat())
        .filter(|variable| !variable.starts_with(b"LARDER_WRAPPER="))
        .chain([[&b"LARDER_WRAPPER="[..], own.as_os_str().as_bytes()].concat()])
        .collect();
    let argv: Vec<Vec<u8>> = [b"larder".to_vec()].into_iter().chain(words).collect();
    let mut tried = String::new();
    for path in candidates(&own) {
        let error = larder_sys::exec(path.as_os_str().as_bytes(), &argv, &environment);
        if error.kind() != std::io::ErrorKind::NotFound {
            tried.push_str(&format!(" {}: {error};", path.display()));
        }
    }
    eprintln!(
        "larder: subcommands need `larderd`, which was found neither next to larder nor along PATH;{tried} install both files in one directory"
    );
    127
}

/// Returns the paths at which `larderd` may be: next to `own`, then along `PATH`. Relative entries
/// are skipped, because a program in the working directory may be anything.
pub(crate) fn candidates(own: &Path) -> Vec<PathBuf> {
    let beside = own.parent().map(Path::to_owned);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let along = std::env::split_paths(&path).filter(|directory| directory.is_absolute());
    beside.into_iter().chain(along).map(|directory| directory.join("larderd")).collect()
}
