//! Removes secrets from arguments and variables before they are written. The caller decides what
//! looks secret.

/// Maps (previous argument, argument) to the argument without secrets.
type Argument = fn(&[u8], &[u8]) -> String;
/// Maps (variable name, value) to the value without secrets.
type Variable = fn(&[u8], &[u8]) -> String;

/// The functions that remove secrets.
#[derive(Clone, Copy)]
pub struct Redact {
    /// For an argument.
    pub argument: Argument,
    /// For the value of a variable.
    pub variable: Variable,
}

impl Redact {
    /// Returns functions that remove nothing, for tests.
    pub fn nothing() -> Redact {
        let show = |_: &[u8], value: &[u8]| String::from_utf8_lossy(value).into_owned();
        Redact { argument: show, variable: show }
    }

    /// Removes secrets from a whole command line.
    pub fn arguments<T: AsRef<[u8]>>(&self, argv: &[T]) -> Vec<String> {
        let before = |at: usize| if at == 0 { &b""[..] } else { argv[at - 1].as_ref() };
        argv.iter().enumerate().map(|(at, argument)| (self.argument)(before(at), argument.as_ref())).collect()
    }
}
