//! Warnings on standard error, each of them once rather than once a compile: a build's output is read by people and by
//! scripts.
//!
//! Unaware of: what is wrong.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use larder_config::problems_digest;
use larder_model::Digest;
use larder_store::{Store, StoreError};

use crate::context::Context;

/// Digits of a digest in a file's name.
const NAME_DIGITS: usize = 16;

/// Say what is wrong with the settings, once for each set of faults.
pub(crate) fn of_settings(context: &Context, store: &Store) {
    let problems = &context.loaded.problems;
    if problems.is_empty() || !store.first_time(&problems_digest(problems)) {
        return;
    }
    for problem in problems {
        eprintln!("larder: warning: {problem}");
    }
}

/// Say why the store is not used, where that is for somebody to mend.
pub(crate) fn of_unsafe_store(context: &Context, error: &StoreError) {
    if matches!(error, StoreError::Unsafe { .. }) && first_time(context, &error.to_string()) {
        let text = error.to_string().replace(char::is_control, "?");
        eprintln!("larder: warning: the store is not used, every tool runs: {text}");
    }
}

/// Whether this was not said since temporary files were last cleared; notes it. Not in the store, which is not to be
/// touched. Anybody may make such a file first, which keeps us quiet and does nothing else. Where none can be made nothing
/// is said.
fn first_time(context: &Context, text: &str) -> bool {
    let variable = |name: &[u8]| context.place.variable(name).filter(|path| path.starts_with(b"/"));
    let directory = variable(b"XDG_RUNTIME_DIR").or_else(|| variable(b"TMPDIR")).unwrap_or(b"/tmp");
    let digest = Digest::of(text.as_bytes()).hex();
    let name = format!("larder-warned-{}-{}", larder_sys::effective_user(), &digest[..NAME_DIGITS]);
    let path = Path::new(OsStr::from_bytes(directory)).join(name);
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).is_ok()
}
