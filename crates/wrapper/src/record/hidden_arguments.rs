//! Finds arguments that a compiler got in another way than on its command line.
//!
//! Unaware of: what they mean.

use larder_compiler::{VARIABLES_WITH_ARGUMENTS, arguments_of_configuration, arguments_of_variable};
use larder_lookup::ResponseFilesOnDisk;
use larder_model::Looked;
use larder_model::path::{file_name, parent};

use super::entry::Run;

/// Larger configuration files are not read, in bytes.
const CONFIGURATION_BYTES_MAX: u64 = 1 << 20;

impl Run<'_> {
    /// Returns the arguments in the configuration files and variables that clang read. A file with
    /// specs, which gcc reads without being told, counts as the argument `-specs=`.
    pub(super) fn hidden_arguments(&self, looked: &[(Vec<u8>, Looked)]) -> Vec<Vec<u8>> {
        if !self.request.family.is_gcc_or_clang() {
            return Vec::new();
        }
        let argv = &self.request.action.argv;
        let named: Vec<&[u8]> = argv
            .iter()
            .zip(argv.iter().skip(1))
            .filter_map(|(word, next)| if word == b"--config" { Some(next) } else { None })
            .map(Vec::as_slice)
            .chain(argv.iter().filter_map(|word| word.strip_prefix(b"--config=")))
            .map(file_name)
            .collect();
        let mut arguments = Vec::new();
        for (path, _) in looked.iter().filter(|(_, looked)| looked.content) {
            let name = file_name(path);
            if name == b"specs" {
                arguments.push([b"-specs=", path.as_slice()].concat());
            } else if name.ends_with(b".cfg") || named.contains(&name) {
                let content = larder_sys::read_at_most(path, CONFIGURATION_BYTES_MAX).ok().flatten();
                let directory = parent(path).unwrap_or_default();
                let files = ResponseFilesOnDisk(directory);
                arguments.extend(arguments_of_configuration(&content.unwrap_or_default(), directory, &files));
            }
        }
        for name in VARIABLES_WITH_ARGUMENTS {
            let value = self.context.place.variable(name.as_bytes());
            arguments.extend(value.map(arguments_of_variable).unwrap_or_default());
        }
        arguments
    }
}
