//! The options of `larder run`: what the caller says about a command in addition to what is
//! observed.
//!
//! Unaware of: how the options are applied to observations.

use larder_model::path::{absolute, is_in};
use larder_model::{Roots, Variable, Writer};

/// The options. Each may be given any number of times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// `--env`: variables that are part of the key although they would be left out otherwise.
    pub env: Vec<Vec<u8>>,
    /// `--no-env`: variables that are left out of the key.
    pub no_env: Vec<Vec<u8>>,
    /// `--input`: files and directories that count as read, even if the command does not read them.
    pub inputs: Vec<Vec<u8>>,
    /// `--no-input`: paths whose reads are ignored, with all below them.
    pub no_inputs: Vec<Vec<u8>>,
    /// `--output`: the command may write at and below these paths.
    pub outputs: Vec<Vec<u8>>,
    /// `--no-terminal`: if standard input is a terminal, the command gets an empty standard input.
    /// Without this option, a command that reads from a terminal is not recorded.
    pub no_terminal: bool,
}

/// The errors in the options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScopeError {
    /// `--help` was given, or there is no command to run.
    Help,
    /// There is no such option.
    Unknown(Vec<u8>),
    /// The option needs a value.
    NoValue(Vec<u8>),
}

impl Scope {
    /// Removes the options from the front of the words that follow `run`, and the `--` after them.
    pub fn take(words: &mut Vec<Vec<u8>>) -> Result<Scope, ScopeError> {
        let mut scope = Scope::default();
        let mut at = 0;
        loop {
            let Some(word) = words.get(at) else { return Err(ScopeError::Help) };
            at += 1;
            if word == b"--" {
                break;
            }
            if !word.starts_with(b"-") {
                at -= 1;
                break;
            }
            if word == b"--no-terminal" {
                scope.no_terminal = true;
                continue;
            }
            let (name, value) = match word.iter().position(|&b| b == b'=') {
                Some(equals) => (&word[..equals], Some(word[equals + 1..].to_vec())),
                None => (&word[..], None),
            };
            let list = match name {
                b"--env" => &mut scope.env,
                b"--no-env" => &mut scope.no_env,
                b"--input" => &mut scope.inputs,
                b"--no-input" => &mut scope.no_inputs,
                b"--output" => &mut scope.outputs,
                b"--help" | b"-h" => return Err(ScopeError::Help),
                _ => return Err(ScopeError::Unknown(word.clone())),
            };
            let value = match value {
                Some(value) => value,
                None => {
                    at += 1;
                    words.get(at - 1).cloned().ok_or_else(|| ScopeError::NoValue(name.to_vec()))?
                }
            };
            if value.is_empty() {
                return Err(ScopeError::NoValue(name.to_vec()));
            }
            list.push(value);
        }
        if at >= words.len() {
            return Err(ScopeError::Help);
        }
        words.drain(..at);
        Ok(scope)
    }

    /// Returns the variables for the key. `keyed` are those without any options.
    pub(crate) fn apply(
        &self,
        mut keyed: Vec<Variable>,
        environment: &[(Vec<u8>, Vec<u8>)],
        roots: &Roots,
    ) -> Vec<Variable> {
        if *self == Scope::default() {
            return keyed;
        }
        keyed.retain(|variable| !self.no_env.contains(&variable.name));
        for name in &self.env {
            if let Some((_, value)) = environment.iter().find(|(n, _)| n == name) {
                keyed.retain(|variable| variable.name != *name);
                keyed.push(Variable { name: name.clone(), value: value.clone() });
            }
        }
        // A record does not say which reads were ignored. So the options are part of the key, and a
        // record is used only for commands with the same options.
        let mut w = Writer::default();
        for list in [&self.env, &self.no_env, &self.inputs, &self.no_inputs, &self.outputs] {
            w.number(list.len() as u64);
            list.iter().for_each(|word| w.bytes(&roots.encode_text(word)));
        }
        keyed.push(Variable { name: OPTIONS.to_vec(), value: w.bytes });
        keyed
    }

    /// Returns true if the caller wants reads of this path to be ignored.
    pub fn leaves_out(&self, path: &[u8], cwd: &[u8]) -> bool {
        self.no_inputs.iter().any(|left_out| is_at_or_below(path, &absolute(cwd, left_out)))
    }

    /// Returns true if the caller allows the command to write this path.
    pub(crate) fn may_write(&self, path: &[u8], cwd: &[u8]) -> bool {
        let plain = !path.split(|&b| b == b'/').any(|part| part == b"..");
        plain && self.outputs.iter().any(|output| is_at_or_below(path, &absolute(cwd, output)))
    }
}

/// The name under which the options are in the key. No variable can have it.
const OPTIONS: &[u8] = b"(options of larder run)";

fn is_at_or_below(path: &[u8], directory: &[u8]) -> bool {
    is_in(path, directory.strip_suffix(b"/").unwrap_or(directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(words: &[&str]) -> Result<(Scope, Vec<String>), ScopeError> {
        let mut words: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        let scope = Scope::take(&mut words)?;
        Ok((scope, words.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect()))
    }

    #[test]
    fn options_before_a_command() {
        let (scope, command) = taken(&["--env", "A", "--no-input=/x", "--", "make", "--env"]).expect("are options");
        assert_eq!((scope.env, scope.no_inputs), (vec![b"A".to_vec()], vec![b"/x".to_vec()]));
        assert_eq!(command, ["make", "--env"]);
        assert!(taken(&["--no-terminal", "make"]).expect("is an option").0.no_terminal);
        assert_eq!(taken(&["make", "--", "x"]).expect("has none").1, ["make", "--", "x"]);
        assert_eq!(taken(&["--bogus", "make"]), Err(ScopeError::Unknown(b"--bogus".to_vec())));
        assert_eq!(taken(&["--env"]), Err(ScopeError::NoValue(b"--env".to_vec())));
        assert_eq!(taken(&["--input=", "make"]), Err(ScopeError::NoValue(b"--input".to_vec())));
        for help in [&[][..], &["--"], &["--help"], &["--env", "A"]] {
            assert_eq!(taken(help), Err(ScopeError::Help), "{help:?}");
        }
    }

    #[test]
    fn what_counts() {
        let scope = Scope { no_inputs: vec![b"log".to_vec()], outputs: vec![b"/out/".to_vec()], ..Scope::default() };
        assert!(scope.leaves_out(b"/w/log", b"/w") && scope.leaves_out(b"/w/log/x", b"/w"));
        assert!(!scope.leaves_out(b"/w/logs", b"/w"));
        assert!(scope.may_write(b"/out/x/y", b"/w") && !scope.may_write(b"/out/../etc/x", b"/w"));
        assert!(!scope.may_write(b"/w/x", b"/w"));
    }

    #[test]
    fn variables() {
        let variable = |name: &str, value: &str| Variable { name: name.into(), value: value.into() };
        let environment = [(b"JOBS".to_vec(), b"2".to_vec())];
        let roots = Roots::new([b"/w".to_vec()]);
        let keyed = vec![variable("A", "1"), variable("B", "2")];
        let none = Scope::default().apply(keyed.clone(), &environment, &roots);
        assert_eq!(none, keyed);
        let scope = Scope { env: vec![b"JOBS".to_vec()], no_env: vec![b"A".to_vec()], ..Scope::default() };
        let mut some = scope.apply(keyed, &environment, &roots);
        assert!(some.pop().is_some_and(|options| options.name == OPTIONS));
        assert_eq!(some, [variable("B", "2"), variable("JOBS", "2")]);
    }
}
