//! Command-line options of `init`.
//!
//! Unaware of: what is changed for each build tool.

use clap::{Args, ValueEnum};

/// Options of `init`.
#[derive(Args)]
pub(crate) struct Init {
    /// The build tool to set up. By default, each one that the working directory uses
    #[arg(value_name = "TOOL")]
    pub(crate) tools: Vec<BuildTool>,
    /// Apply the changes without asking
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Only print the changes
    #[arg(long, conflicts_with = "yes")]
    pub(crate) print: bool,
    /// Take back what `larder init` changed for this directory
    #[arg(long, conflicts_with_all = ["tools", "yes", "print", "user"])]
    pub(crate) undo: bool,
    /// For cargo: change your own configuration, which holds for all of your projects
    #[arg(long)]
    pub(crate) user: bool,
}

/// The build tools that `larder init` sets up, in the order of its output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum BuildTool {
    /// Rust: `rustc-wrapper` in `.cargo/config.toml`
    Cargo,
    /// CMake: links with compilers' names first in PATH, and a preset
    Cmake,
    /// make, autotools, and everything that calls compilers by name: links first in PATH
    Make,
    /// Meson: links first in PATH, and a native file
    Meson,
    /// Bazel: a link, and a line in a .bazelrc
    Bazel,
    /// npm and pnpm: a script in package.json that restores `node_modules`
    #[value(alias = "pnpm")]
    Npm,
    /// GitHub Actions and GitLab CI: lines to add to a job
    Ci,
}
