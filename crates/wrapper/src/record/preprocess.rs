//! Runs the compiler's preprocessor once more.
//!
//! Unaware of: what is searched for in the text, when that has to be known.

use std::time::Instant;

use larder_spawn::{Command, Printed, output_of};
use larder_sys::ChildEnd;

/// Preprocessed text larger than this is not searched, in bytes, and counts as text that holds a
/// root path.
const TEXT_BYTES_MAX: u64 = 256 << 20;

/// Variables that make the compiler write further files.
const WRITES: [&str; 4] = ["DEPENDENCIES_OUTPUT", "SUNPRO_DEPENDENCIES", "CC_PRINT_OPTIONS", "CC_PRINT_HEADERS"];

/// Runs the preprocessor with these arguments and returns its output, or `None` if it failed.
/// `may_fail` is true if the compile failed too. The text before the error is then sufficient.
pub(super) fn preprocess(command: &Command, arguments: &[Vec<u8>], may_fail: bool) -> Option<Vec<u8>> {
    let Printed { text, end, .. } = run(command, arguments)?;
    text.filter(|_| end == ChildEnd::Exited(0) || may_fail)
}

/// The output of a preprocessor that succeeded without a message.
pub(crate) struct Preprocessed {
    pub(crate) text: Vec<u8>,
    /// How long it ran, in microseconds.
    pub(crate) took_us: u64,
}

/// Runs the preprocessor with these arguments. Returns `None` if it failed or had a message.
pub(crate) fn preprocess_silently(command: &Command, arguments: &[Vec<u8>]) -> Option<Preprocessed> {
    let began = Instant::now();
    let Printed { text, has_messages, end } = run(command, arguments)?;
    let took_us = began.elapsed().as_micros() as u64;
    let text = text.filter(|_| end == ChildEnd::Exited(0) && !has_messages)?;
    Some(Preprocessed { text, took_us })
}

fn run(command: &Command, arguments: &[Vec<u8>]) -> Option<Printed> {
    let writes = |variable: &&Vec<u8>| WRITES.iter().any(|name| variable.starts_with(format!("{name}=").as_bytes()));
    let command = Command {
        argv: command.argv.iter().take(1).chain(arguments).cloned().chain([b"-E".to_vec()]).collect(),
        environment: command.environment.iter().filter(|variable| !writes(variable)).cloned().collect(),
        ..command.clone()
    };
    output_of(&command, TEXT_BYTES_MAX).ok()
}
