//! The settings that have a few named values.
//!
//! Unaware of: how text becomes a value.

use larder_model::Observer;

/// The observers. `None` is the best that works.
pub(crate) const OBSERVERS: [(&str, Option<Observer>); 4] = [
    ("auto", None),
    ("depfile", Some(Observer::Depfile)),
    ("kernel", Some(Observer::Kernel)),
    ("preload", Some(Observer::Preload)),
];

/// Returns the words of all values.
pub(crate) const fn words<T, const N: usize>(all: &[(&'static str, T); N]) -> [&'static str; N] {
    let mut words = [""; N];
    let mut at = 0;
    while at < N {
        words[at] = all[at].0;
        at += 1;
    }
    words
}

/// Returns the index of a value.
pub(crate) fn place<T: PartialEq>(all: &[(&str, T)], value: T) -> usize {
    all.iter().position(|(_, one)| *one == value).unwrap_or_default()
}

/// The scheduling class of tools. `docs/scheduling.md` describes its effects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Class {
    /// In the class of the build itself.
    #[default]
    Inherit,
    /// After programs that people and services wait for.
    Utility,
    /// Only when nothing else wants the machine.
    Background,
}

impl Class {
    pub(crate) const ALL: [(&'static str, Class); 3] =
        [("background", Class::Background), ("inherit", Class::Inherit), ("utility", Class::Utility)];

    /// Returns the word for the class.
    pub fn name(self) -> &'static str {
        Class::ALL[place(&Class::ALL, self)].0
    }
}

/// Which processes may use records that are handed over to `larderd` by processes that cannot write
/// the store. This is a setting of `larderd` itself, so that no client decides it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Handover {
    /// Only processes that cannot write the store either.
    #[default]
    Apart,
    /// None: nothing is accepted.
    Off,
    /// All processes, as if the records had been made without `larderd`.
    Trusted,
}

impl Handover {
    pub(crate) const ALL: [(&'static str, Handover); 3] =
        [("apart", Handover::Apart), ("off", Handover::Off), ("trusted", Handover::Trusted)];

    /// Returns the word for the setting.
    pub fn name(self) -> &'static str {
        Handover::ALL[place(&Handover::ALL, self)].0
    }
}
