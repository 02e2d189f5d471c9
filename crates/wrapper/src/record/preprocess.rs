//! Runs the compiler's preprocessor once more.
//!
//! Unaware of: what is searched for in the text, when that has to be known.

use larder_spawn::{Command, output_of};
use larder_sys::ChildEnd;

/// Preprocessed text larger than this is not searched, in bytes, and counts as text that holds a
/// root path.
const TEXT_BYTES_MAX: u64 = 256 << 20;

/// Variables that make the compiler write further files.
const WRITES: [&str; 4] = ["DEPENDENCIES_OUTPUT", "SUNPRO_DEPENDENCIES", "CC_PRINT_OPTIONS", "CC_PRINT_HEADERS"];

/// Runs the preprocessor with these arguments and returns its output, or `None` if it failed.
/// `may_fail` is true if the compile failed too. The text before the error is then sufficient.
pub(super) fn preprocess(command: &Command, arguments: &[Vec<u8>], may_fail: bool) -> Option<Vec<u8>> {
    let writes = |variable: &&Vec<u8>| WRITES.iter().any(|name| variable.starts_with(format!("{name}=").as_bytes()));
    let command = Command {
        argv: command.argv.iter().take(1).chain(arguments).cloned().chain([b"-E".to_vec()]).collect(),
        environment: command.environment.iter().filter(|variable| !writes(variable)).cloned().collect(),
        ..command.clone()
    };
    match output_of(&command, TEXT_BYTES_MAX) {
        Ok((Some(text), end)) if end == ChildEnd::Exited(0) || may_fail => Some(text),
        _ => None,
    }
}
