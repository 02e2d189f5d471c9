//! Tests with real compilers in two places.

mod archives;
mod as_long;
mod depfiles;
mod messages;
mod objects;
mod programs;
mod refusals;
mod support;
