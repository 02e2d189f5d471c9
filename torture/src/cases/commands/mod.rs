//! Class F: commands beside the compile of one source: links, archives, other stages, and anything else.

mod any;
mod archives;
mod generators;
mod links;
mod stages;

use crate::case::Case;

pub(super) fn cases() -> Vec<Case> {
    let parts = [links::cases, archives::cases, stages::cases, any::cases, generators::cases];
    parts.iter().flat_map(|cases| cases()).collect()
}
