//! The ladder: each way to have an image's tree, best first. Every rung gives the same tree.

use std::fmt;
use std::str::FromStr;

/// A way to have an image's tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rung {
    /// EROFS metadata mounted, data filled in when it is first touched, an overlay on top.
    Lazy,
    /// The whole image local, mounted by the kernel as EROFS, an overlay on top.
    Mount,
    /// EROFS metadata answered for by a FUSE server of larder's own, data filled in when it is first read, an overlay on
    /// top where that is possible.
    LazyFuse,
    /// A squashfs image, mounted by the kernel through a loop device, an overlay on top.
    Squashfs,
    /// The image mounted by a FUSE program, an overlay on top where that is possible.
    Fuse,
    /// Files made from the image, as an archive does.
    Unpack,
}

/// A rung as it was tried here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Which.
    pub rung: Rung,
    /// How it works here, or why it cannot be taken.
    pub found: Result<String, String>,
}

impl Rung {
    /// All of them, best first.
    pub const ALL: [Rung; 6] = [Rung::Lazy, Rung::Mount, Rung::LazyFuse, Rung::Squashfs, Rung::Fuse, Rung::Unpack];

    /// As it is typed after `--via`.
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

    /// What it needs of the system: `docs/mounting.md` has the sources.
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
