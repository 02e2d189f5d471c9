//! Remotes: stores that are filled from them, races between a fetch and the tool, and remotes that
//! are late, silent or gone.

mod far;

mod filled;
mod races;
mod secrets;
mod signed;
mod trouble;
