//! Tokens, memory and classes with real processes: how many tools run at once, and that nobody waits for ever whatever
//! becomes of whoever has a token.
#![cfg(target_os = "linux")]

mod builds;
mod class;
mod count;
mod inside;
mod kill;
mod support;
