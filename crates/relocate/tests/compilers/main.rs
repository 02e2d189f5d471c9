//! Real compilers in two places.

mod depfiles;
mod messages;
mod objects;
mod refusals;
mod support;
