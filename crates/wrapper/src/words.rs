//! Words for people: `larderd` answers them, in our place.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::context::OWN_FILE;

/// Become `larderd`.
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
        "larder: words are answered by `larderd`, which was not found beside larder or along PATH;{tried} install both files in one directory"
    );
    127
}

/// Where `larderd` may be: beside us, then along `PATH`; never in the working directory, which may be anybody's.
pub(crate) fn candidates(own: &Path) -> Vec<PathBuf> {
    let beside = own.parent().map(Path::to_owned);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let along = std::env::split_paths(&path).filter(|directory| directory.is_absolute());
    beside.into_iter().chain(along).map(|directory| directory.join("larderd")).collect()
}
