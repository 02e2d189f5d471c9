//! Exact bytes of a format, kept as text beside the test that makes them.
//!
//! A difference means that files which are out there would be read in another way, or not at all. Where that is meant,
//! raise the version of the format first, then write the texts anew and look at what changed in them:
//!
//! ```text
//! LARDER_GOLDEN=renew cargo test -p larder-model -p larder-ipc -p larder-store -p larder-observe -p larder-image
//! git diff '*.hex'
//! ```

use std::fs;
use std::path::Path;

const LINE_BYTES: usize = 32;

/// The bytes of the file at `path`: pairs of hexadecimal digits; a line that begins with `#` is a comment.
pub fn golden_bytes(path: &Path) -> Vec<u8> {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let digits: Vec<u32> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .flat_map(|line| line.chars().filter_map(|c| c.to_digit(16)))
        .collect();
    digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

/// `bytes` are those of the file at `path`, whose first line says `what` they are.
#[track_caller]
pub fn golden(path: &Path, what: &str, bytes: &[u8]) {
    if std::env::var_os("LARDER_GOLDEN").is_some_and(|value| value == "renew") {
        let hex = |line: &[u8]| line.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let lines: Vec<String> = bytes.chunks(LINE_BYTES).map(hex).collect();
        fs::create_dir_all(path.parent().expect("has one")).expect("can be made");
        fs::write(path, format!("# {what}\n{}\n", lines.join("\n"))).expect("can be written");
    }
    let expect = golden_bytes(path);
    let differs = expect.iter().zip(bytes).position(|(a, b)| a != b).unwrap_or(expect.len().min(bytes.len()));
    assert!(
        expect == bytes,
        "{}: {} bytes, {} expected, the first other one is number {differs}: raise the format's version and renew \
         (crates/testkit/src/golden.rs says how)",
        path.display(),
        bytes.len(),
        expect.len()
    );
}
