//! Finds arguments that a compiler got in another way than on its command line.
//!
//! Unaware of: what they mean.

use larder_compiler::{
    VARIABLES_WITH_ARGUMENTS, arguments_of_configuration, arguments_of_variable, loads_plugin, named_configurations,
    too_hard,
};
use larder_lookup::{Place, Request, ResponseFilesOnDisk};
use larder_model::path::{file_name, parent};
use larder_model::{Looked, Observer, Roots, Unrecorded, contains};

use super::compiler_parts::is_gccs;
use super::not_recorded::NotRecorded;

/// Larger configuration files are not read, in bytes.
const CONFIGURATION_BYTES_MAX: u64 = 1 << 20;

/// A configuration file or variable gives these words. The first part is its name.
type Origin = (Vec<u8>, Vec<Vec<u8>>);

/// Arguments that are not on the command line.
#[derive(Default)]
pub(super) struct HiddenArguments {
    origins: Vec<Origin>,
}

impl HiddenArguments {
    /// Returns the arguments in the configuration files and variables that clang read. gcc reads
    /// files with specs without being told. One that may bring the path of a root into the result
    /// counts as the argument `-specs=`.
    pub(super) fn find(request: &Request, place: &Place, looked: &[(Vec<u8>, Looked)]) -> HiddenArguments {
        let mut hidden = HiddenArguments::default();
        if !request.family.is_gcc_or_clang() {
            return hidden;
        }
        let read = || looked.iter().filter(|(_, looked)| looked.content).map(|(path, _)| path.as_slice());
        let specs = read().filter(|path| file_name(path) == b"specs" && is_of_checkout(path, &request.roots));
        hidden.origins.extend(specs.map(|path| (path.to_vec(), vec![[b"-specs=", path].concat()])));
        // `cc` and `gcc` may be clang.
        if looked.iter().any(is_gccs) {
            return hidden;
        }
        let action = &request.action;
        let named = named_configurations(&action.argv[1..], &ResponseFilesOnDisk(&action.cwd));
        let is_named = |path: &[u8]| named.iter().any(|name| name == file_name(path));
        for path in read().filter(|path| path.ends_with(b".cfg") || is_named(path)) {
            let content = content_of(path).unwrap_or_default();
            let directory = parent(path).unwrap_or_default();
            let words = arguments_of_configuration(&content, directory, &ResponseFilesOnDisk(directory));
            hidden.origins.push((path.to_vec(), words));
        }
        for name in VARIABLES_WITH_ARGUMENTS {
            let value = place.variable(name.as_bytes());
            hidden.origins.extend(value.map(|value| (name.into(), arguments_of_variable(name, value))));
        }
        hidden
    }

    /// Returns why a run with these arguments is not recorded: an option whose effect cannot be
    /// repeated, or a plugin that the kernel observer cannot tell from the compiler.
    pub(super) fn refuse(&self, request: &Request, observer: Observer) -> Result<(), NotRecorded> {
        let files = ResponseFilesOnDisk(&request.action.cwd);
        for (origin, words) in &self.origins {
            let detail = |word: &[u8]| [word, b" in ", origin].concat();
            if let Some(word) = too_hard(words, &files) {
                return Err(NotRecorded::Because(Unrecorded::Clock, detail(word)));
            }
            if let Some(word) = words.iter().find(|word| loads_plugin(word) && observer == Observer::Kernel) {
                return Err(NotRecorded::Because(Unrecorded::Unjudged, detail(word)));
            }
        }
        Ok(())
    }

    /// Returns the arguments, in the order in which they were found.
    pub(super) fn words(&self) -> Vec<Vec<u8>> {
        self.origins.iter().flat_map(|(_, words)| words.iter().cloned()).collect()
    }
}

/// Returns true if a file lies in a root, or contains the path of one.
fn is_of_checkout(path: &[u8], roots: &Roots) -> bool {
    let names_one = |text: Vec<u8>| roots.all().any(|root| contains(&text, root));
    !roots.is_outside(path) || content_of(path).is_none_or(names_one)
}

fn content_of(path: &[u8]) -> Option<Vec<u8>> {
    larder_sys::read_at_most(path, CONFIGURATION_BYTES_MAX).ok().flatten()
}
