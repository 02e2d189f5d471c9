//! The CSI node plugin: mounts images in pods, as ephemeral inline volumes.
//!
//! ```text
//! kubelet ── gRPC ──► larder-csi ── image's name ──► broker
//!                         │      ◄── read-only mount ──┘
//!                         └ overlay: the image below, a file of limited size above
//! ```
//!
//! | file | holds |
//! |---|---|
//! | `service.rs` | the services Identity and Node of the Container Storage Interface |
//! | `attributes.rs` | what a pod asks for, and which namespace may use which keys |
//! | `locate.rs` | finds an image, by a process without rights |
//! | `volumes.rs` | mounts, unmounts, and removes what a killed plugin left |
//! | `record.rs` | what is noted of a volume on the disk |
//! | `writes.rs` | the file system of limited size that takes what a pod writes |
//!
//! Unaware of: how an image is fetched and mounted, which the broker does.
#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

mod attributes;
mod locate;
mod record;
mod service;
mod volumes;
mod writes;

/// The messages and services of the Container Storage Interface.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::unwrap_used)]
pub mod proto {
    tonic::include_proto!("csi.v1");
}

pub use attributes::Rules;
pub use locate::Finder;
pub use service::serve;
pub use volumes::Volumes;
