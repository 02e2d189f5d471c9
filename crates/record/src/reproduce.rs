//! The script in every record that repeats the recording: the same commit, variables and command.

use std::ffi::OsStr;

use crate::context::KEPT;
use crate::schema::{Context, Header};

/// Returns the script. Secrets that were removed are taken from the caller's own environment.
pub(crate) fn script(header: &Header, context: &Context, program: &OsStr) -> String {
    let mut text = String::from("#!/bin/sh\n");
    text += &format!("# Repeats the recording of the record `{}`. See docs/record.md.\n", comment(&header.name));
    text += &format!(
        "# larder {}, {} processors, {}\n",
        header.larder,
        context.machine.processors,
        comment(&context.machine.kernel)
    );
    text += "set -eu\n";
    text += "here=$(cd \"$(dirname \"$0\")\" && pwd)\n";
    text += &format!("cd {}\n", quoted(&header.cwd));
    if let Some(git) = &context.project {
        text += &format!("\n# The project was at {}.\n", git.head);
        text += &format!("if [ \"$(git rev-parse HEAD)\" != {} ]; then\n", quoted(&git.head));
        text += &format!("    echo 'reproduce: check out {} first' >&2\n    exit 1\nfi\n", git.head);
        text += &as_it_was(!git.diff_digest.is_empty());
    }
    // Set before the variables below, because they may change PATH.
    text += &format!("\nlarder={}\n", quoted(recorder(context)));
    text += "if [ ! -x \"$larder\" ]; then\n    \
             echo \"reproduce: $larder, which made the record, does not exist here: using the one on PATH\" >&2\n    \
             larder=$(command -v larder || echo larder)\nfi\n\n";
    text += &unset(header);
    for (name, value) in &header.environment {
        text += &match (is_name(name), is_hidden(value)) {
            (false, _) => format!("# A shell cannot set {}.\n", comment(name)),
            (true, true) => format!("# {name} held a secret: it is taken from the caller's environment.\n"),
            (true, false) => format!("export {name}={}\n", quoted(value)),
        }
    }
    if let Some(side) = &header.side {
        text += &format!(
            "# This is side {} of a session that alternated between two: it runs alone here.\n",
            comment(&side.letter)
        );
    }
    text += &cannot(header);
    let command = header.command.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
    text += &format!("\n# The program was {}.\n", comment(&program.to_string_lossy()));
    text += &format!("exec \"$larder\" record --name {} -n {}", quoted(&header.name), header.runs);
    if let Some(words) = &header.prepare {
        text += &format!(" --prepare {}", quoted(words));
    }
    for option in &header.options {
        text += &format!(" {}", quoted(option));
    }
    text += &format!(" -- {command}\n");
    text
}

/// Returns the part of the script that checks that the uncommitted changes are the recorded ones.
fn as_it_was(had_changes: bool) -> String {
    // The diff is made as in `context/git.rs`: without the user's configuration, and only the
    // commit of submodules.
    let git = "GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 git diff --ignore-submodules=dirty";
    let diff = format!("{git} --no-ext-diff --no-textconv --no-color HEAD");
    let (differs, why) = match had_changes {
        true => (
            format!("! {diff} | cmp -s - \"$here/project.diff\""),
            "the uncommitted changes differ from the recorded ones: apply project.diff (beside this script, unless it was \
             too large), or remove these lines",
        ),
        false => (
            format!("! {git} --quiet HEAD"),
            "there are uncommitted changes, but the record had none: stash them, or remove these lines",
        ),
    };
    format!("if {differs}; then\n    echo 'reproduce: {why}' >&2\n    exit 1\nfi\n")
}

