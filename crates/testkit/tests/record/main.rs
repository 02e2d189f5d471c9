//! Records real builds. Compares the recorded processes with `strace`, checks the outcomes of
//! larder, and opens the page in a real browser.
#![cfg(target_os = "linux")]

mod browser;
mod builds;
mod made;
mod page;
mod processes;
mod reports;
mod sessions;
