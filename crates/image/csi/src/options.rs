//! The command line of `larder-csi`.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Parser;
use larder_csi::{Finder, Rules, Volumes, serve};

/// Mounts images in pods, as ephemeral inline volumes of the driver `larder.csi`.
///
/// Needs a broker (`larder image broker`) that has the images.
#[derive(Parser)]
#[command(name = "larder-csi", version, max_term_width = 110)]
pub(crate) struct Options {
    /// The socket on which kubelet calls, as a path or `unix://` and a path
    #[arg(long, default_value = "/csi/csi.sock")]
    endpoint: String,
    /// The name of this node [default: the host's name]
    #[arg(long)]
    node: Option<String>,
    /// The directory for the state of volumes and for what pods write; not on an overlay or in memory
    #[arg(long, value_name = "DIR", default_value = "/var/lib/larder-csi")]
    state: PathBuf,
    /// The socket of the broker
    #[arg(long, value_name = "SOCKET", default_value = "/run/larder/broker.sock")]
    broker: PathBuf,
    /// The program that finds images
    #[arg(long, value_name = "PROGRAM", default_value = "larder")]
    larder: PathBuf,
    /// The directory below which volumes are mounted
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet")]
    targets: PathBuf,
    /// How much a pod can write to a volume, in MiB; 0 for no limit
    #[arg(long, value_name = "MIB", default_value_t = 10 << 10)]
    writes_max: u64,
    /// A remote that pods may name in the attribute `remote`; may be repeated
    #[arg(long, value_name = "URL")]
    remote: Vec<String>,
    /// Let pods of this namespace (`*` for all) use keys with this beginning, and no others; may be
    /// repeated
    #[arg(long, value_name = "NAMESPACE=BEGINNING", value_parser = rule)]
    allow: Vec<(String, String)>,
}

fn rule(text: &str) -> Result<(String, String), String> {
    let (namespace, beginning) = text.split_once('=').ok_or("has no `=`")?;
    Ok((namespace.to_owned(), beginning.to_owned()))
}

impl Options {
    /// Serves until it is told to end.
    pub(crate) fn run(self) -> Result<()> {
        let name = || rustix::system::uname().nodename().to_string_lossy().into_owned();
        let socket = PathBuf::from(self.endpoint.strip_prefix("unix://").unwrap_or(&self.endpoint));
        let volumes = Volumes::open(&self.state, &self.broker, &self.targets, self.writes_max << 20)?;
        let finder = Finder::new(&self.larder, &self.state.join("images"))?;
        let rules = Rules { keys: self.allow, remotes: self.remote };
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        let runtime = runtime.context("no threads can be started")?;
        runtime.block_on(serve(&socket, self.node.unwrap_or_else(name), volumes, finder, rules))
    }
}
