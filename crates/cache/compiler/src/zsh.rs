//! Shows in which ways a script of zsh uses times that other shells do not have.
//!
//! Unaware of: which shell reads the text.

use larder_model::{contains, contains_any};
use memchr::memmem;

/// Words with which zsh loads a module, such as one with `stat` or the time, or expands a prompt, in
/// which `%D` is the date.
const WORDS: &[&str] = &["zmodload", "{(%", "(%)", "PS4"];

/// Returns true if a text makes zsh ask for the time or for times of files, other than by the
/// variables that every shell has.
pub fn names_zsh_clocks(text: &[u8]) -> bool {
    contains_any(text, WORDS)
        || prints_a_prompt(text)
        || memchr::memchr_iter(b'(', text).any(|at| follows_a_pattern(&text[..at]) && is_age(&text[at + 1..]))
}

/// Returns true for `print -P` and `print -l -nP`.
fn prints_a_prompt(text: &[u8]) -> bool {
    memmem::find_iter(text, "print -").any(|at| {
        let mut options =
            text[at..].split(|byte| b" \n".contains(byte)).skip(1).take_while(|word| word.starts_with(b"-"));
        options.any(|option| contains(option, "P"))
    })
}

/// Returns true if a text ends as a pattern of file names may end, so that a parenthesis behind it
/// chooses among these files.
fn follows_a_pattern(before: &[u8]) -> bool {
    before.last().is_some_and(|byte| b"*?])#/".contains(byte))
}

/// Returns true if what follows a parenthesis chooses files by their age, as in `*(.mh-1)`: `m`, `a`
/// or `c`, then perhaps a unit and a sign, then a number.
fn is_age(after: &[u8]) -> bool {
    const BYTES_MAX: usize = 32;
    let after = &after[..after.len().min(BYTES_MAX)];
    let qualifiers = after.split(|byte| b") \n".contains(byte)).next().unwrap_or_default();
    qualifiers.iter().enumerate().filter(|(_, letter)| b"amc".contains(letter)).any(|(at, _)| {
        let mut rest = &qualifiers[at + 1..];
        for letters in [&b"Mwhms"[..], b"+-"] {
            rest = if rest.first().is_some_and(|byte| letters.contains(byte)) { &rest[1..] } else { rest };
        }
        rest.first().is_some_and(u8::is_ascii_digit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks() {
        for text in [
            "zmodload zsh/stat",
            "print -nP %T",
            "print -l -P %T",
            "echo ${(%)x}",
            "ls *(.mh-1)",
            "rm -f *(Na+7)",
            "x=(*(m0))",
        ] {
            assert!(names_zsh_clocks(text.as_bytes()), "{text}");
        }
        for text in
            ["print -l P", "f() { ls; }", "x=(a b1 c)", "ls *(.om[1])", "$(echo c 1)", "f(a1, b)", "printf '(%s)' x"]
        {
            assert!(!names_zsh_clocks(text.as_bytes()), "{text}");
        }
    }
}
