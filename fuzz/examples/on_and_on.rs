//! Lists the targets, runs one with mutations of its seeds for the given number of seconds, or writes
//! its seeds as files for cargo-fuzz.
//!
//! ```text
//! on_and_on names
//! on_and_on TARGET run SECONDS
//! on_and_on TARGET seeds DIRECTORY
//! ```

use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use larder_fuzz::{Mutations, TARGETS, run, seeds};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let names: Vec<&str> = TARGETS.iter().map(|(name, ..)| *name).collect();
    match words[..] {
        ["names"] => println!("{}", names.join("\n")),
        [name, "run", seconds] if names.contains(&name) => on_and_on(name, seconds.parse().expect("seconds")),
        [name, "seeds", directory] if names.contains(&name) => write_seeds(name, Path::new(directory)),
        _ => panic!("names, TARGET run SECONDS or TARGET seeds DIRECTORY is expected, TARGET one of {names:?}"),
    }
}

fn on_and_on(name: &str, seconds: u64) {
    let until = Instant::now() + Duration::from_secs(seconds);
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let number = since.as_nanos() as u64;
    let mut runs = 0u64;
    for data in Mutations::new(seeds(name), number) {
        if Instant::now() > until {
            break;
        }
        let failed = std::panic::catch_unwind(|| run(name, &data)).is_err();
        assert!(!failed, "{name}, run {runs} from number {number}: {}", data.escape_ascii());
        runs += 1;
    }
    println!("{name}: {runs} runs from number {number}");
}

fn write_seeds(name: &str, directory: &Path) {
    for (at, seed) in seeds(name).iter().enumerate() {
        std::fs::write(directory.join(format!("seed-{at}")), seed).expect("can be written");
    }
}
