//! Masks what the plain tool itself does not repeat: names of temporary files, and what a case
//! excludes.
//!
//! Unaware of: what the text is compared with.

use crate::case::Case;
use anyhow::{Context, Result};
use regex::bytes::Regex;
use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

/// gcc's `/tmp/ccXXXXXX`, clang's `/tmp/name-abcdef.o`.
static TEMPORARY: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"/cc[A-Za-z0-9]{6}\b|(/[A-Za-z0-9_+.]+)-[0-9a-f]{6}\b").expect("is a pattern"));
/// A time as `__TIME__` and `date` write it.
static CLOCK: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\b([0-2][0-9]):([0-5][0-9]):([0-5][0-9])\b").expect("is a pattern"));
const DAY_S: i64 = 24 * 3600;

/// The masks of one case.
pub struct Masks {
    patterns: Vec<Regex>,
    any_time: bool,
}

impl Masks {
    /// Returns the masks that the case defines.
    pub fn of(case: &Case) -> Result<Self> {
        let compile = |(text, _): &(&str, &str)| Regex::new(text).with_context(|| format!("{}: {text}", case.name));
        Ok(Self { patterns: case.masks.iter().map(compile).collect::<Result<_>>()?, any_time: case.any_time })
    }

    /// A message without the parts that are not compared.
    pub fn message(&self, text: &[u8], span: (SystemTime, SystemTime)) -> Vec<u8> {
        self.content(&temporary_masked(text), span)
    }

    /// The contents of a file without the parts that are not compared.
    pub fn content(&self, bytes: &[u8], span: (SystemTime, SystemTime)) -> Vec<u8> {
        let mut text = bytes.to_vec();
        for pattern in &self.patterns {
            text = pattern.replace_all(&text, &b""[..]).into_owned();
        }
        if self.any_time { without_time(&text, span) } else { text }
    }
}

/// Returns the message without names of temporary files.
pub fn temporary_masked(text: &[u8]) -> Vec<u8> {
    TEMPORARY.replace_all(text, &b"$1/XXXXXX"[..]).into_owned()
}

/// Replaces times of day within the span. Other times stay, so that a time of an earlier run is
/// noticed.
fn without_time(text: &[u8], (from, to): (SystemTime, SystemTime)) -> Vec<u8> {
    let seconds = |time: SystemTime| time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64) % DAY_S;
    // The span is in UTC, and so are the times: `drive` sets TZ=UTC0 for cases that mask the time.
    let (from, to) = (seconds(from) - 1, seconds(to) + 1);
    let within = |captures: &regex::bytes::Captures<'_>| {
        let number = |at: usize| captures.get(at).map_or(0, |m| two_digits(m.as_bytes()));
        let time = number(1) * 3600 + number(2) * 60 + number(3);
        [time, time + DAY_S, time - DAY_S].iter().any(|time| (from..=to).contains(time))
    };
    let replace = |captures: &regex::bytes::Captures<'_>| {
        if within(captures) { b"<time>".to_vec() } else { captures[0].to_vec() }
    };
    CLOCK.replace_all(text, replace).into_owned()
}

fn two_digits(text: &[u8]) -> i64 {
    text.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn only_the_current_time_is_masked() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        assert_eq!(without_time(b"a 01:00:05 b", (at(3604), at(3606))), b"a <time> b");
        assert_eq!(without_time(b"a 01:00:02 b", (at(3604), at(3606))), b"a 01:00:02 b");
        assert_eq!(without_time(b"23:59:59", (at(86400), at(86401))), b"<time>");
    }

    #[test]
    fn temporary_names_are_masked_in_messages() {
        let masks = Masks { patterns: Vec::new(), any_time: false };
        let span = (UNIX_EPOCH, UNIX_EPOCH);
        assert_eq!(masks.message(b"ld: /tmp/ccAb12Cd.o: bad", span), b"ld: /tmp/XXXXXX.o: bad");
        assert_eq!(masks.message(b"/tmp/x-0a1b2c.o", span), b"/tmp/x/XXXXXX.o");
    }
}
