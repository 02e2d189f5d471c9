//! The index of git, of which only the entries count if only git read it.
//!
//! Unaware of: which programs are git.

use larder_model::{Digest, Looked, Unrecorded, contains_any};

use super::{Refusal, Walk, refuse};
use crate::git_index::{entries, is_index};
use crate::scan::read_text;

impl Walk<'_> {
    /// Returns the digest of the entries of git's index, if only git read it. Refuses an index with
    /// which git does not look at all files and directories.
    pub(super) fn entries_of_index(
        &self,
        path: &[u8],
        directory: &[u8],
        name: &[u8],
        looked: &Looked,
    ) -> Result<Option<Digest>, Refusal> {
        if looked.read_by_others || !is_index(path) {
            return Ok(None);
        }
        let read = self.opened(directory).open_file(name).and_then(|mut file| read_text(&mut file));
        let Some(bytes) = read.ok().flatten() else { return refuse(Unrecorded::InputChanged, path) };
        // The untracked cache has the mtimes of directories, and the monitor tells what changed.
        if contains_any(&bytes, &["UNTR", "FSMN"]) {
            return refuse(Unrecorded::ComparesTimes, path);
        }
        Ok(entries(&bytes))
    }
}
