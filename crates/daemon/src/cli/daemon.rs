//! Command-line options of `daemon` and `serve`.
//!
//! Unaware of: what the subcommands do.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::as_json::AsJson;

/// Arguments of `daemon`.
#[derive(Args)]
pub(crate) struct Daemon {
    #[command(subcommand)]
    pub(crate) word: DaemonWord,
}

/// Subcommands of `daemon`.
#[derive(Subcommand)]
pub(crate) enum DaemonWord {
    /// Start larderd, unless it is running
    Start(DaemonStart),
    /// Tell larderd to exit after it has recorded everything it has accepted
    Stop,
    /// Say whether larderd runs; exit code 1 if nothing listens on its socket
    Status(AsJson),
    /// Write the unit files with which systemd starts larderd on demand
    Install(DaemonInstall),
}

/// Options of `daemon start`, and how larderd runs.
#[derive(Args)]
pub(crate) struct DaemonStart {
    /// Exit after this many seconds without work
    #[arg(long, value_name = "SECONDS", default_value_t = IDLE_S, value_parser = clap::value_parser!(u64).range(1..=IDLE_MAX_S))]
    pub(crate) idle: u64,
    /// Refuse records from sandboxes, for jobs that are not trusted
    #[arg(long)]
    pub(crate) hits_only: bool,
}

/// Options of `daemon install`.
#[derive(Args)]
pub(crate) struct DaemonInstall {
    /// Print the files instead of writing them
    #[arg(long)]
    pub(crate) print: bool,
    /// Write a launchd file instead of systemd units; always so on macOS
    #[arg(long)]
    pub(crate) launchd: bool,
    /// Install the machine's broker instead, which mounts images for jobs without the rights to
    /// mount; a systemd unit for root
    #[arg(long, conflicts_with = "launchd")]
    pub(crate) broker: bool,
    /// With --broker, mount only on and below this directory if the mount is visible machine-wide;
    /// may be repeated
    #[arg(long, value_name = "DIR", requires = "broker")]
    pub(crate) target: Vec<PathBuf>,
}

/// Options of `serve`.
#[derive(Args)]
pub(crate) struct Serve {
    /// Start another larderd in a session of its own, and return
    #[arg(long, hide = true)]
    pub(crate) apart: bool,
    #[command(flatten)]
    pub(crate) how: DaemonStart,
}

impl DaemonStart {
    /// The values that larderd uses if no option is given.
    pub(crate) const USUAL: DaemonStart = DaemonStart { idle: IDLE_S, hits_only: false };
}

/// The default time without work after which larderd exits: one hour.
const IDLE_S: u64 = 3600;
/// The largest accepted value: ten years.
const IDLE_MAX_S: u64 = 315_360_000;
