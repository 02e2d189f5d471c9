//! The seeds of mutations: the files of `corpus/TARGET`, and the golden bytes of the formats.

use std::fs;
use std::path::Path;

/// The golden files of each target.
const GOLDEN: &[(&str, &[&str])] = &[
    ("counters", &["cache/store/tests/golden/counters.hex"]),
    ("frame", &["base/ipc/tests/golden/frames.hex"]),
    ("fsck", &["base/model/tests/golden/manifest.hex"]),
    ("image", &["base/model/tests/golden/image.hex", "base/model/tests/golden/image_traced.hex"]),
    ("log", &["cache/observe/tests/golden/log.hex"]),
    ("manifest", &["base/model/tests/golden/manifest.hex"]),
    ("observations", &["base/model/tests/golden/observations.hex"]),
    (
        "packs",
        &[
            "base/model/tests/golden/packs.hex",
            "base/model/tests/golden/pieces.hex",
            "base/model/tests/golden/trace.hex",
        ],
    ),
    ("parcel", &["base/ipc/tests/golden/parcel_with.hex", "base/ipc/tests/golden/parcel_without.hex"]),
    ("result", &["base/model/tests/golden/result_apart.hex", "base/model/tests/golden/result_together.hex"]),
    ("stamps", &["cache/store/tests/golden/stamps.hex"]),
    ("tree", &["image/image/tests/golden/tree.hex"]),
];

/// Returns the seeds of a target. There is at least one, which is empty.
pub fn seeds(target: &str) -> Vec<Vec<u8>> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = vec![Vec::new()];
    let mut corpus: Vec<_> = fs::read_dir(here.join("corpus").join(target))
        .map(|list| list.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default();
    corpus.sort();
    found.extend(corpus.iter().filter_map(|path| fs::read(path).ok()));
    for name in GOLDEN.iter().filter(|(known, _)| *known == target).flat_map(|(_, names)| *names) {
        let text = fs::read_to_string(here.join("../crates").join(name)).expect("is there");
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let digits: Vec<u32> = lines.flat_map(|line| line.chars().filter_map(|c| c.to_digit(16))).collect();
        found.push(digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect());
    }
    found
}
