//! What can be typed about the broker.
//!
//! Unaware of: what is done then.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Options of `broker`.
#[derive(Args)]
pub(crate) struct BrokerOptions {
    #[command(subcommand)]
    pub(crate) word: Option<BrokerWord>,
    /// Where to listen, unless systemd does
    #[arg(long, value_name = "PATH", default_value = BROKER_SOCKET)]
    pub(crate) socket: PathBuf,
    /// Where to note what is mounted, and keep what jobs write
    #[arg(long, value_name = "DIR", default_value = "/var/lib/larder/mounts")]
    pub(crate) state: PathBuf,
    /// Serve only this user, by number; may be given several times
    #[arg(long, value_name = "UID")]
    pub(crate) user: Vec<u32>,
    /// Let jobs mount below this directory among the mounts that everybody sees; may be given several times
    #[arg(long, value_name = "DIR")]
    pub(crate) target: Vec<PathBuf>,
    /// Let a user have at most so many images mounted; 0 for any number
    #[arg(long, value_name = "COUNT", default_value_t = MOUNTS_MAX)]
    pub(crate) mounts_max: usize,
}

/// What else is to be done with it.
#[derive(Subcommand)]
pub(crate) enum BrokerWord {
    /// Write the files by which systemd starts it on demand
    Install(BrokerInstall),
}

/// Options of `broker install`.
#[derive(Args)]
pub(crate) struct BrokerInstall {
    /// Print the files instead of writing them
    #[arg(long)]
    pub(crate) print: bool,
}

/// Where jobs look for it.
pub(crate) const BROKER_SOCKET: &str = "/run/larder/broker.sock";
/// Jobs of one user on one machine; each has a directory, an overlay and a connection.
const MOUNTS_MAX: usize = 256;
