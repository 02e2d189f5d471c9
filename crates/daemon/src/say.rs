//! Output for people: one-line errors, text without control characters, human-readable sizes and
//! durations.
//!
//! If the reader of the output has closed the pipe, the program ends without a message.

use std::io::{self, Write};

use clap::error::ErrorKind;
use indicatif::HumanBytes;
use larder_model::PLACEHOLDER;

use crate::cli::{Usage, words_of};

/// The exit code for a command line that cannot be parsed.
const USAGE_EXIT: u8 = 2;

/// Prints a line to standard error. A failure is ignored, because it could not be reported.
pub(crate) fn tell(line: &str) {
    let _ = writeln!(io::stderr(), "larder: {line}");
}

/// Returns the exit code of a subcommand, after printing its error.
pub(crate) fn ended(result: anyhow::Result<u8>) -> u8 {
    match result {
        Ok(code) => code,
        Err(error) if error.chain().any(is_closed_pipe) => 0,
        Err(error) => {
            tell(&one_line(&format!("{error:#}")));
            1
        }
    }
}

fn is_closed_pipe(cause: &(dyn std::error::Error + 'static)) -> bool {
    cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Prints help if it was requested, otherwise prints in one line what is wrong. Returns the exit
/// code.
pub(crate) fn usage(usage: &Usage) -> u8 {
    match usage {
        Usage::Instead(line) => tell(line),
        Usage::Clap(error, _) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            let _ = write!(io::stdout(), "{}", error.render());
            return 0;
        }
        Usage::Clap(error, Some(word)) if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            tell(&format!("{word}: one of {} follows: see `larder help {word}`", words_of(word).join(", ")));
        }
        Usage::Clap(error, word) => tell(&usage_line(&error.render().to_string(), word.as_deref())),
    }
    USAGE_EXIT
}

/// Converts clap's paragraphs to one line: the error, clap's tip, and a hint at the help.
fn usage_line(text: &str, word: Option<&str>) -> String {
    let mut parts = text.split("\n\n").map(|part| one_line(part.trim()));
    let what = parts.next().unwrap_or_default();
    let mut line = what.strip_prefix("error: ").unwrap_or(&what).trim_end_matches('.').to_owned();
    if let Some(tip) = parts.find_map(|part| part.strip_prefix("tip: ").map(str::to_owned)) {
        line.push_str(&format!(" ({tip})"));
    }
    format!("{line}: see `larder help{}`", word.map(|word| format!(" {word}")).unwrap_or_default())
}

/// Returns `text` on one line, cut after `chars_max` characters.
pub(crate) fn shortened(text: &str, chars_max: usize) -> String {
    let text = one_line(text);
    if text.chars().count() <= chars_max { text } else { text.chars().take(chars_max).collect::<String>() + "…" }
}

/// Returns `text` on one line: runs of white space become a space, control characters are escaped.
pub(crate) fn one_line(text: &str) -> String {
    clean(text.split_whitespace().collect::<Vec<_>>().join(" ").as_bytes())
}

/// Converts bytes to text that is safe to print on a terminal. A byte that is not UTF-8 becomes
/// `\xff`. The placeholder of a root becomes `<root>`, that of a random file name becomes `<name 1>`.
pub(crate) fn clean(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|&b| b == PLACEHOLDER) {
        escape(&rest[..at], &mut text);
        match rest.get(at + 1) {
            Some(1) | None => text.push_str("<root>"),
            Some(number @ 128..) => text.push_str(&format!("<name {}>", number - 127)),
            Some(number) => text.push_str(&format!("<root {number}>")),
        }
        rest = rest.get(at + 2..).unwrap_or_default();
    }
    escape(rest, &mut text);
    text
}

/// Escapes the control characters of a text, except ends of lines and tabs.
pub(crate) fn printable(text: &str) -> String {
    let mut printable = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => printable.push(c),
            c if c.is_control() => printable.extend(c.escape_default()),
            c => printable.push(c),
        }
    }
    printable
}

fn escape(bytes: &[u8], text: &mut String) {
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() { text.extend(c.escape_default()) } else { text.push(c) }
        }
        text.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
}

/// Formats a number of bytes, for example `12.3 MiB`.
pub(crate) fn bytes(count: u64) -> String {
    HumanBytes(count).to_string()
}

/// Formats the size limit without rounding, because people set it exactly.
pub(crate) fn limit(bytes: u64) -> String {
    if bytes == 0 { "no limit".to_owned() } else { larder_config::show_size(bytes) }
}

/// Formats microseconds, for example `1.23 s` or `45 ms`.
pub(crate) fn duration_us(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} µs"),
        1_000..1_000_000 => format!("{} ms", us / 1_000),
        _ => format!("{}.{:02} s", us / 1_000_000, us % 1_000_000 / 10_000),
    }
}

/// Formats a sum of durations in microseconds, for example `6 min 12 s`. It may be negative.
pub(crate) fn span_us(us: i64) -> String {
    let sign = if us < 0 { "-" } else { "" };
    let (all_us, s) = (us.unsigned_abs(), us.unsigned_abs() / 1_000_000);
    let text = match s {
        0..60 => duration_us(all_us),
        60..3_600 => format!("{} min {} s", s / 60, s % 60),
        3_600..172_800 => format!("{} h {} min", s / 3_600, s % 3_600 / 60),
        _ => format!("{} d {} h", s / 86_400, s % 86_400 / 3_600),
    };
    format!("{sign}{text}")
}

/// Formats a count with its noun, for example `1 file` or `2 files`.
pub(crate) fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// Prints how many there are and what became of them, unless there are none.
pub(crate) fn tell_count(number: u64, one: &str, many: &str, what: &str) {
    if number > 0 {
        tell(&format!("{} {what}", count(number, one, many)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_in_one_line() {
        let check = |typed: &str, piece: &str| {
            let Err(Usage::Clap(error, word)) = crate::cli::parse(typed.split(' ').map(Into::into).collect()) else {
                panic!("{typed} was understood")
            };
            let line = usage_line(&error.render().to_string(), word.as_deref());
            assert!(line.contains(piece) && !line.contains('\n'), "{typed}: {line}");
        };
        check("stats --jsn", "--json");
        check("stats --jsn", "see `larder help stats`");
        check("stat", "stats");
        check("explain", "COMMAND");
        check("image restore", "see `larder help image restore`");
        check("image lst", "see `larder help image`");
        check("evict --max-size ten", "10GiB");
        check("evict --max-size ten", "see `larder help evict`");
        check("completions tcsh", "bash, zsh, fish");
    }

    #[test]
    fn nothing_reaches_the_terminal_unescaped() {
        assert_eq!(clean(b"-I\0\x01/inc \x1b[31m\xff"), "-I<root>/inc \\u{1b}[31m\\xff");
        assert_eq!(clean(b"\0\x02"), "<root 2>");
        assert_eq!(clean(b"\0"), "<root>");
        assert_eq!(one_line("a\n  b\tc"), "a b c");
        assert_eq!([duration_us(5), duration_us(45_000), duration_us(1_234_567)], ["5 µs", "45 ms", "1.23 s"]);
        let spans = [-1_500, 372_000_000, 7_380_000_000, 180_000_000_000].map(span_us);
        assert_eq!(spans, ["-1 ms", "6 min 12 s", "2 h 3 min", "2 d 2 h"]);
    }
}
