//! Exports of a record to the formats of other programs, one file per format.

mod arguments;
mod chrome;
mod json;
mod markdown;
mod perfetto;

pub use chrome::chrome;
pub use json::json;
pub use markdown::{causes, markdown};
pub use perfetto::perfetto;
