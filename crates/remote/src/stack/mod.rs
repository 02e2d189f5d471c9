//! Decorators: what is added around a service, a file each. Each is a `Remote` around a `Remote`.

mod parts;
mod verify;

pub use parts::Parts;
pub use verify::Verify;
pub(crate) use verify::verified;
