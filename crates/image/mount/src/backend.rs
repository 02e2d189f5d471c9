//! The ways to get an image's tree, best first. Every backend gives the same tree.

use std::fmt;
use std::str::FromStr;

/// A way to get an image's tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Backend {
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

/// The result of trying a backend on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The backend that was tried.
    pub backend: Backend,
    /// How the backend works on this machine, or why it does not.
    pub found: Result<String, String>,
}

impl Backend {
    /// All backends, best first.
    pub const ALL: [Backend; 6] =
        [Backend::Lazy, Backend::Mount, Backend::LazyFuse, Backend::Squashfs, Backend::Fuse, Backend::Unpack];

    /// Returns the name of the backend as users type it after `--via`.
    pub fn word(self) -> &'static str {
        match self {
            Backend::Lazy => "lazy",
            Backend::Mount => "mount",
            Backend::LazyFuse => "lazy-fuse",
            Backend::Squashfs => "squashfs",
            Backend::Fuse => "fuse",
            Backend::Unpack => "unpack",
        }
    }

    /// Returns what the backend needs of the system, for messages. `docs/mounting.md` names the
    /// sources.
    pub fn needs(self) -> &'static str {
        match self {
            Backend::Lazy => "Linux 6.12 (EROFS from files), /dev/fuse, superuser or the broker",
            Backend::Mount => "Linux 6.12 (EROFS from files), or 5.10 and a loop device; superuser or the broker",
            Backend::LazyFuse => "/dev/fuse; for writing, Linux 5.11 (overlay in a user namespace) or fuse-overlayfs",
            Backend::Squashfs => "squashfs and a loop device; superuser or the broker",
            Backend::Fuse => {
                "/dev/fuse, squashfuse or erofsfuse; for writing, Linux 5.11 (overlay in a user namespace) or fuse-overlayfs"
            }
            Backend::Unpack => "nothing",
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Backend {
    type Err = String;

    fn from_str(word: &str) -> Result<Backend, String> {
        let words = || Backend::ALL.map(Backend::word).join(", ");
        let found = Backend::ALL.into_iter().find(|backend| backend.word() == word);
        found.ok_or_else(|| format!("`{word}` is none of {}", words()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_they_are_written() {
        for backend in Backend::ALL {
            assert_eq!(backend.to_string().parse(), Ok(backend));
        }
        assert_eq!(
            "nfs".parse::<Backend>(),
            Err("`nfs` is none of lazy, mount, lazy-fuse, squashfs, fuse, unpack".to_owned())
        );
    }
}
