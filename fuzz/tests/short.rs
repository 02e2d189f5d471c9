//! Runs every target with its seeds and with some thousand mutations, which are the same each time.
//! There is only one test, so that no other test allocates memory meanwhile.

use larder_fuzz::{Mutations, TARGETS, run, seeds};

/// The number of mutations for a target that takes bytes, and for one that makes files.
const RUNS: usize = 20_000;
const RUNS_WITH_FILES: usize = 500;

#[test]
fn each_target_takes_anything() {
    for (name, ..) in TARGETS {
        let seeds = seeds(name);
        seeds.iter().for_each(|seed| run(name, seed));
        let with_files = matches!(*name, "archive" | "counters" | "fsck" | "near" | "stamps");
        let runs = if with_files { RUNS_WITH_FILES } else { RUNS };
        for (at, data) in Mutations::new(seeds, 1).take(runs).enumerate() {
            let failed = std::panic::catch_unwind(|| run(name, &data)).is_err();
            assert!(!failed, "{name}, number {at}: {}", data.escape_ascii());
        }
    }
}
