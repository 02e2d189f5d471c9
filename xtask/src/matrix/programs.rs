//! Programs in languages whose compilers no root has. They are built on this machine, for the rows
//! `programs`.

use crate::files;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

/// A program to build.
struct Program {
    /// The file that the compiler writes.
    file: &'static str,
    /// The source, and its name.
    source: (&'static str, &'static str),
    /// The compiler and its arguments. The working directory has the source.
    command: &'static str,
}

const RUST: (&str, &str) = ("program.rs", include_str!("programs/program.rs"));

/// `inside.sh` knows the files by their names.
const PROGRAMS: &[Program] = &[
    Program {
        file: "go",
        source: ("program.go", include_str!("programs/program.go")),
        command: "go build -trimpath -ldflags=-s -o go program.go",
    },
    Program {
        file: "rust.a",
        source: RUST,
        command: "rustc --edition=2024 --cfg=library --crate-type=staticlib -O -Cpanic=abort -Cstrip=debuginfo -o rust.a program.rs",
    },
    Program {
        file: "rust-musl",
        source: RUST,
        command: "rustc --edition=2024 --target=x86_64-unknown-linux-musl -O -Cstrip=debuginfo -o rust-musl program.rs",
    },
    // Debian 11 has Java 11 and 17.
    Program {
        file: "Program.class",
        source: ("Program.java", include_str!("programs/Program.java")),
        command: "javac --release=8 -nowarn -Xlint:-options Program.java",
    },
];

/// Builds the programs in `dir`, and prints what is missing. The rows leave out what cannot be
/// built.
pub(super) fn build(dir: &Path) -> Result<()> {
    files::make(dir)?;
    for Program { file, source: (name, text), command } in PROGRAMS {
        let source = dir.join(name);
        files::write(&source, text)?;
        let (compiler, words) = command.split_once(' ').context("a program has no compiler")?;
        let mut command = Command::new(compiler);
        command.args(words.split(' ')).current_dir(dir).env("CGO_ENABLED", "0").env("GO111MODULE", "off");
        let built = command.stdin(Stdio::null()).output();
        let why = match built {
            Ok(built) if built.status.success() => continue,
            Ok(built) => String::from_utf8_lossy(&built.stderr).lines().next().unwrap_or_default().to_owned(),
            Err(error) => error.to_string(),
        };
        eprintln!("{file} cannot be built by {compiler}, so the rows `programs` leave it out: {why}");
        let _ = fs::remove_file(dir.join(file));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_programs_write_the_same() {
        let dir = &std::env::temp_dir().join(format!("xtask-programs-{}", std::process::id()));
        build(dir).expect("cannot write the sources");
        fs::create_dir(dir.join("names")).expect("cannot make a directory");
        fs::write(dir.join("in"), "text\n").expect("cannot write a file");
        let words = ["rust.a", "-o", "rust", "-lpthread", "-ldl", "-lm", "-lgcc_s"];
        let _ = Command::new("cc").args(words).current_dir(dir).output();
        for (file, command) in [
            ("go", &["./go"][..]),
            ("rust", &["./rust"]),
            ("rust-musl", &["./rust-musl"]),
            ("Program.class", &["java", "-cp", ".", "Program"]),
        ] {
            if !dir.join(file).exists() {
                eprintln!("skipped: {file} cannot be built here");
                continue;
            }
            let mut command = [command, &["in", "names", "out"]].concat().into_iter();
            let program = command.next().expect("has a program");
            let done = Command::new(program).args(command).current_dir(dir).output().expect("cannot start a program");
            assert!(done.status.success() && done.stdout == b"done\n", "{file}: {done:?}");
            let written = fs::read_to_string(dir.join("out")).expect("nothing was written");
            assert_eq!(written, "text\n5 bytes, 0 names, local false\n", "{file}");
            fs::remove_file(dir.join("out")).expect("cannot remove a file");
        }
        fs::remove_dir_all(dir).expect("cannot remove the directory");
    }
}
