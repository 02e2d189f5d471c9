//! Counts the tests that skipped themselves. Such a test prints a line `skipped: REASON` and
//! passes.
//!
//! Unaware of: how tests are run. It reads what `cargo test -- --show-output` prints.

use anyhow::{Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Reasons that are acceptable in CI, as a part of their text, and why a Debian machine with Rust,
/// Go and Node.js cannot satisfy them as root with what `cargo xtask setup` installs. In CI every
/// other skip is a failure.
const ACCEPTABLE: &[(&str, &str)] = &[
    ("the superuser may write everywhere", "CI runs as root"),
    ("on this kind of machine", "depends on the processor"),
    ("x86-64 only", "depends on the processor"),
    ("is needed)", "depends on the kernel, for example `(Linux 6.12 is needed)`"),
    ("`lazy` is not possible here", "depends on the kernel: Linux 6.12"),
    ("not possible here anyway", "depends on the kernel: the test imitates an older one"),
    ("it is not for images of this kind", "a squashfs image cannot be mounted in each way"),
    ("tmpfs has no such attributes", "depends on the kernel: Linux 6.6"),
    ("the file system has no", "depends on the file system of the build tree"),
    ("the times of this file system", "depends on the file system of the build tree"),
    ("no cgroup can be made", "containers may not have cgroups of their own"),
    ("no loop devices, or no mkfs.ext4", "containers may not have loop devices"),
    ("no quotas, no loop devices", "containers may not have loop devices"),
    ("no systemd", "containers do not run systemd"),
    ("systemd-analyze is not installed", "containers do not run systemd"),
    ("make has no --jobserver-style", "depends on the version of make: 4.4"),
    ("this browser cannot be told to prefer dark", "depends on the version of Chromium"),
    ("ccache is not installed", "setup does not install other caches"),
    (r#""-fuse-ld=lld", "-flto""#, "lld cannot read the objects that gcc writes for LTO"),
    ("is ignored here", "depends on how CI starts its commands: a shell's background jobs ignore signal 2"),
    ("/nonexistent", "a test of the benchmarks wants this line"),
];

/// Returns true if skips that this machine could satisfy are failures: `LARDER_CI` is set, and not
/// to `0` or `false`.
pub(crate) fn is_ci() -> bool {
    std::env::var("LARDER_CI").is_ok_and(|value| !["", "0", "false"].contains(&value.as_str()))
}

fn is_acceptable(reason: &str) -> bool {
    ACCEPTABLE.iter().any(|(text, _)| reason.contains(text))
}

/// The skips in the output of tests, which is read line by line.
#[derive(Debug, Default)]
pub(crate) struct Skips {
    /// The tests that skipped themselves, for each reason.
    tests: BTreeMap<String, BTreeSet<String>>,
    /// The program of tests that runs.
    program: String,
    /// The test whose output follows, within the output of the tests that passed.
    passed: Option<String>,
}

impl Skips {
    /// Reads a line. Returns true if it should be shown: without `--show-output` it would be, too.
    pub(crate) fn read(&mut self, line: &str) -> bool {
        if let Some(program) = program(line) {
            self.program = program.to_owned();
        }
        match line {
            "successes:" => self.passed = Some(String::new()),
            "failures:" => self.passed = None,
            _ if line.starts_with("test result: ") => self.passed = None,
            _ => {}
        }
        if let (Some(test), Some(name)) = (&mut self.passed, name_in_header(line)) {
            *test = format!(" {name}");
        }
        // If a test's output is not captured, it may begin behind `test NAME ... `.
        let text = line.rsplit_once(" ... ").filter(|_| line.starts_with("test ")).map_or(line, |(_, text)| text);
        if let Some(reason) = text.trim_start().strip_prefix("skipped: ") {
            let test = format!("{}{}", self.program, self.passed.as_deref().unwrap_or_default());
            self.tests.entry(reason.trim_end().to_owned()).or_default().insert(test);
        }
        self.passed.is_none()
    }

    /// Fails if a test was skipped for a reason that is not acceptable in CI.
    pub(crate) fn check(&self) -> Result<()> {
        let wrong: Vec<_> = self.tests.keys().filter(|reason| !is_acceptable(reason)).map(String::as_str).collect();
        if wrong.is_empty() {
            return Ok(());
        }
        bail!(
            "tests were skipped for reasons that this machine could satisfy. Run `cargo xtask setup`, or if it could not, \
             add the reason to ACCEPTABLE in xtask/src/skips.rs:\n{}",
            wrong.join("\n")
        )
    }
}

impl fmt::Display for Skips {
    /// Writes a line for each reason: how many tests, the reason, and the tests.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count: usize = self.tests.values().map(BTreeSet::len).sum();
        writeln!(f, "{count} skipped tests")?;
        for (reason, tests) in &self.tests {
            let mark = if is_acceptable(reason) { "" } else { " (a failure in CI)" };
            let names: Vec<_> = tests.iter().map(String::as_str).collect();
            writeln!(f, "{:4}  {reason}{mark}: {}", tests.len(), names.join(", "))?;
        }
        Ok(())
    }
}

/// Returns the name in cargo's line `Running tests/hits.rs
/// (target/debug/deps/hits-0123456789abcdef)`.
fn program(line: &str) -> Option<&str> {
    let path = line.trim_start().strip_prefix("Running ")?.strip_suffix(')')?.rsplit_once('(')?.1;
    Some(path.rsplit('/').next()?.rsplit_once('-')?.0)
}

/// Returns the name in the line `---- NAME stdout ----`, which stands before the output of a test.
fn name_in_header(line: &str) -> Option<&str> {
    line.strip_prefix("---- ")?.strip_suffix(" stdout ----")
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "     Running tests/hits.rs (target/debug/deps/hits-9a6372838413b1b8)

running 3 tests
test a ... ok
test b ... FAILED

successes:

---- a stdout ----
skipped: tcc is not installed
skipped: tcc is not installed
failures: none

---- m::c stdout ----
    skipped: the superuser may write everywhere

successes:
    a
    m::c

failures:

---- b stdout ----
what went wrong

failures:
    b

test result: FAILED. 2 passed; 1 failed
     Running tests/mounts/main.rs (target/debug/deps/mounts-29564f79c729e718)
skipped: tcc is not installed
";

    #[test]
    fn skips_are_counted_and_named() {
        let mut skips = Skips::default();
        let shown: Vec<_> = OUTPUT.lines().filter(|line| skips.read(line)).collect();
        assert_eq!(
            skips.to_string(),
            "3 skipped tests\n   2  tcc is not installed (a failure in CI): hits a, mounts\n   \
             1  the superuser may write everywhere: hits m::c\n"
        );
        assert!(shown.contains(&"what went wrong") && shown.contains(&"test result: FAILED. 2 passed; 1 failed"));
        assert!(!shown.contains(&"failures: none") && !shown.contains(&"    m::c"), "{shown:?}");
        let error = skips.check().expect_err("it is not acceptable that tcc is missing").to_string();
        assert!(error.contains("\ntcc") && !error.contains("the superuser"), "{error}");
    }
}
