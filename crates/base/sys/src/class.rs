//! The service class of a program: how much of the machine it gets beside other programs.
//!
//! Unaware of: how a platform schedules a class.

/// A service class. Each class asks for less than the one before it. No class raises a program
/// above what it inherits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// The scheduling of the process that starts the program.
    #[default]
    Inherit = 0,
    /// After programs that people or services wait for.
    Utility = 1,
    /// Only when no other program wants the machine.
    Background = 2,
}
