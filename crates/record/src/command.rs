//! A command to run.

/// The command to run.
#[derive(Clone)]
pub struct Command {
    /// The path of the program.
    pub program: Vec<u8>,
    /// All arguments, with the program's name first.
    pub argv: Vec<Vec<u8>>,
    /// The environment.
    pub environment: Vec<(Vec<u8>, Vec<u8>)>,
}
