//! What was in files before a command ran: those that it names, since archivers, `strip` and `sed -i` change what they
//! read, and those that a run of it before was seen to change.
//!
//! Unaware of: whether the command will read or change them.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use larder_compiler::Family;
use larder_lookup::Request;
use larder_model::{Digest, Identity, Prior};
use larder_store::Stamps;
use larder_sys::{Kind, Look};

/// Beyond this much, nothing more is read for it.
const READ_BYTES_MAX: u64 = 64 << 20;

/// Files as they were.
#[derive(Default)]
pub(crate) struct Before {
    files: Vec<(Look, Digest)>,
}

impl Before {
    /// Note the files that `request` names, and those that it `changes`. A compiler's sources are never changed, so
    /// nothing is noted for one.
    pub(crate) fn note(request: &Request, changes: &[Vec<u8>], stamps: &Stamps) -> Before {
        let mut before = Before::default();
        if !matches!(request.family, Family::Binutils | Family::Command) {
            return before;
        }
        let mut left = READ_BYTES_MAX;
        for argument in request.action.argv[1..].iter().chain(changes) {
            let Ok(look) = larder_sys::look_through(argument) else { continue };
            if look.kind != Kind::File || look.size_bytes > left {
                continue;
            }
            let known = stamps.content(&look);
            let read = || {
                left -= look.size_bytes;
                let mut file = File::open(Path::new(OsStr::from_bytes(argument))).ok()?;
                let digest = stamps.hash(&mut file).ok()?;
                larder_sys::file_look(&file).is_ok_and(|after| after == look).then_some(digest)
            };
            if let Some(digest) = known.or_else(read) {
                before.files.push((look, digest));
            }
        }
        before
    }

    /// Whether the file at `path` was noted and has not changed since, though it may have been opened for writing, as
    /// `flock` does: a change after `started_ns` would show in its times.
    pub(crate) fn is_as_it_was(&self, path: &[u8], started_ns: i64) -> bool {
        let now = larder_sys::look_through(path).ok().filter(|now| now.changed_ns < started_ns);
        now.is_some_and(|now| self.files.iter().any(|(look, _)| *look == now))
    }

    /// What the file was that the command then had open, if it was noted and had not changed meanwhile.
    pub(crate) fn of(&self, opened: &Identity) -> Option<Prior> {
        let same = |look: &Look| {
            (look.device, look.inode, look.size_bytes, look.modified_ns, look.changed_ns)
                == (opened.device, opened.inode, opened.size_bytes, opened.modified_ns, opened.changed_ns)
        };
        let (look, digest) = self.files.iter().find(|(look, _)| same(look))?;
        Some(Prior::File { digest: *digest, mode: Some(look.mode) })
    }
}
