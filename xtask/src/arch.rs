//! The architectures that larder is built for, and their names in options, Rust targets and
//! directories.

use anyhow::{Result, bail};
use clap::ValueEnum;

/// An architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Arch {
    /// Intel and AMD
    #[value(name = "x86-64", alias = "x86_64")]
    X86_64,
    /// 64-bit Arm
    #[value(name = "aarch64", alias = "arm64")]
    Aarch64,
}

impl Arch {
    /// The architecture that xtask was built for.
    pub(crate) const HOST: Arch = if cfg!(target_arch = "aarch64") { Arch::Aarch64 } else { Arch::X86_64 };

    /// Returns Rust's target for the static programs.
    pub(crate) const fn static_target(self) -> &'static str {
        match self {
            Arch::X86_64 => "x86_64-unknown-linux-musl",
            Arch::Aarch64 => "aarch64-unknown-linux-musl",
        }
    }

    /// Returns the directory in `target/` for its programs: `larder` for this machine's, which
    /// other commands use, or for example `larder-aarch64`.
    pub(crate) fn directory(self) -> &'static str {
        match self {
            _ if self == Arch::HOST => "larder",
            Arch::X86_64 => "larder-x86_64",
            Arch::Aarch64 => "larder-aarch64",
        }
    }

    /// Returns an error if larder cannot be built for it on this machine.
    pub(crate) fn check_buildable(self) -> Result<()> {
        if self == Arch::X86_64 && Arch::HOST != Arch::X86_64 {
            bail!("the programs for x86-64 are built on an x86-64 machine only: no cross compiler is set up for them");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_programs_lie_where_all_commands_look() {
        assert_eq!(Arch::HOST.directory(), "larder");
        let other = if Arch::HOST == Arch::X86_64 { Arch::Aarch64 } else { Arch::X86_64 };
        assert!(other.directory().starts_with("larder-"));
    }
}
