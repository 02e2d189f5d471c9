//! The settings that have a few named values.
//!
//! Unaware of: how text becomes a value.

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
    pub(crate) const WORDS: &[&str] = &[Class::ALL[0].0, Class::ALL[1].0, Class::ALL[2].0];

    /// Returns the word for the class.
    pub fn name(self) -> &'static str {
        Class::ALL.iter().find(|(_, class)| *class == self).map_or("inherit", |(name, _)| name)
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
    pub(crate) const WORDS: &[&str] = &[Handover::ALL[0].0, Handover::ALL[1].0, Handover::ALL[2].0];

    /// Returns the word for the setting.
    pub fn name(self) -> &'static str {
        Handover::ALL.iter().find(|(_, handover)| *handover == self).map_or("apart", |(name, _)| name)
    }
}
