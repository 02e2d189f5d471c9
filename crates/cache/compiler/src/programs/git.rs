//! The commands of git that only show what a repository and its checkout hold. They read the clock,
//! but what they print does not depend on it.
//!
//! For example, `git describe --dirty` follows from HEAD, the tags, the index and the contents of
//! tracked files. `git log --format=%cr` does not: it prints "3 days ago".
//!
//! Unaware of: the files that git reads.

use larder_model::{Git, contains};

/// Options before the command that take the next word as their value.
const WITH_VALUE: [&[u8]; 3] = [b"-C", b"--git-dir", b"--work-tree"];
/// The letters after `%` in a format of `git log` that print no relative date. The second letter
/// counts for those that begin with the first one.
const SHOWN: [&[u8]; 19] = [
    b"H", b"T", b"P", b"s", b"f", b"b", b"B", b"N", b"n", b"%", b"an", b"ae", b"at", b"aI", b"cn", b"ce", b"ct", b"cI",
    b"e",
];
/// Those that print a shortened name, or a date in a fixed format that needs no clock.
const SHORTENED: [&[u8]; 8] = [b"h", b"t", b"p", b"d", b"D", b"ai", b"ci", b"cs"];

/// Options that tell which objects there are, and how they are stored.
const BY_STORE: [&[u8]; 4] = [b"--disk-usage", b"--unpacked", b"--missing", b"--exclude-promisor-objects"];

/// Returns what the output of git follows from, or `None` if it may depend on the clock, or if the
/// command may change something.
pub(super) fn shows(arguments: &[&[u8]]) -> Option<Git> {
    let (command, words) = command(arguments)?;
    let has = |word: &[u8]| words.contains(&word);
    let begins = |start: &[u8]| words.iter().any(|word| word.starts_with(start));
    // A date instead of a revision: `HEAD@{yesterday}`. A number in braces is none.
    if words.iter().any(|word| names_a_date(word)) {
        return None;
    }
    let dated = [&b"--since"[..], b"--until", b"--after", b"--before", b"--max-age", b"--min-age", b"--date"];
    if dated.iter().any(|start| begins(start)) {
        return None;
    }
    // git accepts the beginning of an option's name in place of the name.
    let may_be = |option: &[u8]| words.iter().any(|word| abbreviates(word, option));
    let shown = match command {
        b"rev-parse" | b"merge-base" | b"ls-tree" | b"show-ref" => Some(Git::ByName),
        b"rev-list" => shown_by_formats(words),
        // These are in other parts of the index than its entries.
        b"ls-files" if may_be(b"--debug") || may_be(b"--resolve-undo") => None,
        b"ls-files" => Some(Git::ByName),
        b"symbolic-ref" if words.len() == 1 => Some(Git::ByName),
        b"describe" => Some(Git::Shortened),
        b"status" if begins(b"--porcelain") || has(b"-s") || has(b"--short") => Some(Git::ByName),
        // For a file that `touch` changed, `diff --raw` shows no digest. The other two commands show
        // the file as changed, because they do not compare contents.
        b"diff" if may_be(b"--raw") || may_be(b"--patch-with-raw") && !has(b"--patch") => None,
        b"diff-index" if !has(b"--cached") => None,
        b"diff" | b"diff-index" if has(b"--quiet") || begins(b"--name-") => Some(Git::ByName),
        b"diff" | b"diff-index" => Some(Git::Shortened),
        b"branch" if words == [b"--show-current"] => Some(Git::ByName),
        // A relative date in the configuration is printed as a time.
        b"config" if words.iter().any(|word| contains(word, "expiry")) || may_be(b"--expiry-date") => None,
        b"config" if begins(b"--get") => Some(Git::ByName),
        b"log" | b"show" if !begins(b"--format") && !begins(b"--pretty=") => None,
        b"log" if words.iter().all(|word| shows_no_change(word)) => shown_by_formats(words),
        b"show" if has(b"-s") => shown_by_formats(words),
        // Changes are shown with shortened names.
        b"log" | b"show" => shown_by_formats(words).map(|_| Git::Shortened),
        _ => None,
    };
    let shortens = words.iter().any(|word| {
        word.starts_with(b"--abbrev") && *word != b"--abbrev-ref"
            || command != b"status" && word.starts_with(b"--short")
            || BY_STORE.iter().any(|option| word.starts_with(option))
    });
    shown.map(|git| if shortens { Git::Shortened } else { git })
}

/// Returns what all formats among the arguments follow from, or `None` if one may print a relative
/// date or is a named one.
fn shown_by_formats(words: &[&[u8]]) -> Option<Git> {
    let is_one = |word: &&&[u8]| word.starts_with(b"--format") || word.starts_with(b"--pretty");
    words.iter().filter(is_one).try_fold(Git::ByName, |shown, word| match shows_no_date(format_of(word)?)? {
        Git::ByName => Some(shown),
        Git::Shortened => Some(Git::Shortened),
    })
}

