//! What is special about a run of rustc: the directories in which it searches crates, and the
//! procedural macros that run in its process.
//!
//! Unaware of: what else a run relied on.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use larder_compiler::{Family, runs_code_of_builds, rust};
use larder_model::Unrecorded;
use larder_model::path::file_name;
use larder_observe::{Folded, imported_symbols};
use larder_sys::ChildEnd;

use super::entry::Run;
use super::not_recorded::NotRecorded;
use crate::run::observed_run::ObservedRun;

/// Symbols by which a procedural macro can read all variables without a call that we see.
const LISTS_VARIABLES: [&[u8]; 3] = [b"environ", b"__environ", b"_environ"];
/// Functions whose results differ from run to run.
const DIFFER: [&[u8]; 2] = [b"getpid", b"getppid"];
/// Functions that tell something about the machine or the process which we do not observe.
const UNOBSERVED: [&[u8]; 9] = [
    b"clock",
    b"get_nprocs",
    b"get_nprocs_conf",
    b"getloadavg",
    b"getrusage",
    b"sched_getaffinity",
    b"sched_getcpu",
    b"sysinfo",
    b"times",
];

impl Run<'_> {
    /// Returns the directory of rustc's sessions of incremental compilation.
    pub(super) fn sessions(&self) -> Option<Vec<u8>> {
        if self.request.family != Family::Rustc {
            return None;
        }
        rust(&self.request.action.argv[1..]).incremental.map(|path| self.request.absolute(path))
    }

    /// Leaves out what does not matter, and adds what the preloaded library does not see of
    /// procedural macros.
    pub(super) fn of_a_crate(&self, observed_run: &ObservedRun, folded: &mut Folded) -> Result<(), NotRecorded> {
        let named = rust(&self.request.action.argv[1..]);
        // A crate is found by its name and the hash in the metadata of the crate that needs it, and
        // each file that was opened on the way is an observation. So other names in the directory
        // matter only if a crate was not found.
        if observed_run.observed.finished.end == ChildEnd::Exited(0) {
            let searched: Vec<Vec<u8>> =
                named.dependency_directories.iter().map(|directory| self.request.absolute(directory)).collect();
            let is_one = |path: &[u8]| searched.iter().any(|directory| directory == path);
            folded
                .seen
                .looked
                .iter_mut()
                .filter(|(path, _)| is_one(path))
                .for_each(|(_, looked)| looked.listed = false);
        }
        let place = &self.context.place;
        let variables = std::mem::take(&mut folded.late_variables);
        folded.seen.environment.extend(variables.into_iter().map(|name| (name.clone(), place.asked(&name))));
        let of_rustc = self.model.plugins.iter().filter(|(program, _)| runs_code_of_builds(file_name(program)));
        for (_, path) in of_rustc {
            let not_read = || NotRecorded::Because(Unrecorded::InputChanged, path.to_vec());
            let symbols =
                File::open(as_path(path)).ok().and_then(|file| imported_symbols(&file)).ok_or_else(not_read)?;
            let imports = |names: &[&[u8]]| symbols.iter().any(|symbol| names.contains(&&symbol[..]));
            if imports(&UNOBSERVED) {
                return Err(NotRecorded::Because(Unrecorded::NotObserved, path.to_vec()));
            }
            if imports(&LISTS_VARIABLES) {
                folded.foreign_program.get_or_insert_with(|| path.to_vec());
            }
            if imports(&DIFFER) {
                folded.chance_program.get_or_insert_with(|| path.to_vec());
            }
        }
        Ok(())
    }
}

/// Returns true if `path` is `directory` or lies below it.
pub(super) fn is_in(path: &[u8], directory: &[u8]) -> bool {
    path.strip_prefix(directory).is_some_and(|rest| matches!(rest.first(), None | Some(b'/')))
}

fn as_path(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(path))
}
