//! Text for people: one-line errors, names without control characters, sizes and durations to read at a glance.
//!
//! Output to a reader that went away ends the program quietly: nobody is left to be told.

use std::io::{self, Write};

use clap::error::ErrorKind;
use indicatif::HumanBytes;
use larder_model::PLACEHOLDER;

use crate::cli::{Usage, words_of};

/// Exit code for what cannot be understood.
const USAGE_EXIT: u8 = 2;

/// A line on standard error. Nothing is done about a standard error that is gone.
pub(crate) fn tell(line: &str) {
    let _ = writeln!(io::stderr(), "larder: {line}");
}

/// The exit code of a word, its error told.
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

/// Show help where it was asked for, else say in one line what is wrong. Returns the exit code.
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

/// clap's paragraphs as one line: what is wrong, its tip, and where help is.
fn usage_line(text: &str, word: Option<&str>) -> String {
    let mut parts = text.split("\n\n").map(|part| one_line(part.trim()));
    let what = parts.next().unwrap_or_default();
    let mut line = what.strip_prefix("error: ").unwrap_or(&what).trim_end_matches('.').to_owned();
    if let Some(tip) = parts.find_map(|part| part.strip_prefix("tip: ").map(str::to_owned)) {
        line.push_str(&format!(" ({tip})"));
    }
    format!("{line}: see `larder help{}`", word.map(|word| format!(" {word}")).unwrap_or_default())
}

/// `text` on one line, and no longer than so many characters.
pub(crate) fn shortened(text: &str, chars_max: usize) -> String {
    let text = one_line(text);
    if text.chars().count() <= chars_max { text } else { text.chars().take(chars_max).collect::<String>() + "…" }
}

/// `text` on one line: runs of white space become a space, control characters are escaped.
pub(crate) fn one_line(text: &str) -> String {
    clean(text.split_whitespace().collect::<Vec<_>>().join(" ").as_bytes())
}

/// Bytes as text that cannot write to a terminal what it should not; a root's placeholder is shown as `<root>`, that of
/// a name by chance as `<name 1>`.
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

fn escape(bytes: &[u8], text: &mut String) {
    for c in String::from_utf8_lossy(bytes).chars() {
        if c.is_control() { text.extend(c.escape_default()) } else { text.push(c) }
    }
}

/// `12.3 MiB`.
pub(crate) fn bytes(count: u64) -> String {
    HumanBytes(count).to_string()
}

/// A limit, which people set exactly.
pub(crate) fn limit(bytes: u64) -> String {
    if bytes == 0 { "no limit".to_owned() } else { larder_config::show_size(bytes) }
}

/// `1.23 s` or `45 ms`.
pub(crate) fn duration_us(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} µs"),
        1_000..1_000_000 => format!("{} ms", us / 1_000),
        _ => format!("{}.{:02} s", us / 1_000_000, us % 1_000_000 / 10_000),
    }
}

/// `1 file`, `2 files`.
pub(crate) fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
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
        check("evict --max-size ten", "10GiB");
        check("evict --max-size ten", "see `larder help evict`");
        check("completions tcsh", "bash, zsh, fish");
    }

    #[test]
    fn nothing_reaches_the_terminal_unescaped() {
        assert_eq!(clean(b"-I\0\x01/inc \x1b[31m\xff"), "-I<root>/inc \\u{1b}[31m\u{fffd}");
        assert_eq!(clean(b"\0\x02"), "<root 2>");
        assert_eq!(clean(b"\0"), "<root>");
        assert_eq!(one_line("a\n  b\tc"), "a b c");
        assert_eq!([duration_us(5), duration_us(45_000), duration_us(1_234_567)], ["5 µs", "45 ms", "1.23 s"]);
    }
}
