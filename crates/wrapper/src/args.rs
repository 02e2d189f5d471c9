//! Reads the command line: a subcommand for people, or a tool and its arguments.
//!
//! Unaware of: what either does.

use larder_compiler::is_masquerade_name;
use larder_lookup::{Scope, ScopeError};
use larder_model::path::file_name;

use crate::build_script;

/// The subcommands that `larderd` answers. Any other first argument is a tool, except `run`, `--`
/// and options. For example, `larder -- stats` runs a tool named `stats`.
pub(crate) const SUBCOMMANDS: &[&str] = &[
    "clear",
    "compare",
    "completions",
    "config",
    "daemon",
    "doctor",
    "evict",
    "explain",
    "fsck",
    "help",
    "image",
    "init",
    "man",
    "record",
    "remote",
    "report",
    "stats",
    "version",
];

/// The meaning of the command line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Args {
    /// A subcommand and its arguments, for `larderd`.
    Subcommand(Vec<Vec<u8>>),
    /// A tool to run.
    Tool {
        /// The tool's arguments. `argv[0]` is its name as typed.
        argv: Vec<Vec<u8>>,
        /// True if larder was started under the tool's name, through a link.
        masquerading: bool,
        /// The options of `larder run`, which accepts any command and not only compilers.
        any_command: Option<Scope>,
    },
    /// A launcher of a build script, and the script's arguments.
    BuildScript(Vec<Vec<u8>>),
    /// Wrong options of `larder run`.
    Wrong(ScopeError),
}

/// Interprets the arguments, with our own `argv[0]` first.
pub(crate) fn parse(mut arguments: Vec<Vec<u8>>) -> Args {
    let own_name = arguments.first().map(|name| file_name(name).to_vec()).unwrap_or_default();
    if !is_own_name(&own_name) && is_masquerade_name(&own_name) {
        return Args::Tool { argv: arguments, masquerading: true, any_command: None };
    }
    if !arguments.is_empty() {
        arguments.remove(0);
    }
    let first = arguments.first().cloned().unwrap_or_default();
    match first.as_slice() {
        b"--" if arguments.len() > 1 => tool(arguments.split_off(1), None),
        b"run" => parse_run(arguments),
        build_script::OPTION if arguments.len() > 1 => Args::BuildScript(arguments.split_off(1)),
        b"" if arguments.is_empty() => Args::Subcommand(vec![b"help".to_vec()]),
        word if word.starts_with(b"-") || is_subcommand(word) => Args::Subcommand(arguments),
        _ => tool(arguments, None),
    }
}

fn parse_run(mut arguments: Vec<Vec<u8>>) -> Args {
    arguments.remove(0);
    match Scope::take(&mut arguments) {
        Ok(scope) => tool(arguments, Some(scope)),
        Err(ScopeError::Help) => Args::Subcommand(vec![b"help".to_vec(), b"run".to_vec()]),
        Err(wrong) => Args::Wrong(wrong),
    }
}

fn tool(argv: Vec<Vec<u8>>, any_command: Option<Scope>) -> Args {
    Args::Tool { argv, masquerading: false, any_command }
}

fn is_own_name(name: &[u8]) -> bool {
    name == b"larder" || name.starts_with(b"larder.") || name.starts_with(b"larder-")
}

fn is_subcommand(word: &[u8]) -> bool {
    SUBCOMMANDS.iter().any(|w| w.as_bytes() == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(typed: &str, expect: &str) {
        let arguments = typed.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        let text = |words: Vec<Vec<u8>>| String::from_utf8(words.join(&b' ')).expect("text");
        let got = match parse(arguments) {
            Args::Subcommand(words) => format!("word: {}", text(words)),
            Args::Wrong(_) => "wrong".to_owned(),
            Args::BuildScript(words) => format!("build script: {}", text(words)),
            Args::Tool { argv, masquerading, any_command } => {
                format!(
                    "{}{}tool: {}",
                    if masquerading { "as " } else { "" },
                    if any_command.is_some() { "any " } else { "" },
                    text(argv)
                )
            }
        };
        assert_eq!(got, expect, "{typed}");
    }

    #[test]
    fn words_tools_and_names() {
        check("larder", "word: help");
        check("larder stats --json", "word: stats --json");
        check("larder -- stats --json", "tool: stats --json");
        check("larder gcc -c x.c", "tool: gcc -c x.c");
        check("/opt/larder /usr/bin/gcc -c x.c", "tool: /usr/bin/gcc -c x.c");
        check("/m/gcc -c x.c", "as tool: /m/gcc -c x.c");
        check("/m/x86_64-linux-gnu-g++-12 stats", "as tool: /m/x86_64-linux-gnu-g++-12 stats");
        check("larder run -- make -j2", "any tool: make -j2");
        check("larder run make", "any tool: make");
        check("larder run", "word: help run");
        check("larder run --", "word: help run");
        check("larder --version", "word: --version");
        check("larder --run-build-script /t/build-script-gcc", "build script: /t/build-script-gcc");
        check("larder --", "word: --");
        check("larder larder gcc", "tool: larder gcc");
        check("larder ./stats", "tool: ./stats");
        check("renamed gcc -c", "tool: gcc -c");
    }
}
