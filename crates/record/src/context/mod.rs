//! The context of a measurement, without which its times mean nothing: the project and larder,
//! machine and system, environment and tools.
//!
//! `git` describes a checkout, `machine` the system, `tools` programs, and `variables` decides
//! which variables are kept. Nothing here fails: what could not be found out is listed in
//! [`Context::missing`].

mod git;
mod machine;
mod tools;
mod variables;

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::Redact;
use crate::schema::{Configured, Context};

pub(crate) use variables::{KEPT, environment};

/// The inputs from which the context is made.
#[derive(Clone, Default)]
pub struct Surroundings {
    /// The working directory of the command.
    pub cwd: PathBuf,
    /// The paths of larder's programs.
    pub binaries: Vec<PathBuf>,
    /// All settings.
    pub configuration: Vec<Configured>,
    /// The prefix of commit subjects that are listed separately.
    pub commit_prefix: Option<String>,
    /// The revision from which commits are counted, or `None` for the most likely base.
    pub base: Option<String>,
    /// Compilers and build tools, by name and file.
    pub tools: Vec<(String, PathBuf)>,
    /// Directories whose file system matters, with their purpose.
    pub places: Vec<(String, PathBuf)>,
}

/// Collects the context, and the project's uncommitted changes without secrets.
pub(crate) fn collect(around: &Surroundings, redact: &Redact) -> (Context, Vec<u8>) {
    let mut missing = Vec::new();
    let asked = git::Asked { prefix: around.commit_prefix.as_deref(), base: around.base.as_deref() };
    let (project, diff) = match git::checkout(&around.cwd, &asked, redact, &mut missing) {
        Some((project, diff)) => (Some(project), diff),
        None => (None, Vec::new()),
    };
    let own = around.binaries.first().and_then(|binary| binary.parent());
    // The base is a revision of the project and not of larder.
    let asked = git::Asked { base: None, ..asked };
    let larder =
        own.and_then(|directory| git::checkout(directory, &asked, redact, &mut Vec::new())).map(|(git, _)| git);
    let digest = |path: &PathBuf| Some((path.display().to_string(), tools::digest(path)?));
    let binaries: BTreeMap<_, _> = around.binaries.iter().filter_map(digest).collect();
    if binaries.len() < around.binaries.len() {
        missing.push("digests of all of larder's programs".to_owned());
    }
    let context = Context {
        // The project may be larder itself.
        larder: larder.filter(|git| project.as_ref().is_none_or(|project| project.top != git.top)),
        project,
        binaries,
        configuration: around.configuration.clone(),
        machine: machine::machine(&around.places),
        tools: tools::all(&around.tools),
        missing,
    };
    (context, diff)
}
