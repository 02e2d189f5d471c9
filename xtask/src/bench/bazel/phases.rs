//! What the rule says of a build: where it was, and what its phases cost.

use anyhow::{Context, Result};
use std::fs;
use std::path::Path;

/// The phases that are told apart; what it costs to install is not.
pub(super) const PHASES: [&str; 2] = ["configure", "make"];

/// `NAME.times` of one package.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Times {
    /// The execution root, which names the sandbox.
    pub(super) place: String,
    /// In the order of [`PHASES`].
    pub(super) phases: [Phase; 2],
}

/// One phase.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Phase {
    pub(super) wall_s: f64,
    pub(super) cpu_s: f64,
    pub(super) from_s: f64,
    pub(super) to_s: f64,
}

impl Phase {
    /// Whether something that began then belongs to it.
    pub(super) fn holds(&self, start_s: f64) -> bool {
        start_s >= self.from_s && start_s <= self.to_s
    }
}

/// Reads the file.
pub(super) fn read(path: &Path) -> Result<Times> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    parse(&text).with_context(|| format!("{} is not what foreign/build.sh writes", path.display()))
}

fn parse(text: &str) -> Option<Times> {
    let values = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        line.split(' ').map(|word| word.parse::<f64>().ok()).collect::<Option<Vec<_>>>()
    };
    let mut times =
        Times { place: text.lines().find_map(|line| line.strip_prefix("place "))?.to_owned(), ..Times::default() };
    for (phase, name) in times.phases.iter_mut().zip(PHASES) {
        let [wall_s, user_s, system_s] = values(name)?[..] else { return None };
        let from_s = *values(&format!("{name}-from"))?.first()?;
        let to_s = *values(&format!("{name}-to"))?.first()?;
        *phase = Phase { wall_s, cpu_s: user_s + system_s, from_s, to_s };
    }
    Some(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_rule_writes() {
        let text = "place /a/7/b\nconfigure 0.5 0.1 0.2\nconfigure-from 10.5\nconfigure-to 11.0\n\
                    make 1.5 1.0 0.5\nmake-from 11\nmake-to 12.5\ninstall 0 0 0\n";
        let times = parse(text).expect("well-formed");
        assert_eq!(times.place, "/a/7/b");
        assert_eq!(times.phases[1], Phase { wall_s: 1.5, cpu_s: 1.5, from_s: 11.0, to_s: 12.5 });
        assert!(parse("place /a\nconfigure 1\n").is_none());
    }
}
