//! Suggests a subcommand if someone mistyped it. `larder stat` runs the program `stat`, as it must,
//! but the person may have meant `larder stats`.
//!
//! Unaware of: what the subcommands do.

use std::io::IsTerminal;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Command as Child;

use larder_spawn::Command;

use crate::args::SUBCOMMANDS;

/// Returns the subcommand that differs from a word by one typing mistake: a letter that is missing,
/// added, replaced, or exchanged with the next one.
pub(crate) fn near(word: &[u8]) -> Option<&'static str> {
    SUBCOMMANDS.iter().copied().chain(["run"]).find(|known| is_near(word, known.as_bytes()))
}

fn is_near(a: &[u8], b: &[u8]) -> bool {
    let begin = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let (a, b) = (&a[begin..], &b[begin..]);
    let end = a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count();
    match (&a[..a.len() - end], &b[..b.len() - end]) {
        ([_], []) | ([], [_]) | ([_], [_]) => begin + end >= 2,
        ([one, other], [first, second]) => one == second && other == first,
        _ => false,
    }
}

/// Runs the program that a mistyped subcommand names, and suggests the subcommand if it fails.
/// Returns `None`, without running it, if the word is not near one, or if no person is at standard
/// error. Then the caller becomes the program, as in a build.
pub(crate) fn run_mistyped(typed: &[u8], command: &Command) -> Option<i32> {
    let meant = near(typed).filter(|_| std::io::stderr().is_terminal())?;
    let os = std::ffi::OsStr::from_bytes;
    let mut child = Child::new(os(&command.program));
    child.arg0(os(command.argv.first()?)).args(command.argv[1..].iter().map(|argument| os(argument)));
    let status = child.status().ok()?;
    if let Some(signal) = status.signal() {
        larder_sys::die_by(signal);
    }
    let code = status.code().unwrap_or(1);
    if code != 0 {
        let typed = String::from_utf8_lossy(typed);
        eprintln!("larder: this was the program `{typed}`, not a subcommand: did you mean `larder {meant}`?");
    }
    Some(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_mistake_is_near() {
        for (word, meant) in [
            ("stat", Some("stats")),
            ("statss", Some("stats")),
            ("stast", Some("stats")),
            ("docter", Some("doctor")),
            ("expain", Some("explain")),
            ("innit", Some("init")),
            ("stats", None),
            ("gcc", None),
            ("mn", Some("man")),
            ("m", None),
            ("cp", None),
            ("", None),
            ("make", None),
        ] {
            assert_eq!(near(word.as_bytes()), meant, "{word}");
        }
    }
}
