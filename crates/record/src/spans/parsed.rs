//! Holds the content of a report in one form for all build tools.

/// The largest number of characters of a name.
const NAME_CHARS_MAX: usize = 300;

/// A span as a report has it. Its times are in nanoseconds since `zero_ns` of [`Parsed::Spans`].
#[derive(Debug, PartialEq)]
pub(super) struct Timed {
    pub(super) name: String,
    pub(super) detail: String,
    pub(super) start_ns: i64,
    pub(super) end_ns: i64,
}

/// The contents of a report.
#[derive(Debug, PartialEq)]
pub(super) enum Parsed {
    /// Spans with times. `zero_ns` is time 0 in nanoseconds since 1970, or `None` if the report
    /// does not say it.
    Spans { form: &'static str, zero_ns: Option<i64>, spans: Vec<Timed> },
    /// Names for processes, which are children of a program of that name.
    Children { form: &'static str, parent: &'static str, names: Vec<(i32, String)> },
}

/// Returns at most [`NAME_CHARS_MAX`] characters.
pub(super) fn shortened(text: &str) -> String {
    text.chars().take(NAME_CHARS_MAX).collect()
}
