//! What a measurement has to be believed with: the project and larder, machine and system, environment and tools.
//!
//! `git` asks a checkout, `machine` the system, `tools` looks at programs, `variables` decides which variables are
//! kept. Nothing here fails: what cannot be found out is named in [`Context::missing`].

mod git;
mod machine;
mod tools;
mod variables;

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::Redact;
use crate::form::{Configured, Context};

pub(crate) use variables::{KEPT, environment};

/// What the context is made from.
#[derive(Clone, Default)]
pub struct Surroundings {
    /// Where the command runs.
    pub cwd: PathBuf,
    /// larder's programs.
    pub binaries: Vec<PathBuf>,
    /// Each setting.
    pub configuration: Vec<Configured>,
    /// How subjects of commits begin that are to be listed by themselves.
    pub commit_prefix: Option<String>,
    /// The revision that commits are counted from; what is most likely meant where there is none.
    pub base: Option<String>,
    /// Compilers and build tools: name and file.
    pub tools: Vec<(String, PathBuf)>,
    /// Places whose file system matters: what they are for, and where.
    pub places: Vec<(String, PathBuf)>,
}

/// Find everything out. Also what of the project is not committed, secrets taken out.
pub(crate) fn collect(around: &Surroundings, redact: &Redact) -> (Context, Vec<u8>) {
    let mut missing = Vec::new();
    let asked = git::Asked { prefix: around.commit_prefix.as_deref(), base: around.base.as_deref() };
    let (project, diff) = match git::checkout(&around.cwd, &asked, redact, &mut missing) {
        Some((project, diff)) => (Some(project), diff),
        None => (None, Vec::new()),
    };
    let own = around.binaries.first().and_then(|binary| binary.parent());
    // The base is a revision of the project's.
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
