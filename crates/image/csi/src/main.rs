//! `larder-csi`: the CSI node plugin of a Kubernetes node.
#![forbid(unsafe_code)]

#[cfg(target_os = "linux")]
mod options;

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    use clap::Parser;
    match options::Options::parse().run() {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("larder-csi: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("larder-csi: mounts images on nodes of Kubernetes that run Linux, and does nothing elsewhere");
}
