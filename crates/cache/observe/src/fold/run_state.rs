//! What a fold knows of the run as a whole, and the reasons not to record it.
//!
//! Unaware of: single paths and processes.

use std::collections::BTreeSet;

use larder_model::Unrecorded;
use larder_model::quick::Map;

use super::path_state::FileId;

/// What is known of the run as a whole.
#[derive(Default)]
pub(super) struct RunState<'t> {
    pub(super) umask: bool,
    pub(super) umask_is_set: bool,
    /// See `Seen::host`.
    pub(super) host: Vec<u8>,
    pub(super) sockets: bool,
    /// The command set owners or extended attributes of something that it had made.
    pub(super) owners_set: bool,
    /// A file to which the command had given an mtime was removed or overwritten, so that mtime is
    /// unknown at the end.
    pub(super) date_is_lost: bool,
    /// A program to which times matter looked at a file to which the command had given an mtime.
    pub(super) dates_count: bool,
    /// A program ran that compares mtimes of directories.
    pub(super) compares_directories: bool,
    /// A Python ran to which all times matter.
    pub(super) searches_modules: bool,
    /// Programs that read the clock, each with the file that standard output led to.
    pub(super) times_told: Vec<(&'t [u8], FileId)>,
    /// Inode numbers that a program may have written down.
    pub(super) inodes_shown: BTreeSet<u64>,
    /// Variables that programs asked for, with the values that the caller had set.
    pub(super) environment: Map<&'t [u8], Option<&'t [u8]>>,
    /// Variables that need no observation by themselves but name the directory for temporary files.
    pub(super) temporary_directories: Map<&'t [u8], Option<&'t [u8]>>,
    /// Files that the run made where [`super::Policy::is_private`] holds.
    pub(super) private_files: BTreeSet<&'t [u8]>,
    /// Variables that plugins asked for.
    pub(super) late_variables: Vec<&'t [u8]>,
    /// A plugin asked for the path of the working directory.
    pub(super) asks_directory_late: bool,
    /// The present paths of files that the command moved into directories of its own.
    pub(super) moved_aside: Vec<&'t [u8]>,
    /// Directories that a program made which loads plugins.
    pub(super) made_directories: Vec<&'t [u8]>,
    /// A temporary file could not be created because its directory does not exist.
    pub(super) no_temporary_directory: bool,
    pub(super) foreign_program: Option<&'t [u8]>,
    pub(super) chance_program: Option<&'t [u8]>,
    /// The reasons not to record the run, each with the path that shows it.
    pub(super) refusals: Vec<(Unrecorded, Vec<u8>)>,
}

impl<'t> RunState<'t> {
    /// Notes a reason not to record the run.
    pub(super) fn refuse(&mut self, why: Unrecorded, path: &[u8]) {
        self.refusals.push((why, path.to_vec()));
    }

    /// Notes a program that asked for random numbers or for its own addresses. The first one
    /// counts.
    pub(super) fn depends_on_chance(&mut self, program: &'t [u8]) {
        self.chance_program.get_or_insert(program);
    }

    /// Returns the variables that the run relied on. If a temporary file could not be made, these
    /// include the variables that name the directory for it: on another machine, such a variable
    /// may name a directory that exists.
    pub(super) fn take_environment(&mut self) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        if self.no_temporary_directory {
            self.environment.extend(std::mem::take(&mut self.temporary_directories));
        }
        let variable = |(name, value): (&[u8], Option<&[u8]>)| (name.to_vec(), value.map(<[u8]>::to_vec));
        std::mem::take(&mut self.environment).into_iter().map(variable).collect()
    }
}
