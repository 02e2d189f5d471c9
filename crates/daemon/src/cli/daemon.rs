//! What can be typed about `larderd` itself.
//!
//! Unaware of: what is done then.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// What `daemon` takes.
#[derive(Args)]
pub(crate) struct Daemon {
    #[command(subcommand)]
    pub(crate) word: DaemonWord,
}

/// What is to be done with it.
#[derive(Subcommand)]
pub(crate) enum DaemonWord {
    /// Start larderd, unless it runs
    Start(DaemonStart),
    /// Have larderd end once it has recorded what it has
    Stop,
    /// Say whether larderd runs; exit code 1 when nobody listens
    Status(DaemonStatus),
    /// Write the files by which systemd starts larderd on demand
    Install(DaemonInstall),
}

/// Options of `daemon start`.
#[derive(Args)]
pub(crate) struct DaemonStart {
    /// Leave after so many seconds without work
    #[arg(long, value_name = "SECONDS", default_value_t = IDLE_S, value_parser = clap::value_parser!(u64).range(1..=IDLE_MAX_S))]
    pub(crate) idle: u64,
    /// Take nothing that sandboxes hand over, for jobs that are not trusted
    #[arg(long)]
    pub(crate) hits_only: bool,
}

/// Options of `daemon status`.
#[derive(Args)]
pub(crate) struct DaemonStatus {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `daemon install`.
#[derive(Args)]
pub(crate) struct DaemonInstall {
    /// Print the files instead of writing them
    #[arg(long)]
    pub(crate) print: bool,
    /// For launchd, as always on macOS, instead of systemd
    #[arg(long)]
    pub(crate) launchd: bool,
    /// The machine's broker, which mounts images for jobs that may not, instead: a unit of systemd's, for root
    #[arg(long, conflicts_with = "launchd")]
    pub(crate) broker: bool,
    /// With --broker, mount only on and below this directory where everybody sees it; may be given several times
    #[arg(long, value_name = "DIR", requires = "broker")]
    pub(crate) target: Vec<PathBuf>,
}

/// Options of `serve`.
#[derive(Args)]
pub(crate) struct Serve {
    /// Start another one in a session of its own, and leave it to itself
    #[arg(long, hide = true)]
    pub(crate) apart: bool,
    /// Leave after so many seconds without work
    #[arg(long, value_name = "SECONDS", default_value_t = IDLE_S, value_parser = clap::value_parser!(u64).range(1..=IDLE_MAX_S))]
    pub(crate) idle: u64,
    /// Take nothing that sandboxes hand over, for jobs that are not trusted
    #[arg(long)]
    pub(crate) hits_only: bool,
}

/// An hour.
pub(crate) const IDLE_S: u64 = 3600;
/// Ten years.
const IDLE_MAX_S: u64 = 315_360_000;
