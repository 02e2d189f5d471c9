//! How much of the machine a program gets beside others, in words that every platform understands in its own way.

/// A service class. Each asks for less than the one before it; none for more than is inherited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// As the program that starts it.
    #[default]
    Inherit = 0,
    /// After what people and services wait for.
    Utility = 1,
    /// When nobody else wants the machine.
    Background = 2,
}
