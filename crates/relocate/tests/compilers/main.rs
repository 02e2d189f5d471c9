//! Real compilers in two places.

mod archives;
mod depfiles;
mod messages;
mod objects;
mod programs;
mod refusals;
mod support;
