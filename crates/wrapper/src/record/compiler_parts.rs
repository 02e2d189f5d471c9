//! Which parts of a compiler a run started, and what they opened.
//!
//! Unaware of: what follows from it.

use std::collections::HashSet;

use larder_model::Looked;
use larder_model::path::file_name;
use larder_observe::RunModel;

/// Returns true for gcc's `cc1` or `cc1plus`, if it was read.
pub(super) fn is_gccs((path, looked): &(Vec<u8>, Looked)) -> bool {
    looked.content && file_name(path).starts_with(b"cc1")
}

/// Returns the first of these files that an assembler opened.
pub(super) fn assembled<'r>(rooted: &'r [Vec<u8>], run: &RunModel) -> Option<&'r Vec<u8>> {
    if rooted.is_empty() {
        return None;
    }
    let by_assembler = run.opens.iter().filter(|open| {
        let program = file_name(run.opener(open).program);
        program == b"as" || program.ends_with(b"-as")
    });
    let opened: HashSet<&[u8]> = by_assembler.map(|open| file_name(open.path)).collect();
    rooted.iter().find(|path| opened.contains(file_name(path)))
}
