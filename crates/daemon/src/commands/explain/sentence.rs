//! The first line of an explanation: one sentence that needs no knowledge of larder.
//!
//! Unaware of: where the reason comes from, and what follows the sentence.

use larder_model::Outcome;

use super::explanation::{Miss, Nearest, Verdict};
use crate::say;

/// Returns the sentence for a verdict about a command that would run now.
pub(super) fn of_verdict(verdict: &Verdict, source: &str) -> String {
    match verdict {
        Verdict::Bypass(reason) => {
            format!("Bypass: {} ({}); the tool runs untouched", reason.sentence(), reason.code())
        }
        Verdict::Fallback(cause, _) => {
            format!("Fallback: {} ({}); the tool runs anyway", cause.sentence(), cause.code())
        }
        Verdict::Hit(hit) => {
            format!("Hit: everything it relied on is unchanged; saves {}", say::duration_us(hit.run_time_us))
        }
        Verdict::Miss(miss) if miss.by_text => {
            format!("Miss, or a hit if the preprocessed text is unchanged: {}", of_miss(miss, source))
        }
        Verdict::Miss(miss) => format!("Miss: {}", of_miss(miss, source)),
    }
}

fn of_miss(miss: &Miss, source: &str) -> String {
    match &miss.nearest {
        Nearest::Itself => match miss.rejected.first() {
            Some(first) => of_cause(&format!("{} {}", first.subject, first.what), source),
            None => "no record of it can be used".to_owned(),
        },
        Nearest::Nothing => "nothing is recorded for this source and output".to_owned(),
        Nearest::Gone => "its record was evicted or cleared".to_owned(),
        Nearest::Fetched => {
            "its last record came from a remote, and such records do not contain the command".to_owned()
        }
        Nearest::Differs(differences) => match differences.first() {
            Some(first) if first.what == "source content" => changed(source),
            Some(first) if first.what.starts_with("tool content") => COMPILER.to_owned(),
            Some(first) => format!("the command is not as in the last build: {}", first.sentence()),
            None => "nothing is recorded for it, although nothing differs from the last build".to_owned(),
        },
    }
}

/// Returns the sentence for a command that has ended.
pub(super) fn of_outcome(outcome: Outcome, cause: &str, source: &str, run_time_us: u64) -> String {
    match outcome {
        Outcome::Hit => {
            format!("Hit: everything it relied on was unchanged; saved {}", say::duration_us(run_time_us))
        }
        Outcome::Miss(_) => format!("Miss: {}", of_cause(cause, source)),
        Outcome::Bypass(why) => format!("Bypass: {} ({}); the tool ran untouched", why.sentence(), why.code()),
        Outcome::Fallback(why) => format!("Fallback: {} ({}); the tool ran anyway", why.sentence(), why.code()),
    }
}

/// Returns the sentence for a cause in the words of the lookup: a path, and what is wrong with it.
fn of_cause(cause: &str, source: &str) -> String {
    let ends = |end: &str| cause.strip_suffix(end).map(str::trim_end);
    if let Some(path) = ends("has other content") {
        return changed(path);
    }
    if let Some(path) = ends("has other content, and so has the preprocessed text") {
        return format!("{}, and so did the preprocessed text", changed(path));
    }
    if let Some(path) = ends("was missing and is there now") {
        return format!("`{path}` is new since the last build");
    }
    if let Some((path, now)) = cause.split_once(" was a file; ").filter(|(_, now)| !now.starts_with("is now")) {
        return format!("`{path}` cannot be read any more: {now}");
    }
    if cause.starts_with("source content") {
        return changed(source);
    }
    if cause.starts_with("tool content") {
        return COMPILER.to_owned();
    }
    match cause.strip_suffix(" is not as in the last record") {
        Some(field) => format!("the command is not as in the last build: its {field} differs"),
        None if cause.is_empty() => "no record of it could be used".to_owned(),
        None => cause.to_owned(),
    }
}

const COMPILER: &str = "the compiler changed since the last build";

fn changed(path: &str) -> String {
    format!("`{path}` changed since the last build")
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_model::{Bypass, Unrecorded};

    #[test]
    fn causes_become_sentences() {
        for (cause, sentence) in [
            ("src/b.h has other content", "`src/b.h` changed since the last build"),
            (
                "src/b.h has other content, and so has the preprocessed text",
                "`src/b.h` changed since the last build, and so did the preprocessed text",
            ),
            ("inc/x.h was missing and is there now", "`inc/x.h` is new since the last build"),
            ("src/b.h was a file; not found", "`src/b.h` cannot be read any more: not found"),
            ("source content is not as in the last record", "`a.c` changed since the last build"),
            ("tool content is not as in the last record", COMPILER),
            ("argument is not as in the last record", "the command is not as in the last build: its argument differs"),
            ("nothing was recorded for it", "nothing was recorded for it"),
            ("", "no record of it could be used"),
        ] {
            assert_eq!(of_cause(cause, "a.c"), sentence);
        }
    }

    #[test]
    fn each_outcome_has_a_sentence() {
        let of = |outcome| of_outcome(outcome, "b.h has other content", "a.c", 29_000);
        assert_eq!(of(Outcome::Hit), "Hit: everything it relied on was unchanged; saved 29 ms");
        assert_eq!(of(Outcome::Miss(Some(Unrecorded::Clock))), "Miss: `b.h` changed since the last build");
        assert!(of(Outcome::Bypass(Bypass::TooHard)).contains("(too-hard); the tool ran untouched"));
    }
}
