//! Finds arguments that a compiler got in another way than on its command line.
//!
//! Unaware of: what they mean.

use larder_compiler::{
    VARIABLES_WITH_ARGUMENTS, arguments_of_configuration, arguments_of_variable, named_configurations,
};
use larder_lookup::ResponseFilesOnDisk;
use larder_model::path::{file_name, parent};
use larder_model::{Looked, contains};

use super::compiler_parts::is_gccs;
use super::entry::Run;

/// Larger configuration files are not read, in bytes.
const CONFIGURATION_BYTES_MAX: u64 = 1 << 20;

impl Run<'_> {
    /// Returns the arguments in the configuration files and variables that clang read. gcc reads
    /// files with specs without being told. One that may bring the path of a root into the result
    /// counts as the argument `-specs=`.
    pub(super) fn hidden_arguments(&self, looked: &[(Vec<u8>, Looked)]) -> Vec<Vec<u8>> {
        if !self.request.family.is_gcc_or_clang() {
            return Vec::new();
        }
        let read = || looked.iter().filter(|(_, looked)| looked.content).map(|(path, _)| path.as_slice());
        let specs = read().filter(|path| file_name(path) == b"specs" && self.is_of_checkout(path));
        let mut arguments: Vec<Vec<u8>> = specs.map(|path| [b"-specs=", path].concat()).collect();
        // `cc` and `gcc` may be clang.
        if looked.iter().any(is_gccs) {
            return arguments;
        }
        let action = &self.request.action;
        let named = named_configurations(&action.argv[1..], &ResponseFilesOnDisk(&action.cwd));
        let is_named = |path: &[u8]| named.iter().any(|name| name == file_name(path));
        for path in read().filter(|path| path.ends_with(b".cfg") || is_named(path)) {
            let content = content_of(path);
            let directory = parent(path).unwrap_or_default();
            let files = ResponseFilesOnDisk(directory);
            arguments.extend(arguments_of_configuration(&content.unwrap_or_default(), directory, &files));
        }
        for name in VARIABLES_WITH_ARGUMENTS {
            let value = self.context.place.variable(name.as_bytes());
            arguments.extend(value.map(|value| arguments_of_variable(name, value)).unwrap_or_default());
        }
        arguments
    }

    /// Returns true if a file lies in a root, or contains the path of one.
    fn is_of_checkout(&self, path: &[u8]) -> bool {
        let roots = &self.request.roots;
        let names_one = |text: Vec<u8>| roots.all().any(|root| contains(&text, root));
        !roots.is_outside(path) || content_of(path).is_none_or(names_one)
    }
}

fn content_of(path: &[u8]) -> Option<Vec<u8>> {
    larder_sys::read_at_most(path, CONFIGURATION_BYTES_MAX).ok().flatten()
}
