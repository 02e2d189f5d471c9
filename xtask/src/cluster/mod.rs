//! `cargo xtask cluster`: pods that use the CSI driver, in a real Kubernetes cluster of one node.
//!
//! The API server, the scheduler, the controllers and kubelet are built from their Go module. Debian
//! has etcd, containerd and runc. The driver is installed by the manifests in
//! `packaging/kubernetes`. `build.sh` makes what can be kept; `inside.sh` starts the cluster, runs the
//! pods and checks what they print.
//!
//! Two things are not as in a usual cluster: the registrar is a program of 50 lines
//! (`registrar.go`), because its Go module is not everywhere, and images are imported from files,
//! because there is no registry.

use crate::arch::Arch;
use crate::place::{Place, on_path};
use crate::{binaries, debian, files, packages, run};
use anyhow::{Result, ensure};
use std::path::PathBuf;
use std::process::Command;

/// The options of `cargo xtask cluster`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The number of pods that start at once
    #[arg(long, value_name = "NUMBER", default_value_t = 20)]
    pods: usize,
    /// Use the larder, larderd and larder-csi of this directory instead of building them
    #[arg(long, value_name = "DIRECTORY")]
    programs: Option<PathBuf>,
}

const KUBERNETES: &str = "1.34.4";
/// The files of this directory that are used there.
const FILES: &[(&str, &str)] = &[
    ("build.sh", include_str!("build.sh")),
    ("inside.sh", include_str!("inside.sh")),
    ("registrar.go", include_str!("registrar.go")),
];
const PACKAGES: &str = "containerd /usr/lib/cni/bridge=containernetworking-plugins debootstrap etcd=etcd-server \
     ip=iproute2 openssl redis-server runc";

/// Starts the cluster and runs the pods. Returns false if one does not do what it should.
pub(crate) fn cluster(place: &Place, options: &Options) -> Result<bool> {
    ensure!(nix::unistd::geteuid().is_root(), "a node needs root: `sudo -E cargo xtask cluster`");
    ensure!(on_path("go").is_some(), "Go is not installed, by which Kubernetes is built");
    packages::packages(PACKAGES)?;
    let programs = match &options.programs {
        Some(directory) => directory.canonicalize()?,
        None => {
            binaries::build(place)?;
            binaries::build_plugin_for(place, Arch::HOST)?;
            place.target.join(Arch::HOST.directory())
        }
    };
    let work = place.target.join("cluster");
    files::make(&work)?;
    for (name, text) in FILES {
        files::write(work.join(name), text)?;
    }
    if !work.join("bin").is_dir() {
        println!("building Kubernetes {KUBERNETES}, once: this takes about ten minutes");
    }
    let mut build = Command::new("sh");
    build.arg("build.sh").current_dir(&work).env("VERSION", KUBERNETES).env("MIRROR", debian::mirror()?);
    run::logged(build.env("PROGRAMS", &programs), &work.join("build.log"), || {})?;
    let mut inside = Command::new("unshare");
    inside.args(["--mount", "--propagation", "private", "sh", "inside.sh"]).current_dir(&work);
    inside.env("PODS", options.pods.to_string()).env("MANIFESTS", place.repo.join("packaging/kubernetes"));
    Ok(inside.status()?.success())
}