/// Returns the part of the script that unsets kept variables which this record did not have.
fn unset(header: &Header) -> String {
    let hidden = header.environment.iter().filter(|(name, value)| is_name(name) && is_hidden(value));
    let stays: Vec<&str> = hidden.map(|(name, _)| name.as_str()).chain(["PATH"]).collect();
    format!(
        "for name in $(env | sed -n 's/^\\([A-Za-z_][A-Za-z0-9_]*\\)=.*/\\1/p'); do\n    case $name in\n        {}) ;;\n        \
         {}) unset \"$name\" ;;\n    esac\ndone\n",
        stays.join("|"),
        KEPT.join("|")
    )
}

/// Returns the path of the larder that made the record.
fn recorder(context: &Context) -> &str {
    context.binaries.keys().find(|path| path.ends_with("/larder")).map_or("larder", String::as_str)
}

/// Returns a line that fails with the reason, if the command cannot be run as it stands in the
/// script. Otherwise returns an empty string.
fn cannot(header: &Header) -> String {
    let words = || header.command.iter().chain(&header.prepare);
    let why = if words().any(|word| is_hidden(word)) {
        "a secret was removed from the command: insert it at the end of this script, and remove this line"
    } else if words().any(|word| word.contains(char::REPLACEMENT_CHARACTER)) {
        "the command has bytes that are not UTF-8: insert them at the end of this script, and remove this line"
    } else {
        return String::new();
    };
    format!("\necho 'reproduce: {why}' >&2; exit 1\n")
}

/// Returns true if a shell accepts this as the name of a variable.
fn is_name(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.chars().all(is_part) && name.starts_with(|c: char| !c.is_ascii_digit())
}

/// Returns true if a secret was removed from the value.
fn is_hidden(value: &str) -> bool {
    value.contains("(not shown")
}

fn comment(text: &str) -> String {
    text.replace(char::is_control, " ")
}

fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=+,:@%".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_shell_understands_it() {
        let variables = [
            ("CFLAGS", "-O2 -DX='a b'"),
            ("TOKEN", "(not shown, digest 12345678)"),
            ("CMAKE_X;echo bad;Y", "1"),
            ("LARDER_ODD.NAME", "1"),
        ];
        let header = Header {
            name: "it's".into(),
            command: ["sh", "-c", "printf '%s|' \"$CFLAGS\" \"$CPPFLAGS\" \"$LARDER_CLASS\" \"$TOKEN\" $0", "a b"]
                .map(Into::into)
                .to_vec(),
            cwd: "/tmp".into(),
            runs: 2,
            traced: true,
            environment: variables.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect::<BTreeMap<_, _>>(),
            ..Header::default()
        };
        let script = script(&header, &Context::default(), OsStr::new("/bin/sh"));
        // Replaces larder with a function that runs the words after `--`.
        let run = script.replace(
            "exec \"$larder\" record",
            "larder() { while [ \"$1\" != -- ]; do shift; done; shift; \"$@\"; }; larder record",
        );
        let mut shell = std::process::Command::new("/bin/sh");
        // A variable that is not in the record, and the secret from the caller's environment.
        shell.args(["-c", &run]).env("CPPFLAGS", "-DY").env("TOKEN", "t");
        let ran = shell.output().expect("a shell");
        assert_eq!(String::from_utf8_lossy(&ran.stdout), "-O2 -DX='a b'|||t|a|b|", "{script}");
        assert!(!script.contains("export TOKEN"));
    }

    #[test]
    fn what_was_taken_out_is_not_run() {
        let check = |word: &str, why: &str| {
            let header = Header { command: vec!["false".into(), word.into()], cwd: "/".into(), ..Header::default() };
            let script = script(&header, &Context::default(), OsStr::new("false"));
            let ran = std::process::Command::new("/bin/sh").args(["-c", &script]).output().expect("a shell");
            assert_eq!(ran.status.code(), Some(1));
            let said = String::from_utf8_lossy(&ran.stderr).into_owned();
            assert!(said.starts_with("reproduce: ") && said.contains(why), "{said}");
        };
        check("--token=(not shown, digest 12345678)", "a secret was removed");
        check("x\u{fffd}y", "not UTF-8");
    }
}
