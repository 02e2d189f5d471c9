//! Class A: inputs that appear, vanish, change or move.

mod clock;
mod content;
mod files;
mod headers;
mod same;
mod text;
mod tools;

use crate::case::Case;

pub(super) fn cases() -> Vec<Case> {
    let parts = [headers::cases, content::cases, same::cases, files::cases, tools::cases, clock::cases, text::cases];
    parts.iter().flat_map(|cases| cases()).collect()
}
