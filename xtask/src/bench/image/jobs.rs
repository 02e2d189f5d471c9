//! Jobs that use a tree after it was restored or mounted.

use super::tree::Tree;
use crate::run::{self, Usage};
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::{Command, Stdio};

/// A job: a name, and a shell script that runs in the tree's parent directory.
pub(super) struct Job {
    pub(super) name: &'static str,
    script: &'static str,
    /// A path below the tree. Without it the job is skipped.
    needs: &'static str,
}

/// All jobs in order. The job that writes comes last.
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
    /// Runs the job with the tree at `place`. Returns `None` if the tree does not have what the job
    /// needs.
    pub(super) fn done(&self, tree: &Tree, place: &Path) -> Result<Option<Usage>> {
        if !tree.path.join(self.needs).exists() {
            return Ok(None);
        }
        let mut shell = Command::new("sh");
        shell.args(["-e", "-c", self.script]).env("NAME", tree.name()).stdout(Stdio::null());
        shell.current_dir(place.parent().context("has one")?);
        let (status, usage) = run::measured(&mut shell)?;
        ensure!(status.success(), "{} ended with {status} in {}", self.name, place.display());
        Ok(Some(usage))
    }
}
