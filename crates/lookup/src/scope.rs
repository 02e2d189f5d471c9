//! What the caller of `larder run` says of a command beyond what is seen of it: options before the command.
//!
//! Unaware of: what is done about it.

use larder_model::{Roots, Variable, Writer};

use crate::paths::{absolute, is_in};

/// Options of `larder run`, each given any number of times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// Variables that are keyed although such are left out otherwise.
    pub env: Vec<Vec<u8>>,
    /// Variables that are left out.
    pub no_env: Vec<Vec<u8>>,
    /// Files and directories that count as read whether the command reads them or not.
    pub inputs: Vec<Vec<u8>>,
    /// What is at or below these paths does not count, whatever the command does with it.
    pub no_inputs: Vec<Vec<u8>>,
    /// The command may write at or below these paths.
    pub outputs: Vec<Vec<u8>>,
    /// Where standard input is a terminal, the command finds nothing to read there. Otherwise it is not recorded.
    pub no_terminal: bool,
}

/// What is wrong with the options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScopeError {
    /// `--help`, or nothing to run.
    Help,
    /// There is no such option.
    Unknown(Vec<u8>),
    /// It has no value.
    NoValue(Vec<u8>),
}

impl Scope {
    /// Take the options off the front of the words that follow `run`, and the `--` after them.
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

    /// The variables that are keyed, from those that are keyed without options.
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
            if let Some((_, value)) = environment.iter().find(|(n, _)| n == name)
                && !keyed.iter().any(|variable| variable.name == *name)
            {
                keyed.push(Variable { name: name.clone(), value: value.clone() });
            }
        }
        // What does not count is not in the record, so such a record is for commands with the same options.
        let mut w = Writer::default();
        for list in [&self.env, &self.no_env, &self.inputs, &self.no_inputs, &self.outputs] {
            w.number(list.len() as u64);
            list.iter().for_each(|word| w.bytes(&roots.encode_text(word)));
        }
        keyed.push(Variable { name: OPTIONS.to_vec(), value: w.bytes });
        keyed
    }

    /// Whether what the command does with this path does not count.
    pub fn leaves_out(&self, path: &[u8], cwd: &[u8]) -> bool {
        self.no_inputs.iter().any(|left_out| is_at_or_below(path, &absolute(cwd, left_out)))
    }

    /// Whether the command may write there.
    pub(crate) fn may_write(&self, path: &[u8], cwd: &[u8]) -> bool {
        let plain = !path.split(|&b| b == b'/').any(|part| part == b"..");
        plain && self.outputs.iter().any(|output| is_at_or_below(path, &absolute(cwd, output)))
    }
}

/// The name under which options are keyed: no variable has it.
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
