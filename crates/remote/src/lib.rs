//! Remotes: one far cache for a team and its CI, over services that exist already.
//!
//! | file | holds |
//! |---|---|
//! | `remote.rs` | the trait of a service, its contract, what it is asked with |
//! | `key.rs` | what an object is called |
//! | `url/` | a remote as people name it, and what they got wrong |
//! | `error.rs` | what can go wrong, and which of it is worth another try |
//!
//! Unaware of: tools, observers, where the local store is, what `larderd` does with what it gets.
#![forbid(unsafe_code)]

mod body;
mod error;
mod key;
mod remote;
mod url;

pub use body::{collect, file_body, whole};
pub use error::{RemoteError, Trouble};
pub use key::{Key, Kind, LAYOUT};
pub use remote::{Abilities, Body, Put, Remote, SMALL_BYTES_MAX, Stored};
pub use url::{Headers, Login, RemoteUrl, Service, Tls};
