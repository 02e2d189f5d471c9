//! A compiler that only copies the correct object. It shows the least that a build can cost if
//! every compile hits.

use crate::files::{self, fresh};
use crate::launcher::Launcher;
use crate::{run, tree};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCE: &str = include_str!("replay.c");

/// Copies outputs for builds in one tree.
pub(super) struct Replay {
    pub(super) launcher: Launcher,
    tree: PathBuf,
    kept: PathBuf,
}

impl Replay {
    /// Compiles the program into `work`. It is static, as the wrapper is.
    pub(super) fn of(tree: &Path, work: &Path) -> Result<Self> {
        let kept = work.join("kept");
        let (source, program) = (work.join("replay.c"), work.join("replay"));
        files::write(&source, SOURCE)?;
        let mut gcc = Command::new("musl-gcc");
        gcc.args(["-static", "-no-pie", "-O2", "-Wall", "-Werror"]);
        gcc.arg(format!("-DTREE=\"{}\"", tree.display())).arg(format!("-DKEPT=\"{}\"", kept.display()));
        run::output(gcc.arg(&source).arg("-o").arg(&program)).context("cannot compile replay.c")?;
        Ok(Self { launcher: Launcher::uncounted("copies", &program), tree: tree.to_owned(), kept })
    }

    /// Keeps the outputs of the build that just ended.
    pub(super) fn keep(&self) -> Result<()> {
        fresh(&self.kept)?;
        tree::copy(&self.tree, &self.kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_is_copied_and_the_rest_is_compiled() {
        if crate::place::on_path("musl-gcc").is_none() {
            eprintln!("skipped: musl-gcc is not installed");
            return;
        }
        let work = std::env::temp_dir().join(format!("xtask-replay-{}", std::process::id()));
        let dir = work.join("tree");
        let replay = Replay::of(&dir, &work).expect("compiles");
        for (name, text) in [("sub/a.o", "object"), ("sub/a.d", "depends"), ("b.o", "other")] {
            files::write(dir.join(name), text).expect("can be written");
        }
        replay.keep().expect("can be kept");
        let call = |words: &str| {
            let mut command = Command::new(work.join("replay"));
            command.args(words.split(' ')).current_dir(&dir);
            command.status().expect("it runs").code()
        };
        let left = |name: &str| files::read(dir.join(name)).unwrap_or_default();
        for name in ["sub/a.o", "sub/a.d", "b.o"] {
            std::fs::remove_file(dir.join(name)).expect("removable");
        }
        // `false` stands for the compiler, which is not started.
        assert_eq!(call("false -MD -c a.c -o sub/a.o"), Some(0));
        assert_eq!((left("sub/a.o").as_str(), left("sub/a.d").as_str()), ("object", "depends"));
        assert_eq!(call("false -O2 -c ../b.c"), Some(0));
        assert_eq!(left("b.o"), "other");
        for words in ["false -c c.c -o c.o", "false a.o -o sub/a.o", "false"] {
            assert_eq!(call(words), Some(1), "{words}");
        }
        files::remove(&work).expect("removable");
    }
}
