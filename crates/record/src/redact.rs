//! What is taken out of arguments and variables before they are written. What looks secret is the caller's to say.

/// (the argument before it, an argument) → as it may be shown.
type Argument = fn(&[u8], &[u8]) -> String;
/// (a variable's name, its value) → as it may be shown.
type Variable = fn(&[u8], &[u8]) -> String;

/// How secrets are taken out.
#[derive(Clone, Copy)]
pub struct Redact {
    /// Of an argument.
    pub argument: Argument,
    /// Of a variable.
    pub variable: Variable,
}

impl Redact {
    /// Everything is shown: for tests.
    pub fn nothing() -> Redact {
        let show = |_: &[u8], value: &[u8]| String::from_utf8_lossy(value).into_owned();
        Redact { argument: show, variable: show }
    }

    /// A whole command line.
    pub fn arguments<T: AsRef<[u8]>>(&self, argv: &[T]) -> Vec<String> {
        let before = |at: usize| if at == 0 { &b""[..] } else { argv[at - 1].as_ref() };
        argv.iter().enumerate().map(|(at, argument)| (self.argument)(before(at), argument.as_ref())).collect()
    }
}
