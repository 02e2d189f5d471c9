//! Stamps for wrappers that cannot write any: the system's files that a record relied on are looked at from here, so
//! that the next sandbox need not read compilers and headers to know that they are as they were; nor the blobs that it
//! copies.
//!
//! Nothing is taken from the wrapper but paths, and the sandbox reads the stamps. So a file is read only if everybody on
//! the machine may read it: it and each directory above it belong to root, nobody else can write to them, and all may
//! read the one and search the others. What the sandbox hides beside that, it hides from nobody.

use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use larder_model::{Fact, Manifest, PLACEHOLDER};
use larder_store::{STAMP_AGE_MIN_NS, Stamps, Store};
use larder_sys::{Kind, Look, Opening};

/// What was written just now is not stamped yet.
const AGE: Duration = Duration::from_nanos(STAMP_AGE_MIN_NS as u64 + 10_000_000);
/// The field of a walk that has the tool's path.
const TOOL: &[u8] = b"tool path";
const SUPERUSER: u32 = 0;
/// Write for the group and for others.
const OTHERS_WRITE: u32 = 0o022;
/// Read for others.
const ALL_READ: u32 = 0o004;
/// Search for others.
const ALL_SEARCH: u32 = 0o001;

/// Stamp the system's files that the record in `bytes` relied on, and its blobs. Whether the record holds here does not
/// matter.
pub(super) fn warm(store: &Store, bytes: &[u8]) {
    let Ok(manifest) = Manifest::decode(bytes) else { return };
    std::thread::sleep(AGE);
    let stamps = Stamps::open(store, true);
    let tools = manifest.fields.iter().filter(|(name, _)| *name == TOOL);
    tools.for_each(|(_, path)| stamp(path, &stamps));
    for entry in &manifest.entries {
        let Ok((set, result)) = entry.open() else { continue };
        result.blobs().for_each(|blob| drop(store.open_blob(&blob, &stamps)));
        for directory in set.directories.iter().filter(|directory| !directory.path.contains(&PLACEHOLDER)) {
            for named in directory.facts.iter().filter(|named| matches!(named.fact, Fact::Content { .. })) {
                stamp(&[directory.path, b"/", named.name].concat(), &stamps);
            }
        }
    }
    let _ = stamps.settle(store);
}

/// Read a file of the system's and stamp it, if it has no stamp yet.
fn stamp(path: &[u8], stamps: &Stamps) {
    if let Some((mut file, look)) = of_the_system(path)
        && stamps.content(&look).is_none()
    {
        let _ = stamps.hash(&mut file);
    }
}

/// The file at an absolute path, open, if everybody may read it and only root can change what the path leads to. What was
/// opened is what is looked at; nothing is waited for.
fn of_the_system(path: &[u8]) -> Option<(File, Look)> {
    let path = Path::new(std::ffi::OsStr::from_bytes(path));
    let real = path.is_absolute().then(|| path.canonicalize().ok())??;
    let is_roots = |look: &Look| look.owner == SUPERUSER && look.mode & OTHERS_WRITE == 0;
    let is_open_to_all = |above: &Path| {
        let look = larder_sys::look(above.as_os_str().as_bytes());
        look.is_ok_and(|look| look.kind == Kind::Directory && is_roots(&look) && look.mode & ALL_SEARCH != 0)
    };
    if !real.ancestors().skip(1).all(is_open_to_all) {
        return None;
    }
    let file = larder_sys::open(real.as_os_str().as_bytes(), Opening::ReadPlain).ok()?;
    let look = larder_sys::file_look(&file).ok()?;
    (look.kind == Kind::File && is_roots(&look) && look.mode & ALL_READ != 0).then_some((file, look))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn is_read(path: &Path) -> bool {
        of_the_system(path.as_os_str().as_bytes()).is_some()
    }

    #[test]
    fn what_all_may_read_is_read() {
        let users = Path::new("/etc/passwd");
        assert!(is_read(users), "it belongs to root, and everybody reads it");
        assert!(!is_read(Path::new("etc/passwd")) && !is_read(Path::new("/etc")) && !is_read(Path::new("/dev/zero")));
    }

    /// Whoever runs larderd may read these. A sandbox may not, and would have their digests.
    #[test]
    fn what_is_somebodys_own_is_not_read() {
        if larder_sys::effective_user() != SUPERUSER {
            eprintln!("skipped: only root can make files that belong to root");
            return;
        }
        // Below a directory that only root can write to.
        let top = tempfile::tempdir_in("/usr/local").expect("a directory");
        let mode =
            |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("is ours");
        let (open, secret) = (top.path().join("open"), top.path().join("secret"));
        std::fs::write(&open, "all").expect("writes");
        std::fs::write(&secret, "PIN=4711").expect("writes");
        let link = top.path().join("link");
        std::os::unix::fs::symlink(&secret, &link).expect("links");
        let fifo = top.path().join("fifo");
        let made = std::process::Command::new("mkfifo").arg(&fifo).status().expect("runs");
        assert!(made.success());
        mode(top.path(), 0o755);
        mode(&open, 0o644);
        mode(&fifo, 0o644);
        mode(&secret, 0o640);
        assert!(is_read(&open));
        assert!(!is_read(&secret), "not for all to read");
        assert!(!is_read(&link), "nor by another name");
        assert!(!is_read(&fifo), "no file, and it is not waited for");
        mode(&open, 0o664);
        assert!(!is_read(&open), "others can write to it");
        mode(&open, 0o644);
        mode(top.path(), 0o700);
        assert!(!is_read(&open), "nobody else can reach it");
        mode(top.path(), 0o777);
        assert!(!is_read(&open), "others can exchange it");
        mode(top.path(), 0o755);
        std::os::unix::fs::chown(&open, Some(65534), None).expect("gives it away");
        assert!(!is_read(&open), "it is somebody's own");
    }
}
