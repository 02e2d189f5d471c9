//! Class F: commands other than the compilation of one source: links, archives, other stages of a
//! compiler, and any other command.

mod any;
mod archives;
mod generators;
mod git;
mod links;
mod stages;

use crate::case::Case;

pub(super) fn cases() -> Vec<Case> {
    let parts = [links::cases, archives::cases, stages::cases, any::cases, generators::cases, git::cases];
    parts.iter().flat_map(|cases| cases()).collect()
}
