//! Recording real builds: every process against `strace`, what larder made of each command, and the page in a real
//! browser.
#![cfg(target_os = "linux")]

mod browser;
mod builds;
mod made;
mod page;
mod processes;
mod sessions;
