//! Golden tests for formats: the exact bytes of an encoding are kept as hexadecimal text beside the
//! test that produces them.
//!
//! A difference means that existing files would be decoded differently, or not at all. If the
//! change is intended, first raise the version of the format. Then write the golden files again and
//! review what changed in them:
//!
//! ```text
//! LARDER_GOLDEN=renew cargo test -p larder-model -p larder-ipc -p larder-store \
//!     -p larder-observe -p larder-image
//! git diff '*.hex'
//! ```

use std::fs;
use std::path::Path;

const LINE_BYTES: usize = 32;

/// Returns the bytes that the file at `path` holds as pairs of hexadecimal digits. A line that
/// begins with `#` is a comment.
pub fn golden_bytes(path: &Path) -> Vec<u8> {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let digits: Vec<u32> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .flat_map(|line| line.chars().filter_map(|c| c.to_digit(16)))
        .collect();
    digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

/// Asserts that `bytes` equal the bytes of the golden file at `path`. With `LARDER_GOLDEN=renew`,
/// first writes the file, with `what` as a comment in its first line.
#[track_caller]
pub fn golden(path: &Path, what: &str, bytes: &[u8]) {
    if std::env::var_os("LARDER_GOLDEN").is_some_and(|value| value == "renew") {
        let hex = |line: &[u8]| line.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let lines: Vec<String> = bytes.chunks(LINE_BYTES).map(hex).collect();
        fs::create_dir_all(path.parent().expect("the golden file has no parent directory"))
            .expect("cannot create the directory of the golden file");
        fs::write(path, format!("# {what}\n{}\n", lines.join("\n"))).expect("cannot write the golden file");
    }
    let expect = golden_bytes(path);
    let differs = expect.iter().zip(bytes).position(|(a, b)| a != b).unwrap_or(expect.len().min(bytes.len()));
    assert!(
        expect == bytes,
        "{}: the encoding has {} bytes, the golden file {}; they first differ at byte {differs}. If this is intended, raise \
         the format's version and write the file again (see crates/testkit/src/golden.rs)",
        path.display(),
        bytes.len(),
        expect.len()
    );
}
