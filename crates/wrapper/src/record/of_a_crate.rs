//! What is special about a run of rustc: the directories in which it searches crates, and the
//! procedural macros that run in its process.
//!
//! Unaware of: what else a run relied on.

use std::collections::BTreeSet;

use larder_compiler::{Family, rust};
use larder_model::path::file_name;
use larder_model::{Looked, Unrecorded};
use larder_observe::{Folded, imported_symbols};
use larder_sys::{ChildEnd, Opening};

use super::entry::Run;
use super::not_recorded::NotRecorded;
use crate::run::observed_run::ObservedRun;
use crate::run::observer_trust::macros;

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

    /// Returns the directories of `-L dependency=`.
    fn searched_for_crates(&self) -> Vec<Vec<u8>> {
        let named = rust(&self.request.action.argv[1..]);
        named.dependency_directories.iter().map(|directory| self.request.absolute(directory)).collect()
    }

    /// Narrows what the loader looks at. cargo puts the directory of the crates into
    /// `LD_LIBRARY_PATH`, and crates appear there all the time. Only the libraries that the loader
    /// found elsewhere matter: none of their names may appear in that directory.
    pub(super) fn name_what_the_loader_looks_for(&self, looks: &mut Vec<(Vec<u8>, Looked)>) {
        let searched = self.searched_for_crates();
        let (listed, others): (Vec<_>, Vec<_>) =
            std::mem::take(looks).into_iter().partition(|(path, looked)| looked.listed && searched.contains(path));
        *looks = others;
        let libraries: BTreeSet<&[u8]> =
            self.model.images.iter().filter(|image| !image.is_program).map(|image| file_name(image.path)).collect();
        for (directory, _) in listed {
            let paths = libraries.iter().map(|name| [&directory, &b"/"[..], name].concat());
            // A library that is there was loaded from there, so its content is an observation.
            let missing = paths.filter(|path| larder_sys::look(path).is_err());
            looks.extend(missing.map(|path| (path, Looked { absent: true, ..Looked::default() })));
            looks.push((directory, Looked { kind: true, ..Looked::default() }));
        }
    }

    /// Leaves out what does not matter, and adds what the preloaded library does not see of
    /// procedural macros.
    pub(super) fn of_a_crate(&self, observed_run: &ObservedRun, folded: &mut Folded) -> Result<(), NotRecorded> {
        // A crate is found by its name and the hash in the metadata of the crate that needs it, and
        // each file that was opened on the way is an observation. So other names in the directory
        // matter only if a crate was not found.
        if observed_run.observed.finished.end == ChildEnd::Exited(0) {
            let searched = self.searched_for_crates();
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
        for path in macros(self.model) {
            let not_read = || NotRecorded::Because(Unrecorded::InputChanged, path.to_vec());
            let symbols = larder_sys::open(path, Opening::Read)
                .ok()
                .and_then(|file| imported_symbols(&file))
                .ok_or_else(not_read)?;
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
