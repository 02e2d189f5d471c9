//! Job slots, memory and scheduling classes with real processes: how many tools run at once, and
//! that no waiter waits for ever, whatever happens to the process that holds a token.
#![cfg(target_os = "linux")]

mod builds;
mod class;
mod count;
mod inside;
mod kill;
mod support;
