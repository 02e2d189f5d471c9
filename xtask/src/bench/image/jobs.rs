//! What jobs do with a tree once it is there.

use super::tree::Tree;
use crate::run::{self, Usage};
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::{Command, Stdio};

/// A job: what it is called, and a script in the directory that holds the tree.
pub(super) struct Job {
    pub(super) name: &'static str,
    script: &'static str,
    /// A file below the tree without which there is nothing to do.
    needs: &'static str,
}

/// All of them, in this order: who writes comes last.
pub(super) const JOBS: [Job; 3] = [
    Job { name: "`tsc --version`", script: "node \"$NAME/typescript/bin/tsc\" --version", needs: "typescript/bin/tsc" },
    Job { name: READ_ALL, script: "find \"$NAME\" -type f -print0 | xargs -0 cat", needs: "" },
    Job {
        name: "append to 3,000 files",
        script: "find \"$NAME\" -type f -name '*.js' | sort | head -n 3000 | xargs -d '\\n' sed -i '$a // changed'",
        needs: "typescript",
    },
];
pub(super) const READ_ALL: &str = "read everything";

impl Job {
    /// Do it with the tree at `place`; none where the tree has not what it needs.
    pub(super) fn done(&self, tree: &Tree, place: &Path) -> Result<Option<Usage>> {
        if !tree.path.join(self.needs).exists() {
            return Ok(None);
        }
        let mut shell = Command::new("sh");
        shell.args(["-e", "-c", self.script]).env("NAME", tree.name()).stdout(Stdio::null());
        shell.current_dir(place.parent().context("has one")?);
        let (status, usage) = run::measured(&mut shell)?;
        ensure!(status.success(), "{}: ended with {status} in {}", self.name, place.display());
        Ok(Some(usage))
    }
}
