//! Remotes: stores filled from them, races with the tool, and remotes that are late, silent, or gone.

mod far;

mod filled;
mod races;
mod secrets;
mod signed;
mod trouble;