/// Returns true for an argument of `git log` with which it shows no changes of files.
fn shows_no_change(word: &[u8]) -> bool {
    let plain = [&b"--format="[..], b"--pretty=", b"--first-parent", b"--no-merges", b"-n"];
    !word.starts_with(b"-") || plain.iter().any(|start| word.starts_with(start)) || is_count(word)
}

/// Returns true for `-1` and the like.
fn is_count(word: &[u8]) -> bool {
    word.len() > 1 && word[0] == b'-' && word[1..].iter().all(u8::is_ascii_digit)
}

/// Returns the command and its arguments.
fn command<'a>(arguments: &'a [&'a [u8]]) -> Option<(&'a [u8], &'a [&'a [u8]])> {
    let mut at = 0;
    loop {
        match *arguments.get(at)? {
            option if WITH_VALUE.contains(&option) => at += 2,
            // Other settings could name a program to run, or a format of dates.
            b"-c" if arguments.get(at + 1)?.starts_with(b"safe.") => at += 2,
            b"--no-pager" | b"-P" | b"--no-optional-locks" => at += 1,
            option if [&b"--git-dir="[..], b"--work-tree="].iter().any(|start| option.starts_with(start)) => at += 1,
            option if option.starts_with(b"-") => return None,
            command => return Some((command, &arguments[at + 1..])),
        }
    }
}

/// Returns true if the word is this option or may be an abbreviation of it, such as `--exp` of
/// `--expiry-date`, with or without a value.
fn abbreviates(word: &[u8], option: &[u8]) -> bool {
    let name = word.split(|&byte| byte == b'=').next().unwrap_or(word);
    name.len() > 2 && option.starts_with(name)
}

fn names_a_date(word: &[u8]) -> bool {
    let at = word.windows(2).position(|part| part == b"@{");
    at.is_some_and(|at| !word[at + 2..].iter().take_while(|byte| **byte != b'}').all(u8::is_ascii_digit))
}

fn format_of<'a>(word: &&'a [u8]) -> Option<&'a [u8]> {
    let format = [&b"--format="[..], b"--pretty="].iter().find_map(|start| word.strip_prefix(*start))?;
    Some(["format:", "tformat:"].iter().find_map(|start| format.strip_prefix(start.as_bytes())).unwrap_or(format))
}

/// Returns what a format follows from, or `None` if it may print a relative date or is a named one.
fn shows_no_date(format: &[u8]) -> Option<Git> {
    let mut shown = Git::ByName;
    let mut rest = format;
    let at = rest.iter().position(|byte| *byte == b'%')?;
    rest = &rest[at..];
    while let Some(at) = rest.iter().position(|byte| *byte == b'%') {
        rest = &rest[at + 1..];
        let begins = |known: &&&[u8]| rest.starts_with(known);
        let known = match (SHOWN.iter().find(begins), SHORTENED.iter().find(begins)) {
            (Some(known), _) => known,
            (None, Some(known)) => {
                shown = Git::Shortened;
                known
            }
            (None, None) => return None,
        };
        rest = &rest[known.len()..];
    }
    Some(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands() {
        let check = |line: &str, expect| {
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            assert_eq!(shows(&words), expect, "git {line}");
        };
        for line in [
            "rev-parse HEAD",
            "-C sub rev-parse --abbrev-ref HEAD",
            "--no-pager log -1 --format=%H",
            "log -n1 --pretty=format:%H%n%an",
            "ls-files -z",
            "status --porcelain -uno",
            "diff --quiet HEAD",
            "diff-index --cached --quiet HEAD --",
            "rev-parse HEAD@{1}",
            "-c safe.directory=* rev-parse HEAD",
        ] {
            check(line, Some(Git::ByName));
        }
        for line in [
            "describe --always --dirty",
            "rev-parse --short HEAD",
            "log -1 --format=%h",
            "diff",
            "diff --patch HEAD^",
            "log --format=%ci",
            "rev-list --disk-usage HEAD",
        ] {
            check(line, Some(Git::Shortened));
        }
        for line in [
            "log -1 --format=%cr",
            "log -1 --format=%ar%H",
            "log -1",
            "log -1 --format=oneline",
            "log -1 --format=%H --format=%cr",
            "log -1 --pretty",
            "rev-list --format=%cr HEAD",
            "show HEAD",
            "log -1 --format=%cd",
            "log --since=1.day --format=%H",
            "rev-parse HEAD@{yesterday}",
            "-c log.date=relative log --format=%ad",
            "commit -m x",
            "status",
            "ls-files --debug",
            "ls-files --resolve",
            "diff-index --quiet HEAD --",
            "diff-files --name-only",
            "diff --raw HEAD^",
            "diff --patch-w HEAD^",
            "config --get --type=expiry-date gc.reflogExpire",
            "config --exp --get gc.reflogExpire",
            "blame x",
            "",
        ] {
            check(line, None);
        }
    }
}
