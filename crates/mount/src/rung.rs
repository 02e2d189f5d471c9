//! The ladder: the ways to get an image's tree, best first. Every rung gives the same tree.

use std::fmt;
use std::str::FromStr;

/// A way to get an image's tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rung {
    /// The kernel mounts EROFS metadata, data is fetched when it is first read, and an overlay is
    /// on top.
    Lazy,
    /// All data is fetched first, then the kernel mounts it as EROFS, with an overlay on top.
    Mount,
    /// larder's own FUSE server answers from EROFS metadata and fetches data when it is first read.
    /// An overlay is on top if the system allows one.
    LazyFuse,
    /// The kernel mounts a squashfs image through a loop device, with an overlay on top.
    Squashfs,
    /// An installed FUSE program mounts the image. An overlay is on top if the system allows one.
    Fuse,
    /// The files are written out, as if an archive were unpacked.
    Unpack,
}

/// The result of trying a rung on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The rung that was tried.
    pub rung: Rung,
    /// How the rung works on this machine, or why it does not.
    pub found: Result<String, String>,
}

impl Rung {
    /// All rungs, best first.
    pub const ALL: [Rung; 6] = [Rung::Lazy, Rung::Mount, Rung::LazyFuse, Rung::Squashfs, Rung::Fuse, Rung::Unpack];

    /// The name of the rung as users type it after `--via`.
    pub fn word(self) -> &'static str {
        match self {
            Rung::Lazy => "lazy",
            Rung::Mount => "mount",
            Rung::LazyFuse => "lazy-fuse",
            Rung::Squashfs => "squashfs",
            Rung::Fuse => "fuse",
            Rung::Unpack => "unpack",
        }
    }

    /// What the rung needs of the system, for messages. `docs/mounting.md` names the sources.
    pub fn needs(self) -> &'static str {
        match self {
            Rung::Lazy => "Linux 6.12 (EROFS from files), /dev/fuse, superuser or the broker",
            Rung::Mount => "Linux 6.12 (EROFS from files), or 5.10 and a loop device; superuser or the broker",
            Rung::LazyFuse => "/dev/fuse; for writing, Linux 5.11 (overlay in a user namespace)",
            Rung::Squashfs => "squashfs and a loop device; superuser or the broker",
            Rung::Fuse => "/dev/fuse, squashfuse or erofsfuse; for writing, Linux 5.11 (overlay in a user namespace)",
            Rung::Unpack => "nothing",
        }
    }
}

impl fmt::Display for Rung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Rung {
    type Err = String;

    fn from_str(word: &str) -> Result<Rung, String> {
        let words = || Rung::ALL.map(Rung::word).join(", ");
        let found = Rung::ALL.into_iter().find(|rung| rung.word() == word);
        found.ok_or_else(|| format!("`{word}` is none of {}", words()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_they_are_written() {
        for rung in Rung::ALL {
            assert_eq!(rung.to_string().parse(), Ok(rung));
        }
        assert_eq!(
            "nfs".parse::<Rung>(),
            Err("`nfs` is none of lazy, mount, lazy-fuse, squashfs, fuse, unpack".to_owned())
        );
    }
}
