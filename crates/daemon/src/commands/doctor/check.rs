//! The result of a check.

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Ok,
    Note,
    Problem,
}

impl State {
    pub(super) fn name(self) -> &'static str {
        match self {
            State::Ok => "ok",
            State::Note => "note",
            State::Problem => "problem",
        }
    }
}

/// One check.
pub(super) struct Check {
    pub(super) state: State,
    /// The subject of the check, in a word or two.
    pub(super) what: String,
    /// What was found, and after a colon what to do about it.
    pub(super) found: String,
}

pub(super) fn ok(what: &str, found: impl Into<String>) -> Check {
    Check { state: State::Ok, what: what.to_owned(), found: found.into() }
}

pub(super) fn note(what: &str, found: impl Into<String>) -> Check {
    Check { state: State::Note, what: what.to_owned(), found: found.into() }
}

pub(super) fn problem(what: &str, found: impl Into<String>) -> Check {
    Check { state: State::Problem, what: what.to_owned(), found: found.into() }
}
